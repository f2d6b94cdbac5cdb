"""Files of fact lines as commands read them, and as what is wrong with one is told."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from lace.base.text import safe_text
from lace.cli.progress import Progress
from lace.cli.rule_files import STANDARD_INPUT
from lace.errors import LaceError, LimitExceeded, Place, UsageError
from lace.facts.lines import FactLineError, parse_fact
from lace.rules.limits import check_arity
from lace.rules.syntax import PredicateKey
from lace.store.file_errors import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lace.cli.session import Session
    from lace.facts.lines import Fact
    from lace.rules.limits import RuleLimits

__all__ = ["GivenFacts", "name_of", "read_fact_files"]

Check: TypeAlias = "Callable[[Fact], None]"
_LEAST_LINE_BYTES: Final = 1 << 20
"""A line may have as many bytes, however few the limits of values and arity allow."""
_TELL_LINES: Final = 20_000


class GivenFacts:
    """The facts of files, at most as many as an evaluation takes.

    Args:
        limits: of the evaluation.
        check: refuses what does not belong into these files; it gets each line's fact once.
    """

    def __init__(self, limits: RuleLimits, check: Check | None = None) -> None:
        self._limits = limits
        self._check = check
        self._most = limits.max_base_facts + limits.max_runtime_facts
        self._check_at = self._most
        self.facts: list[Fact] = []

    @property
    def max_line_bytes(self) -> int:
        """The bytes of a line, its LF included, that can be a fact within the limits."""
        limits = self._limits
        return max(_LEAST_LINE_BYTES, 1024 + limits.max_arity * (2 * limits.max_value_bytes + 3))

    def add(self, line: bytes) -> None:
        """Add the fact of a line."""
        fact = parse_fact(line, max_value_bytes=self._limits.max_value_bytes)
        check_arity(fact[0], len(fact) - 1, self._limits)
        if self._check is not None:
            self._check(fact)
        self.facts.append(fact)
        if len(self.facts) > self._check_at:
            self.facts = list(dict.fromkeys(self.facts))  # what is there twice counts once
            if len(self.facts) > self._most:
                raise LimitExceeded(
                    f"these are more than {self._most:,} facts",
                    limit="max_base_facts",
                    allowed=self._limits.max_base_facts,
                    observed=len(self.facts),
                    rule="G18",
                )
            self._check_at = len(self.facts) + self._most

    @property
    def predicates(self) -> set[PredicateKey]:
        """The predicates that have facts."""
        shapes = {(fact[0], len(fact)) for fact in self.facts}
        return {PredicateKey(name, length - 1) for name, length in shapes}


def name_of(argument: str) -> str:
    """Return what messages call a file that the command line names."""
    return "standard input" if argument == STANDARD_INPUT else safe_text(argument) or "''"


def read_fact_files(
    session: Session,
    arguments: Sequence[str],
    limits: RuleLimits,
    check: Check | None = None,
) -> GivenFacts:
    """Read files of fact lines, or standard input.

    Raises:
        UsageError: a file cannot be read.
        FactLineError: a line is no fact, or not one of those wanted; the place names file
            and line.
        LimitExceeded: a value is too long, or there are too many facts.
    """
    if arguments.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read once", hint="name files")
    given = GivenFacts(limits, check)
    for argument in arguments:
        name = name_of(argument)
        with _opened(session, argument, name) as (file, size):
            _read(session, file, name, size, given)
    return given


@contextmanager
def _opened(session: Session, argument: str, name: str) -> Iterator[tuple[IO[bytes], int | None]]:
    if argument == STANDARD_INPUT:
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a FILE")
        if sys.stdin.isatty():
            session.output.note("reading facts from the terminal; end with Ctrl-D")
        yield sys.stdin.buffer, None
        return
    path = Path(argument)
    try:
        opened = open_reader(
            path, lambda error: UsageError(f"{name} cannot be read: {error.strerror}")
        )
    except ValueError as error:  # a name that no system takes
        raise UsageError(f"{name} cannot be read: {error}") from error
    with opened as file:
        yield file, path.stat().st_size if path.is_file() else None


def _read(
    session: Session, file: IO[bytes], name: str, size: int | None, given: GivenFacts
) -> None:
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
                        rule="G35",
                        hint="write one fact a line",
                    )
                given.add(line.removesuffix(b"\n"))
                if number % _TELL_LINES == 0:
                    progress.update(done)
        except LaceError as error:
            error.place = Place(name, number)
            raise
