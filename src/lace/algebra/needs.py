"""Which fixed points an answer needs: those of what is wanted, and of all that these read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.algebra.body import scans_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.algebra.nodes import RelationalProgram
    from lace.rules.syntax import PredicateKey

__all__ = ["needed_steps", "step_numbers"]


def step_numbers(program: RelationalProgram) -> dict[PredicateKey, int]:
    """Return the number of the fixed point that each derived predicate is of."""
    return {key: number for number, step in enumerate(program.steps) for key in step.predicates}


def needed_steps(
    program: RelationalProgram, wanted: Iterable[PredicateKey], virtual: set[PredicateKey]
) -> list[int]:
    """Return the fixed points to make for some predicates, in order.

    `virtual` are predicates that are counted without being made.
    """
    steps, step_of = program.steps, step_numbers(program)
    needed: set[int] = set()
    waiting = [step_of[key] for key in wanted]
    while waiting:
        number = waiting.pop()
        if number in needed:
            continue
        needed.add(number)
        for branch in steps[number].branches:
            for scan, _ in scans_of(branch.plan):
                found = step_of.get(scan.predicate)
                if found is not None and found != number:
                    waiting.append(found)
    # What is only counted is not made, but what it is made of is needed.
    return sorted(number for number in needed if not virtual.issuperset(steps[number].predicates))
