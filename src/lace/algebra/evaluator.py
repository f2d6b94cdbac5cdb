"""What an engine is to the rest of Lace: rules and facts in, an answer out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["Answer", "Evaluator"]


class Answer(Protocol):
    """The facts that follow from rules, by predicate."""

    @property
    def derived(self) -> tuple[PredicateKey, ...]:
        """The predicates that the rules define."""
        ...

    def made(self, key: PredicateKey) -> int | None:
        """Return how many facts a predicate has; None when they have not been made."""
        ...

    def count(self, key: PredicateKey) -> int:
        """Return how many facts a predicate has."""
        ...

    def texts(self, key: PredicateKey) -> list[tuple[str, ...]]:
        """Return the facts of a predicate, each once, in no particular order."""
        ...


class Evaluator(Protocol):
    """An engine."""

    def __call__(
        self,
        checked: CheckedProgram,
        facts: Iterable[Fact],
        *,
        predicates: Iterable[PredicateKey] | None = None,
    ) -> Answer:
        """Evaluate rules over facts; wanted are these predicates, or all.

        Raises:
            LimitExceeded: a limit was reached; there is no part of an answer.
        """
        ...
