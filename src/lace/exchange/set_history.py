"""The advertisement sets that a side holds: its own, the peer's, and earlier ones (G44).

What is advertised is frozen for a loop; what evaluations say meanwhile counts from the
next loop on. One's own set under the peer's label shows what the peer has as well, and
sets of earlier loops what has changed since the peer asked last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.exchange.advertisement import digests_of, digests_of_bare, is_bare
from lace.exchange.advertisement_set import AdvertisementSet, payload_of
from lace.exchange.summaries import START_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.exchange.advertisement import Advertisement
    from lace.exchange.capabilities import Cursor
    from lace.exchange.negotiation import Terms


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
    def at_hand(self) -> list[AdvertisementSet]:
        """The states that the peer's claims may be equal to, the likeliest first."""
        made = [] if self.expected is None else [self.expected, self.theirs]
        return made if self.relabelled is None else [*made, self.relabelled]

    @property
    def cursor(self) -> AdvertisementSet | None:
        """The state of the peer to ask for the changes of; None to compare summaries.

        What was sent to the peer is told again as a change. So when something was, what the
        peer has now is rather guessed, which costs nothing if it is right.
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
