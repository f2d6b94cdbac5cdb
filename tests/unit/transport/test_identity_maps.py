"""Map files: what is read, and every refusal with its line and what to do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lace.record.ids import Verifier
from lace.transport.identity_maps import (
    MAX_MAP_BYTES,
    MapError,
    parse_fingerprint_map,
    parse_uid_map,
    read_fingerprint_map,
    read_uid_map,
)

if TYPE_CHECKING:
    from pathlib import Path

A = Verifier.from_public_key(bytes(31) + b"\x01")
B = Verifier.from_public_key(bytes(31) + b"\x02")
PLAIN = "0123456789abcdef" * 4
COLONS = ":".join(PLAIN[at : at + 2] for at in range(0, 64, 2)).upper()


@pytest.mark.requirement("060-128")
def test_users() -> None:
    text = f"# who is who\n\n0 {A}\n1000\t {B}  # Bjørn\n  1001 {B}\n#{A}\n4294967294 {A}".encode()
    assert parse_uid_map(text, "map") == {0: A, 1000: B, 1001: B, 4294967294: A}
    assert parse_uid_map(b"", "map") == {}


@pytest.mark.requirement("060-137")
def test_certificates() -> None:
    text = f"{COLONS} {A}\n{PLAIN.replace('0', 'f')} {B}\n".encode()
    assert parse_fingerprint_map(text, "map") == {PLAIN: A, PLAIN.replace("0", "f"): B}


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (f"01 {A}", "'01' is not a user number", "id -u"),
        (f"-1 {A}", "'-1' is not a user number", "id -u"),
        (f"1_0 {A}", "'1_0' is not a user number", "id -u"),
        (f"4294967295 {A}", "is not a user number", "id -u"),
        (f"root {A}", "'root' is not a user number", "id -u"),
        (f"{PLAIN} {A}", "is not a user number", "id -u"),
        ("7", "a line has a user number and a verifier", "write both"),
        (f"7 {A} {B}", "a line has a user number and a verifier", "write both"),
        ("7 V.abc.H3", "'V.abc.H3' is not a verifier", "43 Base64-Ascend"),
        (f"7 {A}\r", "carriage return", "LF"),
        (f"\N{FULLWIDTH DIGIT ONE} {A}", "the line is not ASCII", "ASCII"),
        (f"7\N{NO-BREAK SPACE}{A}", "the line is not ASCII", "ASCII"),
        (f"5 {B}", "line 1 has the same key", "keep one"),
        (f"5 {A}", "line 1 has the same key", "keep one"),
    ],
)
def test_refused_lines(line: str, message: str, hint: str) -> None:
    with pytest.raises(MapError) as caught:
        parse_uid_map(f"5 {A}\n\n{line}\n".encode(), "users.map")
    assert str(caught.value).startswith("users.map:3: ")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "key", ["5", PLAIN[1:], PLAIN + "0", COLONS[:-1], "g" * 64, COLONS + ":00"]
)
def test_refused_fingerprints(key: str) -> None:
    with pytest.raises(MapError, match=r"is not a fingerprint.*openssl x509"):
        parse_fingerprint_map(f"{key} {A}".encode(), "map")


def test_two_spellings_of_a_fingerprint_are_one() -> None:
    with pytest.raises(MapError, match="map:2: line 1 has the same key"):
        parse_fingerprint_map(f"{PLAIN} {A}\n{COLONS} {B}".encode(), "map")


def test_all_that_is_wrong_is_told() -> None:
    with pytest.raises(MapError, match=r"map:1: .*\(and 2 more\)") as caught:
        parse_uid_map(b"a b\n1\n# \xff\n", "map")
    assert [finding.place.line for finding in caught.value.findings] == [1, 2, 3]
    assert "the comment is not UTF-8" in str(caught.value.findings[2])


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"5 {A}\n")
    path.chmod(0o644)
    assert read_uid_map(path) == {5: A}
    with pytest.raises(MapError, match=f"{path}:1: '5' is not a fingerprint"):
        read_fingerprint_map(path)
    path.chmod(0o666)
    with pytest.raises(MapError, match="can be written by everyone; run `chmod o-w"):
        read_uid_map(path)
    with pytest.raises(MapError, match=r"cannot be read: No such file.*check the path"):
        read_uid_map(tmp_path / "missing")
    with pytest.raises(MapError, match="is not a file"):
        read_uid_map(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MapError, match="is not a file"):
        read_uid_map(tmp_path / "pipe")
    path.write_bytes(b"#" * (MAX_MAP_BYTES + 1))
    path.chmod(0o600)
    with pytest.raises(MapError, match="has more than"):
        read_uid_map(path)
