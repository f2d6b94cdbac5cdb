"""`lace test`: a line a case, every difference, the coverage, and exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.running import call, on_terminal, process

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "policies"
RULES = "Path(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z).\n"
GOOD = """\
rules = "paths.lace"
facts = ["Edge('a','b')"]
[[case]]
name = "one step"
derived = { "Path/2" = [["a", "b"]] }
"""
BAD = """\
[[case]]
name = "wrong"
derived = { "Path/2" = [["a", "x"]] }
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    (tmp_path / "paths.lace").write_text(RULES, "utf-8")
    path = tmp_path / "paths.lacetest.toml"
    path.write_text(GOOD, "utf-8")
    return path


def test_all_pass(tests: Path) -> None:
    assert tests.exists()
    done = call("test", "paths.lacetest.toml")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        "ok     paths.lacetest.toml: one step",
        "1 case: 1 ok, 0 failed",
        "",
        "paths.lace: 1 of 2 rules made a fact",
        "  paths.lace:2: Path(X,Z) :- Path(X,Y), Edge(Y,Z).",
        "rule coverage: 50 %, 1 of 2 rules made a fact",
    ]


def test_a_case_fails(tests: Path) -> None:
    tests.write_text(GOOD + BAD, "utf-8")
    done = call("test", tests.name)
    assert done.code == 1
    assert done.lines[:5] == [
        "ok     paths.lacetest.toml: one step",
        "FAILED paths.lacetest.toml: wrong",
        "       Path/2: unexpected ('a','b'): by paths.lace:1",
        "       Path/2: missing ('a','x'): paths.lace:1 fails at Edge(X,Y)",
        "2 cases: 1 ok, 1 failed",
    ]
    verbose = call("test", tests.name, "-v", "-k", "wrong")
    assert verbose.code == 1
    assert "         Path('a','b')" in verbose.lines
    assert any("failed: Edge(X,Y)" in line for line in verbose.lines)
    assert "1 case: 0 ok, 1 failed, 1 left out" in verbose.lines


def test_quiet_shows_what_failed(tests: Path) -> None:
    assert call("test", tests.name, "--quiet").lines == ["1 case: 1 ok, 0 failed"]
    tests.write_text(GOOD + BAD, "utf-8")
    quiet = call("test", tests.name, "--quiet")
    assert quiet.lines[0] == "FAILED paths.lacetest.toml: wrong"
    assert quiet.lines[-1] == "2 cases: 1 ok, 1 failed"
    assert call("test", tests.name, "--quiet", "--coverage-min", "60").lines[-1] == (
        "FAILED rule coverage is below 60 %"
    )


@pytest.mark.parametrize(("least", "code"), [("0", 0), ("50", 0), ("50.1", 1), ("100", 1)])
def test_coverage_must_suffice(tests: Path, least: str, code: int) -> None:
    done = call("test", tests.name, "--coverage-min", least)
    assert done.code == code
    assert (f"FAILED rule coverage is below {least} %" in done.lines) is bool(code)


def test_coverage_of_several_files_is_one(tests: Path) -> None:
    second = GOOD.replace("Edge('a','b')\"", "Edge('a','b')\", \"Edge('b','c')\"")
    other = tests.parent / "more" / "deep.lacetest.toml"
    other.parent.mkdir()
    other.write_text(
        second.replace("paths.lace", "../paths.lace").replace(
            '[["a", "b"]]', '[["a", "b"], ["b", "c"], ["a", "c"]]'
        ),
        "utf-8",
    )
    done = call("test", ".", "--coverage-min", "100")
    assert done.code == 0, done.out
    assert done.lines == [
        "ok     more/deep.lacetest.toml: one step",
        "ok     paths.lacetest.toml: one step",
        "2 cases: 2 ok, 0 failed",
        "",
        "paths.lace: 2 of 2 rules made a fact",
        "rule coverage: 100 %, 2 of 2 rules made a fact",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "lace: missing argument 'FILE...'"),
        (["none.lacetest.toml"], "lace: none.lacetest.toml: it cannot be read: No such file or d"),
        (["paths.lace"], "lace: paths.lace:1:5: this is no TOML: "),
        (["empty"], "lace: empty: there is no *.lacetest.toml in this folder"),
        (["paths.lacetest.toml", "-k", "zzz"], "lace: no case has 'zzz' in its name; choose othe"),
        (["paths.lacetest.toml", "--coverage-min", "101"], "lace: invalid value for '--coverage-"),
        (["paths.lacetest.toml", "--set", "max_wrk=1"], "lace: --set: there is no setting 'max_w"),
    ],
)
def test_wrong_usage(tests: Path, arguments: list[str], message: str) -> None:
    (tests.parent / "empty").mkdir()
    done = call("test", *arguments)
    assert done.code == 2
    assert done.raw == b""
    assert done.err.startswith(message)
    assert ("; policy tests are files *.lacetest.toml" in done.err) == ("no TOML" in message)


def test_a_file_that_makes_no_sense_stops_all(tests: Path) -> None:
    wrong = tests.parent / "wrong.lacetest.toml"
    wrong.write_text('rules = "paths.lace"\nfcts = []\n[[case]]\nname = "x"\n', "utf-8")
    done = call("test", ".")
    assert done.code == 2
    assert done.raw == b""
    assert done.err.split("\n") == [
        "wrong.lacetest.toml:2: fcts: there is no such key; did you mean facts?",
        "wrong.lacetest.toml:3: case 1: the case expects nothing; give one of derived, error",
        "lace: 2 errors in test files; nothing was run",
        "",
    ]


def test_rules_that_are_not_legal(tests: Path) -> None:
    (tests.parent / "paths.lace").write_text("Path(X,Y) :- Edge(X,_).\nB(X :- C(X).\n", "utf-8")
    tests.write_text(GOOD + BAD, "utf-8")
    done = call("test", tests.name)
    assert done.code == 1
    assert done.err.count("paths.lace:1:8: head variable Y is not bound") == 1
    assert done.lines[0] == "FAILED paths.lacetest.toml: one step"
    assert "paths.lace:1:8: head variable Y is not bound" in done.lines[1]
    assert done.lines[-1] == "rule coverage: there was no rule to measure"


def test_limits_of_the_command_line(tests: Path) -> None:
    done = call("test", tests.name, "--set", "max_work=0")
    assert done.code == 1
    assert "the limit is max_work=0" in done.lines[1]


def test_json(tests: Path) -> None:
    tests.write_text(GOOD + BAD, "utf-8")
    done = call("test", tests.name, "--json", "--coverage-min", "25")
    assert done.code == 1
    value = done.json()
    assert list(value) == ["ok", "counts", "files", "coverage"]
    assert value["ok"] is False
    assert value["counts"] == {"cases": 2, "ok": 1, "failed": 1, "left_out": 0}
    (file,) = value["files"]
    assert file["file"] == "paths.lacetest.toml"
    assert file["cases"][0] == {
        "name": "one step",
        "line": 3,
        "ok": True,
        "failure": None,
        "differences": [],
    }
    first = file["cases"][1]["differences"][0]
    assert list(first) == [
        "about", "problem", "values", "name", "gate", "message", "explanation"
    ]  # fmt: skip
    assert first["values"] == ["a", "b"]
    coverage = value["coverage"]
    assert {key: coverage[key] for key in ("rules", "fired", "percent", "minimum")} == {
        "rules": 2,
        "fired": 1,
        "percent": 50,
        "minimum": 25,
    }
    (measured,) = coverage["files"]
    assert measured["file"] == "paths.lace"
    (idle,) = measured["idle"]
    assert (idle["line"], idle["text"]) == (2, "Path(X,Z) :- Path(X,Y), Edge(Y,Z).")
    assert idle["id"].startswith("U.")


def test_the_examples(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "policies")
    done = call("test", "policies", "--coverage-min", "100")
    assert done.code == 0, done.out
    assert "10 cases: 10 ok, 0 failed" in done.lines


def test_the_examples_notice_a_change(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "policies")
    view = tmp_path / "policies" / "team-view.lace"
    view.write_text(view.read_text("utf-8").replace("'team').", "_)."), "utf-8")
    done = call("test", "policies/team.lacetest.toml", "-v")
    assert done.code == 1
    assert any(
        line.startswith("       query: unexpected diary (S.")
        and line.endswith("it can be queried, by policies/team-view.lace:3 (exposure 1)")
        for line in done.lines
    )
    assert any("Field('${diary}','Group','0','private')" in line for line in done.lines)
    assert any("bait" in line and line.startswith("FAILED") for line in done.lines)


@pytest.mark.slow
def test_colours_on_a_terminal_only(tests: Path) -> None:
    tests.write_text(GOOD + BAD, "utf-8")
    shown = on_terminal("test", str(tests))
    assert shown.code == 1
    assert "\x1b[32mok    \x1b[0m" in shown.out
    assert "\x1b[1;31mFAILED\x1b[0m" in shown.out
    assert "\x1b" not in on_terminal("test", str(tests), "--no-color").out
    assert "\x1b" not in process("test", str(tests)).out
