"""Base64-Ascend: what each refusal says."""

from __future__ import annotations

import pytest

from lace.base import b64a


def test_the_alphabet_ascends() -> None:
    assert len(b64a.ALPHABET) == 64
    assert sorted(b64a.ALPHABET.encode()) == list(b64a.ALPHABET.encode())


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        ("00-0", "006-alphabet", "'-' at position 2"),
        ("é0", "006-alphabet", "'é' at position 0"),
        ("0é", "006-alphabet", "'é' at position 1"),
        ("0\ud800", "006-alphabet", "at position 1"),
        ("00000", "006-length", "5 characters"),
        ("0", "006-length", "1 characters"),
        ("~m", "006-fill-bits", "'m'"),
        ("001", "006-fill-bits", "'1'"),
    ],
)
def test_refusals(text: str, rule: str, said: str) -> None:
    with pytest.raises(b64a.B64AError) as caught:
        b64a.decode(text)
    assert caught.value.rule == rule
    assert said in caught.value.message


def test_bytes_that_are_no_ascii() -> None:
    with pytest.raises(b64a.B64AError):
        b64a.decode_ascii(b"\xff\xff")


def test_final_characters() -> None:
    assert b64a.final_characters(1) == "0GWl"
    assert b64a.final_characters(3) == b64a.ALPHABET
    assert len(b64a.final_characters(32)) == 16
    assert len(b64a.final_characters(64)) == 4
