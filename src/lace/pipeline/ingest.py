"""The stage `ingest`: files of records to the tables of records, faults and sources.

Only files that are new by path, size and digest are read. Records are kept once, whatever file
they come in and however often. A group of files is one commit: when a job dies, what was committed
stays, the rest is as if it had not begun, and the same command goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lace.engines.spark.arrow import map_in_arrow
from lace.engines.spark.session import shuffle_partitions
from lace.errors import EngineError
from lace.pipeline.failures import damage_told, translated
from lace.pipeline.ranges import file_ranges
from lace.pipeline.sources import Source, describe_source
from lace.pipeline.tables import (
    QUARANTINE,
    RECORDS,
    SOURCES,
    columns_of,
    read_files,
    read_records,
    struct_of,
    write_rows,
)
from lace.pipeline.validating import (
    FAULT,
    RECORD,
    WRITTEN_COLUMNS,
    Piece,
    Validation,
    WritingValidation,
)
from lace.pipeline.warehouse import told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lace.pipeline.manifest import DataFile
    from lace.pipeline.warehouse import Job, Warehouse

__all__ = ["Ingested", "NewFiles", "find_new", "ingest", "known_sources"]

MOST_DATA_BYTES: Final = 256 * 1024 * 1024
"""Data of one record that fits into a row, whatever the setting says."""
GROUP_BYTES: Final = 4 * 1024 * 1024 * 1024
"""How much is validated before it is committed."""
_TASK_BYTES: Final = 128 * 1024 * 1024


@dataclass(slots=True)
class Ingested:
    """Counts of an ingest."""

    files: int = 0
    skipped: int = 0
    stored: int = 0
    known: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Files to ingest, each with how it was when it was looked at; and how many are not new."""

    files: tuple[tuple[Path, Source], ...]
    skipped: int


def find_new(
    warehouse: Warehouse, paths: Sequence[Path], labels: Mapping[str, str] | None = None
) -> NewFiles:
    """Return which files were not ingested yet as they are now.

    Args:
        warehouse: where they would go.
        paths: the files, absolute.
        labels: for some paths, what the tables call them instead.

    Raises:
        UsageError: a file cannot be read.
        WarehouseDamagedError: the warehouse is damaged.
    """
    known = known_sources(warehouse)
    new: list[tuple[Path, Source]] = []
    for path in paths:
        found = describe_source(path)
        source = Source((labels or {}).get(found.path, found.path), found.size, found.digest)
        if source not in known:
            new.append((path, source))
    return NewFiles(tuple(new), len(paths) - len(new))


def ingest(
    session: SparkSession,
    job: Job,
    new: NewFiles,
    *,
    max_data_bytes: int,
    group_bytes: int = GROUP_BYTES,
) -> Ingested:
    """Ingest files, group by group; returns the counts.

    Args:
        session: the Spark session.
        job: the writer's hold of the warehouse.
        new: what `find_new` found for it.
        max_data_bytes: larger data is a fault.
        group_bytes: how many bytes of files make a commit.

    Raises:
        UsageError: a file cannot be read.
        WarehouseDamagedError: the warehouse is damaged.
        StoreUnavailableError: the disk is full.
        SparkJobError: Spark failed.
    """
    counts = Ingested(skipped=new.skipped)
    group: list[tuple[Path, Source]] = []
    size = 0
    limit = min(max_data_bytes, MOST_DATA_BYTES)
    for path, source in new.files:
        group.append((path, source))
        size += source.size
        if size >= group_bytes:
            _ingest_group(session, job, group, limit, counts)
            group, size = [], 0
    if group:
        _ingest_group(session, job, group, limit, counts)
    return counts


def known_sources(warehouse: Warehouse) -> frozenset[Source]:
    """Return the files that were ingested, as they were then."""
    from pyarrow import parquet

    found: set[Source] = set()
    for path in warehouse.files(SOURCES):
        with damage_told(path):
            table = parquet.read_table(
                path, columns=["path", "size", "digest"], page_checksum_verification=True
            )
            found.update(Source(**row) for row in table.to_pylist())
    return frozenset(found)


def _ingest_group(
    session: SparkSession,
    job: Job,
    group: list[tuple[Path, Source]],
    max_data_bytes: int,
    counts: Ingested,
) -> None:
    warehouse = job.warehouse
    first = warehouse.manifest.rows(SOURCES)
    pieces = [
        Piece(path=str(path), source=number, size=source.size, range=part)
        for number, (path, source) in enumerate(group, first)
        for part in file_ranges(path, max_data_bytes)
    ]
    added: dict[str, tuple[DataFile, ...]] = {}
    with translated("ingest"):
        if pieces:
            size = sum(source.size for _path, source in group)
            staged = _write_validated(
                session, pieces, size, max_data_bytes, job.scratch("validated")
            )
            total, kept = _keep_new(session, job, staged[RECORD], size)
            added[RECORDS] = kept
            added[QUARANTINE] = _write_faults(job, staged[FAULT], group, first)
            stored = sum(file.rows for file in kept)
            counts.stored += stored
            counts.known += total - stored
            counts.rejected += sum(file.rows for file in added[QUARANTINE])
    added[SOURCES] = _write_sources(job, [source for _path, source in group], first)
    job.commit(warehouse.manifest.with_added(added), "ingest")
    counts.files += len(group)


def _write_validated(
    session: SparkSession, pieces: list[Piece], size: int, max_data_bytes: int, target: Path
) -> dict[str, list[Path]]:
    """Validate pieces, and write their rows below a folder; returns the files of each kind.

    Raises:
        EngineError: the files are not all here: a worker has written them to a disk of its own.
    """
    parallel = int(session.sparkContext.defaultParallelism)
    number = min(len(pieces), max(parallel, -(-size // _TASK_BYTES)))
    tasks = tuple(tuple(each) for each in _shares(pieces, number))
    written = map_in_arrow(
        session.range(0, len(tasks), 1, len(tasks)),
        WritingValidation(Validation(tasks, max_data_bytes), str(target)),
        struct_of(WRITTEN_COLUMNS),
    ).collect()
    found: dict[str, list[Path]] = {RECORD: [], FAULT: []}
    for row in sorted(written, key=lambda row: str(row["file"])):
        path = target / row["file"]
        if not path.is_file() or _rows_of([path]) != row["rows"]:
            raise EngineError(
                f"a worker wrote {row['rows']} rows, and they are not in {target}",
                hint="keep the warehouse on a disk that all workers share with this machine",
            )
        found[row["kind"]].append(path)
    return found


def _shares(pieces: list[Piece], number: int) -> Iterator[list[Piece]]:
    """Yield shares of about equal size, each of neighbours."""
    total = sum(piece.range.end - piece.range.start for piece in pieces)
    share: list[Piece] = []
    size = before = 0
    for piece in pieces:
        share.append(piece)
        size += piece.range.end - piece.range.start
        if size - before >= total / number:
            yield share
            share, before = [], size
    if share:
        yield share


def _keep_new(
    session: SparkSession, job: Job, paths: list[Path], size: int
) -> tuple[int, tuple[DataFile, ...]]:
    """Return how many valid records came, and the files of those that are new, each once."""
    from pyspark.sql import functions

    if not paths:
        return 0, ()
    shuffle_partitions(session, size // 8)
    came = read_files(session, paths, columns_of(RECORDS))
    keys = came.select("hash", "source", "source_offset")
    first = keys.groupBy("hash").agg(
        functions.min(functions.struct("source", "source_offset")).alias("first")
    )
    known = read_records(session, job.warehouse).select("hash")
    if job.warehouse.manifest.rows(RECORDS):
        first = first.join(known, "hash", "left_anti")
    first = first.select("hash", "first.source", "first.source_offset")
    total = _rows_of(paths)
    target = job.folder(RECORDS)
    # The plain case, in which all are new, needs no copy.
    if first.count() == total:
        with told(target):
            target.mkdir(parents=True)
            for path in paths:  # and not what an attempt that does not count has left beside them
                path.rename(target / path.name)
    else:
        chosen = came.join(first, ["hash", "source", "source_offset"], "left_semi")
        write_rows(chosen.select(*[name for name, _kind in columns_of(RECORDS)]), target)
    return total, job.adopt(target)


def _rows_of(paths: Sequence[Path]) -> int:
    from pyarrow import parquet

    return sum(parquet.read_metadata(path).num_rows for path in paths)


def _write_faults(
    job: Job, paths: list[Path], group: list[tuple[Path, Source]], first: int
) -> tuple[DataFile, ...]:
    """Make the table of faults; they are few or their file is not worth more than one process."""
    import pyarrow as pa
    from pyarrow import parquet

    if not paths:
        return ()
    target = job.folder(QUARANTINE)
    names = {number: source.path for number, (_path, source) in enumerate(group, first)}
    kinds = {"string": pa.string(), "bigint": pa.int64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns_of(QUARANTINE)])
    with told(target):
        target.mkdir(parents=True)
        place = target / "part-0.parquet"
        with parquet.ParquetWriter(place, schema, write_page_checksum=True) as writer:
            for path in paths:
                with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                    for batch in file.iter_batches(columns=["source", "source_offset", "head"]):
                        rows = [_fault(row, names) for row in batch.to_pylist()]
                        writer.write_table(pa.Table.from_pylist(rows, schema))
    return job.adopt(target)


def _fault(row: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, object]:
    return {
        "source": row["source"],
        "path": names[row["source"]],
        "source_offset": row["source_offset"],
        **json.loads(row["head"]),
    }


def _write_sources(job: Job, sources: Sequence[Source], first: int) -> tuple[DataFile, ...]:
    import pyarrow as pa
    from pyarrow import parquet

    target = job.folder(SOURCES)
    table = pa.table(
        {
            "source": pa.array(range(first, first + len(sources)), pa.int64()),
            "path": pa.array([source.path for source in sources], pa.string()),
            "size": pa.array([source.size for source in sources], pa.int64()),
            "digest": pa.array([source.digest for source in sources], pa.string()),
        }
    )
    with told(target):
        target.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, target / "part-0.parquet", write_page_checksum=True)
    return job.adopt(target)
