"""`_LocalTAI`: this side's clock, which only exposures read (G05b)."""

from __future__ import annotations

import random

import pytest

import lace
from lace.base.tai import Tai
from lace.engine import factbase
from lace.engine.factbase import FactBase
from lace.errors import EngineError, RuleError
from lace.exchange.ticks import LocalTime
from lace.policy.compile import Executable, compile_policy, flat_program
from lace.policy.enforcement import Enforcement
from lace.policy.exposure import PUBLIC, exposure_of, local_time, missing_facts
from lace.policy.operand import operand_of, receive_operand
from lace.policy.plan import make_plan
from lace.record.ids import Verifier
from lace.rules.limits import PEER_LIMITS
from lace.rules.profiles import LOCAL_TAI

ALICE = str(Verifier.from_public_key(b"\x01" * 32))
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
SECOND = 1_000_000_000
START = Tai("1640995200:000000000")
EXPOSURES = (
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), _LocalTAI(T), LexCompare(T,'<','{at}').",
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not _Closed('y').\n"
    "_Closed('y') :- _LocalTAI(T), LexCompare(T,'>=','{at}').",
    "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Until',_,U), _LocalTAI(T), LexCompare(T,'<',U).",
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Cardinality(_Past(_),'<','3').\n"
    "_Past(P) :- Field(P,'Until',_,U), _LocalTAI(T), LexCompare(T,'>=',U).",
)


def after(seconds: int) -> Tai:
    return START.shift(seconds * SECOND)


def policy(exposure: str, theirs: str = ALL) -> Executable:
    pair = operand_of(ALL, 0), operand_of(theirs, 1)
    shown = exposure_of(exposure, anyone=True)
    return compile_policy(make_plan(*pair), pair, index=0, exposures=[shown], viewer=ALICE)


@pytest.mark.parametrize("seconds", [1, 7, 10, 3600])
@pytest.mark.requirement("020-45", "050-38")
def test_the_clock_is_floored_to_the_interval(seconds: int) -> None:
    interval = seconds * SECOND
    reading = START.shift(123_456_789_012)
    floored = local_time(reading, interval)
    assert floored <= reading < floored.shift(interval)
    assert floored.nanoseconds % interval == 0
    assert local_time(floored, interval) == floored


def test_the_clock_of_an_exchange_never_goes_back() -> None:
    local = LocalTime(10 * SECOND).at(after(25))
    assert local.tai == after(20)
    assert local.at(after(29)) == local
    assert not local.is_due(after(29))
    assert local.is_due(after(30))
    assert local.next_due == after(30)
    assert local.at(after(0)) == local
    assert not local.is_due(after(0))
    last = Tai("9999999999:999999999")
    assert LocalTime(10 * SECOND).at(last).next_due is None


@pytest.mark.parametrize("rules", EXPOSURES)
def test_only_the_view_reads_it(rules: str) -> None:
    made = policy(rules.format(at=after(60)))
    assert made.reads_clock
    assert LOCAL_TAI in made.view.required_base
    for program in (made.theirs, made.ours, made.lowering):
        assert LOCAL_TAI not in program.required_base
        assert LOCAL_TAI not in program.profile.base
    assert LOCAL_TAI not in PUBLIC
    assert LOCAL_TAI in flat_program(made).required_base
    assert missing_facts(made.programs, []) == ("_LocalTAI/1",)
    assert missing_facts(made.programs, [("_LocalTAI", START)]) == ()


def test_who_does_not_read_it_has_no_clock() -> None:
    made = policy("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).")
    assert not made.reads_clock


@pytest.mark.requirement("050-32")
@pytest.mark.parametrize(
    "rule",
    [
        "SelectHave(P) :- Have(P), _LocalTAI(_).",
        "SelectHave(P) :- Have(P), not _LocalTAI('x').",
        "SelectHave(P) :- Have(P), Cardinality(_LocalTAI(_),'>','0').",
        "_LocalTAI(T) :- StartTAI(T).\nSelectHave(P) :- Have(P).",
        "_Viewer(T) :- Peer(T).\nSelectHave(P) :- Have(P).",
    ],
)
def test_no_operand_mentions_it(rule: str) -> None:
    text = f"{rule}\nSelectAdvertised(P,S) :- Advertised(P,S)."
    with pytest.raises(RuleError):
        lace.Policy(select=text)
    module = lace.Lacegram.parse(text.replace("_LocalTAI", "Late").replace("_Viewer", "Who"))
    raw = module.canonical.replace("Late", "_LocalTAI").replace("Who", "_Viewer").encode()
    with pytest.raises(lace.LaceError):
        receive_operand(
            raw, index=1, module_id=str(module.id), facet="selector", limits=PEER_LIMITS
        )


@pytest.mark.parametrize("profile", ["query", "exposure", "selector"])
@pytest.mark.parametrize("head", ["_LocalTAI(T) :- StartTAI(T).", "_Viewer(V) :- Peer(V)."])
def test_no_rule_defines_it(profile: str, head: str) -> None:
    with pytest.raises(RuleError) as caught:
        lace.Lacegram.parse(head, profile=profile)
    assert any("which no rule defines" in found.message for found in caught.value.findings)


def test_it_is_no_public_fact() -> None:
    enforcement = Enforcement(policy(EXPOSURES[0]), FactBase(max_value_bytes=1024))
    with pytest.raises(EngineError, match="is no public fact"):
        enforcement.change_public([("_LocalTAI", START)])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rules", EXPOSURES)
def test_what_is_kept_up_to_date_is_what_a_new_evaluation_finds(
    monkeypatch: pytest.MonkeyPatch, rules: str, seed: int
) -> None:
    """Records come and go, the clock goes on, and texts are numbered again in between."""
    chance = random.Random(seed)
    monkeypatch.setattr(factbase, "_LEAST_ROOM", chance.choice((1, 3, 1000)))
    executable = policy(rules.format(at=after(60)))
    base = FactBase(max_value_bytes=1024)
    kept = Enforcement(executable, base)
    facts: set[tuple[str, ...]] = set()
    clock = 0
    for _ in range(30):
        if chance.random() < 0.5:
            clock += chance.choice((0, 10, 30))
            kept.set_local_time(after(clock))
        else:
            name = f"r{chance.randrange(6)}"
            new = {("Have", name), ("Field", name, "Until", "0", after(chance.randrange(0, 120)))}
            old = {fact for fact in facts if fact[1] == name}
            gone, come = (old, set()) if old and chance.random() < 0.4 else (old, new)
            kept.update(base.change(sorted(come - gone), sorted(gone - come)))
            facts = (facts - gone) | come
        if chance.random() < 0.1:  # facts that are read again keep the clock
            base = FactBase(max_value_bytes=1024)
            base.change(sorted(facts))
            kept.take_base(base)
        fresh_base = FactBase(max_value_bytes=1024)
        fresh_base.change(sorted(facts))
        fresh = Enforcement(executable, fresh_base)
        if kept_time := _clock_of(base):
            fresh.set_public([("_LocalTAI", kept_time)])
        assert kept.evaluate().may_send == fresh.evaluate().may_send


def _clock_of(base: FactBase) -> str | None:
    found = base.relations.get(LOCAL_TAI)
    rows = [] if found is None else base.dictionary.rows(found.columns(), found.rows)
    assert len(rows) <= 1
    return rows[0][0] if rows else None


def test_a_clock_that_changes_nothing_costs_the_peers_rules_nothing() -> None:
    """What the peer's operand visits depends on what its view shows alone."""
    executable = policy(EXPOSURES[0].format(at=after(60)))
    base = FactBase(max_value_bytes=1024)
    base.change([("Have", f"r{number}") for number in range(50)])
    kept = Enforcement(executable, base)
    kept.set_local_time(after(0))
    assert len(kept.evaluate().may_send) == 50
    work = kept.their_work
    kept.set_local_time(after(50))
    assert len(kept.evaluate().may_send) == 50
    assert kept.their_work == work
    kept.set_local_time(after(60))
    assert kept.evaluate().may_send == frozenset()
