"""Files of a cache: each written whole or not at all, and the ones used longest ago removed.

A file that is missing costs time and nothing else, so that whatever keeps one lets an `OSError`
pass. When a file was used last is its modification time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lace.store.file_errors import remove_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["prune_files", "save_file"]

_UNFINISHED: Final = ".new"
"""The suffix of a file that is being written."""
_STALE_SECONDS: Final = 3600.0
"""A file that was last written this long ago is not being written any more."""


def save_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file, whole or not at all, that its owner alone can read.

    Raises:
        OSError: it cannot be written; the file that was there stays.
    """
    unfinished = path.with_suffix(_UNFINISHED)
    try:
        with open(unfinished, "wb", opener=_open_private) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def prune_files(folder: Path, suffix: str, keeps: Callable[[Path, int], bool]) -> None:
    """Remove files of a cache, and those that a process began to write before it crashed.

    Args:
        folder: where they are.
        suffix: what the names of the cache's files end with.
        keeps: says of a file and its size whether it stays; asked about the file used last first.
    """
    found: list[tuple[int, int, Path]] = []
    for path in folder.glob(f"*{suffix}"):
        with suppress(FileNotFoundError):  # another process has removed it
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    too_many = [path for _, size, path in sorted(found, reverse=True) if not keeps(path, size)]
    remove_all((*too_many, *_stale_files(folder)))


def _stale_files(folder: Path) -> list[Path]:
    """Return the files that a process began to write and, since it crashed, did not finish."""
    before = time.time() - _STALE_SECONDS
    found: list[Path] = []
    for path in folder.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):  # another process has removed it
            if path.lstat().st_mtime < before:
                found.append(path)
    return found
