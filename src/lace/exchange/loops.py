"""The loops of one epoch: advertise, request, transfer, until nothing more is to be said (050).

A `Loops` belongs to one side and one plan. It takes what concerns loops and gives effects;
setup, hello, waiting and the end are the machine's.

Apart from `machine`, which knows phases; this knows what happens in a loop.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from lace.exchange import events as happened
from lace.exchange.advertisement import bare_advertisements, claim_bytes
from lace.exchange.blocks import Phase, advertise_phase, check_block, is_only_tick
from lace.exchange.effects import Describe, Effect, Evaluate, SendBlock
from lace.exchange.failures import Failure, InterlaceFailure, limit_failure
from lace.exchange.reconcile import Reconciliation
from lace.exchange.set_history import States
from lace.exchange.summaries import InquiryLimits
from lace.exchange.ticks import LocalTime, start_ticks
from lace.exchange.transfer import Transfer
from lace.exchange.transitions import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.base.tai import Tai
    from lace.exchange.advertisement import Advertisement
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.exchange.blocks import Block
    from lace.exchange.capabilities import Cursor
    from lace.exchange.events import Described
    from lace.exchange.negotiation import Terms
    from lace.exchange.transfer import Ledger
    from lace.facts.lines import Fact


# -- The advertise phase of a loop: what both sides have is compared, turn by turn (050).
#
# An `Advertising` is one side's, for all loops of an epoch. It makes the blocks of this side's
# turns and takes the peer's, until both know what the other advertises.

_BARE_BYTES: Final = 114
_FIELD_BYTES: Final = 150
"""Bytes of an advertised field's line, about."""
_MANY_FIELDS: Final = 8
"""Fields of a record, about, where all are advertised."""


class Turns(Protocol):
    """The loop whose turns these are; it is given each time, since it holds what is here."""

    step: State

    def turn_block(self, facts: Sequence[Fact], now: Tai) -> SendBlock:
        """Return the block of a turn."""
        ...

    def hear_turn(self, block: Block) -> None:
        """Take a block of the peer that is legal, before its facts count."""
        ...


class _Purpose(Enum):
    """What own records are described for."""

    BLOCK = "the next block"
    RELABELLED = "one's own set under the peer's label"
    EXPECTED = "what the peer was sent"


class Advertising:
    """The advertise phase of one side."""

    def __init__(self, terms: Terms, states: States) -> None:
        self._terms, self._states = terms, states
        self._reconciliation: Reconciliation | None = None
        self._summaries = 0
        self._described: dict[str, Advertisement] = {}
        self._purpose = _Purpose.BLOCK
        self._held: tuple[Fact, ...] | None = None
        self.claim_bytes = 0
        """The bytes of the texts of all claims that were taken so far; none is subtracted."""
        self.is_over = False
        """Whether both sides know what the other advertises in this loop."""

    @property
    def at(self) -> Reconciliation:
        """The comparison that is under way."""
        if self._reconciliation is None:
            raise AssertionError("a loop is under way")
        return self._reconciliation

    def forget(self) -> None:
        """Forget what was compared: what was listed need not be held while records move."""
        if self._terms.limits.literal_limits and self._reconciliation is not None:
            self._summaries = self._reconciliation.inquiry.summaries
        self._reconciliation = None

    def hold(self, facts: tuple[Fact, ...]) -> None:
        """Keep the peer's turn 0 until this side has sent its own."""
        self._held = facts

    def expect(self, loop: Turns) -> list[Effect]:
        """Ask for descriptions of records that the peer was sent, where they lack."""
        sent = self._states.undescribed()
        if not sent:
            return []
        return self._ask_for(loop, _Purpose.EXPECTED, sent, self._terms.peer_source)

    def take_expected(self, event: Described) -> bool:
        """Take these descriptions; tells whether it was they that were asked for."""
        if self._purpose is not _Purpose.EXPECTED:
            return False
        self._states.expect_claims(event.advertisements)
        return True

    def open(self, loop: Turns, now: Tai) -> list[Effect]:
        """Begin to compare what this side advertises from now on."""
        terms, limits, states = self._terms, self._terms.limits, self._states
        states.freeze()
        self.is_over = False
        fields = len(terms.schema.names) or (0 if states.is_bare else _MANY_FIELDS)
        self._reconciliation = Reconciliation(
            terms.mode,
            states.own,
            (terms.source, terms.peer_source),
            terms.schema,
            InquiryLimits(
                listed=limits.max_advertisement_records_listed,
                summaries=limits.max_partition_summaries,
                taken=self._summaries,
                depth=limits.max_narrowing_depth,
                block_bytes=limits.max_fact_block_size,
            ),
            states=states.at_hand,
            cursor=states.cursor,
            remembered=states.remembered,
            advertisement_bytes=_BARE_BYTES + _FIELD_BYTES * fields,
        )
        return self._describe(loop, now)

    def _describe(self, loop: Turns, now: Tai) -> list[Effect]:
        """Make the advertisements that the next block needs, then send it."""
        wanted = self.at.wanted()
        if self._states.is_bare:
            self._described = dict(zip(wanted, bare_advertisements(wanted), strict=True))
        elif wanted:
            return self._ask_for(loop, _Purpose.BLOCK, wanted, self._terms.source)
        return self._send_turn(loop, now)

    def take_described(self, loop: Turns, event: Described, now: Tai) -> list[Effect]:
        """Take descriptions for the next block, or of all under the peer's label."""
        if self._purpose is _Purpose.RELABELLED:
            return self._next_turn(loop, self._states.relabel(event.advertisements), now)
        self._described = {each.record: each for each in event.advertisements}
        return self._send_turn(loop, now)

    def _send_turn(self, loop: Turns, now: Tai) -> list[Effect]:
        loop.step = State.ADVERTISING
        facts = self.at.block(self._described)
        self._described = {}
        effects: list[Effect] = [replace(loop.turn_block(facts, now), is_reconciling=True)]
        if self._held is not None:
            held, self._held = self._held, None
            effects += self.take(loop, held, now)
        return effects

    def take(self, loop: Turns, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        """Take a turn of the peer."""
        at = self.at
        turn = at.turn
        longest = self._terms.limits.max_value_bytes  # they become facts that rules read (G03)
        block = check_block(facts, advertise_phase(at.mode, turn), max_value_bytes=longest)
        loop.hear_turn(block)
        at.receive([fact for fact in block if fact[0] != "TickReady"])
        self._check_announced(at.announced)
        self._check_bytes(at.inquiry.listed_bytes)
        if at.is_over:
            self.is_over = True
            return []
        if turn == 0 and at.needs_relabelled and self._states.relabelled is None:
            return self._relabel(loop, now)
        return self._next_turn(loop, None, now) if turn == 0 else self._describe(loop, now)

    def _check_announced(self, count: int) -> None:
        if count > self._terms.limits.max_advertised_records:
            raise limit_failure(
                Failure.ADVERTISEMENT_LIMIT,
                f"the peer advertises {count:,} records",
                limit="max_advertised_records",
                allowed=self._terms.limits.max_advertised_records,
            )

    def count(self, claims: Sequence[Advertisement]) -> None:
        """Count claims that become facts; their texts stay in memory until the epoch ends."""
        inquiry = self.at.inquiry
        is_all = len(claims) == len(inquiry.listed)
        self.claim_bytes += inquiry.listed_bytes if is_all else claim_bytes(claims)
        self._check_bytes(self.claim_bytes)

    def _check_bytes(self, size: int) -> None:
        allowed = self._terms.limits.max_advertised_bytes
        if size > allowed:
            raise limit_failure(
                Failure.ADVERTISEMENT_BYTES,
                f"the peer's advertisements have more than {allowed:,} bytes",
                limit="max_advertised_bytes",
                allowed=allowed,
            )

    def _relabel(self, loop: Turns, now: Tai) -> list[Effect]:
        """Compute one's own set under the peer's label: what the peer has as well shows then."""
        if self._states.is_bare:
            return self._next_turn(loop, self._states.relabel_bare(), now)
        records = self._states.own.records()
        return self._ask_for(loop, _Purpose.RELABELLED, records, self._terms.peer_source)

    def _ask_for(
        self, loop: Turns, purpose: _Purpose, records: Sequence[str], source: str
    ) -> list[Effect]:
        self._purpose = purpose
        loop.step = State.DESCRIBING
        return [Describe(tuple(records), source)]

    def _next_turn(
        self, loop: Turns, relabelled: AdvertisementSet | None, now: Tai
    ) -> list[Effect]:
        self.at.begin(relabelled)
        return self._describe(loop, now)


_REQUEST_BYTES: Final = 64
_MOST_REQUESTS: Final = 200_000


class LoopEnd(Enum):
    """How a loop ended."""

    GOES_ON = "goes on"
    FIXED_POINT = "fixed point"
    LIMIT = "loop limit"


class Loops:
    """The loops of one epoch."""

    def __init__(
        self,
        terms: Terms,
        ledger: Ledger,
        *,
        depends: bool,
        depends_on_tick: bool,
        local: LocalTime,
        is_open: bool,
        cursor: Cursor | None = None,
        store_differing: bool = False,
        max_line_bytes: int | None = None,
    ) -> None:
        self.terms = terms
        self.ledger = ledger
        self.step = State.WAITING
        self.ticks = start_ticks(terms.start_tai, terms.tick_interval)
        self.local = local
        self.depends_on_tick = depends_on_tick
        self._depends = depends
        self._is_open = is_open
        self.states = States(terms, cursor, is_open=is_open)
        self.transfer = Transfer(
            terms,
            ledger,
            self.states,
            store_differing=store_differing,
            max_line_bytes=max_line_bytes,
        )
        self.ended: LoopEnd | None = None
        """How the last loop ended; None while another is under way, and before the first."""
        self._previous: tuple[bytes, bytes] | None = None
        """The roots of what both sides advertised in the loop before."""
        self._advertising = Advertising(terms, self.states)
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
        return self.step in (State.ADVERTISING, State.REQUESTING) or (
            self.step is State.TRANSFERRING and not self.transfer.is_received
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way, or only a loop that one side began and no side answered."""
        return self.step is State.WAITING or self._is_begun

    @property
    def is_over(self) -> bool:
        """Whether the loop is over."""
        return self.step is State.TRANSFERRING and self.transfer.is_over

    @property
    def is_settled(self) -> bool:
        """Whether the last evaluation found what is advertised, and nothing to ask for or skip."""
        is_known = not self.states.has_news and not self.pending
        return self.ended is LoopEnd.FIXED_POINT and is_known and not self.ledger.excluded

    @property
    def has_news(self) -> bool:
        """Whether an evaluation found, too late for the loop that ended, what the peer lacks.

        After the loop limit nothing counts as found: policies that never settle would not end.
        """
        return self.ended is LoopEnd.FIXED_POINT and self.states.has_news

    # -- the beginning -------------------------------------------------------------------------

    def begin_epoch(self, now: Tai) -> list[Effect]:
        """Begin the first loop after a hello."""
        self._begin_round()
        return self._begin(now)

    def begin_next(self, now: Tai) -> list[Effect]:
        """Begin the next loop of a round."""
        return self._begin(now)

    def begin_again(self, now: Tai, *, tentative: bool = False) -> list[Effect]:
        """Begin a round after waiting; a tentative one only if there is something new here."""
        self._is_begun, self._is_tentative = True, tentative
        return self._begin(now)

    def answer(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        """Begin a round because the peer began one; `facts` are its turn 0."""
        self._advertising.hold(facts)
        return self.begin_again(now)

    def _begin(self, now: Tai) -> list[Effect]:
        self.step = State.EVALUATING
        self._advertising.forget()
        self.ticks = self.ticks.begin_loop()
        return [self._evaluate_at(now)]

    def _evaluate_at(self, now: Tai) -> Evaluate:
        """Return the question what may be sent, by this side's clock as it is now."""
        self.local = self.local.at(now)
        return Evaluate(self.ticks.tick, self.local.tai, excluded=self.ledger.excluded)

    def _begin_round(self) -> None:
        """Begin to count loops and bytes again."""
        self.ledger.begin_round()
        self.transfer.begin_round()
        self._idle_loops = 0

    def drop(self) -> None:
        """Give up a loop that nobody answered."""
        self.step = State.WAITING
        self._advertising.forget()
        self._is_begun = False

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
        if self.step is State.CHECKING:
            return self._transfer()
        self.pending = event.pending
        if self.step is State.COMPARING:
            return self._request(event, now)
        is_tentative, self._is_tentative = self._is_tentative, False
        # What the peer has deferred so far does not count: whatever is stored here would then
        # start a loop that such a peer sees, hidden records too.
        is_more = self.pending > self._pending_before
        self._pending_before = self.pending
        if is_tentative and not self.states.has_news and not is_more:
            self.drop()
            return []
        return self._open_loop(now)

    # -- advertise -----------------------------------------------------------------------------

    def _open_loop(self, now: Tai) -> list[Effect]:
        asked = self._advertising.expect(self)
        if asked:
            return asked
        if self._is_begun:
            self._begin_round()
        self.ended = None
        self.loops += 1
        return self._go_on(self._advertising.open(self, now))

    def _go_on(self, effects: list[Effect]) -> list[Effect]:
        """Go on with the next phase once both sides know what the other advertises."""
        return [*effects, *self._compare()] if self._advertising.is_over else effects

    def hear_turn(self, block: Block) -> None:
        """Take the tick of a turn's block; with it both sides are at the loop."""
        self.hear(block)
        self.has_heard = True
        self._is_begun = False

    def _take_described(self, event: happened.Described, now: Tai) -> list[Effect]:
        if self._advertising.take_expected(event):
            return self._open_loop(now)
        return self._go_on(self._advertising.take_described(self, event, now))

    def turn_block(self, facts: Sequence[Fact], now: Tai) -> SendBlock:
        """Return a step's block; with a tick that was reached, unless the step is empty."""
        self.turns += 1
        due = self.ticks.due(now) if self._is_open and facts else None
        if due is None:
            return SendBlock(tuple(facts))
        self.ticks = self.ticks.announce(due)
        return SendBlock((*facts, ("TickReady", str(due))))

    def hear(self, block: Block) -> None:
        """Take the tick of a block."""
        if block.tick is not None:
            self.ticks = self.ticks.hear(block.tick)

    def block(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        """Take a block of the peer."""
        if is_only_tick(facts) and not self._is_in_batch:
            self.hear(check_block(facts, Phase.TICK))
            return []
        if self.step is State.ADVERTISING:
            return self._go_on(self._advertising.take(self, facts, now))
        if self.step is State.REQUESTING:
            return self._requested(facts, now)
        raise InterlaceFailure(Failure.MALFORMED_BLOCK, "facts inside a batch", rule="G36")

    @property
    def _is_in_batch(self) -> bool:
        return self.step is State.TRANSFERRING and self.transfer.is_begun

    # -- request -------------------------------------------------------------------------------

    def _compare(self) -> list[Effect]:
        """Evaluate what may be requested of what the peer advertises now."""
        states = self.states
        found, listed = self._advertising.at.result, self._advertising.at.listed
        is_all_listed = self._advertising.at.is_all_listed
        claims, relabelled, removed = self._news_of(found, listed, is_all_listed=is_all_listed)
        self._advertising.count(claims)
        states.learn(found)
        self.ledger.see(found)
        self._advertising.forget()
        self.step = State.COMPARING
        room = self.terms.limits.max_fact_block_size // _REQUEST_BYTES // 2
        return [
            Evaluate(
                self.ticks.tick,
                self.local.tai,
                added=claims,
                relabelled=relabelled,
                removed=removed,
                excluded=self.ledger.excluded,
                most_requests=min(_MOST_REQUESTS, room),
            )
        ]

    def _news_of(
        self,
        found: AdvertisementSet,
        listed: Mapping[str, Advertisement],
        *,
        is_all_listed: bool,
    ) -> tuple[tuple[Advertisement, ...], tuple[str, ...], tuple[str, ...]]:
        """Return what the peer newly claims; of what, as this side does; and what no more."""
        if is_all_listed and not len(self.states.theirs):
            return tuple(listed.values()), (), ()  # first contact: it is all that was listed
        added, removed = found.difference(self.states.theirs)
        claims = tuple(listed[record] for record in added if record in listed)
        relabelled = tuple(record for record in added if record not in listed)
        return claims, relabelled, tuple(removed)

    def _request(self, event: happened.EvaluationDone, now: Tai) -> list[Effect]:
        suffixes = tuple(f".{each}" for each in self.terms.formats)
        requests = [record for record in event.requestable if record.endswith(suffixes)]
        self.ledger.ask(requests)
        self._has_asked = bool(requests)
        self.step = State.REQUESTING
        block = self.turn_block([("MayRequest", record) for record in requests], now)
        self.ticks = self.ticks.ask()
        return [block]

    def _requested(self, facts: tuple[Fact, ...], now: Tai) -> list[Effect]:
        block = check_block(facts, Phase.REQUEST)
        self.hear(block)
        self.ticks = self.ticks.hear_request()
        self.transfer.take_requests([fact[1] for fact in block.of("MayRequest")])
        if not self.transfer.is_asked_for_advertised:
            return self._transfer()
        # What may be sent is looked at once more, at the moment of sending.
        self.step = State.CHECKING
        return [self._evaluate_at(now)]

    def _transfer(self) -> list[Effect]:
        self.step = State.TRANSFERRING
        return [self.transfer.send()]

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> LoopEnd:
        """Say how the loop ended."""
        self.step = State.WAITING
        self.ended = self._how_ended()
        self._pending_before = self.pending
        return self.ended

    def _how_ended(self) -> LoopEnd:
        roots = self.states.own.root(""), self.states.theirs.root("")
        before, self._previous = self._previous, roots
        stable = not self._depends or before == roots
        rises = self.depends_on_tick and self.ticks.rises
        asked = self._has_asked or self.transfer.is_asked
        if not asked and stable and not rises:
            return LoopEnd.FIXED_POINT
        limits = self.terms.limits
        if not self.transfer.moved or limits.literal_limits:
            self._idle_loops += 1
        if self._idle_loops >= limits.max_loop_iterations:
            self.ledger.noted[Failure.LOOP_LIMIT] += 1
            return LoopEnd.LIMIT
        return LoopEnd.GOES_ON
