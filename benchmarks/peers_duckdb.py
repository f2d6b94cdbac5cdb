"""DuckDB on the workloads: facts loaded as texts or interned, each workload as SQL.

Threads and memory are as DuckDB chooses them. Results are written into a table and
counted, not handed to Python. As a program it is one fresh process that tells its
steps: `python -m benchmarks.peers_duckdb ACTION FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb

from benchmarks import duckdb_sql as sql
from benchmarks.measure import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ACTIONS", "DuckPeer"]

ROUNDS: Final = 5
_COLUMNS: Final = {
    "Have": "p",
    "Field": "pniv",
    "RecordLink": "pnidt",
    "Edge": "pt",
    "Candidate": "pt",
}


class DuckPeer:
    """A database with the facts of a workload, and the results of evaluations as tables."""

    def __init__(self, file: Path | None = None, *, interned: bool = True) -> None:
        saved = file is not None and file.exists()
        self.connection = duckdb.connect(str(file) if file else ":memory:", read_only=saved)
        self.interned = interned
        self.rounds = 0

    def run(self, *statements: str) -> None:
        """Run statements."""
        for statement in statements:
            self.connection.execute(statement).fetchall()  # so that none is left unfinished

    def load(self, folder: Path) -> None:
        """Read every predicate's tab-separated texts; intern them unless they stay texts."""
        found = [name for name in _COLUMNS if (folder / f"{name}.tsv").exists()]
        kind, suffix = ("TEMP TABLE", "_text") if self.interned else ("TABLE", "")
        for name in found:
            columns = ", ".join(f"'{column}': 'VARCHAR'" for column in _COLUMNS[name])
            self.run(
                f"CREATE {kind} {name}{suffix} AS SELECT * FROM read_csv("
                f"'{folder / name}.tsv', delim='\t', header=false, quote='', escape='', "
                f"auto_detect=false, columns={{{columns}}})"
            )
        if self.interned:
            self.run(*sql.interning({name: _COLUMNS[name] for name in found}))

    def evaluate(self, workload: str) -> int:
        """Evaluate a workload; return how many facts its last predicate has.

        W2 goes by one recursive query, `W2 loop` by a few a round; both begin with W1.
        """
        texts = sql.INTERNED if self.interned else sql.TEXTS
        if workload == "W2 loop":
            self.run(*texts["W1"])
            return self._support_loop()
        self.run(*texts[workload])
        return self.count(sql.RESULTS[workload])

    def _support_loop(self) -> int:
        """Derive Support round by round, from what was new in the last one."""
        link = "interned_evidence" if self.interned else "text_evidence"
        self.run(*sql.LOOP_START[link])
        self.rounds = 1
        while self.count("delta"):
            self.run(*sql.LOOP_ROUND[link])
            self.rounds += 1
        return self.count("support")

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        rows = self.connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        return int(rows[0][0])

    def rows(self, table: str) -> frozenset[tuple[str, ...]]:
        """Return the rows of a table as texts."""
        found = self.connection.execute(f"SELECT * FROM {table}").fetchall()
        if not self.interned:
            return frozenset(found)
        texts = dict(self.connection.execute("SELECT id, v FROM dictionary").fetchall())
        return frozenset(tuple(texts[value] for value in row) for row in found)


def _load(folder: Path, steps: Steps, *, interned: bool, save: Path | None = None) -> None:
    if save:
        save.unlink(missing_ok=True)
    peer = DuckPeer(save, interned=interned)
    with steps.step("load"):
        peer.load(folder)
    _evaluate_all(peer, steps)
    peer.connection.close()


def _evaluate_all(peer: DuckPeer, steps: Steps) -> None:
    for workload in [*(["W1", "W2", "W3"] * ROUNDS), "W2 loop"]:
        with steps.step(workload):
            count = peer.evaluate(workload)
        steps.count(workload, count)
    steps.count("rounds", peer.rounds)
    for table in ("Field", "RecordLink"):
        steps.count(table, peer.count(table))


def _open(file: Path, steps: Steps) -> None:
    with steps.step("open"):
        peer = DuckPeer(file)
    _evaluate_all(peer, steps)


def _small(folder: Path, steps: Steps, *, workload: str, interned: bool) -> None:
    """Load a few facts and evaluate one workload, several times."""
    peer = DuckPeer(interned=interned)
    with steps.step("load"):
        peer.load(folder)
    for _ in range(1 if workload == "W4" else ROUNDS):
        with steps.step(workload):
            count = peer.evaluate(workload)
        steps.count(workload, count)


ACTIONS: Final[dict[str, Callable[[Path, Steps], None]]] = {
    "texts": lambda folder, steps: _load(folder, steps, interned=False),
    "interned": lambda folder, steps: _load(folder, steps, interned=True),
    "save": lambda folder, steps: _load(
        folder, steps, interned=True, save=folder.with_suffix(".duckdb")
    ),
    "open": lambda folder, steps: _open(folder.with_suffix(".duckdb"), steps),
    "TC": lambda folder, steps: _small(folder, steps, workload="TC", interned=True),
    "W4": lambda folder, steps: _small(folder, steps, workload="W4", interned=False),
    "W5": lambda folder, steps: _small(folder, steps, workload="W5", interned=False),
}

if __name__ == "__main__":
    measured = Steps()
    ACTIONS[sys.argv[1]](Path(sys.argv[2]), measured)
    measured.tell()
