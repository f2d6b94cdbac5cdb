"""Lace's side of the engine benchmarks: the seam that an engine fills, and one fresh process.

`LaceEngine` is the embedded engine; `NaiveEngine` is the reference evaluator, for
sizes at which it ends, so that the benchmarks themselves can be tried. As a program it tells
its steps: `python -m benchmarks.lace_side ENGINE ACTION PATH`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import lace
from benchmarks.measure import Steps
from benchmarks.workload_records import read_facts
from benchmarks.workloads import GOALS, PROGRAMS
from lace.engine.engine import EvaluationSession
from lace.facts.extract import record_facts
from lace.query.store_query import StoreSession
from lace.rules.profiles import QUERY
from lace.rules.program import Lacegram
from lace.rules.syntax import parse_predicate
from tests.oracle.naive_engine import evaluate_naively

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.workload_facts import Fact
    from lace.engine.engine import Evaluation
    from lace.rules.program import CheckedProgram

__all__ = ["ENGINES", "Engine", "Opened", "Prepared"]

ROUNDS: Final = 7
RECORD_WORKLOADS: Final = ("W1", "W2", "W3")
_PROFILE: Final = QUERY.with_base([("Edge", 2), ("Candidate", 2)])


class Opened(Protocol):
    """A lace on disk, asked for the workloads."""

    def evaluate(self, workload: str) -> int:
        """Evaluate and return how many facts the goal has.

        Indexes and plans may be kept from an earlier time, results not; no texts are made.
        """
        ...

    def follow(self, workload: str) -> None:
        """Evaluate and keep what is needed to bring the results up to date later."""
        ...

    def add(self, path: Path) -> None:
        """Store the records of a file."""
        ...

    def update(self) -> dict[str, int]:
        """Bring every workload that is followed up to date; return the sizes of the goals."""
        ...


class Prepared(Protocol):
    """A workload over facts in memory, ready to be evaluated again and again."""

    def evaluate(self) -> int:
        """Evaluate from the facts and return how many facts the goal has; no texts are made."""
        ...


class Engine(Protocol):
    """What is measured."""

    def open(self, folder: Path) -> Opened:
        """Open a lace; facts are where the lace keeps them."""
        ...

    def prepare(self, workload: str, facts: Iterable[Fact]) -> Prepared:
        """Check the rules and intern the facts."""
        ...

    def evaluate(self, workload: str, facts: Iterable[Fact]) -> int:
        """Go from the text of the rules and texts of facts to texts of results."""
        ...


class LaceEngine:
    """The embedded engine."""

    def open(self, folder: Path) -> Opened:
        return _OpenedLace(lace.open(folder))

    def prepare(self, workload: str, facts: Iterable[Fact]) -> Prepared:
        return _PreparedLace(workload, list(facts))

    def evaluate(self, workload: str, facts: Iterable[Fact]) -> int:
        return len(lace.evaluate(PROGRAMS[workload], facts)[GOALS[workload]])


class _OpenedLace:
    """A lace, asked as `Lace.query` asks it, except that answers can be made anew."""

    def __init__(self, store: lace.Lace) -> None:
        self._store = store
        self._session = StoreSession(store.store, max_value_bytes=store.settings.max_value_bytes)
        self._made: dict[str, Evaluation] = {}
        self._rules: dict[str, CheckedProgram] = {}

    def evaluate(self, workload: str) -> int:
        made = self._made.get(workload)
        if made is None:
            made = self._made[workload] = self._ask(workload)
        else:
            made.run_again()
        return made.count(parse_predicate(GOALS[workload]))

    def _ask(self, workload: str) -> Evaluation:
        if workload not in self._rules:
            self._rules[workload] = Lacegram.parse(PROGRAMS[workload]).program
        return self._session.evaluate(self._rules[workload])

    def follow(self, workload: str) -> None:
        self._ask(workload)

    def add(self, path: Path) -> None:
        self._store.import_file(path)

    def update(self) -> dict[str, int]:
        return {
            workload: self._ask(workload).count(parse_predicate(GOALS[workload]))
            for workload in self._rules
        }


class _PreparedLace:
    """Rules that are checked and facts that are interned; each time all is derived anew."""

    def __init__(self, workload: str, facts: list[Fact]) -> None:
        self._goal = parse_predicate(GOALS[workload])
        self._session = EvaluationSession()
        self._session.change(facts)
        self._rules = Lacegram.parse(PROGRAMS[workload], profile=_PROFILE).program
        self._made: Evaluation | None = None

    def evaluate(self) -> int:
        if self._made is None:
            self._made = self._session.evaluate(self._rules)
        else:
            self._made.run_again()
        return self._made.count(self._goal)


class NaiveEngine:
    """The reference evaluator, for a few hundred records at most."""

    def open(self, folder: Path) -> Opened:
        return _OpenedNaively(lace.open(folder))

    def prepare(self, workload: str, facts: Iterable[Fact]) -> Prepared:
        return _PreparedNaively(workload, list(facts))

    def evaluate(self, workload: str, facts: Iterable[Fact]) -> int:
        return self.prepare(workload, facts).evaluate()


class _PreparedNaively:
    def __init__(self, workload: str, facts: list[Fact]) -> None:
        self._goal = GOALS[workload]
        self._rules = Lacegram.parse(PROGRAMS[workload], profile=_PROFILE)
        self._facts = facts

    def evaluate(self) -> int:
        results = evaluate_naively(self._rules.program, self._facts)
        return next(len(rows) for key, rows in results.items() if str(key) == self._goal)


class _OpenedNaively:
    def __init__(self, store: lace.Lace) -> None:
        self._store = store
        self._followed: list[str] = []

    def evaluate(self, workload: str) -> int:
        with self._store.snapshot() as snapshot:
            facts = [fact for record in snapshot.records() for fact in record_facts(record)]
        return _PreparedNaively(workload, facts).evaluate()

    def follow(self, workload: str) -> None:
        self._followed.append(workload)

    def add(self, path: Path) -> None:
        self._store.import_file(path)

    def update(self) -> dict[str, int]:
        return {workload: self.evaluate(workload) for workload in self._followed}


ENGINES: Final[dict[str, type[Engine]]] = {"embedded": LaceEngine, "reference": NaiveEngine}


def _records(engine: Engine, folder: Path, steps: Steps) -> None:
    """Open a lace and evaluate; the first time of a step is cold, the others are warm."""
    with steps.step("open"):
        opened = engine.open(folder)
    for workload in RECORD_WORKLOADS * ROUNDS:
        with steps.step(workload):
            count = opened.evaluate(workload)
        steps.count(workload, count)


def _further(engine: Engine, folder: Path, steps: Steps) -> None:
    """Follow the workloads while batches of records come; compare with evaluating anew."""
    opened = engine.open(folder)
    for workload in RECORD_WORKLOADS:
        opened.follow(workload)
    counts = opened.update()
    for path in sorted(folder.parent.glob(f"{folder.stem}-further-*.lace")):
        with steps.step("add"):
            opened.add(path)
        with steps.step("update"):
            counts = opened.update()
    again = {workload: engine.open(folder).evaluate(workload) for workload in RECORD_WORKLOADS}
    if counts != again:
        raise RuntimeError(f"incremental {counts} is not what evaluating anew gives: {again}")
    for workload, count in counts.items():
        steps.count(workload, count)


def _memory(workload: str, engine: Engine, folder: Path, steps: Steps) -> None:
    """Evaluate a workload over facts in memory: from text, then prepared."""
    facts = list(read_facts(folder))
    for _ in range(ROUNDS):
        with steps.step("text"):
            engine.evaluate(workload, facts)
    with steps.step("prepare"):
        prepared = engine.prepare(workload, facts)
    for _ in range(ROUNDS):
        with steps.step(workload):
            count = prepared.evaluate()
        steps.count(workload, count)


def _main(name: str, action: str, path: Path) -> None:
    steps, engine = Steps(), ENGINES[name]()
    if action == "records":
        _records(engine, path, steps)
    elif action == "further":
        _further(engine, path, steps)
    else:
        _memory(action, engine, path, steps)
    steps.tell()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
