"""Records out of a lace: get, export, remove."""

from __future__ import annotations

import base64
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from lace.record.model import Plex, Seal
from tests.cli.running import LIMITED, call, process

if TYPE_CHECKING:
    from pathlib import Path

    from lace.api import SigningKey
    from lace.record.model import Blob

    Records = list[Blob | Plex | Seal]


def test_get_by_hash_and_by_coordinate(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    newest = records[3]
    for name in (newest.id, f"////{newest.id}", "//u//notes//a", "//u//notes//a/|/seal"):
        assert call("get", name).raw == newest.bytes, name
    assert call("get", "//u//notes//a", "--body").raw == b"newer"
    older = f"//u//notes//a/|/seal/{records[2].signed_by}/1700000000:000000001"  # type: ignore[union-attr]
    assert call("get", older, "--body").raw == b"old"


def test_get_as_json(filled: Path, records: Records, key: SigningKey) -> None:
    assert filled.is_dir()
    seal = records[3]
    assert isinstance(seal, Seal)
    assert call("get", seal.id, "--json").json() == {
        "id": seal.id,
        "type": "S",
        "group": "u",
        "app": "notes",
        "name": "a",
        "tai": "1700000000:000000003",
        "headers": [],
        "signed_by": key.verifier,
        "signature": seal.signature,
        "blob": seal.plex.blob.id,
        "plex": seal.plex.id,
        "data_length": 5,
    }
    blob = call("get", records[0].id, "--json", "--body").json()
    assert blob["type"] == "B"
    assert blob["group"] is blob["signed_by"] is blob["blob"] is blob["plex"] is None
    assert base64.b64decode(blob["data_base64"]) == b"picture"
    plex = call("get", records[1].id, "--json").json()
    assert plex["headers"] == [
        ["+Link", f"shows {records[0].id}"],
        ["It's", "a \\ b"],
        ["Tag", "x"],
        ["Tag", "y"],
    ]


def test_get_of_what_is_not_there(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    embedded = records[1].blob.id  # type: ignore[union-attr]
    for name in (embedded, "//u//notes//none", "//u//notes//b/|/seal"):
        done = call("get", name)
        assert (done.code, done.raw) == (1, b"")
    assert call("get", "nonsense").code == 2
    assert call("get", "//u//notes").code == 2
    assert call("get").code == 2


def test_get_into_a_file(filled: Path, records: Records, tmp_path: Path) -> None:
    assert filled.is_dir()
    target = tmp_path / "out.bin"
    target.write_bytes(b"x" * 1000)
    target.chmod(0o640)
    assert call("get", records[0].id, "-o", target).raw == b""
    assert target.read_bytes() == records[0].bytes
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert call("get", records[0].id, "-o", tmp_path).code == 2
    assert call("get", records[0].id, "-o", tmp_path / "no" / "where").code == 2
    assert call("get", records[0].id, "-o", target, "--json").code == 2
    link = tmp_path / "link"
    link.symlink_to(target)
    assert call("get", records[1].id, "--body", "-o", link).code == 0
    assert link.is_symlink()
    assert target.read_bytes() == b"second"
    assert call("get", records[0].id, "-o", "/dev/null").code == 0


def test_export_all_is_in_the_order_of_storing(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("export", "--all")
    assert (done.code, done.raw) == (0, b"".join(record.bytes for record in records))


def test_export_follows_its_arguments(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("export", "//u//notes//b", records[0].id, records[0].id)
    assert done.raw == records[1].bytes + records[0].bytes


def test_export_listing(filled: Path, records: Records, tmp_path: Path) -> None:
    assert filled.is_dir()
    done = call("export", "--all", "--json", "-o", tmp_path / "out")
    raw = (tmp_path / "out").read_bytes()
    listed = done.json_lines()
    assert [entry["id"] for entry in listed] == [record.id for record in records]
    for entry, record in zip(listed, records, strict=True):
        assert raw[entry["offset"] : entry["offset"] + entry["bytes"]] == record.bytes
    assert "wrote 4 records" in done.err
    assert call("export", "--all", "-o", tmp_path / "out", "--quiet").err == ""


def test_export_of_nothing(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    assert call("export", "--all", "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_bytes() == b""


def test_a_missing_record_leaves_no_file(filled: Path, records: Records, tmp_path: Path) -> None:
    assert filled.is_dir()
    target = tmp_path / "out"
    target.write_bytes(b"before")
    done = call("export", records[0].id, "//u//notes//none", "//u//notes//nor", "-o", target)
    assert done.code == 1
    assert "//u//notes//none, //u//notes//nor" in done.err
    assert target.read_bytes() == b"before"
    assert call("export", records[0].id, "//u//notes//none").raw == b""


def test_export_usage(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    assert call("export").code == 2
    assert call("export", "--all", records[0].id).code == 2
    assert call("export", "--all", "--json").code == 2
    assert call("export", "bad", "--all").code == 2


def test_export_to_a_full_disk(filled: Path, tmp_path: Path) -> None:
    call("put", given=b"x" * 100_000)
    target = tmp_path / "out"
    target.write_bytes(b"before")
    done = process(
        "--lace", filled, "export", "--all", "-o", target,
        prefix=(sys.executable, "-c", LIMITED, "50000"),
    )  # fmt: skip
    assert done.code == 3
    assert "out cannot be written" in done.err
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_export_and_import_copy_a_lace(filled: Path, tmp_path: Path) -> None:
    assert filled.is_dir()
    bytes_out = call("export", "--all").raw
    assert call("--lace", tmp_path / "copy", "init").code == 0
    assert call("--lace", tmp_path / "copy", "import", "-", given=bytes_out).lines[0] == "stored 4"
    assert call("--lace", tmp_path / "copy", "facts").raw == call("facts").raw


def test_remove(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("remove", records[0].id, f"////{records[0].id}", "//u//notes//b", "--yes")
    assert (done.code, done.lines) == (0, ["removed 2"])
    assert f"the newest version of //u//notes//b is {records[1].id}" in done.err
    assert call("status", "--json").json()["records"] == 2


def test_remove_wants_to_be_confirmed(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("remove", records[0].id)
    assert (done.code, done.raw) == (2, b"")
    assert done.err == "lace: removing records wants to be confirmed; add --yes\n"
    assert call("status", "--json").json()["records"] == 4


def test_remove_takes_the_tip_of_a_coordinate(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("remove", "//u//notes//a", "--json", "--yes")
    assert done.json() == {"removed": 1, "ids": [records[3].id]}
    assert call("get", "//u//notes//a", "--body").raw == b"old"


def test_remove_is_all_or_nothing(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    assert call("remove", records[0].id, "//u//notes//none", "--yes").code == 1
    assert call("remove", records[0].id, "nonsense", "--yes").code == 2
    assert call("remove").code == 2
    assert call("status", "--json").json()["records"] == 4


def test_a_removed_number_is_not_used_again(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    call("remove", records[3].id, "--yes")
    call("put", given=b"later")
    shown = call("list", "--fields", "stored", "--sort", "stored").lines
    assert shown == ["1", "2", "3", "5"]


@pytest.mark.parametrize("command", ["get", "export", "remove", "facts"])
def test_a_record_argument_may_narrow_a_coordinate(
    filled: Path, records: Records, command: str
) -> None:
    assert filled.is_dir()
    plex = records[1]
    assert isinstance(plex, Plex)
    more = ["--yes"] if command == "remove" else []
    assert call(command, f"//u//notes//b/|/plex/{plex.tai}/{plex.id}", *more).code == 0
