"""The listening socket that a service manager hands over, as systemd does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FIRST_DESCRIPTOR", "inherited_descriptor"]

FIRST_DESCRIPTOR: Final = 3
"""The descriptor of the first socket that is handed over."""


def inherited_descriptor(environ: Mapping[str, str]) -> int | None:
    """Return the descriptor of the socket that was handed over to this process, if one was.

    Raises:
        UsageError: more were.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return None  # none, or for another process: the parent process keeps the variables
    count = environ.get("LISTEN_FDS", "")
    if count == "1":
        return FIRST_DESCRIPTOR
    raise UsageError(
        f"one socket is taken over, and LISTEN_FDS is {count!r}",
        hint="let the socket unit have one ListenStream=",
    )
