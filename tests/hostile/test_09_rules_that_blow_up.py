"""Case 9: a peer whose selector costs more than an exchange is worth.

Products of a list with itself that have no result, a closure over a clique, recursion to a
great depth, and many predicates with as many facts as each may have; it brings the facts for
them itself, as advertisements. And text that is slow to check. Expected: "evaluation error" or
"malformed" by a limit on work, passes, facts, bytes or text; never a partial answer. Others
are served meanwhile.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.iltp.items import PREFACE
from lace.policy.operand import operand_of
from tests.cli.policies import ALL
from tests.hostile.kit import MIB, attacked, resource_block

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact

pytestmark = pytest.mark.slow

HAVE = "SelectHave(P) :- Have(P).\n"
BOMBS = {
    "peer_max_work": HAVE
    + "SelectAdvertised(P,S) :- Advertised(P,S), Advertised(Q,S), Advertised(R,S), "
    + "LexCompare(P,'<',Q), LexCompare(Q,'<',R), LexCompare(R,'<',P).",
    "peer_max_derived_facts": HAVE
    + "SelectAdvertised(P,S) :- Pair(P,Q), Advertised(Q,S).\n"
    + "Pair(P,Q) :- Advertised(P,S), Advertised(Q,S).",
    "peer_max_derived_bytes": HAVE
    + "SelectAdvertised(P,S) :- "
    + ", ".join(f"Pair{n}(P,Q,S)" for n in range(40))
    + ", Advertised(Q,S).\n"
    + "\n".join(
        f"Pair{n}(P,Q,S) :- Advertised(P,S), Advertised(Q,S), P != '{n}'." for n in range(40)
    ),
}
SETTINGS = (
    *("--set", "peer_max_work=2000000000", "--set", "peer_max_derived_facts=2000000"),
    *("--set", "peer_max_derived_bytes=32MiB"),
)


def records(count: int) -> list[str]:
    chance = random.Random(9)
    return sorted(f"P.{b64a.encode(chance.randbytes(32))}.H3" for _ in range(count))


@pytest.mark.requirement("050-173", "030-119")
@pytest.mark.parametrize(
    ("limit", "count"),
    [("peer_max_work", 2000), ("peer_max_derived_facts", 1500), ("peer_max_derived_bytes", 600)],
)
def test_bombs(tmp_path: Path, limit: str, count: int) -> None:
    with attacked(tmp_path, *SETTINGS, "--debug", growth=192 * MIB) as target:
        peer = target.connect()
        source = peer.enter(BOMBS[limit])
        peer.read_block()
        peer.block([("Advertised", record, source) for record in records(count)])
        target.still_serves()
        assert peer.outcome() == b""
        target.said("evaluation error")
        target.said(f"{limit}=")


@pytest.mark.requirement("030-119")
@pytest.mark.parametrize("is_closed", [False, True], ids=["clique", "closure"])
def test_the_closure_of_a_clique(tmp_path: Path, is_closed: bool) -> None:
    """The clique itself is paid for; each step of its closure finds what is there already."""
    rules = (
        HAVE
        + "SelectAdvertised(P,S) :- Reached(P,P), Advertised(P,S).\n"
        + "Linked(P,Q) :- Advertised(P,S), Advertised(Q,S).\n"
        + "Reached(P,Q) :- Linked(P,Q).\n"
        + ("Reached(P,R) :- Reached(P,Q), Linked(Q,R)." if is_closed else "")
    )
    with attacked(tmp_path, "--set", "peer_max_work=200000000", "--debug") as target:
        peer = target.connect()
        source = peer.enter(rules)
        peer.read_block()
        peer.block([("Advertised", record, source) for record in records(300)])
        if is_closed:
            assert peer.outcome() == b""
            target.said("evaluation error")
            target.said("peer_max_work=200000000")
        else:
            wanted, _ = peer.read_block()
            assert len(wanted) == 300


@pytest.mark.requirement("030-119")
def test_deep_recursion(tmp_path: Path) -> None:
    """A chain through as many steps as there are records, each a pass of its own."""
    rules = (
        HAVE
        + "SelectAdvertised(P,S) :- Reached(P,S).\n"
        + "Reached(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Begin',_,_).\n"
        + "Reached(Q,S) :- Reached(P,S), AdvertisedField(P,S,'Next',_,Q), Advertised(Q,S)."
    )
    options = ("--all-fields", "--set", "peer_max_iterations=300", "--debug")
    with attacked(tmp_path, *options) as target:
        peer = target.connect()
        source = peer.enter(rules)
        peer.read_block()
        chain = records(1000)
        facts: list[Fact] = [("Advertised", record, source) for record in chain]
        facts.append(("AdvertisedField", chain[0], source, "Begin", "0", "x"))
        facts += [
            ("AdvertisedField", one, source, "Next", "0", other)
            for one, other in itertools.pairwise(chain)
        ]
        peer.block(facts)
        assert peer.outcome() == b""
        target.said("evaluation error")
        target.said("peer_max_iterations=300")


@pytest.mark.exhaustive
def test_text_that_is_slow_to_check(tmp_path: Path) -> None:
    """Nearly a megabyte of rules, as 060 allows, takes seconds to check, but not of others'."""
    atoms = ", ".join(f"not Y{n}(P)" for n in range(1000))
    slow = ALL + "\n".join(f"X{n}(P) :- Have(P), {atoms}." for n in range(68))
    assert MIB * 3 // 4 < len(resource_block(slow)) < MIB
    with attacked(tmp_path, "--set", "phase_timeout_seconds=300") as target:
        peer = target.connect()
        peer.send(PREFACE + resource_block(slow))
        target.still_serves()
        peer.end()
        peer.outcome()
        target.said("peer closed early")
        assert "malformed" not in target.server.errors


@pytest.mark.requirement("060-147")
def test_text_that_is_longer_than_is_taken(tmp_path: Path) -> None:
    text = ALL + "\n".join(f"X{n}(P) :- Have(P)." for n in range(250))
    size = len(operand_of(text, 0).canonical_bytes)
    for most, taken in ((size, True), (size - 1, False)):
        folder = tmp_path / str(most)
        folder.mkdir()
        with attacked(folder, "--set", f"peer_max_rules_bytes={most}", "--debug") as target:
            peer = target.connect()
            peer.send_setup(text)
            if taken:
                peer.read_block()
                peer.end()
            peer.outcome()
            target.said("peer closed early" if taken else f"peer_max_rules_bytes={most}")
