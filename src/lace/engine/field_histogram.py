"""Fields and links of records, counted; and names in rules that no record has.

Nothing is evaluated here. The facts of a base are looked at as they are, in numbers; texts
are made for what is told: names, examples and hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from lace.columns.index import Members
from lace.columns.keys import distinct_ids, distinct_sorted
from lace.columns.relation import EVERYTHING, Pattern, Relation
from lace.rules.checks.warnings import FIELD_POSITIONS
from lace.rules.findings import FIELD_NAMES, Reporter, SourceText, Suggester, closest, show
from lace.rules.syntax import Constant, Inequality, PredicateKey, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.columns.dictionary import Ids
    from lace.engine.factbase import FactBase
    from lace.errors import Finding
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Rule, Term


# -- Names that rules use and no record has: fields, groups and apps, compared with stored facts.
#
# Nothing is evaluated here. Each name is looked up by its number; what there is instead is listed
# only where one is missing, from the columns and without a look at any record.

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
