"""Files of rules as commands read them, and what is said of those that are not legal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.base.text import safe_text
from lace.cli.output import plural
from lace.cli.wrapping import wrap_findings
from lace.errors import Finding, Place, RuleError, UsageError
from lace.rules.findings import MAX_KEPT, format_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.cli.session import Session

__all__ = [
    "MAX_FILE_BYTES",
    "STANDARD_INPUT",
    "RuleFile",
    "complain_findings",
    "count_findings",
    "finding_object",
    "read_file",
    "read_files",
    "refusing",
]

STANDARD_INPUT: Final = "-"
MAX_FILE_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file as it was read; `argument` is how the command line names it."""

    argument: str
    raw: bytes

    @property
    def name(self) -> str:
        """What messages call the file; it holds nothing that could break a line."""
        return _shown(self.argument)

    def text(self) -> bytes:
        """Return the bytes of the file.

        Raises:
            RuleError: it is larger than any lacegram.
        """
        if len(self.raw) <= MAX_FILE_BYTES:
            return self.raw
        found = Finding(
            severity="error",
            place=Place(self.name),
            message=f"the text has more than {MAX_FILE_BYTES:,} bytes",
            hint="divide it into several lacegrams",
        )
        raise RuleError(found.message, findings=(found,), place=found.place, hint=found.hint)


def _shown(argument: str) -> str:
    return "standard input" if argument == STANDARD_INPUT else safe_text(argument) or "''"


def read_file(session: Session, argument: str) -> RuleFile:
    """Read one file, or standard input; of a file that is too large only the beginning.

    Raises:
        UsageError: it cannot be read.
    """
    if argument == STANDARD_INPUT:
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a FILE")
        if sys.stdin.isatty():
            session.output.note("reading from the terminal; end with Ctrl-D")
        return RuleFile(argument, sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
    try:
        with Path(argument).open("rb") as file:
            return RuleFile(argument, file.read(MAX_FILE_BYTES + 1))
    except OSError as error:
        raise UsageError(f"{_shown(argument)} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a name that no system takes
        raise UsageError(f"{_shown(argument)} cannot be read: {error}") from error


def read_files(session: Session, arguments: Sequence[str]) -> Iterator[RuleFile]:
    """Yield the files that can be read, whatever is with the others.

    Raises:
        UsageError: at the end, if one of them could not be read.
    """
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
    parts = []
    for severity in ("error", "warning"):
        count = sum(finding.severity == severity for finding in findings)
        if count:
            least = "at least " if count >= MAX_KEPT else ""
            parts.append(least + plural(count, severity))
    return ", ".join(parts)


def complain_findings(session: Session, findings: Sequence[Finding]) -> None:
    """Write findings to standard error; with their place in the text where a person reads."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    found = format_findings(findings, excerpts=watched)
    for line in wrap_findings(found, session.output.aside_width):
        session.output.complain(line)


def refusing(session: Session, file: RuleFile, error: RuleError) -> RuleError:
    """Show all findings of an error; return what is left to tell: the error in one line."""
    complain_findings(session, error.findings)
    return RuleError(f"{count_findings(error.findings)} in {file.name}")
