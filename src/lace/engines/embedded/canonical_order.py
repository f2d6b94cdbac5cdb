"""An order of rows, and a numbering of their texts, that only the rows themselves decide.

The numbers of a dictionary tell in which order texts arrived, and so something of whatever
arrived between them. Here rows are put into the order of the texts that identify them, and
texts are numbered anew as they come up in that order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.relation import Relation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.engines.embedded.dictionary import Dictionary, Fingerprints, Ids
    from lace.rules.syntax import PredicateKey

__all__ = ["Identifying", "MappedTexts", "renumber"]

Identifying: TypeAlias = "Mapping[PredicateKey, tuple[int, ...]]"
"""For each predicate the positions whose texts no two of its rows share."""
_Order: TypeAlias = "npt.NDArray[np.int64]"
_LAST_PACKED: Final = 2**63 - 1
"""The highest key that several ranks are packed into."""
_DIGIT_BITS: Final = 16
_DIGIT: Final = 2**_DIGIT_BITS - 1


class MappedTexts:
    """Some texts of a dictionary under other numbers: those of their places in `ids`.

    Args:
        dictionary: the dictionary.
        ids: the numbers of the texts there.
        ordered: the same, rising.
        places: where each of these is among `ids`.
    """

    def __init__(self, dictionary: Dictionary, ids: Ids, ordered: Ids, places: Ids) -> None:
        self.dictionary = dictionary
        self.ids = ids
        self._sorted, self._sorter = ordered, places

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that is not among them."""
        wanted = self.dictionary.find_all(texts)
        if not len(self.ids):
            return np.full(len(texts), -1, np.int32)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self.ids) - 1)
        return np.where(self._sorted[at] == wanted, self._sorter[at], np.int32(-1))

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers."""
        return self.dictionary.texts(self.ids[ids])

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return the fingerprints of their texts."""
        return self.dictionary.fingerprints(self.ids[ids])


def renumber(
    relations: Mapping[PredicateKey, Relation],
    identifying: Identifying,
    dictionary: Dictionary,
    size: int,
) -> tuple[MappedTexts, dict[PredicateKey, Relation]]:
    """Return relations with rows and numbers in an order of their own, and what these mean.

    Args:
        relations: rows in numbers of the dictionary.
        identifying: what orders the rows of each predicate.
        dictionary: what the numbers mean.
        size: above every number.
    """
    keys = sorted(relations)
    present, columns = _packed({key: relations[key].columns() for key in keys}, size)
    named = [columns[key][at] for key in keys for at in identifying[key]]
    ranks = _text_ranks(named, present, dictionary)
    numbers = np.full(len(present), -1, np.int32)
    place = np.empty(len(present), np.int32)
    found: list[Ids] = []
    count = 0
    made: dict[PredicateKey, Relation] = {}
    for key in keys:
        rows = relations[key].rows
        order = _order([ranks[columns[key][at]] for at in identifying[key]], rows)
        ordered = [column[order] for column in columns[key]]
        for column in ordered:
            fresh = _first_ones(column[numbers[column] < 0], place)
            numbers[fresh] = np.arange(count, count + len(fresh), dtype=np.int32)
            found.append(fresh)
            count += len(fresh)
        made[key] = Relation.of([numbers[column] for column in ordered], rows)
    ids = present[np.concatenate(found)] if found else np.empty(0, np.int32)
    return MappedTexts(dictionary, ids, present, numbers), made


def _packed(
    columns: Mapping[PredicateKey, Sequence[Ids]], size: int
) -> tuple[Ids, dict[PredicateKey, list[Ids]]]:
    """Return the numbers that columns have, sorted, and the columns by places among these.

    Everything that follows then works on tables as long as the view, not as the dictionary.
    """
    flags = np.zeros(size, np.bool_)
    for each in columns.values():
        for column in each:
            flags[column] = True
    present = np.flatnonzero(flags).astype(np.int32)
    places = np.empty(size, np.int32)
    places[present] = np.arange(len(present), dtype=np.int32)
    return present, {key: [places[column] for column in each] for key, each in columns.items()}


def _text_ranks(columns: Sequence[Ids], present: Ids, dictionary: Dictionary) -> Ids:
    """Return for each place in some columns the rank that its text gives it among them."""
    flags = np.zeros(len(present), np.bool_)
    for column in columns:
        flags[column] = True
    chosen = np.flatnonzero(flags).astype(np.int32)
    ranks = np.zeros(len(present), np.int32)
    order = _text_order(present[chosen], dictionary)
    ranks[chosen[order]] = np.arange(len(chosen), dtype=np.int32)
    return ranks


def _text_order(ids: Ids, dictionary: Dictionary) -> _Order:
    """Return an order of different texts that these alone decide."""
    prints = dictionary.fingerprints(ids)
    order = np.argsort(prints)
    ordered = prints[order]
    if not (ordered[1:] == ordered[:-1]).any():
        return order
    texts = dictionary.texts(ids)  # two that were made to have the same one
    decided = sorted(range(len(ids)), key=lambda at: (int(prints[at]), texts[at]))
    return np.array(decided, np.int64)


def _order(ranks: Sequence[Ids], rows: int) -> _Order:
    """Return the order of rows by their ranks in some columns, the first before the others."""
    if not ranks or not rows:
        return np.arange(rows, dtype=np.int64)
    if len(ranks) == 1:
        return np.argsort(ranks[0])
    key, highest = np.zeros(rows, np.int64), 0
    for each in ranks:
        dense, count = _dense(each)
        if highest > _LAST_PACKED // max(count, 1):
            return np.lexsort(tuple(reversed(ranks)))
        key = key * count + dense
        highest = highest * count + count - 1
    # Sorting by sixteen bits after the other is quicker than comparing.
    order = np.argsort((key & _DIGIT).astype(np.uint16), stable=True)
    while highest := highest >> _DIGIT_BITS:
        key >>= _DIGIT_BITS
        order = order[np.argsort((key[order] & _DIGIT).astype(np.uint16), stable=True)]
    return order


def _dense(ranks: Ids) -> tuple[Ids, int]:
    """Return ranks without the numbers that none of them has, and how many are left."""
    flags = np.zeros(int(ranks.max(initial=-1)) + 1, np.bool_)
    flags[ranks] = True
    below = np.cumsum(flags, dtype=np.int32)
    return below[ranks] - 1, int(below[-1]) if len(below) else 0


def _first_ones(column: Ids, place: Ids) -> Ids:
    """Return the values of a column, each once, in the order in which they come up."""
    at = np.arange(len(column), dtype=np.int32)
    place[column[::-1]] = at[::-1]  # of equal values the first is written last
    first: Ids = column[place[column] == at]
    return first
