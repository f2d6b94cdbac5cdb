"""Limits: the table of defaults, and what passes them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from lace.base.limits import DEFAULT_SETTINGS
from lace.errors import RuleError, SettingError
from lace.rules.limits import (
    MINIMUM_LIMITS,
    OWN_LIMITS,
    PEER_LIMITS,
    UNLIMITED,
    RuleLimits,
    limits_of,
    peer_limits_of,
    read_limits,
)
from lace.rules.program import Lacegram, check_source, with_limits


def test_the_table() -> None:
    assert asdict(OWN_LIMITS) == {
        "max_base_facts": 2**26,
        "max_runtime_facts": 2**24,
        "max_derived_facts": 2**26,
        "max_derived_bytes": 2**36,
        "max_rules": 4096,
        "max_rules_bytes": 2**24,
        "max_iterations": 100_000,
        "max_arity": 8,
        "max_value_bytes": 1024,
        "max_work": 2**36,
        "max_rule_line_bytes": 65_536,
        "max_atoms": 16_384,
        "max_memory": 2**62,
        "max_cpu_seconds": 2**31,
        "of_peer": False,
    }
    assert (PEER_LIMITS.max_derived_facts, PEER_LIMITS.max_rules) == (2**23, 256)
    assert (PEER_LIMITS.max_iterations, PEER_LIMITS.max_work) == (10_000, 2**33)
    assert (PEER_LIMITS.max_derived_bytes, PEER_LIMITS.max_rules_bytes) == (2**28, 2**20)
    assert (PEER_LIMITS.max_memory, PEER_LIMITS.max_cpu_seconds) == (2**29, 10)
    assert PEER_LIMITS.max_atoms == 1024
    assert limits_of(DEFAULT_SETTINGS) == OWN_LIMITS
    assert peer_limits_of(DEFAULT_SETTINGS) == PEER_LIMITS


def test_a_limit_names_its_setting() -> None:
    assert OWN_LIMITS.setting("max_work") == "max_work"
    assert PEER_LIMITS.setting("max_work") == "peer_max_work"
    assert PEER_LIMITS.setting("max_arity") == "max_arity"
    settings = replace(DEFAULT_SETTINGS, peer_max_work=7, max_arity=5)
    assert (peer_limits_of(settings).max_work, peer_limits_of(settings).max_arity) == (7, 5)
    settings = replace(DEFAULT_SETTINGS, peer_max_memory=8, peer_max_cpu_seconds=3)
    tight = peer_limits_of(settings)
    assert (tight.max_memory, tight.max_cpu_seconds) == (8, 3)
    assert tight.setting("max_memory") == "peer_max_memory"
    assert limits_of(settings) == OWN_LIMITS
    error = refused("A(P) :- Have(P).\nB(P) :- A(P).", replace(PEER_LIMITS, max_rules=1))
    assert "peer_max_rules=1" in str(error)
    error = refused("A(P) :- Have(P).", replace(PEER_LIMITS, max_rules_bytes=15))
    assert "the text has 16 bytes" in str(error)
    assert "peer_max_rules_bytes=15" in str(error)
    checked = check_source("A(P) :- Have(P).", limits=replace(PEER_LIMITS, max_rules_bytes=16))
    assert len(checked.rules) == 1


def test_defaults_are_not_below_the_minimum() -> None:
    for limits in (OWN_LIMITS, PEER_LIMITS):
        for name, least in asdict(MINIMUM_LIMITS).items():
            assert getattr(limits, name) >= least


def test_memory_is_a_limit_for_rules_of_peers_only() -> None:
    assert OWN_LIMITS.max_memory == UNLIMITED.max_memory
    assert PEER_LIMITS.max_memory == 512 * 2**20


@pytest.mark.parametrize("value", [-1, True, "3", 1.0])
def test_a_limit_is_a_whole_number(value: Any) -> None:
    with pytest.raises(SettingError, match="max_rules"):
        RuleLimits(max_rules=value)


def refused(text: str, limits: RuleLimits) -> RuleError:
    with pytest.raises(RuleError) as caught:
        Lacegram.parse(text, limits=limits)
    return caught.value


def test_rules() -> None:
    text = "A(P) :- Have(P).\n# between\nB(P) :- Have(P).\nC(P) :- Have(P)."
    assert len(Lacegram.parse(text, limits=RuleLimits(max_rules=3)).rules) == 3
    error = refused(text, RuleLimits(max_rules=2))
    assert str(error) == "4:1: the lacegram has 3 rules [030-115]; the limit is max_rules=2"
    error = refused(text, RuleLimits(max_rules=1))  # the place is that of the first one too many
    assert str(error) == "3:1: the lacegram has 3 rules [030-115]; the limit is max_rules=1"


def test_arity_and_value_bytes() -> None:
    limits = RuleLimits(max_arity=1, max_value_bytes=2)
    Lacegram.parse("A(P) :- Have(P), P != 'ab', P != 'é', P != ''.", limits=limits)
    error = refused("A(P) :- Have(P), P != 'éa', not B(P,P).", limits)
    assert [finding.rule for finding in error.findings] == ["030-118", "030-117", "030-36"]
    for body in ("IntCompare(P,'<','123')", "TextShape(P,'','./-','')", "TextShape(P,'','','abc')"):
        assert refused(f"A(P) :- Have(P), {body}.", limits).rule == "030-118"
    error = refused("A(P) :- Have(P), Cardinality(Have(_),'<','100').", limits)
    assert str(error) == ("1:18: a constant has 3 bytes [030-118]; the limit is max_value_bytes=2")


def test_long_lines() -> None:
    limits = RuleLimits(max_rule_line_bytes=20)
    assert Lacegram.parse("A(P) :- Have(P).", limits=limits).rules
    for text in ("A(P) :- Have(P), true.", "# éééééééééé"):
        assert refused(text, limits).rule == "030-111"


def test_a_megabyte_on_one_line() -> None:
    text = f"A(P) :- {', '.join(['Have(P)'] * 150_000)}."
    error = refused(text, OWN_LIMITS)
    assert str(error) == (
        "1:1: the line has 1,350,007 bytes [030-111];"
        " the limit is max_rule_line_bytes=65536; use several rules"
    )
    assert len(error.findings[0].render()) < 400


@pytest.mark.requirement(
    "030-112", "030-113", "030-114", "030-115", "030-116", "030-117", "030-118"
)
def test_the_defaults_of_a_peer_and_the_least_that_is_promised() -> None:
    names = (
        *("max_base_facts", "max_runtime_facts", "max_derived_facts", "max_rules"),
        *("max_iterations", "max_arity", "max_value_bytes", "max_work"),
    )
    peer = [getattr(PEER_LIMITS, name) for name in names]
    assert peer == [2**26, 2**24, 2**23, 256, 10_000, 8, 1024, 2**33]
    least = [getattr(MINIMUM_LIMITS, name) for name in names[:-1]]
    assert least == [2**20, 2**20, 2**18, 256, 1000, 8, 1024]
    own = [getattr(OWN_LIMITS, name) for name in names]
    assert own == [2**26, 2**24, 2**26, 4096, 100_000, 8, 1024, 2**36]


def test_a_program_under_other_limits() -> None:
    program = check_source("A(X) :- Have(X).\nB(X) :- Have(X).")
    assert with_limits(program, program.limits) is program
    fewer = replace(OWN_LIMITS, max_rules=2)
    made = with_limits(program, fewer)
    assert (made.limits, made.rules, made.id) == (fewer, program.rules, program.id)
    with pytest.raises(RuleError, match="max_rules=1"):
        with_limits(program, replace(OWN_LIMITS, max_rules=1))


def test_a_name_that_is_no_limit_is_refused() -> None:
    with pytest.raises(SettingError, match="max_links is no limit of rules"):
        read_limits({"max_links": 1})
    assert read_limits({"max_rules": 1}).max_rules == 1
