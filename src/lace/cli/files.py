"""Files of rules and facts that commands read, and files that they write whole or not at all."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from lace.api.system import open_reader, written_file
from lace.base.text import safe_text
from lace.cli.output import Output, OutputError, plural, wrap_findings
from lace.cli.progress import Progress
from lace.errors import Finding, LaceError, Place, RuleError, UsageError, hide_decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lace.api.query import Fact, GivenFacts, RuleLimits
    from lace.cli.session import Session


class TerminalError(LaceError):
    """Bytes that a terminal could not show, and might obey."""


def check_target(name: str) -> None:
    """Refuse a file that could not be written, before there is anything to write."""
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{name} is a folder", hint="name a file with -o FILE")
    if not path.exists() and not path.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {path.resolve().parent}", hint="make it first")


@contextmanager
def written(name: str) -> Iterator[IO[bytes]]:
    """Open a file to be written; it appears, or replaces another, when all went well."""
    check_target(name)

    def translate(error: OSError) -> Exception:
        if isinstance(error, BrokenPipeError):
            return error
        return OutputError(
            f"{name} cannot be written: {error.strerror}", hint="nothing half-written is left"
        )

    with written_file(Path(name), translate) as file:
        yield file


def refuse_terminal(output: Output, what: str, instead: str = "") -> None:
    """Refuse to write bytes that are not text to a terminal, and say what it may show instead."""
    if output.terminal:
        raise TerminalError(
            f"{what} are not for a terminal",
            hint=f"write them to a file with -o FILE, or pipe them{instead}",
        )


# -- Files that a command line names, or standard input.

STANDARD_INPUT: Final = "-"


def name_of(argument: str) -> str:
    """Return what messages call a file that the command line names."""
    return "standard input" if argument == STANDARD_INPUT else safe_text(argument) or "''"


@contextmanager
def opened_input(session: Session, argument: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Open a file, or standard input, to be read; its size comes with it, if it has one."""
    if argument == STANDARD_INPUT:
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a FILE")
        if sys.stdin.isatty():
            session.output.note("reading from the terminal; end with Ctrl-D")
        yield sys.stdin.buffer, None
        return
    name, path = name_of(argument), Path(argument)
    try:
        opened = open_reader(
            path, lambda error: UsageError(f"{name} cannot be read: {error.strerror}")
        )
    except ValueError as error:  # a name that no system takes
        raise UsageError(f"{name} cannot be read: {error}") from error
    with opened as file:
        yield file, path.stat().st_size if path.is_file() else None


# -- Files of rules as commands read them, and what is said of those that are not legal.

MAX_FILE_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file as it was read; `argument` is how the command line names it."""

    argument: str
    raw: bytes

    @property
    def name(self) -> str:
        """What messages call the file; it holds nothing that could break a line."""
        return name_of(self.argument)

    def text(self) -> bytes:
        """Return the bytes of the file."""
        if len(self.raw) <= MAX_FILE_BYTES:
            return self.raw
        found = Finding(
            severity="error",
            place=Place(self.name),
            message=f"the text has more than {MAX_FILE_BYTES:,} bytes",
            hint="divide it into several lacegrams",
        )
        raise RuleError(found.message, findings=(found,), place=found.place, hint=found.hint)


def read_file(session: Session, argument: str) -> RuleFile:
    """Read one file, or standard input; of a file that is too large only the beginning."""
    with opened_input(session, argument) as (file, _size):
        return RuleFile(argument, file.read(MAX_FILE_BYTES + 1))


def read_files(session: Session, arguments: Sequence[str]) -> Iterator[RuleFile]:
    """Yield the files that can be read, whatever is with the others."""
    if arguments.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read once", hint="name files")
    lost: list[UsageError] = []
    for argument in arguments:
        try:
            file = read_file(session, argument)
        except UsageError as error:
            lost.append(error)
            continue
        yield file
    for each in lost[:-1]:
        session.output.complain(f"lace: {each}")
    if lost:
        raise lost[-1]


def finding_object(argument: str, finding: Finding) -> Mapping[str, object]:
    """Return the JSON object of a finding."""
    return {
        "file": argument,
        "line": finding.place.line,
        "column": finding.place.column,
        "severity": finding.severity,
        "message": finding.message,
        "rule": finding.rule,
        "hint": finding.hint,
    }


def count_findings(findings: Sequence[Finding]) -> str:
    """Return how many findings there are: `2 errors, 1 warning`."""
    from lace.api.rules import MAX_KEPT  # only commands about rules load it

    parts = []
    for severity in ("error", "warning"):
        count = sum(finding.severity == severity for finding in findings)
        if count:
            least = "at least " if count >= MAX_KEPT else ""
            parts.append(least + plural(count, severity))
    return ", ".join(parts)


def complain_findings(session: Session, findings: Sequence[Finding]) -> None:
    """Write findings to standard error; with their place in the text where a person reads."""
    from lace.api.rules import format_findings  # only commands about rules load it

    watched = sys.stderr is not None and sys.stderr.isatty()
    found = hide_decisions(format_findings(findings, excerpts=watched))
    session.output.cite(each for each in findings if each.severity == "error")
    for line in wrap_findings(found, session.output.aside_width):
        session.output.complain(line)


def refusing(session: Session, file: RuleFile, error: RuleError) -> RuleError:
    """Show all findings of an error; return what is left to tell: the error in one line."""
    complain_findings(session, error.findings)
    return RuleError(f"{count_findings(error.findings)} in {file.name}")


# -- Files of fact lines.

Check: TypeAlias = "Callable[[Fact], None]"
_TELL_LINES: Final = 20_000


def read_fact_files(
    session: Session,
    arguments: Sequence[str],
    limits: RuleLimits,
    check: Check | None = None,
) -> GivenFacts:
    """Read files of fact lines, or standard input."""
    if arguments.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read once", hint="name files")
    from lace.api.query import GivenFacts  # loads what evaluates rules

    given = GivenFacts(limits, check)
    for argument in arguments:
        name = name_of(argument)
        with opened_input(session, argument) as (file, size):
            _read(session, file, name, size, given)
    return given


def _read(
    session: Session, file: IO[bytes], name: str, size: int | None, given: GivenFacts
) -> None:
    from lace.api.query import FactLineError

    number = done = 0
    most = given.max_line_bytes
    with Progress(session, f"read {name}", size, "bytes") as progress:
        try:
            while line := file.readline(most + 1):
                number += 1
                done += len(line)
                if len(line) > most:
                    raise FactLineError(
                        f"the line has more than {most:,} bytes",
                        rule="050-23",
                        hint="write one fact a line",
                    )
                given.add(line.removesuffix(b"\n"))
                if number % _TELL_LINES == 0:
                    progress.update(done)
        except LaceError as error:
            error.place = Place(name, number)
            raise
