"""Rows of an advertisement set: record digests in order, and the digest of each claim (050).

A row's key is the digest of the record and the letter of its type. Base64-Ascend keeps the
order of bytes, so the records whose hashes begin with some characters lie together. Rows
are values: a change copies them, and hashes nothing that was hashed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES
from lace.interlacing.merkle import Digests, as_digests, leaves_of
from lace.record.hash_rows import keys_of_hashes, texts_of_digests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Keys", "Rows", "keys_of", "order_of_keys", "payload_of", "records_of"]

Keys: TypeAlias = "npt.NDArray[np.bytes_]"
_KEY_BYTES: Final = DIGEST_BYTES + 1
_KEY_TYPE: Final = f"S{_KEY_BYTES}"
_DIGEST_TYPE: Final = f"V{DIGEST_BYTES}"
_PAYLOAD: Final = 43
_FIRST, _LAST = b64a.ALPHABET[0], b64a.ALPHABET[-1]
_FEW: Final = 64
"""Changes are few when there are this many rows for each."""
_AT_ONCE: Final = 1 << 16
"""Rows that are compared together: more would take memory, and no less time."""
_LAST_TYPE: Final = b"\x7f"
"""A byte behind the letters of all types."""


def payload_of(record: str) -> str:
    """Return the part of a record hash that partitions go by.

    >>> payload_of("B.ab~c.H3")
    'ab~c'
    """
    return record[2 : record.rindex(".")]


def keys_of(records: Sequence[str]) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """Return the keys of the records whose hashes have the format that rows are made for.

    Returns:
        The keys, and which records they belong to.
    """
    rows, is_usual = keys_of_hashes(records)
    made = np.empty((len(rows), _KEY_BYTES), np.uint8)
    made[:, :DIGEST_BYTES] = rows[:, 1:]
    made[:, DIGEST_BYTES] = rows[:, 0]
    return made.reshape(-1).view(_KEY_TYPE), is_usual


def records_of(keys: Keys) -> list[str]:
    """Return the record hashes of keys."""
    rows = _bytes_of(keys)
    return texts_of_digests(rows[:, DIGEST_BYTES], rows[:, :DIGEST_BYTES])


def _bytes_of(keys: Keys) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(keys).view(np.uint8).reshape(-1, _KEY_BYTES)


def _words_of(keys: Keys) -> npt.NDArray[np.uint64]:
    """Return the first 64 bits of each key."""
    words = np.ascontiguousarray(_bytes_of(keys)[:, :8]).view(">u8")
    return words.reshape(-1).astype(np.uint64)


def order_of_keys(keys: Keys) -> npt.NDArray[np.intp]:
    """Return the places of keys in their order."""
    words = _words_of(keys)
    order = np.argsort(words)
    ordered = words[order]
    is_clear = len(ordered) < 2 or bool((ordered[1:] != ordered[:-1]).all())
    return order if is_clear else np.argsort(keys)


class Rows:
    """Keys in order, each once, with the digest and the leaf of each."""

    __slots__ = ("_leaves", "digests", "keys")

    def __init__(self, keys: Keys, digests: Digests, leaves: Digests | None = None) -> None:
        self.keys = keys
        self.digests = digests
        self._leaves = leaves

    @classmethod
    def of(cls, keys: Keys, digests: Digests) -> Rows:
        """Return the rows of keys in any order."""
        order = order_of_keys(keys)
        return cls(keys[order], digests[order])

    @classmethod
    def empty(cls) -> Rows:
        """Return no rows."""
        return cls(np.empty(0, _KEY_TYPE), as_digests(()))

    @classmethod
    def joined(cls, parts: Iterable[tuple[Rows, slice]]) -> Rows:
        """Return some rows behind others."""
        chosen = list(parts)
        if not chosen:
            return cls.empty()
        # Where no root had to be computed of any of them, none may have to be of all.
        has_leaves = any(each._leaves is not None for each, _found in chosen)
        return cls(
            np.concatenate([each.keys[found] for each, found in chosen]),
            np.concatenate([each.digests[found] for each, found in chosen]),
            np.concatenate([each.leaves[found] for each, found in chosen]) if has_leaves else None,
        )

    @classmethod
    def of_partitions(cls, sources: Mapping[str, Rows]) -> Rows:
        """Return, of each of some partitions, the rows that are given for it.

        Where one partition lies in another, the inner one counts.
        """
        return cls.joined(_slices_of(sources))

    def __len__(self) -> int:
        return len(self.keys)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Rows)
            and len(self) == len(other)
            and bool((self.keys == other.keys).all())
            and bool((self.digests == other.digests).all())
        )

    __hash__ = None  # type: ignore[assignment] # compared by content, and large

    @property
    def leaves(self) -> Digests:
        """The leaf of each digest."""
        if self._leaves is None:
            self._leaves = leaves_of(self.digests)
        return self._leaves

    def to_pieces(self) -> tuple[memoryview, memoryview]:
        """Return keys and digests as bytes, without copying them."""
        if not len(self):
            return memoryview(b""), memoryview(b"")
        return (
            _bytes_of(self.keys).reshape(-1).data,
            np.ascontiguousarray(self.digests).reshape(-1).data,
        )

    @classmethod
    def from_bytes(cls, raw: memoryview, count: int) -> Rows:
        """Return the rows of this many keys, and as many digests behind them.

        Raises:
            ValueError: there are not just as many, or keys are not in order or of no type.
        """
        if len(raw) != count * (_KEY_BYTES + DIGEST_BYTES):
            raise ValueError("another number of rows")
        keys = np.frombuffer(raw, _KEY_TYPE, count)
        if not bool((keys[1:] > keys[:-1]).all()):
            raise ValueError("rows out of order")
        letters = _bytes_of(keys)[:, DIGEST_BYTES]
        if not bool(((letters >= ord("A")) & (letters <= ord("Z"))).all()):
            raise ValueError("a row of no type of record")
        digests = np.frombuffer(raw, np.uint8, offset=count * _KEY_BYTES)
        return cls(keys, digests.reshape(-1, DIGEST_BYTES))

    def without_leaves(self) -> Rows:
        """Return the rows as they are for comparing alone."""
        return Rows(self.keys, self.digests)

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that the rows take."""
        leaves = 0 if self._leaves is None else self._leaves.nbytes
        return self.keys.nbytes + self.digests.nbytes + leaves

    def find(self, keys: Keys) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Return where keys are or would be, and which are there."""
        places = np.searchsorted(self.keys, keys)
        if not len(self):
            return places, np.zeros(len(keys), np.bool_)
        return places, self.keys[np.minimum(places, len(self) - 1)] == keys

    def changed(self, come: Keys, digests: Digests, gone: Keys) -> Rows:
        """Return the rows after some came, or have another digest, and others went."""
        new = Rows.of(come, digests)
        if not len(self):
            return new
        if self._leaves is not None:
            new._leaves = leaves_of(new.digests)
        if not len(gone) and len(new) and bool(new.keys[0] > self.keys[-1]):
            # As it is while a peer sends what it has by hash, some of it in each loop.
            return Rows.joined((each, slice(None)) for each in (self, new))
        if (len(new) + len(gone)) * _FEW > len(self):
            return self._merged(new, gone)
        return self._patched(new, gone)

    def _merged(self, new: Rows, gone: Keys) -> Rows:
        """Return the rows with many changes: all are put in their places at once."""
        stays = np.ones(len(self), np.bool_)
        places, is_there = self.find(new.keys)
        stays[places[is_there]] = False
        if len(gone):
            lost, is_lost = self.find(gone)
            stays[lost[is_lost]] = False
        every = bool(stays.all())
        if not every:  # fewer lie before each
            places = np.concatenate([[0], np.cumsum(stays)])[places]
        is_new = np.zeros(len(stays) - int((~stays).sum()) + len(new), np.bool_)
        is_new[places + np.arange(len(new))] = True
        is_old = ~is_new

        def joined(old: npt.NDArray[Any], more: npt.NDArray[Any]) -> npt.NDArray[Any]:
            made = np.empty(len(is_new), old.dtype)
            made[is_new], made[is_old] = more, old if every else old[stays]
            return made

        def joined_digests(old: Digests, more: Digests) -> Digests:
            # As one value each they are moved four times as fast as byte by byte.
            made = joined(*(each.reshape(-1).view(_DIGEST_TYPE) for each in (old, more)))
            return made.view(np.uint8).reshape(-1, DIGEST_BYTES)

        leaves = None if self._leaves is None else joined_digests(self._leaves, new.leaves)
        digests = joined_digests(self.digests, new.digests)
        return Rows(joined(self.keys, new.keys), digests, leaves)

    def _patched(self, new: Rows, gone: Keys) -> Rows:
        """Return the rows with few changes: whatever lies between them is copied as it is."""
        places, is_there = self.find(new.keys)
        lost, is_lost = self.find(gone)
        stops = np.concatenate([places, lost[is_lost]])
        starts = np.concatenate([places + is_there, lost[is_lost] + 1])
        order = np.argsort(stops, kind="stable").tolist()
        parts: list[tuple[Rows, slice]] = []
        start = 0
        for at, stop, behind in zip(order, stops[order], starts[order], strict=True):
            parts.append((self, slice(start, stop)))
            if at < len(new):
                parts.append((new, slice(at, at + 1)))
            start = max(start, int(behind))
        parts.append((self, slice(start, len(self))))
        made = Rows(
            np.concatenate([each.keys[found] for each, found in parts]),
            np.concatenate([each.digests[found] for each, found in parts]),
        )
        if self._leaves is not None:
            made._leaves = np.concatenate([each.leaves[found] for each, found in parts])
        return made

    def differing(self, other: Rows) -> tuple[Keys, Keys]:
        """Return the keys that are new or have another digest since other rows; and what went."""
        same, is_common = np.zeros(len(self), np.bool_), np.zeros(len(other), np.bool_)
        for start in range(0, len(self), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            places, is_there = other.find(self.keys[part])
            found = places[is_there]
            is_common[found] = True
            equal = self.digests[part][is_there] == other.digests[found]
            same[part][is_there] = equal.all(axis=1)
        return self.keys[~same], other.keys[~is_common]

    def prefixes(self, length: int) -> list[str]:
        """Return what payloads begin with: texts of a length of ten at most, in order."""
        values = np.unique(_words_of(self.keys) >> np.uint64(64 - 6 * length)).tolist()
        places = [6 * at for at in reversed(range(length))]
        return ["".join(b64a.ALPHABET[value >> at & 63] for at in places) for value in values]

    def span(self, prefix: str) -> slice:
        """Return where the records lie whose payload begins with some characters."""
        first, last = self.bounds([prefix])
        return slice(first, last)

    def bounds(self, prefixes: Sequence[str]) -> list[int]:
        """Return where partitions that follow one another begin, and where the last one ends."""
        ends = np.array([*map(_lowest, prefixes), _behind(prefixes[-1])], _KEY_TYPE)
        found: list[int] = self.keys.searchsorted(ends).tolist()
        return found


def _lowest(prefix: str) -> bytes:
    """Return a key at or before all those of a partition."""
    found = b64a.decode_canonical(prefix.ljust(_PAYLOAD + 1, _FIRST).encode("ascii"))
    # A whole payload with fill bits is that of no record: it lies behind the one without.
    return found[:DIGEST_BYTES] + (_LAST_TYPE if found[DIGEST_BYTES] else b"")


def _behind(prefix: str) -> bytes:
    """Return a key behind all those of a partition."""
    found = b64a.decode_canonical(prefix.ljust(_PAYLOAD + 1, _LAST).encode("ascii"))
    return found[:DIGEST_BYTES] + _LAST_TYPE


def _slices_of(sources: Mapping[str, Rows]) -> Iterator[tuple[Rows, slice]]:
    """Yield the rows that each partition gives, in order; inner ones cut outer ones."""
    outer: list[tuple[str, Rows, slice]] = []
    for prefix in sorted(sources):
        while outer and not prefix.startswith(outer[-1][0]):
            yield outer.pop()[1:]
        if outer:
            around, cut, left = outer.pop()
            hole = cut.span(prefix)
            yield cut, slice(left.start, hole.start)
            outer.append((around, cut, slice(hole.stop, left.stop)))
        outer.append((prefix, sources[prefix], sources[prefix].span(prefix)))
    while outer:
        yield outer.pop()[1:]
