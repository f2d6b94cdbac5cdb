"""What an evaluation did, for `--stats`: a table on standard error, or JSON.

A short run is told iteration by iteration, a long one summed up for each rule, so that
the table can be read whatever happened.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.cli.output import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.cli.session import Session
    from lace.engine.budget import Run, Statistics
    from lace.rules.program import CheckedProgram

__all__ = ["show_statistics"]

_MOST_RUNS: Final = 40
"""Applications of rules that are shown one by one."""
_MOST_RULES: Final = 40
_MOST_JSON_RUNS: Final = 1000
_HEADINGS: Final[tuple[str, ...]] = (
    "rule", "line", "predicate", "iteration", "rows visited", "facts made", "new facts", "time"
)  # fmt: skip
_LEFT: Final = 2
"""The column that is text; numbers stand to the right."""


@dataclass(slots=True)
class _Sum:
    """What a rule did in all its applications."""

    rule: int
    iterations: int = 0
    runs: int = 0
    visited: int = 0
    made: int = 0
    new: int = 0
    nanoseconds: int = 0

    def add(self, run: Run) -> None:
        self.iterations = max(self.iterations, run.iteration)
        self.runs += 1
        self.visited += run.visited
        self.made += run.made
        self.new += run.new
        self.nanoseconds += run.nanoseconds


def _sums(runs: Iterable[Run]) -> dict[int, _Sum]:
    sums: dict[int, _Sum] = {}
    for run in runs:
        if run.rule not in sums:
            sums[run.rule] = _Sum(run.rule)
        sums[run.rule].add(run)
    return dict(sorted(sums.items()))


def show_statistics(session: Session, checked: CheckedProgram, statistics: Statistics) -> None:
    """Write what was done so far to standard error."""
    session.output.flush()  # the answer stands before what it took
    if session.output.json:
        if sys.stderr is not None:
            sys.stderr.write(json.dumps({"statistics": _object(checked, statistics)}) + "\n")
        return
    if session.output.terminal:
        session.output.complain("")
    for line in _lines(checked, statistics, session.output.aside_width):
        session.output.complain(line)


def _object(checked: CheckedProgram, statistics: Statistics) -> dict[str, object]:
    def described(rule: int) -> dict[str, object]:
        found = checked.rules[rule]
        return {
            "rule": rule + 1,
            "id": checked.rule_ids[rule],
            "line": found.span.line or None,
            "predicate": str(found.head.key),
        }

    def counted(run: Run | _Sum) -> dict[str, object]:
        return {
            "visited": run.visited,
            "made": run.made,
            "new": run.new,
            "seconds": run.nanoseconds / 1e9,
        }

    return {
        "work": statistics.work,
        "rules": [
            {**described(each.rule), "iterations": each.iterations, **counted(each)}
            for each in _sums(statistics.runs).values()
        ],
        "runs_total": statistics.applications,
        "runs": [
            {"rule": run.rule + 1, "iteration": run.iteration, **counted(run)}
            for run in statistics.runs[:_MOST_JSON_RUNS]
        ],
    }


def _lines(checked: CheckedProgram, statistics: Statistics, width: int | None) -> Iterable[str]:
    runs = statistics.runs
    if not runs:
        return ["no rule was applied"]
    sums = list(_sums(runs).values())
    if len(runs) <= _MOST_RUNS:
        rows = [_row(checked, run, f"{run.iteration:,}") for run in runs]
        headings, remark = _HEADINGS, ""
    else:
        shown = sums
        if len(sums) > _MOST_RULES:
            shown = sorted(sums, key=lambda each: -each.visited)[:_MOST_RULES]
        rows = [_row(checked, each, f"{each.iterations:,}") for each in shown]
        headings = tuple("iterations" if each == "iteration" else each for each in _HEADINGS)
        applied = plural(statistics.applications, "application")
        remark = f"sums of {applied} of {plural(len(sums), 'rule')}"
        if len(sums) > len(shown):
            remark += f"; the {len(shown)} that visited the most rows"
    total = _Sum(0)
    for each in runs:
        total.add(each)
    last = ("all", "", "", f"{total.iterations:,}", *_numbers(total))
    table = _aligned([headings, *rows, last])
    if width is not None and len(table[0]) > width:
        table = [_sentence(headings, row) for row in [*rows, last]]
    return [*table, *([remark] if remark else [])]


def _sentence(headings: Sequence[str], row: Sequence[str]) -> str:
    """Return a row as words, for a terminal on which a table has no room."""
    told = [f"{name} {cell}" for name, cell in zip(headings, row, strict=True) if cell]
    return f"{told[0]}: {', '.join(told[1:])}"


def _row(checked: CheckedProgram, run: Run | _Sum, iteration: str) -> tuple[str, ...]:
    rule = checked.rules[run.rule]
    line = f"{rule.span.line:,}" if rule.span.line else ""
    return (f"{run.rule + 1:,}", line, str(rule.head.key), iteration, *_numbers(run))


def _numbers(run: Run | _Sum) -> tuple[str, ...]:
    return f"{run.visited:,}", f"{run.made:,}", f"{run.new:,}", _time(run.nanoseconds)


def _time(nanoseconds: int) -> str:
    seconds = nanoseconds / 1e9
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at == _LEFT else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
