"""`lace remote get`: one record of a peer, written like `lace get` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lace.cli.command import command as lace_command
from lace.cli.outcomes import logged_link, logged_result
from lace.cli.output import plural
from lace.cli.peers import SyncArguments
from lace.cli.record_output import (
    RECORD_KEYS,
    RECORD_PIPED,
    check_record_options,
    record_options,
    write_record,
)
from lace.cli.remote_links import (
    RECEIPTS_OPTION,
    Remote,
    RemoteCommand,
    RemoteError,
    came_and_stays,
    publish_receipts,
    remote_options,
)
from lace.link.intake import choose_receipt_key
from lace.policy.operations import select_record
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.exchange.result import Outcome
    from lace.record.validate import ValidRecord

__all__ = ["command"]


def _find(remote: Remote, text: str, outcome: Outcome) -> ValidRecord:
    """Return the newest of the records that the peer offers and are here now."""
    claimed = remote.claims.claimed
    if not claimed:
        raise RemoteError(
            f"{remote.place} offers nothing under {text}",
            rule="G48",
            hint="it has no such record, or its selector or exposures leave it out",
        )
    with remote.lace.snapshot() as snapshot:
        for stored in snapshot.find(parse_address(text)):
            if stored.id in claimed and (found := snapshot.load(stored.id)) is not None:
                return found
    why = ", ".join(f"{record}: {reason}" for record, reason in outcome.rejected[:1])
    raise RemoteError(
        f"{remote.place} offers {plural(len(claimed), 'record')} under {text}, and none came",
        rule="G48",
        hint=f"it was rejected ({why})" if why else "its selector may leave them out; run it again",
    )


@lace_command(
    "get",
    cls=RemoteCommand,
    piped=RECORD_PIPED,
    json_keys=RECORD_KEYS,
    examples=[
        ("lace remote get tcp:example.org //team//notes//plan --body", "read a note of a server"),
        ("lace remote get office B.….H3 --body -o photo.jpg", "fetch data from [peer.office]"),
        (
            "lace remote get stdio //u//notes//today --body -- ssh example.org lace serve stdio "
            "--select all.lace --expose view.lace",
            "over ssh, with no server running",
        ),
    ],
)
@click.argument("address", metavar="ADDRESS")
@click.argument("record", metavar="RECORD")
@record_options
@RECEIPTS_OPTION
@remote_options
@click.pass_obj
def command(
    session: Session,
    /,
    address: str,
    child: tuple[str, ...],
    record: str,
    body: bool,
    target: str | None,
    sign_receipts: bool,
    **rest: Any,  # noqa: ANN401 - the options, by their names
) -> int:
    """Fetch a record from a peer and write it, or only its data.

    ADDRESS is as for `lace sync`: an address, or the name of a table [peer.NAME] in
    lace.toml, of which the selector and the exposures are left aside. RECORD is a hash, ////hash
    or a coordinate: all its versions come, and the newest that the peer has is written.
    What comes is stored in this lace; nothing is sent.

    Exit code 1 when the peer offers no such record to you: it has none, or its selector or
    exposures leave it out; 4 when the peer or the network failed.
    """
    check_record_options(session.output, target)
    select = select_record(record)
    given = SyncArguments(address=address, command=child, **rest)
    with session.changing("remote get") as change:
        remote = Remote(session, change.lace, given, "remote get")
        signer = None
        if sign_receipts:
            signer = choose_receipt_key(change.lace.keys, remote.key, remote.claim)
        policy = remote.policy(select, given.expose or ())
        change.result.update(logged_link(given.address, policy))
        run = remote.run(policy)
        if run.outcome is not None:
            change.result.update(logged_result(run.outcome))
        outcome = run.finish(given.address)
        found = _find(remote, record, outcome)
        session.output.note(came_and_stays(len(outcome.received), change.lace.store.folder))
        if signer is not None:
            publish_receipts(session, change, signer, outcome)
    write_record(session.output, found, body=body, target=target)
    return 0
