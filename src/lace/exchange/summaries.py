"""Summaries of partitions as facts, and the questions about those that differ (G44)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.exchange.advertisement_set import payload_of
from lace.exchange.failures import Failure, InterlaceFailure
from lace.facts.lines import format_fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.exchange.advertisement import Advertisement
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.facts.lines import Fact


# -- What to ask of a partition that differs: its records, or what it is divided into (G44).
#
# The choice is by expected bytes. How many records of a partition differ is judged by how
# many of the partitions of its size do. Limits bound both.

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
    """Tell whether to ask for the records of a partition rather than to narrow it."""
    if known == 0 or count <= 1:
        return True
    touched = CHILDREN * -math.expm1(expected * math.log1p(-1 / CHILDREN))
    narrowing = costs.children + touched * costs.listing(count / CHILDREN)
    return costs.listing(count) <= narrowing


def start_length(mode: int) -> int:
    """Return how many characters the prefixes that a mode begins with have."""
    return START_LENGTH if mode == 1 else 0


@dataclass(frozen=True, slots=True)
class Summary:
    """What was announced of a partition."""

    count: int
    root: bytes


def partition_fact(own: AdvertisementSet, prefix: str) -> Fact:
    """Return the summary of a partition."""
    root = b64a.encode(own.root(prefix))
    return "AdvertisementPartition", prefix, str(own.count(prefix)), root


def read_partition(fact: Fact) -> tuple[str, Summary]:
    """Return the prefix of a summary, and what it says."""
    return fact[1], Summary(int(fact[2]), b64a.decode(fact[3]))


def children_fact(own: AdvertisementSet, prefix: str) -> Fact:
    """Return the fingerprints of a partition's children."""
    return "AdvertisementChildren", prefix, b64a.encode(b"".join(own.fingerprints(prefix)))


def read_children(fact: Fact) -> list[bytes]:
    """Return the fingerprints that a fact tells, in the order of the alphabet."""
    together = b64a.decode(fact[2])
    size = len(together) // CHILDREN
    return [together[at : at + size] for at in range(0, len(together), size)]


def block_bytes(facts: Iterable[Fact]) -> int:
    """Return how many bytes facts take as lines."""
    made = list(facts)
    together = "".join(itertools.chain.from_iterable(made))
    if together.isascii() and "'" not in together and "\\" not in together:
        # As nearly always nothing is to be escaped: only quotes, commas and brackets come to it.
        bare = sum(len(fact) == 1 for fact in made)
        return len(together) + 3 * sum(map(len, made)) - len(made) + bare
    return sum(len(format_fact(fact).encode("utf-8")) + 1 for fact in made)


def claims_by_partition(
    claims: Mapping[str, Advertisement], prefixes: Iterable[str]
) -> dict[str, dict[str, Advertisement]]:
    """Return claims by the listed partition that they belong to."""
    made: dict[str, dict[str, Advertisement]] = {prefix: {} for prefix in prefixes}
    if made.keys() == {""}:
        return {"": dict(claims)}
    lengths = sorted({len(prefix) for prefix in made})
    for record, claim in claims.items():
        payload = payload_of(record)
        for length in lengths:
            if payload[:length] in made:
                made[payload[:length]][record] = claim
                break
        else:
            problem = f"nobody asked for the advertisement of {record}"
            if lengths and len(payload) < lengths[-1]:
                problem = f"{record} is too short for partitions; mode 0 alone has such hashes"
            raise InterlaceFailure(Failure.MALFORMED_BLOCK, problem, rule="G44")
    return made
