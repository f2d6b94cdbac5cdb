"""`lace remote`: operations on a peer, each an ordinary exchange with a selector made for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.api import now
from lace.api.exchanges import find_receipt, publish_receipts, receipt_key
from lace.api.links import RecordsStored
from lace.api.policy import (
    LOWERINGS,
    Policy,
    coordinate_prefix,
    expose_records,
    list_prefix,
    select_prefix,
    select_record,
    select_records,
)
from lace.api.records import find_records
from lace.cli.command import LaceCommand, LazyGroup, require_subcommand
from lace.cli.command import command as lace_command
from lace.cli.files import check_target, written
from lace.cli.link_options import (
    CA_OPTION,
    CLAIM_OPTION,
    KEY_OPTION,
    PEER_OPTION,
    PLAIN_OPTION,
    UID_MAP_OPTION,
    all_options,
    tls_options,
)
from lace.cli.link_runs import LinkRun, logged_link, logged_result
from lace.cli.output import TableColumn, cut_middle, plural, size_text, time_text
from lace.cli.peers import SyncArguments, known_of_peer, refuse_lost_files
from lace.cli.policy_files import read_exposures, read_selector, warn_of_names
from lace.cli.policy_options import (
    ALL_FIELDS_OPTION,
    ALLOW_UNDEFINED_OPTION,
    EXPOSE_OPTION,
    FIELD_OPTION,
    LOWERING_OPTION,
    offered,
)
from lace.cli.records import (
    RECORD_KEYS,
    RECORD_PIPED,
    check_record_options,
    record_options,
    show_listing,
    write_record,
)
from lace.errors import LaceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from lace.api import Lace
    from lace.api.links import Arrival, Claims, Field, LinkEvent, Outcome
    from lace.api.policy import Exposing, Rules
    from lace.api.records import FieldValue as Value
    from lace.api.records import SqliteSnapshot, ValidRecord
    from lace.cli.output import Output
    from lace.cli.session import Change, Session


_MODULES: Final[Mapping[str, str]] = {
    "get": "lace.cli.remote:get",
    "list": "lace.cli.remote:list_",
    "store": "lace.cli.remote:store",
    "watch": "lace.cli.remote:watch",
}


class _Remote(LazyGroup):
    modules = _MODULES


@click.group(
    "remote",
    cls=_Remote,
    examples=[
        ("lace remote list tcp:example.org //team//notes//", "what a server offers there"),
        ("lace remote get office //team//notes//plan --body", "one note of [peer.office]"),
        ("lace remote store office //team//notes//mine", "hand over a note of yours"),
        ("lace remote watch office //team//", "show what comes, as it comes"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Get, list, store and watch records of a peer.

    Each of these is an exchange like that of `lace sync`: it only brings a selector that is
    made for it. So the peer's selector and exposures decide as well, and the peer needs
    nothing special to be asked. Records that come are validated and stored in this lace.
    Nothing of yours is sent but what `store` names; --expose lets the peer's rules see more.
    """
    require_subcommand(ctx)


# -- What these operations have in common: their options, and the exchange they run.

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
_CHILD: Final = "[-- COMMAND…]"
RECEIPTS_OPTION: Final = click.option(
    "--sign-receipts",
    is_flag=True,
    help="Store a receipt here for each record that came, signed with your key: a record that "
    "says what was stored, from whom and when.",
)


class RemoteError(LaceError):
    """A peer that was reached, and did not give or take what was asked for."""


class RemoteCommand(LaceCommand):
    """A command about a peer: what stands behind `--` is what `stdio` starts."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command that is to be started from the arguments."""
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["child"] = tuple(args[at + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return what stands in the line of usage."""
        return [*super().collect_usage_pieces(ctx), _CHILD]


def remote_options(function: Decorated) -> Decorated:
    """Add the options that say how a peer is reached."""
    add: Callable[[Decorated], Decorated] = all_options(
        EXPOSE_OPTION,
        LOWERING_OPTION,
        ALLOW_UNDEFINED_OPTION,
        FIELD_OPTION,
        ALL_FIELDS_OPTION,
        KEY_OPTION,
        CLAIM_OPTION,
        PEER_OPTION,
        UID_MAP_OPTION,
        CA_OPTION,
        tls_options(
            "Your certificate, PEM, where a wss server asks for one.",
            "The key of that certificate, PEM.",
        ),
        PLAIN_OPTION,
    )
    return add(function)


class Remote:
    """One operation on a peer: an exchange with a selector that is made for it."""

    def __init__(self, session: Session, lace: Lace, given: SyncArguments, title: str) -> None:
        self.session, self.lace, self.given = session, lace, given
        self._title = title
        self.known = known_of_peer(session, given)
        self.key = self.known.signing_key(lace)
        self._run: LinkRun | None = None

    @property
    def place(self) -> str:
        """The peer, as it is called on the command line."""
        return self.given.address or ""

    @property
    def claims(self) -> Claims:
        """What the peer claims and requests, once the exchange has begun."""
        if self._run is None or self._run.link is None or self._run.link.claims is None:
            raise AssertionError("an exchange that has begun notes claims")
        return self._run.link.claims

    def policy(
        self, select: Rules, expose: Sequence[str], generated: Iterable[Exposing] = ()
    ) -> Policy:
        """Return the policy of the operation."""
        allow = self.known.allow_undefined or ()
        exposures = read_exposures(self.session, expose, allow) if expose else generated
        made = Policy(
            select,
            exposures,
            lowering=self.known.lowering or LOWERINGS[0],
            limits=self.session.rule_limits(),
            allow_undefined=allow,
            **offered(self.known.field, self.known.all_fields, self.known.format),
        )
        if expose:
            warn_of_names(self.session, self.lace, *(each.module for each in made.exposures))
        return made

    def prepare(
        self,
        policy: Policy,
        *,
        is_open: bool = False,
        hear: Callable[[LinkEvent], None] | None = None,
    ) -> LinkRun:
        """Return the exchange, which has not begun."""
        self._run = LinkRun(
            self.session,
            self.lace,
            self.known,
            policy,
            self.key,
            title=self._title,
            hear=hear,
            is_sending=False,
            open=is_open,
            claims=True,
        )
        return self._run

    def run(self, policy: Policy, change: Change | None = None) -> Outcome:
        """Run the exchange; raises the signal or the failure that ended it."""
        run = self.prepare(policy)
        if change is not None:
            change.result.update(logged_link(self.given.address, policy))
        run.run()
        if change is not None and run.outcome is not None:
            change.result.update(logged_result(run.outcome))
        return run.finish(self.given.address)


def came_and_stays(count: int, folder: Path) -> str:
    """Return what is said of records that came."""
    return f"{plural(count, 'record')} came and {'is' if count == 1 else 'are'} stored in {folder}"


# -- `lace remote get`: one record of a peer, written like `lace get` does.


def _find(remote: Remote, text: str, outcome: Outcome) -> ValidRecord:
    """Return the newest of the records that the peer offers and are here now."""
    claimed = remote.claims.claimed
    if not claimed:
        raise RemoteError(
            f"{remote.place} offers nothing under {text}",
            rule="G48",
            hint="it has no such record, or its selector or exposures leave it out",
        )
    offered_here = [each for each in remote.lace.find(text) if each.id in claimed]
    with remote.lace.snapshot() as snapshot:
        for stored in offered_here:
            if (found := snapshot.load(stored.id)) is not None:
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
    api="connect, select_record",
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
def get(
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
            signer = receipt_key(change.lace, remote.key, remote.known.claim)
        outcome = remote.run(remote.policy(select, given.expose or ()), change)
        found = _find(remote, record, outcome)
        session.output.note(came_and_stays(len(outcome.received), change.lace.store.folder))
        if signer is not None and outcome.received:
            receipts = publish_receipts(change.lace, outcome, signer)
            change.result["receipts"] = len(receipts)
            for receipt in receipts:
                session.output.note(f"receipt {receipt}")
    write_record(session.output, found, body=body, target=target)
    return 0


# -- `lace remote list`: what a peer offers, from its advertisements; nothing moves.

_COLUMNS: Final = ("id", "coordinate", "tai", "data-length", "signed-by", "here")
_LEAST: Final = "\0"
_MOST: Final = "\U0010ffff"


def _row(record: str, fields: Iterable[Field], snapshot: SqliteSnapshot) -> list[Value]:
    """Return what is known of a record: what the peer says or, if it is here, what it is."""
    stored = snapshot.describe(record)
    said = {name: value for name, _index, value in fields}
    parts = [said.get(name) for name in ("Group", "App", "Name")]
    if stored is not None and stored.group is not None:
        parts = [stored.group, stored.app, stored.name]
    coordinate = "//" + "//".join(map(str, parts)) if None not in parts else None
    return [
        record,
        coordinate,
        said.get("TAI") if stored is None else stored.tai,
        int(length) if (length := said.get("Data-Length", "")).isdecimal() else None,
        said.get("Signed-By") if stored is None else stored.signed_by,
        stored is not None,
    ]


def _rows(remote: Remote, prefix: str) -> list[list[Value]]:
    """Return a row of each record that the peer offers, by coordinate; Blobs last."""
    with remote.lace.snapshot() as snapshot:
        claimed = remote.claims.claimed.items()
        rows = [_row(record, fields, snapshot) for record, fields in claimed]
    # A peer may claim anything: what it says of a record decides whether that was asked for.
    found = [row for row in rows if not prefix or str(row[1] or "").startswith(prefix)]
    return sorted(found, key=lambda row: (row[1] or _MOST, row[2] or _LEAST, row[0]))


def _show(output: Output, rows: list[list[Value]], limit: int | None) -> None:
    if not output.json:
        rows = [[*row[:-1], "yes" if row[-1] else "no"] for row in rows]
    keys = [name.replace("-", "_") for name in _COLUMNS]
    is_cut = limit is None
    show_listing(output, _COLUMNS, rows[:limit], keys=keys, is_cut=is_cut, total=len(rows))


@lace_command(
    "list",
    cls=RemoteCommand,
    api="connect, select_prefix",
    piped="One line a record, tab-separated, without a heading: id, coordinate, TAI, bytes of "
    "data, signed-by, and yes or no: whether it is in this lace.",
    json_keys={
        "id, coordinate, tai, signed_by": "one line a record; null where it has none",
        "data_length": "how many bytes of data it has, as the peer says; null if it does not",
        "here": "whether it is in this lace",
    },
    examples=[
        ("lace remote list tcp:example.org", "everything that a server offers to you"),
        ("lace remote list office //team//notes//", "what [peer.office] has there"),
        ("lace remote list office --json", "for a program"),
    ],
)
@click.argument("address", metavar="ADDRESS")
@click.argument("prefix", metavar="[PREFIX]", required=False, default="")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most N rows.")
@remote_options
@click.pass_obj
def list_(
    session: Session,
    /,
    address: str,
    child: tuple[str, ...],
    prefix: str,
    limit: int | None,
    **rest: Any,  # noqa: ANN401 - the options, by their names
) -> int:
    """Show which records a peer offers.

    Those whose coordinate starts with PREFIX, or all of them. ADDRESS is as for `lace sync`:
    an address, or the name of a table [peer.NAME] in lace.toml. The peer advertises what it
    has there, and that is all: nothing moves. What stands in the table is what the peer says
    of its records; nobody has checked it yet.

    Exit code 1 when the peer offers nothing there; 4 when the peer or the network failed.
    """
    start = coordinate_prefix(prefix)
    select = list_prefix(prefix)
    given = SyncArguments(address=address, command=child, **rest)
    with session.asking("remote list") as lace:
        remote = Remote(session, lace, given, "remote list")
        remote.run(remote.policy(select, given.expose or ()))
        found = _rows(remote, start)
    if not found:
        where = f" under {prefix}" if prefix else " to you"
        raise RemoteError(
            f"{given.address} offers nothing{where}",
            rule="G48",
            hint="it has no such record, or its selector or exposures leave it out",
        )
    _show(session.output, found, limit)
    return 0


# -- `lace remote store`: hand records of this lace over to a peer.

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
    expected = remote.known.expected
    exposures: list[Exposing] = [(module, each) for each in expected] or [module]
    if not named and not expected:
        remote.session.output.note(
            f"anyone who answers at {remote.place} may get them; --peer V says who has to"
        )
    return remote.policy(select, named, exposures)


def _state(remote: Remote, record: str) -> str:
    claims = remote.claims
    if record in claims.claimed:
        return "confirmed"
    if record in claims.sent:
        return "sent"
    if record in claims.asked:
        return "not-sent"
    return "not-asked" if record in claims.may_send else "left-out"


def _document(remote: Remote, records: Sequence[str], outcome: Outcome) -> dict[str, Any]:
    states = [
        {
            "id": record,
            "state": _state(remote, record),
            "receipt": find_receipt(remote.lace, record, outcome.peer_verifier),
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


def _show_stored(session: Session, document: dict[str, Any]) -> None:
    session.output.show(
        [(each["id"], each["state"], _STATES[each["state"]]) for each in document["records"]],
        (
            TableColumn("record", style="cyan", no_wrap=True, shown=lambda text: f"{text[:10]}…"),
            TableColumn("state", style="bold"),
            TableColumn("", piped=lambda _meaning: ...),
        ),
        document=lambda _rows: document,
    )


@lace_command(
    "store",
    cls=RemoteCommand,
    api="connect, expose_records",
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
def store(
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
        outcome = remote.run(policy, change)
        document = _document(remote, wanted, outcome)
        _show_stored(session, document)
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


# -- `lace remote watch`: an open exchange that shows records as they come.

_LEAST_COORDINATE: Final = 24
"""Columns that a coordinate gets on the narrowest terminal."""


class _Watch:
    """Shows records as they come; ends the link where nobody reads on, or enough have come."""

    def __init__(self, output: Output, limit: int | None) -> None:
        self._output, self._limit = output, limit
        self.run: LinkRun | None = None
        self.came = 0
        """How many records came and are stored; they come in groups, so more than are wanted."""
        self.problem: OSError | None = None

    @property
    def is_done(self) -> bool:
        """Whether as many came as were wanted."""
        return self._limit is not None and self.came >= self._limit

    def hear(self, what: LinkEvent) -> None:
        """Show what came; called in the event loop, which would swallow an error."""
        if not isinstance(what, RecordsStored):
            return
        wanted = len(what.records) if self._limit is None else max(self._limit - self.came, 0)
        self.came += len(what.records)
        try:
            if self.problem is None:
                for record in what.records[:wanted]:
                    self._show(record)
            self._output.flush()
        except OSError as error:  # the reader has gone
            self.problem = error
        if self.run is not None and (self.problem is not None or self.is_done):
            self.run.stop()

    def _show(self, record: Arrival) -> None:
        output = self._output
        if output.json:
            output.json_line(
                {
                    "id": record.id,
                    "coordinate": record.coordinate or None,
                    "tai": record.tai,
                    "size": record.size,
                    "signed_by": record.signed_by,
                }
            )
        elif output.terminal:
            self._show_line(record)
        else:
            output.row(
                (record.id, record.coordinate or None, record.tai, record.size, record.signed_by)
            )

    def _show_line(self, record: Arrival) -> None:
        """Show a record to a person, on one line of the terminal if that has room for it."""
        begun = f"{record.id[:10]}…  "
        when = time_text(record.tai) if record.tai else ""
        rest = f"  {when}  {size_text(record.size)}"
        room = (self._output.width or 0) - len(begun) - len(rest)
        coordinate = cut_middle(record.coordinate, max(room, _LEAST_COORDINATE))
        self._output.styled_line((begun, "cyan"), (coordinate, "bold"), (rest, ""))


def _select(remote: Remote, prefix: str, select: str | None) -> Rules:
    """Return what is watched for: a prefix, the rules of a file, or those of the peer's table."""
    if prefix and select is not None:
        raise UsageError("PREFIX and --select ask for two things", hint="give one of them")
    chosen = select or (remote.known.select if not prefix else None)
    if chosen is None:
        return select_prefix(prefix)
    session = remote.session
    if select is None:
        asked = SyncArguments(address=remote.given.address)
        refuse_lost_files(session.folder(), asked, SyncArguments(select=chosen))
    return read_selector(session, chosen, remote.known.allow_undefined or ())


def _watch(session: Session, change: Change, remote: Remote, watch: _Watch, select: Rules) -> None:
    """Run the exchange until a signal, a lost reader or the limit ends it."""
    policy = remote.policy(select, remote.given.expose or ())
    change.result.update(logged_link(remote.given.address, policy))
    run = watch.run = remote.prepare(policy, is_open=True, hear=watch.hear)
    run.signals.is_abandoned = session.output.is_abandoned
    try:
        run.run()
    finally:
        if run.outcome is not None:
            change.result.update(logged_result(run.outcome))
        change.result["received"] = watch.came
        session.output.note(came_and_stays(watch.came, change.lace.store.folder))
    if watch.problem is not None:
        raise watch.problem
    if not watch.is_done:
        run.finish(remote.given.address)


@lace_command(
    "watch",
    cls=RemoteCommand,
    api="connect, select_records",
    piped="One line a record, as it comes, tab-separated: id, coordinate, TAI, size in bytes and "
    "signed-by.",
    json_keys={
        "id, coordinate, tai, size, signed_by": "one line a record; null where it has none",
    },
    examples=[
        ("lace remote watch tcp:example.org //team//notes//", "notes, as they come"),
        ("lace remote watch office", "what [peer.office] and its selector in lace.toml bring"),
        ("lace remote watch office --select team.lace --json | jq .coordinate", "for a program"),
    ],
)
@click.argument("address", metavar="ADDRESS")
@click.argument("prefix", metavar="[PREFIX]", required=False, default="")
@click.option("--select", metavar="FILE", help="Your selector, instead of a PREFIX.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help="Show N records, and end. Others that came with them are stored too.",
)
@remote_options
@click.pass_obj
def watch(
    session: Session,
    /,
    address: str,
    child: tuple[str, ...],
    prefix: str,
    select: str | None,
    limit: int | None,
    **rest: Any,  # noqa: ANN401 - the options, by their names
) -> int:
    """Show records of a peer as they come.

    Those whose coordinate starts with PREFIX, or what --select chooses; with neither, what
    the selector of the peer's table in lace.toml chooses, or all. ADDRESS is as for `lace
    sync`. First comes what the peer has and this lace has not, then what is stored there
    later; a server without --open is asked again and again. A link that is lost is made again.

    A record that is shown is stored in this lace, and stays. Ctrl-C ends it at a good moment,
    a second one at once; so does a reader of its output that goes.
    """
    given = SyncArguments(address=address, command=child, **rest)
    with session.changing("remote watch") as change:
        remote = Remote(session, change.lace, given, "remote watch")
        chosen = _select(remote, prefix, select)
        _watch(session, change, remote, _Watch(session.output, limit), chosen)
    return 0
