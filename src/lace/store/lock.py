"""One writer at a time, across processes: a lock that names its holder and is fair.

A writer first passes the turnstile, then takes the lock, then leaves the turnstile.
A process that waits for the lock holds the turnstile, so a process that writes batch after
batch lets a waiting one in between. The kernel releases both when a process dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from lace.store.cpu_slots import slot_lent
from lace.store.interface import StoreBusyError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_PAUSE_SECONDS: Final = 0.01
_HOLDER_BYTES: Final = 4096


_OWN_PATIENCE: Final = 6
"""How many times longer a thread waits for others of its own process."""
_guard = threading.Lock()
_turns: dict[Path, threading.Lock] = {}
"""Whose turn it is among the threads of this process, by lock file."""


class WriteLock:
    """The write lock of a lace, or of what else is so called, in two files of its folder."""

    def __init__(self, folder: Path, purpose: str, what: str = "lace") -> None:
        self._what = what
        self._lock = folder / "write.lock"
        self._turnstile = folder / "write.turnstile"
        self._purpose = purpose

    @contextmanager
    def held(self, wait_seconds: float) -> Iterator[None]:
        """Hold the lock inside the `with` block."""
        with self._own_turn(wait_seconds):
            yield from self._held(time.monotonic() + wait_seconds, wait_seconds)

    @contextmanager
    def _own_turn(self, wait_seconds: float) -> Iterator[None]:
        """Wait for other threads of this process: they are many in a server, and must not poll."""
        with _guard:
            turn = _turns.setdefault(self._lock.absolute(), threading.Lock())
        # Each of them holds it for a moment only; their number is no sign that the lace is busy.
        patience = wait_seconds * _OWN_PATIENCE
        if not turn.acquire(blocking=False):
            with slot_lent():
                is_ours = patience > 0 and turn.acquire(timeout=patience)
            if not is_ours:
                raise self._busy(wait_seconds)
        try:
            yield
        finally:
            turn.release()

    def _held(self, deadline: float, wait_seconds: float) -> Iterator[None]:
        descriptor = self._open(self._lock)
        try:
            turnstile = self._open(self._turnstile)
            try:
                self._acquire(turnstile, deadline, wait_seconds)
                self._acquire(descriptor, deadline, wait_seconds)
            finally:
                os.close(turnstile)
            self._write_holder(descriptor)
            yield
            with suppress(OSError):  # the next holder writes over it
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailableError(
                f"{path} cannot be opened for writing: {error.strerror}",
                hint="check the folder's permissions and that its disk is writable",
            ) from error

    def _acquire(self, descriptor: int, deadline: float, wait_seconds: float) -> None:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise self._busy(wait_seconds) from None
                with slot_lent():
                    time.sleep(_PAUSE_SECONDS)
            else:
                return

    def _write_holder(self, descriptor: int) -> None:
        holder = {"pid": os.getpid(), "purpose": self._purpose, "since": int(time.time())}
        text = json.dumps(holder).encode()[:_HOLDER_BYTES]
        with suppress(OSError):  # a full disk must not keep anyone from freeing space
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)

    def _busy(self, wait_seconds: float) -> StoreBusyError:
        holder = "another process"
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(self._lock.read_bytes()[:_HOLDER_BYTES])
            seconds = max(0, int(time.time()) - int(found["since"]))
            holder = f"process {int(found['pid'])} ({found['purpose']}, for {seconds} s)"
        return StoreBusyError(
            f"the {self._what} {self._lock.parent} is being written by {holder}; "
            f"waited {wait_seconds:g} s",
            hint="try again later, or wait longer with --set wait_seconds=N",
        )
