"""Comparing two advertisement states: what each has that the other lacks, and what differs.

Where both are of one source and schema, the roots of their partitions are compared first, and only
partitions that differ are read. Otherwise both are computed as if they were of one: a digest
contains the source, and the fields of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.errors import UsageError
from lace.exchange.advertisement import read_claims
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.blocks import Phase, check_block
from lace.exchange.failures import InterlaceFailure
from lace.exchange.summaries import summaries_of, summary_of
from lace.facts.lines import FactLineError
from lace.policy.exposure import with_peer
from lace.policy.schema import ALL_FIELDS, Schema
from lace.rules.syntax import quote
from lace.spark.engine.relations import map_in_arrow
from lace.spark.engine.session import shuffle_partitions
from lace.spark.pipeline.advertise import (
    CLAIM_COLUMNS,
    PREFIX_LENGTH,
    WHOLE,
    Partitions,
    RelabelUdf,
    claim_batch,
    read_partitions,
    read_state,
    state_names,
)
from lace.spark.pipeline.tables import ADVERTISEMENTS, read_table, struct_of
from lace.spark.pipeline.warehouse import translate_spark_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.facts.lines import Fact
    from lace.spark.pipeline.warehouse import WarehouseFolder


FIRST_ONLY: Final = "a"
SECOND_ONLY: Final = "b"
DIFFERS: Final = "differs"
KINDS: Final = (FIRST_ONLY, SECOND_ONLY, DIFFERS)
"""What A has and B lacks, what B has and A lacks, what both have and is not the same."""
_ROW_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class DiffSide:
    """A state to compare: of whom, with which fields, its partitions, and its advertisements.

    A peer's listing does not say which fields were negotiated: those that some line has are taken.
    """

    source: str
    schema: Schema
    partitions: Partitions
    rows: Callable[[SparkSession], DataFrame]

    def as_of(self, session: SparkSession, source: str, schema: Schema) -> DataFrame:
        """Return its advertisements as if they were of a source and schema."""
        rows = self.rows(session)
        if (self.source, self.schema) == (source, schema):
            return rows
        return map_in_arrow(rows, RelabelUdf(source, schema), struct_of(CLAIM_COLUMNS))


def side_of(warehouse: WarehouseFolder, name: str) -> DiffSide:
    """Return a state of a warehouse."""
    state = read_state(warehouse, name)
    if state is None:
        names = ", ".join(state_names(warehouse.manifest))
        raise UsageError(
            f"there are no advertisements called {name!r} here, and no such file",
            hint=f"there are {names}" if names else "make some with `lace pipeline advertise`",
        )
    return DiffSide(
        state.asked.source,
        state.asked.schema,
        read_partitions(warehouse, name),
        lambda session: read_table(session, warehouse, f"{ADVERTISEMENTS}/{name}"),
    )


def given_listing(facts: Iterable[Fact], name: str) -> DiffSide:
    """Return what a peer listed, from facts of anywhere: their forms are checked first."""
    try:
        block = check_block(with_peer(facts, None), Phase.LISTING)
    except InterlaceFailure as failure:
        raise FactLineError(f"{name}: {failure.message}", rule=failure.rule) from failure
    return listing_of(block.facts, name)


def listing_of(facts: Sequence[Fact], file: str) -> DiffSide:
    """Return what a peer listed, from its `Advertised` and `AdvertisedField` facts."""
    sources = {fact[2] for fact in facts if fact[0] == "Advertised"}
    if len(sources) > 1:
        raise FactLineError(f"{file} has advertisements of {len(sources)} sources", rule="G42")
    source = next(iter(sources), "")
    schema = Schema(names=frozenset(fact[3] for fact in facts if fact[0] == "AdvertisedField"))
    try:
        found = read_claims(facts, source, ALL_FIELDS)
    except InterlaceFailure as failure:
        raise FactLineError(f"{file}: {failure.message}", rule=failure.rule) from failure
    claims = list(found.values())
    known = AdvertisementSet.of(list(found), [claim.digest(source) for claim in claims])
    summaries = {WHOLE: summary_of(known, WHOLE), **summaries_of(known, PREFIX_LENGTH)}
    partitions = {prefix: (each.count, each.root) for prefix, each in summaries.items()}

    def rows(session: SparkSession) -> DataFrame:
        import pyarrow as pa

        return session.createDataFrame(pa.Table.from_batches([claim_batch(claims, source)]))

    return DiffSide(source, schema, partitions, rows)


class Comparison:
    """Two sides, and which partitions of them have to be read.

    `prefixes` has those that differ; None where roots cannot be compared.
    """

    def __init__(self, first: DiffSide, second: DiffSide) -> None:
        self._first, self._second = first, second
        self._schema = first.schema & second.schema
        # Under the longer source lines are longer: what that leaves out, both leave out (G60).
        self._source = max(first.source, second.source, key=lambda each: (len(quote(each)), each))
        self.prefixes: list[str] | None = None
        if (first.source, first.schema) == (second.source, second.schema):
            both = sorted({*first.partitions, *second.partitions} - {WHOLE})
            self.prefixes = [
                each for each in both if first.partitions.get(each) != second.partitions.get(each)
            ]

    @property
    def is_same(self) -> bool:
        """Whether the roots alone say that nothing differs."""
        return self.prefixes == []

    def counts(self, opening: Callable[[], SparkSession]) -> dict[str, int]:
        """Return how many records there are of each kind; Spark is opened if roots differ."""
        if self.is_same:
            return dict.fromkeys(KINDS, 0)
        with translate_spark_errors("diff"):
            found = self._differing(opening()).groupBy("kind").count().collect()
        return {**dict.fromkeys(KINDS, 0), **{row["kind"]: row["count"] for row in found}}

    def records(
        self, opening: Callable[[], SparkSession], only: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield kind and hash of the records that differ, or of those of one kind; in order."""
        if self.is_same:
            return
        with translate_spark_errors("diff"):
            found = self._differing(opening())
            if only is not None:
                found = found.where(found["kind"] == only)
            for row in found.orderBy("kind", "record").toLocalIterator():
                yield row["kind"], row["record"]

    def _differing(self, session: SparkSession) -> DataFrame:
        from pyspark.sql import functions

        total = sum(side.partitions[WHOLE][0] for side in (self._first, self._second))
        shuffle_partitions(session, total * _ROW_BYTES)
        first, second = (
            self._chosen(side.as_of(session, self._source, self._schema), alias)
            for side, alias in ((self._first, FIRST_ONLY), (self._second, SECOND_ONLY))
        )
        kind = (
            functions.when(functions.col(SECOND_ONLY).isNull(), FIRST_ONLY)
            .when(functions.col(FIRST_ONLY).isNull(), SECOND_ONLY)
            .otherwise(DIFFERS)
        )
        joined = first.join(second, "record", "full_outer")
        differing = ~functions.col(FIRST_ONLY).eqNullSafe(functions.col(SECOND_ONLY))
        return joined.where(differing).select(kind.alias("kind"), "record")

    def _chosen(self, rows: DataFrame, alias: str) -> DataFrame:
        from pyspark.sql import functions

        if self.prefixes is not None:
            rows = rows.where(rows["prefix"].isin(*self.prefixes))
        return rows.select("record", functions.col("digest").alias(alias))
