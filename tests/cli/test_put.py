"""One record into a lace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace, parse_record
from lace.record.model import Blob, Plex, Seal
from tests.cli.running import Result, call

if TYPE_CHECKING:
    from pathlib import Path

COORDINATE = ("--group", "u", "--app", "notes", "--name", "a/b")


def stored(folder: Path, identifier: str) -> Blob | Plex | Seal:
    with open_lace(folder, create=False) as lace, lace.snapshot() as snapshot:
        raw = snapshot.read(identifier)
    assert raw is not None
    return parse_record(raw)


def test_a_blob_from_standard_input_and_from_a_file(folder: Path, tmp_path: Path) -> None:
    data = b"\x00\xff\n marker \xf0\x9f\x96\xa7: "
    (tmp_path / "data").write_bytes(data)
    identifier = Blob(data).id
    assert call("put", given=data).lines == [identifier]
    for source in ("-", tmp_path / "data"):
        again = call("put", source, given=data, env={})
        assert again.lines == [identifier]
        assert "already" in again.err
    assert stored(folder, identifier) == Blob(data)


def test_json_tells_whether_it_is_new(folder: Path) -> None:
    assert folder.is_dir()
    made = call("put", "--json", given=b"x").json()
    assert made == {
        "id": Blob(b"x").id,
        "type": "B",
        "bytes": len(Blob(b"x").bytes),
        "stored": True,
    }
    assert call("put", "--json", given=b"x").json()["stored"] is False


def test_an_empty_blob(folder: Path) -> None:
    assert folder.is_dir()
    assert call("put").lines == [Blob(b"").id]


def test_a_plex(folder: Path) -> None:
    done = call(
        "put", *COORDINATE, "--tai", "1700000000:000000001",
        "--header", "Tag: x: y", "--header", "Author: me", given=b"hi",
    )  # fmt: skip
    expected = Plex(
        group="u",
        app="notes",
        name="a/b",
        data=b"hi",
        tai="1700000000:000000001",
        headers=[("Author", "me"), ("Tag", "x: y")],
    )
    assert done.lines == [expected.id]
    assert stored(folder, expected.id) == expected


def test_a_seal(folder: Path, verifier: str) -> None:
    other = call("key", "new").lines[0]
    for signer, options in ((verifier, ["--sign"]), (other, ["--key", other])):
        record = stored(folder, call("put", *COORDINATE, *options, given=b"hi").lines[0])
        assert isinstance(record, Seal)
        assert record.signed_by == signer


def test_the_clock_gives_the_time(folder: Path) -> None:
    first = stored(folder, call("put", *COORDINATE, given=b"1").lines[0])
    second = stored(folder, call("put", *COORDINATE, given=b"2").lines[0])
    assert isinstance(first, Plex)
    assert isinstance(second, Plex)
    assert "1700000000:000000000" < first.tai < second.tai


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--group", "u"], "--app and --name missing"),
        (["--group", "u", "--name", "n"], "--app missing"),
        (["--tai", "1700000000:000000001"], "--tai needs a coordinate"),
        (["--header", "A: b", "--sign"], "--header and --sign need a coordinate"),
        (["--key", "V.x"], "--key needs a coordinate"),
        ([*COORDINATE, "--header", "nothing"], "write 'Name: value'"),
        ([*COORDINATE, "--key", "V.x"], "is not a verifier"),
        (["missing.txt"], "missing.txt cannot be read: No such file"),
        (["."], "Is a directory"),
    ],
)
def test_wrong_usage(folder: Path, options: list[str], told: str) -> None:
    assert folder.is_dir()
    done = call("put", *options, given=b"x")
    assert done.code == 2
    assert told in done.err
    assert done.raw == b""


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--group", "a//b", "--app", "a", "--name", "n"], "010-path"),
        (["--group", "e\u0301", "--app", "a", "--name", "n"], "010-path"),
        ([*COORDINATE, "--tai", "soon"], "010-tai"),
        ([*COORDINATE, "--header", "Type: x"], "010-extra-reserved"),
        ([*COORDINATE, "--header", "A:  b"], "010-header-form"),
        ([*COORDINATE, "--header", f"A: {'x' * 1100}"], "010-line-length"),
    ],
)
def test_what_no_record_may_have_is_refused(folder: Path, options: list[str], rule: str) -> None:
    assert folder.is_dir()
    done = call("put", *options, given=b"x")
    assert done.code == 1
    assert f"[{rule}]" in done.err
    assert "lace: " in done.err


def test_signing_without_a_key(folder: Path) -> None:
    assert folder.is_dir()
    done = call("put", *COORDINATE, "--sign", given=b"x")
    assert done.code == 1
    assert "lace key new" in done.err


def test_data_above_the_limit(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    (tmp_path / "large").write_bytes(b"x" * 11)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(2 << 30)  # 2 GiB that are refused unread

    def check(done: Result) -> None:
        assert done.code == 1
        assert "[010-size-limit]" in done.err
        assert "--set max_data_bytes=N" in done.err

    check(call("put", tmp_path / "large", "--set", "max_data_bytes=10"))
    check(call("put", "--set", "max_data_bytes=10", given=b"x" * 11))
    check(call("put", sparse))
    assert call("put", tmp_path / "large", "--set", "max_data_bytes=11").code == 0
