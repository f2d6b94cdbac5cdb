"""Two sides that reconcile synthetic sets in this process, without any store."""

from __future__ import annotations

import random
from functools import cached_property
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.exchange.advertisement import Advertisement, digests_of_bare
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.blocks import format_block
from lace.exchange.reconcile import Reconciliation
from lace.exchange.summaries import InquiryLimits
from lace.policy.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.facts.lines import Fact

__all__ = ["Side", "World", "bare_world", "records", "run_sides", "world_of_fields"]

SOURCES: Final = "V." + "A" * 42 + "0.H3", "V." + "B" * 42 + "0.H3"
LIMITS: Final = InquiryLimits(listed=100_000, summaries=16_384, depth=12, block_bytes=64 * 2**20)
FIELDS: Final = (
    ("App", "0", "talk"),
    ("Container-Name", "0", "forum/public"),
    ("Created-TAI", "0", "1773000000.000000000"),
    ("Group", "0", "public"),
)


def records(source: random.Random, count: int) -> list[str]:
    """Return some record hashes."""
    raw = source.randbytes(32 * count)
    return [f"B.{b64a.encode(raw[at : at + 32])}.H3" for at in range(0, len(raw), 32)]


class World:
    """What two sides have in common, under the labels of both."""

    def __init__(self, size: int, fields: tuple[tuple[str, str, str], ...]) -> None:
        self._fields = fields
        self.schema = Schema(names=frozenset(name for name, _, _ in fields))
        self._records = records(random.Random(size), size)
        self.common = tuple(
            AdvertisementSet.of(self._records, self.digests(self._records, source))
            for source in SOURCES
        )
        for each in self.common:
            each.root("")  # leaves are kept, so that they are hashed once for all cases

    def __len__(self) -> int:
        return len(self._records)

    def claim(self, record: str) -> Advertisement:
        """Return the advertisement of a record."""
        return Advertisement(record, self._fields)

    def digests(self, names: Sequence[str], source: str) -> list[bytes]:
        """Return the digests of the advertisements of records."""
        if not self._fields:
            return digests_of_bare(names, source)
        return [self.claim(name).digest(source) for name in names]

    @cached_property
    def advertisement_bytes(self) -> int:
        """The bytes of an advertisement as lines."""
        return len(format_block(self.claim(self._records[0]).facts(SOURCES[0]))) - 1


def bare_world(size: int) -> World:
    """Return a world whose advertisements have no fields."""
    return World(size, ())


def world_of_fields(size: int) -> World:
    """Return a world whose advertisements have four fields."""
    return World(size, FIELDS)


class Side:
    """One side; with a cursor it knows what was common, and that the other side knew it."""

    def __init__(
        self, world: World, index: int, more: list[str], *, mode: int, has_cursor: bool
    ) -> None:
        self._world, self._more = world, more
        self._labels = SOURCES[index], SOURCES[1 - index]
        self._index = index
        before, theirs = world.common[index], world.common[1 - index]
        self.own = before.changed(more, world.digests(more, self._labels[0]), ())
        self.at = Reconciliation(
            mode,
            self.own,
            self._labels,
            world.schema,
            LIMITS,
            cursor=theirs if has_cursor else None,
            remembered={before.root(""): before} if has_cursor else None,
            advertisement_bytes=world.advertisement_bytes,
        )

    def block(self) -> list[Fact]:
        """Return the block of the present turn."""
        return self.at.block({record: self._world.claim(record) for record in self.at.wanted()})

    def receive(self, facts: list[Fact]) -> None:
        """Take the other side's block."""
        turn = self.at.turn
        self.at.receive(facts)
        if turn == 0:
            self.at.begin(self._relabelled() if self.at.needs_relabelled else None)

    def _relabelled(self) -> AdvertisementSet:
        digests = self._world.digests(self._more, self._labels[1])
        return self._world.common[1 - self._index].changed(self._more, digests, ())


def run_sides(first: Side, second: Side) -> tuple[int, int]:
    """Let two sides reconcile; returns the turns that say something, and the bytes of all."""
    turns = size = 0
    while not first.at.is_over:
        blocks = first.block(), second.block()
        size += sum(len(format_block(block)) for block in blocks)
        turns += any(blocks)
        first.receive(blocks[1])
        second.receive(blocks[0])
    if first.at.result != second.own or second.at.result != first.own:
        raise RuntimeError("two sides do not know each other after reconciliation")
    return turns, size
