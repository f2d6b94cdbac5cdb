"""A census of some records: which fields and links their facts have, counted in columns.

Nothing is evaluated here. The facts of a base are looked at as they are, in numbers; texts
are made for what is told: names, examples and hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from lace.engines.embedded.index import Members
from lace.engines.embedded.keys import distinct_ids, distinct_sorted
from lace.engines.embedded.relation import EVERYTHING, Relation
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.factbase import FactBase

__all__ = ["Census"]

_HAVE: Final = PredicateKey("Have", 1)
_FIELD: Final = PredicateKey("Field", 4)
_LINK: Final = PredicateKey("RecordLink", 5)
_FIRST: Final = "0"
"""The index that the first occurrence of every field of a record has."""
_BATCH: Final = 2_000_000
"""Rows of fields that are looked at together, unless one field alone has more."""
_Keys: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


def _relation(base: FactBase, key: PredicateKey) -> Relation:
    return base.relations.get(key) or Relation(key.arity)


def _members(base: FactBase, key: PredicateKey) -> Members:
    return Members(_relation(base, key).columns()[0], base.size)


class Census:
    """What the facts of a base say of some records, of those that are there.

    Args:
        base: the facts.
        records: numbers of texts, with repetitions; those that are no record here are left
            out.

    `texts` are the hashes of the records, sorted; `stored` counts all records of the base.
    """

    def __init__(self, base: FactBase, records: Ids) -> None:
        self._base = base
        self.stored = sum(part.rows for part in _relation(base, _HAVE).select(EVERYTHING))
        chosen = distinct_ids(records, base.size)
        if len(chosen):
            chosen = chosen[_members(base, _HAVE).mask(chosen)]
        texts = base.dictionary.texts(chosen)
        order = sorted(range(len(texts)), key=texts.__getitem__)
        self.texts = [texts[at] for at in order]
        self._chosen = Members(chosen, base.size) if len(chosen) else None
        self._rank = np.zeros(base.size if len(chosen) else 0, np.int32)
        self._rank[chosen[order]] = np.arange(len(order), dtype=np.int32)

    def _columns(self, key: PredicateKey, *positions: int) -> list[Ids]:
        """Return columns of a predicate, the record first, for the rows of the records."""
        wanted = (0, *positions)
        pieces: list[list[Ids]] = []
        if self._chosen is not None:
            for part in _relation(self._base, key).select(EVERYTHING):
                columns = [part.column(position) for position in wanted]
                shown = self._chosen.mask(columns[0])
                if not shown.all():
                    columns = [column[shown] for column in columns]
                pieces.append(columns)
        if len(pieces) == 1:
            return pieces[0]  # nothing is copied
        empty = [np.empty(0, np.int32)]
        return [
            np.concatenate(empty + [columns[at] for columns in pieces]) for at in range(len(wanted))
        ]

    def embedded(self, predicate: str) -> int:
        """Return how many different hashes `BlobHash` or `PlexHash` gives."""
        _, hashes = self._columns(PredicateKey(predicate, 2), 1)
        return len(distinct_ids(hashes, self._base.size))

    def fields(self) -> list[tuple[str, int, int, str]]:
        """Return each field by name: its records, its different values, and one of these.

        The value is the first one of the record with the least hash.
        """
        dictionary = self._base.dictionary
        records, names, indexes, values = self._columns(_FIELD, 1, 2, 3)
        first = dictionary.find(_FIRST)
        found: list[tuple[str, int, int, str]] = []
        for rows in _batches(names, self._base.size):
            some = _Groups(names[rows], self._base.size)
            different = some.count_distinct(values[rows])
            rows = rows[indexes[rows] == first]  # one for each record that has the field
            some = _Groups(names[rows], self._base.size)
            examples = values[rows][some.least(self._rank[records[rows]])]
            texts = dictionary.texts(some.names), dictionary.texts(examples)
            found += zip(texts[0], some.counts, different, texts[1], strict=True)
        return sorted(found)

    def links(self) -> list[tuple[str, int, int, int]]:
        """Return the links of each name: how many, in how many records, to how many targets."""
        records, names, targets = self._columns(_LINK, 1, 4)
        groups = _Groups(names, self._base.size)
        return sorted(
            zip(
                self._base.dictionary.texts(groups.names),
                groups.counts,
                groups.count_distinct(records),
                groups.count_distinct(targets),
                strict=True,
            )
        )

    def targets_elsewhere(self) -> tuple[list[str], int]:
        """Return targets of links that are none of the records; and how many are in the base."""
        _, targets = self._columns(_LINK, 4)
        ids = distinct_ids(targets, self._base.size)
        if self._chosen is None or not len(ids):
            return [], 0
        ids = ids[~self._chosen.mask(ids)]
        here = int(np.count_nonzero(_members(self._base, _HAVE).mask(ids))) if len(ids) else 0
        return sorted(self._base.dictionary.texts(ids)), here


def _batches(names: Ids, size: int) -> Iterator[_Keys]:
    """Yield the rows of some names after the other, so that few are looked at together."""
    known = distinct_ids(names, size)
    group = np.searchsorted(known, names).astype(np.int32)
    ends = np.cumsum(np.bincount(group, minlength=len(known)))
    at = 0
    while at < len(known):
        before = int(ends[at - 1]) if at else 0
        stop = max(int(np.searchsorted(ends, before + _BATCH, "right")), at + 1)
        yield np.flatnonzero((group >= at) & (group < stop))
        at = stop


class _Groups:
    """Rows grouped by a column of names; every answer has one entry for each name."""

    def __init__(self, names: Ids, size: int) -> None:
        self._size = size
        self.names = distinct_ids(names, size)
        self._group = np.searchsorted(self.names, names)

    @property
    def counts(self) -> list[int]:
        """How many rows each name has."""
        return self._tally(self._group)

    def count_distinct(self, values: Ids) -> list[int]:
        """Return how many different values each name has."""
        keys: _Keys = self._group.astype(np.int64) * self._size + values
        return self._tally(distinct_sorted(keys) // self._size)

    def _tally(self, groups: _Keys) -> list[int]:
        counted: list[int] = np.bincount(groups, minlength=len(self.names)).tolist()
        return counted

    def least(self, ranks: Ids) -> _Keys:
        """Return the row with the least rank for each name; no two rows of a name have one."""
        rows = max(len(ranks), 1)
        found = np.full(len(self.names), np.iinfo(np.int64).max, np.int64)
        np.minimum.at(found, self._group, ranks.astype(np.int64) * rows + np.arange(len(ranks)))
        return found % rows
