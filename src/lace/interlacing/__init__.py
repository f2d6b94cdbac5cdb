"""Interlace: the state machine by which two laces converge on a set of records (050)."""

__all__: list[str] = []
