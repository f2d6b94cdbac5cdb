"""The stage `evaluate`: rules over the facts of a warehouse, to tables of derived facts.

A question is a lacegram, or the programs of an exchange with what the peer has said. The same
question about the same facts is answered once: the answer has an identity made of both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_LINE_BYTES, SPARK_BROADCAST_ROWS
from lace.engines.handover import evaluate_columns
from lace.engines.spark.session import shuffle_partitions
from lace.errors import EngineError, UsageError
from lace.facts.lines import check_value
from lace.interlacing.sources import relabelled
from lace.pipeline.derived import (
    Evaluated,
    answer_table,
    check_name,
    evaluation_table,
    question_table,
    read_evaluated,
    without_derived,
    write_evaluated,
)
from lace.pipeline.failures import translated
from lace.pipeline.inputs import Inputs, count_facts, read_inputs
from lace.pipeline.questions import write_question
from lace.pipeline.registered import (
    name_of_digest,
    name_of_facts,
    register,
    registered_schema,
)
from lace.pipeline.tables import read_dictionary, write_rows
from lace.policy.public_facts import check_public, split_local
from lace.policy.schema import ALL_FIELDS
from lace.rules.limits import RuleLimits
from lace.rules.profiles import MAY_REQUEST, MAY_SEND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.engines.budget import Statistics
    from lace.engines.spark.engine import Tables
    from lace.engines.spark.options import Options
    from lace.facts.lines import Fact
    from lace.pipeline.manifest import DataFile, Manifest
    from lace.pipeline.warehouse import Job, Warehouse
    from lace.policy.compile import Executable
    from lace.policy.schema import Schema
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey

__all__ = [
    "Question",
    "evaluate",
    "exchange_question",
    "find_answer",
    "identity_of",
    "made_by",
    "select_values",
]

_FORMAT: Final = 3
"""Changes whenever the tables of an answer would come out in another form."""
_NUMBER_BYTES: Final = 8
_ONE_FILE_ROWS: Final = 200_000
"""Facts of a predicate that are not worth more than one file."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: checked programs, each after those that it reads, and what is wanted.

    `exchange` is the policy that they are the programs of, if they are those of an exchange;
    `offered` are the fields of advertisements that this side offers in it.
    """

    programs: tuple[CheckedProgram, ...]
    predicates: tuple[PredicateKey, ...]
    public: tuple[Fact, ...] = ()
    exchange: Executable | None = None
    offered: Schema = ALL_FIELDS

    def __post_init__(self) -> None:
        if not self.predicates:
            raise UsageError("the rules define nothing", hint="write at least one rule")


def exchange_question(
    executable: Executable, public: Iterable[Fact], offered: Schema = ALL_FIELDS
) -> Question:
    """Return the question what an exchange may send and request.

    Args:
        executable: the policy of this side.
        public: the facts that are not of records.
        offered: the fields that advertisements of this side may carry.

    Raises:
        EngineError: a fact is not public.
        FactLineError: a fact cannot hold a value.
        LimitExceeded: one is too long for a program that may read it.
    """
    told = tuple(sorted(set(relabelled(public, executable))))
    check_public({(fact[0], len(fact) - 1) for fact in split_local(told)[0]})
    allowed = min(each.limits.max_value_bytes for each in executable.programs)
    for value in {value for fact in told for value in fact[1:]}:
        check_value(value, allowed)
    return Question(executable.programs, (MAY_SEND, MAY_REQUEST), told, executable, offered)


def identity_of(manifest: Manifest, question: Question) -> str:
    """Return what tells a question and the facts that it is about from all others."""
    programs = [[list(each.lines), asdict(each.limits)] for each in question.programs]
    return name_of_digest([_FORMAT, name_of_facts(manifest), programs, question.public])


def made_by() -> str:
    """Return which Lace this is, and in which way it names the identity of answers."""
    how = name_of_digest([_FORMAT, [each.name for each in fields(RuleLimits)]])
    return f"Lace {version('lace')} ({how[:8]})"


def find_answer(warehouse: Warehouse, name: str, question: Question) -> Evaluated | None:
    """Return the answer that a warehouse has under a name, if it is the one to this question.

    Raises:
        UsageError: the name, or that of a predicate, cannot name a table.
        WarehouseDamagedError: its tables are damaged.
    """
    for key in question.predicates:
        answer_table(check_name(name), key)
    found = read_evaluated(warehouse, name)
    if found is None or found.identity != identity_of(warehouse.manifest, question):
        return None
    if question.exchange is not None:
        schema = registered_schema(question.exchange, question.offered)
        if found.registration is None or found.registration.schema != schema:
            return None
    return found if set(found.counts) == set(question.predicates) else None


def evaluate(
    session: SparkSession,
    job: Job,
    name: str,
    question: Question,
    *,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Evaluated:
    """Answer a question, and keep the answer under a name, in place of what was there.

    Args:
        session: the Spark session.
        job: the writer's hold of the warehouse.
        name: what to call the answer.
        question: the rules, and what is wanted of them.
        options: how Spark goes about it; intermediate tables that are to outlive an executor
            are written into the warehouse's folder, and removed.
        statistics: where to note how much work was done.

    Raises:
        LimitExceeded: it goes beyond a limit; nothing is committed.
        UsageError: the name, or that of a predicate, cannot name a table.
        WarehouseDamagedError: a file of the warehouse is damaged.
        StoreUnavailableError: the disk is full.
        SparkJobError: Spark failed.
    """
    known = find_answer(job.warehouse, name, question)
    if known is not None:
        return known
    manifest = job.warehouse.manifest
    with translated("evaluate"):
        if options is not None and options.cuts == "reliable":
            session.sparkContext.setCheckpointDir(str(job.scratch("checkpoints")))
        tables = _answer(session, job.warehouse, question, options, statistics)
        few = _broadcast_rows(options)
        made = {
            key: _write(job, tables, key, at, few) for at, key in enumerate(question.predicates)
        }
    counts = {key: tables.rows(str(key)) for key in question.predicates}
    told = question.exchange
    done = Evaluated(
        name,
        identity_of(manifest, question),
        MappingProxyType(counts),
        fresh=True,
        registration=None
        if told is None
        else register(manifest, told, question.public, question.offered),
        made_by=made_by(),
    )
    folder, asked = job.folder("evaluation"), job.folder("question")
    write_evaluated(done, folder)
    write_question(question.programs, question.public, asked)
    new = without_derived(manifest, name)
    new = new.with_added({answer_table(name, key): files for key, files in made.items()})
    new = new.with_added({question_table(name): job.adopt(asked)})
    job.commit(new.with_added({evaluation_table(name): job.adopt(folder)}), "evaluate")
    return done


def select_values(
    session: SparkSession,
    warehouse: Warehouse,
    question: Question,
    *,
    options: Options | None = None,
) -> frozenset[str]:
    """Return the values of the one predicate, of one argument, that is asked for.

    Nothing is written, so nobody has to wait for it.

    Raises:
        LimitExceeded: it goes beyond a limit.
        WarehouseDamagedError: a file of the warehouse is damaged.
        SparkJobError: Spark failed.
    """
    (key,) = question.predicates
    with translated("evaluate"):
        tables = _answer(session, warehouse, question, options, None)
        found = _as_texts(tables, key, _broadcast_rows(options)).toArrow()
    return frozenset(found.column("c0").to_pylist())


def _answer(
    session: SparkSession,
    warehouse: Warehouse,
    question: Question,
    options: Options | None,
    statistics: Statistics | None,
) -> Tables:
    from lace.engines.spark.engine import evaluate_programs, evaluate_tables

    _check_values(session, warehouse, question.programs)
    inputs = read_inputs(
        session,
        warehouse,
        question.programs,
        question.public,
        broadcast_rows=_broadcast_rows(options),
    )
    shuffle_partitions(session, _size(inputs))
    if len(question.programs) > 1:
        return evaluate_programs(
            session,
            question.programs,
            inputs.frames,
            inputs.texts,
            counts=inputs.counts,
            predicates=question.predicates,
            options=options,
            statistics=statistics,
            handover=evaluate_columns,
        )
    return evaluate_tables(
        session,
        question.programs[0],
        inputs.frames,
        inputs.texts,
        counts=count_facts(warehouse.manifest) | dict(inputs.counts),
        predicates=question.predicates,
        options=options,
        statistics=statistics,
        handover=evaluate_columns,
    )


def _size(inputs: Inputs) -> int:
    return sum(rows * key.arity * _NUMBER_BYTES for key, rows in inputs.counts.items())


def _check_values(
    session: SparkSession, warehouse: Warehouse, programs: Sequence[CheckedProgram]
) -> None:
    """Refuse values that are longer than the rules' limit, where it is below that of records."""
    allowed = min(each.limits.max_value_bytes for each in programs)
    if allowed >= MAX_LINE_BYTES:
        return
    words = read_dictionary(session, warehouse)
    for row in words.where(f"octet_length(text) > {allowed}").limit(1).collect():
        check_value(row["text"], allowed)


def _write(
    job: Job, tables: Tables, key: PredicateKey, number: int, broadcast_rows: int
) -> tuple[DataFile, ...]:
    """Write the facts of a predicate as texts; returns the files."""
    target = job.folder(f"derived-{number}")
    rows = tables.rows(str(key))
    if not rows:
        return ()
    texts = _as_texts(tables, key, broadcast_rows)
    write_rows(texts.coalesce(1) if rows <= _ONE_FILE_ROWS else texts, target)
    files = job.adopt(target)
    written = sum(file.rows for file in files)
    if written != rows:
        raise EngineError(
            f"{key} has {rows} facts, and {written} were written",
            hint="the dictionary does not go with the facts: see `lace pipeline verify`",
        )
    return files


def _broadcast_rows(options: Options | None) -> int:
    """Return the rows of a table that Spark sends to every executor."""
    return SPARK_BROADCAST_ROWS if options is None else options.broadcast_rows


def _as_texts(tables: Tables, key: PredicateKey, broadcast_rows: int) -> DataFrame:
    """Return the facts of a predicate with the texts of their numbers."""
    from pyspark.sql import functions

    frame = tables[str(key)]
    is_small = tables.rows(str(key)) <= broadcast_rows
    for at in range(key.arity):
        words = tables.texts.frame().selectExpr(f"id AS c{at}", f"text AS t{at}")
        few = functions.broadcast(frame) if is_small else frame
        frame = words.join(few, [f"c{at}"], "inner")
    if not key.arity:
        return frame
    return frame.selectExpr(*(f"t{at} AS c{at}" for at in range(key.arity)))
