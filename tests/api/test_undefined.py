"""What a program is told of typing errors in its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.policy.exposure import exposure_of

if TYPE_CHECKING:
    from pathlib import Path
TYPO = "AllowQueryRecord(V,P) :- Peer(V), Have(P), not Blokced(P)."
SELECT = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."


@pytest.mark.requirement("030-36")
def test_a_policy_rests_on_nothing_undefined(tmp_path: Path) -> None:
    with pytest.raises(lace.RuleError, match="nobody defines Blokced/1") as caught:
        lace.Policy(SELECT, [TYPO])
    (found,) = [each for each in caught.value.findings if each.severity == "error"]
    assert (found.rule, found.place.line, found.place.column) == ("030-36", 1, 48)
    for select in (
        SELECT.replace("Have(P).", "Have(P), not Gone(P)."),
        lace.Lacegram.parse(SELECT.replace("Have(P).", "Have(P), not Gone(P).")),
    ):
        with pytest.raises(lace.RuleError, match="nobody defines Gone/1"):
            lace.Policy(select)
        assert lace.Policy(select, allow_undefined=["Gone/1"]).allow_undefined == ("Gone/1",)
    exposure = exposure_of(TYPO, anyone=True)
    with pytest.raises(lace.RuleError, match="nobody defines Blokced/1"):
        lace.Policy(SELECT, [exposure])
    policy = lace.Policy(SELECT, [exposure], allow_undefined=["Blokced/1"])
    with pytest.raises(lace.UsageError):
        lace.Policy(SELECT, allow_undefined="Blokced/1")
    viewer = str(lace.SigningKey.generate().verifier)
    with lace.open(tmp_path / "x") as store:
        store.add(lace.Blob(b"x"))
        peer = SELECT.replace("Have(P).", "Have(P), not Gone(P).")
        assert store.preview(policy, peer, viewer=viewer).permissions.may_send
        assert store.disclose(policy, viewer, peer_select=peer).sent is not None
        with pytest.raises(lace.RuleError, match="nobody defines Blokced/1"):
            store.disclose([TYPO], viewer)
        shown = store.disclose([TYPO], viewer, peer_select=peer, allow_undefined=["Blokced/1"])
        assert len(shown.records) == 1


@pytest.mark.requirement("020-08")
def test_rules_against_the_records_of_a_lace(tmp_path: Path) -> None:
    rules = "A(P) :- Field(P,'Group',_,'taem')."
    with lace.open(tmp_path / "x") as store:
        assert store.check(rules) == (), "no record, no names"
        store.add(lace.Plex(group="team", app="a", name="n", data=b""))
        (found,) = store.check(rules)
        assert found.hint == "did you mean 'team'?"
        assert store.check(lace.Lacegram.parse(rules)) == (found,)
        exposing = ["AllowQueryRecord(V,P) :- Peer(V), Field(P,'App',_,'b')."]
        policy = lace.Policy(SELECT, exposing)
        assert [each.message for each in store.check(policy, rules)] == [
            "no record here has the app 'b'",
            "no record here has the group 'taem'",
        ]
        with pytest.raises(lace.RuleError):
            store.check("A(")
