"""`lace sync`: one exchange with a server, or with a command that is started for it."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api import now
from lace.cli.command import command as lace_command
from lace.cli.dry_runs import DRY_RUN_KEYS, show_dry_run
from lace.cli.link_log import tell_event
from lace.cli.link_options import (
    link_options,
    parse_peers,
    path_of,
    signing_key,
    tls_options,
    warn_of_links,
)
from lace.cli.outcomes import (
    OUTCOME_KEYS,
    LinkLine,
    exit_code_of,
    logged_result,
    note_rejected,
    show_outcome,
)
from lace.cli.peers import SyncArguments, is_peer_name, read_peer
from lace.cli.policy_files import read_own_policy
from lace.cli.progress import Waiting
from lace.cli.served_links import agreed_figures, outcome_figures, reason_figures
from lace.cli.signals import Signals
from lace.driver.dry_run import DryRun
from lace.errors import Place, StoreError, UsageError
from lace.exchanging import Side
from lace.iltp.address import parse_address
from lace.interlacing.failures import Failure
from lace.interlacing.result import Outcome
from lace.policy.plan_lines import LOWERINGS
from lace.syncing import LinkOptions, sync
from lace.transport.captured import Capture
from lace.transport.faults import TransportError
from lace.transport.listening import ConnectOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.api import Lace
    from lace.cli.session import Session
    from lace.driver.session import Session as LinkSession
    from lace.iltp.address import Address
    from lace.policy.local import Policy
    from lace.record.seal import SigningKey

__all__ = ["command"]

_PAUSES: Final = (0, 1, 2, 4, 8, 15, 30, 60)
"""Seconds before an open exchange is begun again, the more often it has ended soon."""
_STEADY_SECONDS: Final = 10.0
"""A link that lasted so long did not end soon."""
_PASSING: Final = frozenset({Failure.PEER_CLOSED, Failure.PHASE_TIMEOUT})
"""Failures that may be over the next time."""


class _Sync:
    """An exchange with one server; an open one is begun again when the connection is lost."""

    def __init__(
        self,
        session: Session,
        side: Side,
        address: Address,
        options: LinkOptions,
        connecting: ConnectOptions,
        capture: Capture | None,
    ) -> None:
        self._session, self._side, self._capture = session, side, capture
        self._address, self._options, self._connecting = address, options, connecting
        self._is_stopping = False
        self._link = 0
        self.line = LinkLine()
        self.outcome: Outcome | None = None
        self.signals = Signals(self._stop)

    def run(self) -> None:
        """Run it; `outcome` says what came of it, also when a signal has ended it."""
        capture = self._capture
        try:
            with Waiting(self._session, f"sync with {self._address}", self.line):
                self.signals.run(self._run_again() if self._options.is_open else self._run_once())
        finally:
            if capture is not None:
                capture.close()
                if capture.problem is not None:
                    self._session.output.warn(f"the capture is not whole: {capture.problem}")

    def show(self, lace: Lace) -> None:
        """Tell what came of it, or would have."""
        output, outcome, dry = self._session.output, self.outcome, self._options.dry_run
        if outcome is None:
            return
        if dry is not None and dry.is_complete:
            with lace.snapshot() as snapshot:
                show_dry_run(output, snapshot, dry, outcome)
            return
        show_outcome(output, outcome)
        note_rejected(output, outcome)

    @property
    def exit_code(self) -> int:
        """What the command exits with, if there was no failure."""
        dry, outcome = self._options.dry_run, self.outcome
        if outcome is None or (dry is not None and dry.is_complete):
            return 0
        return exit_code_of(outcome)

    def _stop(self) -> bool:
        """Have it end by itself; tells whether it will."""
        self._is_stopping = True
        if self.line.link is None:
            return False
        self.line.link.stop()
        return True

    def _begin(self, link: LinkSession) -> None:
        self.line.link = link
        self._link += 1
        output = self._session.output
        tell_event(output, "link-opened", {"link": self._link})
        link.agreed = lambda terms: tell_event(
            output, "link-agreed", agreed_figures(self._link, terms)
        )

    @contextmanager
    def _opened(self) -> Iterator[Side]:
        yield self._side

    async def _run_once(self) -> None:
        since = time.monotonic()
        try:
            self.outcome = await sync(
                self._address,
                self._opened,
                self._options,
                now,
                connecting=self._connecting,
                began=self._begin,
                capture=self._capture,
            )
            self._tell_end(self.outcome, time.monotonic() - since)
        except StoreError as error:
            if isinstance(error.result, Outcome):  # it is told what came before this
                self.outcome = error.result
                self._tell_end(self.outcome, time.monotonic() - since)
            raise
        finally:
            self.line.link = None

    def _tell_end(self, outcome: Outcome, seconds: float) -> None:
        link = self.line.link
        if link is None:
            raise AssertionError("an exchange that ended has begun")
        figures = {
            "link": self._link,
            **outcome_figures(outcome),
            "bytes_in": link.received,
            "bytes_out": link.sent,
            "seconds": round(seconds, 3),
            **reason_figures(outcome, with_detail=self._session.debug),
        }
        tell_event(self._session.output, "link-ended", figures)

    async def _run_again(self) -> None:
        failed = 0
        while True:
            since = time.monotonic()
            try:
                await self._run_once()
            except TransportError as error:
                if self.outcome is None:  # it has never worked
                    raise
                why = str(error)
            else:
                outcome = self.outcome
                if self._is_stopping or outcome is None or not _is_passing(outcome):
                    return
                why = outcome.reason
            failed = failed + 1 if time.monotonic() - since < _STEADY_SECONDS else 0
            pause = _PAUSES[min(failed, len(_PAUSES) - 1)]
            tell_event(
                self._session.output,
                "link-lost",
                {"link": self._link, "why": why, "pause": pause},
                f"the link has ended ({why}); again in {pause} s",
            )
            await asyncio.sleep(pause)


def _is_passing(outcome: Outcome) -> bool:
    return outcome.failure is None or outcome.failure.failure in _PASSING


def _arguments(session: Session, given: SyncArguments) -> SyncArguments:
    """Return what is known of the peer, from its table and the command line."""
    if given.address is not None and is_peer_name(given.address):
        table = read_peer(session.folder(), given.address)
        given = replace(given, address=None).over(table)
    if given.select is None:
        raise UsageError("--select FILE is missing", hint="an exchange takes your selector")
    return given


def _connecting(given: SyncArguments) -> ConnectOptions:
    tls = None
    if given.ca is not None or given.tls_cert is not None or given.tls_key is not None:
        from lace.transport.tls import load_client_tls

        tls = load_client_tls(
            authorities=path_of(given.ca),
            certificate=path_of(given.tls_cert),
            key=path_of(given.tls_key),
        )
    return ConnectOptions(command=given.command or (), tls=tls)


def _sync(
    session: Session,
    lace: Lace,
    given: SyncArguments,
    policy: Policy,
    key: SigningKey | None,
    *,
    dry_run: bool,
    capture: str | None,
) -> _Sync:
    address = parse_address(given.address or "")
    options = LinkOptions(
        is_open=bool(given.open) and not dry_run,
        dry_run=DryRun() if dry_run else None,
        is_plain=bool(given.plain),
        expected=parse_peers([given.peer] if given.peer is not None else []),
    )
    connecting = _connecting(given)
    warn_of_links(session, policy, address, key, is_plain=options.is_plain)
    side = Side(lace.store, lace.settings, policy, key, lace.workers)
    taken = None if capture is None else Capture(Path(capture))
    return _Sync(session, side, address, options, connecting, taken)


@lace_command(
    "sync",
    piped="Lines of a name and a value: at-fixed-point (yes or no), reason, exchange-plan-id, "
    "link-id, peer-verifier, received, rejected, not-available, bytes-received, bytes-sent, "
    "reconciliation-bytes-received, reconciliation-bytes-sent, control-bytes-received, "
    "control-bytes-sent, loops, turns, pending-here, pending-there, and seconds-PHASE for each "
    "phase. With --dry-run: lines of request, send or named, a tab, and a hash.",
    json_keys={**OUTCOME_KEYS, **DRY_RUN_KEYS},
    examples=[
        (
            "lace sync tcp:example.org --select team.lace --expose team-view.lace@V.….H3 "
            "--peer V.….H3",
            "converge with a server, if it is the one that holds that key",
        ),
        (
            "lace sync stdio --select team.lace --expose view.lace -- "
            "ssh example.org lace serve stdio --select team.lace --expose view.lace",
            "the same over ssh, with no server running",
        ),
        ("lace sync office --open", "stay in step with [peer.office] of lace.toml"),
        ("lace sync office --dry-run", "what would move, and what the peer learns by asking"),
        ("lace sync unix:/run/lace.sock --select all.lace --json", "for a program"),
    ],
)
@click.argument("address", metavar="ADDRESS")
@click.argument("child", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@link_options(select_required=False)
@click.option(
    "--peer", metavar="V", help="The verifier that the peer has to prove; any other is refused."
)
@click.option(
    "--ca",
    metavar="FILE",
    help="Whose server certificates are taken, PEM, for wss; else the system's authorities.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Go up to the request lists and end there: nothing moves. Shows what would, and what "
    "the peer has learned.",
)
@click.option(
    "--capture",
    metavar="FILE",
    help="Write what goes over the wire, both ways, as text. Records are in it.",
)
@tls_options(
    "Your certificate, PEM, where a wss server asks for one.",
    "The key of that certificate, PEM.",
)
@click.pass_obj
def command(
    session: Session,
    /,
    address: str,
    child: tuple[str, ...],
    is_open: bool | None,
    dry_run: bool,
    capture: str | None,
    **rest: Any,  # noqa: ANN401 - the options, by their names
) -> int:
    """Converge with a peer on what both select.

    ADDRESS is `stdio`, `unix:/path`, `tcp:host:port`, `ws:host` or `wss:host`, or the name of
    a table [peer.NAME] in lace.toml, which has these options by their names (address, select,
    expose, key, peer, ca, tls-cert, tls-key, lowering, plain, open, command). With `stdio`,
    COMMAND is started, and its standard input and output are the connection.

    What both selectors choose, and each side exposes to the other, moves both ways; every
    record is validated before it is stored. Exit code 0 means that nothing more was to be
    had, 1 that it ended before, 4 that the peer or the network failed. Whatever was received
    stays, and running it again completes the set. A first Ctrl-C or SIGTERM ends it at a
    good moment, a second at once.

    With --dry-run both sides compare what they have, and then this one breaks off: to the
    peer that is a connection that was lost.
    """
    given = _arguments(session, SyncArguments(address=address, command=child, open=is_open, **rest))
    policy = read_own_policy(
        session, given.select or "", given.expose or (), given.lowering or LOWERINGS[0]
    )
    with session.changing("sync") as change:
        key = signing_key(change.lace, given.key, is_plain=bool(given.plain))
        work = _sync(session, change.lace, given, policy, key, dry_run=dry_run, capture=capture)
        try:
            work.run()
        finally:
            if work.outcome is not None:
                change.result.update(logged_result(work.outcome))
                change.result.update({"dry_run": True} if dry_run else {})
                work.show(change.lace)
        work.signals.check()
        outcome = work.outcome
        if outcome is None:
            raise AssertionError("an exchange that nobody stops has an outcome")
        if outcome.failure is not None:
            place = outcome.failure.place
            outcome.failure.place = Place(given.address, offset=place.offset if place else None)
            raise outcome.failure
        change.exit_code = work.exit_code
    if change.exit_code:
        session.output.complain(f"lace: {given.address}: {outcome.reason}; run it again")
    return change.exit_code
