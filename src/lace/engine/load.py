"""Facts as columns of numbers: from tuples of text to relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lace.base.text import shorten
from lace.columns.index import RowSet
from lace.columns.keys import nothing
from lace.columns.relation import Relation
from lace.engine.budget import split_counts
from lace.errors import EngineError
from lace.facts.lines import check_value
from lace.rules.syntax import NAME, Atom, Cardinality, Constant, NegatedAtom, PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.columns.dictionary import Fingerprints, Ids, Texts
    from lace.columns.keys import Look
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Term


class GroupedFacts(dict[PredicateKey, list[str]]):
    """The values of facts by predicate, row after row; of one without arguments, one text."""

    def facts(self) -> Iterator[tuple[str, ...]]:
        """Yield the facts."""
        for (name, arity), values in self.items():
            if not arity:
                yield (name,)
                continue
            for at in range(0, len(values), arity):
                yield (name, *values[at : at + arity])


def group_facts(facts: Iterable[Sequence[str]] | GroupedFacts) -> GroupedFacts:
    """Return facts by predicate; what is grouped already stays as it is."""
    if isinstance(facts, GroupedFacts):
        return facts
    grouped: dict[tuple[object, int], list[str]] = {}
    fact: object = None
    try:
        waiting = iter(facts)
    except TypeError:
        kind = type(facts).__name__
        raise EngineError(f"facts are an iterable of tuples, not {kind}") from None
    try:
        for fact in waiting:
            if type(fact) is not tuple and type(fact) is not list:
                raise TypeError
            key = fact[0], len(fact) - 1
            values = grouped.get(key)
            if values is None:
                values = grouped[key] = []
            values += fact[1:]
    except (TypeError, IndexError) as error:
        raise EngineError(
            f"a fact is a tuple of a predicate name and texts, not {_shown(fact)}",
            hint="as in [('Edge','a','b')]",
        ) from error
    made = GroupedFacts()
    for (name, arity), values in grouped.items():
        if not isinstance(name, str):
            raise EngineError(
                f"a fact is a tuple of a predicate name and texts, not {_shown(name)}"
            )
        if not NAME.fullmatch(name):
            raise EngineError(
                f"{_shown(name)} is no name of a predicate",
                rule="030-17",
                hint="a letter, then letters, digits, _, ~ and -",
            )
        made[PredicateKey(name, arity)] = values if arity else [""]
    return made


def _shown(value: object) -> str:
    if isinstance(value, (str, tuple, list)):
        return shorten(repr(value[:8]), 80)
    return type(value).__name__


def check_values(values: Sequence[str], max_value_bytes: int) -> None:
    """Refuse what is not text, not in NFC or too long; nothing is cut or left out."""
    try:
        joined = "".join(values)
    except TypeError:
        odd = next(kind for kind in map(type, values) if kind is not str)
        raise EngineError(f"a value of a fact is text, not {odd.__name__}") from None
    if joined.isascii() and joined.isprintable() and max(map(len, values)) <= max_value_bytes:
        return  # as nearly always, and quicker than one by one
    for value in values:
        check_value(value, max_value_bytes)


def intern_rows(
    key: PredicateKey, values: Sequence[str], dictionary: Texts, max_value_bytes: int
) -> list[Ids]:
    """Return the columns of rows whose values come one after the other."""
    return columns_of(key, intern_values(values, dictionary, max_value_bytes)) if key.arity else []


def columns_of(key: PredicateKey, ids: Ids) -> list[Ids]:
    """Return the columns of rows whose values come one after the other, as numbers."""
    return [ids[at :: key.arity].copy() for at in range(key.arity)]


def intern_values(values: Sequence[str], dictionary: Texts, max_value_bytes: int) -> Ids:
    """Return the numbers of values; those that are new here are checked."""
    before = len(dictionary)
    try:
        ids = dictionary.intern_all(values)
        if len(dictionary) > before:
            check_values(dictionary.unchecked(before), max_value_bytes)
    except BaseException as error:
        dictionary.forget(before)  # or it would not be new, and not be refused, next time
        if isinstance(error, (TypeError, AttributeError)):  # a value that is no text
            check_values(values, max_value_bytes)
        raise
    return ids


def relations_of(
    columns: Mapping[PredicateKey, tuple[list[Ids], int]], size: int, look: Look = nothing
) -> dict[PredicateKey, Relation]:
    """Return relations of columns; rows that are there twice count once.

    `look` is called between two stretches of many rows; what it raises ends this.
    """
    made: dict[PredicateKey, Relation] = {}
    for key, (each, rows) in columns.items():
        look()
        distinct, count = RowSet(key.arity, size).add(each, rows, look)
        made[key] = Relation.of(distinct, count)
    return made


def intern_constants(program: CheckedProgram, dictionary: Texts) -> None:
    """Number every constant of the rules, so that running them makes no new numbers."""
    values: list[str] = []

    def collect(terms: Iterable[Term]) -> None:
        values.extend(term.value for term in terms if isinstance(term, Constant))

    for rule in program.rules:
        collect(rule.head.terms)
        for part in rule.body:
            match part:
                case Atom():
                    collect(part.terms)
                case NegatedAtom() | Cardinality():
                    collect(part.atom.terms)
                case _:
                    pass
    dictionary.intern_all(values)


def count_classes(relations: Mapping[PredicateKey, Relation]) -> tuple[int, int]:
    """Return how many base facts there are, and how many runtime and advertisement facts."""
    return split_counts({key: found.rows for key, found in relations.items()})


# -- Texts of a dictionary of others, under numbers of one's own.
#
# Numbers are given as texts come up here, so they tell nothing of what the others have
# besides. A text takes eight bytes: it is held as its number there.

_SMALL_SHARE: Final = 64
"""Numbers that are fewer than one in this many are sorted, not looked up in a table."""


class ReferredTexts:
    """Some texts of a dictionary, numbered again."""

    def __init__(self, outer: Texts, ids: Ids, max_value_bytes: int) -> None:
        self.outer = outer
        self._max_value_bytes = max_value_bytes
        self._link(ids)

    def _link(self, ids: Ids) -> None:
        self._count = len(ids)
        self._ids = ids
        self._numbers = np.full(len(self.outer), -1, np.int32)
        self._numbers[ids] = np.arange(len(ids), dtype=np.int32)

    def take_outer(self, outer: Texts) -> None:
        """Refer to another dictionary; the numbers here stay."""
        if outer is not self.outer:
            ids = outer.intern_all(self.outer.texts(self.ids))
            self.outer = outer
            self._link(ids)

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> Ids:
        """The number that each text has in the other dictionary."""
        return self._ids[: self._count]

    def adopt(self, ids: Ids) -> Ids:
        """Return the numbers of texts that are named by their numbers in the other dictionary.

        New ones are given in the order in which these come.
        """
        self._grow(len(self.outer))
        made = self._numbers[ids]
        is_new = made < 0
        if is_new.any():
            self._add(self._first_ones(ids[is_new]))
            made = self._numbers[ids]
        return made

    def _first_ones(self, ids: Ids) -> Ids:
        """Return numbers, each once, in the order in which they come up."""
        if len(ids) * _SMALL_SHARE < len(self._numbers):
            _, first = np.unique(ids, return_index=True)
            first.sort()
            return ids[first]
        place = np.empty(len(self._numbers), np.int32)
        at = np.arange(len(ids), dtype=np.int32)
        place[ids[::-1]] = at[::-1]  # of equal ones the first is written last
        first_ones: Ids = ids[place[ids] == at]
        return first_ones

    def _grow(self, size: int) -> None:
        if size > len(self._numbers):
            more = np.full(max(size, len(self._numbers) * 5 // 4), -1, np.int32)
            more[: len(self._numbers)] = self._numbers
            self._numbers = more

    def _add(self, fresh: Ids) -> None:
        behind = self._count + len(fresh)
        if behind > len(self._ids):
            more = np.empty(max(behind, len(self._ids) * 5 // 4), np.int32)
            more[: self._count] = self.ids
            self._ids = more
        self._ids[self._count : behind] = fresh
        self._numbers[fresh] = np.arange(self._count, behind, dtype=np.int32)
        self._count = behind

    def find(self, text: str) -> int:
        """Return the number of a text, -1 when it has none here."""
        return int(self.find_all([text])[0])

    def find_all(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that has none here."""
        found = self.outer.find_all(texts)
        self._grow(len(self.outer))
        return np.where(found < 0, np.int32(-1), self._numbers[found])

    def intern(self, text: str) -> int:
        """Return the number of a text; it gets one now if it had none."""
        return int(self.intern_all([text])[0])

    def intern_all(self, values: Sequence[str]) -> Ids:
        """Return the numbers of texts; they get one now if they had none."""
        if values:
            check_values(values, self._max_value_bytes)
        return self.adopt(self.outer.intern_all(values))

    def unchecked(self, since: int) -> list[str]:
        """Return nothing: what is interned here is checked before."""
        del since
        return []

    def forget(self, since: int) -> None:
        """Take back numbers from one on; nobody may use them."""
        self._numbers[self.ids[since:]] = -1
        self._count = min(since, self._count)

    def text(self, number: int) -> str:
        """Return the text of a number."""
        return self.outer.text(int(self._ids[number]))

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers, in their order."""
        return self.outer.texts(self._ids[ids])

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return for each number 64 bits that its text alone decides."""
        return self.outer.fingerprints(self._ids[ids])

    def rows(self, columns: Iterable[Ids], count: int) -> list[tuple[str, ...]]:
        """Return rows of numbers as rows of text."""
        return self.outer.rows([self._ids[column] for column in columns], count)
