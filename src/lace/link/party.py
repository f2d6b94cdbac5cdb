"""A party: one machine with its store, clock and evaluator, which carries out its effects.

It yields messages in order: blocks, records, the end of a batch, the end of the stream. The caller
moves them to the peer, and brings the events that the peer causes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lace.base.tai import Tai, TaiError
from lace.engine.budget import EvaluationCancelled
from lace.errors import LaceError, Place
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.capabilities import SECOND
from lace.exchange.events import BatchSent
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.transitions import State
from lace.link.evaluator import Known, StoreEvaluator
from lace.link.events import PartyObserver
from lace.link.intake import LinkIntake
from lace.link.messages import (
    BatchEnd,
    BlockMessage,
    EndMessage,
    NotAvailable,
    Records,
    beside_records,
)
from lace.link.resources import CancelReason, LinkSupervisor, Resources, give_back_memory
from lace.store.interface import StoreUnavailableError
from lace.store.links import KeptLink
from lace.transport.memory import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from pathlib import Path

    from lace.base.limits import Settings
    from lace.exchange.capabilities import Cursor
    from lace.exchange.effects import Effect, SaveCursor, SendBatch
    from lace.exchange.events import Event
    from lace.exchange.machine import Machine
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Outcome
    from lace.link.evaluator import EvaluatorMaker, ExchangeEvaluator
    from lace.link.intake import Receipts
    from lace.link.messages import Message
    from lace.store.links import LinkFiles
    from lace.store.store_view import ExchangeStore


# -- Local errors while effects are carried out, as errors of Lace.
#
# Disk, memory and operating system raise their own exceptions. An exchange ends with each of them
# as with a store that cannot work, so that the caller learns what failed.

LOCAL_ERRORS: Final = (LaceError, OSError, MemoryError)
"""The errors that carrying out an effect may raise."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def error_of(error: LaceError | OSError | MemoryError, folder: Path) -> LaceError:
    """Return an exception as an error of Lace, for a side with its lace in a folder."""
    if isinstance(error, LaceError):
        return error
    hint = "nothing that was stored is lost; check the system and run it again"
    if isinstance(error, MemoryError):
        made = StoreUnavailableError("not enough memory", place=Place(str(folder)), hint=hint)
    else:
        if error.errno in _FULL:
            hint = "nothing that was stored is lost; free some space and run it again"
        where = str(folder if error.filename is None else error.filename)
        what = error.strerror or str(error) or type(error).__name__
        made = StoreUnavailableError(what, place=Place(where), hint=hint)
    made.__cause__ = error
    return made


# -- A batch: requested records, loaded and given out as far as its budget goes.

RECORDS_AT_ONCE: Final = 8_000
"""Records that are moved, validated and stored together."""
BYTES_AT_ONCE: Final = 256 * 1024
"""About how many bytes are given to the stream at once: a slow peer must not stretch a batch."""
_LOOK_BYTES: Final = 256 * 1024
"""About how many record bytes are loaded between two looks at the clock."""
_LOOK_RECORDS: Final = 256
"""At most how many records are loaded between two looks at the clock."""
_SECOND: Final = 1_000_000_000


def send_batch(
    store: ExchangeStore, effect: SendBatch, clock: Callable[[], Tai]
) -> Generator[Message, None, BatchSent]:
    """Yield the messages of a batch as far as its budget goes, and return what was sent."""
    until = clock().shift(effect.most_seconds * _SECOND)
    sent: list[str] = []
    missing = list(effect.unavailable)
    size = looked = 0
    piece: list[bytes] = []
    piece_bytes = 0
    with store.snapshot() as snapshot:
        for record, raw in snapshot.bytes_of(effect.records):
            piece.append(raw)
            sent.append(record)
            size += len(raw)
            piece_bytes += len(raw)
            is_full = len(piece) == RECORDS_AT_ONCE or piece_bytes >= BYTES_AT_ONCE
            if is_full:
                yield Records(piece)
                piece, piece_bytes = [], 0
            if is_full or size - looked >= _LOOK_BYTES or not len(sent) % _LOOK_RECORDS:
                looked = size
                if clock() >= until:
                    break
            if size >= effect.most_bytes:
                break
        else:
            missing += sorted(set(effect.records).difference(sent))
    if piece:
        yield Records(piece)
    yield from map(NotAvailable, missing)
    yield BatchEnd()
    return BatchSent(tuple(sent), tuple(missing), size)


# -- Waiting: its clock, and the peer's bytes while records are validated.

GATHER_SECONDS: Final = 0.5
"""How long valid records wait for others that are stored with them."""


def steady_now() -> Tai:
    """Return the reading of a monotonic clock: only differences mean anything."""
    return Tai.from_nanoseconds(time.monotonic_ns())


class GatherTimer:
    """How long valid records may still wait for others: one large transaction is cheaper.

    The time counts from the first moment without other work, whatever comes meanwhile: a peer that
    sends a byte now and then does not keep records from being stored.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = None

    @property
    def seconds_left(self) -> float:
        """The seconds that are left; the first call starts the time."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + GATHER_SECONDS
        return max(0.0, self._until - now)

    def end(self) -> None:
        """Stop the time: the records are stored, or there is other work."""
        self._until = None


async def comes_first(
    waited: Collection[asyncio.Future[Any]], descriptor: int | None, seconds: float
) -> bool:
    """Wait for one of several futures or for a validation; returns True if it is a validation."""
    loop = asyncio.get_running_loop()
    validated: asyncio.Future[None] = loop.create_future()
    if descriptor is not None:
        loop.add_reader(descriptor, _settle, validated)
    try:
        await asyncio.wait(
            [*waited, validated], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        return validated.done()
    finally:
        validated.cancel()
        if descriptor is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_TRIM_BYTES: Final = 16 * 2**20
"""Trim memory after this many record bytes."""
_TRIM_CLAIMS: Final = 50_000
"""Trim memory after evaluating this many claims."""


class Party:
    """One side of an exchange."""

    def __init__(
        self,
        machine: Machine,
        store: ExchangeStore,
        settings: Settings,
        *,
        transport: str,
        clock: Callable[[], Tai],
        random_bytes: Callable[[int], bytes],
        workers: int = 0,
        encrypted: bool = False,
        is_pinned: bool = False,
        cursors: LinkCursors | None = None,
        evaluating: EvaluatorMaker = StoreEvaluator,
        resources: Resources | None = None,
        receipts: Receipts | None = None,
        steady: Callable[[], Tai] = steady_now,
        group: str = "",
        tick_wait: TickWait | None = None,
        observer: PartyObserver | None = None,
    ) -> None:
        self._make_evaluator = evaluating
        shared = resources or Resources(settings)
        self.supervisor = LinkSupervisor(shared.memory, group)
        """Supervises the evaluations, and can cancel them."""
        self.machine = machine
        self._tick_wait = tick_wait
        self._store = store
        self.settings = settings
        self._transport, self._encrypted, self._is_pinned = transport, encrypted, is_pinned
        self._clock, self._steady = clock, steady
        self._evaluator: ExchangeEvaluator | None = None
        limits = machine.config.capabilities.limits
        self.patience = None if transport == MEMORY.transport else limits.phase_timeout_seconds
        """The phase timeout in seconds; None for a peer in this process, which cannot go away."""
        self._cursors = cursors
        self._receipts = receipts
        self._observer = observer or PartyObserver()
        self._intake = LinkIntake(
            store, settings, random_bytes, workers, shared.intake_load, receipts, self._observer
        )
        self._is_storing = False
        self._tidied = self._rejected = 0
        self._batch: Generator[Message, None, None] | None = None
        self._waiting: deque[Message] = deque()
        self._alarm = wanted.Wake(None)
        self.report: Outcome | None = None
        """The outcome of the last round of an open exchange."""
        self.error: LaceError | None = None
        """The local error that has ended it."""

    def take(self, event: Event) -> None:
        """Give the machine an event, and carry out its effects."""
        if isinstance(event, happened.Ended):  # records that came before stay stored (G47b)
            self._store_all()
        if isinstance(event, happened.Stopped) and self._tick_wait is not None:
            self._tick_wait.give_up()
        self._take(event)
        if self.machine.is_ending and not self._is_storing:
            self._store_all()

    def _store_all(self) -> None:
        """Validate and store all records that have arrived."""
        self._is_storing = True
        try:
            while self.is_busy and not self.machine.is_closed:
                self.work(wait=True)
        finally:
            self._is_storing = False

    def _take(self, event: Event) -> None:
        events: deque[Event] = deque([event])
        while events:
            for effect in self.machine.receive(events.popleft(), self._clock(), self._steady()):
                try:
                    answer = self._do(effect)
                except EvaluationCancelled:
                    self._end_cancelled()
                    return
                except LOCAL_ERRORS as error:
                    self.fail(error)
                    return
                self._observer.done(effect, answer)
                if answer is not None:
                    events.append(answer)
            if (
                not events
                and self._tick_wait is not None
                and self._tick_wait.is_over(self._clock())
            ):
                events.append(happened.Stopped())

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the exchange; None while it runs."""
        outcome, wait = self.machine.outcome, self._tick_wait
        return outcome if outcome is None or wait is None else wait.outcome(outcome)

    @property
    def seconds_to_alarm(self) -> float | None:
        """The seconds until the machine is to be woken; None without an alarm."""
        alarms = [(self._alarm.at, self._steady if self._alarm.is_deadline else self._clock)]
        if self._tick_wait is not None:
            alarms.append((self._tick_wait.due, self._clock))
        left = [at.nanoseconds - clock().nanoseconds for at, clock in alarms if at is not None]
        return max(0.0, min(left) / _SECOND) if left else None

    def take_alarm(self) -> bool:
        """Return whether the machine is to be woken now; True only once for each alarm."""
        is_due = self.seconds_to_alarm == 0
        if is_due:
            self._alarm = wanted.Wake(None)
        return is_due

    def _end_cancelled(self) -> None:
        """End because an evaluation was cancelled, for the reason of the cancellation."""
        if self.supervisor.reason is CancelReason.PEER_LEFT:
            effects = self.machine.lose_peer()
        else:
            if self._tick_wait is not None:
                self._tick_wait.give_up()
            effects = self.machine.receive(happened.Stopped(), self._clock(), self._steady())
        for effect in effects:
            self._do(effect)

    def work(self, *, wait: bool = False) -> bool:
        """Validate or store records, and return whether anything was done."""
        try:
            done = self._intake.work(wait=wait)
        except LOCAL_ERRORS as error:
            self.fail(error)
            return True
        for event in done:
            self.take(event)
        return bool(done)

    @property
    def is_busy(self) -> bool:
        """Whether records that arrived are being validated or stored."""
        return self._intake.is_busy

    def watch_validation(self) -> int | None:
        """Return a descriptor that is readable once the next validation is done.

        The caller closes it. None when no process validates.
        """
        return self._intake.watch()

    @property
    def validating(self) -> int:
        """The number of batches that wait for their validation."""
        return self._intake.validating

    @property
    def rejected(self) -> int:
        """The number of records rejected up to the end of the last round; it never falls."""
        outcome = self.outcome or self.report
        if outcome is not None:  # a record that came after all is no longer among them
            self._rejected = max(self._rejected, len(outcome.rejected))
        return self._rejected

    def fail(self, error: LaceError | OSError | MemoryError) -> None:
        """End with a local error, or because the peer's bytes are not a valid stream."""
        if self.machine.is_closed:
            return
        self.error = error_of(error, self._store.folder)
        for last in self.machine.fail(self.error):
            self._do(last)
        if self.machine.is_ending and not self._is_storing:
            self._store_all()

    def cut_off(self) -> None:
        """Drop what waits to be sent, because nothing can be sent; within a batch, end."""
        self._waiting.clear()
        if self._drop_batch():
            self.fail(InterlaceFailure(Failure.PEER_CLOSED, "while records were sent to it"))

    def has_news(self) -> bool:
        """Return whether the store has changed since the last evaluation."""
        if self._evaluator is None:
            return False
        with self._store.snapshot() as snapshot:
            counters = snapshot.counters()
        return self._evaluator.position != (counters.high_water, counters.removal_sequence or 0)

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self._store.folder

    @property
    def has_agreed(self) -> bool:
        """Whether both sides have agreed on an exchange."""
        return self._evaluator is not None

    @property
    def can_take(self) -> bool:
        """Whether an event of the peer would be taken now; else it has to wait."""
        return self.machine.is_closed or (self.machine.takes_input and not self._intake.is_full)

    def close(self) -> None:
        """Drop work in progress and everything large.

        A caller that keeps the party, or the error that ended it, then keeps no facts alive: they
        would wait for a garbage collection, and a server runs many links between two of them.
        """
        self._drop_batch()
        self._intake.close()
        self._evaluator = None
        self.supervisor.close()
        self._forget_cursor()
        if self.machine.is_closed:
            self.machine.release()
        outcome = self.outcome
        errors: list[BaseException | None] = [self.error, outcome.failure if outcome else None]
        for error in errors:
            while error is not None:
                _clear_frames(error)
                error = error.__cause__ or error.__context__

    def _do(self, effect: Effect) -> Event | None:
        match effect:
            case wanted.SendBlock():
                self._waiting.append(BlockMessage(effect))
                self._intake.expect(self.machine.outstanding)
            case wanted.Agree():
                self._evaluator = self._agree(effect)
                self.supervisor.watch(self._evaluator)
                if self._tick_wait is not None:
                    self._tick_wait.agree(effect.terms)
                if self._receipts is not None:
                    self._receipts.sender = effect.terms.peer.verifier
                self._observer.agreed(effect.terms)
            case wanted.Evaluate():
                if effect.added or effect.relabelled or effect.removed:
                    self._forget_cursor()
                return self._evaluate(effect)
            case wanted.Describe():
                with self.supervisor.evaluating():
                    return self._evaluating().describe(effect)
            case wanted.Validate(records):
                self._intake.validate(records, further=self.machine.outstanding)
            case wanted.Admit(records):
                self._intake.admit(records)
            case wanted.SendBatch():
                self._batch = self._sending(effect)
            case wanted.Wake():
                is_heeded = self.patience is not None or not effect.is_deadline
                self._alarm = effect if is_heeded else wanted.Wake(None)
            case wanted.Report(outcome):
                self.report = outcome
                if self._receipts is not None:
                    self._receipts.begin_round()
                self._observer.round_ended(outcome)
            case wanted.Close():
                self._drop_batch()
                self._intake.close()
                if self._cursors is not None:
                    self._cursors.save()
                self._waiting.append(EndMessage())
            case wanted.KeepModule(verifier, module_id, body):
                if self.machine.config.modules is not None:
                    self.machine.config.modules.save(verifier, module_id, body)
            case wanted.SaveCursor() if self._cursors is not None:
                self._cursors.take(effect, self._evaluating())
        return None

    def _evaluate(self, effect: wanted.Evaluate) -> Event:
        """Evaluate, and trim memory before and after a large evaluation."""
        counters = self.machine.counters
        moved = counters.bytes_received + counters.bytes_sent
        claims = len(effect.added) + len(effect.relabelled)
        is_large = moved - self._tidied >= _TRIM_BYTES or claims >= _TRIM_CLAIMS
        if is_large:
            self._tidied = moved
            give_back_memory()
        with self.supervisor.evaluating():
            answer = self._evaluating().evaluate(effect)
        if is_large:
            give_back_memory()
        return answer

    def _agree(self, effect: wanted.Agree) -> ExchangeEvaluator:
        known = self._known(effect)
        self._forget_cursor()
        verifier = effect.terms.peer.verifier
        if verifier is not None and self._names(verifier):
            self.supervisor.belong_to(verifier)
        return self._make_evaluator(
            self._store,
            effect.executable,
            effect.terms,
            transport=self._transport,
            encrypted=self._encrypted or (self._is_pinned and effect.terms.signer is not None),
            max_value_bytes=self.settings.max_value_bytes,
            max_line_bytes=self.machine.config.max_line_bytes,
            known=known,
            supervisor=self.supervisor,
        )

    def _known(self, effect: wanted.Agree) -> Known | None:
        """Return what the peer claims at the start of an epoch, as far as it is known."""
        if effect.known is None:
            return None
        link_id = effect.terms.link_id
        if link_id is not None and self._cursors is not None:
            return self._cursors.known(link_id)
        return None if self._evaluator is None else Known(effect.known, self._evaluator.claims())

    def _forget_cursor(self) -> None:
        if self._cursors is not None:
            self._cursors.forget()

    def _names(self, verifier: str) -> bool:
        """Return whether this side's policy names a verifier; anyone can make one."""
        config = self.machine.config
        exposed = (each.viewers or () for each in config.exposures)
        return verifier in config.expected or any(verifier in viewers for viewers in exposed)

    def _evaluating(self) -> ExchangeEvaluator:
        if self._evaluator is None:
            raise AssertionError("evaluations come after both sides agree")
        return self._evaluator

    def count_sent(self, message: Message, size: int) -> None:
        """Count the bytes of a sent message, without those of records."""
        self.machine.traffic.sent(*beside_records(message, size))

    def take_back(self) -> Message:
        """Return the last waiting message, which is then not sent."""
        return self._waiting.pop()

    def messages(self) -> Iterator[Message]:
        """Yield the messages to send now, as they are made."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._batch is None:
                return
            try:
                message = next(self._batch, None)
            except LOCAL_ERRORS as error:
                self._batch = None
                self.fail(error)
                continue
            if message is None:
                self._batch = None
            else:
                yield message

    def _drop_batch(self) -> bool:
        """Drop the batch that is being sent, and return whether there was one.

        Its snapshot would keep the store's log from being written back.
        """
        batch, self._batch = self._batch, None
        if batch is not None:
            with suppress(ValueError):  # it is running: its own end has led here
                batch.close()
        return batch is not None

    def _sending(self, effect: wanted.SendBatch) -> Generator[Message, None, None]:
        """Yield the messages of a batch, then report it to the machine."""
        sent = yield from send_batch(self._store, effect, self._steady)
        self._observer.done(effect, sent)
        self.take(sent)


def _clear_frames(error: BaseException) -> None:
    """Free the locals of the frames that led to an error; the traceback keeps its lines."""
    traceback.clear_frames(error.__traceback__)
    called = error.__traceback__.tb_frame.f_back if error.__traceback__ is not None else None
    while called is not None:  # frames that went on after it was caught
        with suppress(RuntimeError):  # still running
            called.clear()
        called = called.f_back


# -- The cursors of links, and the claims that belong to them.

_SAVE_INTERVAL: Final = 30 * 1_000_000_000
"""Nanoseconds between two cursors that an open exchange saves."""


class LinkCursors:
    """The cursors of a lace by Link-Id; in an open exchange one is saved now and then."""

    def __init__(self, files: LinkFiles, clock: Callable[[], Tai], *, is_open: bool) -> None:
        self._files, self._clock, self._is_open = files, clock, is_open
        self._found: tuple[str, KeptLink] | None = None
        self._unsaved: tuple[SaveCursor, str | None, ExchangeEvaluator] | None = None
        """The last cursor that is not saved yet, and the state in which it says everything."""
        self._saved: Tai | None = None

    def get(self, link_id: str, /) -> Cursor | None:
        """Return the cursor of a link; one that is not saved yet is saved before."""
        self.save()
        kept = self._files.load(link_id)
        self._found = None if kept is None else (link_id, kept)
        return None if kept is None else kept.cursor

    def known(self, link_id: str) -> Known:
        """Return what the peer is taken to claim under the cursor that was found last."""
        if self._found is None or self._found[0] != link_id:
            raise AssertionError("claims are asked for with the cursor that was found")
        kept, self._found = self._found[1], None
        return Known(kept.cursor.theirs, kept.claims, kept.cursor.ours, kept.state)

    def take(self, effect: SaveCursor, evaluator: ExchangeEvaluator) -> None:
        """Take a cursor, and save it if it is time."""
        is_whole = effect.is_settled and not evaluator.is_resting
        self._unsaved = effect, evaluator.state() if is_whole else None, evaluator
        is_due = self._saved is None or self._clock() >= self._saved.shift(_SAVE_INTERVAL)
        if is_due or not self._is_open:
            self.save()

    def save(self) -> None:
        """Save the cursor that is not saved yet, with what the peer claims under it."""
        if self._unsaved is None:
            return
        (effect, state, evaluator), self._unsaved = self._unsaved, None
        if not evaluator.is_resting:  # else all of it is as it was found
            kept = KeptLink(cursor=effect.cursor, claims=evaluator.claims(), state=state)
            self._files.save(effect.link_id, kept)
        self._saved = self._clock()

    def forget(self) -> None:
        """Drop a cursor that is not saved yet: the claims are of another state from now on."""
        self._unsaved = None


# -- Waiting for ticks: a close condition around the machine of a bounded side (050-143).
#
# The machine is that of an open side. The party stops it at the tick, or when the peer has had
# enough time to be ready for it.

_LAST: Final = Tai("9999999999:999999999")
_ENDED: Final = "the peer ended the exchange"
_NOT_READY: Final = "the peer was not ready for the tick in time"


class TickWait:
    """Ends the machine of an open side at a tick.

    The tick is the one that is `count` intervals after the start of the first epoch. Where
    rules depend on ticks, both sides have to be ready for it, and a round with it is awaited;
    a peer that is not ready for it within ClockSkewSeconds and the phase timeout is not waited
    for. Otherwise this side's clock decides alone.
    """

    def __init__(self, machine: Machine, count: int) -> None:
        if count < 1 or not machine.config.is_open:
            raise ValueError(f"the machine of an open side waits for at least 1 tick, not {count}")
        self._machine, self._count = machine, count
        self._goal: Tai | None = None
        self._deadline = _LAST
        self._is_over = False
        self._missing: str | None = _ENDED
        """Why the ticks did not come; None if they came, or were not waited for to the end."""

    def agree(self, terms: Terms) -> None:
        """Take what both sides have agreed on; the first start counts."""
        if self._goal is None:
            limits = self._machine.config.capabilities.limits
            patience = terms.clock_skew_seconds + limits.phase_timeout_seconds
            self._goal = _later(terms.start_tai, self._count * terms.tick_interval)
            self._deadline = _later(self._goal, patience * SECOND)

    @property
    def due(self) -> Tai | None:
        """When to look at the clock again; None while the machine is at work."""
        if self._goal is None or self._is_over or self._machine.state is not State.WAITING:
            return None
        return self._goal if self._machine.tick is None else self._deadline

    def is_over(self, now: Tai) -> bool:
        """Tell, once, whether the machine is to be stopped now."""
        due, tick = self.due, self._machine.tick
        if due is None or self._goal is None:
            return False
        if now >= self._goal if tick is None else tick >= self._goal:
            self._missing = None
        elif now >= due:
            self._missing = _NOT_READY
        else:
            return False
        self._is_over = True
        return True

    def give_up(self) -> None:
        """Take note that this side itself wants to end before the tick."""
        if not self._is_over:
            self._missing = None

    def outcome(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the machine, with what is to be said of the ticks."""
        if self._missing is None or outcome.failure is not None:
            return outcome
        reason = f"{outcome.reason}; {self._missing}, before the ticks that were waited for"
        return replace(outcome, reason=reason, ticks_missed=True)


def _later(tai: Tai, nanoseconds: int) -> Tai:
    """Return a later instant; the last that a text can say, if it lies beyond that."""
    try:
        return tai.shift(nanoseconds)
    except TaiError:
        return _LAST
