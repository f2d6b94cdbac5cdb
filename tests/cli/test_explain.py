"""`lace explain`: one id, all ids, and ids that nobody knows."""

from __future__ import annotations

import pytest

import lace
from tests.cli.running import call, call_at_terminal


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
