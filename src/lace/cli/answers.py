"""The answer to a query as it is written: fact lines, tables, JSON, CSV, Parquet.

Fact lines and JSON come in the order of the fact lines, sorted bytewise over the whole
output. One predicate's facts are held as text at a time, and written in small pieces.
"""

from __future__ import annotations

import csv
import heapq
import io
import json
import re
from itertools import islice, pairwise
from typing import IO, TYPE_CHECKING, Final

from lace.cli.output import Column, plural
from lace.errors import EngineError, UsageError
from lace.facts.lines import format_fact
from lace.rules.syntax import Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.cli.output import Output
    from lace.facts.lines import Fact
    from lace.query.result import Result
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = [
    "FORMATS",
    "SINGLE_FORMATS",
    "check_parquet",
    "one_predicate",
    "short_identifiers",
    "write_csv",
    "write_facts",
    "write_json",
    "write_parquet",
    "write_tables",
]

FORMATS: Final = ("facts", "table", "json", "csv", "parquet")
SINGLE_FORMATS: Final = ("csv", "parquet")
"""Formats that have one shape of row, and so one predicate."""

MAX_ROWS: Final = 1000
"""Rows of one predicate that a table shows."""
_PIECE: Final = 5_000
_SHORT_ID: Final = 10
_IDENTIFIER: Final = re.compile(r"[A-Z]\.[0-9A-Z_a-z~]{40,}(\.H3)?")


def one_predicate(
    keys: Sequence[PredicateKey], named: Sequence[PredicateKey], form: str
) -> PredicateKey:
    """Return the one predicate that a format with rows of one shape can hold.

    Raises:
        UsageError: there are several, or it has no columns.
    """
    chosen = named or keys
    if len(chosen) != 1:
        names = ", ".join(map(str, islice(chosen, 10)))
        what = f"{len(chosen):,}: {names}" if chosen else "none"
        raise UsageError(
            f"{form} holds the facts of one predicate, and here are {what}",
            hint="name one with --predicate NAME/N",
        )
    (key,) = chosen
    if not key.arity:
        raise UsageError(f"{key} has no columns for {form}", hint="use --format facts")
    return key


def _by_name(keys: Iterable[PredicateKey]) -> list[list[PredicateKey]]:
    """Return predicates in the order of their fact lines; those of one name together."""
    names: dict[str, list[PredicateKey]] = {}
    for key in keys:
        names.setdefault(key.name, []).append(key)
    return [names[name] for name in sorted(names, key=lambda name: f"{name}(")]


def _facts(result: Result, keys: Iterable[PredicateKey]) -> Iterator[Fact]:
    for key in keys:
        for values in result.rows(str(key)):
            yield (key.name, *values)


def write_facts(output: Output, result: Result, keys: Sequence[PredicateKey]) -> None:
    """Write fact lines, sorted bytewise."""
    for same in _by_name(keys):
        output.lines(sorted(map(format_fact, _facts(result, same))))


def write_json(output: Output, result: Result, keys: Sequence[PredicateKey]) -> None:
    """Write a JSON object a fact, each on its line, in the order of the fact lines."""
    for same in _by_name(keys):
        facts = sorted(_facts(result, same), key=format_fact)
        output.lines(json.dumps({"predicate": name, "values": values}) for name, *values in facts)


def write_csv(output: Output, result: Result, key: PredicateKey) -> None:
    """Write a heading and the rows of one predicate, sorted."""
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(range(key.arity))
    rows = iter(sorted(result.rows(str(key))))
    while True:
        output.text(page.getvalue())
        page.seek(0)
        page.truncate()
        piece = list(islice(rows, _PIECE))
        if not piece:
            return
        writer.writerows(piece)


def check_parquet() -> None:
    """Refuse to begin what could not be written.

    Raises:
        EngineError: pyarrow is not installed.
    """
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise EngineError(
            "Parquet needs pyarrow, which is not installed",
            hint="install the spark extra, pip install 'lace[spark]', or use --format csv",
        )


def write_parquet(file: IO[bytes], result: Result, key: PredicateKey) -> None:
    """Write the rows of one predicate as a Parquet file, sorted."""
    from pyarrow import parquet

    table = result.to_arrow(str(key))
    order = [(str(at), "ascending") for at in range(key.arity)]
    parquet.write_table(table.sort_by(order), file)


# -- tables ------------------------------------------------------------------------------------


def write_tables(output: Output, result: Result, keys: Sequence[PredicateKey]) -> list[str]:
    """Write a table for each predicate; returns remarks on what it does not show."""
    shortened = cut = False
    for number, key in enumerate(keys):
        if number:
            output.line("")
        count = result.count(str(key))
        if not key.arity:
            output.say(f"{key.name}() {'holds' if count else 'does not hold'}")
            continue
        output.say(f"{key}: {plural(count, 'fact') if count else 'no facts'}")
        if not count:
            continue
        rows = heapq.nsmallest(MAX_ROWS, result.rows(str(key)))
        shorter = short_identifiers(value for row in rows for value in row)
        cells = [[shorter.get(value, value) for value in row] for row in rows]
        columns = [Column(name) for name in _headings(result.checked, key)]
        output.line("")
        output.table(columns, cells)
        shortened = shortened or bool(shorter)
        if count > len(rows):
            cut = True
            output.say(f"these are the first {len(rows):,} of {count:,}")
    remarks = ["--format facts shows all of them"] if cut else []
    if shortened:
        remarks.append("hashes are cut short; --format facts shows them whole")
    return remarks


def short_identifiers(values: Iterable[str]) -> dict[str, str]:
    """Return the short forms of identifiers, as short as they differ and can be read."""
    found = sorted({value for value in values if _IDENTIFIER.fullmatch(value)})
    length = _SHORT_ID
    for before, after in pairwise(found):
        while before[:length] == after[:length]:
            length += 1
    return {value: f"{value[:length]}…" for value in found if len(value) > length + 1}


def _headings(checked: CheckedProgram, key: PredicateKey) -> list[str]:
    """Return the variables of a predicate's first rule that has any, else the positions."""
    headings = [str(at) for at in range(key.arity)]
    for rule in reversed(checked.rules):
        if rule.head.key == key:
            for at, term in enumerate(rule.head.terms):
                if isinstance(term, Variable):
                    headings[at] = term.name
    return headings
