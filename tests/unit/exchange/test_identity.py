"""Proofs of hello: what is signed, and everything that a proof does not prove."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.errors import PolicyError, RecordError
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.hello import (
    PROOF_LABEL,
    ProofContext,
    channel_digest,
    check_proof,
    link_id,
    make_proof,
    proof_message,
    setup_digest,
)
from lace.record.model import Plex, Seal
from lace.record.validate import parse_record
from tests.unit.exchange.sides import ALICE, AUX, BOB, EVE, pair_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LINKS = json.loads((Path(__file__).parents[2] / "vectors" / "links.json").read_text("utf-8"))
ZERO, ONE = (b64a.encode(bytes([number]) * 32) for number in (1, 2))
PLAN = f"E.{b64a.encode(bytes([3]) * 32)}"
CONTEXT = ProofContext(setups=(ZERO, ONE), plan_id=PLAN)
CHANNEL = replace(CONTEXT, channel=channel_digest(b"certificate"))


def refused(context: ProofContext, *, index: int, signer: str, proof: str) -> InterlaceFailure:
    with pytest.raises(InterlaceFailure) as caught:
        check_proof(context, index=index, signer=signer, proof=proof)
    assert caught.value.failure is Failure.UNPROVEN_SIGNER
    assert caught.value.rule == "050-98"
    return caught.value


def test_what_is_signed() -> None:
    text = (
        f"lace-hello-proof/v1ProofSetup('0','{ZERO}')\nProofSetup('1','{ONE}')\n"
        f"ProofPlan('{PLAN}')\nProofSigner('1','{BOB.verifier}')\n"
    )
    assert proof_message(CONTEXT, index=1, signer=BOB.verifier) == digest(text.encode())
    channel = b64a.encode(digest(b"certificate"))
    text += f"ProofChannel('{channel}')\n"
    assert proof_message(CHANNEL, index=1, signer=BOB.verifier) == digest(text.encode())
    assert PROOF_LABEL == b"lace-hello-proof/v1"
    with pytest.raises(PolicyError, match="index 0 or 1"):
        proof_message(CONTEXT, index=2, signer=BOB.verifier)


def test_the_digest_of_a_setup_block() -> None:
    facts = [("ExchangeOperand", "0", "R.x", "Opq_0", "selector"), ("ExchangeNonce", "n")]
    text = b"ExchangeNonce('n')\nExchangeOperand('0','R.x','Opq_0','selector')\n"
    assert setup_digest(facts) == b64a.encode(digest(text))
    assert setup_digest([*facts, *reversed(facts)]) == setup_digest(facts)


@pytest.mark.parametrize("context", [CONTEXT, CHANNEL])
@pytest.mark.parametrize("index", [0, 1])
def test_a_proof_holds(context: ProofContext, index: int) -> None:
    proof = make_proof(ALICE, context, index=index, aux=AUX)
    assert check_proof(context, index=index, signer=ALICE.verifier, proof=proof) == ALICE.verifier
    other = make_proof(ALICE, context, index=index)
    assert other != proof
    assert check_proof(context, index=index, signer=ALICE.verifier, proof=other) == ALICE.verifier


def test_a_proof_holds_for_nothing_else() -> None:
    proof = make_proof(ALICE, CHANNEL, index=0, aux=AUX)
    check_proof(CHANNEL, index=0, signer=ALICE.verifier, proof=proof)
    other = b64a.encode(b"\x09" * 32)
    for context in (
        CONTEXT,
        replace(CHANNEL, setups=(other, ONE)),
        replace(CHANNEL, setups=(ZERO, other)),
        replace(CHANNEL, setups=(ONE, ZERO)),
        replace(CHANNEL, plan_id=f"E.{other}"),
        replace(CHANNEL, channel=other),
    ):
        refused(context, index=0, signer=ALICE.verifier, proof=proof)
    refused(CHANNEL, index=1, signer=ALICE.verifier, proof=proof)
    refused(CHANNEL, index=0, signer=BOB.verifier, proof=proof)
    refused(CHANNEL, index=0, signer=ALICE.verifier, proof=proof[1:] + "0")


@pytest.mark.parametrize("changed", [0, 1])
def test_a_replay_under_other_nonces_fails(changed: int) -> None:
    """Security: a captured hello is of no use on a new connection."""
    first = pair_of()
    nonces = [b"\x0a" * 32, b"\x0b" * 32]
    nonces[changed] = b"\x0c" * 32
    second = pair_of(nonces=(nonces[0], nonces[1]))
    for index in (0, 1):
        hello = first.sides[index].hello
        replayed = second.change(index, signer=hello.signer, proof=hello.proof)
        with pytest.raises(InterlaceFailure) as caught:
            replayed.terms(1 - index)
        assert caught.value.failure is Failure.UNPROVEN_SIGNER


def test_texts_that_are_no_proof() -> None:
    proof = make_proof(ALICE, CONTEXT, index=0, aux=AUX)
    assert "not a verifier" in refused(CONTEXT, index=0, signer="alice", proof=proof).message
    hostile = "\x1b" * 500
    found = refused(CONTEXT, index=0, signer=ALICE.verifier, proof=hostile)
    assert "\x1b" not in str(found)
    assert len(str(found)) < 300


def plex() -> Plex:
    return Plex(group="u", app="ding", name="n", data=b"data", tai="1640995200:000000000")


def test_the_signature_of_a_seal_is_no_proof() -> None:
    """Security: what a Seal signs is the digest of a payload, which begins otherwise."""
    seal = plex().seal(EVE)
    assert parse_record(seal.bytes) == seal
    refused(CONTEXT, index=0, signer=EVE.verifier, proof=seal.signature)


def test_a_proof_is_no_signature_of_a_seal() -> None:
    proof = make_proof(EVE, CONTEXT, index=0, aux=AUX)
    with pytest.raises(RecordError, match="signature"):
        parse_record(Seal(plex=plex(), signed_by=EVE.verifier, signature=proof).bytes)
    # Nor can a Plex be made whose digest a proof signs: its payload would begin with the label.
    payload = plex().bytes.partition(b"\n")[2]
    assert payload.startswith(b"Group: ")
    assert not PROOF_LABEL.startswith(payload[:1])


@pytest.mark.parametrize("vector", LINKS)
def test_links(vector: Mapping[str, str]) -> None:
    a, b, plan = vector["a"], vector["b"], vector["plan"]
    assert link_id(a, b, plan) == link_id(b, a, plan) == vector["link-id"]
    first, second = sorted((a, b))
    assert link_id(a, b, plan) == b64a.encode(digest((first + second + plan).encode()))
    assert link_id(a, a, plan) != vector["link-id"]
    with pytest.raises(RecordError, match="not a verifier"):
        link_id(a, "Opq_0", plan)
