"""Making a lace, looking at it, its log, its settings; doctor."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.api.system import settings_template
from lace.base.limits import DEFAULT_SETTINGS, describe_settings
from lace.cli.output import time_text
from lace.errors import StoreError
from lace.store.sqlite.store import SqliteStore
from tests.cli.running import call, on_terminal

if TYPE_CHECKING:
    from pathlib import Path


def test_init_makes_a_lace_once(tmp_path: Path) -> None:
    first = call("init")
    assert (first.code, first.lines) == (0, [str(tmp_path / ".lace")])
    before = (tmp_path / ".lace" / "lace.toml").read_text("utf-8")
    again = call("init", "--json")
    assert again.code == 0
    assert again.json() == {"lace": str(tmp_path / ".lace"), "created": False}
    assert (tmp_path / ".lace" / "lace.toml").read_text("utf-8") == before
    assert "is a lace already" in call("init").err


def test_init_keeps_settings_that_are_there(folder: Path) -> None:
    (folder / "lace.toml").write_text("wait_seconds = 3\n")
    assert call("init").code == 0
    assert (folder / "lace.toml").read_text() == "wait_seconds = 3\n"


@pytest.mark.parametrize("how", ["argument", "option", "variable"])
def test_init_elsewhere(tmp_path: Path, how: str) -> None:
    place = str(tmp_path / "new" / "one.lace")
    done = {
        "argument": lambda: call("init", place),
        "option": lambda: call("--lace", place, "init"),
        "variable": lambda: call("init", env={"LACE_DIR": place}),
    }[how]()
    assert done.lines == [place]
    assert call("status", "--lace", place).code == 0
    assert not (tmp_path / ".lace").exists()
    assert call("init", "x", "--lace", place).code == 2


def test_init_refuses_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    done = call("init", "photos")
    assert done.code == 2
    assert "something else" in done.err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]


@pytest.mark.parametrize("name", ["file", "file/deeper"])
def test_a_file_is_no_place_for_a_lace(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for arguments in (["init"], ["status"], ["config", "show"], ["put"]):
        done = call("--lace", name, *arguments)
        assert done.code == 2
        assert done.err == "lace: file is not a folder; name a folder for the lace\n"
    assert call("init", name).code == 2
    done = call("--lace", name, "doctor")
    assert "problem\tlace\tfile is not a folder\tname a folder for the lace" in done.lines
    assert done.code == 3


def test_the_settings_file_lists_every_default() -> None:
    assert tomllib.loads(settings_template()) == {}
    changed = re.sub(r"^#(\w+ = )", r"\1", settings_template(), flags=re.MULTILINE)
    names = [name for name, _meaning, _unit in describe_settings()]
    found = {name: getattr(DEFAULT_SETTINGS, name) for name in names}
    assert tomllib.loads(changed) == {
        name: value if isinstance(value, int) else list(value) for name, value in found.items()
    }


def test_status(filled: Path, verifier: str) -> None:
    assert filled.is_dir()
    shown = call("status", "--json").json()
    assert (shown["records"], shown["high_water"], shown["keys"]) == (4, 4, 1)
    assert shown["default_key"] == verifier
    assert shown["store_version"] == 3
    assert shown["database_bytes"] > 0
    assert [operation["command"] for operation in shown["operations"]] == ["key new"]
    *lines, last = [line.split("\t") for line in call("status").lines]
    values = {name: value for name, value in lines}
    assert values["records"] == "4"
    assert set(values) == set(shown) - {"operations"}
    assert last == ["operation", shown["operations"][0]["finished"], "key new", "0"]


def test_changes_leave_log_entries(tmp_path: Path, file: Path) -> None:
    call("init")
    verifier = call("key", "new").lines[0]
    blob = call("put", given=b"very private data").lines[0]
    call("import", file)
    file.write_bytes(file.read_bytes() + b"garbage")
    assert call("import", file).code == 1
    call("remove", blob, "--yes")
    assert call("remove", blob, "--yes").code == 1
    call("key", "default", verifier)
    call("verify")
    call("list")
    assert call("put", tmp_path / "missing").code == 2
    entries = call("log", "--json").json_lines()
    assert [(entry["command"], entry["exit_code"]) for entry in entries] == [
        ("init", 0),
        ("key new", 0),
        ("put", 0),
        ("import", 0),
        ("import", 1),
        ("remove", 0),
        ("remove", 1),
        ("key default", 0),
        ("verify", 0),
    ]
    assert entries[2]["result"]["id"] == blob
    assert entries[3]["result"] == {
        "files": ["some.records"],
        "known": 0,
        "rejected": 0,
        "stored": 4,
    }
    assert all(entry["started"] <= entry["finished"] for entry in entries)
    assert "private" not in call("log").out
    assert [e["operation"] for e in call("log", "--limit", 2, "--json").json_lines()] == [8, 9]
    number, started, _finished, name, code, result = call("log", "--limit", 1).lines[0].split("\t")
    assert (number, name, code) == ("9", "verify", "0")
    assert started == entries[-1]["started"]
    assert json.loads(result) == {"damaged": 0, "records": 4}


def test_a_log_that_fails_hides_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_store: SqliteStore, _operation: object) -> None:
        raise StoreError("no log today")

    monkeypatch.setattr(SqliteStore, "append_operation", fail)
    done = call("put", given=b"x")
    assert done.code == 0
    assert done.out.startswith("B.")
    assert "no log today" in done.err
    with open_lace(folder) as lace:
        assert len(lace) == 1


def test_config_show() -> None:
    done = call("config", "show")
    assert done.code == 0
    assert "no lace here" in done.err
    rows = [line.split("\t") for line in done.lines]
    assert [row[0] for row in rows] == [name for name, _m, _u in describe_settings()]
    assert rows[0] == [
        "max_data_bytes",
        "33554432",
        "bytes",
        "default",
        "largest Blob data that is read or stored",
    ]


def test_doctor(filled: Path, verifier: str) -> None:
    checks = {check["name"]: check for check in call("doctor", "--json").json()["checks"]}
    for name in ("Python", "blake3", "coincurve", "apsw", "unicodedata2", "numpy", "click", "rich",
                 "websockets", "lace", "folder", "keys", "disk space", "WAL"):  # fmt: skip
        assert checks[name]["state"] == "ok", checks[name]
    assert "SQLite 3" in checks["apsw"]["found"]
    assert "Unicode" in checks["unicodedata2"]["found"]
    for name in ("pyspark", "pyarrow", "Java"):
        assert checks[name]["state"] in ("ok", "optional")
    assert "4 records" in checks["lace"]["found"]
    narrow = on_terminal("--lace", filled, "doctor", "--no-color", columns=40).out
    assert "state  ok" in narrow
    assert call("doctor").code == 0
    secret = filled / "keys" / f"{verifier}.secret"
    secret.chmod(0o644)
    bad = call("doctor")
    assert bad.code == 3
    assert f"problem\tkey file\t{secret} has mode 0644\tchmod 600 '{secret}'" in bad.lines
    assert not [path for path in filled.iterdir() if path.name.startswith(".doctor")]


def test_doctor_without_a_lace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("doctor")
    assert done.code == 0
    assert "optional\tlace\tnone here, nor above\tmake one: lace init" in done.lines


@pytest.mark.parametrize("text", ["wait_seconds = [", "wait_seconds = 'long'", "wait_secs = 1"])
def test_doctor_tells_wrong_settings(filled: Path, text: str) -> None:
    (filled / "lace.toml").write_text(text)
    done = call("doctor")
    assert done.code == 3
    (line,) = [line.split("\t") for line in done.lines if line.startswith("problem")]
    assert line[1] == "settings"
    assert line[2].startswith(str(filled / "lace.toml"))
    assert line[3] == f"correct {filled / 'lace.toml'}"
    assert "lace verify" not in done.out
    (filled / "lace.toml").unlink()
    other = call("doctor", env={"LACE_WAIT_SECONDS": "soon"})
    (line,) = [line.split("\t") for line in other.lines if line.startswith("problem")]
    assert line[2].startswith("environment LACE_WAIT_SECONDS: ")


def test_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lace.api.doctor._NEEDED", ("no_such_library",))
    done = call("doctor")
    assert done.code == 3
    assert any(line.startswith("missing\tno_such_library\t") for line in done.lines)


def test_lace_folders_are_private(tmp_path: Path) -> None:
    call("init")
    assert stat.S_IMODE((tmp_path / ".lace").stat().st_mode) == 0o700


def test_times() -> None:
    assert time_text("1640995237:999999999") == "2022-01-01 00:00:00"
    assert time_text("0000000000:000000000") == "1969-12-31 23:59:23"
    assert time_text("9999999999:000000000").startswith("2286-")
    assert time_text("soon") == "soon"
