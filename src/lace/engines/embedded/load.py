"""Facts as columns of numbers: from tuples of text to relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.base.text import shorten
from lace.engines.budget import split_counts
from lace.engines.embedded.keys import RowSet
from lace.engines.embedded.relation import Relation
from lace.errors import EngineError
from lace.facts.lines import check_value
from lace.rules.syntax import NAME, Atom, Cardinality, Constant, NegatedAtom, PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.engines.embedded.dictionary import Ids, Texts
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Term

__all__ = [
    "GroupedFacts",
    "columns_of",
    "count_classes",
    "group_facts",
    "intern_constants",
    "intern_rows",
    "intern_values",
    "relations_of",
]


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
    """Return facts by predicate; what is grouped already stays as it is.

    Raises:
        EngineError: something among them is not a tuple of a name and texts.
    """
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
    columns: Mapping[PredicateKey, tuple[list[Ids], int]], size: int
) -> dict[PredicateKey, Relation]:
    """Return relations of columns; rows that are there twice count once."""
    made: dict[PredicateKey, Relation] = {}
    for key, (each, rows) in columns.items():
        distinct, count = RowSet(key.arity, size).add(each, rows)
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
