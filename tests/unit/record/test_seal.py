"""Signing keys: they sign, and never show what they sign with."""

from __future__ import annotations

import copy
import os
import pickle
import traceback

import pytest

from lace.base.digest import derive_blocks
from lace.errors import RecordError
from lace.record import seal
from lace.record.schnorr import GROUP_ORDER
from lace.record.seal import SigningKey, verify, verify_many

MATERIAL = bytes(range(1, 33))
KEY = SigningKey(MATERIAL, os.urandom)
SECRET = KEY.secret_text()
MESSAGE = b"m" * 32


def test_a_secret_text_is_read_back() -> None:
    assert SECRET.startswith("&.")
    assert len(SECRET) == 48
    assert SigningKey.parse_secret(SECRET, os.urandom).verifier == KEY.verifier


@pytest.mark.parametrize(
    "text",
    [
        "",
        SECRET[:-1],
        SECRET + "\n",
        " " + SECRET,
        SECRET.replace("&.", "V."),
        SECRET.replace(".H3", ".H4"),
        SECRET[:20] + "-" + SECRET[21:],
        SECRET[:44] + "1.H3",
        "&." + SECRET[2:44] + ".H3",
    ],
)
def test_other_texts_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(RecordError) as caught:
        SigningKey.parse_secret(text, os.urandom)
    assert caught.value.rule == "009-secret"
    shown = "".join(traceback.format_exception(caught.value))
    for start in range(2, 44 - 6):
        assert SECRET[start : start + 6] not in shown


@pytest.mark.parametrize("size", [0, 31, 33])
def test_material_is_32_bytes(size: int) -> None:
    with pytest.raises(RecordError) as caught:
        SigningKey(bytes(size), os.urandom)
    assert caught.value.rule == "009-secret"


def test_a_key_never_shows_its_secret() -> None:
    for shown in (repr(KEY), str(KEY), f"{KEY}", f"{KEY!r:>100}", repr([KEY]), repr({"k": KEY})):
        assert SECRET[2:45] not in shown
        assert MATERIAL.hex() not in shown
        assert KEY.verifier in shown
    assert not hasattr(KEY, "__dict__")


def test_a_key_is_neither_pickled_nor_copied() -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            attempt(KEY)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(KEY, protocol)


def test_signing_uses_fresh_randomness() -> None:
    asked: list[int] = []

    def random_bytes(size: int) -> bytes:
        asked.append(size)
        return bytes([len(asked)]) * size

    key = SigningKey(MATERIAL, random_bytes)
    first, second = key.sign(MESSAGE), key.sign(MESSAGE)
    assert asked == [32, 32]
    assert first != second
    assert first == KEY.sign(MESSAGE, b"\x01" * 32)
    assert all(verify(key.verifier, MESSAGE, signature) for signature in (first, second))


@pytest.mark.parametrize("aux", [bytes(32), b"", b"\x01" * 31, b"\x01" * 33])
def test_bad_randomness_is_refused(aux: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        KEY.sign(MESSAGE, aux)
    assert caught.value.rule == "009-aux"
    broken = SigningKey(MATERIAL, lambda _size: aux)
    with pytest.raises(RecordError):
        broken.sign(MESSAGE)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_signature_is_over_32_bytes(size: int) -> None:
    with pytest.raises(RecordError) as caught:
        KEY.sign(bytes(size))
    assert caught.value.rule == "009-signature"


def test_the_first_block_that_is_a_scalar_makes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [bytes(32), GROUP_ORDER.to_bytes(32), b"\xff" * 32, (5).to_bytes(32)]
    asked: list[int] = []

    def stream(context: str, data: bytes, block: int) -> bytes:
        assert (context, data) == ("adhoc-key", MATERIAL)
        asked.append(block)
        return blocks[block]

    monkeypatch.setattr(seal, "derive_blocks", stream)
    key = SigningKey(MATERIAL, os.urandom)
    assert asked == [0, 1, 2, 3]
    monkeypatch.setattr(seal, "derive_blocks", lambda *_: (5).to_bytes(32))
    assert SigningKey(MATERIAL, os.urandom).verifier == key.verifier
    assert derive_blocks("adhoc-key", MATERIAL, 0) != blocks[3]


def test_many_answers_are_the_single_ones() -> None:
    good = (KEY.verifier.public_key, MESSAGE, KEY.sign(MESSAGE).raw)
    bad = (good[0], bytes(32), good[2])
    assert verify_many([], os.urandom) == []
    assert verify_many([good], os.urandom) == [True]
    assert verify_many([bad], os.urandom) == [False]
    assert verify_many([(b"", b"", b"")], os.urandom) == [False]
    assert verify_many([good, bad, good], os.urandom) == [True, False, True]


def test_one_forged_signature_among_8000() -> None:
    item = (KEY.verifier.public_key, MESSAGE, KEY.sign(MESSAGE).raw)
    items = [item] * 8000
    items[4711] = (item[0], item[1], item[2][:-1] + bytes([item[2][-1] ^ 1]))
    assert verify_many(items, os.urandom) == [number != 4711 for number in range(8000)]


def test_a_new_key_takes_the_randomness_that_was_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SigningKey, "random_source", lambda size: MATERIAL[:size])
    made = SigningKey.generate()
    assert made.verifier == KEY.verifier
    assert made.sign(MESSAGE) == KEY.sign(MESSAGE, MATERIAL)
    monkeypatch.setattr(SigningKey, "random_source", None)
    with pytest.raises(RecordError) as caught:
        SigningKey.generate()
    assert caught.value.rule == "009-secret"


@pytest.mark.parametrize("material", ["&.x.H3", None, 7])
def test_the_material_of_a_key_is_bytes(material: object) -> None:
    with pytest.raises(RecordError, match="material is 32 secret bytes, not") as caught:
        SigningKey(material, os.urandom)  # type: ignore[arg-type]
    assert caught.value.rule == "009-secret"
