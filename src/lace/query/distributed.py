"""Questions to the Spark engine about facts of this process, answered as any other.

Facts are numbered as the embedded engine numbers them, evaluated on Spark and collected; what
Spark hands over is evaluated by the embedded engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lace.algebra.lower import lower_program, step_numbers
from lace.columns.dictionary import Dictionary
from lace.engine.budget import Budget, Statistics, split_counts
from lace.engine.load import group_facts, intern_rows, relations_of
from lace.rules.limits import check_arity
from lace.spark.engine.local import evaluate_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from lace.columns.dictionary import Texts
    from lace.columns.relation import Relation
    from lace.engine.factbase import FactBase
    from lace.engine.load import GroupedFacts
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.session import Options

    Numbers = npt.NDArray[np.int64]
    Columns = tuple[list[Numbers], int]


def evaluate_facts(
    checked: CheckedProgram,
    facts: Iterable[Fact] | GroupedFacts,
    *,
    predicates: Iterable[PredicateKey] | None = None,
    statistics: Statistics | None = None,
    options: Options | None = None,
) -> SparkAnswer:
    """Evaluate checked rules over facts, on Spark."""
    dictionary = Dictionary()
    columns = {}
    for key, values in group_facts(facts).items():
        check_arity(*key, checked.limits)
        numbers = intern_rows(key, values, dictionary, checked.limits.max_value_bytes)
        columns[key] = numbers, len(values) // max(key.arity, 1)
    relations = relations_of(columns, max(1, len(dictionary)))
    return _ask(checked, relations, dictionary, predicates, statistics, options)


def evaluate_base(
    checked: CheckedProgram,
    base: FactBase,
    *,
    predicates: Iterable[PredicateKey] | None = None,
    statistics: Statistics | None = None,
    options: Options | None = None,
) -> SparkAnswer:
    """Evaluate checked rules over base facts that are numbered already, on Spark."""
    return _ask(checked, base.relations, base.dictionary, predicates, statistics, options)


def _ask(
    checked: CheckedProgram,
    relations: Mapping[PredicateKey, Relation],
    dictionary: Texts,
    predicates: Iterable[PredicateKey] | None,
    statistics: Statistics | None,
    options: Options | None,
) -> SparkAnswer:
    counts = {key: found.rows for key, found in relations.items()}
    noted = statistics or Statistics()
    Budget(checked, noted).check_base(*split_counts(counts))  # before anything starts
    answer = SparkAnswer(checked, relations, dictionary, options)
    program = lower_program(checked)
    wanted = predicates
    if wanted is None:
        wanted = [key for key in step_numbers(program) if key not in program.counted]
    answer.make(wanted, noted)
    return answer


class SparkAnswer:
    """An answer of the Spark engine: what was asked for is here, the rest is asked again."""

    def __init__(
        self,
        checked: CheckedProgram,
        relations: Mapping[PredicateKey, Relation],
        dictionary: Texts,
        options: Options | None = None,
    ) -> None:
        self.checked = checked
        self._options = options
        self._dictionary = dictionary
        self._counts = {key: found.rows for key, found in relations.items()}
        self._inputs: dict[PredicateKey, Columns] = {
            key: ([column.astype(np.int64) for column in found.columns()], found.rows)
            for key, found in relations.items()
            if key in checked.required_base
        }
        self._made: dict[PredicateKey, Columns] = {}
        self._added: dict[int, str] = {}

    @property
    def derived(self) -> tuple[PredicateKey, ...]:
        """The predicates that the rules define."""
        return self.checked.derived

    def make(
        self, predicates: Iterable[PredicateKey], statistics: Statistics | None = None
    ) -> None:
        """See that the facts of predicates are here."""
        from lace.spark.engine.local import LocalTexts, collect_answer

        wanted = [key for key in dict.fromkeys(predicates) if key not in self._made]
        if not wanted:
            return
        columns = [column for each, _ in self._inputs.values() for column in each]
        used = np.unique(np.concatenate([np.empty(0, np.int64), *columns]))
        dictionary = self._dictionary
        texts = LocalTexts(
            used,
            len(dictionary),
            lambda numbers: dictionary.texts(numbers.astype(np.int32)),
            lambda asked: dictionary.find_all(asked).tolist(),
        )
        made, added = collect_answer(
            self.checked,
            self._inputs,
            self._counts,
            texts,
            wanted,
            options=self._options,
            statistics=statistics,
            handover=evaluate_columns,
        )
        self._made.update(made)
        self._added.update(added)

    def made(self, key: PredicateKey) -> int | None:
        """Return how many facts a predicate has; None when they have not been made."""
        found = self._made.get(key)
        return None if found is None else found[1]

    def count(self, key: PredicateKey) -> int:
        """Return how many facts a predicate has."""
        self.make([key])
        return self._made[key][1]

    def texts(self, key: PredicateKey) -> list[tuple[str, ...]]:
        """Return the facts of a predicate, each once, in no particular order."""
        self.make([key])
        columns, rows = self._made[key]
        if not columns:
            return [()] * rows
        return list(zip(*map(self._texts, columns), strict=True))

    def _texts(self, numbers: Numbers) -> list[str]:
        known = numbers < len(self._dictionary)
        base = iter(self._dictionary.texts(numbers[known].astype(np.int32)))
        return [
            next(base) if is_known else self._added[number]
            for is_known, number in zip(known.tolist(), numbers.tolist(), strict=True)
        ]
