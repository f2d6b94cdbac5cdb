"""Enclaves: whatever they do is decided by their program and their own facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lace.columns.relation import Relation
from lace.engine.budget import Cancellation, EvaluationCancelled, Statistics
from lace.engine.enclave import Enclave
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.errors import LaceError, LimitExceeded
from lace.rules.limits import OWN_LIMITS, PEER_LIMITS, RuleLimits
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey

EDGE, PATH, NEVER = PredicateKey("Edge", 2), PredicateKey("Path", 2), PredicateKey("Never", 1)
RULES = "Path(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z).\nNew('n') :- Path('a',_)."
FACTS = [("Edge", "a", "b"), ("Edge", "b", "c"), ("Edge", "c", "d")]


def base_of(*hidden: str) -> FactBase:
    base = FactBase(max_value_bytes=1024)
    base.change([*(("Other", text) for text in hidden), *FACTS])
    return base


def enclave_of(base: FactBase, limits: RuleLimits = OWN_LIMITS) -> Enclave:
    program = check_source(RULES, profile=QUERY.with_base([("Edge", 2)]), limits=limits)
    return Enclave(program, {EDGE: base.relations[EDGE]}, {EDGE: (0, 1)}, base)


def paths(enclave: Enclave) -> set[tuple[str, ...]]:
    return set(enclave.evaluate([PATH]).texts(PATH))


def test_work_and_answers_do_not_depend_on_the_base() -> None:
    one, other = enclave_of(base_of()), enclave_of(base_of("x", "d", "c", "b", "hidden"))
    for enclave in (one, other):
        assert len(paths(enclave)) == 6
        assert enclave.change([("Edge", "d", "e")], [("Edge", "a", "b")]) is not None
        assert len(paths(enclave)) == 6
    assert one.work == other.work > 0


def test_an_enclave_looks_at_its_supervisor_while_facts_are_put_in_order() -> None:
    base, cancellation = base_of(), Cancellation()
    program = check_source(RULES, profile=QUERY.with_base([("Edge", 2)]))
    relations = {EDGE: base.relations[EDGE]}
    enclave = Enclave(program, relations, {EDGE: (0, 1)}, base, supervisor=cancellation)
    cancellation.cancel()
    with pytest.raises(EvaluationCancelled):
        enclave.change([("Edge", "d", "e")])
    with pytest.raises(EvaluationCancelled):
        Enclave(program, relations, {EDGE: (0, 1)}, base, supervisor=cancellation)


def test_a_change_tells_what_changed() -> None:
    enclave = enclave_of(base_of())
    paths(enclave)
    before = enclave.work
    made = enclave.change([("Edge", "d", "e")])
    assert made is not None
    assert made.added[PATH].rows == 4
    assert enclave.work > before
    again = enclave.change([("Edge", "d", "e")], [("Edge", "x", "y")])
    assert again is not None
    assert not again


def test_before_the_first_answer_a_change_says_to_begin_anew() -> None:
    enclave = enclave_of(base_of())
    assert enclave.change([("Edge", "d", "e")]) is None
    assert len(paths(enclave)) == 10


def test_replacing_leaves_what_stays() -> None:
    enclave = enclave_of(base_of())
    paths(enclave)
    enclave.change([("Edge", "d", "own")])
    for hidden in ((), ("x", "own", "z", "c")):  # another base, with other numbers
        base = FactBase(max_value_bytes=1024)
        base.change([*(("Other", text) for text in hidden), *FACTS[:2], ("Edge", "z", "z")])
        wanted = {EDGE: base.relations[EDGE], NEVER: Relation(1)}
        made = enclave.replace(wanted, base)
        assert made is not None
        if not hidden:
            assert (made.added[EDGE].rows, made.removed[EDGE].rows) == (1, 2)
        else:
            assert not made
        assert paths(enclave) == {("a", "b"), ("b", "c"), ("a", "c"), ("z", "z")}


def test_statistics_of_the_caller_are_counted_once() -> None:
    enclave = enclave_of(base_of())
    statistics = Statistics()
    enclave.evaluate([PATH], statistics)
    assert enclave.work == statistics.work
    enclave.evaluate([PATH], statistics)
    assert enclave.work == statistics.work


def test_work_that_a_limit_stopped_counts() -> None:
    enclave = enclave_of(base_of(), RuleLimits(max_work=5))
    for _ in range(2):
        with pytest.raises(LimitExceeded):
            enclave.evaluate([PATH])
    assert 0 < enclave.work <= 10


def test_work_of_a_change_that_a_limit_stopped_counts() -> None:
    """Else a peer whose rules are stopped again and again would seem to do little."""
    needed = enclave_of(base_of())
    paths(needed)
    enclave = enclave_of(base_of(), RuleLimits(max_work=needed.work))
    paths(enclave)
    before = enclave.work
    more = [("Edge", f"{number}", f"{number + 1}") for number in range(9)]
    assert enclave.change(more) is None
    stopped = enclave.work
    assert before < stopped <= before + needed.work
    assert enclave.change([("Edge", "x", "y")]) is None
    assert enclave.work == stopped
    with pytest.raises(LimitExceeded):
        paths(enclave)
    assert enclave.work > stopped


def test_numbers_are_those_of_the_base() -> None:
    base, other = base_of("hidden"), base_of("x", "c")
    enclave = enclave_of(base)
    found = enclave.evaluate([PredicateKey("New", 1), PATH])
    for outer in (base, other):
        enclave.replace({EDGE: outer.relations[EDGE]}, outer)
        for key in (PATH, PredicateKey("New", 1)):
            relation = found.relation(key)
            columns = [enclave.in_base(each) for each in relation.columns()]
            assert sorted(outer.dictionary.rows(columns, relation.rows)) == sorted(found.texts(key))
        assert outer.dictionary.find("n") >= 0


def test_nothing_is_built_upon_a_change_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts have changed when it fails; the next answer is that of the facts."""
    enclave = enclave_of(base_of())
    paths(enclave)

    def failing(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EvaluationSession, "update", failing)
        with pytest.raises(KeyboardInterrupt):
            enclave.change([("Edge", "d", "e")])
    assert len(paths(enclave)) == 10


def test_a_value_beyond_the_limit_is_refused() -> None:
    enclave = enclave_of(base_of(), RuleLimits(max_value_bytes=4))
    paths(enclave)
    with pytest.raises(LaceError):
        enclave.change([("Edge", "d", "eeeee")])
    assert len(paths(enclave)) == 6


def test_an_enclave_may_begin_with_nothing() -> None:
    base = base_of()
    program = check_source(RULES, profile=QUERY.with_base([("Edge", 2)]))
    enclave = Enclave(program, {EDGE: Relation(2)}, {EDGE: (0, 1)}, base)
    assert paths(enclave) == set()
    enclave.change(FACTS[:1])
    assert paths(enclave) == {("a", "b")}


def test_all_facts_made_are_limited_together() -> None:
    """Six paths of two values and one fact of one: 6 x 16 + 12 bytes; also after a change."""
    goals = [PATH, PredicateKey("New", 1)]
    enough = enclave_of(base_of(), replace(PEER_LIMITS, max_derived_bytes=108))
    assert enough.evaluate(goals).count(PATH) == 6
    assert enough.change([("Edge", "d", "e")]) is None, "stopped by the limit"
    with pytest.raises(LimitExceeded, match="all facts made would take"):
        enough.evaluate(goals)
    for few in (95, 107):
        enclave = enclave_of(base_of(), replace(PEER_LIMITS, max_derived_bytes=few))
        with pytest.raises(LimitExceeded, match="all facts made would take") as caught:
            enclave.evaluate(goals)
        assert caught.value.limit == "peer_max_derived_bytes"
