"""The advertise phase of a loop: what both sides have is compared, turn by turn (050).

An `Advertising` is one side's, for all loops of an epoch. It makes the blocks of this side's
turns and takes the peer's, until both know what the other advertises.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from lace.interlacing.advertisement import bare_advertisements, claim_bytes
from lace.interlacing.blocks import check_block
from lace.interlacing.effects import Describe
from lace.interlacing.failures import Failure, limit_failure
from lace.interlacing.questions import InquiryLimits
from lace.interlacing.reconcile import Reconciliation
from lace.interlacing.transitions import State
from lace.interlacing.vocabulary import advertise_phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.base.tai import Tai
    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Advertisement
    from lace.interlacing.blocks import Block
    from lace.interlacing.effects import Effect, SendBlock
    from lace.interlacing.events import Described
    from lace.interlacing.negotiation import Terms
    from lace.interlacing.partitions import AdvertisementSet
    from lace.interlacing.states import States

__all__ = ["Advertising", "Turns"]

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
    """The advertise phase of one side.

    Args:
        terms: what was agreed.
        states: what both sides advertise.
    """

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
        """Count claims that become facts; their texts stay in memory until the epoch ends.

        Raises:
            InterlaceFailure: they are longer than this side takes.
        """
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
