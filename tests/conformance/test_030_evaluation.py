"""Requirement by requirement: what follows from rules and facts (030), by each engine."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.engine import budget
from lace.engine.engine import EvaluationSession, evaluate
from lace.errors import EngineError, LaceError, LimitExceeded
from lace.facts.catalogue import BASE_PREDICATES, FactClass
from lace.facts.source import FactSource, MemoryFacts, RecordView, facts_of
from lace.rules.limits import RuleLimits
from lace.rules.profiles import QUERY
from lace.rules.program import CheckedProgram, check_source
from tests.oracle.naive_engine import evaluate_naively

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.facts.lines import Fact

    Rows = Mapping[str, frozenset[tuple[str, ...]]]

PROFILE = QUERY.with_base([("E", 2), ("G", 1)])
RECORDS: list[Fact] = [
    ("Have", "a"),
    ("Have", "b"),
    ("Field", "a", "Group", "0", "u"),
    ("Field", "b", "Group", "0", "u"),
    ("RecordLink", "a", "+Link", "0", "evidence", "b"),
]


def checked(text: str, limits: RuleLimits | None = None) -> CheckedProgram:
    return check_source(text, profile=PROFILE, limits=limits or RuleLimits(), name="rules.lace")


def by_reference(program: CheckedProgram, facts: Iterable[Fact]) -> Rows:
    return {str(key): rows for key, rows in evaluate_naively(program, facts).items()}


def by_embedded(program: CheckedProgram, facts: Iterable[Fact]) -> Rows:
    found = evaluate(program, facts)
    return {str(key): frozenset(found.texts(key)) for key in program.derived}


def by_increments(program: CheckedProgram, facts: Iterable[Fact]) -> Rows:
    session = EvaluationSession()
    session.evaluate(program, program.derived)
    for fact in facts:
        session.change([fact])
    found = session.evaluate(program, program.derived)
    return {str(key): frozenset(found.texts(key)) for key in program.derived}


ENGINES = {"reference": by_reference, "embedded": by_embedded, "increments": by_increments}
every_engine = pytest.mark.parametrize("engine", ENGINES)


@every_engine
@pytest.mark.requirement("030-04", "030-61")
def test_base_facts_are_given_and_derived_facts_follow(engine: str) -> None:
    rules = checked("A(X) :- Have(X).\nB(X) :- A(X), Field(X,'Group',_,'u').")
    result = ENGINES[engine](rules, RECORDS)
    assert result == {"A/1": {("a",), ("b",)}, "B/1": {("a",), ("b",)}}
    assert "Have/1" not in result
    classes = {found.fact_class for found in BASE_PREDICATES.values()}
    assert classes == {FactClass.RECORD, FactClass.ADVERTISEMENT, FactClass.RUNTIME}


@every_engine
@pytest.mark.requirement("030-05", "030-06", "030-11")
def test_what_rules_know_of_time_and_peer_is_given_as_facts(engine: str) -> None:
    rules = checked(
        "Late(P) :- Field(P,'TAI',_,T), TickTAI(N), LexCompare(T,'<',N).\n"
        "Claimed(P) :- Advertised(P,_), not Have(P)."
    )
    facts = [*RECORDS, ("Field", "a", "TAI", "0", "1:0"), ("Advertised", "c", "S")]
    without = ENGINES[engine](rules, facts)
    assert without == {"Late/1": frozenset(), "Claimed/1": {("c",)}}
    with_tick = ENGINES[engine](rules, [*facts, ("TickTAI", "2:0")])
    assert with_tick["Late/1"] == {("a",)}


@pytest.mark.requirement("030-06", "030-64")
def test_an_evaluation_looks_at_nothing_else() -> None:
    """No file, socket, clock or random number: an audit hook would see the first two."""
    rules = checked("A(X) :- Have(X), not Field(X,'Group',_,'v').")
    evaluate(rules, RECORDS)  # modules that are loaded on first use are loaded now
    seen: list[str] = []
    watching = True

    def watch(event: str, arguments: object) -> None:
        if watching and event.split(".")[0] in {"open", "socket", "os", "subprocess", "time"}:
            seen.append(event)

    sys.addaudithook(watch)
    facts = tuple(RECORDS)
    first, second = evaluate(rules, facts), evaluate(rules, facts)
    watching = False
    assert not seen
    assert facts == tuple(RECORDS)
    for key in rules.derived:
        assert first.texts(key) == second.texts(key)


@every_engine
@pytest.mark.requirement("030-09", "030-10", "030-59", "030-91")
def test_through_a_view_other_records_do_not_exist(engine: str) -> None:
    """For positive, negated and counted atoms alike."""
    rules = checked(
        "Seen(P) :- Have(P).\n"
        "Gone(T) :- RecordLink(_,_,_,_,T), not Have(T).\n"
        "Alone(P) :- Have(P), Cardinality(Field(_,'Group',_,'u'),'<','2')."
    )
    view = RecordView(MemoryFacts(RECORDS), lambda record: record == "a")
    names = [key.name for key in rules.required_base]
    assert ENGINES[engine](rules, facts_of(MemoryFacts(RECORDS), names)) == {
        "Seen/1": {("a",), ("b",)},
        "Gone/1": frozenset(),
        "Alone/1": frozenset(),
    }
    assert ENGINES[engine](rules, facts_of(view, names)) == {
        "Seen/1": {("a",)},
        "Gone/1": {("b",)},
        "Alone/1": {("a",)},
    }


def sources() -> dict[str, FactSource]:
    memory = MemoryFacts([*RECORDS, ("TickTAI", "2:0"), *RECORDS])
    return {
        "memory": memory,
        "view of all": RecordView(memory, lambda _: True),
        "view of one": RecordView(memory, lambda record: record == "b"),
        "view of none": RecordView(memory, lambda _: False),
    }


@pytest.mark.parametrize("name", sources())
@pytest.mark.requirement("030-120", "030-121", "030-122", "030-123", "030-124")
def test_a_source_iterates_queries_and_counts_the_same_facts(name: str) -> None:
    source = sources()[name]
    for predicate, found in BASE_PREDICATES.items():
        rows = list(source.iterate(predicate))
        assert len(rows) == len(set(rows)) == source.count(predicate)
        assert list(source.query(predicate)) == rows
        for row in rows:
            for given in range(found.arity + 1):
                expected = {each for each in rows if each[:given] == row[:given]}
                assert set(source.query(predicate, *row[:given])) == expected
    assert source.count("TickTAI") == 1


@pytest.mark.requirement("030-65", "030-126")
def test_a_view_of_the_past_stays() -> None:
    """What was answered is of its moment, whatever comes later."""
    rules = checked("A(X) :- G(X), not E(X,X).\nB(X,Y) :- A(X), A(Y), Cardinality(A(_),'>','1').")
    session = EvaluationSession()
    session.change([("G", "1")])
    before = session.evaluate(rules, rules.derived).copy()
    session.change([("G", "2"), ("E", "1", "1")])
    after = session.evaluate(rules, rules.derived)
    a, b = rules.derived
    assert (before.texts(a), before.texts(b)) == ([("1",)], [])
    assert (after.texts(a), after.texts(b)) == ([("2",)], [])


# Limits


@pytest.mark.requirement("030-01", "030-02", "030-03")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("e\u0301", "is not in NFC"),
        ("\ud800", "is not UTF-8"),
        ("x" * 1025, "has 1025 bytes"),
        ("é" * 600, "has 1200 bytes"),
        (5, "is text, not int"),
        (None, "is text, not NoneType"),
        (["x"], "is text, not list"),
        (b"x", "is text, not bytes"),
    ],
)
def test_values_are_texts_in_nfc_and_not_too_long(value: object, words: str) -> None:
    rules = checked("A(X) :- G(X).")
    with pytest.raises(LaceError, match=words):
        evaluate(rules, [("G", "fine"), ("G", value)])  # type: ignore[list-item] # on purpose
    session = EvaluationSession()
    with pytest.raises(LaceError, match=words):
        session.change([("G", value)])  # type: ignore[list-item] # on purpose


@pytest.mark.parametrize("fact", [5, (), (5, "x"), None])
def test_what_is_no_fact_is_refused(fact: object) -> None:
    with pytest.raises(EngineError, match=r"a fact is a tuple|no name of a predicate"):
        evaluate(checked("A(X) :- G(X)."), [fact])  # type: ignore[list-item] # on purpose


def limit(text: str, facts: list[Fact], **limits: int) -> LimitExceeded:
    rules = checked(text, replace(RuleLimits(), **limits))  # type: ignore[arg-type] # ints only
    with pytest.raises(LimitExceeded) as caught:
        evaluate(rules, facts)
    return caught.value


def test_each_limit_names_rule_limit_and_value() -> None:
    nodes: list[Fact] = [("G", str(number)) for number in range(30)]
    pairs = "A(X) :- G(X).\nB(X,Y) :- A(X), A(Y)."
    error = limit(pairs, nodes, max_derived_facts=500)
    assert (error.limit, error.allowed, error.observed) == ("max_derived_facts", 500, 900)
    assert str(error).startswith("rules.lace:2:1: rule 2 (U.")
    assert "would make 900 facts of B/2 [G18]" in error.log_line()
    error = limit(pairs, nodes, max_work=500)
    assert (error.limit, error.allowed) == ("max_work", 500)
    assert (error.observed or 0) > 900
    assert error.rule == "X3"
    assert "--set max_work=N" in str(error)
    chain: list[Fact] = [("E", str(number), str(number + 1)) for number in range(40)]
    closure = "R(X,Y) :- E(X,Y).\nR(X,Z) :- R(X,Y), E(Y,Z)."
    error = limit(closure, chain, max_iterations=10)
    assert (error.limit, error.allowed, error.observed) == ("max_iterations", 10, 11)
    assert "still makes new R/2 facts after 10 passes" in str(error)
    assert limit(closure, chain, max_base_facts=39).observed == 40
    ticks: list[Fact] = [("Advertised", str(number), "s") for number in range(9)]
    assert limit(closure, ticks, max_runtime_facts=8).limit == "max_runtime_facts"
    evaluate(checked(closure, RuleLimits(max_base_facts=0)), ticks)  # counted apart


def test_statistics_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_MOST_RUNS", 5)
    chain: list[Fact] = [("E", str(number), str(number + 1)) for number in range(40)]
    rules = checked("R(X,Y) :- E(X,Y).\nR(X,Z) :- R(X,Y), E(Y,Z).")
    statistics = evaluate(rules, chain).statistics
    assert statistics.applications == 41
    assert len(statistics.runs) == 6
    assert sum(run.new for run in statistics.runs) == 40 * 41 // 2
    assert sum(run.visited for run in statistics.runs) == statistics.work


def test_the_same_run_stops_at_the_same_place() -> None:
    facts: list[Fact] = [("E", str(n), str(n * 7 % 50)) for n in range(50)]
    closure = "R(X,Y) :- E(X,Y).\nR(X,Z) :- R(X,Y), R(Y,Z)."
    seen = {str(limit(closure, facts, max_work=300)) for _ in range(3)}
    assert len(seen) == 1


def test_a_stopped_session_answers_rightly_later() -> None:
    rules = checked("R(X,Y) :- E(X,Y).\nR(X,Z) :- R(X,Y), E(Y,Z).", RuleLimits(max_iterations=5))
    session = EvaluationSession()
    session.change([("E", "0", "1")])
    session.evaluate(rules)
    session.change([("E", str(number), str(number + 1)) for number in range(1, 9)])
    with pytest.raises(LimitExceeded):
        session.evaluate(rules)
    session.change([], [("E", str(number), str(number + 1)) for number in range(3, 9)])
    (key,) = rules.derived
    assert len(session.evaluate(rules).texts(key)) == 6
