"""What the operations of a peer's rules count for, in units of work.

A unit is about a nanosecond of one processor, so that `peer_max_work` (2^33) is reached
before `peer_max_cpu_seconds` (10), whatever kind of step a peer chooses. The numbers are
upper bounds, measured over millions of rows on a busy machine; they are part of the program
and not of the machine, so that the same rules over the same facts cost the same everywhere.
"""

from __future__ import annotations

from typing import Final

APPLICATION: Final = 60_000
"""One application of a rule, or of a count for one frame, whatever it finds."""
STEP: Final = 30_000
"""One step of a plan on one frame and one part of a relation, however few rows that has."""
ATOM: Final = 60_000
"""An atom of a body in a plan that is made."""
UNIT_BYTES: Final = 4
"""Bytes of a table that count for one unit when it is begun."""
ROW: Final = 5
"""A row that a step looks at."""
CELL: Final = 2
"""A value that a step copies."""
PROBE: Final = 100
"""A row that is looked for in a table, or among few keys."""
SEARCHED: Final = 250
"""A row that is looked for among many sorted keys."""
SORTED: Final = 150
"""A row of an index that is made: sorting, and finding where each key begins."""
SELECTED: Final = 4
"""A row that is compared with a constant, or with itself, to select it."""
SET_ROW: Final = 130
"""A row that is looked for in the facts made so far, and added to them."""
SET_COLUMN: Final = 250
"""A column of such a row beyond what one number holds: its pairs are numbered."""
TEXT: Final = 2_500
"""A text that a test asks about, or that is put in order among others."""
INTEGER: Final = 3_000
"""What such a text counts for besides, where it is compared as an integer."""
SHAPED_TEXT: Final = 4_500
"""A different value of a `TextShape` of several variables: sorted, turned, sorted again."""
CHARACTER: Final = 6
"""A character of such a text."""
INSERTED_TEXT: Final = 120_000
"""A text that is put among many that are in order already."""
PAIR: Final = 4_000
"""Two or three texts that a test asks about together, one by one."""
MATCH: Final = 120
"""A row of a test of two or three variables that is answered for a whole column at once."""


def added(rows: int, numbered_columns: int) -> int:
    """Return what rows count for that are added to a set, with columns that are numbered."""
    return (SET_ROW + SET_COLUMN * numbered_columns) * rows


def row(columns: int) -> int:
    """Return what a row counts for that a step looks at and keeps, with its columns."""
    return ROW + CELL * columns
