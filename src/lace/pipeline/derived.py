"""Derived facts in a warehouse: their tables, and what they were made of.

An evaluation has a name. Each of its predicates is a table of texts, and one small table tells
of all of them: how many facts there are, and which rules over which facts made them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.errors import UsageError
from lace.pipeline.failures import damage_told
from lace.pipeline.manifest import WarehouseDamagedError
from lace.pipeline.tables import DERIVED, EVALUATIONS, derived_table
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lace.pipeline.manifest import Manifest
    from lace.pipeline.warehouse import Warehouse

__all__ = [
    "Evaluated",
    "answer_table",
    "check_name",
    "derived_counts",
    "evaluation_table",
    "read_derived",
    "read_evaluated",
    "without_derived",
    "write_evaluated",
]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PREDICATE: Final = re.compile(r"[A-Za-z0-9_]{1,120}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_BATCH_ROWS: Final = 65_536
_MOST_PREDICATES: Final = 1_000_000
"""Rows of the table that tells of an evaluation; rules cannot define more."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation that is in a warehouse.

    `identity` is the same for the same rules, limits and facts; `counts` has how many facts
    each predicate has; `fresh` tells whether it was made now or had been before.
    """

    name: str
    identity: str
    counts: Mapping[PredicateKey, int]
    fresh: bool = False


def check_name(name: str) -> str:
    """Return the name of an evaluation.

    Raises:
        UsageError: it cannot be the name of a table.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for derived facts",
            hint="use up to 64 letters, digits, _ and -",
        )
    return name


def answer_table(name: str, predicate: PredicateKey) -> str:
    """Return the table of a predicate's facts.

    Raises:
        UsageError: the predicate's name is too long for one.
    """
    if not _PREDICATE.fullmatch(predicate.name):
        raise UsageError(
            f"{predicate} is too long for the name of a table",
            hint="give the predicate a name of at most 120 letters",
        )
    return derived_table(name, predicate.name, predicate.arity)


def evaluation_table(name: str) -> str:
    """Return the table that tells of an evaluation."""
    return f"{EVALUATIONS}/{name}"


def without_derived(manifest: Manifest, name: str) -> Manifest:
    """Return a state without the tables of an evaluation."""
    mine = f"{DERIVED}/{name}/"
    for table in (evaluation_table(name), *manifest.tables):
        if table == evaluation_table(name) or table.startswith(mine):
            manifest = manifest.with_replaced(table, ())
    return manifest


def derived_counts(manifest: Manifest) -> dict[str, int]:
    """Return how many facts there are by evaluation and predicate, as `NAME Predicate/arity`."""
    found: dict[str, int] = {}
    for table in manifest.tables:
        kind, _, rest = table.partition("/")
        if kind == DERIVED:
            name, _, predicate = rest.partition("/")
            found[f"{name} {predicate.replace('~', '/')}"] = manifest.rows(table)
    return dict(sorted(found.items()))


def write_evaluated(done: Evaluated, folder: Path) -> None:
    """Write the table that tells of an evaluation into a new folder."""
    import pyarrow as pa
    from pyarrow import parquet

    keys = list(done.counts)
    table = pa.table(
        {
            "predicate": pa.array([key.name for key in keys], pa.string()),
            "arity": pa.array([key.arity for key in keys], pa.int32()),
            "rows": pa.array([done.counts[key] for key in keys], pa.int64()),
            "identity": pa.array([done.identity] * len(keys), pa.string()),
        }
    )
    folder.mkdir(parents=True)
    parquet.write_table(
        table, folder / "evaluation.parquet", compression="zstd", write_page_checksum=True
    )


def read_evaluated(warehouse: Warehouse, name: str) -> Evaluated | None:
    """Return what is known of an evaluation; None where there is none of that name.

    Raises:
        WarehouseDamagedError: its table is damaged.
    """
    counts: dict[PredicateKey, int] = {}
    identities: set[str] = set()
    for path in warehouse.files(evaluation_table(name)):
        for row in _rows(path, _MOST_PREDICATES):
            counts[PredicateKey(str(row["predicate"]), int(row["arity"]))] = int(row["rows"])
            identities.add(str(row["identity"]))
    if not counts:
        return None
    if len(identities) != 1 or not all(map(_DIGEST.fullmatch, identities)):
        raise WarehouseDamagedError(f"the table {evaluation_table(name)} is damaged")
    return Evaluated(name, identities.pop(), MappingProxyType(counts))


def read_derived(
    warehouse: Warehouse, name: str, predicate: PredicateKey
) -> Iterator[tuple[str, ...]]:
    """Yield the facts of a predicate, without Spark, in no particular order.

    Raises:
        WarehouseDamagedError: a file is damaged.
    """
    columns = [f"c{at}" for at in range(predicate.arity)]
    for path in warehouse.files(answer_table(name, predicate)):
        for row in _rows(path):
            yield tuple(row[column] for column in columns)


def _rows(path: Path, most: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file; more than there can be are damage."""
    from pyarrow import parquet

    seen = 0
    with damage_told(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            seen += batch.num_rows
            if most is not None and seen > most:
                raise WarehouseDamagedError(f"{path.name} has more than {most} rows")
            yield from batch.to_pylist()
