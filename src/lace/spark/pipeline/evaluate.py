"""The stage `evaluate`: rules over the facts of a warehouse, to tables of derived facts.

A question is a lacegram, or the programs of an exchange with what the peer has said. The same
question about the same facts is answered once: the answer has an identity made of both.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.base.limits import MAX_LINE_BYTES, MAX_VALUE_SETTING, SPARK_BROADCAST_ROWS
from lace.base.text import shorten
from lace.errors import EngineError, LaceError, Place, UsageError
from lace.exchange.capabilities import relabelled
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.lines import check_value, format_fact, parse_fact
from lace.policy.exposure import check_public, split_local
from lace.policy.schema import ALL_FIELDS, Offer
from lace.record.paths import parse_address
from lace.rules.canonical import parse_canonical, rule_id
from lace.rules.limits import UNLIMITED, RuleLimits
from lace.rules.profiles import MAY_REQUEST, MAY_SEND, Profile
from lace.rules.program import Written, assemble_program
from lace.rules.syntax import Atom, Cardinality, Constant, NegatedAtom, PredicateKey
from lace.spark.engine.local import evaluate_columns
from lace.spark.engine.session import shuffle_partitions
from lace.spark.pipeline.derived import (
    ANOTHER,
    Evaluated,
    answer_table,
    check_answer,
    evaluation_table,
    name_of_digest,
    name_of_facts,
    question_table,
    read_evaluated,
    register,
    registered_schema,
    without_derived,
    write_evaluated,
)
from lace.spark.pipeline.records import find_hashes, held_hashes
from lace.spark.pipeline.tables import (
    dictionary_size,
    read_dictionary,
    read_facts,
    read_rows,
    table_damage,
    write_rows,
    write_table,
)
from lace.spark.pipeline.warehouse import translate_spark_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.engine.budget import Statistics
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.rules.program import CheckedProgram
    from lace.spark.engine.context import ExtendedTexts
    from lace.spark.engine.engine import Tables
    from lace.spark.engine.session import Options
    from lace.spark.pipeline.warehouse import DataFile, Job, Manifest, WarehouseFolder


# -- The facts of a warehouse as an engine takes them: only those tables that rules read.

_FIELD: Final = PredicateKey("Field", 4)
_NAME_AT: Final = 1


@dataclass(frozen=True, slots=True)
class Inputs:
    """Base facts by predicate, how many there are at most, and the texts of their numbers."""

    frames: Mapping[PredicateKey, DataFrame]
    counts: Mapping[PredicateKey, int]
    texts: ExtendedTexts


def count_facts(manifest: Manifest) -> dict[PredicateKey, int]:
    """Return how many facts of each record predicate there are."""
    counts = {
        PredicateKey(each.name, each.arity): manifest.rows(f"facts/{each.name}")
        for each in RECORD_PREDICATES.values()
    }
    counts[_FIELD] = sum(
        manifest.rows(table) for table in manifest.tables if table.startswith("facts/Field/")
    )
    return counts


def field_names(programs: Iterable[CheckedProgram]) -> frozenset[str] | None:
    """Return the Names of Field that rules ask for; None when they may ask for any."""
    found: set[str] = set()
    for program in programs:
        for atom in _body_atoms(program):
            if atom.key == _FIELD:
                name = atom.terms[_NAME_AT]
                if not isinstance(name, Constant):
                    return None
                found.add(name.value)
    return frozenset(found)


def _body_atoms(program: CheckedProgram) -> Iterator[Atom]:
    for rule in program.rules:
        for part in rule.body:
            if isinstance(part, Atom):
                yield part
            elif isinstance(part, (NegatedAtom, Cardinality)):
                yield part.atom


def read_inputs(
    session: SparkSession,
    warehouse: WarehouseFolder,
    programs: Sequence[CheckedProgram],
    public: Sequence[Fact] = (),
    *,
    broadcast_rows: int = SPARK_BROADCAST_ROWS,
) -> Inputs:
    """Return the facts that programs read."""
    from lace.spark.engine.context import ExtendedTexts, TableTexts

    table = TableTexts(
        session,
        read_dictionary(session, warehouse),
        dictionary_size(warehouse),
        broadcast_rows=broadcast_rows,
    )
    texts = ExtendedTexts(session, table, sorted({value for fact in public for value in fact[1:]}))
    needed = {key for program in programs for key in program.required_base}
    counts = {key: rows for key, rows in count_facts(warehouse.manifest).items() if key in needed}
    names = field_names(programs)
    frames = {
        key: read_facts(session, warehouse, key.name, names if key == _FIELD else None)
        for key in counts
    }
    for key, facts in _by_predicate(public).items():
        if key in needed:
            frames[key] = _numbered(session, facts, texts)
            counts[key] = len(facts)
    return Inputs(frames, counts, texts)


def _by_predicate(facts: Iterable[Fact]) -> dict[PredicateKey, list[Fact]]:
    found: dict[PredicateKey, list[Fact]] = {}
    for fact in dict.fromkeys(facts):
        found.setdefault(PredicateKey(fact[0], len(fact) - 1), []).append(fact)
    return found


def _numbered(session: SparkSession, facts: Sequence[Fact], texts: ExtendedTexts) -> DataFrame:
    """Return facts of one predicate as a table of numbers."""
    from lace.spark.engine.relations import frame_of_rows

    numbers = texts.constants
    rows = [[numbers[value] for value in fact[1:]] for fact in facts]
    return frame_of_rows(session, rows, len(facts[0]) - 1)


# -- Questions as tables: the rules and public facts that an evaluation was made of, to ask again.
#
# One row a part: of each program its limits, the predicates that it reads and its rules in
# canonical text; and the facts that are not of records. A reader trusts none of it: rules
# are parsed and checked again, and together they must have the identity of the evaluation.

_LIMITS, _BASE, _RULE, _FACT = "limits", "base", "rule", "fact"
_PUBLIC: Final = -1
"""The number of the program that facts have, which are of none."""
_MOST_ROWS: Final = 2**25
_MOST_PROGRAMS: Final = 16
_PARSING: Final = replace(
    UNLIMITED, max_rules=2**20, max_rules_bytes=2**28, max_rule_line_bytes=2**25
)
"""Generated rules are longer than those that they were made of, which limits are for."""


def question_rows(
    programs: Sequence[CheckedProgram], public: Iterable[Fact]
) -> Iterator[tuple[int, str, str]]:
    """Yield the rows of the table of a question."""
    for number, program in enumerate(programs):
        yield number, _LIMITS, json.dumps(asdict(program.limits))
        yield number, _BASE, json.dumps([[key.name, key.arity] for key in program.required_base])
        for line in program.lines:
            yield number, _RULE, line
    for fact in public:
        yield _PUBLIC, _FACT, format_fact(fact)


def read_question(
    warehouse: WarehouseFolder, name: str
) -> tuple[tuple[CheckedProgram, ...], tuple[Fact, ...]] | None:
    """Return the programs and public facts of an evaluation; None where it does not tell."""
    parts: dict[int, dict[str, list[str]]] = {}
    table = question_table(name)
    with table_damage(table, ANOTHER):
        for row in read_rows(warehouse, table, most=_MOST_ROWS):
            program = parts.setdefault(int(row["program"]), {})
            program.setdefault(str(row["part"]), []).append(str(row["text"]))
        public = parts.pop(_PUBLIC, {}).get(_FACT, [])
        if sorted(parts) != list(range(len(parts))) or len(parts) > _MOST_PROGRAMS:
            raise ValueError("its programs are not numbered in turn")
        programs = tuple(_program(parts[number]) for number in range(len(parts)))
        facts = tuple(
            parse_fact(line.encode(), max_value_bytes=MAX_VALUE_SETTING) for line in public
        )
    return (programs, facts) if programs else None


def _program(found: Mapping[str, list[str]]) -> CheckedProgram:
    """Return the program of its parts, as rules that were generated."""
    (limits,), (base,) = found[_LIMITS], found[_BASE]
    lines = found.get(_RULE, [])
    rules = parse_canonical("\n".join(lines).encode(), limits=_PARSING).rules if lines else ()
    return assemble_program(
        rules,
        profile=Profile(name="kept", base=frozenset(_keys(json.loads(base)))),
        limits=RuleLimits(**json.loads(limits)),
        written=[
            Written(
                number=number,
                id=rule_id(line),
                text=line,
                part="kept",
                place=Place(line=number),
                annotations={},
            )
            for number, line in enumerate(lines, 1)
        ],
    )


def _keys(found: list[Any]) -> Iterator[PredicateKey]:
    for name, arity in found:
        yield PredicateKey(str(name), int(arity))


ANY_OFFER: Final = Offer(ALL_FIELDS)
"""An offer of all fields."""
_FORMAT: Final = 3
"""Changes whenever the tables of an answer would come out in another form."""
_NUMBER_BYTES: Final = 8
_ONE_FILE_ROWS: Final = 200_000
"""Facts of a predicate that are not worth more than one file."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: checked programs, each after those that it reads, and what is wanted.

    `exchange` is the policy that they are the programs of, if they are those of an exchange;
    `offer` is what this side offers in it.
    """

    programs: tuple[CheckedProgram, ...]
    predicates: tuple[PredicateKey, ...]
    public: tuple[Fact, ...] = ()
    exchange: Executable | None = None
    offer: Offer = ANY_OFFER

    def __post_init__(self) -> None:
        if not self.predicates:
            raise UsageError("the rules define nothing", hint="write at least one rule")


def exchange_question(
    executable: Executable, public: Iterable[Fact], offer: Offer = ANY_OFFER
) -> Question:
    """Return the question what an exchange may send and request."""
    facts = tuple(sorted(set(relabelled(public, executable))))
    check_public({(fact[0], len(fact) - 1) for fact in split_local(facts)[0]})
    allowed = min(each.limits.max_value_bytes for each in executable.programs)
    for value in {value for fact in facts for value in fact[1:]}:
        check_value(value, allowed)
    return Question(executable.programs, (MAY_SEND, MAY_REQUEST), facts, executable, offer)


def identity_of(manifest: Manifest, question: Question) -> str:
    """Return what tells a question and the facts that it is about from all others."""
    programs = [[list(each.lines), asdict(each.limits)] for each in question.programs]
    return name_of_digest([_FORMAT, name_of_facts(manifest), programs, question.public])


def made_by() -> str:
    """Return which Lace this is, and in which way it names the identity of answers."""
    how = name_of_digest([_FORMAT, [each.name for each in fields(RuleLimits)]])
    return f"Lace {version('lace')} ({how[:8]})"


def find_answer(warehouse: WarehouseFolder, name: str, question: Question) -> Evaluated | None:
    """Return the answer that a warehouse has under a name, if it is the one to this question."""
    check_answer(name, question.predicates)
    found = read_evaluated(warehouse, name)
    if found is None or found.identity != identity_of(warehouse.manifest, question):
        return None
    if question.exchange is not None:
        schema = registered_schema(question.exchange, question.offer.schema)
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
    """Answer a question, and keep the answer under a name, in place of what was there."""
    known = find_answer(job.warehouse, name, question)
    if known is not None:
        return known
    manifest = job.warehouse.manifest
    with translate_spark_errors("evaluate"):
        if options is not None and options.cuts == "reliable":
            session.sparkContext.setCheckpointDir(str(job.scratch("checkpoints")))
        tables = _answer(session, job.warehouse, question, options, statistics)
        few = _broadcast_rows(options)
        made = {
            key: _write(job, tables, key, at, few) for at, key in enumerate(question.predicates)
        }
    counts = {key: tables.rows(str(key)) for key in question.predicates}
    exchange = question.exchange
    done = Evaluated(
        name,
        identity_of(manifest, question),
        MappingProxyType(counts),
        fresh=True,
        registration=None
        if exchange is None
        else register(manifest, exchange, question.public, question.offer.schema),
        made_by=made_by(),
    )
    asked = question_table(name)
    added = {answer_table(name, key): files for key, files in made.items()}
    added[asked] = write_table(job, asked, question_rows(question.programs, question.public))
    added[evaluation_table(name)] = write_evaluated(job, done)
    job.commit(without_derived(manifest, name).with_added(added), "evaluate")
    return done


def select_values(
    session: SparkSession,
    warehouse: WarehouseFolder,
    question: Question,
    *,
    options: Options | None = None,
) -> frozenset[str]:
    """Return the values of the one predicate, of one argument, that is asked for.

    Nothing is written, so nobody has to wait for it.
    """
    (key,) = question.predicates
    with translate_spark_errors("evaluate"):
        tables = _answer(session, warehouse, question, options, None)
        found = _as_texts(tables, key, _broadcast_rows(options)).toArrow()
    return frozenset(found.column("c0").to_pylist())


def _answer(
    session: SparkSession,
    warehouse: WarehouseFolder,
    question: Question,
    options: Options | None,
    statistics: Statistics | None,
) -> Tables:
    from lace.spark.engine.engine import evaluate_programs, evaluate_tables

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
    session: SparkSession, warehouse: WarehouseFolder, programs: Sequence[CheckedProgram]
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


# -- Choosing records of a warehouse: those that are named, or those that rules choose.


class NotHeldError(LaceError):
    """A record that is not in the warehouse."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The hashes of records that rules choose, and how many values are no record here."""

    hashes: frozenset[str]
    strangers: int


def find_named(warehouse: WarehouseFolder, texts: Sequence[str]) -> frozenset[str]:
    """Return the hashes of the records that texts name, the newest of a coordinate."""
    found = find_hashes(warehouse, [parse_address(text) for text in texts])
    missing = [text for text, each in zip(texts, found, strict=True) if each is None]
    if missing:
        names = ", ".join(shorten(text, 100) for text in missing)
        raise NotHeldError(f"not in this warehouse: {names}")
    return frozenset(each for each in found if each is not None)


def check_selection(question: Question) -> Question:
    """Return a question that chooses records: of one predicate, with one argument."""
    (key,) = question.predicates
    if key.arity != 1:
        raise UsageError(
            f"{key} has {key.arity} arguments, and records are chosen by one",
            hint="name a predicate with one argument",
        )
    return question


def choose_records(
    session: SparkSession, warehouse: WarehouseFolder, question: Question, options: Options
) -> Chosen:
    """Return the records that a question chooses; nothing is written."""
    values = select_values(session, warehouse, question, options=replace(options, cuts="local"))
    found = held_hashes(warehouse, values)
    return Chosen(found, len(values) - len(found))
