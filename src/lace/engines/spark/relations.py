"""Relations as Spark tables of numbers: how they are named, read, united and guarded.

A relation has columns `c0`, `c1` and so on of 64-bit numbers; one without arguments has one
column, `unit`, and at most one row. Rows on their way through a rule have a column for each
variable, named by its letters in hexadecimal, because Spark does not tell `Ab` from `AB`.

Steps are written as SQL where they can be: a text is one call to Java, a column object several.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from lace.rules.syntax import Constant, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lace.algebra.nodes import Scan

__all__ = [
    "NOTHING",
    "UNIT",
    "Pattern",
    "Relation",
    "breach_of",
    "columns_of",
    "guarded",
    "number",
    "pattern_of",
    "read_scan",
    "selected",
    "united",
    "variable_column",
]

UNIT: Final = "unit"
NOTHING: Final = f"0L AS {UNIT}"
"""All that is left of a row of which only the existence counts."""
Pattern: TypeAlias = "tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]"
"""Positions with the numbers that stand there, and pairs of positions with equal numbers."""
_ROW_BITS: Final = 33
"""Spark numbers the rows of each part of a table in this many bits."""
_BREACH: Final = re.compile(r"lace limit (work|derived) of rule ([0-9]{1,9})!")


@dataclass(frozen=True, slots=True)
class Relation:
    """A set of rows; `rows` is how many it has, None where that is not known yet.

    `most` is a number of rows that it certainly does not pass.
    """

    frame: DataFrame
    rows: int | None = None
    most: int | None = None

    @property
    def at_most(self) -> int | None:
        """The number of rows, or one that it does not pass, or None."""
        return self.most if self.rows is None else self.rows


def columns_of(arity: int) -> list[str]:
    """Return the names of the columns of a relation."""
    return [f"c{at}" for at in range(arity)] or [UNIT]


def variable_column(name: str) -> str:
    """Return the name of a variable's column."""
    return f"v{name.encode().hex()}"


def number(value: int) -> str:
    """Return a number as an expression of 64 bits."""
    return f"{int(value)}L"


def selected(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the columns of variables; without any, one that says that there is a row."""
    if not names:
        return frame.selectExpr(NOTHING)
    return frame.selectExpr(*map(variable_column, names))


def united(frames: Iterable[DataFrame]) -> DataFrame:
    """Return all rows of tables with the same columns, repeated ones too."""
    return reduce(lambda left, right: left.unionAll(right), frames)


def pattern_of(scan: Scan, constants: Mapping[str, int]) -> tuple[Pattern, dict[str, int]]:
    """Return which rows fit a scan, and the position of each variable."""
    fixed: list[tuple[int, int]] = []
    equal: list[tuple[int, int]] = []
    positions: dict[str, int] = {}
    for at, term in enumerate(scan.terms):
        if isinstance(term, Constant):
            fixed.append((at, constants[term.value]))
        elif isinstance(term, Variable):
            first = positions.setdefault(term.name, at)
            if first != at:
                equal.append((first, at))
    return (tuple(fixed), tuple(equal)), positions


def fits(pattern: Pattern) -> str | None:
    """Return the test whether a row fits a pattern; None when every row does."""
    fixed, equal = pattern
    tests = [f"c{at} = {number(value)}" for at, value in fixed]
    tests += [f"c{left} = c{right}" for left, right in equal]
    return " AND ".join(tests) or None


def read_scan(frame: DataFrame, scan: Scan, constants: Mapping[str, int]) -> DataFrame:
    """Return the rows of a relation that fit a scan, with the scan's columns."""
    pattern, positions = pattern_of(scan, constants)
    test = fits(pattern)
    if test is not None:
        frame = frame.where(test)
    if not scan.columns:
        return frame.selectExpr(NOTHING)
    return frame.selectExpr(
        *(f"c{positions[name]} AS {variable_column(name)}" for name in scan.columns)
    )


def guarded(frame: DataFrame, limit: int, kind: Literal["work", "derived"], rule: int) -> DataFrame:
    """Return the rows, and stop where one part of the table alone passes a limit.

    So a blow-up ends while it happens; what all parts have together is counted afterwards.
    """
    most = min(limit, 2**_ROW_BITS - 1)
    row = f"(monotonically_increasing_id() & {number(2**_ROW_BITS - 1)})"
    breach = f"CAST(raise_error('lace limit {kind} of rule {rule}!') AS boolean)"
    return frame.where(f"CASE WHEN {row} >= {number(most)} THEN {breach} ELSE true END")


def breach_of(error: BaseException) -> tuple[str, int] | None:
    """Return which limit a failed job went beyond, and in which rule; None for another reason."""
    found = _BREACH.search(str(error))
    return (found[1], int(found[2])) if found else None
