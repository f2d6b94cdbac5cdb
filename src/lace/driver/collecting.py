"""Memory while records move: fewer searches for garbage, and less that is held for nothing.

An exchange makes millions of small values without cycles and keeps many of them for a
while. Looking through all of them again and again finds nothing and takes a fifth of the
time; so while one runs, that is done less often. Garbage is still collected.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collecting_rarely", "give_back_memory", "keep_one_arena"]

_RARELY: Final = (250_000, 50, 100)
"""New values between two searches of the young; of those, between two of the older; of all."""


_M_ARENA_MAX: Final = -8
"""What the C library of GNU calls the setting."""

_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds before each of the blocks that run now; the first is put back at last."""


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect garbage less often than usual, until the end of the block.

    Blocks of several threads may overlap: the last one to end puts things back.
    """
    with _lock:
        before = gc.get_threshold()
        _before.append(before)
        if before[0] and before[0] < _RARELY[0]:  # who has turned it off, or down, keeps that
            gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before:
                gc.set_threshold(*first)


def give_back_memory() -> None:
    """Give back to the system what was freed since, where its library can do that.

    The arrays of a batch are of very different sizes, and the holes that they leave are
    rarely of use to the next ones.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def keep_one_arena() -> None:
    """Have all threads of this process take memory from one place, where its library can do that.

    Else a thread has a place of its own: what the database keeps comes from there while records
    are inserted beside, and holes in one place are of no use to the other. It is for programs
    that are Lace alone, and to be called before there are threads.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
