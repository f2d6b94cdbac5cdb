"""clingo on the small workloads: the rules as the differential tests translate them.

One evaluation is grounding and solving; reading the program's text is a step of its own.
As a program it is one fresh process that tells its steps:
`python -m benchmarks.peers_clingo WORKLOAD FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import clingo

from benchmarks.measure import Steps
from benchmarks.workload_records import read_facts
from benchmarks.workloads import GOALS, PROGRAMS
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from tests.differential.clingo_programs import Tests, translate_facts, translate_rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.rules.syntax import PredicateKey

__all__ = ["ClingoPeer"]

ROUNDS: Final = 7


class ClingoPeer:
    """A workload with its facts, as a program of the solver."""

    def __init__(self, workload: str, facts: Iterable[tuple[str, ...]]) -> None:
        names: dict[PredicateKey, str] = {}
        profile = QUERY.with_base([("Edge", 2), ("Candidate", 2)])
        program = check_source(PROGRAMS[workload], profile=profile)
        self.text = translate_facts(facts, names) + translate_rules(program, names)
        (goal,) = (key for key in program.derived if str(key) == GOALS[workload])
        self._goal = names[goal], goal.arity

    def read(self) -> clingo.Control:
        """Return a solver that has read the program."""
        control = clingo.Control(logger=lambda _code, _message: None)
        control.add("base", [], self.text)
        return control

    def evaluate(self, control: clingo.Control) -> int:
        """Ground and solve; return how many facts the last predicate has."""
        control.ground([("base", [])], context=Tests())
        control.solve()
        return sum(1 for _ in control.symbolic_atoms.by_signature(*self._goal))

    def rows(self) -> frozenset[tuple[str, ...]]:
        """Return the facts of the last predicate."""
        control = self.read()
        self.evaluate(control)
        atoms = control.symbolic_atoms.by_signature(*self._goal)
        return frozenset(tuple(value.string for value in atom.symbol.arguments) for atom in atoms)


def _measure(workload: str, folder: Path, steps: Steps) -> None:
    with steps.step("translate"):
        peer = ClingoPeer(workload, read_facts(folder))
    for _ in range(ROUNDS):
        with steps.step("read"):
            control = peer.read()
        with steps.step(workload):
            count = peer.evaluate(control)
        steps.count(workload, count)


if __name__ == "__main__":
    measured = Steps()
    _measure(sys.argv[1], Path(sys.argv[2]), measured)
    measured.tell()
