"""Where nothing has changed since the last exchange, nothing is evaluated again."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import lace
from lace.exchange.events import Validated
from lace.exchange.transitions import State
from lace.link import evaluator
from lace.link.evaluator import StateFingerprints
from lace.policy.enforcement import Enforcement
from lace.rules.syntax import PredicateKey
from tests.link.pairing import open_pair
from tests.link.test_kept import BY_NAME, first_loop, run, said
from tests.link.test_pairing import EVERYTHING, SELECT, hashes, plex, policy

if TYPE_CHECKING:
    from lace.facts.lines import Fact
    from lace.store.validation import ValidationResults

__all__ = ["said"]

AT_TIMES = """\
SelectHave(P) :- Have(P), TickTAI(T), LexCompare(T,'>','1').
SelectAdvertised(P,S) :- Advertised(P,S).
"""


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sides that have begun to evaluate a policy."""
    made: list[str] = []

    class Counted(Enforcement):
        def __init__(self, *arguments: object, **named: object) -> None:
            made.append("a side")
            super().__init__(*arguments, **named)  # type: ignore[arg-type] # as they come

    monkeypatch.setattr(evaluator, "Enforcement", Counted)
    return made


@pytest.mark.parametrize("select", [SELECT, EVERYTHING, BY_NAME])
def test_an_exchange_that_finds_nothing_new_evaluates_nothing(
    sides: tuple[lace.Lace, lace.Lace], evaluations: list[str], said: list[Fact], select: str
) -> None:
    left, right = sides
    for number in range(30):
        left.add(plex(f"n/{number}"))
    run(left, right, select)
    wanted = hashes(right)
    before = [path.stat().st_mtime_ns for path in (left.store.folder / "links").iterdir()]
    assert before
    evaluations.clear()
    said.clear()
    run(left, right, select)
    assert evaluations == []
    assert hashes(right) == wanted
    assert not [fact for fact in said if fact[0] in ("Advertised", "MayRequest")]


def test_what_has_changed_on_one_side_is_evaluated(
    sides: tuple[lace.Lace, lace.Lace], evaluations: list[str]
) -> None:
    left, right = sides
    old = left.add(plex("old"))
    run(left, right)
    for change in range(3):
        new = (left, right)[change % 2].add(plex(f"new/{change}"))
        evaluations.clear()
        run(left, right)
        assert evaluations
        assert new in hashes(left) & hashes(right)
    assert left.remove(old)
    run(left, right)
    assert old in hashes(left)


def test_another_exposure_is_another_state(
    sides: tuple[lace.Lace, lace.Lace], evaluations: list[str]
) -> None:
    left, right = sides
    left.add(plex("a"))
    open_, shut = policy(right), lace.Policy(select=SELECT, exposures=[])
    assert lace.interlace(left, right, shut, policy(left))
    assert not hashes(right)
    assert lace.interlace(left, right, open_, policy(left))
    assert len(hashes(right)) == 1
    right.add(plex("b"))
    assert lace.interlace(left, right, open_, policy(left))
    evaluations.clear()
    assert lace.interlace(left, right, open_, policy(left))
    assert not evaluations
    assert lace.interlace(left, right, shut, policy(left))
    assert evaluations


def test_rules_that_read_the_time_are_always_evaluated(
    sides: tuple[lace.Lace, lace.Lace], evaluations: list[str]
) -> None:
    left, right = sides
    left.add(plex("a"))
    run(left, right, AT_TIMES)
    evaluations.clear()
    run(left, right, AT_TIMES)
    assert len(evaluations) == 2


def test_a_record_that_was_rejected_is_asked_for_again(
    sides: tuple[lace.Lace, lace.Lace], evaluations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    left.add(plex("a"))
    with monkeypatch.context() as patch:
        patch.setattr("lace.link.intake._validated", _rejecting)
        done = lace.interlace(left, right, policy(right), policy(left))
        assert len(done.right.rejected) == 1
    assert not hashes(right)
    evaluations.clear()
    run(left, right)
    assert evaluations
    assert len(hashes(right)) == 1


def _rejecting(verdicts: ValidationResults) -> Validated:
    return Validated(("not today",) * len(verdicts.outcomes))


def test_an_open_exchange_wakes_up(
    sides: tuple[lace.Lace, lace.Lace], evaluations: list[str]
) -> None:
    left, right = sides
    wanted = {left.add(plex(f"n/{number}")) for number in range(5)}
    run(left, right)
    evaluations.clear()
    exchange = open_pair(sides)
    try:
        waiting = [State.WAITING] * 2
        assert exchange.wait_until(
            lambda: [each.machine.state for each in exchange.parties] == waiting, 20.0
        )
        assert not evaluations
        with lace.open(left.store.folder) as other:
            wanted.add(other.add(plex("late")))
        assert exchange.wait_until(lambda: hashes(right) == wanted, 20.0)
        with lace.open(right.store.folder) as other:
            wanted.add(other.add(plex("later")))
        assert exchange.wait_until(lambda: hashes(left) == wanted, 20.0)
    finally:
        exchange.stop(20.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("select", [EVERYTHING, SELECT])
def test_whatever_happens_between_exchanges_they_converge(
    sides: tuple[lace.Lace, lace.Lace], said: list[Fact], select: str, seed: int
) -> None:
    """What was kept is as good as what a new evaluation finds."""
    left, right = sides
    chance = random.Random(seed)
    held: set[str] = set()
    for step in range(8):
        for store in (left, right):
            for number in range(chance.choice((0, 0, 1, 3))):
                held.add(store.add(plex(f"{step}/{number}/{store is left}")))
            if held and chance.random() < 0.3:
                store.remove(chance.choice(sorted(held)))
        wanted = hashes(left) | hashes(right)
        said.clear()
        run(left, right, select)
        assert hashes(left) == hashes(right) == wanted
        assert not step or not [fact for fact in first_loop(said) if fact[0] == "AdvertisementList"]


def test_a_state_is_named_by_the_runtime_facts_that_rules_read() -> None:
    program = SimpleNamespace(required_base=[PredicateKey("TickTAI", 1)], canonical="rules")
    executable: Any = SimpleNamespace(programs=[program], index=0, viewer="V.x")
    counters: Any = SimpleNamespace(key_xor=b"x", removal_sequence=0)
    names = StateFingerprints(executable)
    tick, later = ("TickTAI", "1"), ("TickTAI", "2")
    first = names.name(counters, [tick])
    assert first == names.name(counters, [tick, ("StartTAI", "1")])
    assert first == names.name(counters, [tick, ("TickTAI", "1", "2")])
    assert len({first, names.name(counters, [later]), names.name(counters, [])}) == 3
    for missing in ("key_xor", "removal_sequence"):
        assert names.name(SimpleNamespace(**{**vars(counters), missing: None}), [tick]) is None  # type: ignore[arg-type]
