"""Records in tables for people: those that a policy is about, with what is known of them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from lace.cli.answers import short_identifiers
from lace.cli.output import Column
from lace.cli.times import time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.cli.output import Output
    from lace.store.interface import Snapshot

__all__ = ["MOST_ROWS", "SHORT", "identifier_column", "remark_cut", "show_records"]

MOST_ROWS: Final = 100
"""Rows of one table that a terminal shows."""
SHORT: Final = "hashes are cut short; a pipe and --json have them whole, and all of them"
"""What is said below tables that leave something out."""


def identifier_column(heading: str = "record") -> Column:
    """Return a column of hashes that are cut short."""
    return Column(heading, style="cyan", no_wrap=True)


def remark_cut(output: Output, shown: int, total: int) -> None:
    """Say that a table is cut, if it is."""
    if total > shown:
        output.say(f"these are the first {shown:,} of {total:,}")


def show_records(output: Output, snapshot: Snapshot, records: Sequence[str]) -> None:
    """Write a table of records with what is known of them, cut where it would be long."""
    shown = list(islice(records, MOST_ROWS))
    if not shown:
        return
    short = short_identifiers(shown)
    rows = []
    for record in shown:
        found = snapshot.describe(record)
        tai = found.tai if found is not None else None
        coordinate = found.coordinate if found is not None else "not here"
        rows.append((short.get(record, record), coordinate, time_text(tai) if tai else ""))
    columns = (identifier_column(), Column("coordinate"), Column("time, UTC", no_wrap=True))
    output.line("")
    output.table(columns, rows)
    remark_cut(output, len(shown), len(records))
