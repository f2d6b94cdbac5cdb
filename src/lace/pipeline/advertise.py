"""The stage `advertise`: advertisements of records, and the Merkle roots over their digests.

Records that came since the last run are added; roots of prefixes that they do not reach stay. The
root of the whole is put together from shares of the digests, so that no place ever holds them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.engines.spark.arrow import map_in_arrow
from lace.engines.spark.session import shuffle_partitions
from lace.interlacing.capabilities import Schema
from lace.interlacing.merkle import EMPTY_ROOT
from lace.interlacing.spans import Node, root_of_nodes
from lace.pipeline.claiming import (
    CLAIM_COLUMNS,
    NODE_COLUMNS,
    ROOT_COLUMNS,
    Claiming,
    Rooting,
    Spanning,
)
from lace.pipeline.derived import find_derived, find_exchange
from lace.pipeline.failures import translated
from lace.pipeline.states import (
    WHOLE,
    Asked,
    Partitions,
    State,
    inputs_of,
    read_partitions,
    read_state,
    write_partitions,
    write_state,
)
from lace.pipeline.tables import (
    ADVERTISED,
    ADVERTISEMENTS,
    PARTITIONS,
    RECORDS,
    columns_of,
    read_files,
    struct_of,
    write_rows,
)
from lace.pipeline.warehouse import check_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lace.pipeline.manifest import DataFile
    from lace.pipeline.warehouse import Job, Warehouse

__all__ = [
    "Done",
    "advertise",
    "asked_for_all",
    "asked_of",
    "is_current",
    "root_of_whole",
    "roots_of_prefixes",
]

_ALL_RECORDS: Final = "all"
_SHARES: Final = 8
"""Shares of the digests for each part of a shuffle, so that parts come out about equal."""
_LEAD_VALUES: Final = 2**16
"""How many values the two bytes have by which a digest's share is chosen."""
_ROW_BYTES: Final = 100
_MOST_CHOSEN: Final = 1024
"""With more prefixes than this to look at, all are looked at."""


@dataclass(frozen=True, slots=True)
class Done:
    """Counts of a run: advertisements in all and new ones, prefixes that have some; the root."""

    records: int
    added: int
    partitions: int
    root: bytes


def asked_of(
    warehouse: Warehouse,
    source: str,
    schema: Schema,
    *,
    of: str | None = None,
    exchange: str | None = None,
    name: str | None = None,
) -> Asked:
    """Return what to advertise, by what somebody says of it.

    Args:
        warehouse: where derived sets and exchanges are looked up.
        source: who advertises.
        schema: which fields; an exchange brings its own.
        of: a derived set, as `NAME` or `NAME/PREDICATE`; all records by default.
        exchange: the name of an exchange, whose `MaySend` it is then.
        name: what to call it; else it is called as the exchange, the derived set, or `all`.

    Raises:
        UsageError: there is no such set or exchange, or a name or the source has another form.
        WarehouseDamagedError: a table that describes an evaluation is damaged.
    """
    if exchange is not None:
        of, schema = find_exchange(warehouse, exchange)
    return Asked(
        name=name or exchange or (of or _ALL_RECORDS).partition("/")[0],
        source=source,
        schema=schema,
        of=find_derived(warehouse, of) if of else "",
    )


def asked_for_all(source: str, fields: Iterable[str]) -> Asked:
    """Return what to advertise of all records: some fields, as a source.

    Raises:
        UsageError: the source has another form.
    """
    return Asked(name=_ALL_RECORDS, source=source, schema=Schema(names=frozenset(fields)))


def is_current(warehouse: Warehouse, asked: Asked) -> Done | None:
    """Return what there is, when it is what is asked for, made of all that there is now."""
    state = read_state(warehouse, asked.name)
    if state is None or state.asked != asked:
        return None
    if state.inputs != inputs_of(warehouse.manifest, asked.of):
        return None
    return _done(read_partitions(warehouse, asked.name), 0)


def _done(partitions: Partitions, added: int) -> Done:
    count, root = partitions[WHOLE]
    return Done(count, added, len(partitions) - 1, root)


def advertise(session: SparkSession, job: Job, asked: Asked) -> Done:
    """Bring the advertisements of a name up to now; returns the counts and the root.

    A state that was made of something else under this name is replaced.

    Raises:
        WarehouseDamagedError: a file of the warehouse is damaged.
        StoreUnavailableError: the disk is full.
        SparkJobError: Spark failed.
    """
    current = is_current(job.warehouse, asked)
    if current is not None:
        return current
    manifest = job.warehouse.manifest
    before = read_state(job.warehouse, asked.name)
    # A derived set may have lost records; all records only become more.
    grows = before is not None and before.asked == asked and not asked.of
    covered = before.covered if before is not None and grows else 0
    fresh = [file for file in manifest.files(RECORDS) if file.generation > covered]
    table = f"{ADVERTISEMENTS}/{asked.name}"
    kept = manifest.files(table) if grows else ()
    with translated("advertise"):
        made = _write_claims(session, job, asked, fresh)
        old = read_partitions(job.warehouse, asked.name) if grows else {}
        partitions = _partitions(session, job.warehouse, kept, made, old)
    state = State(
        asked=asked,
        inputs=inputs_of(manifest, asked.of),
        covered=max((file.generation for file in manifest.files(RECORDS)), default=0),
    )
    new = manifest.with_replaced(table, (*kept, *made))
    new = new.with_replaced(f"{PARTITIONS}/{asked.name}", write_partitions(job, partitions))
    new = new.with_replaced(f"{ADVERTISED}/{asked.name}", write_state(job, state))
    job.commit(new, "advertise")
    return _done(partitions, sum(file.rows for file in made))


def _write_claims(
    session: SparkSession, job: Job, asked: Asked, fresh: list[DataFile]
) -> tuple[DataFile, ...]:
    """Write the advertisements of records, sorted by prefix and record within each file."""
    if not fresh:
        return ()
    warehouse = job.warehouse
    parts = shuffle_partitions(session, sum(file.rows for file in fresh) * _ROW_BYTES)
    claiming = Claiming(asked.source, asked.schema)
    kinds = dict(columns_of(RECORDS))
    columns = [(name, kinds[name]) for name in claiming.columns]
    records = read_files(session, _paths(warehouse, fresh), columns)
    if asked.of:
        chosen = read_files(session, warehouse.files(asked.of), [("c0", "string")])
        records = records.join(chosen.withColumnRenamed("c0", "hash"), "hash", "left_semi")
    claims = map_in_arrow(records.select(*claiming.columns), claiming, struct_of(CLAIM_COLUMNS))
    placed = claims.repartition(parts, "prefix").sortWithinPartitions("prefix", "record")
    target = job.folder(ADVERTISEMENTS)
    write_rows(placed, target)
    return job.adopt(target)


def _paths(warehouse: Warehouse, files: Collection[DataFile]) -> list[Path]:
    for file in files:
        check_file(warehouse.folder, file)
    return [warehouse.folder / file.path for file in files]


def _partitions(
    session: SparkSession,
    warehouse: Warehouse,
    kept: tuple[DataFile, ...],
    made: tuple[DataFile, ...],
    old: Partitions,
) -> Partitions:
    """Return count and root of each prefix, and of the whole."""
    columns = [each for each in CLAIM_COLUMNS if each[0] in ("prefix", "digest")]
    if old and not made:
        return old
    total = sum(file.rows for file in (*kept, *made))
    if not total:
        return {WHOLE: (0, EMPTY_ROOT)}
    parts = shuffle_partitions(session, total * _ROW_BYTES)
    rows = touched = read_files(session, _paths(warehouse, (*kept, *made)), columns)
    if kept:
        new = read_files(session, _paths(warehouse, made), columns).select("prefix").distinct()
        prefixes = [row["prefix"] for row in new.collect()]
        if len(prefixes) <= _MOST_CHOSEN:
            touched = rows.where(rows["prefix"].isin(*prefixes))
    found = {**old, **roots_of_prefixes(touched, parts)}
    found[WHOLE] = total, root_of_whole(rows, parts)
    return found


def roots_of_prefixes(rows: DataFrame, parts: int) -> Partitions:
    """Return count and root of each prefix."""
    placed = rows.select("prefix", "digest").repartition(parts, "prefix")
    placed = placed.sortWithinPartitions("prefix", "digest")
    made = map_in_arrow(placed, Rooting(), struct_of(ROOT_COLUMNS)).collect()
    return {row["prefix"]: (row["count"], bytes(row["root"])) for row in made}


def root_of_whole(rows: DataFrame, parts: int) -> bytes:
    """Return the Merkle root over all digests of a DataFrame.

    Digests are shared out by their first two bytes, so that shares follow one another; the counts
    say at which leaf of the tree each begins.
    """
    from pyspark.sql import functions

    shares = min(_LEAD_VALUES, parts * _SHARES)
    lead = functions.conv(functions.hex(functions.substring("digest", 1, 2)), 16, 10)
    share = functions.floor(lead.cast("bigint") * shares / _LEAD_VALUES)
    shared = rows.select(share.cast("bigint").alias("share"), "digest")
    counts = {row["share"]: row["count"] for row in shared.groupBy("share").count().collect()}
    starts: dict[int, int] = {}
    total = 0
    for number in sorted(counts):
        starts[number] = total
        total += counts[number]
    placed = shared.repartition(parts, "share").sortWithinPartitions("share", "digest")
    found = map_in_arrow(placed, Spanning(starts), struct_of(NODE_COLUMNS)).collect()
    nodes = [Node(row["level"], row["index"], bytes(row["value"])) for row in found]
    return root_of_nodes(sorted(nodes, key=lambda node: node.index << node.level))
