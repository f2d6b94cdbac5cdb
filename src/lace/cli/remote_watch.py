"""`lace remote watch`: an open exchange that shows records as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.outcomes import logged_link, logged_result
from lace.cli.output import size_text
from lace.cli.peers import SyncArguments, refuse_lost_files
from lace.cli.policy_files import Wanted, check_files
from lace.cli.remote_links import Remote, RemoteCommand, came_and_stays, remote_options
from lace.cli.tables import cut_middle
from lace.cli.times import time_text
from lace.errors import UsageError
from lace.link.events import RecordsStored
from lace.policy.operations import select_prefix
from lace.rules.checks.emptiness import parse_allowed
from lace.rules.profiles import SELECTOR

if TYPE_CHECKING:
    from lace.cli.link_runs import LinkRun
    from lace.cli.output import Output
    from lace.cli.session import Change, Session
    from lace.link.events import Arrival, LinkEvent
    from lace.policy.local import Rules

__all__ = ["command"]

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
    allowed = parse_allowed(remote.known.allow_undefined or ())
    (checked,) = check_files(session, [Wanted(chosen, SELECTOR, session.rule_limits(), allowed)])
    return checked


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
def command(
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
