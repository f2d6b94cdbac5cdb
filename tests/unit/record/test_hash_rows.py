"""Many record hashes at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.base import b64a
from lace.record.hash_rows import (
    are_all_hashes,
    decode_hashes,
    encode_hashes,
    keys_of_hashes,
    rows_of_text,
)


def keys(texts: list[str]) -> list[bytes | None]:
    rows, is_hash = keys_of_hashes(texts)
    found = iter(rows)
    return [next(found).tobytes() if here else None for here in is_hash.tolist()]


@pytest.mark.property
@given(st.lists(st.binary(min_size=32, max_size=32)))
def test_hashes_in_binary_and_back(digests: list[bytes]) -> None:
    texts = [f"{'BPS'[n % 3]}.{b64a.encode(digest)}.H3" for n, digest in enumerate(digests)]
    rows = np.frombuffer("".join(texts).encode(), np.uint8).reshape(-1, 48)
    packed = encode_hashes(rows)
    assert [row.tobytes()[1:] for row in packed] == digests
    assert decode_hashes(packed) == texts


@given(st.lists(st.one_of(st.binary(min_size=32, max_size=32), st.text(max_size=50)), max_size=20))
def test_keys_of_hashes(values: list[bytes | str]) -> None:
    texts = [
        each if isinstance(each, str) else f"{'BPS'[each[0] % 3]}.{b64a.encode(each)}.H3"
        for each in values
    ]
    wanted = [
        None if isinstance(each, str) else "BPS"[each[0] % 3].encode() + each for each in values
    ]
    assert keys(texts) == wanted


def test_many_more_than_are_converted_together() -> None:
    texts = [f"S.{b64a.encode(number.to_bytes(32))}.H3" for number in range(10_000)]
    rows, is_hash = keys_of_hashes(texts)
    assert is_hash.all()
    assert [row[1:].tobytes() for row in rows] == [each.to_bytes(32) for each in range(10_000)]
    assert decode_hashes(rows) == texts
    assert [row.tobytes().decode() for row in rows_of_text(rows)] == texts
    texts[5000] = texts[5000].replace("0", "!", 1)
    rows, is_hash = keys_of_hashes(texts)
    assert np.flatnonzero(~is_hash).tolist() == [5000]
    assert decode_hashes(rows) == [*texts[:5000], *texts[5001:]]


def test_texts_that_are_no_canonical_hashes_have_no_key() -> None:
    good = f"P.{b64a.encode(bytes(32))}.H3"
    other = good[:20] + "é" + good[21:]
    odd = [f"{good[:44]}1.H3", f"P:{good[2:]}", f"{good[:-1]}4", other, good[:-1]]
    assert keys([good, *odd, good]) == [b"P" + bytes(32), *[None] * 5, b"P" + bytes(32)]
    assert are_all_hashes([], "P")
    assert are_all_hashes([good, good], "BPS")
    assert not are_all_hashes([good, good], "BS")
    assert not any(are_all_hashes([good, each], "BPS") for each in odd)
