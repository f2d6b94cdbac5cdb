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
    from lace.rules.syntax import Rule

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
    return any(True for rule in program.rules for _ in _names(rule))


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
    seen: set[tuple[str | None, str, bool]] = set()
    for rule in program.rules if known.records else ():
        for field, term, is_theirs in _names(rule):
            asked = (field, term.value, is_theirs)
            if asked in seen or known.has(field, term.value):
                continue
            seen.add(asked)
            near = suggester.closest(term.value, known.all(field))
            if is_theirs and near is None:
                continue
            what = "field" if field is None else field.lower()
            reporter.warn(
                "020-08",
                term.span,
                f"no record here has the {what} {show(str(term))}",
                f"did you mean {show(str(Constant(near)))}?" if near else None,
            )
    return reporter.warnings


def _names(rule: Rule) -> Iterator[tuple[str | None, Constant, bool]]:
    """Yield the names of a rule: the field whose value it is, or None for the name of a field.

    The last says whether it is asked of what a peer advertises.
    """
    values: dict[str, tuple[str, bool]] = {}
    for _, atom in rule.uses():
        at = FIELD_POSITIONS.get(atom.key)
        name = atom.terms[at] if at is not None else None
        if not isinstance(name, Constant):
            continue
        is_theirs = atom.key != _FIELD
        if name.value not in FIELD_NAMES and closest(name.value, FIELD_NAMES) is None:
            yield None, name, is_theirs  # one that is close to a standard name is reported anyway
        if name.value in _VALUED:
            value = atom.terms[-1]
            if isinstance(value, Constant):
                yield name.value, value, is_theirs
            elif isinstance(value, Variable):
                values[value.name] = name.value, is_theirs
    for item in rule.body:
        match item:
            case Inequality(Variable(named), Constant() as value) | Inequality(
                Constant() as value, Variable(named)
            ) if named in values:
                field, is_theirs = values[named]
                yield field, value, is_theirs
            case _:
                pass


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
