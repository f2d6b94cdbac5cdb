"""Checking a warehouse without Spark: every file, byte by byte, and some of its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from lace.pipeline.derived import derived_counts
from lace.pipeline.lookup import rows_at
from lace.pipeline.manifest import WarehouseDamagedError
from lace.pipeline.rechecking import ROW_COLUMNS, reasons_of
from lace.pipeline.tables import (
    ADVERTISED,
    ADVERTISEMENTS,
    DICTIONARY,
    QUARANTINE,
    RECORDS,
    SOURCES,
)
from lace.pipeline.warehouse import check_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.pipeline.manifest import DataFile, Run
    from lace.pipeline.warehouse import Warehouse

__all__ = ["Checked", "check_warehouse", "describe_warehouse", "validate_some"]

_MOST_REPORTS: Final = 1000
_SOME_RECORDS: Final = 1000
"""Records that are validated again, where nobody says how many."""


@dataclass(slots=True)
class Checked:
    """What a check found; `damage` has path and reason, the first of them.

    `validated` are records that were, `wrong` those of them that are not valid.
    """

    files: int = 0
    bytes: int = 0
    validated: int = 0
    wrong: int = 0
    damaged: int = 0
    damage: list[tuple[str, str]] = field(default_factory=list)


def check_warehouse(
    warehouse: Warehouse, report: Callable[[Checked], None] | None = None
) -> Checked:
    """Read every file of the manifest and compare its digest, and its rows with its footer."""
    checked = Checked()
    for file in warehouse.manifest.all_files():
        try:
            check_file(warehouse.folder, file, whole=True)
            _check_footer(warehouse, file)
        except WarehouseDamagedError as error:
            checked.damaged += 1
            if len(checked.damage) < _MOST_REPORTS:
                checked.damage.append((file.path, error.message.rpartition("damaged: ")[2]))
        checked.files += 1
        checked.bytes += file.size
        if report:
            report(checked)
    return checked


def validate_some(warehouse: Warehouse, checked: Checked) -> None:
    """Validate up to 1,000 records again, chosen by chance, and note those that are not valid.

    Raises:
        WarehouseDamagedError: a file is damaged.
    """
    files = warehouse.manifest.files(RECORDS)
    total = sum(file.rows for file in files)
    chosen = sorted(SystemRandom().sample(range(total), min(total, _SOME_RECORDS)))
    first = 0
    for file, path in zip(files, warehouse.files(RECORDS), strict=True):
        mine = [place - first for place in chosen if first <= place < first + file.rows]
        first += file.rows
        for batch in rows_at(path, file.rows, mine, ROW_COLUMNS):
            rows = list(zip(*(batch.column(name).to_pylist() for name in ROW_COLUMNS), strict=True))
            for row, reason in zip(rows, reasons_of(rows), strict=True):
                checked.validated += 1
                if reason is not None:
                    checked.wrong += 1
                    checked.damage.append((f"the record {row[0]}", reason))


def _check_footer(warehouse: Warehouse, file: DataFile) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_metadata(warehouse.folder / file.path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise WarehouseDamagedError(f"damaged: {error}") from error
    if rows != file.rows:
        raise WarehouseDamagedError(f"damaged: it has {rows} rows instead of {file.rows}")


def describe_warehouse(warehouse: Warehouse) -> dict[str, Any]:
    """Return the counts, tables and last runs of a warehouse, from its manifest alone."""
    manifest = warehouse.manifest
    facts: dict[str, int] = {}
    for table in manifest.tables:
        if table.startswith("facts/"):
            predicate = table.split("/")[1]
            facts[predicate] = facts.get(predicate, 0) + manifest.rows(table)
    lead = f"{ADVERTISED}/"
    names = [table.removeprefix(lead) for table in manifest.tables if table.startswith(lead)]
    behind = sum(
        file.rows for file in manifest.files(RECORDS) if file.generation > manifest.facts_generation
    )
    files = manifest.all_files()
    return {
        "generation": manifest.generation,
        "sources": manifest.rows(SOURCES),
        "records": manifest.rows(RECORDS),
        "without_facts": behind,
        "quarantined": manifest.rows(QUARANTINE),
        "facts": dict(sorted(facts.items())),
        "advertised": {name: manifest.rows(f"{ADVERTISEMENTS}/{name}") for name in sorted(names)},
        "derived": derived_counts(manifest),
        "texts": manifest.rows(DICTIONARY),
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "tables": {table: _measures(found) for table, found in sorted(manifest.tables.items())},
        "runs": [_told(run) for run in reversed(manifest.runs)],
    }


def _measures(files: Sequence[DataFile]) -> dict[str, int]:
    return {
        "rows": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.size for file in files),
    }


def _told(run: Run) -> dict[str, Any]:
    return {
        "stage": run.stage,
        "generation": run.generation,
        "finished": run.finished,
        "seconds": run.milliseconds / 1000,
        "rows": run.rows,
    }
