"""What a warehouse holds, from its manifest alone: nothing that takes long to load is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lace.pipeline.tables import (
    ADVERTISED,
    ADVERTISEMENTS,
    DICTIONARY,
    QUARANTINE,
    RECORDS,
    SOURCES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.pipeline.manifest import DataFile, Manifest, Run
    from lace.pipeline.warehouse import Warehouse

__all__ = ["DERIVED", "describe_warehouse"]

DERIVED: Final = "derived"
"""What the names of the tables of derived facts begin with."""


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
        "derived": _derived(manifest),
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


def _derived(manifest: Manifest) -> dict[str, int]:
    """Return how many facts there are by evaluation and predicate, as `NAME Predicate/arity`."""
    found: dict[str, int] = {}
    for table in manifest.tables:
        kind, _, rest = table.partition("/")
        if kind == DERIVED:
            name, _, predicate = rest.partition("/")
            found[f"{name} {predicate.replace('~', '/')}"] = manifest.rows(table)
    return dict(sorted(found.items()))
