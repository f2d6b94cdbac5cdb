"""Lace's side of the engine benchmarks: the seam that an engine fills, and one fresh process.

`LaceEngine` speaks to the front door of Lace only; `NaiveEngine` is the reference evaluator, for
sizes at which it ends, so that the benchmarks themselves can be tried. As a program it tells
its steps: `python -m benchmarks.lace_side ENGINE ACTION PATH`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import lace
from benchmarks.measure import Steps
from benchmarks.workload_records import read_facts
from benchmarks.workloads import GOALS, PROGRAMS
from lace.engines.reference import evaluate_naively
from lace.facts.extract import record_facts
from lace.rules.profiles import QUERY
from lace.rules.program import Lacegram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.workload_facts import Fact

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

    def missing(self) -> str | None:
        """Return what this Lace lacks to be measured, or None."""
        ...

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
    """The embedded engine, through the front door."""

    def __init__(self) -> None:
        self._lace: Any = lace  # its names are looked up when they are called

    def missing(self) -> str | None:
        if not hasattr(self._lace, "evaluate"):
            return "lace.evaluate"
        return next((n for n in ("query", "session") if not hasattr(lace.Lace, n)), None)

    def open(self, folder: Path) -> Opened:
        return _OpenedLace(self._lace.open(folder))

    def prepare(self, workload: str, facts: Iterable[Fact]) -> Prepared:
        return _PreparedLace(self._lace, workload, list(facts))

    def evaluate(self, workload: str, facts: Iterable[Fact]) -> int:
        text = PROGRAMS[workload]
        return len(self._lace.evaluate(text, facts, engine="embedded")[GOALS[workload]])


class _OpenedLace:
    def __init__(self, store: Any) -> None:  # noqa: ANN401
        self._store = store
        self._sessions: dict[str, Any] = {}

    def evaluate(self, workload: str) -> int:
        goal = GOALS[workload]
        return len(self._store.query(PROGRAMS[workload], predicates=[goal])[goal])

    def follow(self, workload: str) -> None:
        self._sessions[workload] = self._store.session(PROGRAMS[workload])

    def add(self, path: Path) -> None:
        self._store.import_file(path)

    def update(self) -> dict[str, int]:
        for session in self._sessions.values():
            session.update()
        return {
            workload: len(session[GOALS[workload]]) for workload, session in self._sessions.items()
        }


class _PreparedLace:
    def __init__(self, front_door: Any, workload: str, facts: list[Fact]) -> None:  # noqa: ANN401
        self._lace = front_door
        self._goal = GOALS[workload]
        self._rules = Lacegram.parse(PROGRAMS[workload], profile=_PROFILE)
        self._facts = facts

    def evaluate(self) -> int:
        return len(self._lace.evaluate(self._rules, self._facts, engine="embedded")[self._goal])


class NaiveEngine:
    """The reference evaluator, for a few hundred records at most."""

    def missing(self) -> str | None:
        return None

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
