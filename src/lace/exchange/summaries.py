"""What reconciliation sees of a set, its summaries as facts, and the cost of questions (G44)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self

from lace.base import b64a
from lace.exchange.advertisement_set import child_prefixes, fingerprint_of, payload_of
from lace.exchange.failures import Failure, InterlaceFailure
from lace.facts.lines import format_fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.exchange.advertisement import Advertisement
    from lace.facts.lines import Fact


class ClaimSet(Protocol):
    """A set of advertised records with the digests of their claims, as reconciliation sees it.

    A partition is the records whose hashes begin with some characters, its prefix; "" is the
    whole set. A set is a value: a change gives another one.
    """

    def count(self, prefix: str) -> int:
        """Return how many records are in a partition."""

    def root(self, prefix: str) -> bytes:
        """Return the Merkle root of a partition."""

    def children(self, prefix: str) -> Sequence[tuple[int, bytes]]:
        """Return the count and root of each child, in the order of the alphabet."""

    def records(self, prefix: str) -> list[str]:
        """Return the records of a partition, in the order of their hashes."""

    def difference(self, other: Self) -> tuple[list[str], list[str]]:
        """Return what came, or has another digest, since the other set; and what went."""

    def changed(
        self, records: Sequence[str], digests: Iterable[bytes], removed: Sequence[str]
    ) -> Self:
        """Return the set after records came, or have another digest, and others went."""

    @classmethod
    def joined(cls, pieces: Iterable[tuple[str, Self]]) -> Self:
        """Return the set that has, of each of some partitions, what another set has."""

    def without_one(self, prefix: str, fingerprint: bytes) -> tuple[Self, str] | None:
        """Return a partition less the one record without which it has a fingerprint, and that one.

        None when there is no such record.
        """


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


@dataclass(frozen=True, slots=True, order=True)
class Summary:
    """The count and root of a partition."""

    count: int
    root: bytes

    def fact(self, prefix: str) -> Fact:
        """Return the fact that announces this of a partition."""
        return "AdvertisementPartition", prefix, str(self.count), b64a.encode(self.root)


def summary_of(own: ClaimSet, prefix: str) -> Summary:
    """Return the summary of a partition."""
    return Summary(own.count(prefix), own.root(prefix))


def summaries_of(own: ClaimSet, length: int) -> dict[str, Summary]:
    """Return the summaries of the partitions with prefixes of a length that have records."""
    parents = [""]
    for _ in range(1, length):
        children = (child for parent in parents for child in child_prefixes(parent))
        parents = [child for child in children if own.count(child)]
    return {
        child: Summary(count, root)
        for parent in parents
        for child, (count, root) in zip(child_prefixes(parent), own.children(parent), strict=True)
        if count
    }


def partition_fact(own: ClaimSet, prefix: str) -> Fact:
    """Return the fact that announces a partition of a set."""
    return summary_of(own, prefix).fact(prefix)


def read_partition(fact: Fact) -> tuple[str, Summary]:
    """Return the prefix of a summary, and what it says."""
    return fact[1], Summary(int(fact[2]), b64a.decode(fact[3]))


def children_fact(own: ClaimSet, prefix: str) -> Fact:
    """Return the fingerprints of a partition's children."""
    together = b"".join(fingerprint_of(root) for _, root in own.children(prefix))
    return "AdvertisementChildren", prefix, b64a.encode(together)


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
