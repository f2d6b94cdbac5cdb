"""Lowerings: their rules, word for word."""

from __future__ import annotations

import pytest

from lace.errors import PolicyError
from lace.policy.compile import lowering_rules

MERGED = """\
MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P), CanQueryRecord('it\\'s',P).
MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P), not Have(P).
MergedSelectAdvertised(P,S) :- o0_SelectAdvertised(P,S), o1_SelectAdvertised(P,S).
"""


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        (
            "standard-v1",
            "MaySend(P) :- MergedSelectHave(P).\nMayRequest(P) :- MergedSelectAdvertised(P,S).",
        ),
        (
            "encrypted-v1",
            "MaySend(P) :- MergedSelectHave(P), TransportEncrypted().\n"
            "MayRequest(P) :- MergedSelectAdvertised(P,S), TransportEncrypted().",
        ),
        (
            "proven-peer-v1",
            "MaySend(P) :- MergedSelectHave(P).\n"
            "MayRequest(P) :- MergedSelectAdvertised(P,S), Peer(S).",
        ),
    ],
)
def test_a_lowering_has_these_rules(name: str, rules: str) -> None:
    assert "\n".join(map(str, lowering_rules(name, "it's"))) == MERGED + rules


def test_there_is_no_other() -> None:
    with pytest.raises(PolicyError):
        lowering_rules("standard-v2", "Opq_0")
