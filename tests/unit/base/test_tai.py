"""TAI instants as texts."""

from __future__ import annotations

import copy
import pickle

import pytest

from lace.base.tai import TAI_UNIX_SECONDS, Tai, TaiError


def test_an_instant_is_its_text() -> None:
    instant = Tai("1640995237:000000001")
    assert instant == "1640995237:000000001"
    assert str(instant) == "1640995237:000000001"
    assert f"{instant}" == "1640995237:000000001"
    assert repr(instant) == "Tai('1640995237:000000001')"
    assert Tai(instant) is instant
    assert hash(instant) == hash("1640995237:000000001")


def test_a_clock_reading_adds_37_seconds() -> None:
    assert TAI_UNIX_SECONDS == 37
    assert Tai.from_unix_nanoseconds(1_640_995_200_000_000_001) == "1640995237:000000001"
    assert Tai("1640995237:000000001").unix_nanoseconds == 1_640_995_200_000_000_001


def test_arithmetic_is_exact() -> None:
    instant = Tai("9007199254:740993001")
    assert instant.nanoseconds == 9_007_199_254_740_993_001
    assert instant.shift(1) == "9007199254:740993002"
    assert instant.shift(-740_993_002) == "9007199253:999999999"
    assert Tai("0000000000:000000000").shift(0) == "0000000000:000000000"


@pytest.mark.parametrize("shift", [-1, 10**19])
def test_what_does_not_fit_is_refused(shift: int) -> None:
    with pytest.raises(TaiError) as caught:
        Tai("0000000000:000000000").shift(shift)
    assert caught.value.rule == "010-tai"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1640995237",
        "164099523:000000001",
        "1640995237:00000001",
        "1640995237:0000000011",
        "1640995237.000000001",
        "1640995237:000000001\n",
        " 1640995237:000000001",
        "+640995237:000000001",
        "1640995_37:000000001",
        "\u0661640995237:000000001",
        "\uff11640995237:000000001",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(TaiError) as caught:
        Tai(text)
    assert caught.value.rule == "010-tai"
    assert repr(text) in caught.value.message


def test_copies_and_pickles() -> None:
    instant = Tai("1640995237:000000001")
    for twin in (copy.copy(instant), copy.deepcopy(instant), pickle.loads(pickle.dumps(instant))):  # noqa: S301
        assert type(twin) is Tai
        assert twin == instant
