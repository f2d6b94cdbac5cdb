"""What `query`, `why`, `export` and `remove` have in common: rules from a command line, asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lace.cli.fact_files import read_fact_files
from lace.cli.link_options import all_options
from lace.cli.output import plural
from lace.cli.policy_files import warn_of_names
from lace.cli.policy_options import ALLOW_UNDEFINED_OPTION
from lace.cli.progress import Waiting
from lace.cli.rule_files import (
    STANDARD_INPUT,
    RuleFile,
    complain_findings,
    read_file,
    refusing,
)
from lace.errors import RuleError, UsageError
from lace.query.evaluate import check_rules, evaluate_given, find_predicates, with_given
from lace.query.result import AnswerLostError
from lace.rules.checks.emptiness import parse_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.api import Lace
    from lace.cli.fact_files import GivenFacts
    from lace.cli.session import Session
    from lace.engine.budget import Statistics
    from lace.query.result import Result
    from lace.rules.syntax import PredicateKey
    from lace.spark.engine.session import Options
    from lace.store.sqlite.snapshot import SqliteSnapshot

__all__ = [
    "SELECTED",
    "Question",
    "new_statistics",
    "read_rules",
    "select_records",
    "selection_options",
]

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


class Question:
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
        """Read and check.

        Args:
            session: the run.
            file: the rules.
            facts: files of facts, if these are asked and not a lace.
            engine: what evaluates.
            allowed: for rules whose answer is acted upon, the predicates that may be undefined.

        Raises:
            RuleError: the rules are not legal; all findings were shown.
            UsageError: a file cannot be read.
            FactLineError: a line of a fact file is no fact.
        """
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
        from lace.cli.pipeline_progress import standing_text
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

    Raises:
        UsageError: the rules do not define the predicate, or it is not about one value.
        RuleError: the rules are not legal, or rest on a predicate that nobody defines.
    """
    allowed = parse_allowed(allow_undefined)
    question = Question(session, read_rules(session, rules), allowed=allowed)
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
