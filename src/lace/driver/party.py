"""A party: one machine with its store, clock and evaluator; its effects carried out.

What a machine wants to say comes out as messages, in order: blocks, records, the end of a
batch, the end of all. Who moves them to the peer, and brings the peer's, is the caller.
"""

from __future__ import annotations

import traceback
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lace.driver.collecting import give_back_memory
from lace.driver.evaluator import StoreEvaluator
from lace.driver.intake import Intake
from lace.driver.local_errors import LOCAL_ERRORS, error_of
from lace.driver.messages import Block, End, beside_records
from lace.driver.resources import Resources
from lace.driver.saving import CursorSaver
from lace.driver.sending import send_batch
from lace.driver.supervision import CancelReason, LinkSupervisor
from lace.driver.waiting import steady_now
from lace.engines.budget import EvaluationCancelled
from lace.interlacing import effects as wanted
from lace.interlacing import events as happened
from lace.interlacing.failures import Failure, InterlaceFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.driver.answering import Evaluator, EvaluatorMaker
    from lace.driver.kept import KeptLinks
    from lace.driver.messages import Message
    from lace.driver.receipts import Receipts
    from lace.driver.waiting import TickWait
    from lace.errors import LaceError
    from lace.interlacing.effects import Effect
    from lace.interlacing.events import Event
    from lace.interlacing.machine import Machine
    from lace.interlacing.negotiation import Terms
    from lace.interlacing.result import Outcome
    from lace.record.validate import ValidRecord
    from lace.store.exchange_store import ExchangeStore

__all__ = ["BYTES_AT_ONCE", "Party"]

BYTES_AT_ONCE: Final = 16 * 2**20
_MUCH_BYTES: Final = 16 * 2**20
"""Record bytes after which memory is given back."""
_SECOND: Final = 1_000_000_000
_MANY_CLAIMS: Final = 50_000
"""Memory is given back, too, after an evaluation that takes in this many claims."""


class Party:
    """One side of an exchange.

    Args:
        machine: the machine, not started.
        store: the side's records.
        settings: limits of evaluations.
        transport: the address of the connection.
        clock: gives the time, of the wall clock: for hello, ticks and exposures.
        steady: gives readings of a clock that is never set: for timeouts.
        random_bytes: randomness for checking signatures together.
        workers: processes that validate records; without any, this one does.
        encrypted: whether the transport is proven to be confidential.
        is_pinned: whether it is, once the peer's hello is signed over the channel.
        kept: what is kept of earlier exchanges; the machine has the same.
        evaluating: makes what answers the machine's questions, once for each epoch.
        resources: what this link shares with others; else its own.
        receipts: makes receipts for records that are stored; None: there are none.
        group: whom it takes turns with for resources, as long as the peer is nobody that the
            policy names.
        tick_wait: when to end the machine of an open side; None: that is not for the party.
    """

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
        kept: KeptLinks | None = None,
        evaluating: EvaluatorMaker = StoreEvaluator,
        resources: Resources | None = None,
        receipts: Receipts | None = None,
        steady: Callable[[], Tai] = steady_now,
        group: str = "",
        tick_wait: TickWait | None = None,
    ) -> None:
        self._make_evaluator = evaluating
        shared = resources or Resources(settings)
        self.supervisor = LinkSupervisor(shared.memory, group)
        """Watches the evaluations, and can stop them."""
        self.machine = machine
        self._tick_wait = tick_wait
        self._store = store
        self._settings = settings
        self._transport, self._encrypted, self._is_pinned = transport, encrypted, is_pinned
        self._clock, self._steady = clock, steady
        self._evaluator: Evaluator | None = None
        self._cursors = CursorSaver(kept, steady, is_open=machine.config.is_open)
        self._kept = kept
        if kept is not None:
            kept.before = lambda: self._cursors.save(self._evaluator)
        self._receipts = receipts
        self._intake = Intake(store, settings, random_bytes, workers, shared.intake_load, receipts)
        self._is_storing = False
        self._tidied = self._rejected = 0
        self._batch: Generator[Message, None, None] | None = None
        self._waiting: deque[Message] = deque()
        self.bytes_at_once = BYTES_AT_ONCE
        """Record bytes that are given out together; the time of a batch is looked at between."""
        self._alarm = wanted.Wake(None)
        self.report: Outcome | None = None
        """What came of the last round of an open exchange."""
        self.reporter: Callable[[Outcome], None] | None = None
        """Hears of each of them."""
        self.error: LaceError | None = None
        """What could not be done here."""
        self.watcher: Callable[[Effect, Event | None], None] | None = None
        """Hears of what is done, with the answer if there is one at once; of a batch again when it
        is sent, with what was."""
        self.agreed: Callable[[Terms], None] | None = None
        """Hears of what both sides have agreed on, once for each epoch."""

    def take(self, event: Event) -> None:
        """Give the machine an event, and carry out what it wants."""
        if isinstance(event, happened.Ended):  # what has come by then is kept (G47b)
            self._store_all()
        if isinstance(event, happened.Stopped) and self._tick_wait is not None:
            self._tick_wait.give_up()
        self._take(event)
        if self.machine.is_ending and not self._is_storing:
            self._store_all()

    def _store_all(self) -> None:
        """Validate and store what has come, and wait for that."""
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
                if self.watcher is not None:
                    self.watcher(effect, answer)
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
        """What came of the exchange; None while it goes on."""
        outcome, wait = self.machine.outcome, self._tick_wait
        return outcome if outcome is None or wait is None else wait.outcome(outcome)

    @property
    def seconds_to_alarm(self) -> float | None:
        """How long until the machine is to be woken; None where nothing is waited for."""
        alarms = [(self._alarm.at, self._steady if self._alarm.is_deadline else self._clock)]
        if self._tick_wait is not None:
            alarms.append((self._tick_wait.due, self._clock))
        left = [at.nanoseconds - clock().nanoseconds for at, clock in alarms if at is not None]
        return max(0.0, min(left) / _SECOND) if left else None

    def take_alarm(self) -> bool:
        """Tell whether the machine is to be woken now; once for each alarm."""
        is_due = self.seconds_to_alarm == 0
        if is_due:
            self._alarm = wanted.Wake(None)
        return is_due

    def _end_cancelled(self) -> None:
        """End because an evaluation was cancelled, as what cancelled it says."""
        if self.supervisor.reason is CancelReason.PEER_LEFT:
            effects = self.machine.lose_peer()
        else:
            if self._tick_wait is not None:
                self._tick_wait.give_up()
            effects = self.machine.receive(happened.Stopped(), self._clock(), self._steady())
        for effect in effects:
            self._do(effect)

    def work(self, *, wait: bool = False) -> bool:
        """Go on with records that are being validated or stored; tells whether anything was done.

        Args:
            wait: wait for a validation, or store few records, if nothing else is left to do.
        """
        try:
            done = self._intake.work(wait=wait)
        except LOCAL_ERRORS as error:
            self.fail(error)
            return True
        for event in done:
            self.take(event)
        return bool(done)

    def tell_stored(self, hear: Callable[[Sequence[ValidRecord]], None]) -> None:
        """Have somebody hear of records that came, once they are stored."""
        self._intake.stored = hear

    @property
    def is_busy(self) -> bool:
        """Whether records that arrived are being validated or stored."""
        return self._intake.is_busy

    def watch_validation(self) -> int | None:
        """Return what can be read from when the next validation is done, for the caller to close.

        None when no process validates now.
        """
        return self._intake.watch()

    @property
    def validating(self) -> int:
        """How many groups of records wait for their validation."""
        return self._intake.validating

    @property
    def rejected(self) -> int:
        """How many records were rejected up to the end of the last round; never fewer later."""
        outcome = self.outcome or self.report
        if outcome is not None:  # one that came after all is not among them any more
            self._rejected = max(self._rejected, len(outcome.rejected))
        return self._rejected

    def fail(self, error: LaceError | OSError | MemoryError) -> None:
        """End because something could not be done here, or the peer's bytes are no stream."""
        if self.machine.is_closed:
            return
        self.error = error_of(error, self._store.folder)
        for last in self.machine.fail(self.error):
            self._do(last)
        if self.machine.is_ending and not self._is_storing:
            self._store_all()

    def cut_off(self) -> None:
        """Drop what is to be sent, because nothing can be; in the midst of a batch that ends it."""
        self._waiting.clear()
        if self._drop_batch():
            self.fail(InterlaceFailure(Failure.PEER_CLOSED, "while records were sent to it"))

    def has_news(self) -> bool:
        """Tell whether the store has changed since it was evaluated last."""
        if self._evaluator is None:
            return False
        with self._store.snapshot() as snapshot:
            counters = snapshot.counters()
        return self._evaluator.position != (counters.high_water, counters.removal_sequence or 0)

    @property
    def has_agreed(self) -> bool:
        """Whether both sides have agreed on an exchange."""
        return self._evaluator is not None

    @property
    def max_data_bytes(self) -> int:
        """The most data that a record may have to be taken."""
        return self._settings.max_data_bytes

    @property
    def max_setup_block_size(self) -> int:
        """The largest block of setup or hello that is taken."""
        return self._settings.max_setup_block_size

    @property
    def max_resource_bytes(self) -> int:
        """The bytes that all texts of rules and plans may have together."""
        return self._settings.max_resource_bytes

    @property
    def can_take(self) -> bool:
        """Whether something of the peer would be taken now; else it is to be kept back."""
        return self.machine.is_closed or (self.machine.takes_input and not self._intake.is_full)

    def close(self) -> None:
        """Give up what was under way, and all that is large.

        A caller that keeps the party, or the error that ended it, keeps no facts with it: they
        would wait for a search for garbage, and a server has many links before there is one. So
        nothing that refers back to the party is kept either.
        """
        self._drop_batch()
        self._intake.close()
        self._evaluator = None
        self.supervisor.close()
        self._cursors.forget()
        if self._kept is not None:
            self._kept.before = None
        self.agreed = self.reporter = self.watcher = self._intake.stored = None
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
                self._waiting.append(Block(effect))
                self._intake.expect(self.machine.outstanding)
            case wanted.Agree():
                self._evaluator = self._agree(effect)
                self.supervisor.when_dropped(self._evaluator.release)
                if self._tick_wait is not None:
                    self._tick_wait.agree(effect.terms)
                if self._receipts is not None:
                    self._receipts.sender = effect.terms.peer.verifier
                if self.agreed is not None:
                    self.agreed(effect.terms)
            case wanted.Evaluate():
                if effect.added or effect.relabelled or effect.removed:
                    self._cursors.forget()
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
                self._alarm = effect
            case wanted.Report(outcome):
                self.report = outcome
                if self._receipts is not None:
                    self._receipts.begin_round()
                if self.reporter is not None:
                    self.reporter(outcome)
            case wanted.Close():
                self._drop_batch()
                self._intake.close()
                self._cursors.save(self._evaluator)
                self._waiting.append(End())
            case wanted.KeepModule(verifier, module_id, body):
                if self.machine.config.modules is not None:
                    self.machine.config.modules.save(verifier, module_id, body)
            case wanted.SaveCursor():
                self._cursors.take(effect, self._evaluating())
        return None

    def _evaluate(self, effect: wanted.Evaluate) -> Event:
        """Evaluate, and give back the memory of what was large before and in it."""
        counters = self.machine.counters
        moved = counters.bytes_received + counters.bytes_sent
        claims = len(effect.added) + len(effect.relabelled)
        is_large = moved - self._tidied >= _MUCH_BYTES or claims >= _MANY_CLAIMS
        if is_large:
            self._tidied = moved
            give_back_memory()
        with self.supervisor.evaluating():
            answer = self._evaluating().evaluate(effect)
        if is_large:
            give_back_memory()
        return answer

    def _agree(self, effect: wanted.Agree) -> Evaluator:
        known = self._cursors.known(effect, self._evaluator)
        self._cursors.forget()
        verifier = effect.terms.peer.verifier
        if verifier is not None and self._names(verifier):
            self.supervisor.belong_to(verifier)
        return self._make_evaluator(
            self._store,
            effect.executable,
            effect.terms,
            transport=self._transport,
            encrypted=self._encrypted or (self._is_pinned and effect.terms.signer is not None),
            max_value_bytes=self._settings.max_value_bytes,
            max_line_bytes=self.machine.config.max_line_bytes,
            known=known,
            supervisor=self.supervisor,
        )

    def _names(self, verifier: str) -> bool:
        """Tell whether this side's policy names a verifier, which anybody could have made."""
        config = self.machine.config
        exposed = (each.viewers or () for each in config.exposures)
        return verifier in config.expected or any(verifier in viewers for viewers in exposed)

    def _evaluating(self) -> Evaluator:
        if self._evaluator is None:
            raise AssertionError("evaluations come after both sides agree")
        return self._evaluator

    def count_sent(self, message: Message, size: int) -> None:
        """Count the bytes of a message that was sent; of records, what is beside them."""
        self.machine.traffic.sent(*beside_records(message, size))

    def count_received(self, message: Message, size: int) -> None:
        """Count those of a message that came from a party in this process."""
        self.machine.traffic.received(*beside_records(message, size))

    def take_back(self) -> Message:
        """Return the last of what is to be sent, which then is not."""
        return self._waiting.pop()

    def messages(self) -> Iterator[Message]:
        """Yield what is to be sent now, as it is made."""
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
        """Give up the batch that is being sent, and its view of the store; tells whether one was.

        A view that stays open keeps the store's log from being written back.
        """
        batch, self._batch = self._batch, None
        if batch is not None:
            with suppress(ValueError):  # it is running: it has told its end, and this comes of that
                batch.close()
        return batch is not None

    def _sending(self, effect: wanted.SendBatch) -> Generator[Message, None, None]:
        """Give out a batch, then tell the machine."""
        sent = yield from send_batch(self._store, effect, self._steady, self.bytes_at_once)
        if self.watcher is not None:
            self.watcher(effect, sent)
        self.take(sent)


def _clear_frames(error: BaseException) -> None:
    """Free what the calls held that led to an error; it still tells the lines."""
    traceback.clear_frames(error.__traceback__)
    called = error.__traceback__.tb_frame.f_back if error.__traceback__ is not None else None
    while called is not None:  # those that went on after it was caught
        with suppress(RuntimeError):  # it still runs
            called.clear()
        called = called.f_back
