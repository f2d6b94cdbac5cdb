"""Rows as single numbers, sorted and looked for in stretches.

A row of numbers below `size` is one int64 as long as it fits. Whatever takes long for many
rows is done in stretches, with a look at the budget between two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.columns.dictionary import Ids

Keys: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
_Item = TypeVar("_Item", bound=np.generic)
Look: TypeAlias = "Callable[[], None]"
"""Looks at the budget between two stretches of a long operation; it may wait, or raise."""
AT_ONCE: Final = 2**19
"""Rows that are sorted, numbered or added to a set between two looks: about 0.1 s."""
_SAMPLED: Final = 2**11
"""The distance of two samples of a sorted run."""
_CACHED: Final = 2**14
"""Sorted keys among which others are found quickly in any order."""
_LARGEST_KEY: Final = 2**62
FLAGS_SHARE: Final = 16
"""Flags pay when there are at least this share of values."""


def nothing() -> None:
    """Look at no budget."""


def radix_fits(size: int, arity: int) -> bool:
    """Tell whether rows of this many numbers below size are numbers themselves."""
    return bool(max(size, 2) ** arity < _LARGEST_KEY)


def radix_keys(columns: Sequence[Ids], size: int, look: Look = nothing) -> Keys:
    """Return rows as numbers to the base of size; `look` is called between two columns."""
    keys = columns[0].astype(np.int64)
    for column in columns[1:]:
        if len(keys) > AT_ONCE:
            look()
        keys *= size
        keys += column
    return keys


def is_short(rows: int) -> bool:
    """Tell whether rows are few enough to be processed at once."""
    return rows <= AT_ONCE


def stretches_of(rows: int) -> Iterator[slice]:
    """Yield slices of this number of rows, each processed at once."""
    return (slice(first, min(first + AT_ONCE, rows)) for first in range(0, rows, AT_ONCE))


def stretches_with_looks(rows: int, look: Look) -> Iterator[slice]:
    """Yield the same slices, each after a look if there are several."""
    for stretch in stretches_of(rows):
        if rows > AT_ONCE:
            look()
        yield stretch


def choose(
    columns: Sequence[npt.NDArray[_Item]], chosen: Flags, look: Look = nothing
) -> tuple[npt.NDArray[_Item], ...]:
    """Return the rows that are chosen; `look` is called between two stretches of them."""
    if len(chosen) <= AT_ONCE:
        return tuple(column[chosen] for column in columns)
    parts: list[list[npt.NDArray[_Item]]] = [[] for _ in columns]
    for stretch in stretches_with_looks(len(chosen), look):
        for kept, column in zip(parts, columns, strict=True):
            kept.append(column[stretch][chosen[stretch]])
    return tuple(map(np.concatenate, parts))


def places_in(
    ordered: npt.NDArray[Any],
    probe: npt.NDArray[Any],
    side: Literal["left", "right"] = "left",
    look: Look = nothing,
) -> npt.NDArray[np.intp]:
    """Return where values belong among sorted ones, as `np.searchsorted` does.

    Many values are looked for in their order: at random, each step of each search would wait
    for memory. `look` is called between two stretches of them.
    """
    if len(probe) > AT_ONCE:
        places = np.empty(len(probe), np.intp)
        for stretch in stretches_with_looks(len(probe), look):
            places[stretch] = places_in(ordered, probe[stretch], side)
        return places
    if len(ordered) <= _CACHED or len(probe) <= 1:
        return np.searchsorted(ordered, probe, side)
    if bool((probe[1:] >= probe[:-1]).all()):
        return np.searchsorted(ordered, probe, side)
    order = np.argsort(probe)
    found = np.empty(len(probe), np.intp)
    found[order] = np.searchsorted(ordered, probe[order], side)
    return found


def sort_rows(keys: npt.NDArray[Any], look: Look = nothing) -> tuple[Ids, npt.NDArray[Any]]:
    """Return the numbers of rows in the order of their keys, and the keys in order.

    Many keys are sorted in runs. Samples of these say where to cut all runs, so that the
    pieces between two cuts are about as long as a run, with a look before each of them.
    """
    count = len(keys)
    if count <= AT_ONCE:
        order = np.argsort(keys).astype(np.int32)
        return order, keys[order]
    numbers: list[Ids] = []
    runs: list[npt.NDArray[Any]] = []
    for stretch in stretches_with_looks(count, look):
        found = np.argsort(keys[stretch])
        numbers.append((found + stretch.start).astype(np.int32))
        runs.append(keys[stretch][found])
    orders: Ids = np.empty(count, np.int32)
    made = np.empty(count, keys.dtype)
    at = 0
    for ranges in _pieces(runs, look):
        piece = _joined(runs, ranges)
        merged = np.argsort(piece, kind="stable")
        end = at + len(piece)
        made[at:end] = piece[merged]
        orders[at:end] = _joined(numbers, ranges)[merged]
        at = end
    return orders, made


def _pieces(runs: Sequence[npt.NDArray[Any]], look: Look) -> Iterator[list[slice]]:
    """Yield the parts of sorted runs that belong together, with a look before each of them.

    No key of a piece is above one of the next, and equal ones are in the same piece.
    """
    samples = np.sort(np.concatenate([run[_SAMPLED::_SAMPLED] for run in runs]))
    cuts = samples[AT_ONCE // _SAMPLED :: AT_ONCE // _SAMPLED].tolist()
    begins = [0] * len(runs)
    for cut in [*cuts, None]:
        look()
        ends = [len(run) if cut is None else int(np.searchsorted(run, cut)) for run in runs]
        yield [slice(begin, end) for begin, end in zip(begins, ends, strict=True)]
        begins = ends


def _joined(runs: Sequence[npt.NDArray[_Item]], ranges: Sequence[slice]) -> npt.NDArray[_Item]:
    return np.concatenate([run[each] for run, each in zip(runs, ranges, strict=True)])


def _merged(runs: Sequence[npt.NDArray[_Item]], look: Look) -> Iterator[npt.NDArray[_Item]]:
    """Yield the keys of sorted runs in order, piece by piece."""
    for ranges in _pieces(runs, look):
        piece = _joined(runs, ranges)
        piece.sort(kind="stable")
        yield piece


def sort_keys(keys: npt.NDArray[_Item], look: Look = nothing) -> npt.NDArray[_Item]:
    """Return keys in order; many are sorted in runs, as `sort_rows` does."""
    if len(keys) <= AT_ONCE:
        return np.sort(keys)
    runs = [np.sort(keys[stretch]) for stretch in stretches_with_looks(len(keys), look)]
    return np.concatenate(list(_merged(runs, look)))


def distinct_sorted(keys: npt.NDArray[Any], look: Look = nothing) -> npt.NDArray[Any]:
    """Return the different keys, sorted; `np.unique` would load more of NumPy first.

    Many keys are sorted in runs, as `sort_rows` does.
    """
    if len(keys) < 2:
        return keys
    if len(keys) > AT_ONCE:
        runs = [
            _each_once(np.sort(keys[stretch])) for stretch in stretches_with_looks(len(keys), look)
        ]
        return np.concatenate([_each_once(piece) for piece in _merged(runs, look)])
    keys = np.sort(keys)
    first = np.empty(len(keys), np.bool_)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def _each_once(ordered: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return ordered[first_ones(ordered)]


def first_ones(ordered: npt.NDArray[Any]) -> Flags:
    """Tell which sorted keys differ from the one before."""
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


def distinct_ids(ids: Ids, size: int, look: Look = nothing) -> Ids:
    """Return the different numbers of a column, all below size, sorted."""
    if len(ids) * FLAGS_SHARE < size:
        return np.unique(ids) if len(ids) <= AT_ONCE else distinct_sorted(ids, look)
    flags = np.zeros(size, np.bool_)
    for stretch in stretches_with_looks(len(ids), look):
        flags[ids[stretch]] = True
    return np.flatnonzero(flags).astype(np.int32)
