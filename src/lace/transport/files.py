"""Small files that a server or client is told of: maps, certificates, keys."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.errors import LaceError

__all__ = ["read_small_file"]


def read_small_file(
    path: Path, most: int, refusal: Callable[[str, str], LaceError]
) -> tuple[bytes, int]:
    """Return the bytes of a file and its permissions.

    Args:
        path: the file.
        most: how many bytes it may have.
        refusal: makes the error to raise, from what is wrong and what to do.

    Raises:
        LaceError: it cannot be read, is no file, or is too large.
    """
    try:
        # Without waiting: a pipe of that name would keep its reader for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refusal(
            f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise refusal("is not a file", "check the path")
        data = bytearray()
        while len(data) <= most and (piece := os.read(descriptor, most + 1 - len(data))):
            data += piece
    except OSError as error:
        raise refusal(f"cannot be read: {error.strerror}", "check its disk") from None
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise refusal(f"has more than {most} bytes", "check that it is the right file")
    return bytes(data), stat.S_IMODE(status.st_mode)
