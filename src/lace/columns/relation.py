"""Relations in parts, and the access paths into them: selected, projected, sorted columns.

A `Relation` is a set of rows, in parts that never change; new rows come as a new part,
and small parts are merged. Whatever a rule needs of a part (the rows that fit a pattern,
the values of a column as a set, an index by some columns) is made once and kept with the
part, so an increment builds access paths for what is new only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lace.columns.index import Index, Members
from lace.columns.keys import (
    distinct_ids,
    distinct_sorted,
    nothing,
    places_in,
    sort_rows,
    stretches_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.columns.dictionary import Ids, StoredTexts
    from lace.columns.index import RowSet, Slots
    from lace.columns.keys import Look


_MERGE_ROWS: Final = 4096
"""Parts with fewer rows are merged with the part before when that is not much longer."""
_NONE: Final = np.empty(0, np.intp)


class Pattern:
    """Which rows fit: constants by position, and positions that must be equal.

    Patterns are looked up at every step of every rule, so their hash is computed once.
    """

    __slots__ = ("_hash", "constants", "equal")

    def __init__(
        self,
        constants: tuple[tuple[int, int], ...] = (),
        equal: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.constants = constants
        self.equal = equal
        self._hash = hash((constants, equal))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Pattern)
            and (self.constants, self.equal) == (other.constants, other.equal)
        )


EVERYTHING: Final = Pattern()


class Columns(Protocol):
    """Where a selection's columns come from."""

    def column(self, position: int) -> Ids:
        """Return a whole column."""
        ...


class Selection:
    """The rows of a part that fit a pattern, with the access paths made so far."""

    __slots__ = ("_chosen", "_columns", "_indexes", "_members", "_source", "rows")

    def __init__(self, source: Columns, rows: int, chosen: Ids | None = None) -> None:
        self._source = source
        self._chosen = chosen
        self.rows = rows if chosen is None else len(chosen)
        self._columns: dict[int, Ids] = {}
        self._members: dict[int, Members] = {}
        self._indexes: dict[tuple[int, ...], Index] = {}

    def column(self, position: int) -> Ids:
        """Return the values at a position."""
        found = self._columns.get(position)
        if found is None:
            found = self._source.column(position)
            if self._chosen is not None:
                found = found[self._chosen]
            self._columns[position] = found
        return found

    @property
    def bytes(self) -> int:
        """How many bytes the access paths take."""
        made = 0 if self._chosen is None else self._chosen.nbytes
        if self._chosen is not None:
            made += sum(column.nbytes for column in self._columns.values())
        made += sum(members.size for members in self._members.values())
        return made + sum(index.size for index in self._indexes.values())

    def has_members(self, position: int) -> bool:
        """Tell whether the set of values at a position was asked for before."""
        return position in self._members

    def members(self, position: int, size: int, look: Look = nothing) -> Members:
        """Return the set of values at a position."""
        found = self._members.get(position)
        if found is None:
            found = self._members[position] = Members(self.column(position), size, look)
        return found

    def take_members(self, before: Selection, gone: Ids, look: Look) -> None:
        """Take over the set of the only column from before some values were taken out."""
        found = before._members.get(0)
        if found is not None:
            self._members[0] = found.without(gone, look)

    def has_index(self, positions: tuple[int, ...]) -> bool:
        """Tell whether the rows were asked for by their values at these positions before."""
        return positions in self._indexes

    def index(self, positions: tuple[int, ...], size: int, look: Look = nothing) -> Index:
        """Return the rows by their values at some positions."""
        found = self._indexes.get(positions)
        if found is None:
            columns = [self.column(position) for position in positions]
            found = self._indexes[positions] = Index(columns, self.rows, size, look)
        return found

    def narrowed(self, pattern: Pattern) -> Selection:
        """Return those of the rows that fit a pattern as well."""
        if pattern == EVERYTHING:
            return self
        fits = np.ones(self.rows, np.bool_)
        for position, value in pattern.constants:
            fits &= self.column(position) == value
        for left, right in pattern.equal:
            fits &= self.column(left) == self.column(right)
        return Selection(self, self.rows, np.flatnonzero(fits).astype(np.int32))


class Part(Protocol):
    """Some rows of a relation; they never change."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        ...

    def select(self, pattern: Pattern) -> Selection:
        """Return the rows that fit a pattern; asked again, the same selection."""
        ...

    def has(self, pattern: Pattern) -> bool:
        """Tell whether the rows that fit a pattern were asked for before."""
        ...

    def fresh(self) -> Part:
        """Return the same rows without the access paths made so far."""
        ...


class _Held:
    """Columns, and the rows of them that were taken out.

    Selections read it, and not the part that holds them: so a part that nobody needs any
    more goes at once, with all of its columns.
    """

    __slots__ = ("columns", "out")

    def __init__(self, columns: tuple[Ids, ...], out: Slots) -> None:
        self.columns = columns
        self.out = out

    def settled(self) -> tuple[Ids, ...]:
        """Return the columns without what was taken out."""
        if len(self.out):
            self.columns = tuple(np.delete(column, self.out) for column in self.columns)
            self.out = _NONE
        return self.columns

    def column(self, position: int) -> Ids:
        """Return a whole column."""
        return self.settled()[position]


class ColumnPart:
    """A part whose columns are in memory.

    Rows that were taken out leave the columns when somebody reads these: until then, taking
    a few out of many copies nothing.
    """

    __slots__ = ("_held", "_is_sorted", "_selections", "rows")

    def __init__(
        self, columns: Sequence[Ids], rows: int, *, out: Slots = _NONE, is_sorted: bool = False
    ) -> None:
        self._held = _Held(tuple(columns), out)
        self._is_sorted = is_sorted
        self.rows = rows
        self._selections: dict[Pattern, Selection] = {}

    @property
    def columns(self) -> tuple[Ids, ...]:
        """All columns."""
        return self._held.settled()

    @property
    def path_bytes(self) -> int:
        """How many bytes the access paths take that were made so far."""
        return sum(selection.bytes for selection in self._selections.values())

    @property
    def bytes(self) -> int:
        """How many bytes it takes, columns and access paths."""
        return self.path_bytes + self.column_bytes

    @property
    def column_bytes(self) -> int:
        """How many bytes the columns take."""
        return sum(column.nbytes for column in self._held.columns)

    def has(self, pattern: Pattern) -> bool:
        """Tell whether the rows that fit a pattern were asked for before."""
        return pattern in self._selections

    def fresh(self) -> ColumnPart:
        """Return the same rows without the access paths made so far."""
        held = self._held
        return ColumnPart(held.columns, self.rows, out=held.out, is_sorted=self._is_sorted)

    def without(self, gone: RowSet, first: Ids, look: Look = nothing) -> ColumnPart:
        """Return the part without some rows, or itself when it has none of them.

        `first` has the values of those rows at the first position, each once and sorted; `look`
        is called between two stretches of many rows.
        """
        columns, out = self._held.columns, self._held.out
        if not self._is_sorted:  # what is taken out of again is found at once then
            columns, out = _by_first(self.columns, gone.size, look), _NONE
        maybe = _rows_with(columns[0], first, look)
        if len(out):
            is_out = np.zeros(len(columns[0]), np.bool_)
            is_out[out] = True
            maybe = maybe[~is_out[maybe]]
        going = _rows_in(gone, columns, maybe, look)
        if not len(going):
            return self
        out = np.concatenate([out, going])
        made = ColumnPart(columns, len(columns[0]) - len(out), out=out, is_sorted=True)
        whole = self._selections.get(EVERYTHING)
        if len(columns) == 1 and whole is not None:
            made.select(EVERYTHING).take_members(whole, columns[0][going], look)
        return made

    def select(self, pattern: Pattern) -> Selection:
        """Return the rows that fit a pattern."""
        found = self._selections.get(pattern)
        if found is None:
            if pattern is EVERYTHING or pattern == EVERYTHING:
                found = Selection(self._held, self.rows)
            else:
                found = self.select(EVERYTHING).narrowed(pattern)
            self._selections[pattern] = found
        return found


def _by_first(columns: tuple[Ids, ...], size: int, look: Look) -> tuple[Ids, ...]:
    """Return columns of different rows, all numbers below size, in the order of the first."""
    if len(columns) == 1:
        return (distinct_ids(columns[0], size, look),)
    order, first = sort_rows(columns[0], look)
    made = [first]
    for column in columns[1:]:
        look()
        made.append(column[order])
    return tuple(made)


def _rows_with(ordered: Ids, values: Ids, look: Look) -> Slots:
    """Return which rows of a sorted column have one of some sorted values."""
    begins = places_in(ordered, values, "left", look)
    lengths = places_in(ordered, values, "right", look) - begins
    look()
    rows = np.repeat(begins - np.cumsum(lengths) + lengths, lengths)
    rows += np.arange(len(rows))
    return rows


def _rows_in(wanted: RowSet, columns: Sequence[Ids], rows: Slots, look: Look) -> Slots:
    """Return which of some rows of columns are in a set."""
    made: list[Slots] = [_NONE]
    for stretch in stretches_of(len(rows)):
        look()
        some = rows[stretch]
        found = wanted.contains([column[some] for column in columns], len(some), look)
        made.append(some[found])
    return made[1] if len(made) == 2 else np.concatenate(made)


class Relation:
    """A set of rows, in parts."""

    __slots__ = ("arity", "parts", "rows")

    def __init__(self, arity: int, parts: Sequence[Part] = ()) -> None:
        self.arity = arity
        self.parts: tuple[Part, ...] = tuple(part for part in parts if part.rows)
        self.rows = sum(part.rows for part in self.parts)

    @classmethod
    def of(cls, columns: Sequence[Ids], rows: int) -> Relation:
        """Return the relation of some columns."""
        return cls(len(columns), (ColumnPart(columns, rows),))

    def select(self, pattern: Pattern) -> list[Selection]:
        """Return the rows that fit a pattern, part by part; parts without any are left out."""
        chosen = [part.select(pattern) for part in self.parts]
        return [selection for selection in chosen if selection.rows]

    def count(self, pattern: Pattern) -> int:
        """Return how many rows fit a pattern."""
        return sum(part.select(pattern).rows for part in self.parts)

    def columns(self) -> tuple[Ids, ...]:
        """Return all rows, as columns."""
        return self.matching(EVERYTHING)[0]

    def matching(self, pattern: Pattern) -> tuple[tuple[Ids, ...], int]:
        """Return the rows that fit a pattern, as columns, and how many they are."""
        chosen = self.select(pattern)
        if len(chosen) == 1:
            whole = chosen[0]
            return tuple(whole.column(position) for position in range(self.arity)), whole.rows
        empty = [np.empty(0, np.int32)]
        columns = tuple(
            np.concatenate(empty + [selection.column(at) for selection in chosen])
            for at in range(self.arity)
        )
        return columns, sum(selection.rows for selection in chosen)

    def without(self, gone: RowSet, columns: Sequence[Ids], look: Look = nothing) -> Relation:
        """Return the relation without some rows, given as a set and as columns.

        Parts that have none of them stay as they are, with their access paths. `look` is
        called between two stretches of many rows.
        """
        if not self.arity:
            return Relation(0) if gone.rows else self
        first = distinct_sorted(columns[0], look)
        parts: list[Part] = []
        for part in self.parts:
            whole = part if isinstance(part, ColumnPart) else self._copied(part)
            kept = whole.without(gone, first, look)
            parts.append(part if kept is whole else kept)
        return Relation(self.arity, parts)

    def _copied(self, part: Part) -> ColumnPart:
        whole = part.select(EVERYTHING)
        return ColumnPart([whole.column(at) for at in range(self.arity)], whole.rows)

    def renumbered(self) -> Relation:
        """Return the relation without its access paths, for another size of dictionary."""
        return Relation(self.arity, [part.fresh() for part in self.parts])

    def rows_to_add(self, rows: int) -> int:
        """Return how many rows are moved when some are added: small parts are merged."""
        for part in reversed(self.parts):
            if not isinstance(part, ColumnPart) or part.rows > max(_MERGE_ROWS, 2 * rows):
                break
            rows += part.rows
        return rows

    def with_rows(self, columns: Sequence[Ids], rows: int) -> Relation:
        """Return the relation with more rows, none of which it has already.

        The new part takes in small ones before it, so there are never many parts, and
        each row is moved a few times only.
        """
        if not rows:
            return self
        parts = list(self.parts)
        taken: list[ColumnPart] = []
        while parts and isinstance(last := parts[-1], ColumnPart):
            if last.rows > max(_MERGE_ROWS, 2 * rows):
                break
            taken.append(last)
            rows += last.rows
            parts.pop()
        if taken:
            taken.reverse()
            columns = [
                np.concatenate([*(part.columns[at] for part in taken), column])
                for at, column in enumerate(columns)
            ]
        return Relation(self.arity, (*parts, ColumnPart(columns, rows)))


# -- Relations whose rows lie in files: the columns of segments, read as far as rules need them.

PARTITIONED: Final = frozenset({"Field", "RecordLink"})
"""Predicates whose rows can be had by the value of their second position alone."""
NAME_AT: Final = 1
"""The position that they are partitioned by."""


class StoredColumns(Protocol):
    """Columns of record facts that are kept in files and do not change."""

    @property
    def dictionary(self) -> StoredTexts:
        """The texts that the columns' numbers stand for."""
        ...

    @property
    def generation(self) -> str:
        """What is common to columns of which the longer ones continue the shorter."""
        ...

    def check_files(self) -> None:
        """Refuse files that have become shorter."""
        ...

    def rows_from(self, predicate: str, start: int) -> list[Ids]:
        """Return the columns of the rows from one on."""
        ...

    def rows(self, predicate: str, name: int | None = None) -> int:
        """Return how many rows a predicate has, or has with a name at its second position."""
        ...

    def column(self, predicate: str, position: int, name: int | None = None) -> Ids:
        """Return the values at a position of those rows."""
        ...


class _Source:
    """The columns of a predicate, of all rows or of those with one name."""

    __slots__ = ("_columns", "_name", "_predicate")

    def __init__(self, columns: StoredColumns, predicate: str, name: int | None) -> None:
        self._columns, self._predicate, self._name = columns, predicate, name

    def column(self, position: int) -> Ids:
        return self._columns.column(self._predicate, position, self._name)


class StoredPart:
    """The rows of a record predicate in stored columns, except those of removed records.

    `rows` counts those of removed records as well; selections have only the others.
    """

    __slots__ = ("_columns", "_predicate", "_removed", "_selections", "rows")

    def __init__(self, columns: StoredColumns, predicate: str, removed: Members | None) -> None:
        self._columns = columns
        self._predicate = predicate
        self._removed = removed
        self.rows = columns.rows(predicate)
        self._selections: dict[Pattern, Selection] = {}

    def has(self, pattern: Pattern) -> bool:
        """Tell whether the rows that fit a pattern were asked for before."""
        return pattern in self._selections

    def fresh(self) -> StoredPart:
        """Return the same rows without the access paths made so far."""
        return StoredPart(self._columns, self._predicate, self._removed)

    def without(self, removed: Members) -> StoredPart:
        """Return the part with these records removed, and no others."""
        return StoredPart(self._columns, self._predicate, removed)

    def select(self, pattern: Pattern) -> Selection:
        """Return the rows that fit a pattern."""
        found = self._selections.get(pattern)
        if found is None:
            found = self._selections[pattern] = self._select(pattern)
        return found

    def _select(self, pattern: Pattern) -> Selection:
        constants = dict(pattern.constants)
        if self._predicate in PARTITIONED and NAME_AT in constants:
            name = constants.pop(NAME_AT)
            if not constants and not pattern.equal:
                return self._whole(name)
            whole = self.select(Pattern(((NAME_AT, name),)))
            return whole.narrowed(Pattern(tuple(constants.items()), pattern.equal))
        if pattern == EVERYTHING:
            return self._whole(None)
        return self.select(EVERYTHING).narrowed(pattern)

    def _whole(self, name: int | None) -> Selection:
        rows = self._columns.rows(self._predicate, name)
        source = _Source(self._columns, self._predicate, name)
        if self._removed is None or not rows:
            return Selection(source, rows)
        stays = ~self._removed.mask(source.column(0))
        if bool(stays.all()):
            return Selection(source, rows)
        return Selection(source, rows, np.flatnonzero(stays).astype(np.int32))
