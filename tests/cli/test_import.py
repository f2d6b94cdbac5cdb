"""Records from files: counts, reports, bad files, a full disk."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.record.model import MARKER, Plex
from tests.cli.running import LIMITED, call, process, spawn
from tests.cli.screens import at_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Seal


def test_counts(folder: Path, file: Path) -> None:
    assert folder.is_dir()
    assert call("import", file).lines == ["stored 4", "known 0", "rejected 0"]
    again = call("import", file, file)
    assert (again.code, again.lines) == (0, ["stored 0", "known 8", "rejected 0"])


def test_from_standard_input(folder: Path, file: Path) -> None:
    assert folder.is_dir()
    done = call("import", "-", given=file.read_bytes())
    assert (done.code, done.lines[0]) == (0, "stored 4")
    assert call("import", "-", "-").code == 2


def test_json_sums_over_files(folder: Path, file: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    bad = tmp_path / "bad"
    bad.write_bytes(b"not a record at all")
    done = call("import", "--json", file, bad)
    assert done.code == 1
    shown = done.json()
    (error,) = shown["files"][1].pop("errors")
    assert shown == {
        "stored": 4,
        "known": 0,
        "rejected": 1,
        "files": [
            {"file": str(file), "stored": 4, "known": 0, "rejected": 0, "errors": []},
            {"file": str(bad), "stored": 0, "known": 0, "rejected": 1},
        ],
    }
    assert error["offset"] == 0
    assert error["rule"] == "010-markline"
    assert f"{bad} is no file of records; `lace put` makes a record of any data" in done.err


def test_a_bad_record_does_not_stop_the_good_ones(
    folder: Path, records: list[Blob | Plex | Seal], tmp_path: Path
) -> None:
    assert folder.is_dir()
    spoiled = bytearray(records[0].bytes)
    spoiled[-1] ^= 1
    path = tmp_path / "mixed"
    path.write_bytes(records[1].bytes + bytes(spoiled) + records[2].bytes)
    done = call("import", path)
    assert done.code == 1
    assert done.lines == ["stored 2", "known 0", "rejected 1"]
    (line,) = done.err.rstrip("\n").split("\n")
    offset = len(records[1].bytes) + len(MARKER)
    assert line.startswith(f"{path}: byte {offset}: ")
    assert "[010-digest]" in line


def test_reports_are_limited(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    spoiled = []
    for number in range(7):
        raw = bytearray(Plex(group="g", app="a", name=str(number), data=b"x").bytes)
        raw[-1] ^= 1
        spoiled.append(bytes(raw))
    path = tmp_path / "bad"
    path.write_bytes(b"".join(spoiled))
    done = call("import", path, "--set", "import_max_reports=3", "--json")
    lines = done.err.rstrip("\n").split("\n")
    assert done.code == 1
    assert len(lines) == 4
    assert lines[-1] == "and 4 more"
    assert len(done.json()["files"][0]["errors"]) == 3
    assert call("import", path, "--set", "import_max_reports=0").err == "and 7 more\n"


def test_a_cut_file(folder: Path, file: Path) -> None:
    assert folder.is_dir()
    file.write_bytes(file.read_bytes()[:-1])
    done = call("import", file)
    assert (done.code, done.lines) == (1, ["stored 3", "known 0", "rejected 1"])
    assert "[010-cut]" in done.err


def test_a_claim_of_much_data(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    path = tmp_path / "liar"
    path.write_bytes(MARKER + b"B." + b"0" * 43 + b".H3\nData-Length: 1000000000000\n\nx")
    done = call("import", path)
    assert (done.code, done.lines[2]) == (1, "rejected 1")


def test_what_holds_something_else_besides_is_a_file_of_records(folder: Path, file: Path) -> None:
    assert folder.is_dir()
    file.write_bytes(b"noise" + file.read_bytes())
    assert "is no file of records" not in call("import", file).err


def test_an_empty_file(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    (tmp_path / "empty").write_bytes(b"")
    done = call("import", tmp_path / "empty")
    assert (done.code, done.lines) == (0, ["stored 0", "known 0", "rejected 0"])
    assert call("import", "-").code == 0


def test_files_are_looked_at_before_anything_is_stored(
    folder: Path, file: Path, tmp_path: Path
) -> None:
    done = call("import", file, "missing-1", tmp_path, "missing-2")
    assert done.code == 2
    lines = done.err.rstrip("\n").split("\n")
    assert len(lines) == 3
    assert lines[0] == "lace: missing-1 cannot be read: No such file or directory"
    assert "it is a folder" in lines[1]
    assert lines[2] == (
        "lace: missing-2 cannot be read: No such file or directory; nothing was imported"
    )
    with open_lace(folder) as lace:
        assert len(lace) == 0


def test_a_pipe_of_its_own_name(folder: Path, file: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    started = spawn("--lace", folder, "import", pipe)
    pipe.write_bytes(file.read_bytes())
    out, _err = started.communicate(timeout=60)
    assert (started.returncode, out) == (0, b"stored 4\nknown 0\nrejected 0\n")


@pytest.mark.requirement("020-41")
def test_embedded_records_are_admitted_when_asked(folder: Path, file: Path) -> None:
    assert folder.is_dir()
    assert call("import", file).lines[0] == "stored 4"
    done = call("import", file, "--admit-embedded")
    assert (done.code, done.lines[0]) == (0, "stored 5")  # two Plexes and three Blobs
    assert call("status", "--json").json()["records"] == 9


def test_a_full_disk_loses_nothing(folder: Path, tmp_path: Path) -> None:
    call("put", given=b"here before")
    path = tmp_path / "many"
    with path.open("wb") as file:
        for number in range(300):
            data = os.urandom(8000)
            file.write(Plex(group="g", app="a", name=str(number), data=data).bytes)
    full = process(
        "--lace", folder, "--set", "import_batch_records=20", "import", path,
        prefix=(sys.executable, "-c", LIMITED, str(1 << 20)),
    )  # fmt: skip
    assert full.code == 3, full.err
    assert "Traceback" not in full.err
    assert "stay; run it again" in full.err
    kept = call("status", "--json").json()["records"]
    assert 1 <= kept < 301
    assert call("verify").code == 0
    rerun = call("import", path)
    assert (rerun.code, rerun.lines[2]) == (0, "rejected 0")
    assert call("status", "--json").json()["records"] == 301
    assert call("verify").code == 0


def test_an_interrupt_at_a_terminal_is_told_once(folder: Path) -> None:
    with at_terminal("--lace", folder, "import", "-", columns=200) as screen:
        screen.wait_for("end with Ctrl-D")
        screen.type(b"\x03")
        assert screen.end() == 130
        told = screen.read()
    assert told.count("run it again") == 1
    assert "lace: interrupted; nothing was stored; run it again to complete it" in told
