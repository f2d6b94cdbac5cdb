"""What `query`, `why`, `export` and `remove` share: rules from a command line, and results."""

from __future__ import annotations

import csv
import heapq
import io
import json
import re
import time
from itertools import islice, pairwise
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.cli.files import (
    STANDARD_INPUT,
    RuleFile,
    complain_findings,
    read_fact_files,
    read_file,
    refusing,
)
from lace.cli.link_options import all_options
from lace.cli.output import TableColumn, plural, time_text
from lace.cli.policy_files import warn_of_names
from lace.cli.policy_options import ALLOW_UNDEFINED_OPTION
from lace.cli.progress import Waiting
from lace.errors import EngineError, RuleError, UsageError
from lace.facts.lines import format_fact
from lace.query.evaluate import check_rules, evaluate_given, find_predicates, with_given
from lace.query.result import AnswerLostError
from lace.rules.checks.emptiness import parse_allowed
from lace.rules.syntax import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.api import Lace
    from lace.cli.files import GivenFacts
    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.engine.budget import Statistics
    from lace.facts.lines import Fact
    from lace.query.result import Result
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.session import Options
    from lace.store.interface import Snapshot
    from lace.store.sqlite.snapshot import SqliteSnapshot


Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
SELECTED = "Selected/1"
"""What rules define that choose records, unless another predicate is named."""


def selection_options(function: Decorated) -> Decorated:
    """Give a command the arguments that choose records: by name, or by rules."""
    add: Callable[[Decorated], Decorated] = all_options(
        click.argument("records", metavar="[RECORD]…", nargs=-1),
        click.option(
            "--rules", metavar="FILE", help="The records that the rules of FILE (or -) choose."
        ),
        click.option(
            "--predicate",
            metavar="NAME/1",
            help="The predicate that chooses, with --rules: Selected/1.",
        ),
        ALLOW_UNDEFINED_OPTION,
    )
    return add(function)


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
                facts = self._facts.facts
                return evaluate_given(
                    self.checked,
                    facts,
                    engine=self._engine,
                    predicates=predicates,
                    statistics=statistics,
                    options=self._spark_options(),
                )
            if lace is None:
                raise AssertionError("a question without facts is for a lace")
            return self._query(lace, predicates, statistics, snapshot)

    def _spark_options(self) -> Options | None:
        """Return what the settings say for Spark, where it is what evaluates."""
        if self._engine != "spark":
            return None
        from lace.spark.engine.session import options_of

        return options_of(self._session.settings(self._session.find_settings())[0])

    def _spark_standing(self) -> str:
        """Return what Spark is at, where it is what evaluates."""
        if self._engine != "spark":
            return ""
        from lace.cli.pipeline_session import standing_text
        from lace.spark.engine.session import active_context

        return standing_text(active_context())

    def _query(
        self,
        lace: Lace,
        predicates: list[str],
        statistics: Statistics,
        snapshot: SqliteSnapshot | None,
    ) -> Result:
        """Ask a lace and make all texts; damage that shows only then is met by asking again."""
        for last_try in (False, True):
            result = lace.query(
                self.checked,
                engine=self._engine,
                predicates=predicates,
                statistics=statistics,
                snapshot=snapshot,
            )
            try:
                for predicate in predicates:
                    result.rows(predicate)
            except AnswerLostError:
                if last_try:
                    raise
            else:
                return result
        raise AssertionError("the last try returns or raises")


def new_statistics() -> Statistics:
    """Return statistics that take the time."""
    from lace.engine.budget import Statistics

    return Statistics(clock=time.perf_counter_ns)


def select_records(
    session: Session,
    lace: Lace,
    snapshot: SqliteSnapshot,
    rules: str,
    predicate: str | None,
    allow_undefined: Sequence[str],
) -> list[str]:
    """Return the records of a snapshot that rules choose, sorted by hash.

    Values that are no record here are counted, and the count is told.
    """
    allowed = parse_allowed(allow_undefined)
    question = QueryRequest(session, read_rules(session, rules), allowed=allowed)
    try:
        (key,) = question.predicates(predicate or SELECTED)
    except UsageError as error:
        if predicate is None:
            error.hint = "name the predicate that chooses records, as in --predicate Chosen/1"
        raise
    if key.arity != 1:
        raise UsageError(
            f"{key} has {plural(key.arity, 'argument')}, and records are chosen by one",
            hint="name a predicate with one argument",
        )
    result = question.ask("select", [key], new_statistics(), lace=lace, snapshot=snapshot)
    values = sorted(value for (value,) in result.rows(str(key)))
    found = [value for value in values if snapshot.has(value)]
    strangers = len(values) - len(found)
    if strangers:
        are = "is no record" if strangers == 1 else "are no records"
        session.output.note(f"{plural(strangers, 'value')} of {key} {are} of this lace")
    return found


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
_SHORT_ID: Final = 10
_IDENTIFIER: Final = re.compile(r"[A-Z]\.[0-9A-Z_a-z~]{40,}(\.H3)?")


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


def short_identifiers(values: Iterable[str]) -> dict[str, str]:
    """Return the short forms of identifiers, as short as they differ and can be read."""
    found = sorted({value for value in values if _IDENTIFIER.fullmatch(value)})
    length = _SHORT_ID
    for before, after in pairwise(found):
        while before[:length] == after[:length]:
            length += 1
    return {value: f"{value[:length]}…" for value in found if len(value) > length + 1}


def _headings(checked: CheckedProgram, key: PredicateKey) -> list[str]:
    """Return the variables of a predicate's first rule that has any, else the positions."""
    headings = [str(at) for at in range(key.arity)]
    for rule in reversed(checked.rules):
        if rule.head.key == key:
            for at, term in enumerate(rule.head.terms):
                if isinstance(term, Variable):
                    headings[at] = term.name
    return headings


# -- Records in tables for people: those that a policy is about, with what is known of them.

MOST_ROWS: Final = 100
"""Rows of one table that a terminal shows."""
SHORT: Final = "hashes are cut short; a pipe and --json have them whole, and all of them"
"""What is said below tables that leave something out."""


def identifier_column(heading: str = "record") -> TableColumn:
    """Return a column of hashes that are cut short."""
    return TableColumn(heading, style="cyan", no_wrap=True)


def remark_cut(output: Output, shown: int, total: int) -> None:
    """Say that a table is cut, if it is."""
    if total > shown:
        output.say(f"these are the first {shown:,} of {total:,}")


def show_records(output: Output, snapshot: Snapshot, records: Sequence[str]) -> None:
    """Write a table of records with what is known of them, cut where it would be long."""
    shown = list(islice(records, MOST_ROWS))
    if not shown:
        return
    short = short_identifiers(shown)
    rows = []
    for record in shown:
        found = snapshot.describe(record)
        tai = found.tai if found is not None else None
        coordinate = found.coordinate if found is not None else "not here"
        rows.append((short.get(record, record), coordinate, time_text(tai) if tai else ""))
    columns = (
        identifier_column(),
        TableColumn("coordinate"),
        TableColumn("time, UTC", no_wrap=True),
    )
    output.line("")
    output.table(columns, rows)
    remark_cut(output, len(shown), len(records))
