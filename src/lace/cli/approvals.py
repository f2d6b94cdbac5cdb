"""What this user trusts: laces found on the way up, and commands that a `lace.toml` names.

A lace that was not named may be anybody's: on the way up from a shared folder there may be one
that another user has put there. It is used only if it, and its `lace.toml`, belong to this user
and others cannot write to them.

A `command` of a peer's table runs with this user's rights, so each is approved once, by a person
at a terminal. Approvals are kept outside the lace, in a file of this user alone, by the real
path of the lace and the exact command: what comes with a copied or changed lace is not approved.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.api import SETTINGS_FILE
from lace.base.text import safe_text
from lace.cli.output import ask, is_attended
from lace.errors import LaceError, Place, PolicyError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.cli.output import Output


_FILE_NAME: Final = "approved-commands.json"
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_VERSION: Final = 1
_OTHERS: Final = stat.S_IWOTH
_GROUP_OR_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH

Approval = tuple[str, tuple[str, ...]]
"""The real path of a lace, and a command that its `lace.toml` names."""


class ForeignLaceError(UsageError):
    """A lace that was found and not named, and that is not this user's own."""


def refuse_foreign(folder: Path) -> None:
    """Refuse a lace that was found, unless it is this user's own and others cannot write to it."""
    settings = folder / SETTINGS_FILE
    for path in (folder, settings):
        for look in (os.lstat, os.stat):
            try:
                status = look(path)
            except FileNotFoundError:
                continue  # no lace.toml, or a link to nothing: then there is nothing to read
            except OSError as error:
                raise _foreign(folder, f"{path} cannot be looked at: {error.strerror}") from error
            if status.st_uid != os.geteuid():
                raise _foreign(folder, f"{path} belongs to another user (uid {status.st_uid})")
            if status.st_mode & _OTHERS and not stat.S_ISLNK(status.st_mode):
                raise _foreign(
                    folder, f"anybody can write to {path}", f"run: chmod o-w {_quoted(path)}; or "
                )


def _foreign(folder: Path, what: str, first: str = "") -> ForeignLaceError:
    return ForeignLaceError(
        f"a lace was found that may not be yours: {safe_text(what)}",
        hint=f"{first}if you trust it, name it: --lace {_quoted(folder)}, or LACE_DIR",
    )


def _quoted(path: Path) -> str:
    return safe_text(shlex.quote(str(path)))


def approve_command(
    environ: Mapping[str, str],
    output: Output,
    *,
    lace: Path,
    peer: str,
    command: Sequence[str],
) -> None:
    """Ask this user to approve a command that a `lace.toml` names, once."""
    place = Place(f"{safe_text(str(lace / SETTINGS_FILE))}: [peer.{peer}]")
    shown = safe_text(shlex.join(command))
    asked = (os.path.realpath(lace), tuple(command))
    kept = _Approvals(_configuration(environ), output)
    if asked in kept.read():
        return
    if not is_attended():
        raise PolicyError(
            f"this command was not approved: {shown}",
            place=place,
            hint="run this once at a terminal, where you are asked; "
            f"or give the command yourself, after --: -- {shown}",
        )
    output.complain(f"{place} starts this command, with all your rights:")
    output.complain(f"  {shown}")
    ask("Approve this command for this lace, from now on?")
    kept.add(asked)


def _configuration(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of this user's configuration of Lace; None where there is no home."""
    given = Path(environ.get("XDG_CONFIG_HOME", ""))
    if given.is_absolute():  # others do not count, by the XDG specification
        return given / "lace"
    home = Path(environ.get("HOME", ""))
    return home / ".config" / "lace" if home.is_absolute() else None


class _UnsafeError(LaceError):
    """A file of approvals that somebody else could have written, or that is damaged."""


class _Approvals:
    """The file of approvals; one that others could have written is left aside, with a warning."""

    def __init__(self, folder: Path | None, output: Output) -> None:
        self._folder = folder
        self._output = output

    def read(self) -> frozenset[Approval]:
        """Return what was approved."""
        if self._folder is None:
            return frozenset()
        try:
            return frozenset(_read(self._folder))
        except _UnsafeError as error:
            self._output.warn(f"approvals are left aside: {error}")
            return frozenset()

    def add(self, approval: Approval) -> None:
        """Keep one more; where that cannot be done, it counts for this run only."""
        try:
            if self._folder is None:
                raise _UnsafeError("there is no home folder", hint="set HOME or XDG_CONFIG_HOME")
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self._folder):
                _write(self._folder, {*_read(self._folder), approval})
        except _UnsafeError as error:
            self._output.warn(f"the approval counts for this run only: {error}")
        except OSError as error:
            path = safe_text(str(error.filename or self._folder))
            self._output.warn(
                f"the approval counts for this run only: {path} cannot be written: {error.strerror}"
            )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes of this user from writing approvals at the same time."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refuse_others(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _UnsafeError(
            f"{safe_text(str(path))} belongs to another user (uid {status.st_uid})",
            hint="own it yourself, or set XDG_CONFIG_HOME",
        )
    if status.st_mode & _GROUP_OR_OTHERS:
        raise _UnsafeError(
            f"others can write to {safe_text(str(path))}", hint=f"run: chmod go-w {_quoted(path)}"
        )


def _read(folder: Path) -> set[Approval]:
    path = folder / _FILE_NAME
    try:
        # Without waiting: a pipe of that name would keep its reader for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise _UnsafeError(f"{safe_text(str(path))} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        _refuse_others(folder, folder.stat())
        _refuse_others(path, status)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            raise _damaged(path)
        raw = file.read(_MAX_FILE_BYTES)
    try:
        return set(_parse(json.loads(raw)))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(path) from None


def _parse(document: object) -> Iterator[Approval]:
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError
    for entry in document["approved"]:
        lace, command = entry["lace"], entry["command"]
        if not isinstance(command, list) or not command:
            raise ValueError
        if not all(isinstance(each, str) for each in (lace, *command)):
            raise ValueError
        yield lace, tuple(command)


def _damaged(path: Path) -> _UnsafeError:
    return _UnsafeError(
        f"{safe_text(str(path))} is not a list of approvals", hint="remove it, and approve again"
    )


def _write(folder: Path, approvals: set[Approval]) -> None:
    """Write the file whole or not at all, for its owner only."""
    listed = [{"lace": lace, "command": list(command)} for lace, command in sorted(approvals)]
    document = json.dumps({"version": _VERSION, "approved": listed}, indent=1)
    scratch = folder / f".{_FILE_NAME}.{os.getpid()}"
    scratch.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(scratch, flags, 0o600), "w", encoding="ascii") as file:
            file.write(document + "\n")
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(folder / _FILE_NAME)
    except BaseException:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise
