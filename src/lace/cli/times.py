"""TAI instants as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lace.base.tai import Tai, TaiError

__all__ = ["time_text"]


def time_text(tai: str) -> str:
    """Return a TAI instant as UTC, to the second; what is none is returned as it is.

    >>> time_text("1640995237:000000000")
    '2022-01-01 00:00:00'
    """
    try:
        nanoseconds = Tai(tai).unix_nanoseconds
    except TaiError:
        return tai
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=nanoseconds // 10**9)
    return f"{instant:%Y-%m-%d %H:%M:%S}"
