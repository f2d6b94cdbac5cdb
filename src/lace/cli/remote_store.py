"""`lace remote store`: hand records of this lace over to a peer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api import now
from lace.cli.command import command as lace_command
from lace.cli.files import check_target, written
from lace.cli.outcomes import logged_link, logged_result
from lace.cli.output import Column, plural
from lace.cli.peers import SyncArguments
from lace.cli.record_tables import identifier_column
from lace.cli.records import find_records
from lace.cli.remote_links import Remote, RemoteCommand, RemoteError, remote_options
from lace.policy.exposure import exposure_of
from lace.policy.operations import expose_records, select_records
from lace.record.paths import Address, Coordinate
from lace.record.receipt import RECEIPT_APP, RECEIPT_GROUP, receipt_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.cli.session import Session
    from lace.interlacing.result import Outcome
    from lace.policy.local import Policy

__all__ = ["command"]

_STATES: Final = {
    "confirmed": "the peer says that it has it",
    "sent": "the peer asked for it and got it",
    "not-sent": "the peer asked for it and did not get it: it is gone, or the link ended",
    "not-asked": "the peer did not ask for it: it has it, or does not take it",
    "left-out": "the peer's selector leaves it out, or your exposures do",
}
_DONE: Final = frozenset({"confirmed", "sent"})


def _policy(remote: Remote, records: Sequence[str], *, receipts: bool) -> Policy:
    """Return what selects the records, and exposes them and nothing else."""
    select = select_records(records, receipts=receipts)
    named = remote.known.expose or ()
    module = expose_records(records)
    expected = remote.expected
    exposure = exposure_of(module, *expected) if expected else exposure_of(module, anyone=True)
    if not named and not expected:
        remote.session.output.note(
            f"anyone who answers at {remote.place} may get them; --peer V says who has to"
        )
    return remote.policy(select, named, [exposure])


def _state(remote: Remote, record: str) -> str:
    claims = remote.claims
    if record in claims.claimed:
        return "confirmed"
    if record in claims.sent:
        return "sent"
    if record in claims.asked:
        return "not-sent"
    return "not-asked" if record in claims.may_send else "left-out"


def _receipt(remote: Remote, record: str, signer: str | None) -> str | None:
    """Return the hash of a receipt for a record that the peer has signed, if it is here."""
    if signer is None:
        return None
    at = Coordinate(RECEIPT_GROUP, RECEIPT_APP, receipt_name(record))
    with remote.lace.snapshot() as snapshot:
        for found in snapshot.find(Address(coordinate=at, type="S")):
            if found.signed_by == signer:
                return str(found.id)
    return None


def _document(remote: Remote, records: Sequence[str], outcome: Outcome) -> dict[str, Any]:
    states = [
        {
            "id": record,
            "state": _state(remote, record),
            "receipt": _receipt(remote, record, outcome.peer_verifier),
        }
        for record in records
    ]
    return {
        "time": str(now()),
        "address": remote.known.address,
        "peer-verifier": outcome.peer_verifier,
        "exchange-plan-id": outcome.plan_id,
        "link-id": outcome.link_id,
        "at-fixed-point": outcome.at_fixed_point,
        "records": states,
    }


def _show(session: Session, document: dict[str, Any]) -> None:
    output = session.output
    if output.json:
        output.json_document(document)
        return
    rows = [(each["id"], each["state"]) for each in document["records"]]
    if output.terminal:
        columns = (identifier_column(), Column("state", style="bold"), Column(""))
        output.table(
            columns, [(record[:10] + "…", state, _STATES[state]) for record, state in rows]
        )
        return
    for record, state in rows:
        output.row((record, state))


@lace_command(
    "store",
    cls=RemoteCommand,
    piped="One line a record, tab-separated: its hash, and what became of it: "
    + ", ".join(f"{state} ({meaning})" for state, meaning in _STATES.items())
    + ".",
    json_keys={
        "records": "a list of {id, state, receipt}; the receipt is the hash of one that the "
        "peer has signed, or null",
        "time": "when it ended (TAI)",
        "address": "where the peer was",
        "peer-verifier, exchange-plan-id, link-id": "as for `lace sync`",
        "at-fixed-point": "whether nothing more was to be had",
    },
    examples=[
        ("lace remote store office //team//notes//plan", "hand a note over to [peer.office]"),
        (
            "lace remote store tcp:example.org P.….H3 S.….H3 --peer V.….H3 --receipt stored.json",
            "two records, to whom that key belongs, with a note of the outcome",
        ),
    ],
)
@click.argument("address", metavar="ADDRESS")
@click.argument("records", metavar="RECORD…", nargs=-1, required=True)
@click.option(
    "--receipt",
    "receipt_file",
    metavar="FILE",
    help="Write the result to FILE, as with --json. Receipts that the peer has signed for these "
    "records, and exposes, are fetched and named.",
)
@remote_options
@click.pass_obj
def command(
    session: Session,
    /,
    address: str,
    child: tuple[str, ...],
    records: tuple[str, ...],
    receipt_file: str | None,
    **rest: Any,  # noqa: ANN401 - the options, by their names
) -> int:
    """Hand records over to a peer.

    ADDRESS is as for `lace sync`: an address, or the name of a table [peer.NAME] in
    lace.toml, of which the selector is left aside. A RECORD is a hash, ////hash or a coordinate,
    which means its newest version. Unless exposures are named, there or with --expose, these
    records and nothing else are exposed: to --peer, or to anyone who answers.

    The peer decides what it takes. It says that it has a record only if it offers it to you in
    turn. Exit code 1 when one was neither sent nor there; 4 when the peer or the network
    failed.
    """
    if receipt_file is not None:
        check_target(receipt_file)
    given = SyncArguments(address=address, command=child, **rest)
    with session.changing("remote store") as change:
        with change.lace.snapshot() as snapshot:
            wanted = [str(stored.id) for stored in find_records(snapshot, records)]
        remote = Remote(session, change.lace, given, "remote store")
        policy = _policy(remote, wanted, receipts=receipt_file is not None)
        change.result.update(logged_link(given.address, policy))
        run = remote.run(policy)
        if run.outcome is not None:
            change.result.update(logged_result(run.outcome))
        outcome = run.finish(given.address)
        document = _document(remote, wanted, outcome)
        _show(session, document)
        if receipt_file is not None:
            with written(receipt_file) as file:
                file.write(json.dumps(document, indent=2).encode("ascii") + b"\n")
        lacking = [each for each in document["records"] if each["state"] not in _DONE]
        change.result["confirmed"] = len(wanted) - len(lacking)
        if lacking:
            first = lacking[0]
            raise RemoteError(
                f"{remote.place} did not take {plural(len(lacking), 'record')} of "
                f"{len(wanted):,}: of {first['id']}, {_STATES[first['state']]}",
                rule="G48",
                hint="ask the operator of the server for its selector, and look at `lace preview`",
            )
    return 0
