"""What an exchange asks of facts in numbers: which records changed, and their fields.

An exchange needs few texts: those of records that came or went since it asked last, and
the fields that are advertised of them. Everything else stays in numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lace.columns.dictionary import Dictionary
from lace.columns.index import Members
from lace.columns.keys import distinct_sorted
from lace.columns.relation import EVERYTHING, Pattern, Relation
from lace.engine.load import GroupedFacts
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.columns.dictionary import Ids, Texts
    from lace.columns.keys import Flags
    from lace.engine.factbase import FactBase
    from lace.facts.lines import Fact


_FIELD: Final = PredicateKey("Field", 4)
_ADVERTISED: Final = PredicateKey("Advertised", 2)
_ADVERTISED_FIELD: Final = PredicateKey("AdvertisedField", 5)
Field = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ClaimTable:
    """Advertisement facts in a form to be kept: texts, and rows of places among them."""

    texts: tuple[str, ...]
    rows: Mapping[str, bytes]


def that_are(base: FactBase, key: PredicateKey, numbers: Ids) -> Ids:
    """Return those of some numbers that are in the first column of a predicate."""
    return numbers[_mask(base, key, numbers)]


def that_are_not(base: FactBase, key: PredicateKey, numbers: Ids) -> Ids:
    """Return those of some numbers that are not in the first column of a predicate."""
    return numbers[~_mask(base, key, numbers)]


def _mask(base: FactBase, key: PredicateKey, numbers: Ids) -> Flags:
    found = np.zeros(len(numbers), np.bool_)
    relation = base.relations.get(key) or Relation(key.arity)
    for selection in relation.select(EVERYTHING):
        found |= selection.members(0, base.size).mask(numbers)
    return found


def numbers_of(base: FactBase, texts: Iterable[str]) -> Ids:
    """Return the numbers of texts that have one."""
    found = base.dictionary.find_all(list(texts))
    return found[found >= 0]


def others(numbers: Ids, excluded: Ids) -> Ids:
    """Return those of some numbers that are not among others."""
    return numbers[~np.isin(numbers, excluded)]


def first_of(base: FactBase, numbers: Ids, count: int) -> Ids:
    """Return this many of some numbers, chosen by their texts alone.

    The order of numbers tells in which order texts arrived here, which is nobody's business.
    """
    if count >= len(numbers):
        return numbers
    prints = base.dictionary.fingerprints(numbers)
    return numbers[np.argsort(prints, stable=True)[:count]]


def claims_about(base: FactBase, records: Iterable[str]) -> list[Fact]:
    """Return the advertisement facts about some records."""
    made: list[Fact] = []
    claimed = base.relations.get(_ADVERTISED)
    numbers = numbers_of(base, records) if claimed is not None and claimed.rows else None
    if numbers is None or not len(numbers):
        return made
    wanted = Members(numbers, base.size)
    for key in (_ADVERTISED, _ADVERTISED_FIELD):
        for selection in (base.relations.get(key) or Relation(key.arity)).select(EVERYTHING):
            chosen = np.flatnonzero(wanted.mask(selection.column(0)))
            columns = [selection.column(at)[chosen] for at in range(key.arity)]
            made += [(key.name, *row) for row in base.dictionary.rows(columns, len(chosen))]
    return made


def fields_of(base: FactBase, records: Ids, names: frozenset[str] | None) -> dict[str, list[Field]]:
    """Return name, index and value of the fields of some records; of all names, or of some."""
    relation = base.relations.get(_FIELD) or Relation(_FIELD.arity)
    made: dict[str, list[Field]] = {}
    if not len(records):
        return made
    wanted = Members(records, base.size)
    for pattern in _patterns(base, names):
        for selection in relation.select(pattern):
            chosen = np.flatnonzero(wanted.mask(selection.column(0)))
            if not len(chosen):
                continue
            columns = [base.dictionary.texts(selection.column(at)[chosen]) for at in range(4)]
            for record, name, index, value in zip(*columns, strict=True):
                made.setdefault(record, []).append((name, index, value))
    return made


def claim_table(base: FactBase) -> ClaimTable:
    """Return all advertisement facts as texts, each once, and rows of places among them."""
    columns = {key: _columns(base, key, EVERYTHING) for key in (_ADVERTISED, _ADVERTISED_FIELD)}
    together = [column for each in columns.values() for column in each]
    present = distinct_sorted(np.concatenate(together))
    rows = {
        key.name: np.searchsorted(present, np.stack(each, axis=1)).astype("<i4").tobytes()
        for key, each in columns.items()
    }
    return ClaimTable(tuple(base.dictionary.texts(present)), rows)


def facts_of_table(table: ClaimTable) -> GroupedFacts:
    """Return the facts of a table."""
    made = GroupedFacts()
    texts = np.array([*table.texts, ""], object)
    for key in (_ADVERTISED, _ADVERTISED_FIELD):
        places = np.frombuffer(table.rows.get(key.name, b""), "<i4")
        if len(places) % key.arity or bool(((places < 0) | (places >= len(table.texts))).any()):
            raise ValueError("a table of claims contradicts itself")
        if len(places):
            made[key] = texts[places].tolist()
    return made


def _columns(base: FactBase, key: PredicateKey, pattern: Pattern) -> list[Ids]:
    """Return the columns of the rows that fit a pattern."""
    relation = base.relations.get(key) or Relation(key.arity)
    pieces = [
        [selection.column(at) for at in range(key.arity)] for selection in relation.select(pattern)
    ]
    if not pieces:
        return [np.empty(0, np.int32)] * key.arity
    return [np.concatenate(columns) for columns in zip(*pieces, strict=True)]


def _patterns(base: FactBase, names: frozenset[str] | None) -> list[Pattern]:
    """Return what the fields of some names fit, or of all."""
    if names is None:
        return [EVERYTHING]
    numbers = base.dictionary.find_all(sorted(names))
    return [Pattern(((1, int(number)),)) for number in numbers if number >= 0]


class RecordChanges:
    """Which records came and went since the last time, whatever numbers they have now."""

    def __init__(self) -> None:
        self._dictionary: Texts | None = None
        self._size = 0
        self._numbers: Ids = np.empty(0, np.int32)

    def begin_with(self, records: Sequence[str]) -> None:
        """Take these to be the ones of the last time."""
        self._dictionary = Dictionary()
        self._numbers = self._dictionary.intern_all(records)

    def since(self, base: FactBase, numbers: Ids) -> tuple[Ids, list[str]]:
        """Return the numbers of those that came, and the texts of those that went."""
        before, old = self._numbers, self._dictionary
        self._dictionary, self._numbers = base.dictionary, numbers
        if old is not base.dictionary and old is not None:
            kept = base.dictionary.find_all(old.texts(before))
            strangers = old.texts(before[kept < 0])
            come, gone = _differences(kept[kept >= 0], numbers, base.size)
            return come, [*strangers, *base.dictionary.texts(gone)]
        come, gone = _differences(before, numbers, base.size)
        return come, base.dictionary.texts(gone)


def _differences(before: Ids, after: Ids, size: int) -> tuple[Ids, Ids]:
    flags = np.zeros(size, np.bool_)
    flags[before] = True
    come = after[~flags[after]]
    flags[before] = False
    flags[after] = True
    return come, before[~flags[before]]
