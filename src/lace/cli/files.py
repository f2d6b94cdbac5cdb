"""Files that commands write: whole or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lace.api.system import written_file
from lace.cli.output import Output, OutputError
from lace.errors import LaceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TerminalError", "check_target", "refuse_terminal", "written"]


class TerminalError(LaceError):
    """Bytes that a terminal could not show, and might obey."""


def check_target(name: str) -> None:
    """Refuse a file that could not be written, before there is anything to write.

    Raises:
        UsageError: there is no such folder, or a folder has the file's name.
    """
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{name} is a folder", hint="name a file with -o FILE")
    if not path.exists() and not path.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {path.resolve().parent}", hint="make it first")


@contextmanager
def written(name: str) -> Iterator[IO[bytes]]:
    """Open a file to be written; it appears, or replaces another, when all went well.

    Raises:
        UsageError: there is no such folder, or a folder has the file's name.
        OutputError: the disk or its permissions stand in the way.
    """
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
