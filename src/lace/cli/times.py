"""TAI instants as people read and write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lace.base.tai import Tai, TaiError
from lace.base.text import shorten
from lace.errors import UsageError

__all__ = ["parse_time", "time_text"]


def time_text(tai: str) -> str:
    """Return a TAI instant as UTC, to the second; return any other text unchanged.

    >>> time_text("1640995237:000000000")
    '2022-01-01 00:00:00'
    """
    try:
        nanoseconds = Tai(tai).unix_nanoseconds
    except TaiError:
        return tai
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=nanoseconds // 10**9)
    return f"{instant:%Y-%m-%d %H:%M:%S}"


def parse_time(text: str, option: str) -> Tai:
    """Return the instant of a TAI text, or of a date and time with its offset from UTC.

    >>> parse_time("2022-01-01T00:00:00Z", "--at")
    Tai('1640995237:000000000')

    Raises:
        UsageError: it is neither.
    """
    try:
        return Tai(text)
    except TaiError:
        pass
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            passed = instant - datetime(1970, 1, 1, tzinfo=UTC)
            return Tai.from_unix_nanoseconds(passed // timedelta(microseconds=1) * 1000)
    except (ValueError, OverflowError, TaiError):
        pass
    raise UsageError(
        f"{option} must be an instant, got {shorten(text)!r}",
        hint="write 2026-11-20T00:00:00Z, or a TAI instant: ten digits, a colon and nine digits",
    )
