"""Questions from Python: `lace.evaluate` and `Lace.query`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import lace
from lace.api import Result
from lace.base.limits import DEFAULT_SETTINGS, Settings
from lace.engine.budget import Statistics
from lace.errors import SettingError, UsageError
from lace.facts.lines import FactLineError
from lace.rules.limits import OWN_LIMITS, limits_of
from tests.store.samples import blob, plex, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATHS = "Path(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z)."
EDGES = [("Edge", "a", "b"), ("Edge", "b", "c")]
NOTES = "Selected(P) :- Have(P), Field(P,'App',_,'a')."


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lace.Lace]:
    with lace.open(tmp_path / "some.lace") as opened:
        yield opened


# -- over given facts --------------------------------------------------------------------------


def test_text_over_facts() -> None:
    result = lace.evaluate(PATHS, EDGES)
    assert isinstance(result, Result)
    assert result["Path/2"] == {("a", "b"), ("b", "c"), ("a", "c")}
    assert dict(result) == {"Path/2": result["Path/2"]}
    with pytest.raises(KeyError):
        result["Path/3"]
    assert lace.evaluate(PATHS.encode(), iter([list(edge) for edge in EDGES])) == result


def test_a_result_shows_itself() -> None:
    result = lace.evaluate(
        "A(X) :- E(X,_).\nPair(X,Y) :- A(X), A(Y).\nB(X) :- A(X), Cardinality(Pair(X,_),'>','1').",
        [("E", "<b>", "y"), ("E", "c", "y")],
    )
    assert repr(result) == "<Result: A/1 2, Pair/2 not made, B/1 2>"
    html = result._repr_html_()
    assert "<code>&lt;b&gt;</code>" in html
    assert "only counted, not made" in html
    assert "<b>" not in html
    assert len(result["Pair/2"]) == 4
    assert repr(result) == "<Result: A/1 2, Pair/2 4, B/1 2>"
    assert repr(lace.evaluate("", [])) == "<Result: no predicates>"
    many = lace.evaluate("A(X) :- F(X).", [("F", str(number)) for number in range(30)])
    assert "and 10 more" in many._repr_html_()
    assert "A/1: 30 facts<" in many._repr_html_()
    assert "A/1: 1 fact<" in lace.evaluate("A(X) :- F(X).", [("F", "x")])._repr_html_()


def test_checked_rules_over_facts() -> None:
    rules = lace.Lacegram.parse(PATHS)
    assert lace.evaluate(rules, EDGES)["Path/2"] == lace.evaluate(PATHS, EDGES)["Path/2"]
    assert lace.evaluate(rules.program, [])["Path/2"] == frozenset()
    assert lace.evaluate("", []) == {}


def test_standard_predicates_and_other_arities_are_facts_too() -> None:
    facts = [("Have", "x"), ("Have", "x", "y"), ("Flag",)]
    result = lace.evaluate("A(P) :- Have(P), Flag().\nB(P) :- Have(P,_).", facts)
    assert result["A/1"] == result["B/1"] == {("x",)}
    assert not result.checked.warnings


@pytest.mark.requirement("030-47")
def test_a_predicate_has_facts_or_rules() -> None:
    for rules in (PATHS, lace.Lacegram.parse(PATHS)):
        with pytest.raises(lace.RuleError) as caught:
            lace.evaluate(rules, [*EDGES, ("Path", "x", "y")])
        assert len(caught.value.findings) == 2
        assert "Path/2 is defined by this rule, and there are facts of it too" in str(caught.value)
    with pytest.raises(lace.RuleError, match="1:1: Have/1 is a base predicate"):
        lace.evaluate("Have(X) :- Edge(X,_).", EDGES)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (5, "an iterable of tuples, not int"),
        (None, "not NoneType"),
        ("Edge", "a fact is a tuple of a predicate name and texts, not 'E'"),
        (["Edge"], "not 'Edge'"),
        ([()], r"not \(\)"),
        ([(5, "a")], "a fact is a tuple"),
        ([(["a"], "a")], "a fact is a tuple"),
        ([{"Edge": "a"}], "not dict"),
        ([("Edge", 5, "b")], "is text, not int"),
        ([("Edge", ["b"], "b")], "is text, not list"),
        ([("Edge", b"a", "b")], "is text, not bytes"),
        ([("1", "a")], "'1' is no name of a predicate"),
        ([("Edge\n", "a")], "is no name of a predicate"),
    ],
)
def test_what_is_no_fact(facts: Any, words: str) -> None:
    with pytest.raises(lace.EngineError, match=words):
        lace.evaluate(PATHS, facts)


def test_values_are_text_in_normal_form_and_not_too_long() -> None:
    for value, rule in (("e\u0301", "020-14"), ("\ud800", "020-13")):
        with pytest.raises(FactLineError) as caught:
            lace.evaluate(PATHS, [("Edge", "a", value)])
        assert caught.value.rule == rule
    lace.evaluate(PATHS, [("Edge", "a", "é" * 512)])
    with pytest.raises(lace.LimitExceeded, match="max_value_bytes=1024"):
        lace.evaluate(PATHS, [("Edge", "a", "é" * 513)])


def test_what_is_no_rule() -> None:
    with pytest.raises(UsageError, match="not int"):
        lace.evaluate(5, [])  # type: ignore[arg-type]
    with pytest.raises(lace.RuleError, match="030-37"):
        lace.evaluate("A(X) :- B(Y).", [])


def test_engines() -> None:
    assert lace.evaluate(PATHS, EDGES, engine="embedded")
    with pytest.raises(UsageError, match="did you mean embedded"):
        lace.evaluate(PATHS, EDGES, engine="embeded")
    with pytest.raises(UsageError, match="the engines are embedded, spark"):
        lace.evaluate(PATHS, EDGES, engine=None)  # type: ignore[arg-type]


def test_spark_is_not_installed(monkeypatch: pytest.MonkeyPatch, store: lace.Lace) -> None:
    monkeypatch.setattr("lace.spark.engine.session.util.find_spec", lambda _name: None)
    with pytest.raises(lace.EngineError, match="pyspark and pyarrow not installed") as refused:
        lace.evaluate(PATHS, EDGES, engine="spark")
    assert refused.value.hint == "pip install 'lace[spark]'"
    with pytest.raises(lace.EngineError, match="not installed"):
        store.query("A(P) :- Have(P).", engine="spark")


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    code = (
        "import sys, lace; lace.evaluate; lace.Lace.query; heavy = ('numpy', 'lace.rules',"
        " 'lace.query.evaluate'); print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- over a lace -------------------------------------------------------------------------------


def test_a_question_to_a_lace(store: lace.Lace) -> None:
    note, signed = plex("n"), seal(plex("s"))
    store.add_all([blob(), note, signed])
    assert store.query(NOTES)["Selected/1"] == {(note.id,), (signed.id,)}
    assert store.query(lace.Lacegram.parse(NOTES))["Selected/1"] == {(note.id,), (signed.id,)}
    result = store.query("All(P) :- Have(P).\nSigned(P) :- PlexHash(P,_).", predicates=["Signed/1"])
    assert result["Signed/1"] == {(signed.id,)}
    assert len(result["All/1"]) == 3  # made when it is asked for


def test_asked_again_the_answer_follows_the_records(store: lace.Lace) -> None:
    rules = lace.Lacegram.parse(
        "All(P) :- Have(P).\n"
        "Plain(P) :- Have(P), not Field(P,'App',_,'a').\n"
        "Few(P) :- Have(P), Cardinality(Have(_),'<','3')."
    )
    first = store.add(blob("first"))
    before = store.query(rules)
    second = store.add(plex("n"))
    between = store.query(rules)
    third = store.add(blob("third"))
    store.remove(first)
    fourth = store.add(blob("fourth"))
    after = store.query(rules)
    store.add(blob("first"))
    again = store.query(rules)
    assert before["All/1"] == before["Few/1"] == before["Plain/1"] == {(first,)}
    assert between["All/1"] == between["Few/1"] == {(first,), (second,)}
    assert between["Plain/1"] == {(first,)}
    assert after["All/1"] == {(second,), (third,), (fourth,)}
    assert after["Plain/1"] == {(third,), (fourth,)}
    assert after["Few/1"] == frozenset()
    assert again["All/1"] == {(first,), (second,), (third,), (fourth,)}


def test_values_that_are_too_long_for_a_lower_limit(tmp_path: Path) -> None:
    with lace.open(tmp_path / "short.lace", settings={"max_value_bytes": 20}) as store:
        store.add(blob())
        with pytest.raises(lace.LimitExceeded, match="a fact value has"):
            store.query("All(P) :- Have(P).")


def test_one_state_of_the_lace(store: lace.Lace) -> None:
    first = store.add(blob("first"))
    with store.snapshot() as snapshot:
        store.add(blob("second"))
        result = store.query("All(P) :- Have(P).", snapshot=snapshot)
    assert result["All/1"] == {(first,)}
    assert len(store.query("All(P) :- Have(P).")["All/1"]) == 2


def test_statistics(store: lace.Lace) -> None:
    store.add(blob())
    statistics = Statistics()
    store.query(NOTES, statistics=statistics)
    assert statistics.runs


def test_wrong_questions(store: lace.Lace) -> None:
    with pytest.raises(UsageError, match="did you mean Selected/1"):
        store.query(NOTES, predicates=["Selcted/1"])
    with pytest.raises(UsageError, match="did you mean Selected/1"):
        store.query(NOTES, predicates="Selected/2")
    with pytest.raises(UsageError, match="names no predicate"):
        store.query(NOTES, predicates=["?"])
    with pytest.raises(UsageError, match="by text"):
        store.query(NOTES, predicates=[5])  # type: ignore[list-item]
    with pytest.raises(lace.RuleError):
        store.query("A(P) :- ")


# -- limits ------------------------------------------------------------------------------------


def test_settings_give_the_limits_of_rules() -> None:
    assert limits_of(DEFAULT_SETTINGS) == OWN_LIMITS
    made = limits_of(Settings(max_rules=3, max_work=5, max_value_bytes=7))
    assert (made.max_rules, made.max_work, made.max_value_bytes) == (3, 5, 7)
    for name in ("max_arity", "max_base_facts", "max_work"):
        with pytest.raises(SettingError):
            Settings(**{name: -1})


@pytest.mark.requirement("030-111")
def test_the_settings_of_a_lace_limit_its_questions(tmp_path: Path) -> None:
    with lace.open(tmp_path / "a", settings={"max_work": 1, "max_rules": 1}) as store:
        store.add_all([blob(str(number)) for number in range(5)])
        with pytest.raises(lace.LimitExceeded) as caught:
            store.query("All(P) :- Have(P).")
        assert caught.value.limit == "max_work"
        with pytest.raises(lace.RuleError, match="max_rules=1"):
            store.query("A(P) :- Have(P).\nB(P) :- Have(P).")
