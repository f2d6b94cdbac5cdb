"""A result: the facts that follow from rules, as a mapping, with explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lace.base.arguments import check_argument
from lace.base.arrow import arrow_table
from lace.columns.segment_journal import SegmentDamagedError
from lace.errors import EngineError
from lace.facts.lines import parse_typed_fact
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    import pyarrow

    from lace.algebra.nodes import Answer
    from lace.engine.budget import Statistics
    from lace.engine.engine import Evaluation
    from lace.rules.program import CheckedProgram
    from lace.why.explanation import Explanation


_SHOWN_ROWS: Final = 20
"""Facts of a predicate that a notebook shows."""
_MOST_SORTED: Final = 100_000
"""Facts up to which the first ones are looked for."""


class AnswerLostError(EngineError):
    """The answer is lost; the same question can be asked again."""


class Result(Mapping[str, frozenset[tuple[str, ...]]]):
    """The facts of every predicate that rules define, by `"Name/arity"`.

    Sets of texts are made when they are asked for; `count` needs none.
    """

    def __init__(
        self,
        checked: CheckedProgram,
        answer: Answer,
        on_damage: Callable[[], None] | None = None,
    ) -> None:
        self._checked = checked
        self._answer = answer
        self._on_damage = on_damage
        self._keys = {str(key): key for key in answer.derived}
        self._rows: dict[str, list[tuple[str, ...]]] = {}
        self._sets: dict[str, frozenset[tuple[str, ...]]] = {}

    def __getitem__(self, predicate: str) -> frozenset[tuple[str, ...]]:
        found = self._sets.get(predicate)
        if found is None:
            found = frozenset(self.rows(predicate))
            self._sets[predicate] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, predicate: object) -> bool:
        return predicate in self._keys

    def __repr__(self) -> str:
        return f"<Result: {', '.join(self._summary()) or 'no predicates'}>"

    def _summary(self) -> Iterator[str]:
        for name, key in self._keys.items():
            rows = self._answer.made(key)
            yield f"{name} {'not made' if rows is None else rows}"

    def _repr_html_(self) -> str:
        """Return the result for a notebook: each predicate with its first facts."""
        from lace.why.explanation import result_html

        shown = {
            name: (self._answer.made(key), self._first(key)) for name, key in self._keys.items()
        }
        return result_html(shown)

    def _first(self, key: PredicateKey) -> list[tuple[str, ...]]:
        rows = self._answer.made(key)
        if rows is None or rows > _MOST_SORTED:
            return []
        return sorted(self.rows(str(key)))[:_SHOWN_ROWS]

    @property
    def checked(self) -> CheckedProgram:
        """The rules of this result."""
        return self._checked

    def count(self, predicate: str) -> int:
        """Return how many facts a predicate has, without making their texts."""
        key = self._keys[predicate]
        with self._guarded():
            return self._answer.count(key)

    def rows(self, predicate: str) -> list[tuple[str, ...]]:
        """Return the facts of a predicate, each once, in no particular order.

        Raises:
            LimitExceeded: the predicate was only counted so far, and making it is too much.
            AnswerLostError: the stored facts turned out to be damaged; asked again, they are
                made again from the records.
        """
        found = self._rows.get(predicate)
        if found is None:
            key = self._keys[predicate]
            with self._guarded():
                found = self._rows[predicate] = self._answer.texts(key)
        return found

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn damage of stored facts into an error that says what to do."""
        try:
            yield
        except SegmentDamagedError as error:
            if self._on_damage:
                self._on_damage()
            raise AnswerLostError(
                f"the segments are damaged: {error.message}",
                hint="ask again: they are made again from the records",
            ) from error

    @property
    def statistics(self) -> Statistics:
        """What the embedded engine did for this result."""
        return self._evaluation.statistics

    @property
    def _evaluation(self) -> Evaluation:
        from lace.engine.engine import Evaluation

        if not isinstance(self._answer, Evaluation):
            raise EngineError(
                "only the embedded engine explains its answers", hint="use engine='embedded'"
            )
        return self._answer

    def why(self, predicate: str, *values: str) -> Explanation:
        """Explain a fact: why it holds, or why it does not.

        The fact is its predicate, as a name or a name with its arity, and its values; or one
        text, as it is written in rules, in fact lines and in explanations.

        >>> result.why("Path", "a", "b") == result.why("Path('a','b')")  # doctest: +SKIP
        True

        Raises:
            FactLineError: the one text is no fact.
            UsageError: the predicate or a value is no text.
            EngineError: another engine than the embedded one has answered.
        """
        check_argument(predicate, str, "predicate is a name, or a fact as text")
        for value in values:
            check_argument(value, str, "a value of a fact is text")
        from lace.why.why_not import explain_fact

        name = predicate.partition("/")[0]
        if not values and "(" in predicate:
            name, *given = parse_typed_fact(predicate, self._checked.limits.max_value_bytes)
            values = tuple(given)
        with self._guarded():
            return explain_fact(self._evaluation, PredicateKey(name, len(values)), values)

    def to_arrow(self, predicate: str) -> pyarrow.Table:
        """Return the facts of a predicate as a pyarrow table, with columns called 0, 1 and so on.

        Raises:
            EngineError: pyarrow is not installed.
        """
        key = self._keys[predicate]
        columns = list(zip(*self.rows(predicate), strict=True)) or [()] * key.arity
        return arrow_table({str(at): ("string", columns[at]) for at in range(key.arity)})
