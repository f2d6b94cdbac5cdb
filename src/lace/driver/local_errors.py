"""What can go wrong on this side while effects are carried out, as errors of Lace.

Disk, memory and operating system fail with exceptions of their own. An exchange ends with
each of them as with a store that cannot work, so that the caller learns what failed.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from lace.errors import LaceError, Place
from lace.store.interface import StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOCAL_ERRORS", "error_of"]

LOCAL_ERRORS: Final = (LaceError, OSError, MemoryError)
"""What an effect may end with, where nobody has made a mistake."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def error_of(error: LaceError | OSError | MemoryError, folder: Path) -> LaceError:
    """Return the error of Lace that an exception is, for a side with its lace in a folder."""
    if isinstance(error, LaceError):
        return error
    hint = "nothing that was stored is lost; check the system and run it again"
    if isinstance(error, MemoryError):
        made = StoreUnavailableError("not enough memory", place=Place(str(folder)), hint=hint)
    else:
        if error.errno in _FULL:
            hint = "nothing that was stored is lost; free some space and run it again"
        where = str(folder if error.filename is None else error.filename)
        what = error.strerror or str(error) or type(error).__name__
        made = StoreUnavailableError(what, place=Place(where), hint=hint)
    made.__cause__ = error
    return made
