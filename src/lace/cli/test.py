"""`lace test`: run policy tests, show every difference, and measure which rules they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.files import complain_findings
from lace.cli.output import plural
from lace.errors import RuleError, UsageError, hide_decisions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.api.policytests import CaseOutcome, Coverage, FileCoverage, Names, PolicyTests
    from lace.cli.session import Session
    from lace.errors import Finding


_OK: Final = "green"
_FAILED: Final = "bold red"
_WEAK: Final = "dim"


@lace_command(
    "test",
    api="api.policytests.run_tests",
    piped="A line `ok FILE: CASE` or `FAILED FILE: CASE` for each case, below a failed one its "
    "differences; then the counts, and the rules of each file that made no fact. The same as on "
    "a terminal, without colours.",
    json_keys={
        "ok": "true if every case is as expected and the coverage suffices",
        "counts": "{cases, ok, failed, left_out}; left_out by -k",
        "files": "every test file: {file, cases}",
        "files[].cases": "{name, line, ok, failure, differences}; failure is text when a case has "
        "no answer, or the wrong error; or null",
        "files[].cases[].differences": "{about, problem, values, name, gate, message, "
        "explanation}; about is query, send, … or a predicate, problem is missing or unexpected, "
        "name is the record's name, gate what stopped it, explanation as `lace why --json`",
        "coverage": "{rules, fired, percent, minimum, files}",
        "coverage.files": "{file, rules, fired, percent, idle}; idle are the rules that made no "
        "fact, {line, id, text}",
    },
    examples=[
        ("lace test team.lacetest.toml", "run the tests of one file"),
        ("lace test policies/ --coverage-min 90", "all below a folder; most rules must be used"),
        ("lace test policies/ -k alice -v", "only cases about alice, with whole explanations"),
    ],
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-k", "wanted", metavar="TEXT", help="Run only the cases whose name holds TEXT.")
@click.option("-v", "--verbose", is_flag=True, help="Explain each difference by its rules.")
@click.option(
    "--coverage-min",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    help="Fail when fewer of the rules made a fact in any case.",
)
@click.pass_obj
def command(
    session: Session,
    files: tuple[str, ...],
    wanted: str | None,
    verbose: bool,
    coverage_min: float | None,
) -> int:
    """Run policy tests: files that say what a policy must allow, and what it must not.

    FILE is a test file, or a folder in which all `*.lacetest.toml` are run. Tests need no lace.
    The exit code is 1 if a case failed, rules are not legal or too few were used, and 2 if a
    test file makes no sense; then no case of any file is run. With --quiet only what failed is
    shown.
    """
    from lace.api.policytests import Coverage, run_tests

    settings = session.settings(session.find_settings())[0]
    tests = _read_all(session, files)
    coverage = Coverage()
    report = _Report(session, coverage, coverage_min, verbose=verbose)
    for each in tests:
        report.begin(each)
        for outcome in run_tests(each, settings=settings, coverage=coverage, wanted=wanted or ""):
            report.add(outcome)
    if not report.cases:
        raise UsageError(f"no case has {wanted!r} in its name", hint="choose others with -k")
    report.finish()
    return 0 if report.is_ok else 1


def _read_all(session: Session, arguments: Sequence[str]) -> list[PolicyTests]:
    """Return all test files; what is wrong with them is shown, and then none is run."""
    from lace.api.policytests import PolicyTestError, find_test_files, read_tests

    found: list[PolicyTests] = []
    lost: list[Finding] = []
    for argument in find_test_files(arguments):
        try:
            found.append(read_tests(argument))
        except PolicyTestError as error:
            lost += error.findings
    if len(lost) == 1:
        raise PolicyTestError(tuple(lost))
    if lost:
        complain_findings(session, lost)
        raise UsageError(f"{plural(len(lost), 'error')} in test files; nothing was run")
    return found


class _Report:
    """Shows what happened, case by case; or gathers it for one JSON document."""

    def __init__(
        self, session: Session, coverage: Coverage, minimum: float | None, *, verbose: bool
    ) -> None:
        self._session = session
        self._output = session.output
        self._coverage = coverage
        self._minimum = minimum
        self._verbose = verbose
        self._files: list[dict[str, Any]] = []
        self._tests: PolicyTests | None = None
        self._complained: set[str] = set()
        self.cases = 0
        self.failed = 0
        self.left_out = 0

    @property
    def _is_covered(self) -> bool:
        return self._minimum is None or self._coverage.percent >= self._minimum

    @property
    def is_ok(self) -> bool:
        """Whether all cases passed and the coverage suffices."""
        return not self.failed and self._is_covered

    def begin(self, tests: PolicyTests) -> None:
        """Go on with another file."""
        self._tests = tests
        self.left_out += len(tests.cases)
        self._files.append({"file": tests.name, "cases": []})

    def add(self, outcome: CaseOutcome) -> None:
        """Report a case."""
        self.cases += 1
        self.left_out -= 1
        self.failed += not outcome.is_ok
        self._files[-1]["cases"].append(outcome.to_json())
        self._complain(outcome)
        if self._output.json or (self._output.quiet and outcome.is_ok):
            return
        mark = ("ok    ", _OK) if outcome.is_ok else ("FAILED", _FAILED)
        self._output.styled_line(mark, (f" {self._files[-1]['file']}: {outcome.case.name}", ""))
        if outcome.failure is not None:
            text = outcome.failure
            self._output.say(f"       {hide_decisions(text) if self._output.terminal else text}")
        for each in outcome.differences:
            self._output.say(f"       {each}")
            if self._verbose and each.explanation is not None:
                for line in self._names().rename(str(each.explanation)).rstrip("\n").split("\n"):
                    self._output.styled_line((f"         {line}", _WEAK))
        self._output.flush()

    def _names(self) -> Names:
        from lace.api.policytests import Names

        return Names({} if self._tests is None else self._tests.called())

    def _complain(self, outcome: CaseOutcome) -> None:
        """Show all findings of rules that are not legal, once for each file."""
        cause = outcome.cause
        if outcome.failure is None or not isinstance(cause, RuleError):
            return
        source = str(cause.findings[0].place.source) if cause.findings else ""
        if source not in self._complained:
            self._complained.add(source)
            complain_findings(self._session, cause.findings)

    # -- the end -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Tell the counts and the coverage."""
        if self._output.json:
            self._output.json_document(self._document())
            return
        passed = self.cases - self.failed
        left_out = f", {self.left_out} left out" if self.left_out else ""
        self._output.styled_line(
            (f"{plural(self.cases, 'case')}: ", ""),
            (f"{passed} ok", _OK if passed else ""),
            (", ", ""),
            (f"{self.failed} failed", _FAILED if self.failed else ""),
            (left_out, ""),
        )
        if self._output.quiet and self._is_covered:
            return
        self._output.line("")
        for each in self._coverage.files:
            self._show_file(each)
        total, fired = self._coverage.total, self._coverage.fired
        if not total:
            self._output.say("rule coverage: there was no rule to measure")
            return
        self._output.styled_line(
            ("rule coverage: ", ""),
            (f"{_percent(self._coverage.percent)} %", _OK if fired == total else "yellow"),
            (f", {fired} of {plural(total, 'rule')} made a fact", ""),
        )
        if not self._is_covered:
            self._output.styled_line(
                ("FAILED", _FAILED), (f" rule coverage is below {self._minimum:g} %", "")
            )

    def _show_file(self, file: FileCoverage) -> None:
        name = file.name
        self._output.say(f"{name}: {len(file.fired)} of {plural(file.total, 'rule')} made a fact")
        for rule in file.idle():
            place = name if rule.line is None else f"{name}:{rule.line}"
            self._output.styled_line((f"  {place}: {rule.text}", _WEAK))

    def _document(self) -> dict[str, Any]:
        coverage = self._coverage
        return {
            "ok": self.is_ok,
            "counts": {
                "cases": self.cases,
                "ok": self.cases - self.failed,
                "failed": self.failed,
                "left_out": self.left_out,
            },
            "files": self._files,
            "coverage": {
                "rules": coverage.total,
                "fired": coverage.fired,
                "percent": _percent(coverage.percent),
                "minimum": self._minimum,
                "files": [_file_object(each) for each in coverage.files],
            },
        }


def _percent(value: float) -> float | int:
    """Return a share with one digit, never rounded up to all of it."""
    cut = int(value * 10) / 10
    return int(cut) if cut == int(cut) else cut


def _file_object(file: FileCoverage) -> dict[str, Any]:
    return {
        "file": file.name,
        "rules": file.total,
        "fired": len(file.fired),
        "percent": _percent(100 * len(file.fired) / file.total if file.total else 100),
        "idle": [{"line": each.line, "id": each.id, "text": each.text} for each in file.idle()],
    }
