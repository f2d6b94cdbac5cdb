"""Two reconciliations that talk to each other, for tests: sets of hashes, without any store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lace.base import b64a
from lace.exchange.advertisement import Advertisement
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.blocks import advertise_phase, check_block
from lace.exchange.reconcile import Reconciliation
from lace.exchange.summaries import InquiryLimits, block_bytes
from lace.policy.schema import Schema

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from lace.facts.lines import Fact

SOURCES = "V." + "A" * 42 + "0.H3", "V." + "B" * 42 + "0.H3"
WIDE = InquiryLimits(listed=100_000, summaries=16_384, depth=12, block_bytes=64 * 2**20)
MOST_TURNS = 3_000


def some_record(rnd: random.Random, lead: str = "") -> str:
    """A record hash; its payload begins with some characters."""
    text = b64a.encode(rnd.randbytes(32))
    return f"{rnd.choice('BPS')}.{lead}{text[len(lead) :]}.H3"


def claims_of(records: Iterable[str], schema: Schema, tag: str = "u") -> dict[str, Advertisement]:
    """An advertisement for each record, with a field if the schema has one."""
    fields = (("Group", "0", tag),) if "Group" in schema else ()
    return {record: Advertisement(record, fields) for record in records}


def set_of(claims: dict[str, Advertisement], source: str) -> AdvertisementSet:
    """The set of some claims under a source."""
    return AdvertisementSet.of(list(claims), [each.digest(source) for each in claims.values()])


class Searching(Reconciliation[AdvertisementSet]):
    """A side that searches by itself whatever the other does."""

    @property
    def _is_follower(self) -> bool:
        return False


class Unhelpful(Searching):
    """A side that does not tell who follows it where the other lacks something."""

    def _watch(self, questions: Sequence[tuple[str, str]]) -> None:
        """Look at nothing."""


@dataclass
class Party:
    """One side of a reconciliation."""

    index: int
    mode: int
    claims: dict[str, Advertisement]
    schema: Schema = field(default_factory=Schema)
    limits: InquiryLimits = WIDE
    cursor: AdvertisementSet | None = None
    remembered: tuple[AdvertisementSet, ...] = ()
    compares: bool = True
    """Whether it compares with its own set under the other's label."""
    kind: type[Reconciliation[AdvertisementSet]] = Reconciliation
    at: Reconciliation[AdvertisementSet] = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.other = SOURCES[self.index], SOURCES[1 - self.index]
        self.own = set_of(self.claims, self.source)
        self.at = self.kind(
            self.mode,
            self.own,
            (self.source, self.other),
            self.schema,
            self.limits,
            cursor=self.cursor,
            remembered={each.root(""): each for each in self.remembered},
        )

    def block(self) -> list[Fact]:
        """The next block; only what is wanted is described."""
        return self.at.block({record: self.claims[record] for record in self.at.wanted()})

    def receive(self, facts: list[Fact]) -> None:
        """Take a block of the other side, as a machine does."""
        turn = self.at.turn
        # Turn 0 of mode 1 always fits into the least block that may be negotiated.
        least = 2**20 if turn == 0 else 2_000
        assert block_bytes(facts) + 64 <= max(self.limits.block_bytes, least)
        self.at.receive(list(check_block(facts, advertise_phase(self.mode, turn))))
        if turn == 0 and self.mode:
            compares = self.compares and self.at.needs_relabelled
            self.at.begin(set_of(self.claims, self.other) if compares else None)


def reconcile(
    a: Party, b: Party, bend: Callable[[int, list[Fact]], list[Fact]] = lambda _turn, facts: facts
) -> tuple[int, int]:
    """Let two parties reconcile; returns turns and bytes. `bend` changes what b sends."""
    size = 0
    for turn in range(MOST_TURNS):
        ours, theirs = a.block(), b.block()
        size += block_bytes(ours) + block_bytes(theirs)
        a.receive(bend(turn, theirs))
        b.receive(ours)
        assert a.at.is_over == b.at.is_over
        if a.at.is_over:
            return turn + 1, size
    raise AssertionError("it does not come to an end")


def check(a: Party, b: Party) -> None:
    """Each knows exactly what the other advertises, and has it from somewhere."""
    for one, other in ((a, b), (b, a)):
        assert one.at.result == other.own
        for record, claim in one.at.listed.items():
            if record in other.own:
                assert claim.digest(other.source) == other.own.digest(record)
        known = set(one.claims) if one.compares else set()
        known |= set(one.cursor or ())
        assert set(other.own) <= known | set(one.at.listed)
