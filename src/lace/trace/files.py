"""Capture files: each direction of each connection, a line at a time.

A file is opened once for each direction, and both go through it at their own pace: so nothing
has to be held of a direction that is ahead. A capture may come from anybody; what is held of it
is one line.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from lace.errors import Place, UsageError
from lace.transport.capture import LONGEST_LINE, parse_line, unreadable

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from lace.transport.capture import Direction


MAX_CAPTURE_LINE_BYTES: Final = 4 * LONGEST_LINE + 8
"""Bytes of a line of a capture: each of the stream's may be `\\xNN` there."""
_OTHERS: Final[tuple[Direction, bytes]] = ("<", b"")
"""Stands for a line of the other direction."""


class Way:
    """One direction of a capture, connection by connection."""

    def __init__(self, path: Path, direction: Direction) -> None:
        self._name = str(path)
        self._skipped = b"< " if direction == ">" else b"> "
        self._file = _open(path)
        self._number = 0
        self._is_over = True
        self._has_more = False
        self._ahead: tuple[int, bytes] | None = None
        self.line = 0
        """The number of the line that the last piece is on."""

    def begin(self) -> bool:
        """Go to the next connection; tells whether there is one."""
        if not self._number:
            first = self._read()
            if not self._has_more:
                raise unreadable("the file is empty", Place(self._name))
            if first is not None:
                raise unreadable("a capture begins with =", Place(self._name, line=1))
            self._is_over = False
            return True
        while self.piece() is not None:
            pass
        self._is_over = not self._has_more
        return self._has_more

    @property
    def next_line(self) -> int | None:
        """The number of the line that the next piece is on; None at the connection's end."""
        self._look()
        return None if self._ahead is None else self._ahead[0]

    def piece(self) -> bytes | None:
        """Return the next bytes of this direction; None at the end of the connection."""
        self._look()
        found, self._ahead = self._ahead, None
        if found is None:
            return None
        self.line, piece = found
        return piece

    def _look(self) -> None:
        while self._ahead is None and not self._is_over:
            found = self._read()
            if found is None:
                self._is_over = True
            elif found is not _OTHERS:
                self._ahead = self._number, found[1]

    def _read(self) -> tuple[Direction, bytes] | None:
        """Return what the next line holds; None where a connection begins, and at the end.

        A line of the other direction is that one's to read.
        """
        raw = self._file.readline(MAX_CAPTURE_LINE_BYTES + 1)
        self._has_more = bool(raw)
        if not raw:
            return None
        self._number += 1
        place = Place(self._name, line=self._number)
        if len(raw) > MAX_CAPTURE_LINE_BYTES:
            raise unreadable(f"a line has more than {MAX_CAPTURE_LINE_BYTES:,} bytes", place)
        if not raw.endswith(b"\n"):
            raise unreadable("the last line is cut off", place)
        if raw.startswith(self._skipped):
            return _OTHERS
        try:
            text = raw[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise unreadable("a line is not UTF-8", place) from None
        return parse_line(text, self._number, self._name)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        said = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        made = UsageError(f"the capture cannot be read: {said}", place=Place(str(path)))
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EIO):
            made.exit_code = 3
        raise made from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(
            "a capture is a file, which is read twice at once",
            place=Place(str(path)),
            hint="write it to a file first",
        )
    return os.fdopen(descriptor, "rb")


class CaptureFile:
    """A capture, both ways; as a context it is closed at the end."""

    def __init__(self, path: Path) -> None:
        self.sent = Way(path, ">")
        self.came = Way(path, "<")

    def begin(self) -> bool:
        """Go to the next connection; tells whether there is one."""
        return self.sent.begin() and self.came.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sent.close()
        self.came.close()
