"""Advertisement sets: the claims of one source by record hash, with counts and roots (050).

A set is a value: a change gives another one, which keeps the roots of the partitions that
the change does not reach. Records are held in the order of the part of their hash that
partitions go by, so a partition is a slice. Records of other formats are few, if any, and
held apart.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES
from lace.interlacing.merkle import (
    EMPTY_ROOT,
    Digests,
    as_digests,
    known_root_of,
    leaves_of,
    order_of,
    root_of_leaves,
    roots_without_one,
)
from lace.interlacing.other_formats import Others, read_others, write_others
from lace.interlacing.rows import Rows, keys_of, payload_of, records_of
from lace.interlacing.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["AdvertisementSet", "child_prefixes", "fingerprint_of"]

_SIZES: Final = struct.Struct("<QQ")
_FINGERPRINT_BYTES: Final = 6
_MOST_ROOTS: Final = 100_000
"""Roots of partitions that a set keeps; others are computed each time."""
_MOST_KEPT: Final = 1 << 15
"""Records whose leaves and tree are kept for the sets that come of theirs: 3 MiB of hashes."""
_KEPT_SHARE: Final = 4
"""A change of at most one in this many records is worth keeping the other roots for."""


def fingerprint_of(root: bytes) -> bytes:
    """Return what is told of a child's root in mode 2: its first 48 bits."""
    return root[:_FINGERPRINT_BYTES]


def child_prefixes(prefix: str) -> list[str]:
    """Return the prefixes of a partition's children, in the order of the alphabet."""
    return [prefix + character for character in b64a.ALPHABET]


def _place_of(record: str) -> tuple[str, str]:
    return payload_of(record), record


class AdvertisementSet:
    """The advertised records of one source, under one schema.

    >>> AdvertisementSet().count("")
    0
    """

    __slots__ = ("_others", "_roots", "_rows", "_tree")

    def __init__(self) -> None:
        self._rows = Rows.empty()
        self._others = Others()
        self._roots: dict[str, bytes] = {"": EMPTY_ROOT}
        self._tree: Tree | None = None
        """That of this set, or of one that it came of."""

    @classmethod
    def of(cls, records: Sequence[str], digests: Iterable[bytes]) -> AdvertisementSet:
        """Return the set of some records, each once, with the digests of their advertisements."""
        return cls().changed(records, digests, ())

    def to_pieces(self) -> list[bytes | memoryview]:
        """Return the set as bytes, with its root, for `from_bytes`; the large pieces are shared."""
        others = write_others(self._others)
        sizes = _SIZES.pack(len(self._rows), len(others))
        return [sizes, self.root(""), others, *self._rows.to_pieces()]

    @classmethod
    def from_bytes(cls, raw: memoryview) -> AdvertisementSet:
        """Return the set of the bytes that `to_pieces` gave, which it shares.

        Raises:
            ValueError, TypeError: they are no such bytes.
        """
        if len(raw) < _SIZES.size + DIGEST_BYTES:
            raise ValueError("too few bytes for a set")
        count, size = _SIZES.unpack_from(raw)
        first = _SIZES.size + DIGEST_BYTES
        made = cls()
        made._rows = Rows.from_bytes(raw[first + size :], count)
        made._others = read_others(bytes(raw[first : first + size]))
        made._roots = {"": bytes(raw[_SIZES.size : first])}
        return made

    def for_comparing(self) -> AdvertisementSet:
        """Return the same set without what is held to compute roots soon, if that is much."""
        made = AdvertisementSet()
        made._rows, made._others = self._rows, self._others
        made._roots = {"": self.root("")}
        made._tree = self._tree
        if len(self) > _MOST_KEPT:
            made._rows, made._tree = self._rows.without_leaves(), None
        return made

    @classmethod
    def joined(cls, pieces: Iterable[tuple[str, AdvertisementSet]]) -> AdvertisementSet:
        """Return the set that has, of each of some partitions, what another set has.

        Where one partition lies in another, the inner one counts.
        """
        sources = dict(pieces)
        if sources.keys() == {""}:
            return sources[""]  # with the roots that it has
        made = cls()
        made._rows = Rows.of_partitions({each: sources[each]._rows for each in sources})
        longest = max(map(len, sources), default=0)
        others: dict[str, bytes] = {}
        for source in {id(each): each for each in sources.values()}.values():
            for record, digest in source._others.digests.items():
                payload = payload_of(record)
                length = min(len(payload), longest)
                around = (payload[:at] for at in range(length, -1, -1))
                inner = next((each for each in around if each in sources), None)
                if inner is not None and sources[inner] is source:
                    others[record] = digest
        made._others = Others(others)
        if len(made):
            made._roots = {}
        return made

    def __len__(self) -> int:
        return len(self._rows) + len(self._others)

    def __iter__(self) -> Iterator[str]:
        return iter(self.records())

    def __contains__(self, record: object) -> bool:
        return isinstance(record, str) and self.digest(record) is not None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AdvertisementSet)
            and self._others == other._others
            and self._rows == other._rows
        )

    __hash__ = None  # type: ignore[assignment] # compared by content, and large

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that its records take."""
        return self._rows.held_bytes + (0 if self._tree is None else self._tree.held_bytes)

    # -- records -------------------------------------------------------------------------------

    def digest(self, record: str) -> bytes | None:
        """Return the digest of a record's advertisement; None when it is not advertised."""
        return self.digests_of([record])[0]

    def digests_of(self, records: Sequence[str]) -> list[bytes | None]:
        """Return the digests of some records' advertisements; None for what is not advertised."""
        keys, is_usual = keys_of(records)
        places, is_there = self._rows.find(keys)
        rows = self._rows.digests[places[is_there]]
        usual = itertools.compress(records, is_usual.tolist())
        there = itertools.compress(usual, is_there.tolist())
        found = {record: row.tobytes() for record, row in zip(there, rows, strict=True)}
        return [found.get(record) or self._others.get(record) for record in records]

    def has(self, records: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Tell which records are advertised."""
        keys, is_usual = keys_of(records)
        found = np.empty(len(records), np.bool_)
        found[is_usual] = self._rows.find(keys)[1]
        for at in np.flatnonzero(~is_usual).tolist():
            found[at] = records[at] in self._others
        return found

    def changed(
        self, records: Sequence[str], digests: Iterable[bytes], removed: Sequence[str]
    ) -> AdvertisementSet:
        """Return the set after records came, or have another digest, and others went."""
        if not len(records) and not len(removed):
            return self
        made = AdvertisementSet()
        values = list(digests)
        come, is_usual = keys_of(records)
        others = {records[at]: values[at] for at in np.flatnonzero(~is_usual).tolist()}
        if others:
            values = list(itertools.compress(values, is_usual.tolist()))
        made._others = self._others.changed(others, removed)
        made._rows = self._rows.changed(come, as_digests(values), keys_of(removed)[0])
        made._roots = self._roots_beside([*records, *removed])
        made._tree = self._tree if len(made) <= _MOST_KEPT else None
        return made

    def _roots_beside(self, touched: Sequence[str]) -> dict[str, bytes]:
        """Return the roots of the partitions that have none of these records."""
        if len(touched) * _KEPT_SHARE > len(self):
            return {}
        depth = max(map(len, self._roots), default=0)
        if not depth and touched:
            return {}
        reached = {
            payload[:length] for payload in map(payload_of, touched) for length in range(depth + 1)
        }
        return {prefix: root for prefix, root in self._roots.items() if prefix not in reached}

    def difference(self, other: AdvertisementSet) -> tuple[list[str], list[str]]:
        """Return what came, or has another digest, since the other set; and what went."""
        if self is other or self._roots.get("", b"") == other._roots.get(""):
            return [], []
        come, gone = map(records_of, self._rows.differing(other._rows))
        others = self._others.digests
        come += [each for each, value in others.items() if other._others.get(each) != value]
        gone += [each for each in other._others.digests if each not in self._others]
        return come, gone

    # -- partitions ----------------------------------------------------------------------------

    def count(self, prefix: str) -> int:
        """Return how many records are in a partition."""
        found = self._rows.span(prefix)
        return int(found.stop - found.start) + self._others.count(prefix)

    def records(self, prefix: str = "") -> list[str]:
        """Return the records of a partition, in the order of their hashes."""
        usual = records_of(self._rows.keys[self._rows.span(prefix)])
        others = self._others.within(prefix)
        return sorted([*usual, *others], key=_place_of) if others else usual

    def items(self, prefix: str = "") -> tuple[list[str], list[bytes]]:
        """Return the records of a partition, and the digests of their advertisements."""
        found = self._rows.span(prefix)
        others = self._others.within(prefix)
        records = [*records_of(self._rows.keys[found]), *others]
        rows = [row.tobytes() for row in self._rows.digests[found]]
        return records, [*rows, *(self._others.digests[record] for record in others)]

    def partitions(self, length: int) -> list[str]:
        """Return the prefixes of a length, of ten at most, that have records; in order."""
        return sorted({*self._rows.prefixes(length), *self._others.prefixes(length)})

    # -- roots ---------------------------------------------------------------------------------

    def root(self, prefix: str) -> bytes:
        """Return the Merkle root of a partition."""
        made = self._roots.get(prefix)
        if made is not None:
            return made
        if not self.count(prefix):
            return EMPTY_ROOT  # there is no end of partitions without records
        return self._root_of(prefix, self._rows.span(prefix))

    def _root_of(self, prefix: str, found: slice) -> bytes:
        digests = self._digests_in(prefix, found)
        made = known_root_of(digests, lambda: self._compute(prefix, found, digests))
        if len(self._roots) < _MOST_ROOTS or not prefix:
            self._roots[prefix] = made
        return made

    def _compute(self, prefix: str, found: slice, digests: Digests) -> bytes:
        leaves = self._leaves_in(prefix, found)
        if prefix or len(digests) > _MOST_KEPT:
            return root_of_leaves(digests, leaves)
        self._tree = Tree(digests, leaves, self._tree)
        return self._tree.root

    def _digests_in(self, prefix: str, found: slice) -> Digests:
        digests, others = self._rows.digests[found], self._other_digests(prefix)
        return np.concatenate([digests, others]) if len(others) else digests

    def _leaves_in(self, prefix: str, found: slice) -> Digests:
        leaves, others = self._rows.leaves[found], self._other_digests(prefix)
        return np.concatenate([leaves, leaves_of(others)]) if len(others) else leaves

    def _other_digests(self, prefix: str) -> Digests:
        return as_digests(self._others.digests[each] for each in self._others.within(prefix))

    def children(self, prefix: str) -> list[tuple[int, bytes]]:
        """Return the count and root of each child, in the order of the alphabet."""
        names = child_prefixes(prefix)
        bounds = self._rows.bounds(names)
        made: list[tuple[int, bytes]] = []
        for name, (first, last) in zip(names, itertools.pairwise(bounds), strict=True):
            count = last - first + self._others.count(name)
            root = self._roots.get(name) if count else EMPTY_ROOT
            made.append((count, root or self._root_of(name, slice(first, last))))
        return made

    def fingerprints(self, prefix: str) -> list[bytes]:
        """Return the fingerprint of each child, in the order of the alphabet."""
        return [fingerprint_of(root) for _, root in self.children(prefix)]

    def without_one(self, prefix: str, fingerprint: bytes) -> tuple[AdvertisementSet, str] | None:
        """Return a partition less the one record without which it has a fingerprint, and that one.

        None when there is no such record.
        """
        found = self._rows.span(prefix)
        digests, leaves = self._digests_in(prefix, found), self._leaves_in(prefix, found)
        if len(digests) < 2 or self._others.count(prefix):
            return None
        order = order_of(digests)
        for at, root in enumerate(roots_without_one(leaves[order])):
            if fingerprint_of(root) == fingerprint:
                gone = records_of(self._rows.keys[found][order[at : at + 1]])
                part = AdvertisementSet.joined([(prefix, self)])
                return part.changed([], [], gone), gone[0]
        return None
