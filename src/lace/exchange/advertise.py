"""The advertise phase of one side: the sets that it holds, and the turns that compare them (050).

What is advertised is frozen for a loop; what evaluations say meanwhile counts from the
next loop on. One's own set under the peer's label shows what the peer has as well, and
sets of earlier loops what has changed since the peer asked last (G44).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.exchange.advertisement import (
    bare_advertisements,
    claim_bytes,
    digests_of,
    digests_of_bare,
    is_bare,
)
from lace.exchange.advertisement_set import AdvertisementSet, payload_of
from lace.exchange.blocks import advertise_phase, check_block
from lace.exchange.effects import Describe
from lace.exchange.failures import Failure, limit_failure
from lace.exchange.reconcile import Reconciliation
from lace.exchange.summaries import START_LENGTH, InquiryLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.exchange.advertisement import Advertisement
    from lace.exchange.blocks import Block
    from lace.exchange.capabilities import Cursor
    from lace.exchange.events import Described
    from lace.exchange.negotiation import Terms
    from lace.facts.lines import Fact


_FEW_RECORDS: Final = 10_000
"""A set of at most this size is always worth remembering."""
_WORTH_SHARE: Final = 8
"""A larger one while the changes since are fewer than one in this many records."""

_USUAL: Final = ".H3"
"""The suffix of record hashes whose payload is long enough for any partition."""


class States:
    """The advertisements of both sides, as one side knows them.

    `own` is frozen for the loop, `next_own` is as evaluated last; `theirs` is what the peer
    advertised last, if `is_known`; `relabelled` is `next_own` under the peer's label, once
    it was of use; `expected` is `theirs` with what was sent since; `remembered` is the own set
    that the peer knew last, by its root, if that is much like the present one.
    """

    def __init__(
        self, terms: Terms, cursor: Cursor | None = None, *, is_open: bool = False
    ) -> None:
        self._is_open = is_open
        self._source, self._peer_source = terms.source, terms.peer_source
        self.is_bare = is_bare(terms.schema)
        self._least_length = START_LENGTH if terms.mode else 0
        """The characters that a payload has to have to be in a partition; 0 for any (G49)."""
        self.own = AdvertisementSet()
        self.next_own = self.own
        self.theirs = AdvertisementSet() if cursor is None else cursor.theirs
        self.is_known = cursor is not None
        self.kept_claim_bytes = 0 if cursor is None else cursor.claim_bytes
        """The bytes of the texts of claims that were kept."""
        self.expected: AdvertisementSet | None = None
        self._undescribed: list[str] = []
        self.relabelled: AdvertisementSet | None = None
        self.remembered: dict[bytes, AdvertisementSet] = {}
        self._changes = 0
        """Records that came or went since what is advertised was fixed."""
        if cursor is not None:
            self._remember(cursor.ours)

    def take(self, come: Sequence[Advertisement], gone: Sequence[str]) -> None:
        """Take note of how what may be sent has changed."""
        if not come and not gone:
            return
        self._changes += len(come) + len(gone)
        if self._least_length and not all(each.record.endswith(_USUAL) for each in come):
            come = [each for each in come if len(payload_of(each.record)) >= self._least_length]
        records = [each.record for each in come]
        self.next_own = self.next_own.changed(records, self._digests(come, self._source), gone)
        self.own = self.own.for_comparing()  # the leaves are with what is advertised next
        if self.relabelled is not None:
            digests = self._digests(come, self._peer_source)
            self.relabelled = self.relabelled.changed(records, digests, gone)

    def take_kept(self, ours: AdvertisementSet) -> None:
        """Take what may be sent from the cursor: nothing has changed since it was kept."""
        if len(self.next_own):
            raise AssertionError("only the first evaluation can find what was kept")
        self.next_own = ours

    def _digests(self, claims: Sequence[Advertisement], source: str) -> list[bytes]:
        if self.is_bare:
            return digests_of_bare([each.record for each in claims], source)
        return digests_of(claims, source)

    @property
    def has_news(self) -> bool:
        """Whether the peer does not know yet what may be sent now."""
        return self.next_own is not self.own and self.next_own != self.own

    def freeze(self) -> None:
        """Fix what is advertised in a loop."""
        if self.own is not self.next_own and len(self.own):
            self.remembered = {}
            if len(self.own) <= _FEW_RECORDS or self._changes * _WORTH_SHARE < len(self.own):
                self._remember(self.own)
        elif self.own is self.next_own and not self._is_open:
            # The peer knows all of it: only its root is asked for again.
            self.next_own = self.next_own.for_comparing()
        self.own, self._changes = self.next_own, 0

    def expect(self, sent: Sequence[str]) -> None:
        """Take note of what the peer was sent: it is likely to claim that from now on."""
        if not self.is_known or not sent:
            return
        if self.is_bare:
            self._expect(sent, digests_of_bare(sent, self._peer_source))
        elif self.relabelled is not None:
            pairs = zip(sent, self.relabelled.digests_of(sent), strict=True)
            known = {record: digest for record, digest in pairs if digest is not None}
            self._expect(list(known), known.values())
        else:
            self._undescribed += sent

    def _expect(self, records: Sequence[str], digests: Iterable[bytes]) -> None:
        before = self.theirs if self.expected is None else self.expected
        self.expected = before.changed(records, digests, ())
        self.theirs = self.theirs.for_comparing()  # the leaves are with what is expected
        self.expected.root("")  # it is asked for next; until then the peer has its own work

    def undescribed(self) -> list[str]:
        """Return records that the peer was sent and whose claims are to be computed; once."""
        sent, self._undescribed = self._undescribed, []
        here = self.next_own.has(sent).tolist()
        return [record for record, is_here in zip(sent, here, strict=True) if is_here]

    def expect_claims(self, claims: Sequence[Advertisement]) -> None:
        """Take what the peer will claim of records that it was sent."""
        self._expect([each.record for each in claims], self._digests(claims, self._peer_source))

    def learn(self, theirs: AdvertisementSet) -> None:
        """Take what the peer claims now."""
        # What was expected is soon the start of what is expected next, and keeps its leaves.
        is_expected = theirs is self.expected
        self.theirs, self.is_known = theirs if is_expected else theirs.for_comparing(), True
        self.expected = self.relabelled = None  # nobody needs to guess for now

    @property
    def known(self) -> list[AdvertisementSet]:
        """The states that the peer's claims may be equal to, the likeliest first."""
        made = [] if self.expected is None else [self.expected, self.theirs]
        return made if self.relabelled is None else [*made, self.relabelled]

    @property
    def cursor(self) -> AdvertisementSet | None:
        """The state of the peer to ask for the changes of; None to compare summaries.

        A delta lists what was sent to the peer again. So when something was sent, what the peer
        has now is guessed instead, which costs nothing if the guess is right.
        """
        return self.theirs if self.is_known and self.expected is None else None

    def _remember(self, own: AdvertisementSet) -> None:
        """Keep what the peer knows of this side: every loop tells it, so that one is enough."""
        self.remembered = {own.root(""): own.for_comparing()}

    def relabel_bare(self) -> AdvertisementSet:
        """Compute one's own set under the peer's label, where advertisements have no fields."""
        records = self.own.records()
        self.relabelled = AdvertisementSet.of(records, digests_of_bare(records, self._peer_source))
        return self.relabelled

    def relabel(self, claims: Sequence[Advertisement]) -> AdvertisementSet:
        """Compute one's own set under the peer's label, from its advertisements."""
        records = [each.record for each in claims]
        digests = self._digests(claims, self._peer_source)
        self.relabelled = AdvertisementSet.of(records, digests)
        return self.relabelled


# -- The turns of the advertise phase: what both sides have is compared (050).

_BARE_BYTES: Final = 114
"""Bytes of the line of an advertisement without fields, about."""
_FIELD_BYTES: Final = 150
"""Bytes of the line of an advertised field, about."""
_MANY_FIELDS: Final = 8
"""Fields of a record, about, where all are advertised."""


class _Purpose(Enum):
    """What own records are described for."""

    BLOCK = "the next block"
    RELABELLED = "one's own set under the peer's label"
    EXPECTED = "what the peer was sent"


Due: TypeAlias = "Describe | list[Fact] | None"
"""What the phase needs next: advertisements, or the facts of a turn to be sent; None at its end."""


class Advertising:
    """The advertise phase of one side, for all loops of an epoch."""

    def __init__(self, terms: Terms, states: States) -> None:
        self._terms, self._states = terms, states
        self._reconciliation: Reconciliation[AdvertisementSet] | None = None
        self._summaries = 0
        self._purpose = _Purpose.BLOCK
        self.claim_bytes = 0
        """The bytes of the texts of all claims that were taken so far; none is subtracted."""

    @property
    def _at(self) -> Reconciliation[AdvertisementSet]:
        """The comparison that is under way."""
        if self._reconciliation is None:
            raise AssertionError("a loop is under way")
        return self._reconciliation

    def forget(self) -> None:
        """Forget what was compared: what was listed need not be held while records move."""
        if self._terms.limits.literal_limits and self._reconciliation is not None:
            self._summaries = self._reconciliation.searcher.queue.lines
        self._reconciliation = None

    def expect(self) -> Describe | None:
        """Return the need for descriptions of records that the peer was sent, if they lack."""
        sent = self._states.undescribed()
        if not sent:
            return None
        return self._need(_Purpose.EXPECTED, sent, self._terms.peer_source)

    def take_expected(self, event: Described) -> bool:
        """Take these descriptions; tells whether it was they that were needed."""
        if self._purpose is not _Purpose.EXPECTED:
            return False
        self._states.expect_claims(event.advertisements)
        return True

    def open(self) -> Due:
        """Begin to compare what this side advertises from now on."""
        terms, limits, states = self._terms, self._terms.limits, self._states
        states.freeze()
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
            states=states.known,
            cursor=states.cursor,
            remembered=states.remembered,
            advertisement_bytes=_BARE_BYTES + _FIELD_BYTES * fields,
        )
        return self._turn()

    def _turn(self) -> Due:
        """Return the next turn, or the need for the advertisements in it."""
        wanted = self._at.wanted()
        if self._states.is_bare:
            return self._at.block(dict(zip(wanted, bare_advertisements(wanted), strict=True)))
        if wanted:
            return self._need(_Purpose.BLOCK, wanted, self._terms.source)
        return self._at.block({})

    def _need(self, purpose: _Purpose, records: Sequence[str], source: str) -> Describe:
        self._purpose = purpose
        return Describe(tuple(records), source)

    def take_described(self, event: Described) -> Due:
        """Take descriptions for the next turn, or of all records under the peer's label."""
        if self._purpose is _Purpose.RELABELLED:
            self._at.begin(self._states.relabel(event.advertisements))
            return self._turn()
        return self._at.block({each.record: each for each in event.advertisements})

    def read(self, facts: tuple[Fact, ...]) -> Block:
        """Check the block of a turn of the peer."""
        phase = advertise_phase(self._at.mode, self._at.turn)
        longest = self._terms.limits.max_value_bytes  # they become facts that rules read (G03)
        return check_block(facts, phase, max_value_bytes=longest)

    def take(self, block: Block) -> Due:
        """Take a turn of the peer."""
        at = self._at
        is_opening = at.turn == 0
        at.receive([fact for fact in block if fact[0] != "TickReady"])
        if at.searcher.total > self._terms.limits.max_advertised_records:
            raise limit_failure(
                Failure.ADVERTISEMENT_LIMIT,
                f"the peer advertises {at.searcher.total:,} records",
                limit="max_advertised_records",
                allowed=self._terms.limits.max_advertised_records,
            )
        self._check_bytes(at.searcher.listed_bytes)
        if at.is_over:
            return None
        if is_opening:
            if at.needs_relabelled and self._states.relabelled is None:
                return self._relabel()
            at.begin()
        return self._turn()

    def _relabel(self) -> Due:
        """Compute one's own set under the peer's label: what the peer has as well shows then."""
        states = self._states
        if not states.is_bare:
            records = states.own.records()
            return self._need(_Purpose.RELABELLED, records, self._terms.peer_source)
        self._at.begin(states.relabel_bare())
        return self._turn()

    def _check_bytes(self, size: int) -> None:
        allowed = self._terms.limits.max_advertised_bytes
        if size > allowed:
            raise limit_failure(
                Failure.ADVERTISEMENT_BYTES,
                f"the peer's advertisements have more than {allowed:,} bytes",
                limit="max_advertised_bytes",
                allowed=allowed,
            )

    def conclude(self) -> tuple[tuple[Advertisement, ...], tuple[str, ...], tuple[str, ...]]:
        """End the phase: the peer advertises what was found.

        Returns:
            What it newly claims; of which records it now claims what this side does; and
            which records it claims no more.
        """
        at, theirs = self._at, self._states.theirs
        claims = tuple(at.listed.values())
        relabelled: list[str] = []
        removed: list[str] = []
        if len(theirs) or not at.is_all_listed:  # else at first contact: it is all that was listed
            added, removed = at.result.difference(theirs)
            claims = tuple(at.listed[record] for record in added if record in at.listed)
            relabelled = [record for record in added if record not in at.listed]
        is_all = len(claims) == len(at.listed)
        # The texts of claims become facts, which stay in memory until the epoch ends.
        self.claim_bytes += at.searcher.listed_bytes if is_all else claim_bytes(claims)
        self._check_bytes(self.claim_bytes)
        self._states.learn(at.result)
        self.forget()
        return claims, tuple(relabelled), tuple(removed)
