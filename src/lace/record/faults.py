"""How a fault of a record is placed."""

from __future__ import annotations

from lace.errors import Place, RecordError


def fault(rule: str, message: str, offset: int, hint: str | None = None) -> RecordError:
    """Return an error at a byte offset, counted from the start of the record."""
    return RecordError(message, rule=rule, place=Place(offset=offset), hint=hint)


def relocate(error: RecordError, source: str | None, base: int) -> RecordError:
    """Move an error from an offset in a record to one in the source that holds the record."""
    inside = error.place.offset if error.place else None
    error.place = Place(source=source, offset=base + (inside or 0))
    return error


def detach(error: RecordError) -> RecordError:
    """Return an error without the frames it came through, which would keep their batch alive."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
