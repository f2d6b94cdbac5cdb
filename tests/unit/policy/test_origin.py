"""Origins: digests, labels, viewers, and claims that must be proven."""

from __future__ import annotations

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.errors import PolicyError
from lace.policy.origin import (
    Origin,
    check_claim,
    claim_of,
    is_opaque_label,
    opaque_digest,
    opaque_labels,
    prove_claim,
)
from lace.record.ids import Verifier

MODULE = "R.V3wv7Ug32jVLxA5Q6An85cW~HQfME12J4bJK7MpVBHS"
ALICE = Verifier.from_public_key(b"\x01" * 32)
BOB = Verifier.from_public_key(b"\x02" * 32)
HOSTILE = "\x1b[2J\u202e" + "x" * 500
NO_VERIFIERS = ["", "V", ALICE[:-3], ALICE + "\n", " " + ALICE, "P" + ALICE[1:], "alice", HOSTILE]


def quiet(error: PolicyError) -> bool:
    """Whether an error is one line of modest length that cannot trick a terminal."""
    text = str(error)
    return len(text) < 400 and not any(sign in text for sign in "\x1b\u202e\n")


@pytest.mark.parametrize("text", [f"Opq_{character}" for character in b64a.ALPHABET])
def test_labels(text: str) -> None:
    assert is_opaque_label(text)
    assert Origin(text).label == text


@pytest.mark.parametrize(
    "text",
    ["", "Opq_", "Opq_00", "Opq_-", "Opq_=", "opq_0", "Opq0", "Opq_0\n", " Opq_0", ALICE, HOSTILE],
)
def test_no_labels(text: str) -> None:
    assert not is_opaque_label(text)
    with pytest.raises(PolicyError, match="not the label of an origin") as caught:
        Origin(text)
    assert caught.value.rule == "040-45"
    assert quiet(caught.value)


def test_the_viewer_is_the_verifier_else_the_label() -> None:
    assert Origin("Opq_H").viewer == "Opq_H"
    bound = Origin("Opq_H", ALICE)
    assert (bound.label, bound.verifier, bound.viewer) == ("Opq_H", ALICE, ALICE)


def test_a_bound_verifier_is_one() -> None:
    with pytest.raises(PolicyError, match="is not a verifier"):
        Origin("Opq_H", "alice")  # type: ignore[arg-type]  # what a careless caller does


def test_the_hashed_bytes() -> None:
    nonce = b64a.encode(b"\x07" * 32)
    last = f"OpaqueOriginOperand('selector','{MODULE}','{MODULE[2:]}')\n"
    cases: list[tuple[bytes, str]] = [
        (opaque_digest(0, MODULE), "OpaqueOriginRole('0')\n"),
        (opaque_digest(1, MODULE), "OpaqueOriginRole('1')\n"),
        (
            opaque_digest(0, MODULE, nonce=nonce),
            f"OpaqueOriginRole('0')\nOpaqueOriginNonce('{nonce}')\n",
        ),
        (
            opaque_digest(0, MODULE, verifier=ALICE),
            f"OpaqueOriginRole('0')\nOpaqueOriginVerifier('{ALICE}')\n",
        ),
        (
            opaque_digest(1, MODULE, nonce=nonce, verifier=BOB),
            f"OpaqueOriginRole('1')\nOpaqueOriginNonce('{nonce}')\nOpaqueOriginVerifier('{BOB}')\n",
        ),
    ]
    for found, lines in cases:
        assert found == digest(f"lace-opaque-origin/v1{lines}{last}".encode())
    assert len({found for found, _ in cases}) == len(cases)


@pytest.mark.parametrize(
    ("arguments", "extra", "rule"),
    [
        ((2, MODULE), {}, "040-53"),
        ((0, MODULE[:-1]), {}, "040-54"),
        ((0, MODULE), {"nonce": ""}, "040-46"),
        ((0, MODULE), {"nonce": "01"}, "040-46"),
        ((0, MODULE), {"nonce": HOSTILE}, "040-46"),
        ((0, MODULE), {"verifier": HOSTILE}, "040-42"),
    ],
)
def test_what_is_not_hashed(arguments: tuple[int, str], extra: dict[str, str], rule: str) -> None:
    with pytest.raises(PolicyError) as caught:
        opaque_digest(*arguments, nonce=extra.get("nonce"), verifier=extra.get("verifier"))
    assert caught.value.rule == rule
    assert quiet(caught.value)


def test_the_first_character_that_differs() -> None:
    assert opaque_labels(bytes(32), b"\xff" * 32) == ("Opq_0", "Opq_~")
    assert opaque_labels(bytes(32), bytes(31) + b"\x01") == ("Opq_0", "Opq_4")
    # The first six bits are equal, the second six are 1 and 2.
    assert opaque_labels(b"\x00\x10" + bytes(30), b"\x00\x20" + bytes(30)) == ("Opq_1", "Opq_2")


def test_equal_digests() -> None:
    with pytest.raises(PolicyError, match="same opaque digest") as caught:
        opaque_labels(bytes(32), bytes(32))
    assert caught.value.rule == "040-48"


@pytest.mark.parametrize("length", [0, 31, 33])
def test_no_digests(length: int) -> None:
    with pytest.raises(PolicyError, match="32 bytes"):
        opaque_labels(bytes(length), bytes(32))


def test_what_a_side_claims() -> None:
    assert (claim_of(0, None), claim_of(1, None)) == ("Opq_0", "Opq_1")
    assert claim_of(0, ALICE) == claim_of(1, ALICE) == ALICE
    with pytest.raises(PolicyError, match="index"):
        claim_of(2, None)
    with pytest.raises(PolicyError, match="verifier"):
        claim_of(0, "Opq_0")


@pytest.mark.parametrize("index", [0, 1])
def test_claims_that_are_taken(index: int) -> None:
    assert check_claim(claim_of(index, None), index=index) is None
    assert check_claim(ALICE, index=index) == ALICE
    assert check_claim(str(ALICE), index=index) == ALICE


@pytest.mark.parametrize("index", [0, 1])
def test_a_claim_of_local_origin(index: int) -> None:
    with pytest.raises(PolicyError, match="the origin of this side") as caught:
        check_claim(claim_of(1 - index, None), index=index)
    assert caught.value.rule == "040-41"
    assert f"Opq_{index}" in str(caught.value)


OTHER_CLAIMS = ["Opq_2", "Opq_H", "Opq_", "Opq_00", "Opq_1\n", "peer-17", "v.x", "V", ""]


@pytest.mark.parametrize("claim", OTHER_CLAIMS)
def test_a_claim_of_another_form_is_none(claim: str) -> None:
    assert check_claim(claim, index=1) is None


@pytest.mark.parametrize("claim", [each for each in NO_VERIFIERS if each.startswith("V.")])
def test_a_claim_that_is_a_malformed_verifier(claim: str) -> None:
    with pytest.raises(PolicyError, match="which is a malformed verifier") as caught:
        check_claim(claim, index=1)
    assert caught.value.rule == "040-42"
    assert quiet(caught.value)


def test_a_claim_needs_an_index() -> None:
    with pytest.raises(PolicyError, match="index 0 or 1"):
        check_claim(ALICE, index=3)


def test_proof() -> None:
    assert prove_claim(ALICE, ALICE) == ALICE
    assert prove_claim(str(ALICE), str(ALICE)) == ALICE
    assert prove_claim(None, None) is None
    assert prove_claim(None, BOB) == BOB


@pytest.mark.parametrize(("proven", "rule"), [(None, "040-42"), (BOB, "040-44")])
def test_no_proof_or_another(proven: Verifier | None, rule: str) -> None:
    with pytest.raises(PolicyError, match="the peer claims to be") as caught:
        prove_claim(ALICE, proven)
    assert caught.value.rule == rule
    assert ALICE in str(caught.value)


def test_what_is_proven_is_a_verifier() -> None:
    with pytest.raises(PolicyError, match="is not a verifier"):
        prove_claim(None, "Opq_0")
