"""Supervisors: any evaluation can be stopped from outside, and nothing is left half done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import lace
from lace.engine.budget import Cancellation, EvaluationCancelled, Statistics
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.errors import EngineError
from lace.policy.compile import compile_policy
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.record.ids import Verifier
from lace.rules.limits import PEER_LIMITS
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.store.sqlite.store import SqliteStore
from tests.oracle.store_policy import StorePolicy
from tests.store.samples import plex, valid

if TYPE_CHECKING:
    from pathlib import Path

    from lace.policy.compile import Executable

ALICE = str(Verifier.from_public_key(b"\x01" * 32))
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
OPEN = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."
ENDLESS = "Huge(A) :- Item(A), Item(B), Item(C), Item(D), LexCompare(A,'<',B), LexCompare(C,'<',D)."
ITEMS = [("Item", f"{number:05}") for number in range(3000)]


class Counted(Cancellation):
    """Cancels itself at one of its checks."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.checks, self._last = 0, last

    def check(self) -> None:
        self.checks += 1
        if self.checks > self._last:
            self.cancel()
        super().check()


def policy(ours: str = ALL, theirs: str = ALL, exposed: str = OPEN) -> Executable:
    pair = operand_of(ours, 0), operand_of(theirs, 1, limits=PEER_LIMITS)
    exposure = exposure_of(exposed, anyone=True)
    return compile_policy(make_plan(*pair), pair, index=0, exposures=[exposure], viewer=ALICE)


def test_a_cancellation_stops_what_it_watches_and_all_that_follows() -> None:
    cancellation = Cancellation()
    cancellation.check()
    cancellation.hold(2**60)
    before = cancellation.is_cancelled
    cancellation.cancel()
    cancellation.cancel()
    assert (before, cancellation.is_cancelled) == (False, True)
    with pytest.raises(EvaluationCancelled, match="cancelled"):
        cancellation.check()
    with pytest.raises(EngineError):
        lace.evaluate("A(X) :- Item(X).", ITEMS, supervisor=cancellation)


def test_another_thread_stops_an_evaluation_that_would_take_hours() -> None:
    cancellation, begun = Cancellation(), threading.Event()
    cancellation_check = cancellation.check
    caught: list[BaseException] = []

    def check() -> None:
        begun.set()
        cancellation_check()

    def run() -> None:
        try:
            lace.evaluate(ENDLESS, ITEMS, supervisor=cancellation)
        except EvaluationCancelled as error:
            caught.append(error)

    cancellation.check = check  # type: ignore[method-assign]
    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(60)
    cancellation.cancel()
    thread.join(60)
    assert not thread.is_alive()
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("ours", "theirs", "exposed"),
    [
        ("SelectHave(P) :- Have(P), Have(Q), LexCompare(P,'<',Q).", ALL, OPEN),
        (ALL, "SelectHave(P) :- Have(P), Have(Q), LexCompare(P,'<',Q).", OPEN),
        (ALL, ALL, f"{OPEN}\nAllowQueryRecord(V,P) :- _Viewer(V), Have(P), Have(Q), P != Q."),
    ],
    ids=["own operand", "the peer's operand", "the view"],
)
def test_every_evaluation_of_a_policy_can_be_stopped_at_any_check(
    ours: str, theirs: str, exposed: str
) -> None:
    advertised = "\nSelectAdvertised(P,S) :- Advertised(P,S)."
    executable = policy(
        ours if "Advertised" in ours else ours + advertised,
        theirs if "Advertised" in theirs else theirs + advertised,
        exposed,
    )

    def asked(supervisor: Counted) -> Enforcement:
        base = FactBase(max_value_bytes=1024)
        base.change([("Have", f"{number}") for number in range(5)])
        return Enforcement(executable, base, supervisor=supervisor)

    whole = Counted(2**60)
    sent = asked(whole).evaluate().may_send
    assert sent
    assert whole.checks > 5
    for last in range(whole.checks):
        supervisor = Counted(last)
        stopped = asked(supervisor)
        with pytest.raises(EvaluationCancelled):
            stopped.evaluate()
        supervisor._last, supervisor._is_cancelled = 2**60, False
        assert stopped.evaluate().may_send == sent


def test_a_session_goes_on_after_an_update_was_stopped() -> None:
    program = check_source(
        "Path(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z).",
        profile=QUERY.with_base([("Edge", 2)]),
    )
    key = program.derived[0]
    session = EvaluationSession()
    session.change([("Edge", f"{at}", f"{at + 1}") for at in range(10)])
    assert session.evaluate(program).count(key) == 55
    session.supervisor = Counted(1)
    with pytest.raises(EvaluationCancelled):
        session.change([("Edge", "10", "11")])
    session.supervisor = None
    assert session.evaluate(program).count(key) == 66


def test_supervisors_of_stores_and_queries(tmp_path: Path) -> None:
    rules = "A(P) :- Have(P), Have(Q), P != Q."
    with lace.open(tmp_path / "a") as store:
        for number in range(3):
            store.add(lace.Plex(group="u", app="a", name=f"{number}", data=b"x"))
        for supervisor in (Counted(0), Counted(1)):
            with pytest.raises(EvaluationCancelled):
                store.query(rules, supervisor=supervisor)
        with store.snapshot() as snapshot, pytest.raises(EvaluationCancelled):
            store.query(rules, supervisor=Counted(0), snapshot=snapshot)
        assert len(store.query(rules)["A/1"]) == 3
        store.add(lace.Plex(group="u", app="a", name="3", data=b"x"))
        with pytest.raises(EvaluationCancelled):
            store.query(rules, supervisor=Counted(0))
        assert len(store.query(rules, supervisor=Counted(2**60))["A/1"]) == 4


def test_a_policy_over_a_store_can_be_stopped(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.lace", create=True)
    store.admit(valid(plex("a")))
    stopped = StorePolicy(policy(), store, max_value_bytes=1024, supervisor=Counted(0))
    with pytest.raises(EvaluationCancelled):
        stopped.evaluate([])
    store.close()


def test_what_is_watched_does_the_same_work() -> None:
    work = []
    for supervisor in (None, Counted(2**60)):
        statistics = Statistics()
        base = FactBase(max_value_bytes=1024)
        base.change(ITEMS[:50])
        program = check_source(
            "A(X,Y) :- Item(X), Item(Y), LexCompare(X,'<',Y).",
            profile=QUERY.with_base([("Item", 1)]),
        )
        EvaluationSession(base, supervisor=supervisor).evaluate(program, None, statistics)
        work.append(statistics.work)
    assert work[0] == work[1] > 0
