"""Questions: rules over the facts of a lace or over given facts, and why an answer is as it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lace.engine.budget import Run, Statistics
from lace.errors import LimitExceeded
from lace.facts.lines import Fact, FactLineError, parse_fact, parse_typed_fact
from lace.policy.exposure import scope_name
from lace.query.evaluate import (
    ENGINES,
    Rules,
    check_engine,
    check_rules,
    evaluate_given,
    find_predicates,
    with_given,
)
from lace.query.preview import Decision, Preview
from lace.query.result import AnswerLostError, Result
from lace.query.store_query import find_strange_names, retried
from lace.rules.limits import RuleLimits, check_arity
from lace.rules.profiles import ALLOW_QUERY_RECORD, CAN_QUERY_RECORD, MAY_REQUEST, MAY_SEND
from lace.rules.syntax import PredicateKey
from lace.why.explanation import Explanation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lace.api.lace import Lace
    from lace.base.limits import Settings
    from lace.rules.program import CheckedProgram
    from lace.store.sqlite.snapshot import SqliteSnapshot

__all__ = [
    "ENGINES",
    "AnswerLostError",
    "Decision",
    "Explanation",
    "Fact",
    "FactLineError",
    "GivenFacts",
    "PredicateKey",
    "Preview",
    "Result",
    "RuleLimits",
    "Rules",
    "Run",
    "Statistics",
    "ask_facts",
    "ask_lace",
    "check_engine",
    "check_rules",
    "explain_exchange",
    "find_predicates",
    "find_strange_names",
    "new_statistics",
    "parse_typed_fact",
    "retried",
    "with_given",
]


def new_statistics() -> Statistics:
    """Return statistics that take the time."""
    return Statistics(clock=time.perf_counter_ns)


def ask_lace(
    lace: Lace,
    checked: CheckedProgram,
    predicates: Sequence[str],
    *,
    engine: str = "embedded",
    statistics: Statistics | None = None,
    snapshot: SqliteSnapshot | None = None,
) -> Result:
    """Ask a lace and make all texts; damage that shows only then is met by asking again."""

    def ask() -> Result:
        result = lace.query(
            checked,
            engine=engine,
            predicates=predicates,
            statistics=statistics,
            snapshot=snapshot,
        )
        for predicate in predicates:
            result.rows(predicate)
        return result

    return retried(lace.store, ask)


def ask_facts(
    settings: Settings,
    checked: CheckedProgram,
    facts: Iterable[Fact],
    predicates: Sequence[str],
    *,
    engine: str = "embedded",
    statistics: Statistics | None = None,
) -> Result:
    """Evaluate checked rules over given facts; the settings say how Spark is used."""
    options = None
    if engine == "spark":
        from lace.spark.engine.session import options_of

        options = options_of(settings)
    return evaluate_given(
        checked,
        facts,
        engine=engine,
        predicates=predicates,
        statistics=statistics,
        options=options,
    )


def explain_exchange(
    preview: Preview, name: str, values: Sequence[str]
) -> tuple[Explanation | Decision, bool]:
    """Explain a fact of an exchange, and tell whether it holds, or the record would move.

    One's own predicates may be named as they are written. What exposures allow is asked of all
    of them together.
    """
    executable, arity = preview.executable, len(values)
    ours = scope_name(executable.our_scope, PredicateKey(name, arity))
    scoped = ours.name if ours in executable.ours.derived else name
    if arity == 1 and name in (MAY_SEND.name, MAY_REQUEST.name):
        decision = preview.decide(scoped, values[0])
        return decision, decision.moves
    if (name, arity) == ALLOW_QUERY_RECORD:
        scoped = CAN_QUERY_RECORD.name
    explanation = preview.why(scoped, *values)
    return explanation, explanation.holds


# -- Facts of files, as lines.

_LEAST_LINE_BYTES = 1 << 20
"""A line may have as many bytes, however few the limits of values and arity allow."""


class GivenFacts:
    """The facts of files, at most as many as an evaluation takes."""

    def __init__(self, limits: RuleLimits, check: Callable[[Fact], None] | None = None) -> None:
        self._limits = limits
        self._check = check
        self._most = limits.max_base_facts + limits.max_runtime_facts
        self._check_at = self._most
        self.facts: list[Fact] = []

    @property
    def max_line_bytes(self) -> int:
        """The bytes of a line, its LF included, that can be a fact within the limits."""
        limits = self._limits
        return max(_LEAST_LINE_BYTES, 1024 + limits.max_arity * (2 * limits.max_value_bytes + 3))

    def add(self, line: bytes) -> None:
        """Add the fact of a line."""
        fact = parse_fact(line, max_value_bytes=self._limits.max_value_bytes)
        check_arity(fact[0], len(fact) - 1, self._limits)
        if self._check is not None:
            self._check(fact)
        self.facts.append(fact)
        if len(self.facts) > self._check_at:
            self.facts = list(dict.fromkeys(self.facts))  # what is there twice counts once
            if len(self.facts) > self._most:
                raise LimitExceeded(
                    f"these are more than {self._most:,} facts",
                    limit="max_base_facts",
                    allowed=self._limits.max_base_facts,
                    observed=len(self.facts),
                    rule="G18",
                )
            self._check_at = len(self.facts) + self._most

    @property
    def predicates(self) -> set[PredicateKey]:
        """The predicates that have facts."""
        shapes = {(fact[0], len(fact)) for fact in self.facts}
        return {PredicateKey(name, length - 1) for name, length in shapes}
