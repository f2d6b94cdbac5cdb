"""`--stdio-peer`: who is at the other end of the pipes, on the word of its starter."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import lace
from tests.cli.links import Party, hashes, make_parties
from tests.cli.running import call, process

if TYPE_CHECKING:
    from pathlib import Path

PROVEN = """\
SelectHave(P) :- Have(P), Peer(V).
SelectAdvertised(P,S) :- Advertised(P,S), Peer(S), Transport('stdio').
"""
"""Without a proven peer nothing is selected."""


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    made = make_parties(tmp_path)
    made[0].select.write_text(PROVEN)
    return made


def child(right: Party, left: Party, *more: object) -> list[str]:
    serving = ("serve", "stdio", *right.policy(left), "--quiet")
    return [sys.executable, "-m", "lace", *serving, *map(str, more)]


def without_keys(party: Party, peer: Party) -> list[str]:
    """What a side says that proves nothing by a key: its claim, and whom it takes the peer for."""
    return ["--plain", "--claim", party.verifier, "--stdio-peer", peer.verifier]


@pytest.mark.requirement("060-126", "060-127")
def test_the_parent_vouches_for_both_ends(parties: tuple[Party, Party]) -> None:
    """Neither side proves a key: what is exposed to a name moves by the parent's word alone."""
    left, right = parties
    strict = ("--lowering", "proven-peer-v1")
    served = child(right, left, *without_keys(right, left), *strict)
    done = left.sync(right, "stdio", *without_keys(left, right), *strict, "--json", "--", *served)
    assert done.code == 0, done.err
    assert done.json()["peer-verifier"] == right.verifier
    assert len(done.json()["received-hashes"]) == 5
    assert hashes(left) == hashes(right)
    assert len(hashes(left)) == 10


@pytest.mark.requirement("060-126")
def test_without_it_pipes_prove_nobody(parties: tuple[Party, Party]) -> None:
    left, right = parties
    before = hashes(left), hashes(right)
    plain = ("--plain",)
    done = left.sync(right, "stdio", *plain, "--json", "--", *child(right, left, *plain))
    assert (done.code, done.json()["peer-verifier"]) == (0, None)
    claiming = ("--plain", "--claim", right.verifier)
    refused = left.sync(right, "stdio", *plain, "--", *child(right, left, *claiming))
    assert refused.code == 4
    assert "has not proven it" in refused.err
    assert (hashes(left), hashes(right)) == before


@pytest.mark.requirement("050-99", "060-126")
def test_a_key_that_proves_somebody_else_is_refused(parties: tuple[Party, Party]) -> None:
    """The word of the parent does not stand over a proof: the two have to agree."""
    left, right = parties
    stranger = str(lace.SigningKey.generate().verifier)
    done = left.sync(right, "stdio", "--stdio-peer", stranger, "--", *child(right, left))
    assert done.code == 4
    assert "peer verifier mismatch" in done.err
    agreed = left.sync(right, "stdio", "--stdio-peer", right.verifier, "--", *child(right, left))
    assert agreed.code == 0, agreed.err
    assert hashes(left) == hashes(right)


@pytest.mark.requirement("060-126")
def test_from_a_program(parties: tuple[Party, Party]) -> None:
    left, right = parties
    view = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."
    policy = lace.Policy(select=PROVEN, exposures=[(view, right.verifier)])
    served = child(right, left, *without_keys(right, left))
    with lace.open(left.folder) as store:
        how = {"command": served, "claim": left.verifier, "plain": True}
        with lace.connect("stdio", store, policy, stdio_peer=right.verifier, **how) as link:  # type: ignore[arg-type]
            result = link.result(60)
        assert (result.peer_verifier, len(result.received)) == (right.verifier, 5)
        with pytest.raises(lace.UsageError, match="stdio_peer is a verifier"):
            lace.connect("stdio", store, policy, stdio_peer=b"V")  # type: ignore[arg-type]
    assert hashes(left) == hashes(right)


@pytest.mark.parametrize("command", ["sync", "serve"])
def test_it_is_for_stdio_alone(parties: tuple[Party, Party], command: str) -> None:
    left, right = parties
    options = (*left.policy(right), "--stdio-peer", right.verifier)
    done = call(command, "tcp:127.0.0.1:0" if command == "serve" else "tcp:127.0.0.1:1", *options)
    assert done.code == 2
    assert "a peer that is vouched for is for stdio addresses only" in done.err
    no_verifier = call(command, "stdio", *left.policy(right), "--stdio-peer", "bob")
    assert no_verifier.code == 2


@pytest.mark.requirement("060-126")
def test_a_table_of_a_peer_may_vouch(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with (left.folder / "lace.toml").open("a") as settings:
        settings.write(
            f'[peer.right]\naddress = "stdio"\nselect = "{left.select}"\nplain = true\n'
            f'expose = ["{left.view}@{right.verifier}"]\nclaim = "{left.verifier}"\n'
            f'stdio-peer = "{right.verifier}"\n'
        )
    served = child(right, left, *without_keys(right, left))
    done = process("--lace", left.folder, "sync", "right", "--json", "--", *served)
    assert done.code == 0, done.err
    assert len(done.json()["received-hashes"]) == 5
