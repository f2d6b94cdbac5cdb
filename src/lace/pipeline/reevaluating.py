"""Proving derived facts: the same rules, evaluated by the embedded engine over the same records.

An evaluation keeps its rules. They are asked again about the records that had facts at that time,
read from their own bytes, and each predicate's set of facts must have the digest of that in its
table. Neither Spark nor a table of facts has a part in it.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_PROVEN_DIGESTS
from lace.base.text import shorten
from lace.engines.embedded.engine import evaluate
from lace.errors import LimitExceeded
from lace.facts.extract import record_facts
from lace.pipeline.derived import (
    answer_table,
    derived_tables,
    evaluation_table,
    evaluations,
    read_derived,
    read_evaluated,
)
from lace.pipeline.evaluate import Question, identity_of, made_by
from lace.pipeline.manifest import WarehouseDamagedError
from lace.pipeline.questions import read_question
from lace.pipeline.rechecking import fact_set_digest
from lace.pipeline.records import iterate_records
from lace.pipeline.tables import DICTIONARY, RECORDS, facts_table
from lace.pipeline.warehouse import Warehouse
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.facts.lines import Fact
    from lace.pipeline.derived import Evaluated
    from lace.pipeline.manifest import Manifest
    from lace.pipeline.proof import Proof

__all__ = ["prove_derived"]

_UNKNOWN: Final = "it does not tell by which rules it was made; run `lace pipeline evaluate` again"
_OTHER: Final = "it was not made of the rules and facts that are kept"


def prove_derived(warehouse: Warehouse, proof: Proof, most_records: int) -> None:
    """Compare all derived tables with what the embedded engine derives.

    Args:
        warehouse: what to prove.
        proof: takes how many facts were compared, what is wrong, and what was not compared.
        most_records: beyond this many records an evaluation is not compared.

    Raises:
        WarehouseDamagedError: a file of records is damaged.
    """
    known = evaluations(warehouse.manifest)
    told: set[str] = set()
    for name in known:
        try:
            evaluated = read_evaluated(warehouse, name)
            if evaluated is not None:
                told |= {answer_table(name, key) for key in evaluated.counts}
                _prove(warehouse, evaluated, proof, most_records)
        except WarehouseDamagedError as error:
            proof.note(f"derived {name}", error.message)
    for table in derived_tables(warehouse.manifest):
        if table not in told:
            proof.note(table, "no evaluation describes it")


def _prove(warehouse: Warehouse, evaluated: Evaluated, proof: Proof, most_records: int) -> None:
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
        answer = _answer(question, _facts(Warehouse(warehouse.folder, then)))
    except LimitExceeded as error:
        proof.leave(what, error.message)
        return
    for key in keys:
        _compare(warehouse, evaluated, key, answer.get(key, ()), proof)


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


def _facts(warehouse: Warehouse) -> Iterable[Fact]:
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


def _compare(
    warehouse: Warehouse,
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
