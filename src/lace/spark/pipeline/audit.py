"""Auditing a warehouse: files, records, tables and derived facts, computed again.

Every record, or a sample of them, is read and validated again: hashes, structure and signature. The
set of its facts, as one digest, is compared with that of the tables; so are the digests of its
advertisements. Roots are computed again, each at once, and rules are evaluated again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from itertools import groupby
from random import SystemRandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lace.base.digest import digest
from lace.base.limits import DEFAULT_SETTINGS, MAX_PROVEN_DIGESTS
from lace.base.text import shorten
from lace.engine.engine import evaluate
from lace.errors import LimitExceeded, RecordError
from lace.exchange.advertisement import digests_of
from lace.exchange.merkle import as_digests, root_of
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import facts_of_records, record_facts
from lace.facts.lines import Fact, format_fact
from lace.record.ids import IdError, RecordId
from lace.record.validate import frame_record, trust_stored, validate_many
from lace.rules.syntax import PredicateKey
from lace.spark.engine.relations import map_in_arrow
from lace.spark.engine.session import shuffle_partitions
from lace.spark.pipeline.advertise import (
    WHOLE,
    claims_of,
    inputs_of,
    read_partitions,
    read_state,
    state_names,
)
from lace.spark.pipeline.derived import (
    answer_table,
    derived_tables,
    evaluation_table,
    evaluations,
    read_derived,
    read_evaluated,
)
from lace.spark.pipeline.evaluate import Question, identity_of, made_by, read_question
from lace.spark.pipeline.proof import _MOST_REPORTS, Proof, Reports, add_report
from lace.spark.pipeline.records import iterate_records, rows_at
from lace.spark.pipeline.tables import (
    ADVERTISEMENTS,
    DICTIONARY,
    RECORDS,
    columns_of,
    facts_table,
    read_dictionary,
    read_facts,
    read_files,
    read_table,
    record_row,
    row_batch,
    struct_of,
)
from lace.spark.pipeline.warehouse import (
    WarehouseDamagedError,
    WarehouseFolder,
    check_file,
    translate_spark_errors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.policy.schema import Schema
    from lace.record.reader import RawRecord
    from lace.record.validate import ValidRecord
    from lace.spark.pipeline.advertise import AdvertisementState
    from lace.spark.pipeline.derived import Evaluated
    from lace.spark.pipeline.warehouse import DataFile, Manifest


# -- What an executor does to prove a warehouse: records validated again, and digests of fact sets.

PROVEN_COLUMNS: Final = (("record", "string"), ("size", "bigint"), ("digest", "binary"))
VERDICT_COLUMNS: Final = (("record", "string"), ("reason", "string"))
ROW_COLUMNS: Final = tuple(
    name for name, _kind in columns_of(RECORDS) if name not in ("source", "source_offset")
)
"""What the bytes of a record say of its row."""
_BATCH_ROWS: Final = 4096
_Row: TypeAlias = "tuple[str | None, int, bytes]"


def fact_set_digest(facts: Iterable[Fact]) -> bytes:
    """Return the digest of a set of facts: of their lines sorted bytewise, each with LF."""
    lines = sorted(format_fact(fact).encode("utf-8", "surrogatepass") for fact in facts)
    return digest(b"".join(line + b"\n" for line in lines))


@dataclass(frozen=True, slots=True)
class DigestUdf:
    """The function of a task: records in, the digests of their facts or advertisements out.

    `claimed` is source and schema of advertisements; None for facts.
    """

    claimed: tuple[str, Schema] | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of records, sizes and digests; without a digest for wrong bytes."""
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("record", "head", "data")]
            made: list[_Row] = []
            records: list[ValidRecord] = []
            for text, head, data in zip(*columns, strict=True):
                try:
                    records.append(trust_stored((head or b"") + (data or b""), RecordId(text)))
                except (RecordError, IdError):
                    made.append((text, 0, b""))
            yield row_batch(PROVEN_COLUMNS, [*made, *self._proven(records)])

    def _proven(self, records: list[ValidRecord]) -> list[_Row]:
        if self.claimed is None:
            facts = [(str(record.id), record_facts(record)) for record in records]
            return [(text, len(each), fact_set_digest(each)) for text, each in facts]
        source, schema = self.claimed
        reads = {"Field": None if schema.all else schema.names}
        hashes = [str(record.id) for record in records]
        claims = claims_of(hashes, facts_of_records(records, reads=reads), source)
        digests = digests_of(claims, source)
        return [
            (claim.record, len(claim.fields), each)
            for claim, each in zip(claims, digests, strict=True)
        ]


def revalidate(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield Arrow batches of hashes, each with what is wrong, or nothing; of batches of rows.

    A record is validated as it was when it came, hashes and signature; and its row must be the
    one that its bytes give.
    """
    for batch in batches:
        yield row_batch(VERDICT_COLUMNS, verdicts_of(batch))


def verdicts_of(batch: Any) -> list[tuple[str, str | None]]:  # noqa: ANN401 - Arrow has no types
    """Return the hash of each row of records, and what is wrong with it."""
    rows = list(zip(*(batch.column(name).to_pylist() for name in ROW_COLUMNS), strict=True))
    return [(row[0], reason) for row, reason in zip(rows, reasons_of(rows), strict=True)]


def reasons_of(rows: Sequence[tuple[Any, ...]]) -> list[str | None]:
    """Return for each row of a record, of `ROW_COLUMNS`, what is wrong with it."""
    head, data = ROW_COLUMNS.index("head"), ROW_COLUMNS.index("data")
    found: list[str | None] = [None] * len(rows)
    frames: list[RawRecord] = []
    places: list[int] = []
    for at, row in enumerate(rows):
        raw = (row[head] or b"") + (row[data] or b"")
        try:
            frames.append(frame_record(raw, len(raw)))
            places.append(at)
        except RecordError as error:
            found[at] = _reason(error)
    for at, outcome in zip(places, validate_many(frames, os.urandom), strict=True):
        if isinstance(outcome, RecordError):
            found[at] = _reason(outcome)
        elif outcome.hash_text != rows[at][0]:
            found[at] = f"its bytes are {outcome.hash_text}"
        elif record_row(outcome) != rows[at]:
            found[at] = "its row says something else than its bytes"
    return found


def _reason(error: RecordError) -> str:
    return f"{error.message} [{error.rule}]" if error.rule else error.message


def digest_fact_sets(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield Arrow batches of records, the numbers of their facts, and the digests of these sets.

    The batches have values sorted by record, fact and place.
    """
    made: list[_Row] = []
    for record, facts in _sets(_values(batches)):
        made.append((record, len(facts), fact_set_digest(facts)))
        if len(made) >= _BATCH_ROWS:
            yield row_batch(PROVEN_COLUMNS, made)
            made = []
    if made:
        yield row_batch(PROVEN_COLUMNS, made)


def _values(batches: Iterator[Any]) -> Iterator[tuple[int, int, int, str, str]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _sets(
    values: Iterator[tuple[int, int, int, str, str]],
) -> Iterator[tuple[str | None, list[Fact]]]:
    """Yield each record with its facts; one whose own text is nowhere has none."""
    about: int | None = None
    record: str | None = None
    facts: dict[int, list[str]] = {}
    for subject, number, place, predicate, text in values:
        if about is not None and subject != about:
            yield record, [tuple(each) for each in facts.values()]
            record, facts = None, {}
        about = subject
        if place == 0:
            record = text
        facts.setdefault(number, [predicate]).append(text)
    if about is not None:
        yield record, [tuple(each) for each in facts.values()]


# -- Proving derived facts: the same rules, evaluated by the embedded engine over the same records.
#
# An evaluation keeps its rules. They are asked again about the records that had facts at that time,
# read from their own bytes, and each predicate's set of facts must have the digest of that in its
# table. Neither Spark nor a table of facts has a part in it.

_UNKNOWN: Final = "it does not tell by which rules it was made; run `lace pipeline evaluate` again"
_OTHER: Final = "it was not made of the rules and facts that are kept"


def prove_derived(warehouse: WarehouseFolder, proof: Proof, most_records: int) -> None:
    """Compare all derived tables with what the embedded engine derives."""
    known = evaluations(warehouse.manifest)
    described: set[str] = set()
    for name in known:
        try:
            evaluated = read_evaluated(warehouse, name)
            if evaluated is not None:
                described |= {answer_table(name, key) for key in evaluated.counts}
                _prove(warehouse, evaluated, proof, most_records)
        except WarehouseDamagedError as error:
            proof.note(f"derived {name}", error.message)
    for table in derived_tables(warehouse.manifest):
        if table not in described:
            proof.note(table, "no evaluation describes it")


def _prove(
    warehouse: WarehouseFolder, evaluated: Evaluated, proof: Proof, most_records: int
) -> None:
    name, keys = evaluated.name, tuple(evaluated.counts)
    what = f"derived {name}"
    try:
        kept = read_question(warehouse, name)
    except WarehouseDamagedError as error:
        _refuse(evaluated, error.message, proof)
        return
    if kept is None:
        _refuse(evaluated, _UNKNOWN, proof)
        return
    question = Question(kept[0], keys, kept[1])
    then = _as_it_was(warehouse.manifest, name)
    if identity_of(then, question) != evaluated.identity:
        _refuse(evaluated, _OTHER, proof)
        return
    records = then.rows(RECORDS)
    if records > most_records:
        proof.leave(
            what,
            f"{records:,} records are more than the embedded engine is asked about, "
            f"warehouse_embedded_records={most_records}",
        )
        return
    try:
        answer = _answer(question, _facts(WarehouseFolder(warehouse.folder, then)))
    except LimitExceeded as error:
        proof.leave(what, error.message)
        return
    for key in keys:
        _compare_derived(warehouse, evaluated, key, answer.get(key, ()), proof)


def _refuse(evaluated: Evaluated, reason: str, proof: Proof) -> None:
    """Note an answer whose question cannot be asked again.

    Another version of Lace may have kept it in another form, or named it by other limits. Then
    nothing says that it is wrong, and nothing that it is right.
    """
    what = f"derived {evaluated.name}"
    if evaluated.made_by == made_by():
        proof.note(what, reason)
        return
    who = shorten(evaluated.made_by) if evaluated.made_by else "an earlier version of Lace"
    proof.leave(
        what,
        f"it was evaluated by {who}, and this is {made_by()}; to have it compared, run "
        f"`lace pipeline evaluate` again with --out {evaluated.name}",
    )


def _as_it_was(manifest: Manifest, name: str) -> Manifest:
    """Return the facts that an evaluation was made of, and the records that had facts then.

    Facts are only added, and the run that adds them makes those of all records before.
    """
    made = max(file.generation for file in manifest.files(evaluation_table(name)))
    facts = {
        table: tuple(file for file in files if file.generation < made)
        for table, files in manifest.tables.items()
        if table == DICTIONARY or table.startswith("facts/")
    }
    covered = max((file.generation for file in facts.get(facts_table("Have"), ())), default=0)
    records = tuple(file for file in manifest.files(RECORDS) if file.generation < covered)
    return replace(manifest, tables=MappingProxyType({**facts, RECORDS: records}))


def _facts(warehouse: WarehouseFolder) -> Iterable[Fact]:
    for record in iterate_records(warehouse):
        yield from record_facts(record)


def _answer(question: Question, facts: Iterable[Fact]) -> dict[PredicateKey, Sequence[Fact]]:
    """Return the facts of all predicates that are wanted, or that a later program reads."""
    read = {key for program in question.programs for key in program.required_base}
    known: dict[PredicateKey, list[Fact]] = {}
    for source in (facts, question.public):
        for fact in source:
            key = PredicateKey(fact[0], len(fact) - 1)
            if key in read:
                known.setdefault(key, []).append(fact)
    answer: dict[PredicateKey, Sequence[Fact]] = {}
    for program in question.programs:
        wanted = [key for key in program.derived if key in read or key in question.predicates]
        given = [fact for key in program.required_base for fact in known.get(key, ())]
        found = evaluate(program, given, predicates=wanted)
        for key in wanted:
            made = [(key.name, *values) for values in found.texts(key)]
            known.setdefault(key, []).extend(made)
            answer[key] = made
    return answer


def _compare_derived(
    warehouse: WarehouseFolder,
    evaluated: Evaluated,
    key: PredicateKey,
    wanted: Sequence[Fact],
    proof: Proof,
) -> None:
    what = f"derived {evaluated.name}: {key}"
    rows = warehouse.manifest.rows(answer_table(evaluated.name, key))
    if rows != evaluated.counts[key]:
        proof.note(what, f"it has {rows} facts, and {evaluated.counts[key]} were made")
        return
    if rows > MAX_PROVEN_DIGESTS:
        proof.leave(what, f"{rows:,} facts are more than are compared at once")
        return
    found = [(key.name, *values) for values in read_derived(warehouse, evaluated.name, key)]
    proof.derived += len(found)
    is_text = all(isinstance(value, str) for fact in found for value in fact)
    if not is_text or fact_set_digest(found) != fact_set_digest(wanted):
        extra, missing = len({*found} - {*wanted}), len({*wanted} - {*found})
        maker = evaluated.made_by
        who = f" (it was evaluated by {shorten(maker)})" if maker not in ("", made_by()) else ""
        proof.note(
            what,
            f"it is not what the embedded engine derives: {missing:,} facts are missing, "
            f"{extra:,} are too many{who}",
        )


_MOST_PREFIXES: Final = 16
"""How many partitions a sample looks at, of each state."""
_FACT_BYTES: Final = 200


def prove(
    session: SparkSession,
    warehouse: WarehouseFolder,
    sample: int | None = None,
    *,
    most_records: int = DEFAULT_SETTINGS.warehouse_embedded_records,
) -> Proof:
    """Compare the tables with the records themselves; returns what was found."""
    proof = Proof()
    with translate_spark_errors("verify"):
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


def _chosen(session: SparkSession, warehouse: WarehouseFolder, sample: int) -> DataFrame:
    """Return hashes chosen by chance: always the same ones, once chosen."""
    from pyspark.sql import functions

    hashes = read_table(session, warehouse, RECORDS, ["hash"])
    rows = hashes.orderBy(functions.rand()).limit(sample).collect()
    return session.createDataFrame([(row["hash"],) for row in rows], "record string")


def _prove_records(
    session: SparkSession, warehouse: WarehouseFolder, chosen: DataFrame | None, proof: Proof
) -> None:
    """Validate records again, those without facts as well."""
    from pyspark.sql import functions

    rows = read_table(session, warehouse, RECORDS, ROW_COLUMNS)
    if chosen is not None:
        rows = rows.join(chosen.withColumnRenamed("record", "hash"), "hash", "left_semi")
    rows = rows.select(*ROW_COLUMNS)
    verdicts = map_in_arrow(rows, revalidate, struct_of(VERDICT_COLUMNS)).cache()
    counted = verdicts.agg(
        functions.count("*").alias("rows"), functions.count("reason").alias("wrong")
    ).collect()[0]
    wrong = verdicts.where("reason IS NOT NULL").orderBy("record").limit(_MOST_REPORTS).collect()
    verdicts.unpersist()
    for row in wrong:
        proof.note(f"the record {row['record']}", row["reason"])
    proof.wrong += counted["wrong"] - len(wrong)
    proof.validated += counted["rows"]


def _records(session: SparkSession, warehouse: WarehouseFolder, covered: int) -> DataFrame:
    """Return the records up to a generation, whole."""
    files = (file for file in warehouse.manifest.files(RECORDS) if file.generation <= covered)
    columns = columns_of(RECORDS, ("hash", "head", "data"))
    rows = read_files(session, warehouse.paths(files), columns)
    return rows.withColumnRenamed("hash", "record")


def _among(rows: DataFrame, chosen: DataFrame | None) -> DataFrame:
    return rows if chosen is None else rows.join(chosen, "record", "left_semi")


def _prove_facts(
    session: SparkSession, warehouse: WarehouseFolder, chosen: DataFrame | None, proof: Proof
) -> None:
    records = _records(session, warehouse, warehouse.manifest.facts_generation)
    wanted = map_in_arrow(_among(records, chosen), DigestUdf(), struct_of(PROVEN_COLUMNS))
    found = _fact_sets(session, warehouse, chosen)
    total, facts = _compare(wanted, found, "the facts", proof)
    proof.records += total
    proof.facts += facts


def _fact_sets(
    session: SparkSession, warehouse: WarehouseFolder, chosen: DataFrame | None
) -> DataFrame:
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
    return map_in_arrow(placed, digest_fact_sets, struct_of(PROVEN_COLUMNS))


def _compare(
    wanted: DataFrame, found: DataFrame, what: str, proof: Proof, *, whole: bool = True
) -> tuple[int, int]:
    """Compare digests by record; returns how many there are, and the sum of their sizes."""
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
    warehouse: WarehouseFolder,
    state: AdvertisementState,
    chosen: DataFrame | None,
    proof: Proof,
) -> None:
    asked = state.asked
    records = _among(_records(session, warehouse, state.covered), chosen)
    # Which records a derived set had is known as long as it has not changed.
    is_now = state.inputs == inputs_of(warehouse.manifest, asked.of)
    if asked.of and is_now:
        of = read_table(session, warehouse, asked.of)
        records = records.join(of.withColumnRenamed("c0", "record"), "record", "left_semi")
    recomputing = DigestUdf((asked.source, asked.schema))
    wanted = map_in_arrow(records, recomputing, struct_of(PROVEN_COLUMNS))
    rows = _among(read_table(session, warehouse, f"{ADVERTISEMENTS}/{asked.name}"), chosen)
    what = f"advertisements {asked.name}: the fields"
    total, _ = _compare(wanted, rows, what, proof, whole=is_now or not asked.of)
    proof.advertisements += total


def _prove_roots(
    session: SparkSession,
    warehouse: WarehouseFolder,
    name: str,
    chosen: DataFrame | None,
    proof: Proof,
) -> None:
    stored = read_partitions(warehouse, name)
    rows = read_table(session, warehouse, f"{ADVERTISEMENTS}/{name}").select("prefix", "digest")
    if chosen is not None:
        prefixes = {row["record"][2:4] for row in chosen.limit(_MOST_PREFIXES).collect()}
        rows = rows.where(rows["prefix"].isin(*prefixes))
        stored = {prefix: found for prefix, found in stored.items() if prefix in prefixes}
    if (count := rows.count()) > MAX_PROVEN_DIGESTS:
        raise LimitExceeded(
            f"advertisements {name}: {count:,} digests are more than are proven at once",
            limit="MAX_PROVEN_DIGESTS",
            allowed=MAX_PROVEN_DIGESTS,
            observed=count,
            hint="prove a part with --sample N",
        )
    found = dict(_embedded_roots(rows, whole=chosen is None))
    for prefix in sorted(stored.keys() | found.keys()):
        if stored.get(prefix) != found.get(prefix):
            place = f"partition {prefix}" if prefix else "the whole"
            proof.note(f"advertisements {name}: {place}", "count or root is another")
    proof.roots += len(stored)


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


# -- Checking a warehouse without Spark: every file, byte by byte, and some of its records.

_SOME_RECORDS: Final = 1000
"""Records that are validated again, where nobody says how many."""


@dataclass(slots=True)
class Checked:
    """What a check found; `damage` has path and reason, the first of them.

    `validated` are records that were, `wrong` those of them that are not valid. `proof` tells
    the comparison of the tables with the records, where requested.
    """

    files: int = 0
    bytes: int = 0
    validated: int = 0
    wrong: int = 0
    damaged: int = 0
    damage: Reports = field(default_factory=list)
    proof: Proof | None = None

    @property
    def is_sound(self) -> bool:
        """Whether all that was looked at is as it should be."""
        return not (self.damaged or self.wrong or (self.proof is not None and self.proof.wrong))


def check_warehouse(
    warehouse: WarehouseFolder, report: Callable[[Checked], None] | None = None
) -> Checked:
    """Read every file of the manifest and compare its digest, and its rows with its footer."""
    checked = Checked()
    for file in warehouse.manifest.all_files():
        try:
            check_file(warehouse.folder, file, whole=True)
            _check_footer(warehouse, file)
        except WarehouseDamagedError as error:
            checked.damaged += 1
            add_report(checked.damage, file.path, error.message.rpartition("damaged: ")[2])
        checked.files += 1
        checked.bytes += file.size
        if report:
            report(checked)
    return checked


def validate_some(warehouse: WarehouseFolder, checked: Checked) -> None:
    """Validate up to 1,000 records again, chosen by chance, and note those that are not valid."""
    files = warehouse.manifest.files(RECORDS)
    total = sum(file.rows for file in files)
    chosen = sorted(SystemRandom().sample(range(total), min(total, _SOME_RECORDS)))
    first = 0
    for file, path in zip(files, warehouse.files(RECORDS), strict=True):
        mine = [place - first for place in chosen if first <= place < first + file.rows]
        first += file.rows
        for batch in rows_at(path, file.rows, mine, ROW_COLUMNS):
            for record, reason in verdicts_of(batch):
                checked.validated += 1
                if reason is not None:
                    checked.wrong += 1
                    add_report(checked.damage, f"the record {record}", reason)


def _check_footer(warehouse: WarehouseFolder, file: DataFile) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_metadata(warehouse.folder / file.path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise WarehouseDamagedError(f"damaged: {error}") from error
    if rows != file.rows:
        raise WarehouseDamagedError(f"damaged: it has {rows} rows instead of {file.rows}")
