"""Exchanges between laces that are open in this process."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from lace.driver.evaluator import StoreEvaluator
from lace.driver.kept import KeptLinks
from lace.driver.open_pairing import OpenPairing
from lace.driver.pairing import Pairing
from lace.driver.party import Party
from lace.driver.receipts import Receipts
from lace.driver.waiting import TickWait, steady_now
from lace.errors import StoreError, UsageError
from lace.interlacing.capabilities import capabilities_of
from lace.interlacing.failures import Failure
from lace.interlacing.machine import Machine, MachineConfig
from lace.rules.limits import peer_limits_of
from lace.store.links import LinkFiles, ModuleFiles
from lace.store.sqlite.store import SqliteStore
from lace.transport.accepting import counted_place
from lace.transport.stream import Proven

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.driver.answering import EvaluatorMaker
    from lace.driver.resources import Resources
    from lace.interlacing.result import Outcome
    from lace.policy.local import Policy
    from lace.record.ids import Verifier
    from lace.record.seal import SigningKey
    from lace.store.exchange_store import ExchangeStore

__all__ = [
    "Interlaced",
    "OpenInterlace",
    "Round",
    "Side",
    "SideOptions",
    "named",
    "open_exchange",
    "party_of",
    "run_exchange",
]

_IN_PROCESS: Final = Proven(transport="memory")
"""What is known of a link inside one process: messages are handed over in memory."""
_NAMES: Final = ("the left", "the right")
"""The sides, as errors name them."""
MOST_ROUNDS: Final = 1_000
"""Rounds of an open exchange that wait to be looked at; of more, the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an exchange in this process."""

    store: ExchangeStore
    settings: Settings
    policy: Policy
    key: SigningKey | None
    workers: int = 0
    evaluating: EvaluatorMaker = StoreEvaluator
    """Makes what answers the questions of an exchange, at the beginning of each epoch."""
    links: LinkFiles | None = None
    """Where cursors are kept; None: with the records."""
    receipt_key: SigningKey | None = None
    """Signs a receipt for each record that comes and is stored (050-208); None: no receipts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOptions:
    """What a side does otherwise than usual.

    Attributes:
        offer_all: negotiate all fields for advertisements, not only those that the plan
            reads; more is told, and rules may read what no constant names.
        store_differing: store a record also if its advertisement said something else (X1).
        keeps_links: keep what both advertised, which makes the next exchange shorter.
    """

    offer_all: bool = False
    store_differing: bool = False
    keeps_links: bool = True


_USUAL: Final = SideOptions()


@dataclass(frozen=True, slots=True)
class Round:
    """A round of an open exchange that has ended: whose result it is, and what it says."""

    side: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Interlaced:
    """What came of an exchange, for both sides; true when it ended at a fixed point."""

    left: Outcome
    right: Outcome

    def __bool__(self) -> bool:
        return self.left.at_fixed_point and self.right.at_fixed_point

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"left": self.left.to_json(), "right": self.right.to_json()}


def run_exchange(
    left: Side, right: Side, clock: Callable[[], Tai], options: SideOptions = _USUAL
) -> Interlaced:
    """Run one bounded exchange between two sides; the left one is operand 0.

    Raises:
        InterlaceFailure: the sides do not agree, or a limit was reached; its `result` says
            what had come of it by then. Whatever was validated before stays stored.
        StoreError: a store could not be read or written; the message says of which side, and
            `result` what had come of the exchange by then.
    """
    parties = [
        party_of(side, index, clock, options=options) for index, side in enumerate((left, right))
    ]
    link = Pairing(*parties)
    try:
        link.start()
        link.run()
    finally:
        for party in parties:
            party.close()
    return _result(parties)


def _result(parties: Sequence[Party]) -> Interlaced:
    """Return the outcome of an exchange, or raise its failure."""
    outcomes = [party.outcome for party in parties]
    if outcomes[0] is None or outcomes[1] is None:
        raise AssertionError("an exchange that nobody disturbs ends")
    result = Interlaced(outcomes[0], outcomes[1])
    failures = [outcome.failure for outcome in outcomes if outcome and outcome.failure]
    # The side that only saw the other close says nothing of the cause.
    failures.sort(key=lambda failure: failure.failure is Failure.PEER_CLOSED)
    for name, party in zip(_NAMES, parties, strict=True):
        if isinstance(party.error, StoreError):
            raise named(party.error, name, result)
    is_stopped = any(party.supervisor.reason is not None for party in parties)
    if failures and not is_stopped:
        failures[0].result = result
        raise failures[0]
    return result


def named(error: StoreError, name: str, result: object) -> StoreError:
    """Return the error of a side's lace, which says whose it is and what came before it."""
    error.message = f"{name} lace: {error.message}"
    error.result = result
    return error


def open_exchange(
    left: Side,
    right: Side,
    clock: Callable[[], Tai],
    options: SideOptions = _USUAL,
    *,
    report: Callable[[Round], None] | None = None,
) -> OpenPairing:
    """Start an open exchange between two sides, in a thread of its own.

    It goes on after a fixed point: whatever is stored on either side reaches the other.
    The sides' stores are used by that thread alone, and `report` is called there with the
    result of each round.
    """
    parties = (
        party_of(left, 0, clock, is_open=True, options=options),
        party_of(right, 1, clock, is_open=True, options=options),
    )
    if report is not None:
        for name, party in zip(("left", "right"), parties, strict=True):
            party.reporter = _reporter(name, report)
    made = OpenPairing(Pairing(*parties), parties, (left.store, right.store))
    made.start()
    return made


def _reporter(name: str, report: Callable[[Round], None]) -> Callable[[Outcome], None]:
    return lambda outcome: report(Round(name, outcome))


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
        options: what both sides do otherwise than usual.
    """

    def __init__(
        self,
        sides: tuple[AbstractContextManager[Side], AbstractContextManager[Side]],
        clock: Callable[[], Tai],
        options: SideOptions = _USUAL,
    ) -> None:
        self._rounds: deque[Round] = deque(maxlen=MOST_ROUNDS)
        self._told = threading.Condition()
        self._result: Interlaced | None = None
        with ExitStack() as stack:
            left, right = (stack.enter_context(side) for side in sides)
            self._running = open_exchange(left, right, clock, options, report=self._take)
            self._stack = stack.pop_all()
        self._watching = threading.Thread(target=self._watch, name="lace-open-end", daemon=True)
        self._watching.start()

    def _take(self, ended: Round) -> None:
        with self._told:
            self._rounds.append(ended)
            self._told.notify_all()

    def _watch(self) -> None:
        self._running.join()
        with self._told:
            self._told.notify_all()

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self._running.is_running

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
        """What came of it; None while it goes on.

        Raises:
            ProtocolError: it has failed; so it does in `stop`.
            StoreError: a lace could not be read or written.
        """
        return None if self.is_running else self.stop()

    def stop(self) -> Interlaced:
        """End it after the work under way, and return the outcome; may be called again.

        Raises:
            ProtocolError: it has failed before; `result` of the error says what had come of it.
            StoreError: a lace could not be read or written.
        """
        self._running.stop()
        self._stack.close()
        if self._running.error is not None:
            raise self._running.error
        if self._result is None:
            self._result = _result(self._running.parties)
        return self._result

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
            return
        self._running.stop()
        self._stack.close()


def party_of(
    side: Side,
    index: int,
    clock: Callable[[], Tai],
    *,
    is_open: bool = False,
    wait_ticks: int = 0,
    is_plain: bool = False,
    claim: Verifier | None = None,
    expected: frozenset[str] = frozenset(),
    proven: Proven | None = None,
    options: SideOptions = _USUAL,
    resources: Resources | None = None,
    steady: Callable[[], Tai] = steady_now,
) -> Party:
    """Return a side as operand 0 or 1, not started.

    Args:
        side: the side.
        index: the index of its operand.
        clock: gives the time.
        is_open: go on after a fixed point.
        wait_ticks: of a bounded side, ticks to wait for before it closes; it is open until then.
        is_plain: leave the nonce out, for a peer that knows only 050.
        claim: the verifier that a side without a key claims, because its transport proves it.
        expected: the verifiers that the peer may be; none: anyone.
        proven: what the transport proves; nothing for a link within this process.
        options: what it does otherwise than usual.
        resources: what it shares with other links of a server.
        steady: gives readings of a clock that is never set, for timeouts.

    Raises:
        UsageError: receipts are to be published, and there is no lace to hold them.
    """
    found = proven or _IN_PROCESS
    store = side.store
    kept = modules = None
    if options.keeps_links:
        files = side.links or LinkFiles(store.folder, may_write=not store.read_only)
        kept = KeptLinks(files)
        modules = ModuleFiles(files.folder, side.settings, may_write=files.may_write)
    config = MachineConfig(
        operand=side.policy.operand(index),
        exposures=side.policy.exposures,
        lowering=side.policy.lowering,
        capabilities=capabilities_of(side.settings, side.policy, offer_all=options.offer_all),
        random_bytes=os.urandom,
        key=side.key,
        peer_limits=peer_limits_of(side.settings),
        cursors={} if kept is None else kept,
        modules=modules,
        is_open=is_open or wait_ticks > 0,
        is_plain=is_plain,
        claim=claim,
        store_differing=options.store_differing or bool(side.settings.store_differing),
        expected=expected,
        transport_peer=found.peer,
        channel=found.channel,
    )
    machine = Machine(config)
    return Party(
        machine,
        store,
        side.settings,
        transport=found.transport,
        encrypted=found.encrypted,
        is_pinned=found.is_pinned,
        clock=clock,
        random_bytes=os.urandom,
        workers=side.workers,
        kept=kept,
        evaluating=side.evaluating,
        resources=resources,
        receipts=None if side.receipt_key is None else _receipts(side, side.receipt_key, clock),
        steady=steady,
        group=counted_place(found.place),
        tick_wait=TickWait(machine, wait_ticks) if wait_ticks else None,
    )


def _receipts(side: Side, key: SigningKey, clock: Callable[[], Tai]) -> Receipts:
    if not isinstance(side.store, SqliteStore):
        raise UsageError(
            "a receipt is stored in the lace that is served, and a warehouse is only read",
            hint="leave the receipts out",
        )
    return Receipts(side.store, key, side.settings.max_receipts, clock, os.urandom)
