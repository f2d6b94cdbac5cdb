"""`lace explain`: one id, all ids, and ids that nobody knows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import lace
from tests.cli.running import call, call_at_terminal

if TYPE_CHECKING:
    from pathlib import Path


def test_one_id_through_a_pipe() -> None:
    done = call("explain", "030-37")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        "030-37: Every variable in the head of a rule must occur in a positive atom of its body.",
        "Why: Otherwise the head would hold for every possible value, and the answer would never "
        "end.",
        "",
        "Wrong:",
        "  Selected(P,Tag) :- Have(P).",
        "",
        "Right:",
        "  Selected(P,Tag) :- Field(P,'Tag',_,Tag).",
        "",
        "More: docs/reference/requirements/030-datalog.md#030-37",
    ]


def test_one_id_on_a_terminal_keeps_its_examples_whole() -> None:
    done = call_at_terminal("explain", "030-37", columns=50)
    assert done.code == 0
    assert "  Selected(P,Tag) :- Field(P,'Tag',_,Tag)." in done.lines
    assert max(len(line) for line in done.lines if "docs/" not in line) <= 50


@pytest.mark.parametrize("written", ["[030-37]", "030-37"])
def test_one_id_as_json(written: str) -> None:
    found = call("explain", written, "--json").json()
    explained = lace.explain("030-37")
    assert found == {
        "id": "030-37",
        "statement": explained.statement,
        "reason": explained.reason,
        "fault": explained.fault,
        "remedy": explained.remedy,
        "page": "requirements/030-datalog.md#030-37",
    }


def test_all_ids_are_listed() -> None:
    known = list(lace.explanations())
    piped = call("explain")
    assert [line.split("\t")[0] for line in piped.lines] == known
    assert [each["id"] for each in call("explain", "--json").json_lines()] == known
    shown = call_at_terminal("explain", columns=100).out
    assert [name for name in known if name not in shown] == []


def test_what_cannot_be_seen_is_shown_escaped() -> None:
    assert "\r" not in call("explain", "030-25").out
    assert "\\u{d}" in call("explain", "030-25").out


def test_an_unknown_id_is_wrong_usage() -> None:
    done = call("explain", "030-377")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("lace: no message shows the id '030-377'; near it are 030-37, ")
    assert done.err.endswith("; `lace explain` lists all of them\n")


def test_the_shell_completes_ids() -> None:
    from click.shell_completion import ShellComplete

    from lace.cli.main import cli

    found = ShellComplete(cli, {}, "lace", "_LACE_COMPLETE").get_completions(["explain"], "030-3")
    assert "030-37" in [each.value for each in found]
    assert all(each.value.startswith("030-3") for each in found)
    assert all(each.help for each in found)


# -- Ids in messages: those of specifications are shown, and at a terminal what explains them.


def test_an_error_at_a_terminal_ends_with_the_command_that_explains_it() -> None:
    words = ("query", "-e", "A(V) :- Have(P).", "--facts", os.devnull)
    plain = call_at_terminal(*words, columns=100)
    assert plain.lines[-1] == "lace explain 030-37 says more"
    shown = call_at_terminal(*words, columns=100, env={"A": ""})
    assert shown.lines[-1] == "\x1b[2mlace explain 030-37 says more\x1b[0m"
    for more in ("--quiet", "--json"):
        assert "says more" not in call_at_terminal(*words, more, columns=100).out
    piped = call(*words)
    assert "[030-37]" in piped.err
    assert "says more" not in piped.err


def test_findings_at_a_terminal_end_with_it_too(tmp_path: Path) -> None:
    file = tmp_path / "a.lace"
    file.write_text("A(V) :- Have(P).\n")
    done = call_at_terminal("rules", "check", file, columns=100)
    assert (done.code, done.lines[-1]) == (1, "lace explain 030-37 says more")
    file.write_text("A(P) :- Have(P), Field(P,'Tag',N,_).\n")
    warned = call_at_terminal("rules", "check", file, columns=100)
    assert (warned.code, "says more" in warned.out) == (0, False)


def test_a_decision_is_hidden_from_people_and_not_from_programs(tmp_path: Path) -> None:
    file = tmp_path / "a.lace"
    file.write_text("A (P) :- Have(P).\n")
    shown = call_at_terminal("rules", "check", file, columns=100).out
    assert "its bracket; write A(…)" in shown
    assert "G19" not in shown
    assert "its bracket [G19]; write A(…)" in call("rules", "check", file).out
    assert call("rules", "check", file, "--json").json()["rule"] == "G19"
    refused = call("disclose", "--viewer", "Opq_1", "--json", "--lace", tmp_path / "none")
    assert "X6" not in refused.err.split("\n")[0]
    assert json.loads(refused.err.split("\n")[1])["error"]["rule"] == "X6"
