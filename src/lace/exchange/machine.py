"""The interlace machine: events in, effects out, time as an argument (050).

One machine runs one side of one link. It does no I/O and reads no clock: the driver
carries out its effects and brings the answers, and whatever the peer sends. A failure ends
it with a bare `Close`; the local outcome says what happened, the peer learns nothing.

Time comes as two readings: of the wall clock, which hello, ticks and exposures tell, and of a
steady clock, by which turns are timed.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from lace.exchange import events as happened
from lace.exchange.blocks import is_only_tick
from lace.exchange.capabilities import Cursor, MachineConfig
from lace.exchange.effects import Agree, Close, Effect, Report, SaveCursor, SendBlock, Wake
from lace.exchange.failures import Failure, InterlaceFailure, local_failure
from lace.exchange.loops import LoopEnd, Loops
from lace.exchange.negotiation import Handshake
from lace.exchange.result import Counters, Outcome, Traffic
from lace.exchange.ticks import LocalTime
from lace.exchange.transfer import Ledger
from lace.exchange.transitions import State, check_legal, takes_input

if TYPE_CHECKING:
    from lace.base.tai import Tai
    from lace.errors import LaceError
    from lace.exchange.events import Event
    from lace.exchange.negotiation import Terms
    from lace.facts.lines import Fact


# -- How long phases take, how long a peer may take for a turn, and when to be woken (G47b).
#
# The timeout holds for a turn and starts again with every mebibyte that arrives. What this
# side needs to validate and store what has arrived does not count. All instants here are
# readings of a steady clock, which nobody sets: a wall clock that jumps ends no turn early, and
# keeps none waiting.

_SECOND: Final = 1_000_000_000


class PhaseTimes:
    """How long each phase took, this side's work and the peer's together."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._since: Tai | None = None
        self._passed: dict[str, int] = {}

    def note(self, state: State, now: Tai) -> None:
        """Say what the machine is at from now on."""
        if self._phase is not None and self._since is not None:
            passed = max(0, now.nanoseconds - self._since.nanoseconds)
            self._passed[self._phase] = self._passed.get(self._phase, 0) + passed
        self._phase, self._since = state.phase, now

    @property
    def seconds(self) -> tuple[tuple[str, float], ...]:
        """The seconds of each phase that there was, in their order."""
        return tuple((phase, passed / _SECOND) for phase, passed in self._passed.items())


class Timing:
    """The deadline of the present turn, and the alarm that is set."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._turn: object = None
        self._deadline: Tai | None = None
        self._busy_since: Tai | None = None
        self._alarm = Wake(None)

    def watch(self, turn: object, now: Tai, *, is_busy: bool) -> Tai | None:
        """Return when to be woken if the peer has not sent its part of a turn by then.

        `turn` says which one it is, None for none: another one starts the time again.
        """
        if turn != self._turn:
            self._turn, self._busy_since = turn, None
            self._deadline = None if turn is None else self._from(now)
        if self._deadline is None:
            return None
        if is_busy:
            self._busy_since = self._busy_since or now
            return None
        if self._busy_since is not None:
            passed = now.nanoseconds - self._busy_since.nanoseconds
            self._deadline = self._deadline.shift(max(0, passed))
            self._busy_since = None
        return self._deadline

    def progress(self, now: Tai) -> None:
        """Start the time again: something has arrived."""
        if self._deadline is not None:
            self._deadline = self._from(now)
            self._busy_since = None if self._busy_since is None else now

    def is_late(self, now: Tai) -> bool:
        """Tell whether the peer has taken too long."""
        return self._deadline is not None and self._busy_since is None and now >= self._deadline

    def _from(self, now: Tai) -> Tai:
        return now.shift(self.seconds * _SECOND)

    def woken(self) -> None:
        """Take note that the alarm went off."""
        self._alarm = Wake(None)

    def set_alarm(self, wanted: Tai | None, *, is_deadline: bool = False) -> list[Effect]:
        """Return when to be woken, if that has changed."""
        made = Wake(wanted, is_deadline=is_deadline and wanted is not None)
        if made == self._alarm:
            return []
        self._alarm = made
        return [made]


# -- The account of an exchange: what was counted over all its epochs, and how it came out (050).


class Account:
    """What one side counts; the loops of the epoch that is under way count for themselves."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.traffic = Traffic()
        self.times = PhaseTimes()
        self.has_saved = False
        """Whether a cursor was kept."""
        self._before = Counters()

    def counters(self, loops: Loops | None) -> Counters:
        """Return what was counted so far."""
        before, traffic = self._before, asdict(self.traffic)
        if loops is None:
            return replace(before, **traffic)
        transfer = loops.transfer
        return Counters(
            **traffic,
            loops=before.loops + loops.loops,
            turns=before.turns + loops.turns,
            bytes_received=before.bytes_received + transfer.bytes_received,
            bytes_sent=before.bytes_sent + transfer.bytes_sent,
            requested=self.ledger.requested,
            answered=self.ledger.answered,
            stored=before.stored + transfer.stored,
            receipts=before.receipts + transfer.receipts,
            receipts_omitted=before.receipts_omitted + transfer.receipts_omitted,
            pending_here=loops.pending,
            pending_there=transfer.pending_there,
        )

    def end_epoch(self, loops: Loops | None) -> None:
        """Take over what the loops of an epoch have counted."""
        self._before = self.counters(loops)

    def outcome(
        self,
        reason: str,
        failure: InterlaceFailure | None,
        *,
        plan_id: str | None,
        terms: Terms | None,
        loops: Loops | None,
    ) -> Outcome:
        """Return how it stands, or has ended."""
        ledger = self.ledger
        is_settled = loops is not None and loops.ended is LoopEnd.FIXED_POINT
        return Outcome(
            plan_id=plan_id,
            link_id=terms.link_id if terms is not None else None,
            peer_verifier=terms.peer.verifier if terms is not None else None,
            received=ledger.received.as_of_now(),
            rejected=tuple(ledger.rejected.items()),
            not_available=tuple(ledger.not_available),
            noted=tuple((row, ledger.noted[row]) for row in Failure if ledger.noted[row]),
            cursor_updated=self.has_saved,
            at_fixed_point=is_settled and failure is None,
            reason=reason,
            failure=failure,
            counters=self.counters(loops),
            seconds=self.times.seconds,
        )


class _Why(Enum):
    """Why an exchange ended, or paused, without a failure."""

    FIXED_POINT = "at a fixed point"
    LIMIT = "not at a fixed point: the loop limit was reached"
    STOPPED = "stopped before a fixed point"
    PEER_ENDED = "the peer ended the exchange"


_RECONCILING = (State.ADVERTISING, State.WAITING)
"""Where a block of the peer is one of reconciliation, if it is no setup and no tick."""
_WHY = {LoopEnd.FIXED_POINT: _Why.FIXED_POINT, LoopEnd.LIMIT: _Why.LIMIT}


class Machine:
    """One side of an exchange."""

    def __init__(self, config: MachineConfig) -> None:
        self.config = config
        self._state = State.NEW
        self._handshake = Handshake(config)
        self._account = Account()
        self._loops: Loops | None = None
        self._timing = Timing(config.capabilities.limits.phase_timeout_seconds)
        self._epoch: tuple[Terms, Cursor | None] | None = None
        self._renewal: happened.Renewed | None = None
        self._has_changed = self._has_ended = self._reads_clock = False
        self._local = LocalTime(config.capabilities.tick_interval)
        self._handshakes = 0
        self._last: tuple[str, InterlaceFailure | None] | None = None
        """Why it ends, while the records that came before that are being stored."""
        self.outcome: Outcome | None = None

    @property
    def state(self) -> State:
        """What the machine is at."""
        if self._state is State.WAITING and self._loops is not None:
            return self._loops.step
        return self._state

    @property
    def is_closed(self) -> bool:
        """Whether the exchange is over."""
        return self._state is State.CLOSED

    @property
    def takes_input(self) -> bool:
        """Whether something of the peer would be taken now; else it is to be kept back."""
        if self._last is not None:
            return False
        if self.state is State.TRANSFERRING and self._loops is not None:
            return not self._loops.transfer.is_received
        return takes_input(self.state)

    @property
    def traffic(self) -> Traffic:
        """Bytes beside records; the driver counts what is sent."""
        return self._account.traffic

    @property
    def tick(self) -> Tai | None:
        """The TickTAI of the last loop; None where no rule depends on it, or there was no hello."""
        loops = self._loops
        return loops.ticks.tick if loops is not None and loops.depends_on_tick else None

    @property
    def outstanding(self) -> int:
        """How many requests of this side have no answer yet."""
        return self._account.ledger.outstanding

    def receive(self, event: Event, now: Tai, steady: Tai | None = None) -> list[Effect]:
        """Take an event; returns what is to be done, in order."""
        if self.is_closed:
            return []
        passed = now if steady is None else steady
        self._account.times.note(self.state, passed)
        if self._last is not None:
            return self._store_last(event, now)
        try:
            check_legal(event, self.state)
            effects = self._take(event, now, passed)
            if self._has_ended and self.takes_input:
                effects += self._ended()
        except InterlaceFailure as failure:
            return self._fail(failure)
        self._account.times.note(self.state, passed)
        return [*effects, *self._set_alarm(passed)]

    def fail(self, error: LaceError) -> list[Effect]:
        """End because of something outside.

        That is an effect that could not be carried out here, as an evaluation over a limit,
        or bytes of the peer that are no stream.
        """
        if self.is_closed:
            return []
        failure = local_failure(error)
        if failure is not error:  # nothing more can be stored here
            return self._end(self._outcome(str(failure), failure))
        return self._fail(failure)

    def lose_peer(self) -> list[Effect]:
        """End because the peer has left while this side was at work."""
        if self.is_closed:
            return []
        loops = self._loops
        if loops is not None and self._state is State.WAITING and loops.is_at_rest:
            return self._close(_Why.PEER_ENDED)
        return self._fail(InterlaceFailure(Failure.PEER_CLOSED, f"while {self.state.value}"))

    def release(self) -> None:
        """Give up what is large, once it is closed: what both sides advertised."""
        self._account.end_epoch(self._loops)
        self._loops = self._epoch = None

    @property
    def is_ending(self) -> bool:
        """Whether it is over but for the records that came before, which are being stored."""
        return self._last is not None and not self.is_closed

    def _take(self, event: Event, now: Tai, passed: Tai) -> list[Effect]:
        match event:
            case happened.Started():
                return self._send_setup()
            case happened.BlockReceived():
                self._handshake.take_modules(event.modules)
                return self._block(event, now)
            case happened.Woken():
                return self._woken(now, passed)
            case happened.Progressed():
                if not self._is_literal:
                    self._timing.progress(passed)
                return []
            case happened.Changed():
                self._has_changed = True
                return self._look(now)
            case happened.Renewed():
                self._renewal = event
                return self._look(now)
            case happened.Stopped():
                return self._close(_Why.STOPPED)
            case happened.Ended():
                return self._ended()
            case _:
                if isinstance(event, happened.BatchEnded):
                    self.traffic.received(event.size, is_reconciling=False)
                loops = self._looping()
                effects = loops.take(event, now)
                if loops.transfer.failure is not None:
                    return [*effects, *self._fail(loops.transfer.failure)]
                return self._go_on(effects, now)

    def _looping(self) -> Loops:
        if self._loops is None:
            raise AssertionError("loops come after hello")
        return self._loops

    # -- setup and hello -----------------------------------------------------------------------

    def _send_setup(self) -> list[Effect]:
        """Present the operand; what was under way is over."""
        if self._renewal is not None:
            self._handshake.renew(self._renewal.operand, self._renewal.exposures)
            self._renewal = None
        self._account.end_epoch(self._loops)
        if self._loops is not None:
            self._local = self._loops.local
        self._loops = None
        self._state = State.SETUP
        self._handshakes += 1
        return [self._handshake.send_setup()]

    def _block(self, event: happened.BlockReceived, now: Tai) -> list[Effect]:
        facts = event.facts
        is_setup = any(fact[0] == "ExchangeOperand" for fact in facts)
        is_tick = is_only_tick(facts)
        is_reconciling = self.state in _RECONCILING and not is_setup and not is_tick
        self.traffic.received(event.size, is_reconciling=is_reconciling)
        if self._state is State.SETUP:
            if self._epoch is not None and not is_setup:
                return []  # a new setup wins: what was sent before it is passed over
            return self._take_setup(facts, now)
        if self._state is State.HELLO:
            return self._take_hello(facts, now)
        loops = self._looping()
        if is_setup and self._epoch is not None and loops.is_at_rest:
            return [*self._send_setup(), *self._take_setup(facts, now)]
        if loops.step is not State.WAITING or is_tick:
            return self._go_on(loops.block(facts, now), now)
        self._has_changed = False
        return loops.answer(facts, now)

    def _take_setup(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        hello = self._handshake.take_setup(facts, now)
        plan = self._handshake.plan
        if self._epoch is not None and plan is not None and plan.id != self._epoch[0].plan_id:
            self._account.ledger.begin_epoch()
        self._state = State.HELLO
        return [hello]

    def _take_hello(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        executable, terms = self._handshake.take_hello(facts)
        self._reads_clock = executable.reads_clock
        cursor = self._cursor_for(terms)
        self._epoch = terms, cursor
        self._loops = Loops(
            terms,
            self._account.ledger,
            depends=self._handshake.depends,
            depends_on_tick=self._handshake.depends_on_tick,
            local=self._local,
            is_open=self.config.is_open,
            cursor=cursor,
            store_differing=self.config.store_differing,
            max_line_bytes=self.config.max_line_bytes,
        )
        self._state = State.WAITING
        self._has_changed = False
        known = None if cursor is None else cursor.theirs
        kept = self._handshake.kept_module
        agreed: list[Effect] = [Agree(executable, terms, known)]
        return [*agreed, *([] if kept is None else [kept]), *self._loops.begin_epoch(now)]

    def _cursor_for(self, terms: Terms) -> Cursor | None:
        """Return what is known of the peer's advertisements under these terms."""
        cursor: Cursor | None = None
        if terms.link_id is not None:
            cursor = self.config.cursors.get(terms.link_id)
        elif self._epoch is not None:
            before, known = self._epoch
            is_same = before.plan_id == terms.plan_id and before.link_id is None
            # Digests and the facts of claims hold the sources.
            is_same = is_same and _sources_of(before) == _sources_of(terms)
            cursor = known if is_same else None
        if cursor is None or cursor.schema != terms.schema:
            return None
        return cursor if cursor.claim_bytes <= terms.limits.max_advertised_bytes else None

    # -- rounds --------------------------------------------------------------------------------

    def _go_on(self, effects: list[Effect], now: Tai) -> list[Effect]:
        """Go on when a loop is over."""
        loops = self._looping()
        if not loops.is_over:
            return [*effects, *self._look(now)]
        end = loops.end()
        if end is LoopEnd.GOES_ON:
            return [*effects, *loops.begin_next(now)]
        effects = [*effects, *self._keep_cursor(loops)]
        if not self.config.is_open:
            return [*effects, *self._close(_WHY[end])]
        return [*effects, Report(self._outcome(_WHY[end].value)), *self._look(now)]

    def _keep_cursor(self, loops: Loops) -> list[Effect]:
        states = loops.states
        cursor = Cursor(states.theirs, states.own, loops.terms.schema, loops.claim_bytes)
        self._epoch = loops.terms, cursor
        link = loops.terms.link_id
        if link is None:
            return []
        self._account.has_saved = True
        return [SaveCursor(link, cursor, loops.is_settled)]

    def _look(self, now: Tai) -> list[Effect]:
        """While waiting, see whether there is a reason to begin a loop or a new setup."""
        loops = self._loops
        if loops is None or self.state is not State.WAITING:
            return []
        if self._renewal is not None:
            return self._send_setup()
        rises = loops.depends_on_tick and loops.ticks.both_ready
        if not self._has_changed and not rises and not loops.has_news:
            return []
        self._has_changed = False
        return loops.begin_again(now, tentative=not rises)

    # -- time ----------------------------------------------------------------------------------

    @property
    def _is_literal(self) -> bool:
        return bool(self.config.capabilities.limits.literal_limits)

    @property
    def _turn(self) -> object:
        """The turn, or by the letter the phase, in which the peer's part is due; None for none."""
        if self._state in (State.SETUP, State.HELLO):
            return self._state, self._handshakes
        loops = self._loops
        if self._is_literal and loops is not None and loops.step is not State.WAITING:
            return loops.step.phase, self._handshakes, loops.loops
        if loops is None or self._state is not State.WAITING or not loops.awaits_peer:
            return None
        return loops.step, self._handshakes, loops.turns

    def _set_alarm(self, passed: Tai) -> list[Effect]:
        if self.is_closed:
            return []
        loops = self._loops
        is_busy = loops is not None and (
            loops.transfer.is_busy or (self._is_literal and not loops.awaits_peer)
        )
        deadline = self._timing.watch(self._turn, passed, is_busy=is_busy)
        waiting = self._waiting
        if waiting is None:
            return self._timing.set_alarm(deadline, is_deadline=True)
        due = [waiting.ticks.next_due] if waiting.depends_on_tick else []
        due += [waiting.local.next_due] if self._reads_clock else []
        known = [each for each in due if each is not None]
        return self._timing.set_alarm(min(known, default=None))

    @property
    def _waiting(self) -> Loops | None:
        """The loops of an exchange that waits, for which time may be a reason to go on."""
        is_waiting = self.config.is_open and self.state is State.WAITING
        return self._loops if is_waiting else None

    def _woken(self, now: Tai, passed: Tai) -> list[Effect]:
        self._timing.woken()
        if self._timing.is_late(passed):
            raise InterlaceFailure(
                Failure.PHASE_TIMEOUT,
                f"{self._timing.seconds} s while {self.state.value}",
                hint="raise phase_timeout_seconds if the peer is only slow",
            )
        loops = self._waiting
        if loops is None:
            return []
        effects: list[Effect] = []
        due = loops.ticks.due(now) if loops.depends_on_tick else None
        if due is not None:
            loops.ticks = loops.ticks.announce(due)
            effects.append(SendBlock((("TickReady", str(due)),)))
        if self._reads_clock and loops.local.is_due(now):
            self._has_changed = True  # a loop begins only if that changes what may move
        return [*effects, *self._look(now)]

    # -- the end -------------------------------------------------------------------------------

    def _ended(self) -> list[Effect]:
        """Take the end of the peer's stream; while this side is at work, keep it in mind."""
        loops = self._loops
        if loops is not None and self._state is State.WAITING and loops.is_at_rest:
            return self._close(_Why.PEER_ENDED)
        if self._state is State.SETUP and self._epoch is not None:
            return self._close(_Why.PEER_ENDED)  # a new setup that nobody answered
        if not self.takes_input and self._state is State.WAITING:
            self._has_ended = True
            return []
        raise InterlaceFailure(
            Failure.PEER_CLOSED, f"while {self.state.value}", hint=self._doubt_of_claim()
        )

    def _doubt_of_claim(self) -> str | None:
        """Return what may be wrong if the peer closes before its first word after hello."""
        claim = self._handshake.unsigned_claim
        if claim is None or (self._loops is not None and self._loops.has_heard):
            return None
        signing = "sign with --key" if self.config.key is None else "let both sides send nonces"
        return (
            f"this side claims {claim} without a signature, so the peer's transport must prove it: "
            f"check its uid map or client map, or {signing}"
        )

    def _close(self, why: _Why) -> list[Effect]:
        reason = why.value
        if self._loops is not None and self._loops.ended in _WHY:
            reason = _WHY[self._loops.ended].value
        return self._end_after_storing(reason)

    def _fail(self, failure: InterlaceFailure) -> list[Effect]:
        return self._end_after_storing(str(failure), failure)

    def _end_after_storing(
        self, reason: str, failure: InterlaceFailure | None = None
    ) -> list[Effect]:
        """End, but first store what was asked for, has arrived and is valid."""
        if self._loops is not None and self._loops.transfer.is_busy:
            self._last = reason, failure
            return []
        return self._end(self._outcome(reason, failure))

    def _store_last(self, event: Event, now: Tai) -> list[Effect]:
        """Take an answer about records that came before the end; nothing else counts any more."""
        if self._last is None or not isinstance(event, happened.Validated | happened.Admitted):
            return []
        loops = self._looping()
        effects = loops.take(event, now)
        if loops.transfer.is_busy:
            return effects
        return [*effects, *self._end(self._outcome(*self._last))]

    def _end(self, outcome: Outcome) -> list[Effect]:
        self.outcome = outcome
        self._state = State.CLOSED
        return [Close(outcome)]

    @property
    def counters(self) -> Counters:
        """What was counted so far."""
        return self._account.counters(self._loops)

    def _outcome(self, reason: str, failure: InterlaceFailure | None = None) -> Outcome:
        terms = self._epoch[0] if self._epoch is not None else None
        plan = self._handshake.plan
        plan_id = plan.id if plan is not None else None
        return self._account.outcome(
            reason, failure, plan_id=plan_id, terms=terms, loops=self._loops
        )


def _sources_of(terms: Terms) -> tuple[str, str, str]:
    return terms.source, terms.peer_source, terms.rule_source
