"""The interlace machine: events in, effects out, time as an argument (050).

One machine runs one side of one link. It does no I/O and reads no clock: the driver
carries out its effects and brings the answers, and whatever the peer sends. A failure ends
it with a bare `Close`; the local outcome says what happened, the peer learns nothing.

Time comes as two readings: of the wall clock, which hello, ticks and exposures tell, and of a
steady clock, by which turns are timed.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from lace.exchange import events as happened
from lace.exchange.advertise import Advertising, States
from lace.exchange.blocks import Phase, check_block, is_only_tick
from lace.exchange.capabilities import Cursor, MachineConfig
from lace.exchange.effects import (
    Agree,
    Close,
    Describe,
    Effect,
    Evaluate,
    Report,
    SaveCursor,
    SendBlock,
)
from lace.exchange.failures import Failure, InterlaceFailure, local_failure
from lace.exchange.negotiation import Handshake
from lace.exchange.result import Account, Counters, Outcome, Traffic
from lace.exchange.ticks import LocalTime, Timing, start_ticks
from lace.exchange.transfer import Ledger, Transfer
from lace.exchange.transitions import Position, State, Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.base.tai import Tai
    from lace.errors import LaceError
    from lace.exchange.advertise import Due
    from lace.exchange.blocks import Block
    from lace.exchange.events import Event
    from lace.exchange.negotiation import Terms
    from lace.facts.lines import Fact


# -- The loops of one epoch. Setup, hello, waiting and the end are the machine's.

_REQUEST_BYTES: Final = 64
"""Bytes of the line of a request, about."""
_MAX_REQUESTS: Final = 200_000


class EndReason(Enum):
    """How a loop ended, or why an exchange did without a failure."""

    GOES_ON = "another loop is due"
    FIXED_POINT = "at a fixed point"
    LIMIT = "not at a fixed point: the loop limit was reached"
    STOPPED = "stopped before a fixed point"
    PEER_ENDED = "the peer ended the exchange"


class Loops:
    """The loops of one epoch: advertise, request, transfer, until nothing more is to be said."""

    def __init__(
        self,
        config: MachineConfig,
        terms: Terms,
        ledger: Ledger,
        position: Position,
        *,
        depends: bool,
        depends_on_tick: bool,
        local: LocalTime,
        cursor: Cursor | None,
    ) -> None:
        self.terms = terms
        self.ledger = ledger
        self._position = position
        self.ticks = start_ticks(terms.start_tai, terms.tick_interval)
        self.local = local
        self.depends_on_tick = depends_on_tick
        self._depends = depends
        self._is_open = config.is_open
        self.states = States(terms, cursor, is_open=config.is_open)
        self.transfer = Transfer(
            terms,
            ledger,
            self.states,
            store_differing=config.store_differing,
            max_line_bytes=config.max_line_bytes,
        )
        self.ended: EndReason | None = None
        """How the last loop ended; None while another is under way, and before the first."""
        self._previous: tuple[bytes, bytes] | None = None
        """The roots of what both sides advertised in the loop before."""
        self._advertising = Advertising(terms, self.states)
        self._held: tuple[Fact, ...] | None = None
        """The peer's turn 0, until this side has sent its own."""
        self._is_begun = self._is_tentative = False
        self._has_asked = False
        self.has_heard = False
        """Whether the peer has sent a turn since its hello: it has accepted this side."""
        self.pending = self._pending_before = 0
        self._idle_loops = self.loops = self.turns = 0

    @property
    def claim_bytes(self) -> int:
        """The bytes that the texts of the peer's claims take at most, those kept included."""
        return self.states.kept_claim_bytes + self._advertising.claim_bytes

    @property
    def awaits_peer(self) -> bool:
        """Whether a step of the peer is due."""
        state = self._position.state
        return state in (State.ADVERTISING, State.REQUESTING) or (
            state is State.TRANSFERRING and not self.transfer.is_received
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way, or only a loop that one side began and no side answered."""
        return self._position.state is State.WAITING or self._is_begun

    @property
    def is_over(self) -> bool:
        """Whether the loop is over."""
        return self._position.state is State.TRANSFERRING and self.transfer.is_over

    @property
    def is_at_fixed_point(self) -> bool:
        """Whether the last loop ended with nothing more to be said."""
        return self.ended is EndReason.FIXED_POINT

    @property
    def is_settled(self) -> bool:
        """Whether the last evaluation found what is advertised, and nothing to ask for or skip."""
        is_known = not self.states.has_news and not self.pending
        return self.is_at_fixed_point and is_known and not self.ledger.excluded

    @property
    def has_news(self) -> bool:
        """Whether an evaluation found, too late for the loop that ended, what the peer lacks.

        After the loop limit nothing counts as found: policies that never settle would not end.
        """
        return self.is_at_fixed_point and self.states.has_news

    # -- the beginning -------------------------------------------------------------------------

    def begin(self, reason: Trigger, now: Tai) -> list[Effect]:
        """Begin a loop: the first one after a hello, or the next one of a round."""
        self._position.move(reason)
        self._advertising.forget()
        self.ticks = self.ticks.begin_loop()
        return [self._evaluate_at(now)]

    def begin_again(self, now: Tai, *, tentative: bool = False) -> list[Effect]:
        """Begin a round after waiting; a tentative one only if there is something new here."""
        self._is_begun, self._is_tentative = True, tentative
        return self.begin(Trigger.LOOP_DUE, now)

    def answer(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        """Begin a round because the peer began one; `facts` are its turn 0."""
        self._held = facts
        return self.begin_again(now)

    def _evaluate_at(self, now: Tai) -> Evaluate:
        """Return the question what may be sent, by this side's clock as it is now."""
        self.local = self.local.at(now)
        return Evaluate(self.ticks.tick, self.local.tai, excluded=self.ledger.excluded)

    def take(self, event: happened.Event, now: Tai) -> list[Effect]:
        """Take an answer, or what belongs to a transfer."""
        transfer = self.transfer
        match event:
            case happened.EvaluationDone():
                return self._evaluated(event, now)
            case happened.Described():
                return self._take_described(event, now)
            case happened.RecordsReceived():
                return transfer.records(event)
            case happened.RecordLost():
                transfer.lost(event)
            case happened.Unavailable(record):
                transfer.missed(record)
            case happened.BatchEnded():
                transfer.batch_ended()
            case happened.Validated():
                return transfer.validated(event)
            case happened.Admitted():
                transfer.admitted(event)
            case happened.BatchSent():
                transfer.batch_sent(event)
            case _:
                raise AssertionError(f"{type(event).__name__} is taken elsewhere")
        return []

    def _evaluated(self, event: happened.EvaluationDone, now: Tai) -> list[Effect]:
        """Take an evaluation: of what may be sent, of what may be requested, or the last check."""
        if event.kept is not None:
            self.states.take_kept(event.kept)
        self.states.take(event.come, event.gone)
        if self._position.state is State.TRANSFERRING:
            return [self.transfer.send()]
        self.pending = event.pending
        if self._position.state is State.REQUESTING:
            return self._request(event, now)
        is_tentative, self._is_tentative = self._is_tentative, False
        # What the peer has deferred so far does not count: whatever is stored here would then
        # start a loop that such a peer sees, hidden records too.
        is_more = self.pending > self._pending_before
        self._pending_before = self.pending
        if is_tentative and not self.states.has_news and not is_more:
            self._position.move(Trigger.NOTHING_NEW)
            self._is_begun = False
            return []
        return self._open_loop(now)

    # -- advertise -----------------------------------------------------------------------------

    def _open_loop(self, now: Tai) -> list[Effect]:
        due = self._advertising.expect()
        if due is not None:
            return self._advertise(due, now)
        if self._is_begun:  # a round begins: loops and bytes are counted again
            self.ledger.begin_round()
            self.transfer.begin_round()
            self._idle_loops = 0
        self.ended = None
        self.loops += 1
        return self._advertise(self._advertising.open(), now)

    def _advertise(self, due: Due, now: Tai) -> list[Effect]:
        """Go on with what the phase needs next, or with the next phase."""
        if due is None:
            return self._compare()
        if isinstance(due, Describe):
            self._position.move(Trigger.CLAIMS_NEEDED)
            return [due]
        self._position.move(Trigger.TURN_READY)
        block = replace(self._turn_block(due, now), is_reconciling=True)
        held, self._held = self._held, None
        return [block] if held is None else [block, *self._take_turn(held, now)]

    def _take_turn(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        """Take a turn of the peer; with it both sides are at the loop."""
        block = self._advertising.read(facts)
        self._hear(block)
        self.has_heard = True
        self._is_begun = False
        return self._advertise(self._advertising.take(block), now)

    def _take_described(self, event: happened.Described, now: Tai) -> list[Effect]:
        if self._advertising.take_expected(event):
            return self._open_loop(now)
        return self._advertise(self._advertising.take_described(event), now)

    def _turn_block(self, facts: Sequence[Fact], now: Tai) -> SendBlock:
        """Return a step's block; with a tick that was reached, unless the step is empty."""
        self.turns += 1
        due = self.ticks.due(now) if self._is_open and facts else None
        if due is None:
            return SendBlock(tuple(facts))
        self.ticks = self.ticks.announce(due)
        return SendBlock((*facts, ("TickReady", str(due))))

    def _hear(self, block: Block) -> None:
        """Take the tick of a block."""
        if block.tick is not None:
            self.ticks = self.ticks.hear(block.tick)

    def block(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        """Take a block of the peer."""
        if is_only_tick(facts) and not self._is_in_batch:
            self._hear(check_block(facts, Phase.TICK))
            return []
        if self._position.state is State.ADVERTISING:
            return self._take_turn(facts, now)
        if self._position.state is State.REQUESTING:
            return self._requested(facts, now)
        raise InterlaceFailure(Failure.MALFORMED_BLOCK, "facts inside a batch", rule="G36")

    @property
    def _is_in_batch(self) -> bool:
        return self._position.state is State.TRANSFERRING and self.transfer.is_begun

    # -- request -------------------------------------------------------------------------------

    def _compare(self) -> list[Effect]:
        """Evaluate what may be requested of what the peer advertises now."""
        claims, relabelled, removed = self._advertising.conclude()
        self.ledger.see(self.states.theirs)
        self._position.move(Trigger.ALL_KNOWN)
        room = self.terms.limits.max_fact_block_size // _REQUEST_BYTES // 2
        return [
            Evaluate(
                self.ticks.tick,
                self.local.tai,
                added=claims,
                relabelled=relabelled,
                removed=removed,
                excluded=self.ledger.excluded,
                most_requests=min(_MAX_REQUESTS, room),
            )
        ]

    def _request(self, event: happened.EvaluationDone, now: Tai) -> list[Effect]:
        suffixes = tuple(f".{each}" for each in self.terms.formats)
        requests = [record for record in event.requestable if record.endswith(suffixes)]
        self.ledger.ask(requests)
        self._has_asked = bool(requests)
        block = self._turn_block([("MayRequest", record) for record in requests], now)
        self.ticks = self.ticks.ask()
        return [block]

    def _requested(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        block = check_block(facts, Phase.REQUEST)
        self._hear(block)
        self.ticks = self.ticks.hear_request()
        self.transfer.take_requests([fact[1] for fact in block.of("MayRequest")])
        if not self.transfer.is_asked_for_advertised:
            self._position.move(Trigger.NOT_REQUESTED)
            return [self.transfer.send()]
        # What may be sent is looked at once more, at the moment of sending.
        self._position.move(Trigger.REQUESTED)
        return [self._evaluate_at(now)]

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> EndReason:
        """Say how the loop ended."""
        self._position.move(Trigger.LOOP_OVER)
        self.ended = self._how_ended()
        self._pending_before = self.pending
        return self.ended

    def _how_ended(self) -> EndReason:
        roots = self.states.own.root(""), self.states.theirs.root("")
        before, self._previous = self._previous, roots
        stable = not self._depends or before == roots
        rises = self.depends_on_tick and self.ticks.rises
        asked = self._has_asked or self.transfer.is_asked
        if not asked and stable and not rises:
            return EndReason.FIXED_POINT
        limits = self.terms.limits
        if not self.transfer.moved or limits.literal_limits:
            self._idle_loops += 1
        if self._idle_loops >= limits.max_loop_iterations:
            self.ledger.noted[Failure.LOOP_LIMIT] += 1
            return EndReason.LIMIT
        return EndReason.GOES_ON


# -- One side of an exchange, from its start to its end.


_RECONCILING = (State.ADVERTISING, State.WAITING)
"""Where a block of the peer is one of reconciliation, if it is no setup and no tick."""


class Machine:
    """One side of an exchange."""

    def __init__(self, config: MachineConfig) -> None:
        self.config = config
        self._position = Position()
        self._handshake = Handshake(config)
        self._ledger = Ledger()
        self._account = Account(self._ledger)
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
        """The state of the machine."""
        return self._position.state

    @property
    def is_closed(self) -> bool:
        """Whether the exchange is over."""
        return self.state is State.CLOSED

    @property
    def takes_input(self) -> bool:
        """Whether something of the peer would be taken now; else it is to be kept back."""
        if self._last is not None:
            return False
        if self.state is State.TRANSFERRING and self._loops is not None:
            return not self._loops.transfer.is_received
        return self._position.takes_input

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
        return self._ledger.outstanding

    def receive(self, event: Event, now: Tai, steady: Tai | None = None) -> list[Effect]:
        """Take an event; returns what is to be done, in order."""
        if self.is_closed:
            return []
        passed = now if steady is None else steady
        self._account.times.note(self.state, passed)
        if self._last is not None:
            return self._store_last(event, now)
        try:
            self._position.take(event)
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
            return self._end(self._outcome(failure.log_line(), failure))
        return self._fail(failure)

    def lose_peer(self) -> list[Effect]:
        """End because the peer has left while this side was at work."""
        if self.is_closed:
            return []
        if self._loops is not None and self._loops.is_at_rest:
            return self._close(EndReason.PEER_ENDED)
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
                return self._close(EndReason.STOPPED)
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
        self._handshakes += 1
        return [self._handshake.send_setup()]

    def _block(self, event: happened.BlockReceived, now: Tai) -> list[Effect]:
        facts = event.facts
        is_setup = any(fact[0] == "ExchangeOperand" for fact in facts)
        is_tick = is_only_tick(facts)
        is_reconciling = self.state in _RECONCILING and not is_setup and not is_tick
        self.traffic.received(event.size, is_reconciling=is_reconciling)
        if self.state is State.SETUP:
            if self._epoch is not None and not is_setup:
                return []  # a new setup wins: what was sent before it is passed over
            return self._take_setup(facts, now)
        if self.state is State.HELLO:
            return self._take_hello(facts, now)
        loops = self._looping()
        if is_setup and self._epoch is not None and loops.is_at_rest:
            self._position.move(Trigger.SETUP_DUE)
            return [*self._send_setup(), *self._take_setup(facts, now)]
        if self.state is not State.WAITING or is_tick:
            return self._go_on(loops.block(facts, now), now)
        self._has_changed = False
        return loops.answer(facts, now)

    def _take_setup(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        hello = self._handshake.take_setup(facts, now)
        plan = self._handshake.plan
        if self._epoch is not None and plan is not None and plan.id != self._epoch[0].plan_id:
            self._ledger.begin_epoch()
        self._position.move(Trigger.SETUP_READ)
        return [hello]

    def _take_hello(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        executable, terms = self._handshake.take_hello(facts)
        self._reads_clock = executable.reads_clock
        cursor = self._cursor_for(terms)
        self._epoch = terms, cursor
        self._ledger.begin_round()
        self._loops = Loops(
            self.config,
            terms,
            self._ledger,
            self._position,
            depends=self._handshake.depends,
            depends_on_tick=self._handshake.depends_on_tick,
            local=self._local,
            cursor=cursor,
        )
        self._has_changed = False
        known = None if cursor is None else cursor.theirs
        kept = self._handshake.kept_module
        agreed: list[Effect] = [Agree(executable, terms, known)]
        return [*agreed, *([] if kept is None else [kept]), *self._loops.begin(Trigger.AGREED, now)]

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
        if end is EndReason.GOES_ON:
            return [*effects, *loops.begin(Trigger.LOOP_DUE, now)]
        effects = [*effects, *self._keep_cursor(loops)]
        if not self.config.is_open:
            return [*effects, *self._close(end)]
        return [*effects, Report(self._outcome(end.value)), *self._look(now)]

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
            self._position.move(Trigger.SETUP_DUE)
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
        state, loops = self.state, self._loops
        if state in (State.SETUP, State.HELLO):
            return state, self._handshakes
        if self._is_literal and loops is not None and state is not State.WAITING:
            return state.phase, self._handshakes, loops.loops
        if loops is None or not loops.awaits_peer:
            return None
        return state, self._handshakes, loops.turns

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
        if self._loops is not None and self._loops.is_at_rest:
            return self._close(EndReason.PEER_ENDED)
        if self.state is State.SETUP and self._epoch is not None:
            return self._close(EndReason.PEER_ENDED)  # a new setup that nobody answered
        if not self.takes_input and self._loops is not None:
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

    def _close(self, reason: EndReason) -> list[Effect]:
        ended = None if self._loops is None else self._loops.ended
        if ended is not None and ended is not EndReason.GOES_ON:
            reason = ended
        return self._end_after_storing(reason.value)

    def _fail(self, failure: InterlaceFailure) -> list[Effect]:
        return self._end_after_storing(failure.log_line(), failure)

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
        self._position.move(Trigger.OVER)
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
