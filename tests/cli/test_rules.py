"""`lace rules`: what is found in rules, their forms, their names and their graph."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from lace.cli import files as rule_files
from lace.cli import rules as graphviz
from lace.rules.canonical import lacegram_id, rule_id
from tests.cli.running import call, on_terminal

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "Selected(P) :- Have(P), Field(P,'Group',_,'u').\n"
LABEL = b'#:json {"label":"u"}\n'
UNTIDY = b"# all of u\n\n\n" + LABEL + b" Selected( P ):-Have(P) , Field(P,'Group',_,'u') ."
TIDY = b"# all of u\n\n" + LABEL + GOOD.encode()
ONE_ERROR = "A(Q) :- Have(_).\n"
ONE_WARNING = "A(P) :- Have(P), Nope(P).\n"
BROKEN = "A(P) :- Have(P)\nB(P) :- Have(P).\nC(P) :- Have(P\n"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.lace"
    path.write_text(GOOD, "utf-8")
    return path


def test_no_lace_is_needed_and_none_is_made(policy: Path) -> None:
    for name in ("check", "fmt", "canonical", "id", "graph"):
        assert call("rules", name, policy).code == 0, name
    assert [path.name for path in policy.parent.iterdir()] == ["policy.lace"]


def test_the_group_alone_names_its_commands() -> None:
    done = call("rules")
    assert done.code == 2
    assert "check, fmt, canonical, id, graph" in done.err


# check


def test_check_says_ok(policy: Path) -> None:
    done = call("rules", "check", policy)
    assert (done.code, done.raw) == (0, b"")
    assert done.err == f"{policy}: ok\n"
    assert call("rules", "check", policy, "--quiet").err == ""


def test_check_shows_every_finding_on_a_line(policy: Path) -> None:
    policy.write_text(ONE_ERROR + ONE_WARNING, "utf-8")
    done = call("rules", "check", "policy.lace")
    assert done.code == 1
    first, second = done.lines
    assert first.startswith("policy.lace:1:3: head variable Q")
    assert "[030-37]; " in first
    assert second.startswith("policy.lace:2:18: warning: nobody defines Nope/1")
    assert done.err == "1 error, 1 warning in policy.lace\n"


def test_a_warning_counts_only_when_strict(policy: Path) -> None:
    policy.write_text(ONE_WARNING, "utf-8")
    assert call("rules", "check", policy).code == 0
    strict = call("rules", "check", "--strict", policy)
    assert strict.code == 1
    assert strict.out == call("rules", "check", policy).out


def test_check_by_profile(policy: Path) -> None:
    done = call("rules", "check", "--profile", "selector", policy)
    assert done.code == 1
    assert "SelectHave/1" in done.out
    assert call("rules", "check", "--profile", "other", policy).code == 2


def test_check_as_json(policy: Path) -> None:
    policy.write_text(ONE_ERROR + ONE_WARNING, "utf-8")
    done = call("rules", "check", "--json", "policy.lace")
    assert done.code == 1
    first, second = done.json_lines()
    assert {key: first[key] for key in ("file", "line", "column", "severity", "rule")} == {
        "file": "policy.lace",
        "line": 1,
        "column": 3,
        "severity": "error",
        "rule": "030-37",
    }
    assert list(first) == ["file", "line", "column", "severity", "message", "rule", "hint"]
    assert second["severity"] == "warning"
    assert second["hint"] is None


def test_check_reads_standard_input_once() -> None:
    done = call("rules", "check", "-", given=ONE_ERROR.encode())
    assert done.code == 1
    assert done.lines[0].startswith("standard input:1:3: ")
    assert done.err == "1 error in standard input\n"
    given = call("rules", "check", "-", "--json", given=ONE_ERROR.encode())
    assert given.json_lines()[0]["file"] == "-"
    assert call("rules", "check", "-", "-").code == 2


def test_a_missing_file_hides_no_other(policy: Path) -> None:
    policy.write_text(ONE_ERROR, "utf-8")
    done = call("rules", "check", "none", "policy.lace", "nor\nthis", policy.parent)
    assert done.code == 2
    assert len(done.lines) == 1
    assert "lace: none cannot be read: No such file" in done.err
    assert "lace: nor\\u{a}this cannot be read: No such file" in done.err
    assert f"lace: {policy.parent} cannot be read: Is a directory" in done.err
    assert call("rules", "check").code == 2


@pytest.mark.parametrize("name", ["canonical", "id", "graph", "fmt"])
def test_a_missing_file(name: str) -> None:
    done = call("rules", name, "none")
    assert (done.code, done.raw) == (2, b"")
    assert "none cannot be read" in done.err


def test_bytes_that_are_not_utf_8(policy: Path) -> None:
    policy.write_bytes(b"A(P) :- Have(P).\nB('\xff').\n")
    done = call("rules", "check", "policy.lace")
    assert done.code == 1
    assert done.lines == ["policy.lace:2:4: byte 0xff is not UTF-8 text [030-12]"]
    for name in ("canonical", "id", "graph", "fmt"):
        told = call("rules", name, "policy.lace")
        assert (told.code, told.raw) == (1, b""), name
        assert "policy.lace:2:4: byte 0xff is not UTF-8 text [030-12]\n" in told.err
        assert "1 error in policy.lace" in told.err


def test_a_file_that_is_too_large(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_files, "MAX_FILE_BYTES", len(GOOD) - 1)
    done = call("rules", "check", "--json", policy)
    assert done.code == 1
    assert done.json_lines()[0]["line"] is None
    assert f"more than {len(GOOD) - 1} bytes" in done.out
    assert call("rules", "id", policy).code == 1
    assert call("rules", "fmt", policy).code == 1
    monkeypatch.setattr(rule_files, "MAX_FILE_BYTES", len(GOOD))
    assert call("rules", "check", policy).code == 0


def test_findings_at_a_terminal_have_carets_and_no_control_characters(policy: Path) -> None:
    text = "A(Q) :- Have(P), Field(P,'[red]\x1b[31m\u202e',_,_).\n"
    policy.write_text(text, "utf-8")
    shown = on_terminal("rules", "check", "policy.lace", "--no-color")
    assert shown.code == 1
    assert "\x1b" not in shown.out
    assert "\u202e" not in shown.out
    assert "'[red]\\u{1b}[31m\\u{202e}'" in shown.out
    assert "^" in shown.out
    assert shown.lines[-2].endswith("in policy.lace")
    assert shown.lines[-1] == "lace explain 030-37 says more"


def test_a_terminal_gets_a_hundred_findings_a_pipe_all(policy: Path) -> None:
    policy.write_text(ONE_ERROR * 150, "utf-8")
    piped = call("rules", "check", policy)
    assert len([line for line in piped.lines if "head variable" in line]) == 150
    shown = on_terminal("rules", "check", policy).out
    assert shown.count("^") >= 100
    assert "more findings" in shown


# fmt


def test_fmt_rewrites_what_changes_and_lists_it(policy: Path) -> None:
    other = policy.with_name("other.lace")
    other.write_bytes(UNTIDY)
    other.chmod(0o640)
    before = policy.stat()
    done = call("rules", "fmt", "policy.lace", "other.lace")
    assert (done.code, done.lines, done.err) == (0, ["other.lace"], "")
    assert other.read_bytes() == TIDY
    assert stat.S_IMODE(other.stat().st_mode) == 0o640
    assert (policy.stat().st_ino, policy.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert call("rules", "fmt", "policy.lace", "other.lace").lines == []
    assert sorted(path.name for path in policy.parent.iterdir()) == ["other.lace", "policy.lace"]


def test_fmt_follows_a_link_and_keeps_it(policy: Path) -> None:
    policy.write_bytes(UNTIDY)
    link = policy.with_name("link.lace")
    link.symlink_to(policy)
    assert call("rules", "fmt", link).code == 0
    assert link.is_symlink()
    assert policy.read_bytes() == TIDY


def test_fmt_replaces_a_file_whole_or_not_at_all(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy.write_bytes(UNTIDY)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    done = call("rules", "fmt", "policy.lace")
    assert done.code == 3
    assert "policy.lace cannot be written: No space left on device" in done.err
    assert policy.read_bytes() == UNTIDY
    assert [path.name for path in policy.parent.iterdir()] == ["policy.lace"]


def test_fmt_check_changes_nothing(policy: Path) -> None:
    assert call("rules", "fmt", "--check", policy).code == 0
    policy.write_bytes(UNTIDY)
    done = call("rules", "fmt", "--check", "policy.lace")
    assert (done.code, done.lines) == (1, ["policy.lace"])
    assert policy.read_bytes() == UNTIDY
    piped = call("rules", "fmt", "--check", "-", given=UNTIDY)
    assert (piped.code, piped.lines) == (1, ["standard input"])


def test_fmt_diff_changes_nothing(policy: Path) -> None:
    policy.write_bytes(UNTIDY)
    done = call("rules", "fmt", "--diff", "policy.lace")
    assert done.code == 0
    assert done.lines == [
        "--- policy.lace",
        "+++ policy.lace",
        "@@ -1,5 +1,4 @@",
        " # all of u",
        " ",
        "-",
        ' #:json {"label":"u"}',
        "- Selected( P ):-Have(P) , Field(P,'Group',_,'u') .",
        "\\ No newline at end of file",
        "+Selected(P) :- Have(P), Field(P,'Group',_,'u').",
    ]
    assert policy.read_bytes() == UNTIDY
    assert call("rules", "fmt", "--diff", "--check", policy).code == 1
    assert call("rules", "fmt", "--diff", "-", given=TIDY).raw == b""


def test_fmt_to_standard_output(policy: Path) -> None:
    policy.write_bytes(UNTIDY)
    assert call("rules", "fmt", "--stdout", policy).raw == TIDY
    assert policy.read_bytes() == UNTIDY
    assert call("rules", "fmt", "-", given=UNTIDY).raw == TIDY
    assert call("rules", "fmt", "--stdout", "--diff", policy).code == 2
    assert call("rules", "fmt", "--stdout", "--check", policy).code == 2


def test_fmt_leaves_alone_what_does_not_parse(policy: Path) -> None:
    policy.write_text(BROKEN, "utf-8")
    other = policy.with_name("other.lace")
    other.write_bytes(UNTIDY)
    done = call("rules", "fmt", "policy.lace", "other.lace")
    assert (done.code, done.lines) == (1, ["other.lace"])
    assert policy.read_text("utf-8") == BROKEN
    assert other.read_bytes() == TIDY
    assert "policy.lace:1:" in done.err
    assert "2 errors in policy.lace: left as it is\n" in done.err


def test_fmt_as_json(policy: Path) -> None:
    policy.write_bytes(UNTIDY)
    (shown,) = call("rules", "fmt", "--json", "--stdout", "policy.lace").json_lines()
    assert shown == {"file": "policy.lace", "changed": True, "text": TIDY.decode()}
    (differs,) = call("rules", "fmt", "--json", "--diff", "policy.lace").json_lines()
    assert differs["diff"].startswith("--- policy.lace\n")
    (changed,) = call("rules", "fmt", "--json", "policy.lace").json_lines()
    assert changed == {"file": "policy.lace", "changed": True}
    policy.write_text(BROKEN, "utf-8")
    done = call("rules", "fmt", "--json", "policy.lace")
    assert done.code == 1
    (broken,) = done.json_lines()
    assert broken["changed"] is False
    assert [found["line"] for found in broken["findings"]] == [1, 3]


def test_fmt_replaces_files_only(policy: Path) -> None:
    policy.write_bytes(UNTIDY)
    with policy.open("rb") as file:
        reading, writing = os.pipe()
        os.write(writing, file.read())
        os.close(writing)
    try:
        done = call("rules", "fmt", f"/dev/fd/{reading}")
    finally:
        os.close(reading)
    assert (done.code, done.raw) == (2, b"")
    assert "use --stdout" in done.err


# graph


RECURSIVE = """\
Far(T) :- Near(T).
Far(T) :- Far(P), RecordLink(P,_,_,_,T).
Near(P) :- Have(P).
Lost(P) :- Have(P), not Far(P).
"""


def test_graph_as_text_and_dot(policy: Path) -> None:
    policy.write_text(RECURSIVE, "utf-8")
    done = call("rules", "graph", policy)
    assert (done.code, done.err) == (0, "")
    assert done.lines[0] == "stratum 0"
    assert "  Far/1  lines 1, 2" in done.lines
    assert "    not Far/1" in done.lines
    assert call("rules", "graph", "--format", "text", policy).raw == done.raw
    dot = call("rules", "graph", "--format", "dot", "-", given=RECURSIVE.encode())
    assert dot.lines[0] == "digraph lacegram {"
    assert '  "Far/1" -> "Lost/1" [style=dashed, label="not"];' in dot.lines
    assert on_terminal("rules", "graph", policy).lines == done.lines


def test_graph_as_json(policy: Path) -> None:
    policy.write_text(RECURSIVE, "utf-8")
    shown = call("rules", "graph", "--json", policy).json()
    assert [sorted(stratum) for stratum in shown["strata"]] == [["Far/1", "Near/1"], ["Lost/1"]]
    assert {"predicate": "Lost/1", "uses": "Far/1", "how": "negative"} in shown["dependencies"]
    assert shown["base"] == ["Have/1", "RecordLink/5"]
    assert call("rules", "graph", "--json", "--format", "dot", policy).code == 2


def test_graph_wants_legal_rules(policy: Path) -> None:
    policy.write_text(ONE_ERROR, "utf-8")
    done = call("rules", "graph", "policy.lace")
    assert (done.code, done.raw) == (1, b"")
    assert "policy.lace:1:3: head variable Q" in done.err
    assert call("rules", "graph", "--profile", "selector", policy).code == 1


def test_drawing_without_graphviz_says_what_to_do(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = call("rules", "graph", "--format", "svg", policy)
    assert (done.code, done.raw) == (3, b"")
    assert "install the package graphviz" in done.err
    assert "--format dot" in done.err


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ('read line; echo "<svg>$line</svg>"', 0, "<svg>digraph lacegram {</svg>\n"),
        ("cat > /dev/null; echo no font >&2; exit 4", 3, "exit code 4: no font"),
        ("exit 4", 3, "it does not say why"),
        ("exec /bin/sleep 30", 3, "did not finish"),
    ],
)
def test_drawing_with_graphviz(
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    code: int,
    said: str,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "dot").write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    (folder / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setattr(graphviz, "_SECONDS", 1)
    done = call("rules", "graph", "--format", "svg", policy)
    assert done.code == code
    assert said in (done.err if code else done.out)


def test_a_graphviz_that_cannot_be_run(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "dot").write_bytes(b"\x7fELF nonsense")
    (folder / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    done = call("rules", "graph", "--format", "svg", policy)
    assert done.code == 3
    assert "cannot be run" in done.err


# canonical and id


def test_canonical_text_has_no_final_line_feed(policy: Path) -> None:
    policy.write_bytes(UNTIDY)
    done = call("rules", "canonical", policy)
    assert done.code == 0
    assert done.raw == GOOD.rstrip("\n").encode()
    assert call("rules", "canonical", "-", given=done.raw).raw == done.raw
    assert call("rules", "canonical", "-", given=b"# nothing\n").raw == b""
    assert call("rules", "canonical", "--json", policy).json() == {
        "id": lacegram_id(GOOD.rstrip("\n")),
        "canonical": GOOD.rstrip("\n"),
    }


def test_canonical_text_at_a_terminal_is_safe(policy: Path) -> None:
    policy.write_text("A(P) :- Field(P,'a\u202eb',_,_).", "utf-8")
    assert on_terminal("rules", "canonical", policy).out == (
        "A(P) :- Field(P,'a\\u{202e}b',_,_).\n"
    )
    assert "\u202e" in call("rules", "canonical", policy).out


def test_identifiers_of_the_lacegram_and_its_rules(policy: Path) -> None:
    policy.write_bytes(UNTIDY + b"\nB(P) :- Have(P).\n")
    rules = [GOOD.rstrip("\n"), "B(P) :- Have(P)."]
    done = call("rules", "id", policy)
    assert done.code == 0
    assert done.lines == [
        lacegram_id("\n".join(rules)),
        *(f"{rule_id(rule)}\t{rule}" for rule in rules),
    ]
    assert call("rules", "id", "--json", policy).json() == {
        "id": lacegram_id("\n".join(rules)),
        "rules": [
            {"id": rule_id(rules[0]), "rule": rules[0], "annotations": {"label": "u"}},
            {"id": rule_id(rules[1]), "rule": rules[1], "annotations": {}},
        ],
    }
    assert call("rules", "id", "-").lines == [lacegram_id("")]


def test_identifiers_at_a_terminal(policy: Path) -> None:
    rule = GOOD.rstrip("\n")
    shown = on_terminal("rules", "id", policy).lines
    assert shown == [lacegram_id(rule), f"{rule_id(rule)}  {rule}"]


def test_text_that_does_not_parse_has_no_identifier(policy: Path) -> None:
    policy.write_text(BROKEN, "utf-8")
    for name in ("canonical", "id"):
        done = call("rules", name, "policy.lace")
        assert (done.code, done.raw) == (1, b"")
        assert "policy.lace:1:" in done.err
        assert "policy.lace:3:" in done.err
        assert done.err.endswith("lace: 2 errors in policy.lace\n")
