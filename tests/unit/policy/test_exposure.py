"""Exposures: what they are made of, and for whom."""

from __future__ import annotations

import pytest

from lace.errors import PolicyError, RuleError
from lace.policy.exposure import Exposure, active_exposures, check_viewer, exposure_of
from lace.record.ids import Verifier
from lace.rules.limits import RuleLimits
from lace.rules.profiles import EXPOSURE, QUERY
from lace.rules.program import Lacegram, check_source

ALICE = str(Verifier.from_public_key(b"\x01" * 32))
BOB = str(Verifier.from_public_key(b"\x02" * 32))
TEXT = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."


def test_it_takes_text_bytes_and_checked_rules() -> None:
    checked = check_source(TEXT, profile=EXPOSURE)
    for rules in (
        TEXT,
        TEXT.encode(),
        checked,
        check_source(TEXT, profile=QUERY),
        Lacegram(checked),
    ):
        made = exposure_of(rules, ALICE)
        assert made.module.canonical == TEXT
        assert made.module.profile == EXPOSURE
    assert exposure_of(checked, anyone=True).module is checked


def test_rules_of_another_kind_are_checked_again() -> None:
    with pytest.raises(RuleError):
        exposure_of(check_source("A(P) :- Have(P).", profile=QUERY), anyone=True)


def test_limits_and_names_are_kept() -> None:
    limits = RuleLimits(max_rules=1)
    assert exposure_of(TEXT, anyone=True, limits=limits, name="mine").module.limits == limits
    again = exposure_of(check_source(TEXT, profile=QUERY, limits=limits, name="mine"), anyone=True)
    assert (again.module.limits, again.module.source) == (limits, "mine")


def test_it_is_for_those_it_names_or_for_anyone() -> None:
    to_alice, to_both, to_anyone = (
        exposure_of(TEXT, *viewers, anyone=not viewers) for viewers in ((ALICE,), (ALICE, BOB), ())
    )
    to_nobody = Exposure(to_alice.module, frozenset())
    every = [to_alice, to_both, to_anyone, to_nobody]
    assert active_exposures(every, ALICE) == (to_alice, to_both, to_anyone)
    assert active_exposures(every, BOB) == (to_both, to_anyone)
    assert active_exposures(every, "Opq_a") == (to_anyone,)


def test_a_viewer_is_a_verifier() -> None:
    assert check_viewer(ALICE) == ALICE
    with pytest.raises(PolicyError, match="a label of one exchange") as caught:
        check_viewer("Opq_a")
    assert caught.value.rule == "X6"
    with pytest.raises(PolicyError, match="is no viewer"):
        check_viewer("alice")
    with pytest.raises(PolicyError, match="is no viewer"):
        Exposure(exposure_of(TEXT, anyone=True).module, frozenset({ALICE, "x" * 500}))
