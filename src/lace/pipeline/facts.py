"""The stage `facts`: records to facts by predicate, and the dictionary of their texts.

Only records of generations that have no facts yet are read, and of them only what stands before
the data. Ids are given out densely and stay what they are. All of it is one commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.engines.spark.arrow import cogroup_in_arrow, map_in_arrow
from lace.engines.spark.session import shuffle_partitions
from lace.facts.catalogue import RECORD_PREDICATES
from lace.pipeline.failures import translated
from lace.pipeline.interning import (
    HEAD_COLUMNS,
    RESOLVED_COLUMNS,
    TEXT,
    UNIT_COLUMNS,
    Interning,
    Numbering,
    Resolving,
    standard_slots,
)
from lace.pipeline.manifest import FieldSlot
from lace.pipeline.tables import (
    DICTIONARY,
    FIRST_FREE_SLOT,
    MOST_SLOTS,
    RECORDS,
    STANDARD_SLOTS,
    columns_of,
    facts_table,
    read_dictionary,
    read_files,
    struct_of,
    write_rows,
)
from lace.pipeline.warehouse import check_file

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lace.pipeline.manifest import DataFile, Manifest
    from lace.pipeline.warehouse import Job, Warehouse

__all__ = ["Extracted", "has_fresh_records", "make_facts"]

_FREQUENT: Final = 1000
"""Facts of a Name in one run that give it files of its own."""
_MAPPED: Final = (("unit", "bigint"), ("number", "bigint"), ("id", "bigint"))


@dataclass(frozen=True, slots=True)
class Extracted:
    """Counts of a run: the records that got their facts, these, and the texts that were new."""

    records: int
    facts: int
    texts: int


def has_fresh_records(manifest: Manifest) -> bool:
    """Tell whether there are records without facts."""
    return bool(_fresh(manifest))


def _fresh(manifest: Manifest) -> list[DataFile]:
    return [file for file in manifest.files(RECORDS) if file.generation > manifest.facts_generation]


def make_facts(session: SparkSession, job: Job, *, frequent: int = _FREQUENT) -> Extracted:
    """Make the facts of all records that have none yet; returns the counts.

    Args:
        session: the Spark session.
        job: the writer's hold of the warehouse.
        frequent: how many facts of a Name give it files of its own.

    Raises:
        WarehouseDamagedError: a file of the warehouse is damaged.
        StoreUnavailableError: the disk is full.
        SparkJobError: Spark failed.
    """
    manifest = job.warehouse.manifest
    fresh = _fresh(manifest)
    if not fresh:
        return Extracted(0, 0, 0)
    for file in fresh:
        check_file(job.warehouse.folder, file)
    paths = [job.warehouse.folder / file.path for file in fresh]
    records = sum(file.rows for file in fresh)
    with translated("facts"):
        shuffle_partitions(session, sum(file.size for file in fresh))
        staged = job.scratch("units")
        _write_units(session, paths, staged)
        words, texts = _write_dictionary(session, job, staged)
        mapped = _write_mapping(session, job, staged, words)
        slots = _choose_slots(session, job, staged, mapped, words, frequent)
        added = _write_facts(session, job, staged, mapped, _slots_by_id(session, job, words, slots))
    new = manifest.with_added({**added, DICTIONARY: words})
    new = replace(
        new,
        facts_generation=max(file.generation for file in fresh),
        texts=manifest.texts + texts,
        slots=MappingProxyType(slots),
    )
    job.commit(new, "facts")
    return Extracted(records, sum(f.rows for files in added.values() for f in files), texts)


def _write_units(session: SparkSession, paths: list[Path], target: Path) -> None:
    columns = dict(columns_of(RECORDS))
    heads = read_files(session, paths, [(name, columns[name]) for name in HEAD_COLUMNS])
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8")
    rows = map_in_arrow(heads, Interning(), struct_of(UNIT_COLUMNS))
    write_rows(rows, target, "kind")


def _unit_rows(session: SparkSession, staged: Path, kind: str) -> DataFrame:
    paths = sorted((staged / f"kind={kind}").glob("*.parquet"))
    return read_files(session, paths, [each for each in UNIT_COLUMNS if each[0] != "kind"])


def _write_dictionary(
    session: SparkSession, job: Job, staged: Path
) -> tuple[tuple[DataFile, ...], int]:
    """Give ids to the texts that have none; returns the new files, and how many texts they have.

    The texts are written first and numbered from these files, so that a task that runs again
    gives the same numbers.
    """
    from pyarrow import parquet

    texts = _unit_rows(session, staged, TEXT).select("text").distinct()
    if job.warehouse.manifest.texts:
        known = read_dictionary(session, job.warehouse).select("text")
        texts = texts.join(known, "text", "left_anti")
    scratch = job.scratch("texts")
    written = write_rows(texts, scratch)
    first = start = job.warehouse.manifest.texts
    files: list[tuple[str, int]] = []
    for path in written:
        count = parquet.read_metadata(path).num_rows
        if count:
            files.append((str(path), first))
            first += count
    if not files:
        return (), 0
    rows = session.range(0, len(files), 1, len(files))
    target = job.folder(DICTIONARY)
    numbered = map_in_arrow(rows, Numbering(tuple(files)), struct_of(columns_of(DICTIONARY)))
    write_rows(numbered, target)
    return job.adopt(target), first - start


def _words(session: SparkSession, warehouse: Warehouse, new: tuple[DataFile, ...]) -> DataFrame:
    """Return the dictionary as it will be."""
    paths = [*warehouse.files(DICTIONARY), *(warehouse.folder / file.path for file in new)]
    return read_files(session, paths, columns_of(DICTIONARY))


def _write_mapping(
    session: SparkSession, job: Job, staged: Path, words: tuple[DataFile, ...]
) -> Path:
    """Find for each unit's texts the ids; returns where they are."""
    texts = _unit_rows(session, staged, TEXT).selectExpr("unit", "c0 AS number", "text")
    target = job.scratch("mapping")
    mapped = texts.join(_words(session, job.warehouse, words), "text")
    write_rows(mapped.select("unit", "number", "id"), target)
    return target


def _mapping(session: SparkSession, mapped: Path) -> DataFrame:
    return read_files(session, sorted(mapped.glob("*.parquet")), _MAPPED)


def _choose_slots(
    session: SparkSession,
    job: Job,
    staged: Path,
    mapped: Path,
    words: tuple[DataFile, ...],
    frequent: int,
) -> dict[str, FieldSlot]:
    """Give files of their own to Names that have become frequent, as long as there are slots."""
    from pyspark.sql import functions

    slots = dict(job.warehouse.manifest.slots)
    left = MOST_SLOTS - len(slots)
    if left <= 0:
        return slots
    known = [*STANDARD_SLOTS, *slots]
    counted = (
        _unit_rows(session, staged, "Field")
        .groupBy("unit", functions.col("c1").alias("number"))
        .count()
        .join(_mapping(session, mapped), ["unit", "number"])
        .groupBy("id")
        .agg(functions.sum("count").alias("facts"))
        .where(functions.col("facts") >= frequent)
        .join(_words(session, job.warehouse, words), "id")
        .where(~functions.col("text").isin(*known))
        .orderBy(functions.desc("facts"), "text")
        .limit(left)
    )
    for row in counted.collect():
        slots[row["text"]] = FieldSlot(FIRST_FREE_SLOT + len(slots), job.generation)
    return slots


def _slots_by_id(
    session: SparkSession, job: Job, words: tuple[DataFile, ...], slots: dict[str, FieldSlot]
) -> dict[int, int]:
    from pyspark.sql import functions

    names = [*STANDARD_SLOTS, *slots]
    found = _words(session, job.warehouse, words).where(functions.col("text").isin(*names))
    ids = {row["text"]: row["id"] for row in found.collect()}
    return {
        **standard_slots(ids),
        **{ids[name]: each.slot for name, each in slots.items() if name in ids},
    }


def _write_facts(
    session: SparkSession, job: Job, staged: Path, mapped: Path, slots: dict[int, int]
) -> dict[str, tuple[DataFile, ...]]:
    from pyspark.sql import functions

    kinds = [kind for kind in RECORD_PREDICATES if (staged / f"kind={kind}").is_dir()]
    facts: DataFrame | None = None
    for kind in kinds:
        rows = _unit_rows(session, staged, kind).drop("text")
        rows = rows.withColumn("kind", functions.lit(kind))
        facts = rows if facts is None else facts.unionByName(rows)
    if facts is None:
        return {}
    resolved = cogroup_in_arrow(
        facts, _mapping(session, mapped), "unit", Resolving(slots), struct_of(RESOLVED_COLUMNS)
    )
    target = job.folder("facts")
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "32")
    write_rows(resolved, target, "kind", "slot")
    return _by_table(job, target)


def _by_table(job: Job, target: Path) -> dict[str, tuple[DataFile, ...]]:
    """Return the files that were written, by the table that their folder names."""
    made: dict[str, list[DataFile]] = {}
    for file in job.adopt(target):
        kind, slot = (part.partition("=")[2] for part in file.path.split("/")[-3:-1])
        table = facts_table(kind, int(slot) if kind == "Field" else None)
        made.setdefault(table, []).append(file)
    return {table: tuple(files) for table, files in made.items()}
