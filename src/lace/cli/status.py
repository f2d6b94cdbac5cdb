"""`lace status`: what a lace holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.log import operation_json, operation_text
from lace.cli.output import Column, size_text

if TYPE_CHECKING:
    from pathlib import Path

    from lace.api import Lace
    from lace.cli.session import Session

__all__ = ["command"]

_OPERATIONS: Final = 5


def _gather(lace: Lace) -> dict[str, object]:
    segments = lace.store.segments
    state = segments.state()
    with lace.snapshot() as snapshot:
        totals = snapshot.totals()
    return {
        "lace": str(lace.store.folder.resolve()),
        "records": totals.records,
        "record_bytes": totals.record_bytes,
        "high_water": totals.high_water,
        "keys": len(lace.keys.verifiers()),
        "default_key": lace.keys.default(),
        "store_version": lace.store.version,
        "database_bytes": _size(lace.store.path),
        "wal_bytes": _size(lace.store.path.with_name(lace.store.path.name + "-wal")),
        "segments_records": state[1].records if state else 0,
        "segments_bytes": segments.size(),
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@lace_command(
    "status",
    piped="One line a value: its name, a tab, the value; names as with --json. Then a line for "
    "each of the last operations, tab-separated, the oldest first: the word operation, finished "
    "(TAI), command, exit code.",
    json_keys={
        "lace": "the folder",
        "records": "how many records are stored",
        "record_bytes": "their bytes",
        "high_water": "the highest StoreRecordId ever given",
        "keys": "how many signing keys there are",
        "default_key": "the verifier of the key that signs by default, or null",
        "store_version": "the version of the store's format",
        "database_bytes": "size of the database file",
        "wal_bytes": "size of its write-ahead log",
        "segments_records": "how many records' facts are kept beside the database",
        "segments_bytes": "the size of these",
        "operations": "the last operations, as `lace log --json` gives them",
    },
    examples=[
        ("lace status", "what this lace holds"),
        ("lace status --json | jq .records", "how many records there are"),
    ],
)
@click.pass_obj
def command(session: Session) -> int:
    """Show what a lace holds.

    Records, sizes, keys and the last operations.
    """
    output = session.output
    with session.reading("status") as lace:
        values = _gather(lace)
        operations = lace.operations(_OPERATIONS)
    if output.json:
        output.json_document({**values, "operations": [operation_json(o) for o in operations]})
    elif output.terminal:
        rows = [(name.replace("_", " "), _shown(name, value)) for name, value in values.items()]
        rows += [("last operations" if not i else "", operation_text(o))
                 for i, o in enumerate(operations)]  # fmt: skip
        output.table((Column("", style="bold"), Column("")), rows, heading=False)
    else:
        for name, value in values.items():
            output.row((name, value))
        for o in operations:
            output.row(("operation", o.finished, o.command, o.exit_code))
    return 0


def _shown(name: str, value: object) -> str:
    if not isinstance(value, int):
        return "none" if value is None else str(value)
    return size_text(value) if name.endswith("_bytes") else f"{value:,}"
