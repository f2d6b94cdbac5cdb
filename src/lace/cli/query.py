"""`lace query`: what follows from rules, over a lace or over given facts."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

import click

from lace.base.text import shorten
from lace.cli.command import command as lace_command
from lace.cli.failures import Choice
from lace.cli.files import STANDARD_INPUT, check_target, written
from lace.cli.output import Output, plural
from lace.cli.questions import (
    FORMATS,
    SINGLE_FORMATS,
    QueryRequest,
    check_parquet,
    new_statistics,
    one_predicate,
    read_rules,
    write_csv,
    write_facts,
    write_json,
    write_parquet,
    write_tables,
)
from lace.errors import UsageError
from lace.query.evaluate import ENGINES, check_engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from lace.cli.session import Session
    from lace.engine.budget import Run, Statistics
    from lace.query.result import Result
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey


# -- What an evaluation did, for `--stats`: a table on standard error, or JSON.
#
# A short run is told iteration by iteration, a long one summed up for each rule, so that
# the table can be read whatever happened.

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


@dataclass(frozen=True, slots=True)
class _Goal:
    """Where the answer goes, and how."""

    session: Session
    form: str
    target: str | None

    def write(self, result: Result, keys: list[PredicateKey]) -> None:
        """Write the whole answer; a file appears when all of it is there."""
        opened: AbstractContextManager[IO[bytes] | None] = (
            written(self.target) if self.target else nullcontext()
        )
        remarks: list[str] = []
        with opened as file:
            output = self.session.output if file is None else Output(file, terminal=False)
            match self.form:
                case "facts":
                    write_facts(output, result, keys)
                case "table":
                    remarks = write_tables(output, result, keys)
                case "json":
                    write_json(output, result, keys)
                case "csv":
                    write_csv(output, result, keys[0])
                case _ if file is not None:
                    write_parquet(file, result, keys[0])
        self.session.output.flush()
        if self.target:
            count = sum(result.count(str(key)) for key in keys)
            remarks.append(f"wrote {plural(count, 'fact')} to {self.target}")
        for remark in remarks:
            self.session.output.note(remark)


def _format(session: Session, form: str | None, target: str | None) -> str:
    """Return the format that is meant, or refuse what cannot be."""
    if session.output.json:
        if form not in (None, "json"):
            raise click.UsageError(f"--json and --format {form} exclude each other")
        return "json"
    if form == "parquet":
        if not target:
            raise UsageError("Parquet is not for standard output", hint="name a file with -o FILE")
        check_parquet()
    if form is not None:
        return form
    return "table" if session.output.terminal and not target else "facts"


def _one_source(source: str | None, rules: str | None, texts: tuple[str, ...]) -> str | None:
    """Return the file of the rules, None if they stand on the command line."""
    if source is not None and source != STANDARD_INPUT:
        shown = shorten(source)
        near = "-e 'RULE'" if ":-" in source else f"--rules {shown}"
        raise UsageError(f"{shown!r} stands alone", hint=f"did you mean {near}?")
    given = (source is not None) + (rules is not None) + bool(texts)
    if not given:
        raise UsageError("there are no rules", hint="give --rules FILE, -e 'RULE' or -")
    if given > 1:
        raise UsageError("rules come from one place", hint="give --rules FILE, -e or -")
    return rules if rules is not None else source


@lace_command(
    "query",
    api="Lace.query, evaluate",
    piped="Fact lines, Name('value','value'), sorted bytewise; nothing when nothing follows. With "
    "--format csv a heading of positions (0,1,…) and the rows of one predicate, sorted.",
    json_keys={
        "predicate": "the name; one line a fact, in the order of the fact lines",
        "values": "its values, a list of texts",
        "statistics": "with --stats, one line on standard error: {work, rules, runs_total, runs}. "
        "rules is a list of {rule, id, line, predicate, iterations, visited, made, new, seconds}; "
        "runs has the first 1,000 applications {rule, iteration, visited, made, new, seconds}",
    },
    examples=[
        ("lace query --rules policy.lace", "everything that the rules derive from this lace"),
        ("lace query -e \"Note(P) :- Field(P,'App',_,'notes').\"", "one rule, without a file"),
        (
            "lace query --rules policy.lace --predicate Selected/1 --format csv -o chosen.csv",
            "the facts of one predicate, as a table for another program",
        ),
        (
            "lace facts | lace query --rules policy.lace --facts - --stats",
            "over given facts only, without a lace; and what it took",
        ),
    ],
)
@click.argument("source", metavar="[-]", required=False)
@click.option("--rules", metavar="FILE", help="Read the rules from FILE, or - for standard input.")
@click.option(
    "-e", "texts", metavar="TEXT", multiple=True, help="A rule itself. Repeatable: one rule each."
)
@click.option(
    "--facts",
    metavar="FILE",
    multiple=True,
    help="Ask the fact lines of FILE (or -) only, and no lace. Repeatable.",
)
@click.option(
    "--predicate",
    "predicates",
    metavar="NAME/N",
    multiple=True,
    help="Write only this predicate. Repeatable. Else all that the rules define.",
)
@click.option(
    "--engine",
    type=Choice(ENGINES),
    default="embedded",
    show_default=True,
    help="What evaluates: the engine of this process, or Spark (needs the spark extra).",
)
@click.option(
    "--format",
    "form",
    type=Choice(FORMATS),
    help="How to write it: table on a terminal, else facts. csv and parquet hold one predicate; "
    "parquet wants -o.",
)
@click.option(
    "--stats", is_flag=True, help="Tell on standard error what each rule did, also after a failure."
)
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, whole or not.")
@click.pass_obj
def command(
    session: Session,
    source: str | None,
    rules: str | None,
    texts: tuple[str, ...],
    facts: tuple[str, ...],
    predicates: tuple[str, ...],
    engine: str,
    form: str | None,
    stats: bool,
    target: str | None,
) -> int:
    """Evaluate rules and write the facts that follow.

    Over one state of the lace, or with --facts over the fact lines of those files and nothing
    else. Rules that are not legal are refused, with everything that is wrong; so is an
    evaluation that passes a limit (`lace config show` lists them, --set changes them). There
    is never a part of an answer. An empty answer is an answer: the exit code is 0.
    """
    form = _format(session, form, target)
    if target:
        check_target(target)
    file = _one_source(source, rules, texts)
    check_engine(engine)
    question = QueryRequest(session, read_rules(session, file, texts), facts, engine=engine)
    named = list(dict.fromkeys(question.predicates(*predicates)))
    keys = named or list(question.checked.derived)
    if form in SINGLE_FORMATS:
        keys = [one_predicate(keys, named, form)]
    statistics = new_statistics()
    try:
        result = question.ask("query", keys, statistics)
        _Goal(session, form, target).write(result, keys)
    finally:
        if stats:
            show_statistics(session, question.checked, statistics)
    return 0
