"""What comes from outside: the clock, randomness, processors, files. All below takes them given."""

from __future__ import annotations

import gc
import io
import os
import stat
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from lace.base.arguments import kind_of
from lace.base.limits import (
    DEFAULT_SETTINGS,
    MAX_LOGGED_CHARACTERS,
    Settings,
    SettingSource,
    describe_settings,
    parse_setting,
    resolve_settings,
)
from lace.base.limits import Value as SettingValue
from lace.base.tai import Tai, TaiError
from lace.errors import LaceError, SettingError, StoreError, UsageError
from lace.record.model import Plex
from lace.record.seal import SigningKey
from lace.store.file_errors import open_reader, open_writer, translating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "DEFAULT_SETTINGS",
    "MAX_LOGGED_CHARACTERS",
    "SETTINGS_FILE",
    "SettingSource",
    "SettingValue",
    "Settings",
    "Tai",
    "TaiError",
    "describe_settings",
    "memory_for_import",
    "now",
    "open_reader",
    "opened_file",
    "parse_setting",
    "processors",
    "read_chunks",
    "read_settings_file",
    "refuse_file",
    "resolve_settings",
    "settings_template",
    "write_settings_file",
    "writing_file",
    "written_file",
]

SETTINGS_FILE: Final = "lace.toml"
_CHUNK_BYTES: Final = 1 << 20


def now() -> Tai:
    """Return the clock's reading as a TAI instant."""
    return Tai.from_unix_nanoseconds(time.time_ns())


# The two things that a record value cannot do without the outside world.
Plex.clock = now
SigningKey.random_source = os.urandom


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's bytes in pieces of bounded size, each as soon as it is there."""
    read = getattr(file, "read1", file.read)  # what a slow pipe has now, not what fills the piece
    while chunk := read(_CHUNK_BYTES):
        yield chunk


@contextmanager
def memory_for_import() -> Iterator[None]:
    """Tune the memory of a process that is Lace alone, until the end of a large import.

    Python does not look for cycles among hundreds of thousands of values without any.
    """
    from lace.link.resources import keep_one_arena  # only a large import needs it

    keep_one_arena()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def refuse_file(folder: Path) -> None:
    """Refuse a path that cannot be a folder: it, or something on the way to it, is a file."""
    for place in (folder, *folder.parents):
        if os.path.exists(place):  # noqa: PTH110 - Path's fails where a folder is closed to us
            if not place.is_dir():
                raise UsageError(f"{place} is not a folder", hint="name a folder for the lace")
            return


def read_settings_file(path: Path) -> SettingSource:
    """Return the settings that a `lace.toml` gives; tables in it belong to other parts."""
    try:
        text = path.read_text("utf-8")
        if all(line.startswith("#") or not line for line in text.split("\n")):
            return SettingSource(
                str(path), {}
            )  # as `lace init` writes it; the parser need not be loaded
        import tomllib

        values = tomllib.loads(text)
    except FileNotFoundError:
        return SettingSource(str(path), {})
    except (OSError, ValueError) as error:  # not readable, not UTF-8, or not TOML
        raise SettingError(f"{path} cannot be read: {error}") from error
    return SettingSource(str(path), {k: v for k, v in values.items() if not isinstance(v, dict)})


def settings_template() -> str:
    """Return a `lace.toml` that names every setting and changes none."""
    lines = [
        "# Settings of this lace. Every line is a default; take the # away to change one.",
        "# LACE_<NAME> in the environment wins over this file, and --set NAME=VALUE over both.",
        '# Sizes are bytes, or text with a unit: "64MiB".',
    ]
    for name, meaning, unit in describe_settings():
        lines += ["", f"# {meaning}{f' ({unit})' if unit else ''}"]
        value = getattr(DEFAULT_SETTINGS, name)
        lines.append(f"#{name} = {value if isinstance(value, int) else list(value)}")
    return "\n".join(lines) + "\n"


def write_settings_file(path: Path) -> None:
    """Write a `lace.toml` that names every setting and changes none, unless there is a file."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_template())
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def _gives_bytes(source: object) -> bool:
    return hasattr(source, "read") and not isinstance(source, io.TextIOBase)


@contextmanager
def opened_file(
    source: str | os.PathLike[str] | IO[bytes],
) -> Iterator[tuple[IO[bytes], str | None, int | None]]:
    """Open a file, or take one that is open: it, its name and its size, where they are known.

    Raises:
        UsageError: the file does not exist, or is not a binary file.
        StoreError: it cannot be read to its end.
    """
    if not isinstance(source, (str, os.PathLike)):
        if not _gives_bytes(source):
            raise UsageError(
                f"source is a path, or a file that was opened for bytes, not {kind_of(source)}",
                hint="open it with mode 'rb'; bytes in memory go into an io.BytesIO",
            )
        yield source, getattr(source, "name", None) and str(source.name), None
        return
    path = Path(source)

    def translate(error: OSError) -> LaceError:
        if isinstance(error, (FileNotFoundError, IsADirectoryError, PermissionError)):
            return UsageError(f"{path} cannot be read: {error.strerror}")
        return StoreError(f"reading {path} failed: {error.strerror}")

    with open_reader(path, translate) as file:
        with translating(translate):
            size = path.stat().st_size if path.is_file() else None
        yield file, str(path), size


def _takes_bytes(target: object) -> bool:
    return hasattr(target, "write") and not isinstance(target, io.TextIOBase)


@contextmanager
def writing_file(target: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """Take a file that is open for bytes, or write one that appears when it is whole.

    Raises:
        UsageError: the target is not a path and not a binary file.
        StoreError: the file cannot be written.
    """
    if not isinstance(target, (str, os.PathLike)):
        if not _takes_bytes(target):
            raise UsageError(
                f"target is a path, or a file that was opened for bytes, not {kind_of(target)}",
                hint="open it with mode 'wb'",
            )
        yield target
        return
    path = Path(target)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise UsageError(f"{path} is a folder, or in one that is not there", hint="name a file")
    with written_file(
        path, lambda error: StoreError(f"{path} cannot be written: {error.strerror}")
    ) as file:
        yield file


@contextmanager
def written_file(path: Path, translate: Callable[[OSError], Exception]) -> Iterator[IO[bytes]]:
    """Open a file to be written; it appears, or replaces another, when all went well.

    Args:
        path: the file.
        translate: gives the error to raise for a failure of the file; what else fails in the
            block stays as it is.
    """
    if path.exists() and not path.is_file():
        with open_writer(path, translate) as file:  # a device or a pipe
            yield file
        return
    target = path.resolve()
    number = f"{os.getpid()}-{threading.get_ident()}"
    scratch = target.with_name(f".{target.name}.{number}.part")
    opened = open_writer(scratch, translate, is_new=True)  # an existing one is not ours
    try:
        with opened as file:
            with translating(translate):
                if target.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            with translating(translate):
                os.fsync(file.fileno())
        with translating(translate):
            scratch.replace(target)
    except BaseException:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise
