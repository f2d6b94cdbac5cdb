"""Single questions to finished relations: which facts fit an atom under a binding.

Rules run on whole columns; explanations ask about one binding at a time. A binding has
texts, so it may hold values that no fact has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lace.algebra.nodes import CountTest, Scan, Unit
from lace.engines.embedded.bounded import bounded_counts
from lace.engines.embedded.frames import Frame
from lace.engines.embedded.items import test_holds, value_of, variables_of
from lace.engines.embedded.relation import EVERYTHING, Relation
from lace.rules.builtins import cardinality_holds, count_bound
from lace.rules.syntax import Atom, Cardinality, NegatedAtom, TrueAtom, Variable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.heights import Ranked
    from lace.engines.embedded.index import Index, Slots
    from lace.engines.embedded.items import Binding
    from lace.engines.embedded.relation import Selection
    from lace.engines.embedded.state import State
    from lace.facts.lines import Fact
    from lace.rules.syntax import BodyAtom, PredicateKey

__all__ = ["EXACT_COUNT", "Lookups", "Matches"]

EXACT_COUNT: Final = 1000
"""Facts up to which a count of facts that are not kept is always exact."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one part of a relation, by their places in the order of an index."""

    selection: Selection
    index: Index | None
    first: int
    last: int

    def rows(self, before: int | None) -> Slots:
        """Return the rows' numbers, only those before some row if one is given."""
        rows: Slots = np.arange(self.first, self.last)
        if self.index is not None:
            rows = self.index.rows_at(rows)
        return rows if before is None else rows[rows < before]


@dataclass(frozen=True, slots=True)
class Matches:
    """The facts that agree with an atom where it has values.

    `equal` are pairs of positions that the atom wants to be equal as well; `before` is
    where the rows that count end.
    """

    pieces: tuple[_Piece, ...]
    equal: tuple[tuple[int, int], ...]
    before: int | None

    @property
    def most(self) -> int:
        """No fewer than there are."""
        return sum(piece.last - piece.first for piece in self.pieces)

    def columns(self, positions: tuple[int, ...]) -> tuple[list[Ids], int]:
        """Return the values at some positions, and how many rows there are."""
        found: list[list[Ids]] = []
        count = 0
        for piece in self.pieces:
            rows = piece.rows(self.before)
            for left, right in self.equal:
                column = piece.selection.column
                rows = rows[column(left)[rows] == column(right)[rows]]
            count += len(rows)
            found.append([piece.selection.column(at)[rows] for at in positions])
        if len(found) == 1:
            return found[0], count
        empty = [np.empty(0, np.int32)]
        return [
            np.concatenate(empty + [each[at] for each in found]) for at in range(len(positions))
        ], count

    def count(self) -> int:
        """Return how many facts match."""
        return self.most if not self.equal and self.before is None else self.columns(())[1]

    def exist(self) -> bool:
        """Tell whether any fact matches."""
        return self.count() > 0


_NOTHING: Final = Matches((), (), None)


class Lookups:
    """Questions to the relations of a state; with heights, also to facts below a height."""

    def __init__(self, state: State, ranked: Mapping[PredicateKey, Ranked] | None = None) -> None:
        self.state = state
        self._ranked = ranked or {}

    def matches(self, atom: Atom, binding: Binding, below: int | None = None) -> Matches:
        """Return the facts that fit an atom under a binding, those below a height if given."""
        positions: list[int] = []
        values: list[int] = []
        free: dict[str, int] = {}
        equal: list[tuple[int, int]] = []
        for at, term in enumerate(atom.terms):
            value = value_of(term, binding)
            if value is not None:
                number = self.state.dictionary.find(value)
                if not 0 <= number < self.state.size:
                    return _NOTHING
                positions.append(at)
                values.append(number)
            elif isinstance(term, Variable):
                first = free.setdefault(term.name, at)
                if first != at:
                    equal.append((first, at))
        relation, before = self._relation(atom.key, below)
        pieces = _pieces(relation, tuple(positions), values, self.state.size)
        self.state.budget.spend(1 + len(pieces))
        return Matches(tuple(pieces), tuple(equal), before)

    def _relation(self, key: PredicateKey, below: int | None) -> tuple[Relation, int | None]:
        ranked = self._ranked.get(key) if below is not None else None
        if ranked is None or below is None:
            return self._all(key), None
        return ranked.relation, ranked.below(below)

    def height(self, key: PredicateKey, values: Sequence[str]) -> int | None:
        """Return the height of a fact that holds; None for one that does not."""
        numbers = [self.state.dictionary.find(value) for value in values]
        if not all(0 <= number < self.state.size for number in numbers):
            return None
        ranked = self._ranked.get(key)
        relation = self._all(key) if ranked is None else ranked.relation
        pieces = _pieces(relation, tuple(range(key.arity)), numbers, self.state.size)
        if not pieces:
            return None
        return 0 if ranked is None else ranked.height(int(pieces[0].rows(None)[0]))

    def _all(self, key: PredicateKey) -> Relation:
        return self.state.relations.get(key) or Relation(key.arity)

    def texts(self, atom: Atom, matches: Matches) -> list[Fact]:
        """Return the facts that match, in no order."""
        columns, rows = matches.columns(tuple(range(len(atom.terms))))
        self.state.budget.spend(rows)
        return [(atom.name, *values) for values in self.state.dictionary.rows(columns, rows)]

    def least(self, atom: Atom, binding: Binding, below: int | None = None) -> Fact | None:
        """Return the fact that fits an atom and comes first as text."""
        values = [value_of(term, binding) for term in atom.terms]
        matches = self.matches(atom, binding, below)
        if None in values:
            return min(self.texts(atom, matches), default=None)
        return (atom.name, *(each or "" for each in values)) if matches.exist() else None

    def count(self, item: Cardinality, binding: Binding) -> tuple[int, bool]:
        """Return how many facts an item counts, and whether that is exact or a lower bound."""
        if item.atom.key not in self.state.virtual:
            return self.matches(item.atom, binding).count(), True
        bound = [name for name in variables_of(item) if name in binding]
        numbers = [self.state.dictionary.find(binding[name]) for name in bound]
        if not all(0 <= number < self.state.size for number in numbers):
            return 0, True
        scan = Scan(item.atom.key, item.atom.terms, tuple(bound), -1)
        test = CountTest(Unit(), scan, item.operator, item.bound, tuple(bound))
        enough = _enough(item)
        columns = {
            name: np.array([number], np.int32) for name, number in zip(bound, numbers, strict=True)
        }
        found = int(bounded_counts(self.state, test, Frame(1, columns), enough)[0])
        return min(found, enough), found < enough

    def holds(self, item: BodyAtom, binding: Binding, below: int | None = None) -> bool:
        """Tell whether an item holds under a binding of all variables that it needs."""
        match item:
            case Atom():
                return self.matches(item, binding, below).exist()
            case NegatedAtom(atom):
                return not self.matches(atom, binding).exist()
            case Cardinality():
                count, _ = self.count(item, binding)
                return cardinality_holds(count, item.operator, item.bound)
            case TrueAtom():
                return True
            case _:
                return test_holds(item, binding)


def _pieces(
    relation: Relation, positions: tuple[int, ...], values: list[int], size: int
) -> list[_Piece]:
    made: list[_Piece] = []
    for selection in relation.select(EVERYTHING):
        if not positions:
            made.append(_Piece(selection, None, 0, selection.rows))
            continue
        index = selection.index(positions, size)
        (slot,) = index.find([np.array([value], np.int32) for value in values])
        if slot >= 0:
            made.append(
                _Piece(selection, index, int(index.starts[slot]), int(index.starts[slot + 1]))
            )
    return made


def _enough(item: Cardinality) -> int:
    """Return up to where to count: so far that the answer is certain, and further if cheap."""
    return max(count_bound(item.bound) + 1, EXACT_COUNT)
