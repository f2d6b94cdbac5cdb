"""`lace pipeline status`: what a warehouse holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.pipeline_session import warehouse_argument

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["command"]


@lace_command(
    "status",
    piped="Lines of a name and a number: generation, sources, records, without_facts, "
    "quarantined, texts, files, bytes; then `facts PREDICATE` and a number for each predicate, "
    "`derived NAME PREDICATE` for each table of derived facts, and `advertised NAME` for each run "
    "of advertise.",
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
    },
    examples=[("lace pipeline status big.wh", "what is in it")],
)
@warehouse_argument
@click.pass_obj
def command(session: Session, warehouse: str) -> int:
    """Show what a warehouse holds. Needs neither Spark nor Java."""
    from lace.pipeline.checking import describe_warehouse
    from lace.pipeline.warehouse import Warehouse

    found = describe_warehouse(Warehouse.open(Path(warehouse)))
    if session.output.json:
        session.output.json_document(found)
        return 0
    counts = {name: value for name, value in found.items() if isinstance(value, int)}
    parts = {
        f"{part} {name}": count
        for part in ("facts", "derived", "advertised")
        for name, count in found[part].items()
    }
    session.output.counts({**counts, **parts})
    return 0
