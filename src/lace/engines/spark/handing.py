"""Handing a fixed point, or a whole program, to an engine in this process.

Recursion over a small table takes an engine in memory milliseconds a round, and a cluster a
job. So where what a fixed point reads fits, it is collected, evaluated here and given back
as tables. The engine that does it is the caller's: engines do not know each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lace.engines.spark.relations import Relation
from lace.engines.spark.transfer import collect_columns, frame_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lace.algebra.nodes import RelationalProgram
    from lace.engines.budget import Statistics
    from lace.engines.spark.transfer import Columns, Numbers
    from lace.engines.spark.world import World
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["Handover", "hand_over"]


class Handover(Protocol):
    """An engine of this process that evaluates over columns of numbers."""

    def __call__(
        self,
        checked: CheckedProgram,
        program: RelationalProgram,
        inputs: Mapping[PredicateKey, Columns],
        *,
        constants: Mapping[str, int],
        texts: Callable[[Numbers], list[str]],
        wanted: Iterable[PredicateKey],
        statistics: Statistics,
    ) -> Mapping[PredicateKey, Columns]:
        """Return the facts of the predicates that are wanted.

        Args:
            checked: the rules, for limits and messages.
            program: what to evaluate.
            inputs: all that it reads, each row once.
            constants: the numbers of all constants.
            texts: gives the texts of numbers; asked only where a test needs them.
            wanted: the predicates to answer for.
            statistics: where to note what is done; work done before counts.

        Raises:
            LimitExceeded: it would go beyond a limit.
        """
        ...


def hand_over(
    world: World,
    checked: CheckedProgram,
    program: RelationalProgram,
    inputs: Mapping[PredicateKey, Relation],
    wanted: Iterable[PredicateKey],
    handover: Handover,
) -> None:
    """Let another engine make the facts of predicates; their relations are in the world then."""
    with world.watching():
        columns = collect_columns({key: relation.frame for key, relation in inputs.items()})
    made = handover(
        checked,
        program,
        columns,
        constants=world.constants,
        texts=world.texts.of,
        wanted=wanted,
        statistics=world.budget.statistics,
    )
    for key, (found, rows) in made.items():
        world.relations[key] = Relation(frame_of(world.session, found, rows), rows)
