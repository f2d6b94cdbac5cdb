"""Names that rules use and no record has: fields, groups and apps, compared with stored facts.

Nothing is evaluated here. Each name is looked up by its number; what there is instead is listed
only where one is missing, from the columns and without a look at any record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lace.engines.embedded.keys import distinct_ids
from lace.engines.embedded.relation import EVERYTHING, Pattern, Relation
from lace.rules.checks.warnings import FIELD_POSITIONS
from lace.rules.findings import Reporter, SourceText, show
from lace.rules.suggest import FIELD_NAMES, Suggester, closest
from lace.rules.syntax import Constant, Inequality, PredicateKey, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.engines.embedded.dictionary import Ids
    from lace.engines.embedded.factbase import FactBase
    from lace.errors import Finding
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Rule, Term

__all__ = ["distinct_names", "strange_names", "uses_names"]

_HAVE: Final = PredicateKey("Have", 1)
_FIELD: Final = PredicateKey("Field", 4)
_NAME_AT: Final = 1
_VALUE_AT: Final = 3
_VALUED: Final = ("Group", "App")
"""The fields whose values are looked up as well: few, and shared by many records."""
_MOST_NAMES: Final = 5_000
"""Names among which a close one is looked for."""
_MOST_COMPARISONS: Final = 50_000
"""Names that are compared for one program; what is missing is reported without a name then."""


def uses_names(program: CheckedProgram) -> bool:
    """Tell whether rules use any name that could be looked up."""
    return any(True for _ in _names(program))


def distinct_names(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Yield record facts that have every name that could be looked up, each name once."""
    seen: set[tuple[str, ...]] = set()
    for fact in facts:
        key = PredicateKey(fact[0], len(fact) - 1)
        if key == _HAVE:
            name: tuple[str, ...] = ()
        elif key == _FIELD:
            _, _, field, _, value = fact
            name = (field, value) if field in _VALUED else (field,)
        else:
            continue
        if name not in seen:
            seen.add(name)
            yield fact


def strange_names(
    base: FactBase, program: CheckedProgram, lines: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Return a warning for each field name, group and app of rules that no record has.

    A base without records says nothing about names. Of what rules ask of a peer's records,
    only a name is reported to which a name here is close: others may be the peer's.

    Args:
        base: the facts.
        program: the rules.
        lines: the lines of their text, to show the places.
    """
    known = _Known(base)
    reporter = Reporter(SourceText(program.source, tuple(lines)))
    suggester = Suggester(_MOST_COMPARISONS)
    seen: set[tuple[tuple[str | None, ...], str, bool]] = set()
    for fields, term, is_theirs in _names(program) if known.records else ():
        asked = (fields, term.value, is_theirs)
        if asked in seen or any(known.has(field, term.value) for field in fields):
            continue
        seen.add(asked)
        near = suggester.closest(term.value, known.all(fields[0]))
        if is_theirs and near is None:
            continue
        what = " or ".join("field" if field is None else field.lower() for field in fields)
        reporter.warn(
            "020-08",
            term.span,
            f"no record here has the {what} {show(str(term))}",
            f"did you mean {show(str(Constant(near)))}?" if near else None,
        )
    return reporter.warnings


def _names(program: CheckedProgram) -> Iterator[tuple[tuple[str | None, ...], Constant, bool]]:
    """Yield the names of rules: whose values they may be, or None for the name of a field.

    A name is written in the atom itself or in a comparison, or it is one of the constants of a
    helper that has the variable there, negated too: `Team('a') :- true.` and
    `Field(P,'Group',_,G), Team(G)`.
    Such a constant may be of several fields. The last says whether it is asked of what a peer
    advertises.
    """
    constants = _enumerations(program.rules)
    helped: dict[tuple[PredicateKey, int], dict[str | None, bool]] = {}
    for rule in program.rules:
        variables: dict[str, tuple[str | None, bool]] = {}
        for field, term, is_theirs in _places(rule):
            if isinstance(term, Variable):
                variables[term.name] = field, is_theirs
            elif isinstance(term, Constant) and _is_asked(field, term):
                yield (field,), term, is_theirs
        for term, other in _compared(rule):
            field, is_theirs = variables.get(term.name, (None, False))
            if field is not None:
                yield (field,), other, is_theirs
        for _, atom in rule.uses():
            for at, term in enumerate(atom.terms):
                place = (atom.key, at)
                if place in constants and isinstance(term, Variable) and term.name in variables:
                    field, is_theirs = variables[term.name]
                    asked = helped.setdefault(place, {})
                    asked[field] = is_theirs and asked.get(field, True)
    for place, asked in helped.items():
        for constant in constants[place]:
            fields = tuple(field for field in asked if _is_asked(field, constant))
            if len(fields) == len(asked):
                yield fields, constant, all(asked.values())


def _places(rule: Rule) -> Iterator[tuple[str | None, Term, bool]]:
    """Yield the terms at which a rule has the name of a field, or the value of one of `_VALUED`."""
    for _, atom in rule.uses():
        at = FIELD_POSITIONS.get(atom.key)
        if at is None:
            continue
        name, is_theirs = atom.terms[at], atom.key != _FIELD
        yield None, name, is_theirs
        if isinstance(name, Constant) and name.value in _VALUED:
            yield name.value, atom.terms[-1], is_theirs


def _is_asked(field: str | None, term: Constant) -> bool:
    """Tell whether a name is looked up: one close to a standard name is reported elsewhere."""
    if field is not None:
        return True
    return term.value not in FIELD_NAMES and closest(term.value, FIELD_NAMES) is None


def _compared(rule: Rule) -> Iterator[tuple[Variable, Constant]]:
    """Yield the variables that a rule compares with a constant by `!=`."""
    for item in rule.body:
        match item:
            case Inequality(Variable() as variable, Constant() as value) | Inequality(
                Constant() as value, Variable() as variable
            ):
                yield variable, value
            case _:
                pass


def _enumerations(rules: Sequence[Rule]) -> dict[tuple[PredicateKey, int], list[Constant]]:
    """Return the places of heads at which every rule of a predicate has a constant, with these."""
    found: dict[tuple[PredicateKey, int], list[Constant]] = {}
    others: set[tuple[PredicateKey, int]] = set()
    for rule in rules:
        for at, term in enumerate(rule.head.terms):
            if isinstance(term, Constant):
                found.setdefault((rule.head.key, at), []).append(term)
            else:
                others.add((rule.head.key, at))
    return {place: terms for place, terms in found.items() if place not in others}


class _Known:
    """The names that records have; of each field, values are gathered once, from its column."""

    def __init__(self, base: FactBase) -> None:
        self._base = base
        self._fields = base.relations.get(_FIELD) or Relation(_FIELD.arity)
        self._values: dict[str | None, Ids] = {}
        self._texts: dict[str | None, list[str]] = {}
        have = base.relations.get(_HAVE) or Relation(_HAVE.arity)
        self.records = have.count(EVERYTHING)

    def has(self, field: str | None, name: str) -> bool:
        """Tell whether some record has a field of a name, or a field with a value."""
        number = self._base.dictionary.find(name)
        if number < 0:
            return False
        if field is None:  # rows are kept by the names of fields
            return bool(self._fields.count(Pattern(((_NAME_AT, number),))))
        values = self._ids(field)
        at = int(np.searchsorted(values, number))
        return at < len(values) and int(values[at]) == number

    def all(self, field: str | None) -> list[str]:
        """Return the names of all fields, or all values of a field; none if they are many."""
        found = self._texts.get(field)
        if found is None:
            ids = self._ids(field)
            found = self._base.dictionary.texts(ids) if len(ids) <= _MOST_NAMES else []
            self._texts[field] = found
        return found

    def _ids(self, field: str | None) -> Ids:
        """Return the numbers of the names of all fields, or of the values of one, sorted."""
        found = self._values.get(field)
        if found is None:
            found = self._values[field] = self._gather(field)
        return found

    def _gather(self, field: str | None) -> Ids:
        pattern, at = EVERYTHING, _NAME_AT
        if field is not None:
            number = self._base.dictionary.find(field)
            if number < 0:
                return np.empty(0, np.int32)
            pattern, at = Pattern(((_NAME_AT, number),)), _VALUE_AT
        size = self._base.size
        some = [distinct_ids(part.column(at), size) for part in self._fields.select(pattern)]
        return distinct_ids(np.concatenate([np.empty(0, np.int32), *some]), size)
