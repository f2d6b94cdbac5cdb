"""Files whose own failures become errors of Lace.

What a file cannot do is translated where the file does it: at opening, reading, writing and
closing. An `OSError` of other work in the same block, such as a callback, stays as it is.
"""

from __future__ import annotations

import errno
import io
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Translate = Callable[[OSError], Exception]


@contextmanager
def translating(translate: Translate) -> Iterator[None]:
    """Translate an `OSError` of a block that does nothing but calls of the system."""
    try:
        yield
    except OSError as error:
        _raise(translate, error)


def _raise(translate: Translate, error: OSError) -> NoReturn:
    found = translate(error)
    if found is error:
        raise error
    raise found from error


class _File(io.FileIO):
    """A file that translates its failures."""

    def __init__(self, path: Path, mode: str, translate: Translate) -> None:
        self._translate = translate
        with translating(translate):
            super().__init__(path, mode)

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        """Read as `io.FileIO` does."""
        with translating(self._translate):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        """Read all as `io.FileIO` does."""
        with translating(self._translate):
            return super().readall()

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        """Write as `io.FileIO` does."""
        with translating(self._translate):
            return super().write(data)

    def close(self) -> None:
        """Close as `io.FileIO` does."""
        with translating(self._translate):
            super().close()


def open_reader(path: Path, translate: Translate) -> io.BufferedReader:
    """Open a file to be read; `translate` gives the error to raise for a failure of it."""
    return io.BufferedReader(_File(path, "rb", translate))


def open_writer(path: Path, translate: Translate, *, is_new: bool = False) -> io.BufferedWriter:
    """Open a file to be written; `translate` gives the error to raise for a failure of it."""
    return io.BufferedWriter(_File(path, "xb" if is_new else "wb", translate))


def remove_all(paths: Iterable[Path]) -> list[OSError]:
    """Remove files and folders, each whatever became of the others; returns what failed.

    One that is not there is no failure, and a folder that keeps such a file is no further one.
    """
    failed: list[OSError] = []

    def note(_call: object, path: str, found: tuple[object, BaseException, object]) -> None:
        error = found[1]
        if not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
            return
        keeps = any(str(other.filename).startswith(f"{path}/") for other in failed)
        if error.errno != errno.ENOTEMPTY or not keeps:
            error.filename = path  # else it is the name alone, in the folder that was walked
            failed.append(error)

    for path in paths:
        try:
            is_folder = path.is_dir() and not path.is_symlink()
            if not is_folder:
                with suppress(FileNotFoundError):
                    path.unlink()
        except OSError as error:
            failed.append(error)
            continue
        if is_folder:
            shutil.rmtree(path, onerror=note)
    return failed
