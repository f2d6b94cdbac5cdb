"""The facts of a warehouse as an engine takes them: only those tables that rules read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.base.limits import SPARK_BROADCAST_ROWS
from lace.facts.catalogue import RECORD_PREDICATES
from lace.pipeline.tables import dictionary_size, read_dictionary, read_facts
from lace.rules.syntax import Atom, Cardinality, Constant, NegatedAtom, PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.engines.spark.texts import ExtendedTexts
    from lace.facts.lines import Fact
    from lace.pipeline.manifest import Manifest
    from lace.pipeline.warehouse import Warehouse
    from lace.rules.program import CheckedProgram

__all__ = ["Inputs", "count_facts", "field_names", "read_inputs"]

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
    warehouse: Warehouse,
    programs: Sequence[CheckedProgram],
    public: Sequence[Fact] = (),
    *,
    broadcast_rows: int = SPARK_BROADCAST_ROWS,
) -> Inputs:
    """Return the facts that programs read.

    Args:
        session: the Spark session.
        warehouse: what to read.
        programs: the rules.
        public: facts that are not of records; their texts get numbers where they have none.
        broadcast_rows: rows of a table that are sent to every executor for a join.

    Raises:
        WarehouseDamagedError: a file of the warehouse is damaged.
    """
    from lace.engines.spark.texts import ExtendedTexts, TableTexts

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
    from lace.engines.spark.transfer import frame_of_rows

    numbers = texts.constants
    rows = [[numbers[value] for value in fact[1:]] for fact in facts]
    return frame_of_rows(session, rows, len(facts[0]) - 1)
