"""TAI instants: ten digits of seconds, a colon, nine digits of nanoseconds.

Text order is time order. Arithmetic is exact, in integers of nanoseconds; no
clock is read here.
"""

from __future__ import annotations

import re
from typing import Final

from lace.base.arguments import is_text_of, kind_of
from lace.errors import RecordError

TAI_UNIX_SECONDS: Final = 37
"""What a clock reading adds to Unix seconds."""

TAI_PATTERN: Final = "[0-9]{10}:[0-9]{9}"
_TAI: Final = re.compile(TAI_PATTERN)
_SECOND: Final = 1_000_000_000
_LIMIT: Final = 10_000_000_000 * _SECOND


class TaiError(RecordError):
    """A text or number that is no TAI instant."""


class Tai(str):
    """A TAI instant as its text, `1640995237:000000000`.

    Raises:
        TaiError: the text has another form.

    >>> Tai.from_unix_nanoseconds(1_640_995_200_000_000_001)
    Tai('1640995237:000000001')
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Tai:
        """Return the instant of a text; an instant is returned as it is."""
        if isinstance(text, Tai):
            return text
        if not is_text_of(_TAI, text):
            raise _refusal(text)
        return super().__new__(cls, text)

    def __repr__(self) -> str:
        return f"Tai({str(self)!r})"

    @classmethod
    def from_nanoseconds(cls, nanoseconds: int) -> Tai:
        """Return the instant that many nanoseconds after the TAI epoch."""
        _check_whole(nanoseconds)
        if not 0 <= nanoseconds < _LIMIT:
            raise TaiError(f"{nanoseconds} nanoseconds do not fit into a TAI text", rule="010-tai")
        seconds, rest = divmod(nanoseconds, _SECOND)
        return cls(f"{seconds:010d}:{rest:09d}")

    @classmethod
    def from_unix_nanoseconds(cls, nanoseconds: int) -> Tai:
        """Return the instant of a Unix clock reading in nanoseconds."""
        _check_whole(nanoseconds)
        return cls.from_nanoseconds(nanoseconds + TAI_UNIX_SECONDS * _SECOND)

    @property
    def nanoseconds(self) -> int:
        """Nanoseconds since the TAI epoch."""
        return int(self[:10]) * _SECOND + int(self[11:])

    @property
    def unix_nanoseconds(self) -> int:
        """The Unix clock reading of this instant, in nanoseconds."""
        return self.nanoseconds - TAI_UNIX_SECONDS * _SECOND

    def shift(self, nanoseconds: int) -> Tai:
        """Return the instant that many nanoseconds later (earlier, when negative)."""
        _check_whole(nanoseconds)
        return Tai.from_nanoseconds(self.nanoseconds + nanoseconds)


def _check_whole(nanoseconds: object) -> None:
    if not isinstance(nanoseconds, int):
        raise TaiError(
            f"nanoseconds are a whole number, not {kind_of(nanoseconds)}",
            rule="010-tai",
            hint="as of time.time_ns()",
        )


def _refusal(given: object) -> TaiError:
    message = f"a TAI instant is text, not {kind_of(given)}"
    if isinstance(given, str):
        message = f"{given!r} is not a TAI instant"
    return TaiError(message, rule="010-tai", hint="write ten digits, a colon and nine digits")
