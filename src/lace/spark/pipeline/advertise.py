"""The stage `advertise`: advertisements of records, and the Merkle roots over their digests.

Records that came since the last run are added; roots of prefixes that they do not reach stay. The
root of the whole is put together from shares of the digests, so that no place ever holds them all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lace.base import b64a
from lace.base.digest import Hasher
from lace.base.limits import MAX_LINE_BYTES
from lace.base.text import shorten
from lace.errors import UsageError
from lace.exchange.advertisement import (
    Advertisement,
    digests_of,
    digests_of_bare,
    is_bare,
    ordered_fields,
)
from lace.exchange.advertisement_set import payload_of
from lace.exchange.merkle import EMPTY_ROOT, LeafSpan, Node, as_digests, root_of_nodes
from lace.facts.extract import facts_of_columns
from lace.policy.origin import is_opaque_label
from lace.policy.schema import Schema
from lace.record.ids import IdError, Verifier
from lace.spark.engine.relations import map_in_arrow
from lace.spark.engine.session import shuffle_partitions
from lace.spark.pipeline.derived import find_derived, find_exchange, format_schema, parse_schema
from lace.spark.pipeline.facts import HEAD_COLUMNS, facts_of_heads
from lace.spark.pipeline.tables import (
    ADVERTISED,
    ADVERTISEMENTS,
    PARTITIONS,
    RECORDS,
    arrow_batch,
    columns_of,
    read_files,
    read_rows,
    read_table,
    row_batch,
    struct_of,
    table_damage,
    write_rows,
    write_table,
)
from lace.spark.pipeline.warehouse import translate_spark_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.exchange.advertisement import Field
    from lace.facts.lines import Fact
    from lace.spark.pipeline.warehouse import DataFile, Job, Manifest, WarehouseFolder


# -- Advertisement states of a warehouse: what was advertised under a name, and its roots.
#
# The tables `advertised/NAME` (what was asked for, one row), `partitions/NAME` (count and root of
# the
# whole and of each two-character prefix) and `advertisements/NAME` are one state. All here is small
# and read without Spark; the advertisements themselves are not.

PREFIX_LENGTH: Final = 2
"""Characters of a prefix, as mode 1 of reconciliation begins with (G44)."""
WHOLE: Final = ""
"""The prefix of all advertisements."""
Partitions: TypeAlias = "dict[str, tuple[int, bytes]]"
"""Count and root by prefix: of those that have records, and of the whole."""
_NAME: Final = re.compile(r"[A-Za-z0-9_~-]{1,64}")
_ANOTHER: Final = "`lace pipeline advertise` makes another under another --name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to advertise: as which source, with which fields, and of which table's records.

    `of` is the table of a derived set; empty for all records.
    """

    name: str
    source: str
    schema: Schema = field(default_factory=Schema)
    of: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{shorten(self.name)!r} is no name for advertisements",
                hint="write 1 to 64 letters, digits, _, ~ or -",
            )
        if not _is_source(self.source):
            raise UsageError(
                f"{shorten(self.source)!r} is no source of advertisements",
                rule="G42",
                hint="give a verifier, V.….H3, or the label of a side without a key, such as Opq_0",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvertisementState:
    """What was asked for, and the files that it was made of: `inputs` is a digest of them.

    `covered` is the last generation of records that are in it.
    """

    asked: Asked
    inputs: str
    covered: int


def _is_source(text: str) -> bool:
    try:
        return is_opaque_label(text) or bool(Verifier(text))
    except IdError:
        return False


def state_names(manifest: Manifest) -> list[str]:
    """Return the names of all states."""
    lead = f"{ADVERTISED}/"
    return sorted(table.removeprefix(lead) for table in manifest.tables if table.startswith(lead))


def read_state(warehouse: WarehouseFolder, name: str) -> AdvertisementState | None:
    """Return what is known of a state; None when none has that name."""
    table = f"{ADVERTISED}/{name}"
    if not warehouse.manifest.files(table):
        return None
    with table_damage(table, _ANOTHER):
        (row,) = read_rows(warehouse, table)
        schema = parse_schema(row["fields"])
        asked = Asked(name=name, source=row["source"], schema=schema, of=row["of"])
        return AdvertisementState(asked=asked, inputs=row["inputs"], covered=row["covered"])


def read_partitions(warehouse: WarehouseFolder, name: str) -> Partitions:
    """Return count and root of the partitions of a state, and of the whole."""
    table = f"{PARTITIONS}/{name}"
    with table_damage(table, _ANOTHER):
        rows = read_rows(warehouse, table)
        found = {row["prefix"]: (row["count"], b64a.decode(row["root"])) for row in rows}
        if WHOLE not in found:
            raise ValueError("the whole is missing")
        return found


def write_state(job: Job, state: AdvertisementState) -> tuple[DataFile, ...]:
    """Write what is known of a state."""
    asked = state.asked
    row = asked.source, format_schema(asked.schema), asked.of, state.inputs, state.covered
    return write_table(job, ADVERTISED, [row])


def write_partitions(job: Job, partitions: Partitions) -> tuple[DataFile, ...]:
    """Write count and root of partitions, in the order of their prefixes."""
    found = sorted(partitions.items())
    rows = [(prefix, count, b64a.encode(root)) for prefix, (count, root) in found]
    return write_table(job, PARTITIONS, rows)


def inputs_of(manifest: Manifest, of: str) -> str:
    """Return a digest of the files that a state of now would be made of."""
    hasher = Hasher()
    for table in (RECORDS, of):
        for file in manifest.files(table):
            hasher.update(f"{table} {file.path} {file.digest}\n".encode())
    return hasher.digest().hex()


# -- What an executor does for advertisements: records to claims, sorted digests to roots.
#
# All of it is the code that an exchange uses; here it takes Arrow batches and gives some.

CLAIM_COLUMNS: Final = columns_of(ADVERTISEMENTS)
ROOT_COLUMNS: Final = (("prefix", "string"), ("count", "bigint"), ("root", "binary"))
NODE_COLUMNS: Final = (("level", "int"), ("index", "bigint"), ("value", "binary"))


def claims_of(records: Sequence[str], facts: Iterable[Fact], source: str) -> list[Advertisement]:
    """Return the advertisements of records."""
    fields: dict[str, list[Field]] = {record: [] for record in records}
    for _predicate, record, name, index, value in facts:
        fields[record].append((name, index, value))
    return [_claim(record, source, found) for record, found in fields.items()]


def _claim(record: str, source: str, fields: Iterable[Field]) -> Advertisement:
    found = ordered_fields(record, source, fields, max_line_bytes=MAX_LINE_BYTES)
    return Advertisement(record, found)


@dataclass(frozen=True, slots=True)
class AdvertisementUdf:
    """The function of a task: records in, advertisements out.

    Records come as `hash`, and where there are fields also as what stands before their data.
    """

    source: str
    schema: Schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of records that it takes."""
        return ("hash",) if is_bare(self.schema) else ("hash", *HEAD_COLUMNS)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of advertisements."""
        reads = {"Field": None if self.schema.all else self.schema.names}
        for batch in batches:
            records: list[str] = batch.column("hash").to_pylist()
            if is_bare(self.schema):
                digests = digests_of_bare(records, self.source)
                yield _batch(records, digests, [None] * len(records))
                continue
            facts = facts_of_columns(facts_of_heads(batch), reads)
            yield claim_batch(claims_of(records, facts, self.source), self.source)


def _fields_text(claim: Advertisement) -> str | None:
    if not claim.fields:
        return None
    return json.dumps(claim.fields, ensure_ascii=False, separators=(",", ":"))


def claim_batch(claims: Sequence[Advertisement], source: str) -> Any:  # noqa: ANN401 - Arrow
    """Return advertisements of a source as an Arrow batch."""
    texts = [_fields_text(each) for each in claims]
    return _batch([claim.record for claim in claims], digests_of(claims, source), texts)


def _batch(records: Sequence[str], digests: Sequence[bytes], fields: Sequence[str | None]) -> Any:  # noqa: ANN401 - Arrow has no types
    prefixes = [payload_of(record)[:PREFIX_LENGTH] for record in records]
    return arrow_batch(CLAIM_COLUMNS, (prefixes, records, digests, fields))


@dataclass(frozen=True, slots=True)
class RelabelUdf:
    """The function of a task: advertisements in, the same of another source and schema out."""

    source: str
    schema: Schema

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of advertisements."""
        for batch in batches:
            records, texts = (batch.column(name).to_pylist() for name in ("record", "fields"))
            claims = [
                _claim(record, self.source, self._kept(text))
                for record, text in zip(records, texts, strict=True)
            ]
            yield claim_batch(claims, self.source)

    def _kept(self, text: str | None) -> Iterator[Field]:
        for name, index, value in json.loads(text) if text else ():
            if name in self.schema:
                yield name, index, value


def prefix_roots(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield count and root of each prefix as an Arrow batch; of digests sorted by prefix."""
    for prefix, span in _spans(batches, {}):
        yield row_batch(ROOT_COLUMNS, [(prefix, len(span), span.root())])


@dataclass(frozen=True, slots=True)
class SubtreeUdf:
    """The function of a task: sorted digests by the number of their share in, subtrees out.

    `starts` has, by that number, how many digests all shares before have.
    """

    starts: Mapping[int, int]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield an Arrow batch for each share: the subtrees that it cannot pair alone."""
        for _share, span in _spans(batches, self.starts):
            nodes = [(node.level, node.index, node.value) for node in span.nodes]
            yield row_batch(NODE_COLUMNS, nodes)


def _spans(batches: Iterator[Any], starts: Mapping[Any, int]) -> Iterator[tuple[Any, LeafSpan]]:
    """Yield each value of the first column with the span of its digests, the second column."""
    current: Any = None
    span: LeafSpan | None = None
    for batch in batches:
        first = 0
        digests = as_digests(batch.column(1).to_pylist())
        for key, run in groupby(batch.column(0).to_pylist()):
            last = first + sum(1 for _ in run)
            if span is None or key != current:
                if span is not None:
                    yield current, span
                current, span = key, LeafSpan(starts.get(key, 0))
            span.add(digests[first:last])
            first = last
    if span is not None:
        yield current, span


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
    name: str = ""

    @property
    def root_text(self) -> str:
        """The root in base64-ascend."""
        return b64a.encode(self.root)


def asked_of(
    warehouse: WarehouseFolder,
    source: str,
    schema: Schema,
    *,
    of: str | None = None,
    exchange: str | None = None,
    name: str | None = None,
) -> Asked:
    """Return what to advertise, by what somebody says of it."""
    if exchange is not None:
        of, schema = find_exchange(warehouse, exchange)
    return Asked(
        name=name or exchange or (of or _ALL_RECORDS).partition("/")[0],
        source=source,
        schema=schema,
        of=find_derived(warehouse, of) if of else "",
    )


def asked_for_all(source: str, fields: Iterable[str]) -> Asked:
    """Return what to advertise of all records: some fields, as a source."""
    return Asked(name=_ALL_RECORDS, source=source, schema=Schema(names=frozenset(fields)))


def is_current(warehouse: WarehouseFolder, asked: Asked) -> Done | None:
    """Return what there is, when it is what is asked for, made of all that there is now."""
    state = read_state(warehouse, asked.name)
    if state is None or state.asked != asked:
        return None
    if state.inputs != inputs_of(warehouse.manifest, asked.of):
        return None
    return _done(asked.name, read_partitions(warehouse, asked.name), 0)


def _done(name: str, partitions: Partitions, added: int) -> Done:
    count, root = partitions[WHOLE]
    return Done(count, added, len(partitions) - 1, root, name)


def advertise(session: SparkSession, job: Job, asked: Asked) -> Done:
    """Bring the advertisements of a name up to now; returns the counts and the root.

    A state that was made of something else under this name is replaced.
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
    with translate_spark_errors("advertise"):
        made = _write_claims(session, job, asked, fresh)
        old = read_partitions(job.warehouse, asked.name) if grows else {}
        partitions = _partitions(session, job.warehouse, kept, made, old)
    state = AdvertisementState(
        asked=asked,
        inputs=inputs_of(manifest, asked.of),
        covered=max((file.generation for file in manifest.files(RECORDS)), default=0),
    )
    new = manifest.with_replaced(table, (*kept, *made))
    new = new.with_replaced(f"{PARTITIONS}/{asked.name}", write_partitions(job, partitions))
    new = new.with_replaced(f"{ADVERTISED}/{asked.name}", write_state(job, state))
    job.commit(new, "advertise")
    return _done(asked.name, partitions, sum(file.rows for file in made))


def _write_claims(
    session: SparkSession, job: Job, asked: Asked, fresh: list[DataFile]
) -> tuple[DataFile, ...]:
    """Write the advertisements of records, sorted by prefix and record within each file."""
    if not fresh:
        return ()
    warehouse = job.warehouse
    parts = shuffle_partitions(session, sum(file.rows for file in fresh) * _ROW_BYTES)
    claiming = AdvertisementUdf(asked.source, asked.schema)
    columns = columns_of(RECORDS, claiming.columns)
    records = read_files(session, warehouse.paths(fresh), columns)
    if asked.of:
        chosen = read_table(session, warehouse, asked.of)
        records = records.join(chosen.withColumnRenamed("c0", "hash"), "hash", "left_semi")
    claims = map_in_arrow(records.select(*claiming.columns), claiming, struct_of(CLAIM_COLUMNS))
    placed = claims.repartition(parts, "prefix").sortWithinPartitions("prefix", "record")
    target = job.folder(ADVERTISEMENTS)
    write_rows(placed, target)
    return job.adopt(target)


def _partitions(
    session: SparkSession,
    warehouse: WarehouseFolder,
    kept: tuple[DataFile, ...],
    made: tuple[DataFile, ...],
    old: Partitions,
) -> Partitions:
    """Return count and root of each prefix, and of the whole."""
    columns = columns_of(ADVERTISEMENTS, ("prefix", "digest"))
    if old and not made:
        return old
    total = sum(file.rows for file in (*kept, *made))
    if not total:
        return {WHOLE: (0, EMPTY_ROOT)}
    parts = shuffle_partitions(session, total * _ROW_BYTES)
    rows = touched = read_files(session, warehouse.paths((*kept, *made)), columns)
    if kept:
        new = read_files(session, warehouse.paths(made), columns).select("prefix").distinct()
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
    made = map_in_arrow(placed, prefix_roots, struct_of(ROOT_COLUMNS)).collect()
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
    found = map_in_arrow(placed, SubtreeUdf(starts), struct_of(NODE_COLUMNS)).collect()
    nodes = [Node(row["level"], row["index"], bytes(row["value"])) for row in found]
    return root_of_nodes(sorted(nodes, key=lambda node: node.index << node.level))
