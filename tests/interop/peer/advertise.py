"""Advertisement records, their digests, and sets of them as Merkle partitions (050, G43)."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.interop.peer.text import (
    ALPHABET,
    MAX_LINE,
    Fact,
    PeerError,
    digest,
    encode,
    format_fact,
    lines_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.interop.peer.records import Record

__all__ = ["EMPTY", "Advertisement", "States", "advertise", "gather", "merkle_root"]

EMPTY = digest(b"lace-advertisement-empty/v1")
FINGERPRINT = 6
"""Bytes of a child's root that AdvertisementChildren tells."""


@dataclass(frozen=True, slots=True)
class Advertisement:
    """One advertisement record, in its canonical order."""

    id: str
    facts: tuple[Fact, ...]
    digest: bytes

    @property
    def payload(self) -> str:
        """The characters that decide on its partition."""
        return self.id[2 : self.id.rindex(".")]


def _make(facts: Iterable[Fact]) -> Advertisement:
    """Put the facts of one advertisement into canonical order."""
    ordered = sorted(facts, key=lambda fact: (fact[3].encode(), int(fact[4])) if fact[3:] else ())
    raw = lines_of(ordered)
    found = digest(b"lace-advertisement-record/v1", raw)
    return Advertisement(ordered[0][1], tuple(ordered), found)


def advertise(record: Record, source: str, schema: frozenset[str] | None) -> Advertisement:
    """Advertise a record; no schema means every field."""
    facts: list[Fact] = [("Advertised", record.id, source)]
    for name, index, value in record.fields:
        if schema is None or name in schema:
            fact = ("AdvertisedField", record.id, source, name, str(index), value)
            if len(format_fact(fact).encode()) <= MAX_LINE:  # left out, never cut (G60)
                facts.append(fact)
    return _make(facts)


def _is_claim(fact: Fact, source: str) -> bool:
    named = len(fact) == 6 and fact[0] == "AdvertisedField" and fact[2] == source
    return named and re.fullmatch("0|[1-9][0-9]{0,9}", fact[4]) is not None


def gather(
    facts: Iterable[Fact], source: str, schema: frozenset[str] | None
) -> list[Advertisement]:
    """Put the facts of a block together into advertisement records (G42)."""
    found: dict[str, list[Fact]] = {}
    claims: list[Fact] = []
    for fact in facts:
        if fact[:1] + fact[2:] == ("Advertised", source):
            found[fact[1]] = [fact]
        elif _is_claim(fact, source) and (schema is None or fact[3] in schema):
            claims.append(fact)
        else:
            raise PeerError(f"not an advertisement of {source}: {fact}")
    places = {fact[:5] for fact in claims}
    if len(places) != len(claims) or not {fact[1] for fact in claims} <= set(found):
        raise PeerError("a field twice, or without its Advertised")
    for fact in claims:
        found[fact[1]].append(fact)
    return [_make(group) for group in found.values()]


def merkle_root(digests: list[bytes]) -> bytes:
    """The Merkle root of sorted digests."""
    level = [digest(b"lace-advertisement-leaf/v1", each) for each in sorted(digests)]
    if not level:
        return EMPTY
    while len(level) & (len(level) - 1):
        level.append(EMPTY)
    while len(level) > 1:
        level = [
            digest(b"lace-advertisement-node/v1", level[at], level[at + 1])
            for at in range(0, len(level), 2)
        ]
    return level[0]


class States:
    """A set of advertisements, by partition."""

    def __init__(self, advertisements: Iterable[Advertisement] = ()) -> None:
        self.by_id = {each.id: each for each in advertisements}
        self._sorted = sorted(self.by_id.values(), key=lambda each: each.payload)
        self._payloads = [each.payload for each in self._sorted]
        self._summaries: dict[str, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def under(self, prefix: str) -> list[Advertisement]:
        """The advertisements of a partition."""
        first = bisect_left(self._payloads, prefix)
        return self._sorted[first : bisect_left(self._payloads, prefix + "\x7f")]

    def summary(self, prefix: str = "") -> tuple[int, bytes]:
        """Count and root of a partition."""
        if prefix not in self._summaries:
            found = self.under(prefix)
            self._summaries[prefix] = len(found), merkle_root([each.digest for each in found])
        return self._summaries[prefix]

    def partition(self, prefix: str) -> Fact:
        """The line that tells count and root."""
        count, root = self.summary(prefix)
        return ("AdvertisementPartition", prefix, str(count), encode(root))

    def parts(self, prefix: str, deeper: int = 1) -> list[str]:
        """The prefixes below one, so much deeper, that are not empty."""
        length = len(prefix) + deeper
        return sorted({each.payload[:length] for each in self.under(prefix)})

    def fingerprint(self, prefix: str) -> str:
        """The first 48 bits of a root."""
        return encode(self.summary(prefix)[1][:FINGERPRINT])

    def children(self, prefix: str) -> Fact:
        """The line that tells the fingerprints of all 64 children."""
        text = "".join(self.fingerprint(prefix + character) for character in ALPHABET)
        return ("AdvertisementChildren", prefix, text)
