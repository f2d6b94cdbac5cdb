"""What to ask of a partition that differs: its records, or what it is divided into (G44).

The choice is by expected bytes. Where little is known, a differing partition is taken to
differ in few records; where all its siblings differ, in many. Limits bound both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["CHILDREN", "LINE_BYTES", "Costs", "InquiryLimits", "is_listing_cheaper"]

CHILDREN: Final = 64
"""Children of a partition."""
LINE_BYTES: Final = 90
"""Bytes of a partition's line, or of a question and an answer's head, about."""
_PACKED: Final = 560
"""Bytes of a line with the fingerprints of all children, about."""

_TICK_BYTES: Final = 64
"""Bytes that are kept free for a tick's line and the end of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InquiryLimits:
    """What bounds the questions and answers of one loop.

    A block holds answers, questions, and perhaps a tick: each has its part.
    """

    listed: int
    summaries: int
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
    """What answers cost in bytes: one advertisement record, and the children of a partition."""

    advertisement: int
    children: int

    @classmethod
    def of_mode(cls, mode: int, advertisement: int) -> Costs:
        """Return the costs of a mode of reconciliation."""
        return cls(advertisement, _PACKED if mode == 2 else CHILDREN * LINE_BYTES)


def is_listing_cheaper(count: float, costs: Costs, *, known: int, differing: float) -> bool:
    """Tell whether to ask for the records of a partition rather than to narrow it.

    Args:
        count: how many records it has, about.
        costs: what answers cost.
        known: how many records of it some state at hand has; with none, all are new.
        differing: which share of its siblings differs.
    """
    if known == 0 or count <= 1:
        return True
    listing = count * costs.advertisement
    share = min(differing, 1 - 1 / CHILDREN / 8)
    expected = max(1.0, -math.log1p(-share))  # differences in one such partition
    touched = CHILDREN * -math.expm1(expected * math.log1p(-1 / CHILDREN))
    narrowing = costs.children + touched * (LINE_BYTES + count / CHILDREN * costs.advertisement)
    return listing <= narrowing
