"""Proving a warehouse: its tables say what the embedded code says of the records' own bytes.

Every record, or a sample of them, is read and validated again: hashes, structure and signature. The
set of its facts, as one digest, is compared with that of the tables; so are the digests of its
advertisements. Roots are computed again, each at once, and rules are evaluated again.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from lace.base.limits import DEFAULT_SETTINGS, MAX_PROVEN_DIGESTS
from lace.engines.spark.arrow import map_in_arrow
from lace.engines.spark.session import shuffle_partitions
from lace.errors import LimitExceeded
from lace.facts.catalogue import RECORD_PREDICATES
from lace.interlacing.merkle import as_digests, root_of
from lace.pipeline.failures import translated
from lace.pipeline.proof import Proof
from lace.pipeline.rechecking import (
    PROVEN_COLUMNS,
    ROW_COLUMNS,
    VERDICT_COLUMNS,
    FactSets,
    Recomputing,
    Revalidating,
)
from lace.pipeline.reevaluating import prove_derived
from lace.pipeline.states import (
    WHOLE,
    inputs_of,
    read_partitions,
    read_state,
    state_names,
)
from lace.pipeline.tables import (
    ADVERTISEMENTS,
    RECORDS,
    columns_of,
    read_dictionary,
    read_facts,
    read_files,
    read_table,
    struct_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from lace.pipeline.states import State
    from lace.pipeline.warehouse import Warehouse

__all__ = ["prove"]

_MOST_REPORTS: Final = 1000
_MOST_PREFIXES: Final = 16
"""How many partitions a sample looks at, of each state."""
_FACT_BYTES: Final = 200


def prove(
    session: SparkSession,
    warehouse: Warehouse,
    sample: int | None = None,
    *,
    most_records: int = DEFAULT_SETTINGS.warehouse_embedded_records,
) -> Proof:
    """Compare the tables with the records themselves; returns what was found.

    Args:
        session: the Spark session.
        warehouse: what to prove.
        sample: how many records to look at, chosen by chance; all by default.
        most_records: up to how many records evaluations are compared with what the embedded
            engine derives from all of them; a sample would not do.

    Raises:
        LimitExceeded: all are asked for, and they are more digests than are held at once.
        WarehouseDamagedError: a file is damaged.
        SparkJobError: Spark failed.
    """
    proof = Proof()
    with translated("verify"):
        shuffle_partitions(session, warehouse.manifest.rows(RECORDS) * _FACT_BYTES)
        chosen = None if sample is None else _chosen(session, warehouse, sample)
        _prove_records(session, warehouse, chosen, proof)
        _prove_facts(session, warehouse, chosen, proof)
        for name in state_names(warehouse.manifest):
            state = read_state(warehouse, name)
            if state is not None:
                _prove_claims(session, warehouse, state, chosen, proof)
                _prove_roots(session, warehouse, name, chosen, proof)
        prove_derived(warehouse, proof, most_records)
    return proof


def _chosen(session: SparkSession, warehouse: Warehouse, sample: int) -> DataFrame:
    """Return hashes chosen by chance: always the same ones, once chosen."""
    from pyspark.sql import functions

    hashes = read_files(session, warehouse.files(RECORDS), [("hash", "string")])
    rows = hashes.orderBy(functions.rand()).limit(sample).collect()
    return session.createDataFrame([(row["hash"],) for row in rows], "record string")


def _prove_records(
    session: SparkSession, warehouse: Warehouse, chosen: DataFrame | None, proof: Proof
) -> None:
    """Validate records again, those without facts as well."""
    from pyspark.sql import functions

    kinds = dict(columns_of(RECORDS))
    columns = [(name, kinds[name]) for name in ROW_COLUMNS]
    rows = read_files(session, warehouse.files(RECORDS), columns)
    if chosen is not None:
        rows = rows.join(chosen.withColumnRenamed("record", "hash"), "hash", "left_semi")
    rows = rows.select(*ROW_COLUMNS)
    verdicts = map_in_arrow(rows, Revalidating(), struct_of(VERDICT_COLUMNS)).cache()
    counted = verdicts.agg(
        functions.count("*").alias("rows"), functions.count("reason").alias("wrong")
    ).collect()[0]
    wrong = verdicts.where("reason IS NOT NULL").orderBy("record").limit(_MOST_REPORTS).collect()
    verdicts.unpersist()
    for row in wrong:
        proof.note(f"the record {row['record']}", row["reason"])
    proof.wrong += counted["wrong"] - len(wrong)
    proof.validated += counted["rows"]


def _records(session: SparkSession, warehouse: Warehouse, covered: int) -> DataFrame:
    """Return the records up to a generation, whole."""
    files = warehouse.manifest.files(RECORDS)
    paths = [
        path
        for file, path in zip(files, warehouse.files(RECORDS), strict=True)
        if file.generation <= covered
    ]
    kinds = dict(columns_of(RECORDS))
    rows = read_files(session, paths, [(name, kinds[name]) for name in ("hash", "head", "data")])
    return rows.withColumnRenamed("hash", "record")


def _among(rows: DataFrame, chosen: DataFrame | None) -> DataFrame:
    return rows if chosen is None else rows.join(chosen, "record", "left_semi")


def _prove_facts(
    session: SparkSession, warehouse: Warehouse, chosen: DataFrame | None, proof: Proof
) -> None:
    records = _records(session, warehouse, warehouse.manifest.facts_generation)
    wanted = map_in_arrow(_among(records, chosen), Recomputing(), struct_of(PROVEN_COLUMNS))
    found = _fact_sets(session, warehouse, chosen)
    total, facts = _compare(wanted, found, "the facts", proof)
    proof.records += total
    proof.facts += facts


def _fact_sets(session: SparkSession, warehouse: Warehouse, chosen: DataFrame | None) -> DataFrame:
    """Return for each record how many facts the tables have of it, and the digest of that set.

    Values become rows of their own, so that the dictionary is joined once.
    """
    from pyspark.sql import functions

    words = read_dictionary(session, warehouse)
    ids = None
    if chosen is not None:
        named = words.join(chosen.withColumnRenamed("record", "text"), "text", "left_semi")
        ids = named.select(functions.col("id").alias("c0"))
    values: DataFrame | None = None
    for number, (predicate, known) in enumerate(RECORD_PREDICATES.items()):
        rows = read_facts(session, warehouse, predicate)
        if ids is not None:
            rows = rows.join(ids, "c0", "left_semi")
        # Numbers are given before values become rows, and do not repeat among the tables.
        own = functions.monotonically_increasing_id() * len(RECORD_PREDICATES) + number
        rows = rows.withColumn("fact", own)
        places = functions.array(*[f"c{at}" for at in range(known.arity)])
        rows = rows.select(
            functions.col("c0").alias("about"),
            functions.lit(predicate).alias("predicate"),
            "fact",
            functions.posexplode(places).alias("place", "id"),
        )
        values = rows if values is None else values.unionByName(rows)
    if values is None:
        raise AssertionError("there are predicates of records")
    texts = values.join(words, "id").select("about", "fact", "place", "predicate", "text")
    placed = texts.repartition("about").sortWithinPartitions("about", "fact", "place")
    return map_in_arrow(placed, FactSets(), struct_of(PROVEN_COLUMNS))


def _compare(
    wanted: DataFrame, found: DataFrame, what: str, proof: Proof, *, whole: bool = True
) -> tuple[int, int]:
    """Compare digests by record; returns how many there are, and the sum of their sizes.

    Args:
        wanted: `record`, `size` and `digest` of what should be.
        found: the same of what is.
        what: what they are of.
        proof: takes what is wrong.
        whole: whether all that should be must be there.
    """
    from pyspark.sql import functions

    renamed = found.select("record", functions.col("digest").alias("found"))
    joined = wanted.join(renamed, "record", "full_outer" if whole else "right_outer")
    joined = joined.select(
        "record",
        functions.coalesce("size", functions.lit(0)).alias("size"),
        functions.col("digest").isNull().alias("is_extra"),
        functions.col("digest").eqNullSafe(functions.col("found")).alias("is_same"),
    ).cache()
    counted = joined.agg(
        functions.count("*").alias("rows"),
        functions.sum("size").alias("sizes"),
        functions.count_if(~functions.col("is_same")).alias("wrong"),
    ).collect()[0]
    wrong = joined.where(~functions.col("is_same")).orderBy("record").limit(_MOST_REPORTS)
    reported = 0
    for row in wrong.collect():
        reason = "no such record is here" if row["is_extra"] else "they are not those of its bytes"
        proof.note(f"{what} of {row['record'] or 'an unknown record'}", reason)
        reported += 1
    joined.unpersist()
    proof.wrong += counted["wrong"] - reported
    return counted["rows"], counted["sizes"] or 0


def _prove_claims(
    session: SparkSession,
    warehouse: Warehouse,
    state: State,
    chosen: DataFrame | None,
    proof: Proof,
) -> None:
    asked = state.asked
    records = _among(_records(session, warehouse, state.covered), chosen)
    # Which records a derived set had is known as long as it has not changed.
    is_now = state.inputs == inputs_of(warehouse.manifest, asked.of)
    if asked.of and is_now:
        of = read_files(session, warehouse.files(asked.of), [("c0", "string")])
        records = records.join(of.withColumnRenamed("c0", "record"), "record", "left_semi")
    recomputing = Recomputing((asked.source, asked.schema))
    wanted = map_in_arrow(records, recomputing, struct_of(PROVEN_COLUMNS))
    rows = _among(read_table(session, warehouse, f"{ADVERTISEMENTS}/{asked.name}"), chosen)
    what = f"advertisements {asked.name}: the fields"
    total, _ = _compare(wanted, rows, what, proof, whole=is_now or not asked.of)
    proof.advertisements += total


def _prove_roots(
    session: SparkSession, warehouse: Warehouse, name: str, chosen: DataFrame | None, proof: Proof
) -> None:
    told = read_partitions(warehouse, name)
    rows = read_table(session, warehouse, f"{ADVERTISEMENTS}/{name}").select("prefix", "digest")
    if chosen is not None:
        prefixes = {row["record"][2:4] for row in chosen.limit(_MOST_PREFIXES).collect()}
        rows = rows.where(rows["prefix"].isin(*prefixes))
        told = {prefix: found for prefix, found in told.items() if prefix in prefixes}
    if (count := rows.count()) > MAX_PROVEN_DIGESTS:
        raise LimitExceeded(
            f"advertisements {name}: {count:,} digests are more than are proven at once",
            limit="MAX_PROVEN_DIGESTS",
            allowed=MAX_PROVEN_DIGESTS,
            observed=count,
            hint="prove a part with --sample N",
        )
    found = dict(_embedded_roots(rows, whole=chosen is None))
    for prefix in sorted(told.keys() | found.keys()):
        if told.get(prefix) != found.get(prefix):
            place = f"partition {prefix}" if prefix else "the whole"
            proof.note(f"advertisements {name}: {place}", "count or root is another")
    proof.roots += len(told)


def _embedded_roots(rows: DataFrame, *, whole: bool) -> Iterator[tuple[str, tuple[int, bytes]]]:
    """Yield count and root of each prefix, and of the whole, each computed at once."""
    table = rows.orderBy("prefix").toArrow()
    digests = as_digests(table.column("digest").to_pylist())
    if whole:
        yield WHOLE, (len(digests), root_of(digests))
    first = 0
    for prefix, run in groupby(table.column("prefix").to_pylist()):
        last = first + sum(1 for _ in run)
        yield prefix, (last - first, root_of(digests[first:last]))
        first = last
