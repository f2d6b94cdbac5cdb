"""The stage `facts`: records to facts by predicate, and the dictionary of their texts.

Only records of generations that have no facts yet are read, and of them only what stands before
the data. Ids are given out densely and stay what they are. All of it is one commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import FIRST, FactColumns, head_columns
from lace.record.validate import HeadParts
from lace.spark.engine.relations import cogroup_in_arrow, map_in_arrow
from lace.spark.engine.session import shuffle_partitions
from lace.spark.pipeline.tables import (
    DICTIONARY,
    FACT_WIDTH,
    FIRST_FREE_SLOT,
    MOST_SLOTS,
    RECORDS,
    REST_SLOT,
    STANDARD_SLOTS,
    arrow_batch,
    batches_of,
    columns_of,
    facts_table,
    read_dictionary,
    read_files,
    struct_of,
    write_rows,
)
from lace.spark.pipeline.warehouse import FieldSlot, translate_spark_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.spark.pipeline.warehouse import DataFile, Job, Manifest, WarehouseFolder


# -- What an executor does for facts: texts become numbers, its own and then the dictionary's.
#
# A *unit* is a share of the records with its own list of texts. `intern_facts` returns the facts of
# a unit as numbers in that list, and the list; `ResolutionUdf` replaces these numbers by the ids of
# the dictionary. So each text is compared once for a unit, and facts are never joined by text.

TEXT: Final = "text"
"""The kind of the rows that are a unit's texts; of all others it is their predicate."""
HEAD_COLUMNS: Final = ("head", "size", "plex_at", "blob_at", "group_path", "app", "name", "tai")
_PLACES: Final = tuple((f"c{number}", "bigint") for number in range(FACT_WIDTH))
UNIT_COLUMNS: Final = (("kind", "string"), ("unit", "bigint"), *_PLACES, ("text", "string"))
RESOLVED_COLUMNS: Final = (("kind", "string"), ("slot", "int"), *_PLACES)
_UNIT_TEXTS: Final = 200_000
"""A unit ends when it has this many texts, each of at most a header line."""
_UNIT_BITS: Final = 32
_NUMBERED_ROWS: Final = 65_536


@dataclass(slots=True)
class _Unit:
    """Facts of some records as numbers, and the texts that these stand for."""

    texts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[list[int]]] = field(default_factory=dict)

    def add(self, columns: FactColumns) -> None:
        """Add the facts of a batch of records."""
        ids = self._numbers(text.decode("ascii") for text in columns.records)
        plexes = [ids[row] for row in columns.plexes]
        seals = [ids[row] for row in columns.seals]
        first = self._number(FIRST)
        self._put("Have", ids)
        for rows, fields in (
            (ids, columns.record_fields()),
            (plexes, columns.plex_fields()),
            (seals, columns.seal_fields()),
        ):
            for name, values in fields:
                number = repeat(self._number(name), len(rows))
                self._put("Field", rows, number, repeat(first, len(rows)), self._numbers(values))
        self._put("BlobHash", plexes, self._numbers(text.decode("ascii") for text in columns.blob))
        self._put("PlexHash", seals, self._numbers(text.decode("ascii") for text in columns.plex))
        self._put_headers(columns, ids)

    def _put_headers(self, columns: FactColumns, ids: Sequence[int]) -> None:
        rows = [ids[row] for row in columns.header_row]
        names = self._numbers(columns.header_name)
        indexes = self._numbers(columns.header_index)
        self._put("Field", rows, names, indexes, self._numbers(columns.header_value))
        at = columns.link_at
        self._put(
            "RecordLink",
            [rows[place] for place in at],
            [names[place] for place in at],
            [indexes[place] for place in at],
            self._numbers(columns.link_data),
            self._numbers(columns.link_target),
        )

    def _put(self, predicate: str, *columns: Iterable[int]) -> None:
        kept = self.rows.setdefault(predicate, [[] for _column in columns])
        for held, column in zip(kept, columns, strict=True):
            held.extend(column)

    def _number(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _numbers(self, texts: Iterable[str]) -> list[int]:
        known = self.texts
        return [known.setdefault(text, len(known)) for text in texts]


def intern_facts(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield units of numbered facts as Arrow batches by kind, and of texts; of heads of records."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context else 0
    unit, number = _Unit(), 0
    for batch in batches:
        unit.add(facts_of_heads(batch))
        if len(unit.texts) >= _UNIT_TEXTS:
            yield from _unit_batches(unit, (task << _UNIT_BITS) | number)
            unit, number = _Unit(), number + 1
    if unit.texts:
        yield from _unit_batches(unit, (task << _UNIT_BITS) | number)


def facts_of_heads(batch: Any) -> FactColumns:  # noqa: ANN401 - Arrow has no types
    """Return the facts of records of which only the bytes before the data are given."""
    columns = [batch.column(name).to_pylist() for name in HEAD_COLUMNS]
    return head_columns(list(map(HeadParts._make, zip(*columns, strict=True))))


def _unit_batches(unit: _Unit, number: int) -> Iterator[Any]:
    for predicate, columns in unit.rows.items():
        if columns[0]:
            yield _batch(predicate, number, columns, None)
    yield _batch(TEXT, number, [list(range(len(unit.texts)))], list(unit.texts))


def _batch(kind: str, unit: int, columns: Sequence[Sequence[int]], texts: list[str] | None) -> Any:  # noqa: ANN401 - Arrow has no types
    import pyarrow as pa

    count = len(columns[0])
    arrays = [
        pa.repeat(pa.scalar(kind), count),
        pa.repeat(pa.scalar(unit, pa.int64()), count),
        *(pa.array(column, pa.int64()) for column in columns),
        *(pa.nulls(count, pa.int64()) for _ in range(FACT_WIDTH - len(columns))),
        pa.array(texts, pa.string()) if texts is not None else pa.nulls(count, pa.string()),
    ]
    return arrow_batch(UNIT_COLUMNS, arrays)


@dataclass(frozen=True, slots=True)
class NumberingUdf:
    """The function of a task: rows of one text each get the ids from its file's first on."""

    files: tuple[tuple[str, int], ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of ids and texts for the files whose numbers come."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, first = self.files[number]
                for rows in batches_of(Path(path), ("text",), max_rows=_NUMBERED_ROWS):
                    ids = range(first, first + rows.num_rows)
                    first += rows.num_rows
                    yield arrow_batch(columns_of(DICTIONARY), (ids, rows.column(0)))


@dataclass(frozen=True, slots=True)
class ResolutionUdf:
    """The function of a group: a unit's facts and its texts' ids in, facts of ids out.

    `slots` has, by the id of a Name, the slot for the facts of Field.
    """

    slots: Mapping[int, int]

    def __call__(self, facts: Any, ids: Any) -> Any:  # noqa: ANN401 - Arrow has no types
        """Return the facts of the unit with the dictionary's ids."""
        import pyarrow as pa
        from pyarrow import compute

        order = compute.sort_indices(ids, sort_keys=[("number", "ascending")])
        by_number = ids.column("id").take(order).combine_chunks()
        columns = [by_number.take(facts.column(name).combine_chunks()) for name, _kind in _PLACES]
        kinds = facts.column("kind").combine_chunks()
        known = pa.array(list(self.slots), pa.int64())
        of_known = pa.array([*self.slots.values()], pa.int32())
        slots = compute.fill_null(
            of_known.take(compute.index_in(columns[1], value_set=known)), REST_SLOT
        )
        is_field = compute.equal(kinds, "Field")
        slot = compute.if_else(is_field, slots, pa.scalar(0, pa.int32()))
        return pa.table([kinds, slot, *columns], names=[name for name, _kind in RESOLVED_COLUMNS])


def standard_slots(ids: Mapping[str, int]) -> dict[int, int]:
    """Return the slots of the standard Names that have an id."""
    return {ids[name]: slot for name, slot in STANDARD_SLOTS.items() if name in ids}


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
    """Make the facts of all records that have none yet; returns the counts."""
    manifest = job.warehouse.manifest
    fresh = _fresh(manifest)
    if not fresh:
        return Extracted(0, 0, 0)
    paths = job.warehouse.paths(fresh)
    records = sum(file.rows for file in fresh)
    with translate_spark_errors("facts"):
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
    heads = read_files(session, paths, columns_of(RECORDS, HEAD_COLUMNS))
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8")
    rows = map_in_arrow(heads, intern_facts, struct_of(UNIT_COLUMNS))
    write_rows(rows, target, "kind")


def _unit_rows(session: SparkSession, staged: Path, kind: str) -> DataFrame:
    paths = sorted((staged / f"kind={kind}").glob("*.parquet"))
    return read_files(session, paths, UNIT_COLUMNS[1:])


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
    numbered = map_in_arrow(rows, NumberingUdf(tuple(files)), struct_of(columns_of(DICTIONARY)))
    write_rows(numbered, target)
    return job.adopt(target), first - start


def _words(
    session: SparkSession, warehouse: WarehouseFolder, new: tuple[DataFile, ...]
) -> DataFrame:
    """Return the dictionary as it will be."""
    paths = warehouse.paths((*warehouse.manifest.files(DICTIONARY), *new))
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
        facts, _mapping(session, mapped), "unit", ResolutionUdf(slots), struct_of(RESOLVED_COLUMNS)
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
