"""Enforcement: what is kept up to date, numbered anew, or begun anew after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.columns.segment_journal import SegmentDamagedError
from lace.engine import factbase
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.errors import LaceError, LimitExceeded
from lace.policy.compile import compile_policy
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.record.ids import Verifier
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.store.sqlite.store import SqliteStore
from tests.oracle.store_policy import StorePolicy
from tests.store.samples import plex, valid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.policy.compile import Executable

Fact = tuple[str, ...]
ALICE = str(Verifier.from_public_key(b"\x01" * 32))
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
OPEN = exposure_of("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).", anyone=True)


def policy(
    theirs: str = ALL, limits: RuleLimits = OWN_LIMITS, ours: RuleLimits = OWN_LIMITS
) -> Executable:
    pair = operand_of(ALL, 0, limits=ours), operand_of(theirs, 1, limits=limits)
    return compile_policy(make_plan(*pair), pair, index=0, exposures=[OPEN], viewer=ALICE)


class Asked:
    """A base of records, and a policy over it."""

    def __init__(self, executable: Executable, *records: str) -> None:
        self.base = FactBase(max_value_bytes=1024)
        self.enforcement = Enforcement(executable, self.base)
        self.change(*records)

    def change(self, *come: str, gone: tuple[str, ...] = ()) -> None:
        made = self.base.change(
            [("Have", each) for each in come], [("Have", each) for each in gone]
        )
        self.enforcement.update(made)

    def sent(self) -> set[str]:
        return set(self.enforcement.evaluate().may_send)

    def requested(self) -> set[str]:
        return set(self.enforcement.evaluate().may_request)


def advertised(*records: str) -> list[Fact]:
    return [("Advertised", record, ALICE) for record in records]


def test_no_work_is_done_before_a_question() -> None:
    asked = Asked(policy(), "a")
    assert asked.enforcement.their_work == 0
    assert asked.sent() == {"a"}
    assert asked.enforcement.their_work > 0


def test_facts_that_come_and_go_between_questions_did_neither() -> None:
    asked = Asked(policy(), "a")
    assert asked.sent() == {"a"}
    work = asked.enforcement.their_work
    asked.change("b")
    asked.change(gone=("b", "a"))
    asked.change("a")
    assert asked.sent() == {"a"}
    assert asked.enforcement.their_work == work
    asked.change("b", gone=("a",))
    assert asked.sent() == {"b"}
    assert asked.enforcement.their_work > work


def test_what_is_public_may_be_said_before_and_after_a_question() -> None:
    asked = Asked(policy())
    asked.enforcement.set_public(advertised("x"))
    assert asked.requested() == {"x"}
    asked.enforcement.set_public(advertised("x"))
    asked.enforcement.set_public(advertised("y"))
    assert asked.requested() == {"y"}
    asked.enforcement.update(asked.base.change([]))
    assert asked.requested() == {"y"}


@pytest.mark.parametrize("room", [1, 2, 3, 5])
def test_new_texts_of_the_peers_rules_may_number_everything_anew(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Texts that only the peer's rules have come into the base with their selections."""
    monkeypatch.setattr(factbase, "_LEAST_ROOM", room)
    theirs = (
        "Name('t1') :- true.\nName('t2') :- true.\nName('t3') :- Have('b').\n"
        "Name('t4') :- Have('b').\nName('t5') :- Have('b').\nSelectHave(P) :- Have(P).\n"
        "SelectHave(P) :- Name(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
    )
    asked = Asked(policy(theirs), "a")
    assert asked.sent() == {"a"}
    for step in range(8):
        asked.change("b", f"more {step}")
        assert asked.sent() == {"a", "b", *(f"more {number}" for number in range(step + 1))}
        asked.enforcement.set_public(advertised(f"p{step}", f"q{step}"))
        assert asked.requested() == {f"p{step}", f"q{step}"}
        asked.change(gone=("b",))
        assert asked.sent() == {"a", *(f"more {number}" for number in range(step + 1))}


def test_a_limit_stops_every_question_until_it_is_met_again() -> None:
    asked = Asked(policy(limits=RuleLimits(max_derived_facts=2)), "a", "b", "c")
    for _ in range(2):
        with pytest.raises(LimitExceeded, match="operand 1, theirs"):
            asked.sent()
    asked.change(gone=("c",))
    assert asked.sent() == {"a", "b"}
    asked.change("d")
    with pytest.raises(LimitExceeded, match="operand 1, theirs"):
        asked.sent()
    asked.change(gone=("d", "a"))
    assert asked.sent() == {"b"}


def test_a_limit_of_ones_own_rules_stops_as_well() -> None:
    asked = Asked(policy(ours=RuleLimits(max_derived_facts=2)), "a", "b")
    assert asked.sent() == {"a", "b"}
    asked.change("c")
    with pytest.raises(LimitExceeded):
        asked.sent()
    asked.change(gone=("a",))
    assert asked.sent() == {"b", "c"}


def test_a_value_too_long_for_the_peers_rules_spoils_no_later_answer() -> None:
    """What local rules were told of is not forgotten when the enclave refuses its part."""
    asked = Asked(policy(limits=RuleLimits(max_value_bytes=100)), "a")
    assert asked.sent() == {"a"}
    asked.change("b")
    asked.enforcement.set_public(advertised("x", "y" * 200))
    for _ in range(2):
        with pytest.raises(LaceError):
            asked.enforcement.evaluate()
    asked.enforcement.set_public(advertised("x"))
    found = asked.enforcement.evaluate()
    assert found.may_send == {"a", "b"}
    assert found.may_request == {"x"}


def test_a_public_value_that_no_fact_can_have_changes_nothing() -> None:
    asked = Asked(policy(), "a")
    asked.enforcement.set_public(advertised("x"))
    assert asked.requested() == {"x"}
    for _ in range(2):
        with pytest.raises(LaceError):
            asked.enforcement.set_public(advertised("z", "y" * 2000))
    assert asked.requested() == {"x"}


@pytest.mark.parametrize("at", ["public", "records"])
def test_nothing_is_built_upon_a_change_that_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The base has changed by then; the next question looks at it anew."""
    asked = Asked(policy(), "a")
    asked.enforcement.set_public(advertised("x"))
    assert asked.sent() == {"a"}

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EvaluationSession, "update", interrupted)
        if at == "public":
            with pytest.raises(KeyboardInterrupt):
                asked.enforcement.set_public(advertised("y"))
        else:
            with pytest.raises(KeyboardInterrupt):
                asked.change("b", gone=("a",))
    assert asked.sent() == ({"a"} if at == "public" else {"b"})
    assert asked.requested() == ({"y"} if at == "public" else {"x"})


def test_a_question_that_was_interrupted_can_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(policy(), "a")
    assert asked.sent() == {"a"}
    asked.change("b")

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Enforcement, "_select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asked.sent()
    assert asked.sent() == {"a", "b"}


def test_a_clock_is_only_for_statistics() -> None:
    ticks: Iterator[int] = iter(range(10**9))
    base = FactBase(max_value_bytes=1024)
    base.change([("Have", "a")])
    timed = Enforcement(policy(), base, lambda: next(ticks))
    assert timed.evaluate().may_send == {"a"}
    assert next(ticks) > 0
    untimed = Asked(policy(), "a")
    assert untimed.sent() == {"a"}
    assert timed.their_work == untimed.enforcement.their_work


def test_damage_of_stored_facts_lets_the_enclave_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its texts are those of files that turned out to be damaged."""
    store = SqliteStore(tmp_path / "a.lace", create=True)
    record = plex("a")
    store.admit(valid(record))
    made = StorePolicy(policy(), store, max_value_bytes=1024)
    assert made.their_work == 0
    assert made.evaluate([]).may_send == {str(record.id)}
    evaluate = Enforcement.evaluate
    seen: list[Enforcement] = []

    def damaged(self: Enforcement) -> object:
        seen.append(self)
        if len(seen) == 1:
            raise SegmentDamagedError("a number that no text has")
        return evaluate(self)

    monkeypatch.setattr(Enforcement, "evaluate", damaged)
    assert made.evaluate(advertised("x")).may_request == {"x"}
    assert len(seen) == 2
    assert seen[0] is not seen[1]
    store.close()
