"""Paths, coordinates and addresses."""

from __future__ import annotations

import pytest

from lace.base.tai import Tai
from lace.record.ids import RecordId, Verifier
from lace.record.paths import (
    Address,
    AddressError,
    Coordinate,
    PathError,
    check_path,
    format_address,
    parse_address,
)

ZERO = "0" * 43
PLEX, SEAL, SIGNER = f"P.{ZERO}.H3", f"S.{ZERO}.H3", f"V.{ZERO}.H3"
TAI = "1640995237:000000000"


@pytest.mark.parametrize("text", ["a", "a/b/c", "...", ".a", "a.", "a b", "é", "\U0001f5a7", "-"])
def test_paths(text: str) -> None:
    check_path("Name", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("/", "begins or ends with a slash"),
        ("/a", "begins or ends with a slash"),
        ("a/", "begins or ends with a slash"),
        ("a//b", "has an empty segment"),
        (".", "has the segment '.'"),
        ("a/..", "has the segment '..'"),
        ("../a", "has the segment '..'"),
        ("a|b", "holds '|', which no path may"),
        ("a{b", "holds '{'"),
        ("a}b", "holds '}'"),
        ("a#b", "holds '#'"),
        ("a\nb", "holds a control character"),
        ("a\n", "holds a control character"),
        ("a\x7f", "holds a control character"),
        ("e\u0301", "is not in Unicode normalisation form C"),
    ],
)
def test_what_is_no_path(text: str, said: str) -> None:
    with pytest.raises(PathError) as caught:
        check_path("Group", text)
    assert caught.value.message.startswith(f"Group {text!r} ")
    assert said in caught.value.message
    assert caught.value.rule == "010-path"


@pytest.mark.parametrize("bad", range(3))
def test_a_coordinate_has_three_paths(bad: int) -> None:
    parts = ["u", "ding", "links/1"]
    assert str(Coordinate(*parts)) == "//u//ding//links/1"
    assert Coordinate("a", "b", "c") < Coordinate("a", "b", "d")
    parts[bad] = "/"
    with pytest.raises(PathError, match=("Group", "App", "Name")[bad]):
        Coordinate(*parts)


U = Coordinate("u", "ding", "links/1")
ADDRESSES = [
    ("////" + PLEX, Address(hash=RecordId(PLEX))),
    ("//u//ding//links/1", Address(coordinate=U)),
    ("//u//ding//links/1/|/plex", Address(coordinate=U, type="P")),
    (f"//u//ding//links/1/|/plex/{TAI}", Address(coordinate=U, type="P", tai=Tai(TAI))),
    (
        f"//u//ding//links/1/|/plex/{TAI}/{PLEX}",
        Address(coordinate=U, type="P", tai=Tai(TAI), hash=RecordId(PLEX)),
    ),
    ("//u//ding//links/1/|/seal", Address(coordinate=U, type="S")),
    (
        f"//u//ding//links/1/|/seal/{SIGNER}",
        Address(coordinate=U, type="S", signed_by=Verifier(SIGNER)),
    ),
    (
        f"//u//ding//links/1/|/seal/{SIGNER}/{TAI}",
        Address(coordinate=U, type="S", signed_by=Verifier(SIGNER), tai=Tai(TAI)),
    ),
    (
        f"//u//ding//links/1/|/seal/{SIGNER}/{TAI}/{SEAL}",
        Address(
            coordinate=U,
            type="S",
            signed_by=Verifier(SIGNER),
            tai=Tai(TAI),
            hash=RecordId(SEAL),
        ),
    ),
]


@pytest.mark.parametrize(("text", "address"), ADDRESSES, ids=[text for text, _ in ADDRESSES])
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert format_address(address) == text


def test_a_bare_hash_is_an_address() -> None:
    assert parse_address(SEAL) == Address(hash=RecordId(SEAL))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "020-01"),
        ("u/ding/x", "020-01"),
        ("/", "020-01"),
        ("////", "020-01"),
        ("////x", "020-01"),
        (f"////{SIGNER}", "020-01"),
        ("//", "010-address"),
        ("//u", "010-address"),
        ("//u//ding", "010-address"),
        ("//u//ding//x//y", "010-address"),
        ("//u//ding//", "010-path"),
        ("//u//ding//a/../b", "010-path"),
        ("//u//ding//a|b", "010-path"),
        ("//u//ding//x/|/", "010-address"),
        ("//u//ding//x/|/blob", "010-address"),
        ("//u//ding//x/|/plex/", "010-tai"),
        (f"//u//ding//x/|/plex/{TAI}/{SEAL}", "010-address"),
        (f"//u//ding//x/|/plex/{TAI}/{PLEX}/more", "010-address"),
        (f"//u//ding//x/|/seal/{TAI}", "009-verifier"),
        (f"//u//ding//x/|/seal/{SIGNER}/{TAI}/{PLEX}", "010-address"),
        (f"//u//ding//x/|/seal/{SIGNER}/{TAI}/{SEAL}/more", "010-address"),
    ],
)
def test_what_is_no_address(text: str, rule: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    assert caught.value.rule == rule
    assert caught.value.hint
    assert caught.value.exit_code == 2
