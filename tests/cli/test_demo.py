"""The demonstration: the whole story, with real processes, and what is left of it."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

import pytest

from lace.cli import demo_story
from tests.cli.running import Result, call, clean_environment, spawn

if TYPE_CHECKING:
    from pathlib import Path

FEW_BYTES = 1000
MOST_SECONDS = 300


@pytest.mark.slow
@pytest.mark.spark
def test_the_whole_story(tmp_path: Path) -> None:
    """In a pipe, as in CI, with Spark; nothing is left behind."""
    started = spawn("demo", env=clean_environment(TMPDIR=str(tmp_path)))
    out, err = started.communicate(timeout=MOST_SECONDS)
    done = Result(started.returncode, out, err.decode("utf-8"))
    assert (done.code, done.err) == (0, "")
    for command in ("init", "key new", "put", "list", "disclose", "preview", "import"):
        assert f".lace {command}" in done.out, command
    assert "20,000 records came in 3 loops" in done.out
    assert "not o0_Blocked(V)" in done.out, "the spam stays because its signer is blocked"
    assert done.out.count("20,005 records are selected") == 2, "by both engines"
    assert '--header "Key: $BOB"' in done.out, "as it can be typed"
    assert "Three commands to try next" in done.out
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few readings, and no Spark."""
    monkeypatch.setattr(demo_story, "READINGS", 30)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


@pytest.mark.usefixtures("few")
def test_what_it_finds(tmp_path: Path) -> None:
    done = call("demo", "--json", "--keep", tmp_path / "club")
    found = json.loads(done.out)
    assert (done.code, found["received"], found["loops"]) == (0, 30, 3)
    assert found["bait_learned"] is False
    assert 0 < found["again_bytes"] < FEW_BYTES
    assert (found["selected"], found["spark_set_digest"]) == (35, None)
    assert found["folder"] == str(tmp_path / "club")
    names = {each.name for each in (tmp_path / "club").iterdir()}
    assert {"alice.lace", "bob.lace", "club.lace", "view.lace", "bait.lace"} <= names
    kept = call("--lace", tmp_path / "club" / "alice.lace", "list", "--json")
    assert len(kept.lines) == 36, "and the diary"


def test_a_folder_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        refused = call("demo", "--keep", place)
        assert refused.code == 2
        assert "is not an empty folder" in refused.err


@pytest.mark.usefixtures("few")
def test_a_story_that_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what failed; the folder goes away all the same."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(demo_story, "_VIEW", "AllowQueryRecord(V,P) :- nonsense")
    failed = call("demo")
    assert failed.code == 1
    assert "view.lace:1:18: head variable V is not bound" in failed.err
    assert "disclose --expose" in failed.out.splitlines()[-1], "what was tried stands last"
    assert list(tmp_path.iterdir()) == []
