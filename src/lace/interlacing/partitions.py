"""Advertisement sets: the claims of one source by record hash, with counts and roots (050).

A set is a value: a change gives another one, which keeps the roots of the partitions that
the change does not reach. Records are held in the order of the part of their hash that
partitions go by, so a partition is a slice.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.base import b64a
from lace.interlacing.merkle import (
    EMPTY_ROOT,
    Digests,
    as_digests,
    leaves_of,
    order_of,
    root_of_leaves,
    roots_without_one,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["AdvertisementSet", "child_prefixes", "fingerprint_of", "payload_of"]

_Keys: TypeAlias = "npt.NDArray[np.bytes_]"
_FINGERPRINT_BYTES: Final = 6
_BEHIND: Final = b"\x7f"
"""A byte behind all those of a hash."""
_USUAL: Final = 48
"""Characters of a record hash of format H3: `B.`, 43, `.H3`."""
_PAYLOAD: Final = slice(2, 45)
_SUFFIX: Final = slice(45, _USUAL)
_KEY: Final = 47
_KEPT_SHARE: Final = 4
"""A change of at most one in so many records is worth keeping the other roots for."""


def fingerprint_of(root: bytes) -> bytes:
    """Return what is told of a child's root in mode 2: its first 48 bits."""
    return root[:_FINGERPRINT_BYTES]


def payload_of(record: str) -> str:
    """Return the part of a record hash that partitions go by.

    >>> payload_of("B.ab~c.H3")
    'ab~c'
    """
    return record[2 : record.rindex(".")]


def child_prefixes(prefix: str) -> list[str]:
    """Return the prefixes of a partition's children, in the order of the alphabet."""
    return [prefix + character for character in b64a.ALPHABET]


def _keys_of(records: Sequence[str]) -> _Keys:
    """Return records as keys, payload first: `….H3B` for `B.….H3`."""
    joined = "".join(records)
    if len(joined) == _USUAL * len(records) and all(len(each) == _USUAL for each in records):
        rows = np.frombuffer(joined.encode("ascii"), np.uint8).reshape(-1, _USUAL)
        made = np.empty((len(rows), _KEY), np.uint8)
        made[:, :43] = rows[:, _PAYLOAD]
        made[:, 43:46] = rows[:, _SUFFIX]
        made[:, 46] = rows[:, 0]
        return made.reshape(-1).view(f"S{_KEY}")
    return np.array([f"{each[2:]}{each[0]}".encode("ascii") for each in records], "S")


def _records_of(keys: _Keys) -> list[str]:
    texts = keys.astype(str).tolist()
    return [f"{text[-1]}.{text[:-1]}" for text in texts]


def _first(piece: tuple[str, AdvertisementSet]) -> str:
    return piece[0]


def _slices_of(
    pieces: Iterable[tuple[str, AdvertisementSet]],
) -> Iterator[tuple[AdvertisementSet, slice]]:
    """Yield what each piece gives, in the order of the records; inner ones cut outer ones."""
    outer: list[tuple[str, AdvertisementSet, slice]] = []
    for prefix, each in sorted(pieces, key=_first):
        while outer and not prefix.startswith(outer[-1][0]):
            yield outer.pop()[1:]
        if outer:
            around, cut, left = outer.pop()
            hole = cut.span(prefix)
            yield cut, slice(left.start, hole.start)
            outer.append((around, cut, slice(hole.stop, left.stop)))
        outer.append((prefix, each, each.span(prefix)))
    while outer:
        yield outer.pop()[1:]


class AdvertisementSet:
    """The advertised records of one source, under one schema.

    >>> AdvertisementSet().count("")
    0
    """

    __slots__ = ("_digests", "_keys", "_leaves", "_roots")

    def __init__(self) -> None:
        self._keys: _Keys = np.empty(0, f"S{_KEY}")
        self._digests: Digests = as_digests(())
        self._leaves: Digests | None = None
        self._roots: dict[str, bytes] = {"": EMPTY_ROOT}

    @classmethod
    def of(cls, records: Sequence[str], digests: Iterable[bytes]) -> AdvertisementSet:
        """Return the set of some records, each once, with the digests of their advertisements."""
        return cls().changed(records, digests, ())

    @classmethod
    def joined(cls, pieces: Iterable[tuple[str, AdvertisementSet]]) -> AdvertisementSet:
        """Return the set that has, of each of some partitions, what another set has.

        Where one partition lies in another, the inner one counts.
        """
        made = cls()
        chosen = list(_slices_of(pieces))
        if chosen:
            made._keys = np.concatenate([each._keys[found] for each, found in chosen])
            made._digests = np.concatenate([each._digests[found] for each, found in chosen])
            made._leaves = np.concatenate([each._known_leaves()[found] for each, found in chosen])
            made._roots = {}
        return made

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(_records_of(self._keys))

    def __contains__(self, record: object) -> bool:
        return isinstance(record, str) and self.digest(record) is not None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AdvertisementSet)
            and len(self) == len(other)
            and bool((self._keys == other._keys).all())
            and bool((self._digests == other._digests).all())
        )

    __hash__ = None  # type: ignore[assignment] # compared by content, and large

    def digest(self, record: str) -> bytes | None:
        """Return the digest of a record's advertisement; None when it is not advertised."""
        key = _keys_of([record])
        at = int(np.searchsorted(self._keys, key)[0])
        if at == len(self._keys) or self._keys[at] != key[0]:
            return None
        found: bytes = self._digests[at].tobytes()
        return found

    def digests_of(self, records: Sequence[str]) -> list[bytes | None]:
        """Return the digests of some records' advertisements; None for what is not advertised."""
        if not len(self._keys) or not records:
            return [None] * len(records)
        keys = _keys_of(records)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        there = (self._keys[places] == keys).tolist()
        rows = self._digests[places]
        return [
            row.tobytes() if is_there else None for row, is_there in zip(rows, there, strict=True)
        ]

    def has(self, records: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Tell which records are advertised."""
        if not len(self._keys) or not records:
            return np.zeros(len(records), np.bool_)
        keys = _keys_of(records)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: npt.NDArray[np.bool_] = self._keys[at] == keys
        return found

    def changed(
        self, records: Sequence[str], digests: Iterable[bytes], removed: Sequence[str]
    ) -> AdvertisementSet:
        """Return the set after records came, or have another digest, and others went."""
        if not len(records) and not len(removed):
            return self
        come, rows = _keys_of(records), as_digests(digests)
        order = np.argsort(come)
        come, rows = come[order], rows[order]
        touched = np.union1d(come, _keys_of(removed)) if len(removed) else come
        stays = ~np.isin(self._keys, touched)
        kept = self._keys[stays]
        width = max(kept.dtype.itemsize, come.dtype.itemsize)
        places = np.searchsorted(kept, come)
        made = AdvertisementSet()
        made._keys = np.insert(kept.astype(f"S{width}"), places, come)
        made._digests = np.insert(self._digests[stays], places, rows, axis=0)
        if self._leaves is not None:
            leaves = leaves_of(rows)
            made._leaves = np.insert(self._leaves[stays], places, leaves, axis=0)
        made._roots = self._roots_beside(touched)
        return made

    def _roots_beside(self, touched: _Keys) -> dict[str, bytes]:
        """Return the roots of the partitions that have none of these keys."""
        if len(touched) * _KEPT_SHARE > len(self._keys):
            return {}
        depth = max(map(len, self._roots), default=0)
        reached = {
            prefix
            for length in range(depth + 1)
            for prefix in (touched.astype(f"S{length}").astype(str).tolist() if length else [""])
        }
        return {prefix: root for prefix, root in self._roots.items() if prefix not in reached}

    def span(self, prefix: str) -> slice:
        """Return where the records of a partition lie."""
        if not prefix:
            return slice(0, len(self._keys))
        low = prefix.encode("ascii")
        bounds = np.array([low, low + _BEHIND], self._keys.dtype)
        first, last = np.searchsorted(self._keys, bounds).tolist()
        return slice(first, last)

    def count(self, prefix: str) -> int:
        """Return how many records are in a partition."""
        found = self.span(prefix)
        return int(found.stop - found.start)

    def records(self, prefix: str = "") -> list[str]:
        """Return the records of a partition, in the order of their hashes."""
        return _records_of(self._keys[self.span(prefix)])

    def items(self, prefix: str = "") -> tuple[list[str], list[bytes]]:
        """Return the records of a partition, and the digests of their advertisements."""
        found = self.span(prefix)
        rows = self._digests[found]
        return _records_of(self._keys[found]), [row.tobytes() for row in rows]

    def root(self, prefix: str) -> bytes:
        """Return the Merkle root of a partition."""
        made = self._roots.get(prefix)
        return self._root_of(prefix, self.span(prefix)) if made is None else made

    def _known_leaves(self) -> Digests:
        if self._leaves is None:
            self._leaves = leaves_of(self._digests)
        return self._leaves

    def _root_of(self, prefix: str, found: slice) -> bytes:
        made = root_of_leaves(self._digests[found], self._known_leaves()[found])
        self._roots[prefix] = made
        return made

    def children(self, prefix: str) -> list[tuple[int, bytes]]:
        """Return the count and root of each child, in the order of the alphabet."""
        names = child_prefixes(prefix)
        lows = np.array([each.encode("ascii") for each in names], self._keys.dtype)
        bounds = [*np.searchsorted(self._keys, lows).tolist(), self.span(prefix).stop]
        made: list[tuple[int, bytes]] = []
        for name, (first, last) in zip(names, itertools.pairwise(bounds), strict=True):
            root = EMPTY_ROOT if first == last else self._roots.get(name)
            made.append((last - first, root or self._root_of(name, slice(first, last))))
        return made

    def fingerprints(self, prefix: str) -> list[bytes]:
        """Return the fingerprint of each child, in the order of the alphabet."""
        return [fingerprint_of(root) for _, root in self.children(prefix)]

    def without_one(self, prefix: str, fingerprint: bytes) -> tuple[AdvertisementSet, str] | None:
        """Return a partition less the one record without which it has a fingerprint, and that one.

        None when there is no such record.
        """
        found = self.span(prefix)
        digests, leaves = self._digests[found], self._known_leaves()[found]
        if len(digests) < 2:
            return None
        order = order_of(digests)
        for at, root in enumerate(roots_without_one(leaves[order])):
            if fingerprint_of(root) == fingerprint:
                gone = _records_of(self._keys[found][order[at : at + 1]])
                part = AdvertisementSet.joined([(prefix, self)])
                return part.changed([], [], gone), gone[0]
        return None

    def partitions(self, length: int) -> list[str]:
        """Return the prefixes of a length that have records, in order."""
        found: list[str] = np.unique(self._keys.astype(f"S{length}")).astype(str).tolist()
        return found

    def difference(self, other: AdvertisementSet) -> tuple[list[str], list[str]]:
        """Return what came, or has another digest, since the other set; and what went."""
        here = np.isin(self._keys, other._keys, assume_unique=True)
        there = np.isin(other._keys, self._keys, assume_unique=True)
        same = here.copy()
        same[here] = (self._digests[here] == other._digests[there]).all(axis=1)
        return _records_of(self._keys[~same]), _records_of(other._keys[~there])
