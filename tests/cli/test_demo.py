"""The demonstration: the whole story, with real processes, and what is left of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from lace.cli import demo as demo_story
from tests.cli.documented import check_documented
from tests.cli.groups import started_group
from tests.cli.running import Result, call, clean_environment, on_terminal, spawn
from tests.cli.screens import at_terminal, visible_lines

if TYPE_CHECKING:
    from pathlib import Path

FEW_BYTES = 1000
MOST_SECONDS = 300


@pytest.mark.slow
@pytest.mark.spark
def test_the_whole_story(tmp_path: Path, java_options: str) -> None:
    """In a pipe, as in CI, with Spark; nothing is left behind."""
    env = clean_environment(TMPDIR=str(tmp_path), SPARK_SUBMIT_OPTS=java_options)
    with spawn("demo", env=env) as started:
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
    assert "Everything is in a temporary folder" in done.out
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
    check_documented("demo", [found], whole=True)
    assert (done.code, found["received"], found["loops"]) == (0, 30, 3)
    assert found["bait_learned"] is False
    assert 0 < found["again_bytes"] < FEW_BYTES
    assert (found["selected"], found["spark_set_digest"]) == (35, None)
    assert found["folder"] == str(tmp_path / "club")
    names = {each.name for each in (tmp_path / "club").iterdir()}
    assert {"alice.lace", "bob.lace", "club.lace", "view.lace", "bait.lace"} <= names
    kept = call("--lace", tmp_path / "club" / "alice.lace", "list", "--json")
    assert len(kept.lines) == 36, "and the diary"


# What a terminal makes of the story: lines that were written over are gone.
FEW = (
    "import importlib.util, sys; from lace.cli import demo, main; "
    "demo.READINGS = 300; importlib.util.find_spec = lambda name, package=None: None; "
    "main.main()"
)


def shown_at_terminal(*arguments: object, columns: int) -> str:
    """The story with few readings and without Spark, as it is seen; no colours."""
    prefix = (sys.executable, "-c", FEW)
    done = on_terminal(*arguments, columns=columns, env={"NO_COLOR": "1"}, program=prefix)
    assert done.code == 0, done.out
    return "\n".join(visible_lines(done.out))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 40])
def test_the_story_fits_the_terminal(tmp_path: Path, columns: int) -> None:
    shown = shown_at_terminal("demo", "--keep", tmp_path / "club", columns=columns)
    lines = shown.split("\n")
    assert "\\" not in {line.strip() for line in lines}, "it stands behind what it goes on from"
    wide = [line for line in lines if len(line) > columns]
    # A hash in a command has to stand whole, or the command would not work.
    unbroken = re.compile(r"[A-Z]\.[\w~]{43}\.H3|/club$")
    assert [line for line in wide if not unbroken.search(line)] == []
    assert "warning" not in shown
    assert "wrote " not in shown
    assert "temporary folder" not in shown
    assert re.search(r"# keys are cut\s+short here", shown)
    steps = [line for line in shown.split("\n") if re.match(r"\d+\. ", line)]
    assert [line.split(".")[0] for line in steps] == [str(at + 1) for at in range(len(steps))]
    assert "300 records came in 3 loops" in " ".join(shown.split())


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 60])
def test_rules_and_reasons_stay_what_they_are(tmp_path: Path, columns: int) -> None:
    lines = shown_at_terminal("demo", "--keep", tmp_path / "club", columns=columns).split("\n")
    at = lines.index("   $ cat bait.lace") + 1
    end = next(end for end in range(at, len(lines)) if lines[end].startswith("   $ "))
    diary = next(number for number in range(at, end) if "Diary" in lines[number])
    assert all(line.startswith("     # ") for line in lines[at:diary]), "a comment stays one"
    if columns == 80:  # a rule is one line: on a narrower terminal it cannot be
        shown = tmp_path / "shown.lace"
        shown.write_text("\n".join(lines[at:end]))
        written = call("rules", "id", tmp_path / "club" / "bait.lace")
        assert call("rules", "id", shown).out.split()[0] == written.out.split()[0]
    reason = lines.index(next(line for line in lines if line.startswith("13. ")))
    begun = next(at for at in range(reason, len(lines)) if "does not hold" in lines[at])
    tree = lines[begun + 1 : lines.index("", begun)]
    last = next(at for at, line in enumerate(tree) if line.startswith("     └─ "))
    assert all(line.startswith(("     │  ", "     ├─ ")) for line in tree[:last])
    assert all(line.startswith("        ") for line in tree[last + 1 :])


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_interrupt_says_what_stays(tmp_path: Path, is_kept: bool) -> None:
    keep = ["--keep", tmp_path / "club"] if is_kept else []
    with at_terminal("demo", *keep, columns=300) as screen:
        screen.wait_for("This is what Alice has")
        screen.type(b"\x03")
        assert screen.end() == 130
        told = " ".join(screen.read().split())
    assert "nothing was changed" not in told
    if is_kept:
        assert f"interrupted; what was made stays in {tmp_path}/club: remove it, or name" in told
        assert (tmp_path / "club" / "alice.lace").is_dir()
    else:
        assert "interrupted; nothing is left behind" in told


WITH_SPARK = "from lace.cli import demo, main; demo.READINGS = 300; main.main()"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.exhaustive
def test_an_interrupt_while_spark_works(tmp_path: Path, java_options: str) -> None:
    """Ctrl-C reaches all that it has started; none of it stays, and no file."""
    program = (sys.executable, "-c", WITH_SPARK)
    env = {"SPARK_SUBMIT_OPTS": java_options}
    temporary = tmp_path / "temporary"
    with started_group("demo", temporary=temporary, env=env, program=program) as group:
        group.wait_for_member("org.apache.spark.deploy.SparkSubmit")
        group.interrupt()
        ended = group.end()
    assert (ended.code, ended.err) == (130, "lace: interrupted; nothing is left behind\n")
    assert list(temporary.iterdir()) == []


def closing_commands(shown: str) -> list[str]:
    """The commands at the end, each on a line."""
    end = shown.replace("\\\n", " ").rpartition("Three commands")[2]
    return [line.strip()[2:] for line in end.split("\n") if line.startswith("   $ ")]


@pytest.mark.usefixtures("few")
def test_what_it_says_at_the_end_works(tmp_path: Path) -> None:
    for keep, count in ((("--keep", tmp_path / "club"), 4), ((), 3)):
        done = call("demo", *keep)
        assert done.code == 0
        lines = closing_commands(done.out)
        assert len(lines) == count
        fresh = tmp_path / f"with-{count}"
        fresh.mkdir()
        lace = f'lace() {{ {shlex.quote(sys.executable)} -m lace "$@"; }}\n'
        ran = subprocess.run(
            ["bash", "-e", "-c", lace + "\n".join(lines)],
            cwd=fresh,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        expected = "//club//notes//welcome" if keep else "//me//notes//first"
        assert expected in ran.stdout
        assert ("is in a temporary folder" in done.out) is not bool(keep)
        assert (str(tmp_path / "club") in done.out) is bool(keep)


@pytest.mark.usefixtures("few")
def test_the_rules_of_the_story_give_no_warning(tmp_path: Path) -> None:
    assert call("demo", "--keep", tmp_path / "club").err == ""
    for name in ("club", "bait"):
        checked = call(
            "rules", "check", "--profile", "selector", tmp_path / "club" / f"{name}.lace"
        )
        assert checked.code == 0
        assert checked.err.endswith(f"{name}.lace: ok\n")
        assert "warning" not in checked.err


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
