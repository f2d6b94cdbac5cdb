"""What fits a terminal: tables whose rows are lines, help, and command lines that still work."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from lace.api import open_lace
from lace.cli.command import LaceCommand, LaceGroup, command_paths
from lace.cli.main import cli
from lace.cli.output import (
    _broken_as,
    cut_middle,
    wrap_answer,
    wrap_command,
    wrap_findings,
    wrap_prose,
)
from lace.record.model import Plex
from tests.cli.running import call, call_at_terminal, on_terminal
from tests.cli.samples import SAMPLES, make_place, words_of
from tests.cli.screens import visible_lines

if TYPE_CHECKING:
    from pathlib import Path

    from lace.api import SigningKey

PLAIN = {"NO_COLOR": "1"}
LONG = "a rather long name that no terminal of eighty columns has room for"
PATHS = ("", *command_paths(cli))


@pytest.fixture
def signed(folder: Path, key: SigningKey) -> list[str]:
    """The identifiers of signed records in a lace, with names of all lengths."""
    names = ["short", "with/a/name/of/middling/length", f"{LONG}/1", f"{LONG}/2"]
    made = [
        Plex(group="team", app="notes", name=name, data=b"x", tai="1700000000:000000000").seal(key)
        for name in names
    ]
    with open_lace(folder) as lace:
        lace.add_all(made)
    return [str(record.id) for record in made]


def lines_of(*arguments: object, columns: int) -> list[str]:
    """What a command shows at a terminal of that width, where no line is wider."""
    shown = on_terminal(*arguments, columns=columns, env=PLAIN)
    assert shown.code == 0
    return shown.lines


# -- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [72, 80, 100])
def test_a_record_is_a_line(folder: Path, signed: list[str], columns: int) -> None:
    lines = lines_of("--lace", folder, "list", columns=columns)
    assert max(map(len, lines)) <= columns
    rows = [line for line in lines if line.startswith("S.")]
    assert sorted(row[:10] for row in rows) == sorted(each[:10] for each in signed)
    assert all("//team//notes//" in row and "2023-11-14 22:12:43" in row for row in rows)
    assert any(row.split("…", 2)[-1].split("   ")[0].endswith("/2") for row in rows), "both ends"
    assert lines[-2].startswith("not shown whole: signed-by, size, coordinate; ")
    assert len(lines) == 2 + len(signed) + 2


def test_what_there_is_room_for_is_shown(folder: Path, signed: list[str]) -> None:
    assert len(signed) == 4
    at = ("--lace", folder, "list", "//team//notes//short")
    assert "signed-by" not in lines_of(*at, columns=70)[0]
    assert "size" in lines_of(*at, columns=70)[0]
    whole = lines_of(*at, columns=84)
    assert "signed-by" in whole[0]
    assert not any("not shown whole" in line for line in whole)


def test_columns_that_were_asked_for_stay(folder: Path, signed: list[str]) -> None:
    lines = lines_of(
        "--lace", folder, "list", "--fields", "id,coordinate,tai,size,signed-by", columns=80
    )
    assert "signed-by" in lines[0]
    text = "".join(lines)
    assert all(word in text for word in LONG.split()), "folded, and nothing is left out"
    assert text.count("…") == 2 * len(signed), "of identifiers alone"


def test_forty_columns_have_everything(folder: Path, signed: list[str]) -> None:
    lines = lines_of("--lace", folder, "list", columns=40)
    assert max(map(len, lines)) <= 40
    text = " ".join(" ".join(lines).split())
    assert text.count("signed-by V.") == len(signed)
    assert f"//team//notes//{LONG}/2" in text


def test_a_pipe_has_everything(folder: Path, signed: list[str]) -> None:
    assert folder.is_dir()
    rows = [line.split("\t") for line in call("list").lines]
    assert sorted(row[0] for row in rows) == sorted(signed)
    assert all(len(row) == 5 for row in rows)


@given(st.text(max_size=60), st.integers(min_value=-1, max_value=40))
@example("text", 0)
@example("", -1)
@pytest.mark.property
def test_a_text_that_is_cut_has_its_ends(text: str, room: int) -> None:
    made = cut_middle(text, room)
    assert cell_len(made) <= max(room, 0)
    if cell_len(text) <= room:
        assert made == text
    else:
        head, _, tail = made.partition("…")
        assert text.startswith(head)
        assert text.endswith(tail)


# -- facts ---------------------------------------------------------------------------------------


def test_facts_are_a_table(folder: Path, signed: list[str]) -> None:
    lines = lines_of("--lace", folder, "facts", columns=80)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["fact", "record", "name", "and", "index", "value"]
    for record in signed:
        of_record = [line for line in lines if record[:10] in line]
        assert [line.split()[0] for line in of_record] == [
            *("BlobHash", *["Field"] * 8, "Have", "PlexHash"),
        ]
    assert any("Group 0" in line and line.endswith("team") for line in lines)
    assert f"{len(call('facts').lines)} facts" in lines
    one = lines_of("--lace", folder, "facts", "//team//notes//short", columns=80)
    assert sum(line.startswith("Field") for line in one) == 8


def test_many_facts_are_cut_and_how_to_see_all(folder: Path) -> None:
    with open_lace(folder) as lace:
        lace.add_all([Plex(group="g", app="a", name=str(at), data=b"") for at in range(150)])
    piped = call("facts").lines
    assert len(piped) == 150 * 8
    shown = lines_of("--lace", folder, "facts", columns=80)
    assert sum(line.startswith(("Field", "Have", "BlobHash")) for line in shown) == 1000
    assert "these are the first 1,000 facts; --all and a pipe show every one" in shown
    assert lines_of("--lace", folder, "facts", "--all", columns=80) == piped


def test_an_empty_lace_has_no_facts(folder: Path) -> None:
    assert lines_of("--lace", folder, "facts", columns=80) == ["no facts: there are no records yet"]


# -- every command -------------------------------------------------------------------------------

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SCRIPTS = frozenset({"completion"})
"""What they write is for a program, as it is."""


def unfit(shown: str, columns: int) -> list[str]:
    """Lines that are wider than a terminal though they could have been broken between words."""
    wide = [line for line in visible_lines(shown) if cell_len(line) > columns]
    return [line for line in wide if len(line.split()) > 1]


@pytest.mark.parametrize("columns", [40, 80])
def test_every_answer_fits(tmp_path: Path, columns: int) -> None:
    left = make_place(tmp_path)
    found: dict[str, list[str]] = {}
    for name, each in SAMPLES.items():
        shown = call_at_terminal(*words_of(name, left), columns=columns, given=each.given)
        assert shown.code in each.codes, (name, shown.out)
        assert not COLOUR.search(shown.out), f"{name} with NO_COLOR"
        if name not in SCRIPTS and (wide := unfit(shown.out, columns)):
            found[name] = wide
    assert found == {}


@pytest.mark.parametrize("path", [path for path in PATHS if path])
def test_every_refusal_fits(path: str) -> None:
    """Without a lace, and with an option that there is not."""
    for words in ([*path.split(), "--nonsense"], ["--lace", "no", *path.split(), *["x"] * 3]):
        shown = call_at_terminal(*words, columns=40)
        assert shown.code in (1, 2), shown.out
        assert shown.out
        assert unfit(shown.out, 40) == []


def test_an_answer_in_a_pipe_is_not_broken(tmp_path: Path) -> None:
    left = make_place(tmp_path)
    done = call(*words_of("preview", left))
    assert max(map(len, done.err.splitlines())) > 200, "a warning is one line"
    assert max(map(len, call(*words_of("why", left)).lines)) > 80


def test_statistics_are_words_where_a_table_has_no_room(filled: Path) -> None:
    asked = ("--lace", filled, "query", "-e", "A(P) :- Have(P).", "--stats")
    narrow = call_at_terminal(*asked, columns=40)
    assert "rule 1: line 1, predicate A/1," in narrow.out
    assert unfit(narrow.out, 40) == []
    assert "rule  line  predicate" in call_at_terminal(*asked, columns=100).out


def test_carets_stay_below_what_they_are_about(tmp_path: Path) -> None:
    (tmp_path / "long.lace").write_text(
        "Some(P) :- Field(P,'Name',_,'a rather long name'), Nobody(P), Other(Q,R).\n"
    )
    shown = call_at_terminal("rules", "check", "long.lace", columns=40).lines
    assert max(map(len, shown)) <= 40
    at = next(number for number, line in enumerate(shown) if line.lstrip(" ").startswith("^"))
    marked = shown[at - 1][shown[at].index("^") :]
    assert marked.startswith(("Nobody", "Other", "Q")), marked
    assert shown[at - 1].lstrip(" ").startswith("…")


@pytest.mark.parametrize("length", [20, 35, 36, 37, 80])
def test_a_caret_stands_behind_a_line_that_lacks_its_end(length: int) -> None:
    line = "    " + "x" * length
    above, below = wrap_findings(f"{line}\n{' ' * len(line)}^", 40)
    assert below.strip(" ") == "^"
    assert below.index("^") == len(above), "behind it"
    assert len(below) <= 40


def test_a_line_is_broken_with_its_colours(tmp_path: Path) -> None:
    left = make_place(tmp_path)
    words = words_of("test", left)
    plain = call_at_terminal(*words, columns=40)
    coloured = call_at_terminal(*words, columns=40, env={"LANG": "C"})
    assert visible_lines(coloured.out) == visible_lines(plain.out)
    assert "rule coverage: \x1b[32m100 %\x1b[0m, 1 of 1 rule made a\n  fact\n" in coloured.out


def test_wide_characters_take_two_columns() -> None:
    assert wrap_answer("日本" * 5, 20) == ["日本" * 5]
    lines = wrap_answer("├─ " + "日本語 a " * 20, 40)
    assert max(map(cell_len, lines)) in range(35, 41)
    assert "".join(lines).count("日本語") == 20


@given(st.text("ab,'(_ │├─#`日", max_size=120), st.integers(20, 60))
@example("     # keys are cut short here", 28)
@example("├─  " + "a" * 40, 20)
@example("├─" + " " * 40, 20)
@pytest.mark.property
def test_an_answer_loses_nothing(text: str, width: int) -> None:
    lines = wrap_answer(text, width)
    assert [line.plain for line in _broken_as(lines, Text(text))] == lines
    kept = "".join("".join(lines).split())
    bars = str.maketrans("", "", "│#")
    assert kept.translate(bars) == "".join(text.split()).translate(bars)


# -- help ----------------------------------------------------------------------------------------


def too_long_for(line: str, columns: int) -> bool:
    """Whether a line stands out though it could have been broken between words."""
    return len(line) > columns and len(shlex.split(line.strip().rstrip("\\"))) > 1


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("path", PATHS)
def test_help_fits(path: str, columns: int) -> None:
    page = help_page(path, columns)
    wide = [line for line in page.split("\n") if too_long_for(line, columns)]
    assert wide == []
    assert "Examples:" in page


def help_page(path: str, columns: int) -> str:
    """The help of a command as a terminal of that width gets it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        return call(*path.split(), "--help").out


def test_help_at_a_real_terminal() -> None:
    narrow = lines_of("list", "--help", columns=40)
    assert max(map(len, narrow)) <= 40
    assert narrow[narrow.index("  --reverse") + 1] == "      The largest first."
    wide = lines_of("sync", "--help", columns=80)
    assert max(map(len, wide)) <= 80
    assert any(line.startswith("  --select FILE    ") for line in wide), "beside it"


def as_a_shell(lines: list[str]) -> list[str]:
    """The words of a command line that goes on behind each backslash at a line's end."""
    assert all(line.endswith("\\") for line in lines[:-1])
    return shlex.split("".join(line.removesuffix("\\") for line in lines[:-1]) + lines[-1])


@pytest.mark.parametrize("path", PATHS)
def test_examples_stay_what_they_are(path: str) -> None:
    """A shell puts the lines together again, and gets the same words."""
    command: object = cli
    for name in path.split():
        assert isinstance(command, LaceGroup)
        command = command.get_command(command.make_context("x", [], resilient_parsing=True), name)
    assert isinstance(command, (LaceCommand, LaceGroup))
    for line, _meaning in command.documentation.examples:
        for width in (40, 80):
            assert as_a_shell(wrap_command(line, width, "  ", "      ")) == shlex.split(line)


@given(st.lists(st.text("ab-|&'\" ", max_size=12), max_size=12), st.integers(10, 60))
@pytest.mark.property
def test_any_command_line_stays_what_it_is(words: list[str], width: int) -> None:
    line = shlex.join(words)
    assert as_a_shell(wrap_command(line, width, "", "  ")) == words


@given(st.text("abc ", max_size=200), st.integers(20, 60))
@pytest.mark.property
def test_prose_fits(text: str, width: int) -> None:
    lines = wrap_prose(text, width, "1. ", "   ")
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).removeprefix("1. ").split()) == "".join(text.split())
