"""Summaries of partitions as facts: how they are told, and what they say when they come (G44)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.base import b64a
from lace.facts.lines import format_fact
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.questions import CHILDREN
from lace.interlacing.rows import payload_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Advertisement
    from lace.interlacing.partitions import AdvertisementSet

__all__ = [
    "Summary",
    "block_bytes",
    "children_fact",
    "claims_by_partition",
    "partition_fact",
    "read_children",
    "read_partition",
]


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
    """Return claims by the listed partition that they belong to.

    Raises:
        InterlaceFailure: a claim belongs to none.
    """
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
