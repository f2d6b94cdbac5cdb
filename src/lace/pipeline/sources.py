"""Which files an ingest reads: those named, those in folders, those that patterns match."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.errors import LimitExceeded, UsageError
from lace.pipeline.warehouse import file_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MAX_SOURCES", "Source", "describe_source", "find_files"]

MAX_SOURCES: Final = 1_000_000
"""Files that one ingest reads."""
_PATTERN: Final = frozenset("*?[")
_COMPRESSED: Final = {
    b"\x1f\x8b": ("gzip", "gunzip -k"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"BZh": ("bzip2", "bunzip2 -k"),
    b"\xfd7zXZ\x00": ("xz", "unxz -k"),
    b"PK\x03\x04": ("zip", "unzip"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it was when it was looked at; the three together say whether it is new."""

    path: str
    size: int
    digest: str


def find_files(names: Sequence[str]) -> list[Path]:
    """Return the files that names mean, absolute, each once, in a fixed order.

    A folder means all files below it but those whose name begins with a dot or an underscore.

    Raises:
        UsageError: a name means no file, or one that cannot be read or is compressed.
        LimitExceeded: they are too many.
    """
    found: dict[Path, None] = {}
    for name in names:
        before = len(found)
        matched = False
        for path in _matching(name):
            matched = True
            found[Path(os.path.abspath(path))] = None  # noqa: PTH100 - links stay as they are
            if len(found) > MAX_SOURCES:
                raise LimitExceeded(
                    f"more than {MAX_SOURCES} files", limit="MAX_SOURCES", allowed=MAX_SOURCES
                )
        if not matched and len(found) == before:
            raise UsageError(f"{name} has no file", hint="name files of records, or their folder")
    for path in found:
        _check_readable(path)
    return sorted(found)


def _matching(name: str) -> Iterator[Path]:
    path = Path(name)
    if path.is_dir():
        yield from _below(path)
    elif path.exists() or not _PATTERN.intersection(name):
        yield path
    else:
        for each in glob.iglob(name, recursive=True):  # noqa: PTH207 - an absolute pattern too
            found = Path(each)
            if found.is_dir():
                yield from _below(found)
            else:
                yield found


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(each for each in folders if not each.startswith((".", "_")))
        for name in files:
            path = Path(place) / name
            if not name.startswith((".", "_")) and path.is_file():
                yield path


def _refuse(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error


def _check_readable(path: Path) -> None:
    try:
        str(path).encode("utf-8")
        if not path.is_file():
            reason = "it is no file" if path.exists() else "there is no such file"
            raise UsageError(f"{path} cannot be read: {reason}", hint="nothing was ingested")
        with path.open("rb") as file:
            start = file.read(8)
    except UnicodeEncodeError:
        raise UsageError(f"{path!r} has a name that is not UTF-8", hint="rename it") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="nothing was ingested"
        ) from error
    for magic, (kind, command) in _COMPRESSED.items():
        if start.startswith(magic):
            raise UsageError(
                f"{path} is compressed ({kind}), and records are read as they are",
                hint=f"decompress it first: {command} {path.name}",
            )


def describe_source(path: Path) -> Source:
    """Return a file's path, size and digest.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return Source(str(path), path.stat().st_size, file_digest(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
