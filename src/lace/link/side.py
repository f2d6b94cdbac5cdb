"""A side of a link as a party; and exchanges in one process, which are two links."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from lace.errors import StoreError, UsageError
from lace.exchange.capabilities import MachineConfig, capabilities_of
from lace.exchange.failures import Failure
from lace.exchange.machine import Machine
from lace.link.client import LinkOptions, LoopThread, looker
from lace.link.evaluator import StoreEvaluator
from lace.link.events import ROUND_SECONDS, PartyObserver
from lace.link.intake import Receipts
from lace.link.party import LinkCursors, Party, TickWait, steady_now
from lace.link.session import GRACE_SECONDS, LinkSession
from lace.rules.limits import peer_limits_of
from lace.store.interface import watching
from lace.store.links import LinkFiles, ModuleFiles
from lace.store.sqlite.store import SqliteStore
from lace.transport.connections import counted_place
from lace.transport.memory import MEMORY, memory_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.exchange.result import Outcome
    from lace.link.evaluator import EvaluatorMaker
    from lace.link.resources import Resources
    from lace.policy.local import Policy
    from lace.record.seal import SigningKey
    from lace.store.store_view import ExchangeStore
    from lace.transport.duplex import Proven


_USUAL: Final = LinkOptions()
_LOOK_SECONDS: Final = 0.01
"""How often a pair that stops checks whether both links are settled."""
_NAMES: Final = ("the left", "the right")
"""The sides, as errors name them."""
MAX_ROUNDS: Final = 1_000
"""Rounds of an open exchange that wait to be read; of more, the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an exchange."""

    store: ExchangeStore
    settings: Settings
    policy: Policy
    key: SigningKey | None
    workers: int = 0
    evaluating: EvaluatorMaker = StoreEvaluator
    """Makes the evaluator of each epoch."""
    links: LinkFiles | None = None
    """Where cursors are saved; None: in the folder of the store."""
    receipt_key: SigningKey | None = None
    """Signs a receipt for each received record that is stored (050-208); None: no receipts."""


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of a round of an open exchange, and its side: `left` or `right`."""

    side: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Interlaced:
    """The outcomes of an exchange on both sides; true when it ended at a fixed point."""

    left: Outcome
    right: Outcome

    def __bool__(self) -> bool:
        return self.left.at_fixed_point and self.right.at_fixed_point

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"left": self.left.to_json(), "right": self.right.to_json()}


def run_exchange(
    left: Side, right: Side, clock: Callable[[], Tai], options: LinkOptions = _USUAL
) -> Interlaced:
    """Run one bounded exchange between two sides; the left one is operand 0.

    Raises what `LinkPair.result` raises.
    """
    pair = LinkPair(party_of(left, 0, clock, options), party_of(right, 1, clock, options))
    loop = LoopThread("lace-interlace")
    try:
        loop.call(pair.run())
    finally:
        loop.close()
    return pair.result


class LinkPair:
    """Two links of one process on a memory stream."""

    def __init__(self, left: Party, right: Party) -> None:
        self.parties = left, right
        streams = memory_streams()
        self._sessions = [LinkSession(*each) for each in zip(self.parties, streams, strict=True)]
        self._is_stopping = False

    async def run(self) -> None:
        """Run both links to their ends; what failed is in `result`."""
        with ExitStack() as stack:
            for party, session in zip(self.parties, self._sessions, strict=True):
                stack.enter_context(watching(party.folder, looker(session)))
            running = (session.run() for session in self._sessions)
            for ended in await asyncio.gather(*running, return_exceptions=True):
                if isinstance(ended, BaseException):
                    raise ended

    async def stop(self) -> None:
        """End both links once what is stored by now has been sent, unless that takes long."""
        self._is_stopping = True
        until = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < until and not self._is_evaluating_long and not self._is_over:
            if all([await session.is_settled() for session in self._sessions]):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for session in self._sessions:
            session.stop()

    @property
    def _is_evaluating_long(self) -> bool:
        return any((each.supervisor.seconds or 0.0) >= GRACE_SECONDS for each in self.parties)

    @property
    def _is_over(self) -> bool:
        return any(party.machine.is_closed for party in self.parties)

    @property
    def result(self) -> Interlaced:
        """The outcomes, once both links have ended.

        It raises the InterlaceFailure of a link, or the StoreError of a store, whose side the
        message names; `result` of the error has the outcomes.
        """
        left, right = (party.outcome for party in self.parties)
        if left is None or right is None:
            raise AssertionError("an exchange that nobody disturbs ends")
        result = Interlaced(left, right)
        for name, party in zip(_NAMES, self.parties, strict=True):
            if isinstance(party.error, StoreError):
                raise named(party.error, name, result)
        failures = [outcome.failure for outcome in (left, right) if outcome.failure]
        # The side that only saw the other close says nothing of the cause.
        failures.sort(key=lambda failure: failure.failure is Failure.PEER_CLOSED)
        is_stopped = self._is_stopping and failures and failures[0].failure is Failure.PEER_CLOSED
        if failures and not is_stopped:
            failures[0].result = result
            raise failures[0]
        return result


def named(error: StoreError, name: str, result: object) -> StoreError:
    """Return the error of a store with the name of its side and the outcome so far."""
    error.message = f"{name} lace: {error.message}"
    error.result = result
    return error


class _Rounds(PartyObserver):
    """Reports the rounds of one side."""

    def __init__(self, side: str, report: Callable[[Round], None]) -> None:
        self._side, self._report = side, report

    def round_ended(self, outcome: Outcome) -> None:
        """Report the outcome of a round."""
        self._report(Round(self._side, outcome))


class OpenInterlace:
    """An open exchange of two laces in this process, until it is stopped.

    It begins at once, in a thread of its own, and whatever is stored on one side reaches the
    other. At the end of a `with` block it is stopped.

    >>> with lace.interlace(left, right, ours, theirs, open=True) as exchange:  # doctest: +SKIP
    ...     for each in exchange.events():
    ...         print(each.side, each.outcome.reason)

    Args:
        sides: open each side's lace, for this exchange alone.
        clock: gives the time.
        options: how both links run.
    """

    def __init__(
        self,
        sides: tuple[AbstractContextManager[Side], AbstractContextManager[Side]],
        clock: Callable[[], Tai],
        options: LinkOptions = _USUAL,
    ) -> None:
        self._rounds: deque[Round] = deque(maxlen=MAX_ROUNDS)
        self._told = threading.Condition()
        self._result: Interlaced | None = None
        options = replace(options, is_open=True)
        with ExitStack() as stack:
            left, right = (
                party_of(
                    stack.enter_context(side),
                    at,
                    clock,
                    options,
                    observer=_Rounds(("left", "right")[at], self._take),
                )
                for at, side in enumerate(sides)
            )
            self._loop = LoopThread("lace-open-exchange")
            stack.callback(self._loop.close)
            self._pair = LinkPair(left, right)
            self._running = self._loop.start(self._pair.run())
            self._stack = stack.pop_all()
        self._running.add_done_callback(lambda _: self._notify())

    def _take(self, ended: Round) -> None:
        self._rounds.append(ended)
        self._notify()

    def _notify(self) -> None:
        with self._told:
            self._told.notify_all()

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return not self._running.done()

    def events(self, seconds: float | None = None) -> Iterator[Round]:
        """Yield the result of each round, of either side, as it ends; until the exchange ends.

        Args:
            seconds: wait no longer than this for the next one, and end then.
        """
        while True:
            with self._told:
                self._told.wait_for(lambda: self._rounds or not self.is_running, seconds)
                if not self._rounds:
                    return
                found = self._rounds.popleft()
            yield found

    @property
    def result(self) -> Interlaced | None:
        """The outcomes; None while it goes on.

        Raises:
            ProtocolError: it has failed; so it does in `stop`.
            StoreError: a lace could not be read or written.
        """
        return None if self.is_running else self.stop()

    def stop(self) -> Interlaced:
        """End it after the work under way, and return the outcomes; may be called again.

        Raises:
            ProtocolError: it has failed before; `result` of the error has the outcomes.
            StoreError: a lace could not be read or written.
        """
        self._end()
        self._running.result()
        if self._result is None:
            self._result = self._pair.result
        return self._result

    def _end(self) -> None:
        if self.is_running:
            self._loop.call(self._pair.stop())
        wait([self._running])
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self._end()


def party_of(
    side: Side,
    index: int,
    clock: Callable[[], Tai],
    options: LinkOptions = _USUAL,
    *,
    proven: Proven = MEMORY,
    resources: Resources | None = None,
    steady: Callable[[], Tai] = steady_now,
    observer: PartyObserver | None = None,
) -> Party:
    """Return a side as operand 0 or 1, not started; `steady` is the clock of timeouts."""
    store, settings = side.store, side.settings
    is_open = options.is_open or options.wait_ticks > 0
    cursors = modules = None
    if options.claims is None:
        files = side.links or LinkFiles(store.folder, may_write=not store.read_only)
        cursors = LinkCursors(files, steady, is_open=is_open)
        modules = ModuleFiles(files.folder, settings, may_write=files.may_write)
    config = MachineConfig(
        operand=side.policy.operand(index),
        exposures=side.policy.exposures,
        lowering=side.policy.lowering,
        capabilities=capabilities_of(settings, side.policy, offer_all=options.offer_all),
        random_bytes=os.urandom,
        key=side.key,
        peer_limits=peer_limits_of(settings),
        cursors={} if cursors is None else cursors,
        modules=modules,
        is_open=is_open,
        is_plain=options.is_plain,
        claim=options.claim,
        store_differing=options.store_differing or bool(settings.store_differing),
        expected=options.expected,
        transport_peer=proven.peer,
        channel=proven.channel,
    )
    machine = Machine(config)
    return Party(
        machine,
        store,
        settings,
        transport=proven.transport,
        encrypted=proven.encrypted,
        is_pinned=proven.is_pinned,
        clock=clock,
        random_bytes=os.urandom,
        workers=side.workers,
        cursors=cursors,
        evaluating=side.evaluating,
        resources=resources,
        receipts=None if side.receipt_key is None else _receipts(side, side.receipt_key, clock),
        steady=steady,
        group=counted_place(proven.place),
        tick_wait=TickWait(machine, options.wait_ticks) if options.wait_ticks else None,
        observer=observer,
    )


def _receipts(side: Side, key: SigningKey, clock: Callable[[], Tai]) -> Receipts:
    if not isinstance(side.store, SqliteStore):
        raise UsageError(
            "a receipt is stored in the lace that is served, and a warehouse is only read",
            hint="leave the receipts out",
        )
    return Receipts(side.store, key, side.settings.max_receipts, clock, os.urandom)
