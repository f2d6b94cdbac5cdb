"""An exchange that a command runs: with progress, signals, a capture, and again if it is open."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.api import now
from lace.cli.approvals import approve_command
from lace.cli.link_options import path_of, tell_event, vouched_peer
from lace.cli.outcomes import LinkLine, exit_code_of, note_receipts, note_rejected, show_outcome
from lace.cli.output import plural
from lace.cli.peers import SyncArguments, is_peer_name, read_peer
from lace.cli.progress import Waiting, end_line, relayed_errors
from lace.cli.records import SHORT, show_records
from lace.cli.server_log import agreed_figures, outcome_figures, reason_figures
from lace.cli.signals import Signals
from lace.errors import Place, StoreError
from lace.exchange.failures import Failure
from lace.exchange.result import Outcome
from lace.link.client import sync
from lace.link.resources import keep_one_arena
from lace.transport.faults import TransportError
from lace.transport.listening import ConnectOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.api import Lace
    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.exchange.negotiation import Terms
    from lace.iltp.address import LinkAddress
    from lace.link.client import LinkOptions
    from lace.link.dry_run import DryRun
    from lace.link.events import LinkEvent
    from lace.link.session import LinkSession
    from lace.link.side import Side
    from lace.store.interface import Snapshot
    from lace.transport.capture import Capture


# -- What a dry run shows: what would move, and what the peer has learned.

DRY_RUN_KEYS: Final = {
    "dry-run": "with --dry-run: {request, request-in-all, send, may-send, named}: hashes that "
    "would be requested first and how many in all, hashes that the peer requests first, hashes "
    "of all records that the peer's digests are about, and hashes that were named to it",
}


def show_dry_run(output: Output, snapshot: Snapshot, dry: DryRun, outcome: Outcome) -> None:
    """Write what would move, and what the peer has learned."""
    if output.json:
        made = {
            "request": dry.would_request,
            "request-in-all": dry.pending,
            "send": dry.would_send,
            "may-send": dry.may_send,
            "named": dry.named,
        }
        output.json_document({**outcome.to_json(), "dry-run": made})
    elif output.terminal:
        _show_page(output, snapshot, dry)
    else:
        for word, records in (
            ("request", dry.would_request),
            ("send", dry.would_send),
            ("named", dry.named),
        ):
            for record in records:
                output.row((word, record))
    output.flush()
    output.note("a dry run: nothing has moved")


def _show_page(output: Output, snapshot: Snapshot, dry: DryRun) -> None:
    """Write what would move and what was said, for a person."""
    output.say(f"would be requested: {plural(dry.pending, 'record')}")
    output.say(f"would be sent: {plural(len(dry.would_send), 'record')}")
    show_records(output, snapshot, dry.would_send)
    output.line("")
    known = len(dry.may_send) - len(dry.named)
    rest = f", and a digest over {plural(known, 'other')}" if known > 0 else ""
    output.say(f"the peer was told of {plural(len(dry.named), 'record')}{rest}")
    show_records(output, snapshot, dry.named)
    if dry.would_send or dry.named:
        output.note(SHORT)


_PAUSES: Final = (0, 1, 2, 4, 8, 15, 30, 60)
"""Seconds before an open exchange is begun again, the more often it has ended soon."""
_STEADY_SECONDS: Final = 10.0
"""A link that lasted so long did not end soon."""
_AGAIN_SECONDS: Final = 2
"""Seconds before a server that ends each exchange at a fixed point is asked again."""
_NOT_KEPT: Final = (
    f"the server keeps no link open, and is asked again every {_AGAIN_SECONDS} s; "
    "`lace serve --open` would report what is new at once"
)
_PASSING: Final = frozenset({Failure.PEER_CLOSED, Failure.PHASE_TIMEOUT})
"""Failures that may be over the next time."""


class LinkRun:
    """An exchange with one server; an open one is begun again when the connection is lost."""

    def __init__(
        self,
        session: Session,
        side: Side,
        address: LinkAddress,
        options: LinkOptions,
        connecting: ConnectOptions,
        capture: Capture | None = None,
        *,
        title: str = "sync",
        hear: Callable[[LinkEvent], None] | None = None,
    ) -> None:
        self._session, self._side, self._capture = session, side, capture
        self._title = title
        self._address, self._options, self._connecting = address, options, connecting
        self._is_stopping = False
        self._link = 0
        self._heard = 0
        """Bytes that came on the last link."""
        self.line = LinkLine()
        self._hear = hear
        self.outcome: Outcome | None = None
        self.signals = Signals(self._stop)

    def run(self) -> None:
        """Run the exchange; `outcome` is set even if a signal has ended it."""
        keep_one_arena()
        capture = self._capture
        try:
            title = f"{self._title} with {self._address}"
            with (
                Waiting(self._session, title, self.line, self.line.share),
                relayed_errors(self._session.output, self._connecting.command) as errors,
            ):
                self._connecting = replace(self._connecting, errors=errors)
                self.signals.run(self._run_again() if self._options.is_open else self._run_once())
        finally:
            if capture is not None:
                capture.close()
                if capture.problem is not None:
                    self._session.output.warn(f"the capture is not whole: {capture.problem}")

    def show(self, lace: Lace) -> None:
        """Show the outcome, or that of a dry run."""
        output, outcome, dry = self._session.output, self.outcome, self._options.dry_run
        if outcome is None:
            return
        if dry is not None and dry.is_complete:
            with lace.snapshot() as snapshot:
                show_dry_run(output, snapshot, dry, outcome)
            return
        show_outcome(output, outcome)
        note_rejected(output, outcome)
        note_receipts(output, outcome)

    def finish(self, place: str | None) -> Outcome:
        """Return the outcome, or raise the signal or the failure that ended the exchange."""
        self.signals.check()
        outcome = self.outcome
        if outcome is None:
            raise AssertionError("an exchange that nobody stops has an outcome")
        if outcome.failure is not None:
            at = outcome.failure.place
            outcome.failure.place = Place(place, offset=at.offset if at else None)
            raise outcome.failure
        return outcome

    @property
    def exit_code(self) -> int:
        """What the command exits with, if there was no failure."""
        dry, outcome = self._options.dry_run, self.outcome
        if outcome is None or (dry is not None and dry.is_complete):
            return 0
        return exit_code_of(outcome)

    def stop(self) -> None:
        """End it at a good moment, and do not begin it again."""
        self._stop()

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

    def _agreed(self, terms: Terms) -> None:
        output = self._session.output
        end_line(output)  # whatever a command has asked is answered by now
        tell_event(output, "link-agreed", agreed_figures(self._link, terms))

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
                hear=self._hear,
                agreed=self._agreed,
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
        self._heard = link.received
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
        was_told = has_worked = False
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
                # A server that ends may still have taken the connection, and says nothing then.
                is_passing = outcome is not None and (
                    _is_passing(outcome) or (has_worked and not self._heard)
                )
                if self._is_stopping or outcome is None or not is_passing:
                    return
                has_worked = has_worked or self._heard > 0
                why = outcome.reason
                if outcome.failure is None:  # a server that keeps no link open: that is its way
                    text = None if was_told else _NOT_KEPT
                    was_told, failed = True, 0
                    await self._pause(why, _AGAIN_SECONDS, text)
                    continue
            failed = failed + 1 if time.monotonic() - since < _STEADY_SECONDS else 0
            pause = _PAUSES[min(failed, len(_PAUSES) - 1)]
            await self._pause(why, pause, f"the link has ended ({why}); again in {pause} s")

    async def _pause(self, why: str, pause: int, text: str | None) -> None:
        """Report a link that has ended, and wait before the next one."""
        figures = {"link": self._link, "why": why, "pause": pause}
        tell_event(self._session.output, "link-lost", figures, text)
        await asyncio.sleep(pause)


def _is_passing(outcome: Outcome) -> bool:
    return outcome.failure is None or outcome.failure.failure in _PASSING


def known_of_peer(session: Session, given: SyncArguments) -> SyncArguments:
    """Return what is known of a peer, from its table and the command line."""
    if given.address is not None and is_peer_name(given.address):
        folder = session.folder()
        table = read_peer(folder, given.address)
        if table.command and not given.command:
            approve_command(
                session.environ,
                session.output,
                lace=folder,
                peer=given.address,
                command=table.command,
            )
        return replace(given, address=None).over(table)
    return given


def connect_options(given: SyncArguments) -> ConnectOptions:
    """Return how to connect to a peer."""
    tls, verifiers = None, {}
    if given.uid_map is not None:
        from lace.transport.maps import read_uid_map

        verifiers = read_uid_map(Path(given.uid_map))
    named = (given.ca, given.tls_cert, given.tls_key)
    if given.tls_pin or any(each is not None for each in named):
        from lace.transport.tls import load_client_tls

        tls = load_client_tls(
            authorities=path_of(given.ca),
            certificate=path_of(given.tls_cert),
            key=path_of(given.tls_key),
            is_pinned=bool(given.tls_pin),
        )
    return ConnectOptions(
        command=given.command or (),
        stdio_peer=vouched_peer(given.stdio_peer),
        tls=tls,
        verifiers=verifiers,
    )
