"""`lace query` and `lace why`: what follows from rules, and why it does or does not.

They ask a lace or given facts; the commands that choose records by rules ask in the same way.
"""

from __future__ import annotations

import csv
import heapq
import io
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

import click

from lace.api.policy import ask_again
from lace.api.query import (
    ENGINES,
    AnswerLostError,
    PredicateKey,
    ask_facts,
    ask_lace,
    check_engine,
    check_rules,
    explain_exchange,
    find_predicates,
    new_statistics,
    parse_typed_fact,
    with_given,
)
from lace.api.records import format_fact
from lace.api.rules import Variable
from lace.base.text import shorten
from lace.cli.command import command as lace_command
from lace.cli.failures import Choice
from lace.cli.files import (
    STANDARD_INPUT,
    RuleFile,
    check_target,
    complain_findings,
    read_fact_files,
    read_file,
    refusing,
    written,
)
from lace.cli.output import Output, TableColumn, plural, short_identifiers
from lace.cli.policy_files import (
    explain_empty_view,
    note_missing_facts,
    note_no_record,
    read_policy,
    warn_of_names,
)
from lace.cli.policy_options import exchange_options
from lace.cli.progress import Waiting
from lace.errors import EngineError, RuleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from lace.api import Lace
    from lace.api.query import Explanation, Fact, GivenFacts, Preview, Result, Run, Statistics
    from lace.api.records import SqliteSnapshot
    from lace.api.rules import CheckedProgram
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session


SELECTED = "Selected/1"
"""What rules define that choose records, unless another predicate is named."""


def read_rules(session: Session, rules: str | None, texts: Sequence[str] = ()) -> RuleFile:
    """Return the rules that a command line names or holds; there is one of both."""
    if rules is not None:
        return read_file(session, rules)
    text = "\n".join(texts)
    return RuleFile("-e", text.encode("utf-8", "surrogateescape"))


class QueryRequest:
    """Rules that are checked, and the facts that come with them, if any."""

    def __init__(
        self,
        session: Session,
        file: RuleFile,
        facts: Sequence[str] = (),
        *,
        engine: str = "embedded",
        allowed: frozenset[PredicateKey] | None = None,
    ) -> None:
        """Read and check."""
        if file.argument == STANDARD_INPUT and STANDARD_INPUT in facts:
            raise UsageError(
                "standard input cannot be rules and facts at once", hint="name a file for one"
            )
        self._session = session
        self._engine = engine
        self._facts: GivenFacts | None = None
        limits = session.rule_limits()
        try:  # what is wrong with rules shows before facts are read
            self.checked = check_rules(file.text(), limits=limits, name=file.name, allowed=allowed)
            if facts:
                self._facts = read_fact_files(session, facts, limits)
                self.checked = with_given(self.checked, self._facts.predicates, file.text())
        except RuleError as error:
            raise refusing(session, file, error) from error

    def predicates(self, *texts: str) -> list[PredicateKey]:
        """Return the predicates of names with their arities, which the rules define."""
        return find_predicates(self.checked, texts)

    def ask(
        self,
        command: str,
        wanted: Sequence[PredicateKey],
        statistics: Statistics,
        *,
        lace: Lace | None = None,
        snapshot: SqliteSnapshot | None = None,
    ) -> Result:
        """Evaluate for a command, over the given facts or else over a lace."""
        if lace is None and self._facts is None:
            with self._session.asking(command) as opened:
                return self.ask(command, wanted, statistics, lace=opened)
        if self.checked.warnings and not self._session.output.quiet:
            complain_findings(self._session, self.checked.warnings)
        if lace is not None and self._facts is None:
            warn_of_names(self._session, lace, self.checked)
        predicates = [str(key) for key in wanted]

        def so_far() -> str:
            visited = f"{plural(statistics.work, 'row')} visited" if statistics.work else ""
            return ", ".join(filter(None, (visited, self._spark_standing())))

        with Waiting(self._session, "evaluating", so_far):
            if self._facts is not None:
                settings, _origins = self._session.settings(self._session.find_settings())
                return ask_facts(
                    settings,
                    self.checked,
                    self._facts.facts,
                    predicates,
                    engine=self._engine,
                    statistics=statistics,
                )
            if lace is None:
                raise AssertionError("a question without facts is for a lace")
            return ask_lace(
                lace,
                self.checked,
                predicates,
                engine=self._engine,
                statistics=statistics,
                snapshot=snapshot,
            )

    def _spark_standing(self) -> str:
        """Return what Spark is at, where it is what evaluates."""
        if self._engine != "spark":
            return ""
        from lace.cli.pipeline import spark_text

        return spark_text()


# -- The answer to a query as it is written: fact lines, tables, JSON, CSV, Parquet.
#
# Fact lines and JSON come in the order of the fact lines, sorted bytewise over the whole
# output. One predicate's facts are held as text at a time, and written in small pieces.

FORMATS: Final = ("facts", "table", "json", "csv", "parquet")
SINGLE_FORMATS: Final = ("csv", "parquet")
"""Formats that have one shape of row, and so one predicate."""

MAX_ROWS: Final = 1000
"""Rows of one predicate that a table shows."""
_PIECE: Final = 5_000


def one_predicate(
    keys: Sequence[PredicateKey], named: Sequence[PredicateKey], form: str
) -> PredicateKey:
    """Return the one predicate that a format with rows of one shape can hold."""
    chosen = named or keys
    if len(chosen) != 1:
        names = ", ".join(map(str, islice(chosen, 10)))
        what = f"{len(chosen):,}: {names}" if chosen else "none"
        raise UsageError(
            f"{form} holds the facts of one predicate, and here are {what}",
            hint="name one with --predicate NAME/N",
        )
    (key,) = chosen
    if not key.arity:
        raise UsageError(f"{key} has no columns for {form}", hint="use --format facts")
    return key


def _by_name(keys: Iterable[PredicateKey]) -> list[list[PredicateKey]]:
    """Return predicates in the order of their fact lines; those of one name together."""
    names: dict[str, list[PredicateKey]] = {}
    for key in keys:
        names.setdefault(key.name, []).append(key)
    return [names[name] for name in sorted(names, key=lambda name: f"{name}(")]


def _facts(result: Result, keys: Iterable[PredicateKey]) -> Iterator[Fact]:
    for key in keys:
        for values in result.rows(str(key)):
            yield (key.name, *values)


def write_facts(output: Output, result: Result, keys: Sequence[PredicateKey]) -> None:
    """Write fact lines, sorted bytewise."""
    for same in _by_name(keys):
        output.lines(sorted(map(format_fact, _facts(result, same))))


def write_json(output: Output, result: Result, keys: Sequence[PredicateKey]) -> None:
    """Write a JSON object a fact, each on its line, in the order of the fact lines."""
    for same in _by_name(keys):
        facts = sorted(_facts(result, same), key=format_fact)
        output.lines(json.dumps({"predicate": name, "values": values}) for name, *values in facts)


def write_csv(output: Output, result: Result, key: PredicateKey) -> None:
    """Write a heading and the rows of one predicate, sorted."""
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(range(key.arity))
    rows = iter(sorted(result.rows(str(key))))
    while True:
        output.text(page.getvalue())
        page.seek(0)
        page.truncate()
        piece = list(islice(rows, _PIECE))
        if not piece:
            return
        writer.writerows(piece)


def check_parquet() -> None:
    """Refuse to begin what could not be written."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise EngineError(
            "Parquet needs pyarrow, which is not installed",
            hint="install the spark extra, pip install 'lace[spark]', or use --format csv",
        )


def write_parquet(file: IO[bytes], result: Result, key: PredicateKey) -> None:
    """Write the rows of one predicate as a Parquet file, sorted."""
    from pyarrow import parquet

    table = result.to_arrow(str(key))
    order = [(str(at), "ascending") for at in range(key.arity)]
    parquet.write_table(table.sort_by(order), file)


# -- tables ------------------------------------------------------------------------------------


def write_tables(output: Output, result: Result, keys: Sequence[PredicateKey]) -> list[str]:
    """Write a table for each predicate; returns remarks on what it does not show."""
    shortened = cut = False
    for number, key in enumerate(keys):
        if number:
            output.line("")
        count = result.count(str(key))
        if not key.arity:
            output.say(f"{key.name}() {'holds' if count else 'does not hold'}")
            continue
        output.say(f"{key}: {plural(count, 'fact') if count else 'no facts'}")
        if not count:
            continue
        rows = heapq.nsmallest(MAX_ROWS, result.rows(str(key)))
        shorter = short_identifiers(value for row in rows for value in row)
        cells = [[shorter.get(value, value) for value in row] for row in rows]
        columns = [TableColumn(name) for name in _headings(result.checked, key)]
        output.line("")
        output.table(columns, cells)
        shortened = shortened or bool(shorter)
        if count > len(rows):
            cut = True
            output.say(f"these are the first {len(rows):,} of {count:,}")
    remarks = ["--format facts shows all of them"] if cut else []
    if shortened:
        remarks.append("hashes are cut short; --format facts shows them whole")
    return remarks


def _headings(checked: CheckedProgram, key: PredicateKey) -> list[str]:
    """Return the variables of a predicate's first rule that has any, else the positions."""
    headings = [str(at) for at in range(key.arity)]
    for rule in reversed(checked.rules):
        if rule.head.key == key:
            for at, term in enumerate(rule.head.terms):
                if isinstance(term, Variable):
                    headings[at] = term.name
    return headings


# -- What an evaluation did, for `--stats`: a table on standard error, or JSON.
#
# A short run is shown iteration by iteration, a long one summed up for each rule, so that
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
    first, *rest = [f"{name} {cell}" for name, cell in zip(headings, row, strict=True) if cell]
    return f"{first}: {', '.join(rest)}"


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


# -- `lace why`: how a fact follows from rules or from a policy, or what is missing.


def _ask_rules(session: Session, fact: Fact, rules: str, facts: tuple[str, ...]) -> Explanation:
    """Explain a fact of plain rules, over a lace or over given facts."""
    name, *values = fact
    question = QueryRequest(session, read_rules(session, rules), facts)
    key = PredicateKey(name, len(values))
    wanted = [key] if key in question.checked.derived else []
    try:
        return question.ask("why", wanted, new_statistics()).why(name, *values)
    except AnswerLostError:  # segments that are damaged have been given up: others are made
        return question.ask("why", wanted, new_statistics()).why(name, *values)


def _ask_exchange(
    session: Session, fact: Fact, given: PolicyArguments
) -> tuple[str, dict[str, Any], bool]:
    """Explain what an exchange would do with a record, or a fact of its policy."""
    read = read_policy(session, given)
    name, *values = fact

    def ask() -> tuple[Preview, tuple[str, dict[str, Any], bool]]:
        preview = lace.preview(
            read.policy,
            read.peer.module,
            index=given.index,
            viewer=read.viewer,
            public=read.public,
        )
        found, is_yes = explain_exchange(preview, name, values)
        return preview, (str(found), found.to_json(), is_yes)

    with session.asking("why") as lace:
        warn_of_names(session, lace, read.policy)
        with Waiting(session, "explaining"):
            preview, answer = ask_again(lace, ask)
    if preview.executable.exposes_nothing:
        explain_empty_view(session, read.policy.exposures, read.viewer)
    elif preview.shows_nothing:
        note_no_record(session)
    note_missing_facts(session, preview.executable, read.public)
    return answer


@lace_command(
    "why",
    api="Result.why, Lace.preview",
    piped="The derivation as an indented tree, down to base facts; for a fact that does not hold, "
    "what failed nearest. The same as on a terminal. For MaySend and MayRequest the first line "
    "says whether the record would move, and which gate decides that it does not.",
    json_keys={
        "fact": "the fact, {predicate, values, text}",
        "holds": "true if it follows",
        "height": "how many rules follow one another down to base facts; or null",
        "steps": "every fact of the derivation once, the fact itself first: {fact, height, rule, "
        "body}; rule is null for a base fact, and a condition of body names its step by position",
        "absence": "for a fact that does not hold, what failed nearest; or null",
        "allowed, moves, gate, message, explanation": "of MaySend and MayRequest instead, besides "
        "the fact: whether policy allows it; whether the record would move; what "
        "decides that it does not, or null; both in words; and an explanation, with the keys above",
    },
    examples=[
        ("lace why --rules policy.lace \"Selected('B.….H3')\"", "why the rules choose a record"),
        (
            "lace why --rules paths.lace --facts edges.txt \"Path('a','c')\"",
            "over given facts only, without a lace",
        ),
        (
            "lace why --select mine.lace --peer-select theirs.lace --expose team.lace@V.….H3 "
            "--viewer V.….H3 \"MaySend('B.….H3')\"",
            "why a record would be sent to a peer, or what stops it",
        ),
    ],
)
@click.argument("fact", metavar="FACT")
@click.option("--rules", metavar="FILE", help="Read the rules from FILE, or - for standard input.")
@click.option(
    "--facts",
    metavar="FILE",
    multiple=True,
    help="Ask the fact lines of FILE (or -) only, and no lace. Repeatable.",
)
@exchange_options(required=False)
@click.pass_obj
def why_command(
    session: Session,
    fact: str,
    rules: str | None,
    facts: tuple[str, ...],
    exchange: PolicyArguments,
) -> int:
    """Show why a fact follows from rules, or why it does not.

    FACT is a fact line as `lace query` writes it. The tree goes from the fact through the
    rules that make it, with their identifiers and annotations, down to base facts. When the
    fact does not hold, it shows which condition failed nearest, and the exit code is 1.

    With --select and --peer-select instead of --rules it is about an exchange, as `lace
    preview` shows it: MaySend('…') and MayRequest('…') say whether a record would move and
    which gate stops it (exit code 1). Predicates of your selector are asked by their names, as
    SelectHave('…'); those of both by o0_SelectHave('…') and o1_SelectHave('…'); what a viewer
    may query by CanQueryRecord('V','…'), or AllowQueryRecord for all exposures together.
    """
    if rules is None and not exchange.is_given:
        raise UsageError(
            "there are no rules", hint="give --rules FILE, or --select and --peer-select"
        )
    if (rules is not None or facts) and exchange.is_given:
        raise UsageError(
            "--rules and --facts are not for an exchange",
            hint="give --rules FILE, or --select and --peer-select, not both",
        )
    asked = parse_typed_fact(fact, session.rule_limits().max_value_bytes)
    if rules is not None:
        explanation = _ask_rules(session, asked, rules, facts)
        text, document, is_yes = str(explanation), explanation.to_json(), explanation.holds
    else:
        text, document, is_yes = _ask_exchange(session, asked, exchange)
    session.output.answer(document, *text.rstrip("\n").split("\n"), is_wrapped=True)
    return 0 if is_yes else 1
