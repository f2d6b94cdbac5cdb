"""The bindings that make items of a body true, one after the other, least first.

Variables get their values in the order in which the positive atoms name them, and each
its values in the order of their texts. The values to try come from the atom that has
the fewest, and where they are many, only those that the engine finds in some binding;
the other atoms confirm them. So the first binding found is the least one, and little more
is looked at than is needed to find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lace.engines.embedded.items import variables_of
from lace.engines.embedded.keys import distinct_ids
from lace.engines.embedded.survivors import Survivors
from lace.rules.syntax import Atom, Variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.engines.embedded.items import Binding
    from lace.engines.embedded.lookups import Lookups
    from lace.rules.syntax import BodyAtom

__all__ = ["Search"]

_Trial: TypeAlias = "tuple[Iterator[str], Atom]"
MANY_VALUES = 64
"""Values from which on the engine is asked first which of them are worth trying."""


class Search:
    """A search for bindings of some items of a rule, those of all atoms that bind among them.

    A variable that no positive atom names is left open: it is counted over.
    """

    def __init__(self, lookups: Lookups, rule: int, items: Sequence[BodyAtom]) -> None:
        self._lookups = lookups
        self._rule = rule
        self._survivors = Survivors(lookups.state, rule, items)
        self._items = tuple(items)
        self._kept: dict[tuple[str, ...], list[list[BodyAtom]]] = {}
        self._atoms = [item for item in items if isinstance(item, Atom)]
        self._atoms_with: dict[str, list[Atom]] = {}
        for atom in self._atoms:
            for name in dict.fromkeys(variables_of(atom)):
                self._atoms_with.setdefault(name, []).append(atom)
        self._names = tuple(
            dict.fromkeys(name for atom in self._atoms for name in variables_of(atom))
        )

    def bindings(self, given: Binding, below: int | None = None) -> Iterator[dict[str, str]]:
        """Yield each binding that goes on from a given one, with facts below a height only."""
        names = [name for name in self._names if name not in given]
        checks = self._checks(tuple(names))
        binding = dict(given)
        if not all(self._lookups.holds(item, binding, below) for item in checks[0]):
            return
        if not names:
            yield binding
            return
        trials = [self._trial(names[0], binding, below)]
        while trials:
            level = len(trials)
            values, source = trials[-1]
            for value in values:
                binding[names[level - 1]] = value
                if all(
                    self._lookups.holds(item, binding, below)
                    for item in checks[level]
                    if item is not source
                ):
                    break
            else:
                trials.pop()
                binding.pop(names[level - 1], None)
                continue
            if level == len(names):
                yield dict(binding)
            else:
                trials.append(self._trial(names[level], binding, below))

    def _checks(self, names: tuple[str, ...]) -> list[list[BodyAtom]]:
        """Return what to ask once this many variables have values."""
        found = self._kept.get(names)
        if found is None:
            found = self._kept[names] = self._new_checks(names)
        return found

    def _new_checks(self, names: Sequence[str]) -> list[list[BodyAtom]]:
        level = {name: number for number, name in enumerate(names, 1)}
        checks: list[list[BodyAtom]] = [[] for _ in range(len(names) + 1)]
        for item in self._items:
            levels = sorted({level.get(name, 0) for name in variables_of(item)} - {0})
            if isinstance(item, Atom) and levels:
                for number in levels:
                    checks[number].append(item)
            else:
                checks[max(levels, default=0)].append(item)
        for each in checks:  # what is quick to tell first
            each.sort(key=_cost)
        return checks

    def _trial(self, name: str, binding: Binding, below: int | None) -> _Trial:
        """Return the values to try for a variable, and the atom that they come from."""
        lookups = self._lookups
        found = [(lookups.matches(atom, binding, below), atom) for atom in self._atoms_with[name]]
        matches, atom = min(found, key=lambda each: each[0].most)
        at = atom.terms.index(Variable(name))
        (column,), rows = matches.columns((at,))
        state = lookups.state
        state.budget.rule = self._rule
        state.budget.spend(rows)
        if rows > 1:
            column = distinct_ids(column, state.size)
        if len(column) > MANY_VALUES and len(self._items) > 1:
            surviving = self._survivors.values(name, binding)
            if surviving is not None:
                column = np.intersect1d(column, surviving, assume_unique=True)
        return iter(sorted(state.dictionary.texts(column))), atom


def _cost(item: BodyAtom) -> int:
    kinds = ("Inequality", "IntCompare", "LexCompare", "TextShape", "Atom", "NegatedAtom")
    name = type(item).__name__
    return kinds.index(name) if name in kinds else len(kinds)
