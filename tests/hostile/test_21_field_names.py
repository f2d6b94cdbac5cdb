"""Case 21: a selector that names a field no line can carry.

The plan requires that field, and hello would have to name it in a line above the limit. It is
not offered, so that the exchange ends there; the peer that goes on regardless gets nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.record.seal import SigningKey
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def selector(name: str) -> str:
    return (
        "SelectHave(P) :- Have(P).\n"
        f"SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'{name}',_,_).\n"
    )


@pytest.mark.requirement("060-144", "050-130")
@pytest.mark.parametrize("name", ["X" * 1_010, "é" * 505], ids=["long", "wide"])
def test_a_name_that_no_line_carries(tmp_path: Path, name: str) -> None:
    with attacked(tmp_path) as target:
        peer = target.connect()
        hello = peer.meet(selector(name), key=SigningKey.generate())
        facts = [fact for fact in hello.facts if fact[0] != "HelloAdvertisedField"]
        peer.block([*facts, ("HelloAllAdvertisedFields",)])
        peer.send(b"\n\n\n")
        peer.outcome()
        target.said("unsupported advertisement field schema")
