"""Identifiers are their texts, and only canonical texts are identifiers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from lace.errors import RecordError
from lace.record.ids import (
    RecordId,
    Signature,
    Verifier,
    is_link_target,
    record_id,
    trusted_record_id,
)

ZERO = "0" * 43
RAW = bytes(range(64))


def test_record_id() -> None:
    made = record_id("P", RAW[:32])
    assert type(made) is RecordId
    assert made.type == "P"
    assert made.digest == RAW[:32]
    assert RecordId(str(made)) == made
    assert RecordId(made) is made
    assert trusted_record_id(str(made)) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"R.{ZERO}.H3",
        f"V.{ZERO}.H3",
        f"b.{ZERO}.H3",
        f"B.{ZERO}.H4",
        f"B.{ZERO}.h3",
        f"B.{ZERO}.H3\n",
        f" B.{ZERO}.H3",
        f"B.{ZERO[1:]}.H3",
        f"B.{ZERO}0.H3",
        f"B.{ZERO[1:]}1.H3",
        f"B.{ZERO[1:]}-.H3",
        f"B:{ZERO}.H3",
        ZERO,
    ],
)
def test_other_texts_are_no_record_ids(text: str) -> None:
    with pytest.raises(RecordError) as caught:
        RecordId(text)
    assert caught.value.rule == "020-01"


@pytest.mark.parametrize(("letter", "digest"), [("V", bytes(32)), ("B", bytes(31)), ("", b"")])
def test_no_record_has_that_type_or_digest(letter: str, digest: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        record_id(letter, digest)
    assert caught.value.rule == "020-01"


def test_verifier() -> None:
    made = Verifier.from_public_key(RAW[:32])
    assert made.public_key == RAW[:32]
    assert Verifier(str(made)) == made
    assert Verifier(made) is made
    for text in (f"B.{ZERO}.H3", f"V.{ZERO[1:]}1.H3", f"V.{ZERO}.H3\n", ""):
        with pytest.raises(RecordError) as caught:
            Verifier(text)
        assert caught.value.rule == "009-verifier"


def test_signature() -> None:
    made = Signature.from_raw(RAW)
    assert len(made) == 86
    assert made.raw == RAW
    assert Signature(str(made)) == made
    assert Signature(made) is made
    for text in (made[:-1], made + "0", "0" * 85 + "1", "0" * 86 + "\n", ""):
        with pytest.raises(RecordError) as caught:
            Signature(text)
        assert caught.value.rule == "009-signature-text"


@pytest.mark.parametrize(
    "value",
    [record_id("S", RAW[:32]), Verifier.from_public_key(RAW[:32]), Signature.from_raw(RAW)],
)
def test_copies_and_pickles_keep_the_type(value: Any) -> None:
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301
        assert type(twin) is type(value)
        assert twin == value


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (f"B.{ZERO}.H3", True),
        (f"P.{ZERO}.H3", True),
        (f"S.{ZERO}.H3", True),
        (f"V.{ZERO}.H3", False),
        (f"P.{ZERO[1:]}1.H3", False),
        (f"P.{ZERO[1:]}.H3", False),
        ("P.x.H9", True),
        ("Z.~.0", True),
        ("P.x.h3", True),
        ("P.x.H3a", True),
        ("p.x.H9", False),
        ("PP.x.H9", False),
        ("P..H9", False),
        ("P.x.", False),
        ("P.x", False),
        ("P.x-y.H9", False),
        ("P.x.H 9", False),
        ("P.x.é", False),
        ("É.x.H9", False),
        ("P.x.H9\n", False),
        ("P.x.H٩", False),
        ("", False),
    ],
)
def test_link_targets(text: str, is_one: bool) -> None:
    assert is_link_target(text) is is_one
