"""`lace import`: records from files into a lace. A bad record never stops the good ones."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lace.api.system import memory_for_import
from lace.cli.command import command as lace_command
from lace.cli.failures import Terminated
from lace.cli.output import plural
from lace.cli.progress import Progress
from lace.cli.signals import Interrupts
from lace.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.api import Lace
    from lace.api.records import Intake, Report
    from lace.cli.session import Session
    from lace.errors import RecordError


_STANDARD_INPUT: Final = "-"
_LOGGED_NAMES: Final = 10


@dataclass(slots=True)
class _FileResult:
    """What became of one file."""

    file: str
    stored: int = 0
    known: int = 0
    rejected: int = 0
    errors: list[dict[str, object]] = field(default_factory=list)

    @property
    def is_something_else(self) -> bool:
        """Whether nothing in it is a record, and nothing looks as if it had been one."""
        is_whole = self.rejected == 1 and not self.stored and not self.known
        return is_whole and any(
            error["offset"] == 0 and error["rule"] == "010-markline" for error in self.errors
        )


class _Import:
    """An import of several files: its counts, its reports, its progress."""

    def __init__(self, session: Session, lace: Lace, admit_embedded: bool) -> None:
        self._session = session
        self._lace = lace
        self._admit_embedded = admit_embedded
        self._interrupts = Interrupts()
        self._reports_left = lace.settings.import_max_reports
        self.unreported = 0
        self.results: list[_FileResult] = []

    def total(self, name: str) -> int:
        """Return one of the counts, over all files."""
        return sum(getattr(result, name) for result in self.results)

    def run(self, names: Sequence[str]) -> None:
        """Import every file, one after another."""
        sizes = [_size(name) for name in names]
        total = sum(size or 0 for size in sizes) if None not in sizes else None
        before = 0
        with (
            memory_for_import(),
            self._interrupts.kept(),
            Progress(self._session, "import", total, "bytes") as progress,
        ):
            for name, size in zip(names, sizes, strict=True):
                self._run_file(name, size, before, progress)
                self._interrupts.check()
                before += size or 0

    def _run_file(self, name: str, size: int | None, before: int, progress: Progress) -> None:
        result = _FileResult("standard input" if name == _STANDARD_INPUT else name)
        self.results.append(result)
        unfinished = 0  # errors only because a signal ended the input inside a record

        def report(counts: Intake, errors: Sequence[RecordError]) -> None:
            nonlocal unfinished
            result.stored, result.known = counts.stored, counts.known
            own = _without_cut(errors) if self._interrupts.ended_input else errors
            unfinished += len(errors) - len(own)
            result.rejected = counts.rejected - unfinished
            for error in own:
                self._reject(result, error)
            progress.update(before + counts.bytes_read, f"{self.total('stored'):,} stored")
            if size is not None:  # what came from a pipe is stored first: it may not come again
                self._interrupts.check()

        self._feed(name, size, report)

    def _feed(self, name: str, size: int | None, report: Report) -> None:
        feed = partial(self._lace.import_file, admit_embedded=self._admit_embedded, report=report)
        if name == _STANDARD_INPUT:
            if sys.stdin.isatty():
                self._session.output.note("reading records from the terminal; end with Ctrl-D")
            feed(self._interrupts.reader(sys.stdin.buffer, "standard input"))
        elif size is None:  # a pipe, which may keep its reader waiting
            with self._interrupts.waiting():
                pipe = Path(name).open("rb")  # noqa: SIM115 - closed below
            with pipe:
                feed(self._interrupts.reader(pipe, name))
        else:
            feed(name)

    def _reject(self, result: _FileResult, error: RecordError) -> None:
        if self._reports_left == 0:
            self.unreported += 1
            return
        self._reports_left -= 1
        offset = error.place.offset if error.place else None
        result.errors.append({"offset": offset, "reason": error.message, "rule": error.rule})
        self._session.output.complain(str(error))


def _without_cut(errors: Sequence[RecordError]) -> list[RecordError]:
    """Return errors, by offset, without that of a record cut by the end of input and its rest."""
    return list(takewhile(lambda error: error.rule != "010-cut", errors))


def _size(name: str) -> int | None:
    """Return a file's size; None for what has none beforehand."""
    if name == _STANDARD_INPUT:
        return None
    path = Path(name)
    return path.stat().st_size if path.is_file() else None


def _why_unreadable(name: str) -> str | None:
    path = Path(name)
    try:
        if path.is_dir():
            return "it is a folder"
        if path.is_file():
            with path.open("rb"):
                return None
        path.stat()
    except OSError as error:
        return error.strerror
    return None if os.access(path, os.R_OK) else "permission denied"


def _check_files(session: Session, names: Sequence[str]) -> None:
    if names.count(_STANDARD_INPUT) > 1 or (_STANDARD_INPUT in names and sys.stdin is None):
        raise UsageError("standard input can be read once, if it is open", hint="name files")
    faults = [(name, _why_unreadable(name)) for name in names if name != _STANDARD_INPUT]
    bad = [(name, why) for name, why in faults if why is not None]
    if not bad:
        return
    for name, why in bad[:-1]:
        session.output.complain(f"lace: {name} cannot be read: {why}")
    name, why = bad[-1]
    raise UsageError(f"{name} cannot be read: {why}", hint="nothing was imported")


def _what_stays(stored: int) -> str:
    if not stored:
        return "nothing was stored; run it again to complete it"
    verb = "stays" if stored == 1 else "stay"
    return f"{plural(stored, 'record')} stored before this {verb}; run it again to complete it"


@lace_command(
    "import",
    api="Lace.import_file",
    piped="Three lines of a name and a number: stored, known (they were here already), rejected.",
    json_keys={
        "stored": "how many records are new here",
        "known": "how many were here already",
        "rejected": "how many were not valid",
        "files": "a list of {file, stored, known, rejected, errors}; errors is a list of "
        "{offset, reason, rule}, the first import_max_reports of them",
    },
    examples=[
        ("lace import backup.records", "store every record of a file"),
        ("curl https://example.org/all.records | lace import -", "read from a pipe"),
    ],
)
@click.argument("files", metavar="FILE…|-", nargs=-1, required=True)
@click.option(
    "--admit-embedded",
    is_flag=True,
    help="Also store the records that others embed, each in its own right.",
)
@click.pass_obj
def command(session: Session, files: tuple[str, ...], admit_embedded: bool) -> int:
    """Store the records of files.

    Files hold records one after another. Each is validated, and stored if it is new. A bad
    record is reported on standard error with its byte offset, the reason and the rule it breaks,
    and never stops the good ones; the exit code is then 1. Records are stored in whole
    batches: an import that was interrupted leaves no half record, and run again it completes
    the set. What was read from a pipe before an interruption is stored first.
    """
    _check_files(session, files)
    with session.changing("import") as change:
        work = _Import(session, change.lace, admit_embedded)
        try:
            work.run(files)
        except StoreError:
            session.output.note(_what_stays(work.total("stored")))
            raise
        except (KeyboardInterrupt, Terminated):  # reported with the signal
            session.durable = _what_stays(work.total("stored"))
            raise
        finally:
            counts = {name: work.total(name) for name in ("stored", "known", "rejected")}
            change.result.update(counts)
            change.result["files"] = [Path(name).name for name in files[:_LOGGED_NAMES]]
            if work.unreported:
                session.output.complain(f"and {work.unreported:,} more")
        change.exit_code = 1 if counts["rejected"] else 0
    for result in work.results:
        if result.is_something_else:
            session.output.note(
                f"{result.file} is no file of records; `lace put` makes a record of any data"
            )
    session.output.counts(counts, {**counts, "files": [asdict(each) for each in work.results]})
    return change.exit_code
