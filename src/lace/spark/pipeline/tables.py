"""The tables of a warehouse: their columns, how rows are encoded, read and written.

Facts are rows of 64-bit ids, whose texts the dictionary has. `Field` is kept apart by Name: the
standard names have fixed slots, frequent others get a numbered one, and one slot has the rest.
Derived facts are rows of texts.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lace.base.arrow import load_pyarrow
from lace.errors import EngineError, LaceError, StoreError, UsageError
from lace.facts.catalogue import RECORD_PREDICATES
from lace.record.ids import RecordId
from lace.record.validate import ValidRecord, trust_stored
from lace.spark.pipeline.warehouse import (
    WarehouseDamagedError,
    translate_damage,
    translate_os_errors,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lace.spark.pipeline.warehouse import DataFile, Job, Manifest, WarehouseFolder


Columns: TypeAlias = "Sequence[tuple[str, str]]"
"""Name and type of columns."""
RECORDS: Final = "records"
QUARANTINE: Final = "quarantine"
SOURCES: Final = "sources"
DICTIONARY: Final = "dictionary"
ADVERTISED: Final = "advertised"
ADVERTISEMENTS: Final = "advertisements"
PARTITIONS: Final = "partitions"
DERIVED: Final = "derived"
EVALUATIONS: Final = "evaluations"
QUESTIONS: Final = "questions"

FACT_WIDTH: Final = max(predicate.arity for predicate in RECORD_PREDICATES.values())
STANDARD_SLOTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        name: slot
        for slot, name in enumerate(
            ("Type", "Data-Length", "Group", "App", "Name", "TAI", "Signed-By", "Signature")
        )
    }
)
REST_SLOT: Final = len(STANDARD_SLOTS)
FIRST_FREE_SLOT: Final = REST_SLOT + 1
MOST_SLOTS: Final = 256
"""How many Names besides the standard ones can have files of their own."""

_FACTS: Final = tuple((f"c{number}", "bigint") for number in range(FACT_WIDTH))
_COLUMNS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        RECORDS: (
            ("hash", "string"),
            ("type", "string"),
            ("size", "bigint"),
            ("head", "binary"),
            ("data", "binary"),
            ("plex_at", "int"),
            ("blob_at", "int"),
            ("group_path", "string"),
            ("app", "string"),
            ("name", "string"),
            ("tai", "string"),
            ("signed_by", "string"),
            ("source", "bigint"),
            ("source_offset", "bigint"),
        ),
        QUARANTINE: (
            ("source", "bigint"),
            ("path", "string"),
            ("source_offset", "bigint"),
            ("rule", "string"),
            ("reason", "string"),
        ),
        SOURCES: (
            ("source", "bigint"),
            ("path", "string"),
            ("size", "bigint"),
            ("digest", "string"),
        ),
        DICTIONARY: (("id", "bigint"), ("text", "string")),
        ADVERTISED: (
            ("source", "string"),
            ("fields", "string"),
            ("of", "string"),
            ("inputs", "string"),
            ("covered", "bigint"),
        ),
        ADVERTISEMENTS: (
            ("prefix", "string"),
            ("record", "string"),
            ("digest", "binary"),
            ("fields", "string"),
        ),
        PARTITIONS: (("prefix", "string"), ("count", "bigint"), ("root", "string")),
        EVALUATIONS: (
            ("predicate", "string"),
            ("arity", "int"),
            ("rows", "bigint"),
            ("identity", "string"),
            ("made_by", "string"),
            ("plan", "string"),
            ("viewer", "string"),
            ("fields", "string"),
            ("sends", "string"),
        ),
        QUESTIONS: (("program", "int"), ("part", "string"), ("text", "string")),
    }
)
"""Columns by the first part of a table's name, but for facts, whose columns are their arguments."""
_BATCH_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 4096


def columns_of(table: str, names: Sequence[str] | None = None) -> Columns:
    """Return name and type of the columns of a table, or of some of them in that order."""
    kind, _, rest = table.partition("/")
    match kind:
        case "facts":
            columns = _FACTS
        case "derived":
            columns = tuple((f"c{at}", "string") for at in range(int(rest.rpartition("~")[2])))
        case _:
            columns = _COLUMNS[kind]
    if names is None:
        return columns
    kinds = dict(columns)
    return tuple((name, kinds[name]) for name in names)


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return columns as Arrow's schema."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "int": pa.int32()}
    return pa.schema([(name, kinds[kind]) for name, kind in columns])


def arrow_batch(columns: Columns, values: Iterable[Any]) -> pa.RecordBatch:
    """Return an Arrow batch of the values of each column: a sequence, or an array as it is."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    arrays = [
        each if isinstance(each, pa.Array) else pa.array(each, field.type)
        for field, each in zip(schema, values, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def row_batch(columns: Columns, rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """Return rows as an Arrow batch."""
    return arrow_batch(columns, zip(*rows, strict=True) if rows else [()] * len(columns))


def struct_of(columns: Columns) -> Any:  # noqa: ANN401 - PySpark's own
    """Return columns as PySpark's schema."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "bigint": types.LongType(),
        "int": types.IntegerType(),
    }
    return types.StructType([types.StructField(name, kinds[kind]) for name, kind in columns])


def facts_table(predicate: str, slot: int | None = None) -> str:
    """Return the name of the table that has the facts of a predicate; of Field in one slot."""
    return f"facts/{predicate}" if slot is None else f"facts/{predicate}/{slot}"


def read_files(session: SparkSession, paths: Iterable[Path], columns: Columns) -> DataFrame:
    """Return the rows of Parquet files; without any, none."""
    schema = struct_of(columns)
    names = [str(path) for path in paths]
    if not names:
        from lace.spark.engine.relations import empty_frame  # it needs pyarrow

        return empty_frame(session, schema)
    return session.read.schema(schema).parquet(*names)


def write_rows(rows: DataFrame, target: Path, *by: str) -> list[Path]:
    """Write rows to a new folder of Parquet files, in a folder for each value of some columns."""
    from pyarrow import parquet
    from pyspark.sql import Observation, functions

    seen = Observation()
    observed = rows.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    observed.write.partitionBy(*by).parquet(str(target))
    paths = sorted(target.rglob("*.parquet"))
    found = sum(parquet.read_metadata(path).num_rows for path in paths)
    wanted = seen.get.get("rows", 0)
    if found != wanted:
        raise EngineError(
            f"Spark wrote {wanted} rows, and {found} of them are in {target}",
            hint="keep the warehouse on a disk that all workers share with this machine",
        )
    return paths


def write_table(job: Job, table: str, rows: Iterable[Sequence[object]]) -> tuple[DataFile, ...]:
    """Write rows that fit into memory as one file of a table; returns that file."""
    import pyarrow as pa
    from pyarrow import parquet

    batch = row_batch(columns_of(table), list(rows))
    target = job.folder(table.partition("/")[0])
    with translate_os_errors(target):
        target.mkdir(parents=True)
        parquet.write_table(
            pa.Table.from_batches([batch]),
            target / "part-0.parquet",
            compression="zstd",
            write_page_checksum=True,
        )
    return job.adopt(target)


def read_table(
    session: SparkSession,
    warehouse: WarehouseFolder,
    table: str,
    names: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of a table, with all columns or some."""
    return read_files(session, warehouse.files(table), columns_of(table, names))


def batches_of(
    path: Path,
    columns: Sequence[str] | None = None,
    group: int | None = None,
    *,
    max_rows: int = _BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, or of one of its row groups, as Arrow batches of a bounded size."""
    from pyarrow import parquet

    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups) if group is None else (group,):
            found = file.metadata.row_group(number)
            average = max(1, found.total_byte_size // max(1, found.num_rows))
            rows = max(1, min(max_rows, _BATCH_BYTES // average))
            names = None if columns is None else list(columns)
            yield from file.iter_batches(rows, row_groups=[number], columns=names)


def read_rows(
    warehouse: WarehouseFolder,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    most: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, without Spark; more than there can be are damage.

    A column that an earlier version did not write is not in them.
    """
    seen = 0
    for path in warehouse.files(table):
        with translate_damage(path):
            for batch in batches_of(path, columns):
                seen += batch.num_rows
                if most is not None and seen > most:
                    raise WarehouseDamagedError(f"the table {table} has more than {most} rows")
                yield from batch.to_pylist()


@contextmanager
def table_damage(table: str, remedy: str) -> Iterator[None]:
    """Translate an error in rows that no stage wrote so to damage of their table."""
    try:
        yield
    except StoreError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, LaceError) as error:
        raise WarehouseDamagedError(
            f"the table {table} is damaged: {error}", hint=remedy
        ) from error


def record_row(record: ValidRecord) -> tuple[object, ...]:
    """Return a record as a row of its table, without where it was met."""
    return (
        record.hash_text,
        record.type,
        len(record.bytes),
        record.bytes[: record.data_at],
        record.bytes[record.data_at :],
        record.plex_at,
        record.blob_at,
        record.group,
        record.app,
        record.name,
        record.tai,
        record.signed_by,
    )


def check_row(row: Mapping[str, Any]) -> ValidRecord:
    """Return the record of a row whose bytes have the hash that they should."""
    return trust_stored((row["head"] or b"") + (row["data"] or b""), RecordId(row["hash"] or ""))


def read_dictionary(session: SparkSession, warehouse: WarehouseFolder) -> DataFrame:
    """Return the dictionary: `id`, dense from 0 on, and `text`, each once."""
    return read_table(session, warehouse, DICTIONARY)


def dictionary_size(warehouse: WarehouseFolder) -> int:
    """Return how many texts the dictionary has, which is the next id."""
    return warehouse.manifest.texts


def read_facts(
    session: SparkSession,
    warehouse: WarehouseFolder,
    predicate: str,
    names: Collection[str] | None = None,
) -> DataFrame:
    """Return the facts of a record predicate as ids, in the columns `c0` and on."""
    found = RECORD_PREDICATES.get(predicate)
    if found is None:
        raise UsageError(f"{predicate} is no predicate of records")
    columns = _FACTS[: found.arity]
    if predicate != "Field":
        return read_files(session, warehouse.files(facts_table(predicate)), columns)
    paths = field_files(warehouse, names)
    rows = read_files(session, paths, columns)
    return rows if names is None else _named(session, warehouse, rows, names)


def field_files(warehouse: WarehouseFolder, names: Collection[str] | None) -> list[Path]:
    """Return the files that have Field facts of some Names, or of all; they may have others."""
    manifest = warehouse.manifest
    slots = range(FIRST_FREE_SLOT + MOST_SLOTS) if names is None else _slots(manifest, names)
    paths = [path for slot in sorted(slots) for path in warehouse.files(facts_table("Field", slot))]
    if names is None:
        return paths
    # Before a Name got its slot its facts went to the rest.
    since = max((_since(manifest, name) for name in names), default=0)
    if REST_SLOT not in slots:
        rest = manifest.files(facts_table("Field", REST_SLOT))
        paths += warehouse.paths(file for file in rest if file.generation < since)
    return paths


def _slots(manifest: Manifest, names: Collection[str]) -> set[int]:
    return {
        STANDARD_SLOTS[name]
        if name in STANDARD_SLOTS
        else manifest.slots[name].slot
        if name in manifest.slots
        else REST_SLOT
        for name in names
    }


def _since(manifest: Manifest, name: str) -> int:
    return manifest.slots[name].since if name in manifest.slots else 0


def _named(
    session: SparkSession, warehouse: WarehouseFolder, rows: DataFrame, names: Collection[str]
) -> DataFrame:
    """Return the rows whose Name is one of some; every row of a standard slot is."""
    if all(name in STANDARD_SLOTS for name in names):
        return rows
    from pyspark.sql import functions

    wanted = read_dictionary(session, warehouse).where(functions.col("text").isin(*names))
    return rows.join(
        functions.broadcast(wanted.select(functions.col("id").alias("c1"))), "c1", "left_semi"
    ).select(*rows.columns)


# -- What a warehouse holds, from its manifest alone: nothing that takes long to load is needed.


def describe_warehouse(warehouse: WarehouseFolder) -> dict[str, Any]:
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
        "runs": [
            {
                "stage": run.stage,
                "generation": run.generation,
                "finished": run.finished,
                "seconds": run.milliseconds / 1000,
                "rows": run.rows,
            }
            for run in reversed(manifest.runs)
        ],
    }


def _measures(files: Sequence[DataFile]) -> dict[str, int]:
    return {
        "rows": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.size for file in files),
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


# -- What was rejected when files were ingested, and why: the rows of the table `quarantine`.
#
# They are read without Spark. Making them is `lace.pipeline.ingest`'s.


@dataclass(frozen=True, slots=True)
class Rejected:
    """Bytes of a file that are no valid record: where they begin, the rule broken, and why."""

    path: str
    offset: int
    rule: str | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def rejected_of(warehouse: WarehouseFolder) -> Iterator[Rejected]:
    """Yield what was rejected: commit by commit, in each by file and offset.

    Of one commit all are in memory.
    """
    if not warehouse.manifest.files(QUARANTINE):
        return
    load_pyarrow()
    for file in warehouse.manifest.files(QUARANTINE):
        (path,) = warehouse.paths([file])
        with translate_damage(path):
            rows = [row for batch in batches_of(path) for row in batch.to_pylist()]
        for row in sorted(rows, key=lambda row: (row["source"], row["source_offset"])):
            yield Rejected(row["path"], row["source_offset"], row["rule"], row["reason"])
