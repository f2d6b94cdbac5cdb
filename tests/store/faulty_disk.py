"""A disk that fails on purpose: an SQLite VFS that counts writes and refuses the chosen one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ERRORS", "Disk", "faulty_disk"]

NAME = "lace-faulty"

ERRORS: dict[str, Callable[[str], Exception]] = {
    "full": lambda _operation: apsw.FullError("no space"),
    "io": lambda operation: _io_error(operation),
}
_EXTENDED = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
}


def _io_error(operation: str) -> Exception:
    error = apsw.IOError("no such luck")
    error.extendedresult = _EXTENDED[operation]  # type: ignore[attr-defined]  # SQLite is told
    return error


@dataclass
class Disk:
    """What the disk does next: the operation of that number fails, and those behind it."""

    fail_at: int | None = None
    lasting: bool = False
    partly: bool = False
    error: str = "io"
    seen: list[str] = field(default_factory=list)
    failed: int = 0

    def plan(self, fail_at: int | None, *, error: str, lasting: bool, partly: bool) -> None:
        self.fail_at, self.error, self.lasting, self.partly = fail_at, error, lasting, partly
        self.seen.clear()
        self.failed = 0

    def step(self, operation: str) -> bool:
        """Count an operation; True when it is to fail."""
        self.seen.append(operation)
        if self.fail_at is None or len(self.seen) < self.fail_at:
            return False
        if len(self.seen) > self.fail_at and not self.lasting:
            return False
        self.failed += 1
        return True

    def refuse(self, operation: str) -> Exception:
        return ERRORS[self.error](operation)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, base: str, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._disk.step("write"):
            if self._disk.partly:
                super().xWrite(data[: len(data) // 2], offset)
            raise self._disk.refuse("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self._disk.step("sync"):
            raise self._disk.refuse("sync")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        if self._disk.step("truncate"):
            raise self._disk.refuse("truncate")
        super().xTruncate(newsize)

    def excepthook(self, *_exception: Any) -> bool:
        """Say nothing on standard error."""
        return True


class _Disk(apsw.VFS):
    def __init__(self, disk: Disk, base: str) -> None:
        self._disk = disk
        self._base = base
        super().__init__(NAME, base)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self._disk, self._base, name, flags)

    def excepthook(self, *_exception: Any) -> bool:
        """Say nothing on standard error."""
        return True


@contextmanager
def faulty_disk() -> Iterator[Disk]:
    """Let every connection that is opened inside the block use the disk that this gives."""
    disk = Disk()
    usual = apsw.vfs_names()[0]
    vfs = _Disk(disk, usual)
    apsw.set_default_vfs(NAME)
    try:
        yield disk
    finally:
        apsw.set_default_vfs(usual)
        vfs.unregister()
