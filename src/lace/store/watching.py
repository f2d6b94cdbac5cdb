"""Who wants to know that a store has changed: watchers in this process, by folder.

Several handles of one lace may be open here, and threads of their own may wait for records
that another adds. What another process stores shows in the database's own counters.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["announce_change", "watching"]

_lock = threading.Lock()
_watchers: dict[Path, list[Callable[[], None]]] = {}


def announce_change(folder: Path) -> None:
    """Tell the watchers of a store that its records have changed."""
    if not _watchers:
        return
    with _lock:
        told = list(_watchers.get(folder.absolute(), ()))
    for tell in told:
        tell()


@contextmanager
def watching(folder: Path, tell: Callable[[], None]) -> Iterator[None]:
    """Have a function called, in whichever thread, when records of a store change."""
    key = folder.absolute()
    with _lock:
        _watchers.setdefault(key, []).append(tell)
    try:
        yield
    finally:
        with _lock:
            _watchers[key].remove(tell)
            if not _watchers[key]:
                del _watchers[key]
