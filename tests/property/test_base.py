"""Encoding, time and text: round trips and order."""

from __future__ import annotations

import pytest
import unicodedata2
from hypothesis import given
from hypothesis import strategies as st

from lace.base import b64a
from lace.base.limits import Settings, describe_settings, parse_setting
from lace.base.tai import Tai, TaiError
from lace.base.text import is_nfc, normalize_nfc, safe_text, shorten
from lace.errors import SettingError
from tests.property import oracle
from tests.property.strategies import tais

pytestmark = pytest.mark.property

BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(st.binary(max_size=100))
def test_base64_ascend_round_trip(data: bytes) -> None:
    text = b64a.encode(data)
    assert text == oracle.b64a_encode(data)
    assert len(text) == -(-8 * len(data) // 6)
    assert b64a.decode(text) == data
    assert b64a.encode_ascii(data) == text.encode()
    assert b64a.decode_ascii(text.encode()) == data


@given(st.integers(0, 40).flatmap(lambda n: st.tuples(*[st.binary(min_size=n, max_size=n)] * 2)))
def test_base64_ascend_keeps_order(pair: tuple[bytes, bytes]) -> None:
    one, two = pair
    assert (one < two) is (b64a.encode(one) < b64a.encode(two))


@given(st.text(st.sampled_from(b64a.ALPHABET + "=+/-. \né\ud800"), max_size=9) | st.text())
def test_base64_ascend_refuses_whatever_is_not_the_text_of_bytes(text: str) -> None:
    expected = oracle.b64a_decode(text)
    if expected is None:
        with pytest.raises(b64a.B64AError):
            b64a.decode(text)
    else:
        assert b64a.decode(text) == expected


@given(st.integers(1, 70), st.data())
def test_final_characters(length: int, source: st.DataObject) -> None:
    text = b64a.encode(source.draw(st.binary(min_size=length, max_size=length)))
    final = b64a.final_characters(length)
    assert text[-1] in final
    for character in b64a.ALPHABET:
        decoded = oracle.b64a_decode(text[:-1] + character)
        assert (decoded is not None) is (character in final)


@given(tais, tais)
def test_tai_order_and_difference(one: Tai, two: Tai) -> None:
    assert (one < two) is (one.nanoseconds < two.nanoseconds)
    assert one.shift(two.nanoseconds - one.nanoseconds) == two
    assert Tai.from_nanoseconds(one.nanoseconds) == one
    assert one.nanoseconds - one.unix_nanoseconds == 37 * 10**9


@given(st.integers(-(10**19), 3 * 10**19))
def test_tai_of_any_number(nanoseconds: int) -> None:
    if 0 <= nanoseconds < 10**19:
        text = Tai.from_nanoseconds(nanoseconds)
        assert int(str(text).replace(":", "")) == nanoseconds
        assert oracle.is_tai(text)
    else:
        with pytest.raises(TaiError):
            Tai.from_nanoseconds(nanoseconds)


@given(st.integers(0, 9 * 10**18))
def test_tai_of_a_clock_reading(nanoseconds: int) -> None:
    assert Tai.from_unix_nanoseconds(nanoseconds).unix_nanoseconds == nanoseconds


@given(st.text(st.sampled_from("0123456789:٣\u06f3 _+\n"), max_size=22) | tais.map(str))
def test_tai_text(text: str) -> None:
    if oracle.is_tai(text):
        assert Tai(text) == text
    else:
        with pytest.raises(TaiError):
            Tai(text)


@given(st.text())
def test_nfc(text: str) -> None:
    normal = normalize_nfc(text)
    assert normal == unicodedata2.normalize("NFC", text)
    assert is_nfc(normal)
    assert is_nfc(text) is (normal == text)


@given(st.text(st.characters() | st.sampled_from([*BIDI, "\x1b", "\x9b", "\n", "\u2028", "\xad"])))
def test_safe_text_shows_everything_and_hides_nothing(text: str) -> None:
    shown = safe_text(text)
    for character in shown:
        assert unicodedata2.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert character not in BIDI
    assert safe_text(shown) == shown
    shown.encode("utf-8")
    if text.isascii() and text.isprintable():
        assert shown == text


@given(st.text(max_size=80), st.integers(1, 70))
def test_shorten(text: str, limit: int) -> None:
    shown = shorten(text, limit)
    assert len(shown) <= limit
    assert (shown == text) is (len(text) <= limit)
    head, _, tail = shown.partition("…")
    assert text.startswith(head) or shown == text
    assert text.endswith(tail) or shown == text


@given(st.sampled_from([name for name, *_ in describe_settings()]), st.text() | st.integers())
def test_a_setting_is_in_range_or_refused(name: str, value: str | int) -> None:
    try:
        number = parse_setting(name, value)
    except SettingError:
        return
    assert getattr(Settings(**{name: number}), name) == number


@given(
    st.integers(0, 10**6),
    st.integers(0, 999),
    st.sampled_from(["", " "]),
    st.sampled_from(["KiB", "kb", "MiB", "mB", "GiB", "GB"]),
)
def test_sizes_are_exact(whole: int, thousandths: int, space: str, unit: str) -> None:
    base = 1024 if "i" in unit else 1000
    factor = base ** ("kmg".index(unit[0].lower()) + 1)
    expected = (whole * 1000 + thousandths) * factor // 1000
    text = f"{whole}.{thousandths:03d}{space}{unit}"
    try:
        assert parse_setting("max_data_bytes", text) == expected
    except SettingError:
        assert expected > 900 << 20
