"""An order of rows that only the rows themselves decide.

The numbers of a dictionary tell in which order texts arrived, and so something of whatever
arrived between them. Here rows are put into the order of the texts that identify them; who
numbers texts as they come up in that order tells nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.engines.embedded.keys import nothing, sort_rows, stretches_of
from lace.engines.embedded.ranks import sort_in_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.engines.embedded.dictionary import Ids, Texts
    from lace.engines.embedded.factbase import Columns
    from lace.engines.embedded.keys import Look
    from lace.rules.syntax import PredicateKey

__all__ = ["Identifying", "in_text_order"]

Identifying: TypeAlias = "Mapping[PredicateKey, tuple[int, ...]]"
"""For each predicate the positions whose texts no two of its rows share."""
_Order: TypeAlias = "npt.NDArray[np.int64]"
_LAST_PACKED: Final = 2**63 - 1
"""The highest key that several ranks are packed into."""
_SMALL_SHARE: Final = 64
"""Rows that are fewer than one in this many numbers are sorted, not looked up in tables."""
_DIGIT_BITS: Final = 16
_DIGIT: Final = 2**_DIGIT_BITS - 1


def in_text_order(
    relations: Columns,
    identifying: Identifying,
    dictionary: Texts,
    size: int,
    check: Look = nothing,
) -> dict[PredicateKey, tuple[list[Ids], int]]:
    """Return rows by predicate, and their columns, in an order that their texts decide.

    Args:
        relations: rows in numbers of the dictionary.
        identifying: what orders the rows of each predicate; without it all columns do.
        dictionary: what the numbers mean.
        size: above every number.
        check: is called between two sorts, and within long ones; what it raises ends this.
    """
    keys = sorted(relations)
    named = {key: identifying.get(key, range(key.arity)) for key in keys}
    present, columns = _packed({key: relations[key][0] for key in keys}, size)
    check()
    ranks = _text_ranks(
        [columns[key][at] for key in keys for at in named[key]], present, dictionary, check
    )
    made: dict[PredicateKey, tuple[list[Ids], int]] = {}
    for key in keys:
        check()
        given, rows = relations[key]
        order = _order([ranks[columns[key][at]] for at in named[key]], rows)
        made[key] = [column[order] for column in given], rows
    return made


def _packed(
    columns: Mapping[PredicateKey, Sequence[Ids]], size: int
) -> tuple[Ids, dict[PredicateKey, list[Ids]]]:
    """Return the numbers that columns have, sorted, and the columns by places among these.

    Everything that follows then works on tables as long as the view, not as the dictionary.
    """
    every = [column for each in columns.values() for column in each]
    if sum(map(len, every)) * _SMALL_SHARE < size:
        few = np.unique(np.concatenate([*every, np.empty(0, np.int32)]))
        return few, {
            key: [np.searchsorted(few, column).astype(np.int32) for column in each]
            for key, each in columns.items()
        }
    flags = np.zeros(size, np.bool_)
    for column in every:
        flags[column] = True
    present = np.flatnonzero(flags).astype(np.int32)
    places = np.empty(size, np.int32)
    places[present] = np.arange(len(present), dtype=np.int32)
    return present, {key: [places[column] for column in each] for key, each in columns.items()}


def _text_ranks(columns: Sequence[Ids], present: Ids, dictionary: Texts, check: Look) -> Ids:
    """Return for each place in some columns the rank that its text gives it among them."""
    flags = np.zeros(len(present), np.bool_)
    for column in columns:
        flags[column] = True
    chosen = np.flatnonzero(flags).astype(np.int32)
    ranks = np.zeros(len(present), np.int32)
    order = _text_order(present[chosen], dictionary, check)
    ranks[chosen[order]] = np.arange(len(chosen), dtype=np.int32)
    return ranks


def _text_order(ids: Ids, dictionary: Texts, check: Look) -> Ids:
    """Return an order of different texts that these alone decide."""
    order, prints = sort_rows(dictionary.fingerprints(ids), check)
    is_same = prints[1:] == prints[:-1]
    if not is_same.any():
        return order
    is_tied = np.zeros(len(ids), np.bool_)  # anyone can invent hashes that begin alike
    is_tied[1:] |= is_same
    is_tied[:-1] |= is_same
    tied = order[is_tied]
    texts: list[str] = []
    for stretch in stretches_of(len(tied)):
        check()
        texts += dictionary.texts(ids[tied[stretch]])
    keys = list(zip(prints[is_tied].tolist(), texts, strict=True))
    order[is_tied] = tied[sort_in_runs(keys, list(range(len(keys))), check)]
    return order


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
