"""What to ask of a partition that differs: its records, or what it is divided into (G44).

The choice is by expected bytes. How many records of a partition differ is judged by how
many of the partitions of its size do. Limits bound both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "CHILDREN",
    "LINE_BYTES",
    "LIST",
    "NARROW",
    "START_LENGTH",
    "Costs",
    "InquiryLimits",
    "Shares",
    "is_listing_cheaper",
    "start_length",
]

LIST: Final = "ListAdvertisementPartition"
NARROW: Final = "NarrowAdvertisementPartition"
START_LENGTH: Final = 2
"""Characters of the prefixes that mode 1 begins with; a shorter payload is in no partition."""
CHILDREN: Final = 64
"""Children of a partition."""
LINE_BYTES: Final = 90
"""Bytes of a partition's line in mode 1, about."""
_LISTING: Final = 115
"""Bytes of the question for a list and of the head of its answer, about."""
_PACKED: Final = 580
"""Bytes of a line with the fingerprints of all children and of the question, about."""

_TICK_BYTES: Final = 64
"""Bytes that are kept free for a tick's line and the end of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InquiryLimits:
    """What bounds the questions and answers of one loop.

    A block holds answers, questions, and perhaps a tick: each has its part.
    """

    listed: int
    summaries: int
    taken: int = 0
    """Summaries that count already when the loop begins."""
    depth: int
    block_bytes: int

    @property
    def listing_bytes(self) -> int:
        """The bytes of a full listing."""
        return self.block_bytes - _TICK_BYTES

    @property
    def answer_bytes(self) -> int:
        """The bytes of the answers in one block."""
        return self.block_bytes - self.question_bytes - _TICK_BYTES

    @property
    def question_bytes(self) -> int:
        """The bytes of the questions in one block."""
        return self.block_bytes // 4


@dataclass(frozen=True, slots=True)
class Costs:
    """What answers cost in bytes: one advertisement record, and the children of a partition.

    `listings` says how often a list is paid: twice where the peer asks for the same one.
    """

    advertisement: int
    children: int
    listings: int = 1

    @classmethod
    def of_mode(cls, mode: int, advertisement: int, *, listings: int = 1) -> Costs:
        """Return the costs of a mode of reconciliation."""
        children = _PACKED if mode == 2 else CHILDREN * LINE_BYTES
        return cls(advertisement, children, listings)

    def listing(self, count: float) -> float:
        """Return what it costs to list this many records."""
        return self.listings * (_LISTING + count * self.advertisement)


@dataclass(frozen=True, slots=True)
class Shares:
    """How many partitions were compared, and how many of them differ, by length of prefix."""

    _compared: dict[int, int] = field(default_factory=dict)
    _differing: dict[int, int] = field(default_factory=dict)

    def note(self, length: int, compared: int, differing: int) -> None:
        """Note what a comparison of partitions has shown."""
        self._compared[length] = self._compared.get(length, 0) + compared
        self._differing[length] = self._differing.get(length, 0) + differing

    def expected(self, length: int) -> float:
        """Return how many records differ in a partition that differs, about."""
        compared, differing = self._compared.get(length, 0), self._differing.get(length, 0)
        if not differing:
            return 1.0
        share = min(differing / compared, 1 - 0.5 / compared)
        return -math.log1p(-share) / share


def is_listing_cheaper(count: float, costs: Costs, *, known: int, expected: float) -> bool:
    """Tell whether to ask for the records of a partition rather than to narrow it.

    Args:
        count: how many records it has, about.
        costs: what answers cost.
        known: how many records of it some known state has; with none, all are new.
        expected: how many of its records differ, about.
    """
    if known == 0 or count <= 1:
        return True
    touched = CHILDREN * -math.expm1(expected * math.log1p(-1 / CHILDREN))
    narrowing = costs.children + touched * costs.listing(count / CHILDREN)
    return costs.listing(count) <= narrowing


def start_length(mode: int) -> int:
    """Return how many characters the prefixes that a mode begins with have."""
    return START_LENGTH if mode == 1 else 0
