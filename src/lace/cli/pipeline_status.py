"""`lace pipeline status`: what a warehouse holds, and what was done to it last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lace.cli.command import command as lace_command
from lace.cli.output import Column, size_text
from lace.cli.pipeline_session import warehouse_argument
from lace.cli.times import time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.spark.pipeline.tables import Rejected

__all__ = ["command"]

_FIELD = "facts/Field"


@lace_command(
    "status",
    piped="Lines of a name and a number: generation, sources, records, without_facts, "
    "quarantined, texts, files, bytes; then `facts PREDICATE` and a number for each predicate, "
    "`derived NAME PREDICATE` for each table of derived facts, `advertised NAME` for each run "
    "of advertise, and `rows TABLE` and `size TABLE` (bytes) for each table. --json has the last "
    "runs as well. With --quarantine, one line a fault instead, tab-separated: file, byte offset, "
    "rule, reason.",
    json_keys={
        "generation": "how many commits there were",
        "sources": "how many files were ingested",
        "records": "how many records there are",
        "without_facts": "how many of them have no facts yet",
        "quarantined": "how many faults were met",
        "texts": "how many texts the dictionary has",
        "files": "how many files the warehouse consists of",
        "bytes": "their bytes",
        "facts": "an object of the number of facts by predicate",
        "derived": "an object of the number of derived facts by name and predicate",
        "advertised": "an object of the number of advertised records by name",
        "tables": "an object by table of {rows, files, bytes}",
        "runs": "a list of {stage, generation, finished (TAI), seconds, rows}, the last 20 commits "
        "of stages, the newest first; rows are those of the files that it brought",
        "quarantine": "a list of {path, offset, rule, reason}: what was rejected (--quarantine)",
    },
    examples=[
        ("lace pipeline status big.wh", "what is in it"),
        ("lace pipeline status big.wh --quarantine", "what was rejected, and why"),
    ],
)
@warehouse_argument
@click.option(
    "--quarantine",
    is_flag=True,
    help="Show what was rejected: the file, the byte offset, the rule that is broken and why. "
    "Needs pyarrow.",
)
@click.pass_obj
def command(session: Session, warehouse: str, quarantine: bool) -> int:
    """Show what a warehouse holds: counts, tables with rows and sizes, and the last runs.

    A run is a stage that committed something: ingest, facts, evaluate or advertise. Its time
    begins with the command, or with the commit before it. Needs neither Spark nor Java.
    """
    from lace.spark.pipeline.tables import describe_warehouse, rejected_of
    from lace.spark.pipeline.warehouse import Warehouse

    opened = Warehouse.open(Path(warehouse))
    found = describe_warehouse(opened)
    if session.output.json:
        if quarantine:
            found["quarantine"] = [each.to_json() for each in rejected_of(opened)]
        session.output.json_document(found)
        return 0
    if quarantine:
        _show_rejected(session.output, rejected_of(opened))
        return 0
    if session.output.table_wanted:
        _show_tables(session.output, found)
        return 0
    counts = {name: value for name, value in found.items() if isinstance(value, int)}
    parts = {
        f"{part} {name}": count
        for part in ("facts", "derived", "advertised")
        for name, count in found[part].items()
    }
    for measure, name in (("rows", "rows"), ("bytes", "size")):
        parts |= {f"{name} {table}": each[measure] for table, each in found["tables"].items()}
    session.output.counts({**counts, **parts})
    return 0


def _show_rejected(output: Output, found: Iterable[Rejected]) -> None:
    """Show what was rejected, and why."""
    rows = ((each.path, each.offset, each.rule, each.reason) for each in found)
    if not output.table_wanted:
        for row in rows:
            output.row(row)
        return
    columns = Column("file", style="bold"), Column("offset", "right"), Column("rule")
    shown = [(path, f"{offset:,}", rule, reason) for path, offset, rule, reason in rows]
    if shown:
        output.table((*columns, Column("reason")), shown)
    else:
        output.note("nothing was rejected")


def _show_tables(output: Output, found: dict[str, Any]) -> None:
    """Show it to a person: the counts, the tables, and the last runs."""
    names = ("generation", "sources", "records", "without_facts", "quarantined", "texts", "files")
    counts = [(name.replace("_", " "), f"{found[name]:,}") for name in names]
    columns = (Column("", style="bold"), Column("", "right"))
    output.table(columns, [*counts, ("size", size_text(found["bytes"]))], heading=False)
    if found["tables"]:
        output.line("")
        number = Column("rows", "right"), Column("files", "right", goes=1), Column("size", "right")
        output.table((Column("table", style="bold"), *number), _table_rows(found["tables"]))
    if found["runs"]:
        output.line("")
        output.table(
            (
                Column("last runs", style="bold"),
                Column("finished (UTC)"),
                Column("took", "right"),
                Column("rows", "right"),
            ),
            [_run_row(run) for run in found["runs"]],
        )


def _run_row(run: dict[str, Any]) -> tuple[str, ...]:
    took = f"{run['seconds']:,.1f} s"
    return run["stage"], time_text(run["finished"]), took, _row_count(run)


def _row_count(measured: dict[str, Any]) -> str:
    return f"{measured['rows']:,}"


def _table_rows(tables: dict[str, dict[str, int]]) -> list[tuple[str, str, str, str]]:
    """Return a row for each table; the many of Field, kept apart by Name, are one."""
    merged: dict[str, dict[str, int]] = {}
    for table, measured in tables.items():
        name = _FIELD if table.startswith(f"{_FIELD}/") else table
        sums = merged.setdefault(name, dict.fromkeys(measured, 0))
        for measure, count in measured.items():
            sums[measure] += count
    return [
        (name, _row_count(each), f"{each['files']:,}", size_text(each["bytes"]))
        for name, each in merged.items()
    ]
