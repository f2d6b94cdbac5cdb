"""One answer: Spark, the embedded engine and the naive reference, on every path that Spark has.

`CLUSTER` keeps all on Spark, `HANDED` hands recursive fixed points to the embedded engine and
keeps the rest, and with neither a small program is handed over as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import lace
from benchmarks.workload_facts import candidates, columns_of, edges, text_facts
from benchmarks.workloads import GOALS, W4, describe
from benchmarks.workloads import PROGRAMS as WORKLOADS
from lace.algebra.lower import lower_program
from lace.engine.budget import Statistics
from lace.engine.engine import evaluate
from lace.engine.factbase import FactBase
from lace.engine.load import group_facts
from lace.errors import LimitExceeded
from lace.facts.lines import format_fact, parse_fact
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import exposure_of
from lace.query.distributed import evaluate_facts
from lace.query.evaluate import find_predicates
from lace.rules.builtins import int_compare, lex_compare, text_shape
from lace.rules.limits import OWN_LIMITS
from lace.rules.profiles import MAY_REQUEST, MAY_SEND, QUERY
from lace.rules.program import Lacegram, check_source
from lace.rules.syntax import (
    OPERATORS,
    Constant,
    IntCompare,
    LexCompare,
    TextShape,
    Variable,
)
from lace.spark.engine.local import evaluate_columns
from tests.cli.running import call
from tests.differential.test_engines import WORLDS, checked
from tests.differential.test_programs import PROGRAMS
from tests.oracle.naive_engine import evaluate_naively
from tests.profiles import IS_DEEP, examples
from tests.property.policies import VIEWER, compiled
from tests.store.samples import plex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.engine.load import GroupedFacts
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Test
    from lace.spark.engine.session import Options
    from tests.differential.test_engines import World

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark_session")]

PARTS = 4
"""So many tests have the programs among them, for workers to share."""
EDGES: list[Fact] = [("Edge", "a", "b"), ("Edge", "b", "c"), ("Edge", "c", "a"), ("Edge", "c", "d")]
REACH = "Reach(X,Y) :- Edge(X,Y).\nReach(X,Z) :- Reach(X,Y), Edge(Y,Z).\n"


def options(**values: Any) -> Options:
    from lace.spark.engine.session import Options

    return Options(**{"small_rows": 0, **values})


def on_cluster() -> Options:
    """All stays on Spark."""
    return options(handover_rows=0)


def rules_for(text: str, facts: list[Fact], **limits: Any) -> CheckedProgram:
    profile = QUERY.with_base({(fact[0], len(fact) - 1) for fact in facts})
    return check_source(text, profile=profile, limits=replace(OWN_LIMITS, **limits))


def lines_of(
    program: CheckedProgram, facts: list[Fact] | GroupedFacts, how: Options | None
) -> list[str]:
    answer = evaluate_facts(program, facts, predicates=program.derived, options=how)
    for key in program.derived:
        assert answer.count(key) == len(set(answer.texts(key)))
    return sorted(
        format_fact((key.name, *row)) for key in program.derived for row in answer.texts(key)
    )


def permissions(policy: Executable, facts: list[Fact]) -> tuple[frozenset[str], frozenset[str]]:
    base = FactBase(max_value_bytes=1024)
    public = [fact for fact in facts if fact[0] in ("Peer", "Advertised", "AdvertisedField")]
    base.change([fact for fact in facts if fact not in public])
    enforcement = Enforcement(policy, base)
    enforcement.set_public(public)
    found = enforcement.evaluate()
    return found.may_send, found.may_request


def lines_embedded(program: CheckedProgram, facts: list[Fact] | GroupedFacts) -> list[str]:
    made = evaluate(program, facts, predicates=program.derived)
    return sorted(
        format_fact((key.name, *row)) for key in program.derived for row in made.texts(key)
    )


@pytest.mark.requirement(
    "030-34", "030-35", "030-36", "030-59", "030-61", "030-62", "030-86", "030-87"
)
@pytest.mark.parametrize(
    ("path", "part"),
    [
        pytest.param(path, part, marks=[pytest.mark.exhaustive] * (path == "cluster" and part > 0))
        for path in ("cluster", "handed", "whole")
        for part in range(PARTS)
    ],
)
def test_programs(path: str, part: int) -> None:
    how = {"cluster": on_cluster(), "handed": options(), "whole": None}[path]
    for number, program in list(enumerate(PROGRAMS))[part::PARTS]:
        if path == "handed" and not IS_DEEP and number % 5:
            continue  # what is not handed over is the same as on the cluster
        facts = [parse_fact(line.encode()) for line in program["facts"]]
        profile = QUERY.with_base({(fact[0], len(fact) - 1) for fact in facts})
        rules = Lacegram.parse(program["rules"], profile=profile).program
        assert lines_of(rules, facts, how) == sorted(program["derived"]), number


@pytest.mark.property
@pytest.mark.requirement("030-57", "030-63", "030-64", "030-65")
@settings(
    max_examples=examples(20),
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(WORLDS)
def test_generated_programs(world: World) -> None:
    program, facts = world
    rules = checked(program)
    expected = evaluate_naively(rules, facts)
    lines = sorted(format_fact((key.name, *row)) for key in rules.derived for row in expected[key])
    assert lines_embedded(rules, facts) == lines
    assert lines_of(rules, facts, on_cluster()) == lines
    if IS_DEEP or len(facts) % 3 == 0:
        assert lines_of(rules, facts, options(broadcast_rows=0, handover_rows=8)) == lines


@pytest.mark.requirement("030-67", "030-71", "030-74", "030-77")
def test_built_ins_mean_what_the_reference_says(spark_session: Any) -> None:
    from pyspark.sql import functions as F

    from lace.spark.engine.compile import test_column as column_of

    texts = ["", "0", "-0", "00", "7", "-7", "007", "9" * 40, "-" + "9" * 40, "9" * 39 + "8", "--1"]
    texts += ["1\u0661", "1 ", "+1", "a", "A", "é", "z", "\uffee", "\U0001f600", "links/a.msg"]
    texts += ["links/.msg", "links/a/.msg", "links/", "a]b", "a^b", "a\\b", "a-b", "a.b.c"]
    pairs = [(left, right) for left in texts for right in texts]
    frame = spark_session.createDataFrame(pairs, "x string, y string")
    x, y = Variable("X"), Variable("Y")
    tests: list[Test] = []
    tests += [IntCompare(x, sign, y) for sign in OPERATORS]
    tests += [LexCompare(x, sign, y) for sign in OPERATORS]
    for delimiters in ("", "./", "]^\\-", "\U0001f600é"):
        tests += [
            TextShape(x, Constant(start), Constant(delimiters), y) for start in ("", "links/", "a")
        ]
        tests += [TextShape(x, y, Constant(delimiters), Constant(end)) for end in ("", "b", "msg")]
    columns = [
        column_of(test, lambda name: F.col(name.lower())).alias(f"t{at}")
        for at, test in enumerate(tests)
    ]
    rows = frame.select("x", "y", *columns).collect()
    assert len(rows) == len(pairs)
    for row in rows:
        values = {"X": row["x"], "Y": row["y"]}
        for at, test in enumerate(tests):
            parts = [values.get(str(t), getattr(t, "value", "")) for t in test.terms]
            match test:
                case TextShape():
                    expected = text_shape(parts[0], parts[1], test.delimiters.value, parts[2])
                case IntCompare():
                    expected = int_compare(parts[0], test.operator, parts[1])
                case LexCompare():
                    expected = lex_compare(parts[0], test.operator, parts[1])
                case _:
                    raise AssertionError(test)
            assert row[f"t{at}"] is expected, (test, values)


ODD: dict[str, tuple[str, list[Fact]]] = {
    "no facts at all": ("A(X) :- E(X), not F(X).\nB() :- not A('x').\n", []),
    "without arguments": (
        "A() :- G().\nB() :- not G().\nC(X) :- E(X), G().\nD() :- A(), Cardinality(G(),'>','0').\n",
        [("G",), ("E", "x"), ("E", "y")],
    ),
    "what only rules have": (
        "A('new',X) :- E(X).\nB(Y) :- A(_,Y), Y != 'x'.\nC(N) :- A(N,_).\nD('new') :- C('new').\n",
        [("E", "x"), ("E", "y")],
    ),
    "variables that Spark would not tell apart": (
        "A(Ab,AB) :- E(Ab), E(AB), Ab != AB.\n",
        [("E", "x"), ("E", "y")],
    ),
    "numbers of forty digits": (
        "A(X,Y) :- E(X), E(Y), IntCompare(X,'<',Y).\nB(X) :- E(X), IntCompare(X,'>=','"
        + "9" * 40
        + "').\n",
        [("E", "9" * 40), ("E", "9" * 39 + "8"), ("E", "-" + "9" * 40), ("E", "1" + "0" * 40)],
    ),
    "order as bytes": (
        "A(X,Y) :- E(X), E(Y), LexCompare(X,'<',Y).\n",
        [("E", "z"), ("E", "é"), ("E", "\uffee"), ("E", "\U0001f600"), ("E", "Z")],
    ),
    "counts": (
        "A(X) :- E(X,_), Cardinality(E(X,_),'>=','2').\n"
        "B(X) :- E(X,_), Cardinality(E(_,X),'<','1').\n"
        "P(X,Y) :- E(X,Z), E(Z,Y).\nC(X) :- E(X,_), Cardinality(P(X,_),'>','1').\n"
        "D(X) :- E(X,_), Cardinality(E(X,X),'<','1'), "
        "Cardinality(E(_,_),'<','99999999999999999999').\n",
        [("E", *pair) for pair in ("ab", "ac", "bc", "ca", "cc", "ad")],
    ),
    "the newest, in an order with ties": (
        W4.replace("'100'", "'3'"),
        [("Candidate", f"r{at}", f"{at // 2 % 4}") for at in range(12)],
    ),
    "an item with two places in an order": (
        W4.replace("'100'", "'3'"),
        [("Candidate", f"r{at % 5}", f"{at % 3}") for at in range(12)],
    ),
    "an order of numbers, some of which are none": (
        W4.replace("LexCompare", "IntCompare").replace("'<','100'", "'<=','1'"),
        [
            ("Candidate", str(at % 7), text)
            for at, text in enumerate(["1", "x", "01", "-5", "9" * 40])
        ],
    ),
    "counts inside recursion": (
        "P(X,Y) :- E(X,Y).\nQ(X,Y) :- E(X,Z), E(Z,Y).\n"
        "P(X,Y) :- P(X,Z), E(Z,Y), Cardinality(Q(Z,_),'>','0'), not F(Y), "
        "Cardinality(E(Y,_),'>','0').\n",
        [*(("E", *pair) for pair in ("ab", "bc", "cd", "da", "be", "cf")), ("F", "d")],
    ),
    "predicates that need each other": (
        "Odd(X,Y) :- E(X,Y).\nEven(X,Y) :- Odd(X,Z), E(Z,Y).\nOdd(X,Y) :- Even(X,Z), E(Z,Y).\n"
        "Some() :- Even(X,X).\nSome() :- Odd(X,X), Some().\n"
        "Both(X) :- Odd(X,X), Even(X,X), Some().\n",
        [("E", *pair) for pair in ("ab", "bc", "ca", "ad", "de")],
    ),
    "recursion through two of its own": (
        "P(X,Y) :- E(X,Y).\nP(X,Z) :- P(X,Y), P(Y,Z).\n",
        [("E", str(at), str(at + 1)) for at in range(20)],
    ),
    "combinations": (
        "A(X,Y) :- E(X), F(Y).\nB(X) :- E(X), F(Y), G(Z), Y != Z.\nC() :- E(X), F(X).\n",
        [("E", "1"), ("E", "2"), ("F", "3"), ("G", "3"), ("G", "4")],
    ),
}


@pytest.mark.requirement("030-36", "030-57", "030-62", "030-67", "030-71", "030-86", "030-87")
@pytest.mark.parametrize("name", ODD)
def test_odd_programs(name: str) -> None:
    text, facts = ODD[name]
    known = [("E",), ("F",)] if not facts else []
    profile = QUERY.with_base({(f[0], len(f) - 1) for f in facts} | {(f[0], 1) for f in known})
    rules = check_source(text, profile=profile)
    expected = evaluate_naively(rules, facts)
    lines = sorted(format_fact((key.name, *row)) for key in rules.derived for row in expected[key])
    assert lines_of(rules, facts, on_cluster()) == lines
    if any(step.recursive for step in lower_program(rules).steps):
        assert lines_of(rules, facts, options()) == lines


def test_tables_of_rounds_are_put_together() -> None:
    facts: list[Fact] = [("Edge", str(at), str(at + 1)) for at in range(24)]
    rules = rules_for("R(X) :- Edge('0',X).\nR(Y) :- R(X), Edge(X,Y).\n", facts)
    statistics = Statistics()
    answer = evaluate_facts(rules, facts, statistics=statistics, options=on_cluster())
    assert {row for key in rules.derived for row in answer.texts(key)} == {
        (str(at + 1),) for at in range(24)
    }
    assert max(run.iteration for run in statistics.runs) == 25


@pytest.mark.requirement("040-74", "020-73", "040-71", "040-72")
@pytest.mark.parametrize("path", ["cluster", "whole"])
def test_policies(spark_session: Any, path: str) -> None:
    """What may be sent and requested: four programs, each over what it may read."""
    from lace.spark.engine.context import TableTexts
    from lace.spark.engine.engine import evaluate_programs
    from lace.spark.engine.relations import collect_columns, frame_of, text_frame

    records = [f"S.{letter * 43}.H3" for letter in "abcdef"]
    facts: list[Fact] = [("Have", record) for record in records[:4]]
    facts += [("Field", record, "App", "0", "xy"[at % 2]) for at, record in enumerate(records[:4])]
    facts += [("Field", records[0], "Group", "0", "open"), ("Field", records[2], "Group", "0", "x")]
    facts += [("RecordLink", records[2], "+Link", "0", "e", records[0])]
    facts += [("Advertised", record, VIEWER) for record in records[3:]]
    facts += [("AdvertisedField", records[4], VIEWER, "App", "0", "x"), ("Peer", VIEWER)]
    shown = "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'x').\n"
    shown += "AllowQueryRecord(V,P) :- AllowQueryRecord(V,Q), RecordLink(Q,_,_,_,P).\n"
    ours = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    theirs = "SelectHave(P) :- Field(P,'Group',_,_), not Field(P,'Group',_,'none').\n"
    theirs += "SelectAdvertised(P,S) :- AdvertisedField(P,S,'App',_,'x').\n"
    policy = compiled(ours, theirs, [exposure_of(shown, anyone=True)])
    base = FactBase(max_value_bytes=1024)
    base.change(facts)
    inputs = {
        key: frame_of(spark_session, relation.columns(), relation.rows)
        for key, relation in base.relations.items()
    }
    numbers = np.arange(len(base.dictionary))
    table = text_frame(spark_session, numbers, base.dictionary.texts(numbers.astype(np.int32)))
    found = evaluate_programs(
        spark_session,
        policy.programs,
        inputs,
        TableTexts(spark_session, table),
        predicates=[MAY_SEND, MAY_REQUEST],
        options=on_cluster() if path == "cluster" else None,
        handover=evaluate_columns,
    )
    expected = permissions(policy, facts)
    assert all(expected)
    made = collect_columns({key: each.frame for key, each in found.relations.items()})
    for key, texts in zip((MAY_SEND, MAY_REQUEST), expected, strict=True):
        (column,), rows = made[key]
        assert (frozenset(found.texts.of(column)), rows) == (texts, len(texts))


@pytest.fixture(scope="module")
def many_facts() -> Iterator[GroupedFacts]:
    """The facts of 100,000 records, made and grouped once for all workloads."""
    facts = group_facts(text_facts(columns_of(describe(100_000))))
    yield facts
    facts.clear()  # the session that a worker ends with is much longer than this module


@pytest.mark.parametrize(
    "workload",
    [
        "W1",
        pytest.param("W2", marks=pytest.mark.exhaustive),
        pytest.param("W3", marks=pytest.mark.exhaustive),
    ],
)
def test_workloads(workload: str, many_facts: GroupedFacts) -> None:
    rules = check_source(WORKLOADS[workload], profile=QUERY)
    lines = lines_embedded(rules, many_facts)
    assert lines
    assert lines_of(rules, many_facts, options()) == lines


def facts_for(workload: str, size: int) -> GroupedFacts:
    """Return the facts of a workload of so many records, candidates or nodes."""
    if workload == "TC":
        return group_facts(edges(size))
    if workload == "W4":
        return group_facts(candidates(size))
    return group_facts(text_facts(columns_of(describe(size))))


def rules_of(workload: str) -> CheckedProgram:
    return check_source(
        WORKLOADS[workload], profile=QUERY.with_base({("Edge", 2), ("Candidate", 2)})
    )


# The reference compares every fact with every other: a thousand records take it forty seconds.
@pytest.mark.parametrize(
    ("workload", "size"),
    [("W1", 400), ("W2", 400), ("W3", 400), ("W4", 110), ("W5", 60), ("TC", 40)],
)
def test_small_workloads_on_every_path(workload: str, size: int) -> None:
    facts, rules = facts_for(workload, size), rules_of(workload)
    made = evaluate_naively(rules, facts.facts())
    (goal,) = find_predicates(rules, [GOALS[workload]])
    assert made[goal]
    lines = sorted(format_fact((key.name, *row)) for key in rules.derived for row in made[key])
    assert lines_embedded(rules, facts) == lines
    for how in (on_cluster(), options()):
        assert lines_of(rules, facts, how) == lines


@pytest.mark.parametrize(("workload", "size"), [("W4", 100_000), ("W5", 3_000), ("TC", 300)])
def test_goals_of_workloads_on_both_paths(
    monkeypatch: pytest.MonkeyPatch, workload: str, size: int
) -> None:
    """What only the goal needs is made: of W4 a rank, and not all pairs."""
    handed: list[CheckedProgram] = []

    def hand_over(program: CheckedProgram, *rest: Any, **more: Any) -> Any:
        handed.append(program)
        return evaluate_columns(program, *rest, **more)

    monkeypatch.setattr("lace.query.distributed.evaluate_columns", hand_over)
    facts, rules = facts_for(workload, size), rules_of(workload)
    (goal,) = find_predicates(rules, [GOALS[workload]])
    expected = frozenset(evaluate(rules, facts, predicates=[goal]).texts(goal))
    assert expected
    for how in (on_cluster(), options()):
        assert not handed
        answer = evaluate_facts(rules, facts, predicates=[goal], options=how)
        assert (frozenset(answer.texts(goal)), answer.count(goal)) == (expected, len(expected))
    assert bool(handed) == (workload != "W4"), "a fixed point is handed over, and nothing else"


def test_the_whole_closure_by_handover() -> None:
    """All pairs of 2,500 nodes; round by round on Spark they take minutes."""
    facts, rules = facts_for("TC", 2_500), rules_of("TC")
    (goal,) = find_predicates(rules, [GOALS["TC"]])
    expected = evaluate(rules, facts, predicates=[goal])
    answer = evaluate_facts(rules, facts, predicates=[goal], options=options())
    assert answer.count(goal) == expected.count(goal) > 2_000_000
    assert frozenset(answer.texts(goal)) == frozenset(expected.texts(goal))


def test_reliable_cuts_are_files_and_go(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lace.spark.engine.context import World

    seen: list[int] = []
    whole = World.cut_counting

    def counting(*arguments: Any) -> Any:
        made = whole(*arguments)
        seen.append(len(list(tmp_path.rglob("part-*"))))
        return made

    monkeypatch.setattr(World, "cut_counting", counting)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rules = rules_for(REACH, EDGES)
    lines = lines_embedded(rules, EDGES)
    assert lines_of(rules, EDGES, options(handover_rows=0, cuts="reliable")) == lines
    assert seen[0] < seen[-1]
    assert str(tmp_path) in spark_session.sparkContext.getCheckpointDir()
    assert not any(tmp_path.iterdir())


@pytest.mark.requirement("030-57")
@pytest.mark.parametrize("path", ["cluster", "handed", "whole"])
@pytest.mark.parametrize(
    ("limit", "allowed", "text"),
    [
        ("max_derived_facts", 3, "A(X,Y) :- Edge(X,_), Edge(Y,_).\n"),
        ("max_derived_facts", 5, REACH),
        ("max_iterations", 2, REACH),
        ("max_work", 6, REACH),
        ("max_work", 3, "A(X,Y) :- Edge(X,_), Edge(Y,_).\nB(X) :- A(X,_).\n"),
        ("max_base_facts", 3, REACH),
    ],
)
def test_limits_are_errors(limit: str, allowed: int, text: str, path: str) -> None:
    rules = rules_for(text, EDGES, **{limit: allowed})
    with pytest.raises(LimitExceeded) as expected:
        evaluate(rules, EDGES, predicates=rules.derived)
    how = {"cluster": on_cluster(), "handed": options(), "whole": None}[path]
    with pytest.raises(LimitExceeded) as found:
        evaluate_facts(rules, EDGES, predicates=rules.derived, options=how)
    mine, theirs = found.value, expected.value
    assert (mine.limit, mine.allowed, mine.rule) == (theirs.limit, theirs.allowed, theirs.rule)
    assert (mine.observed or 0) > allowed
    assert lines_of(rules_for(text, EDGES), EDGES, how)  # and else it is fine


def test_a_result_is_the_same_mapping() -> None:
    with_spark = lace.evaluate(REACH, EDGES, engine="spark")
    embedded = lace.evaluate(REACH, EDGES)
    assert dict(with_spark) == dict(embedded)
    assert with_spark.count("Reach/2") == embedded.count("Reach/2")
    assert repr(with_spark) == repr(embedded)
    with pytest.raises(lace.EngineError, match="only the embedded engine explains"):
        with_spark.why("Reach", "a", "b")


def test_rules_are_checked_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("lace.spark.engine.local.open_session", refuse)
    with pytest.raises(lace.RuleError):
        lace.evaluate("A(X) :- B(Y).", EDGES, engine="spark")
    rules = rules_for(REACH, EDGES, max_base_facts=1)
    with pytest.raises(LimitExceeded):
        evaluate_facts(rules, EDGES)


def test_what_was_not_asked_for_is_made_when_it_is() -> None:
    text = "A(X) :- Edge(X,_).\nB(X) :- A(X), not Edge(_,X).\n"
    rules = rules_for(text, EDGES)
    first, second = rules.derived
    answer = evaluate_facts(rules, EDGES, predicates=[first])
    assert (answer.made(first), answer.made(second)) == (3, None)
    assert answer.texts(second) == []
    assert answer.made(second) == 0


def test_a_lace_and_the_command_line(tmp_path: Path) -> None:
    """The same facts from Python, and the same bytes from `lace query`."""
    rules = "A(P,V) :- Have(P), Field(P,'App',_,V).\nB(P) :- A(P,'a'), not A(P,'b').\n"
    place = tmp_path / "some.lace"
    with lace.open(place) as opened:
        for number in range(4):
            opened.add(plex(app="ab"[number % 2], name=f"n{number}"))
        found = opened.query(rules, engine="spark")
        assert found["A/2"]
        assert dict(found) == dict(opened.query(rules))
        with opened.store.snapshot() as snapshot:
            assert dict(opened.query(rules, engine="spark", snapshot=snapshot)) == dict(found)
    (tmp_path / "rules").write_text(rules)
    (tmp_path / "edges").write_text("Edge('b','a')\nEdge('a','b')\n")
    asked: list[tuple[str, ...]] = [
        ("query", "--lace", str(place), "--rules", str(tmp_path / "rules")),
        ("query", "-e", "R(X) :- Edge(X,_).", "--facts", str(tmp_path / "edges"), "--stats"),
    ]
    for arguments in asked:
        plainly, with_spark = call(*arguments), call(*arguments, "--engine", "spark")
        assert (with_spark.code, with_spark.raw) == (0, plainly.raw)
        assert plainly.raw


@pytest.mark.requirement("030-25", "030-117", "030-118")
def test_wide_long_and_odd_values() -> None:
    odd: list[Fact] = [("E", "x\0y", "\t"), ("E", "\0", "b")]
    rules = rules_for(
        "A(X) :- E(X,_), X != '\0', TextShape(X,'x','','y').\nB(X) :- E('\0',X).\n"
        "C(Y) :- E(_,Y), LexCompare(Y,'<','\x0b').",
        odd,
    )
    assert lines_of(rules, odd, on_cluster()) == ["A('x\0y')", "B('b')", "C('\t')"]
    wide: list[Fact] = [("W", *(str(number) for number in range(20)))]
    names = ",".join(f"X{number}" for number in range(20))
    text = f"T({names},'{'é' * 3000}') :- W({names}), X0 != '{'x' * 3000}'."
    rules = rules_for(text, wide, max_arity=30, max_value_bytes=8000)
    assert lines_of(rules, wide, on_cluster()) == lines_embedded(rules, wide)
    with pytest.raises(LimitExceeded, match="max_arity"):
        lines_of(rules_for("A(X) :- B(X).", wide), wide, on_cluster())
