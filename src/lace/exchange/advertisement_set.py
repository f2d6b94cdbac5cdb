"""Advertisement sets: the claims of one source by record hash, with counts and roots (050).

A set is a value: a change gives another one, which keeps the roots of the partitions that
the change does not reach. Records are held in the order of the part of their hash that
partitions go by, so a partition is a slice. Records of other formats are few, if any, and
held apart.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES
from lace.errors import RecordError
from lace.exchange.merkle import (
    EMPTY_ROOT,
    Digests,
    Tree,
    as_digests,
    leaves_of,
    order_of,
    root_of_leaves,
    roots_without_one,
)
from lace.record.hash_rows import keys_of_hashes, texts_of_digests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


# -- Rows of an advertisement set: record digests in order, and the digest of each claim (050).
#
# A row's key is the digest of the record and the letter of its type. Base64-Ascend keeps the
# order of bytes, so the records whose hashes begin with some characters lie together. Rows
# are values: a change copies them, and hashes nothing that was hashed before.

Keys: TypeAlias = "npt.NDArray[np.bytes_]"
_KEY_BYTES: Final = DIGEST_BYTES + 1
_KEY_TYPE: Final = f"S{_KEY_BYTES}"
_DIGEST_TYPE: Final = f"V{DIGEST_BYTES}"
_PAYLOAD: Final = 43
_FIRST, _LAST = b64a.ALPHABET[0], b64a.ALPHABET[-1]
_AT_ONCE: Final = 1 << 16
"""Rows that are compared together: more would take memory, and no less time."""
_LAST_TYPE: Final = b"\x7f"
"""A byte greater than the letters of all types."""


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
        """Return parts of rows, one after the other."""
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
        """Return the rows of this many keys, followed by as many digests."""
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
        stays = np.ones(len(self), np.bool_)
        places, is_there = self.find(new.keys)
        lost, is_lost = self.find(gone)
        stays[places[is_there]] = stays[lost[is_lost]] = False
        before = np.concatenate([[0], np.cumsum(stays)])  # how many stay before each place
        is_new = np.zeros(int(before[-1]) + len(new), np.bool_)
        is_new[before[places] + np.arange(len(new))] = True

        def merged(old: npt.NDArray[Any], more: npt.NDArray[Any]) -> npt.NDArray[Any]:
            made = np.empty(len(is_new), old.dtype)
            made[is_new], made[~is_new] = more, old[stays]
            return made

        def merged_digests(old: Digests, more: Digests) -> Digests:
            # As one value each they are moved four times as fast as byte by byte.
            made = merged(*(each.reshape(-1).view(_DIGEST_TYPE) for each in (old, more)))
            return made.view(np.uint8).reshape(-1, DIGEST_BYTES)

        leaves = None if self._leaves is None else merged_digests(self._leaves, new.leaves)
        digests = merged_digests(self.digests, new.digests)
        return Rows(merged(self.keys, new.keys), digests, leaves)

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

    def span(self, prefix: str) -> slice:
        """Return where the records lie whose payload begins with some characters."""
        first, last = self.bounds([prefix])
        return slice(first, last)

    def bounds(self, prefixes: Sequence[str]) -> list[int]:
        """Return where partitions that follow one another begin, and where the last one ends."""
        ends = np.array([*map(_lowest, prefixes), _highest(prefixes[-1])], _KEY_TYPE)
        found: list[int] = self.keys.searchsorted(ends).tolist()
        return found


def _lowest(prefix: str) -> bytes:
    """Return a key at or before all those of a partition."""
    found = b64a.decode_canonical(prefix.ljust(_PAYLOAD + 1, _FIRST).encode("ascii"))
    # A whole payload with fill bits is that of no record: it comes after the one without.
    return found[:DIGEST_BYTES] + (_LAST_TYPE if found[DIGEST_BYTES] else b"")


def _highest(prefix: str) -> bytes:
    """Return a key after all those of a partition."""
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


# -- Records of other formats in an advertisement set: held apart from those that rows hold (G49).
#
# They are few as a rule, but a peer may claim as many as its limits allow. So they are in the
# order of the part of their hash that partitions go by, and a partition is found by bisection.

_OTHER: Final = re.compile(rf"[A-Z]\.[{b64a.ALPHABET}]+\.[0-9A-Za-z]+")
_LAST_CHARACTER: Final = "\x7f"
"""A character after all those of a payload."""


class Others:
    """Records of other formats with the digests of their advertisements; a value."""

    __slots__ = ("_digests", "_payloads", "_records")

    def __init__(self, digests: Mapping[str, bytes] | None = None) -> None:
        ordered = sorted((payload_of(record), record) for record in digests or ())
        self._payloads = [payload for payload, _record in ordered]
        self._records = [record for _payload, record in ordered]
        self._digests = {record: (digests or {})[record] for _payload, record in ordered}

    def __len__(self) -> int:
        return len(self._digests)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Others) and self._digests == other._digests

    __hash__ = None  # type: ignore[assignment] # compared by content, and may be large

    def __contains__(self, record: object) -> bool:
        return record in self._digests

    @property
    def digests(self) -> Mapping[str, bytes]:
        """The digest of each record's advertisement, in the order of their places."""
        return self._digests

    def get(self, record: str) -> bytes | None:
        """Return the digest of a record's advertisement; None when it is not here."""
        return self._digests.get(record)

    def changed(self, come: Mapping[str, bytes], gone: Iterable[str]) -> Others:
        """Return the records after some came, or have another digest, and others went."""
        left = {record for record in gone if record in self._digests}
        if not come and not left:
            return self
        kept = {each: value for each, value in self._digests.items() if each not in left}
        return Others({**kept, **come})

    def _span(self, prefix: str) -> tuple[int, int]:
        """Return where the records of a partition begin, and where they end."""
        first = bisect_left(self._payloads, prefix)
        return first, bisect_left(self._payloads, prefix + _LAST_CHARACTER, first)

    def count(self, prefix: str) -> int:
        """Return how many records are in a partition."""
        first, last = self._span(prefix)
        return last - first

    def within(self, prefix: str) -> list[str]:
        """Return the records of a partition, in order."""
        return self._records[slice(*self._span(prefix))]


def write_others(others: Others) -> bytes:
    """Return records of other formats, with their digests, as bytes for `read_others`."""
    texts = {record: b64a.encode(digest) for record, digest in others.digests.items()}
    return json.dumps(texts).encode("ascii")


def read_others(raw: bytes) -> Others:
    """Return the records of other formats that bytes name, with their digests, in order."""
    try:
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise TypeError("records of other formats are a table")
        made = {record: b64a.decode(each) for record, each in found.items()}
    except (RecordError, RecursionError) as error:
        raise ValueError("no digests of records") from error
    if keys_of(list(made))[1].any():
        raise ValueError("a record of the usual format among others")
    for record, digest in made.items():
        if not _OTHER.fullmatch(record) or len(digest) != DIGEST_BYTES:
            raise ValueError("no digest of a record of another format")
    return Others(made)


_SIZES: Final = struct.Struct("<QQ")
_FINGERPRINT_BYTES: Final = 6
_MOST_ROOTS: Final = 100_000
"""Roots of partitions that a set keeps; others are computed each time."""
_MOST_KEPT: Final = 1 << 15
"""Records whose leaves and tree are kept for the sets that come of theirs: 3 MiB of hashes."""
_KEPT_SHARE: Final = 4
"""A change of at most one in this many records is worth keeping the other roots for."""


def fingerprint_of(root: bytes) -> bytes:
    """Return the fingerprint of a root, which mode 2 sends: its first 48 bits."""
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
        """Return the set of the bytes that `to_pieces` gave, which it shares."""
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
            made._rows, made._tree = Rows(self._rows.keys, self._rows.digests), None
        return made

    @classmethod
    def joined(cls, pieces: Iterable[tuple[str, AdvertisementSet]]) -> AdvertisementSet:
        """Return the set that has, of each of some partitions, what another set has.

        Where partitions nest, the inner one counts.
        """
        sources = dict(pieces)
        if sources.keys() == {""}:
            return sources[""]  # with the roots that it has
        made = cls()
        made._rows = Rows.joined(_slices_of({each: sources[each]._rows for each in sources}))
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
        digests, leaves = self._digests_in(prefix, found), self._leaves_in(prefix, found)
        if prefix or len(digests) > _MOST_KEPT:
            made = root_of_leaves(digests, leaves)
        else:
            self._tree = Tree(digests, leaves, self._tree)
            made = self._tree.root
        if len(self._roots) < _MOST_ROOTS or not prefix:
            self._roots[prefix] = made
        return made

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
