"""The README: its picture is whole and loads nothing, its figures are those that were measured."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from tests.docs.examples import check_command, command_lines

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"


def test_figures_are_those_of_the_benchmarks() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    table = readme.partition("| what | measured |")[2].partition("\n\n")[0]
    measured = [row.split(" | ")[1].removesuffix(" |") for row in table.split("\n")[2:]]
    assert len(measured) >= 6
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    missing = [figure for figure in measured if f" {figure}" not in results]
    assert not missing, "copy the new figures from benchmarks/RESULTS.md into README.md"


def test_the_picture_of_the_demo_loads_nothing() -> None:
    text = PICTURE.read_text("utf-8")
    ElementTree.fromstring(text)  # noqa: S314 # our own file
    assert re.findall(r"https?://[^\"<\s]+", text) == ["http://www.w3.org/2000/svg"]
    assert "@font-face" not in text
    assert "@import" not in text
    assert "<script" not in text


def drawn_lines(picture: str) -> list[str]:
    """The lines of a picture of a terminal; the pieces of a line have different styles."""
    lines: dict[str, list[tuple[float, str]]] = {}
    for piece in ElementTree.fromstring(picture).iter(f"{SVG}text"):  # noqa: S314 # our own file
        line = lines.setdefault(piece.get("clip-path", "the title"), [])
        line.append((float(piece.get("x", "0")), (piece.text or "").replace("\xa0", " ")))
    return ["".join(text for _, text in sorted(line)).rstrip() for line in lines.values()]


def typed_commands(lines: list[str]) -> list[str]:
    """The commands at a prompt; of one that goes on behind a backslash, its lines with their ends.

    One that is cut off at the edge of the picture is left out.
    """
    found: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on:
            found[-1] += f"\n{line}"
        elif line.lstrip().startswith("$ "):
            found.append(line.lstrip().removeprefix("$ "))
        else:
            continue
        goes_on = line.endswith("\\")
    return [command for command in found if "…" not in command]


def test_the_picture_of_the_demo_shows_commands_that_exist() -> None:
    typed = typed_commands(drawn_lines(PICTURE.read_text("utf-8")))
    commands = [words for command in typed for words in command_lines(command)]
    assert len(commands) >= 3
    for words in commands:
        check_command(words)


def draw(lines: list[str]) -> str:
    """A picture of these lines, as `scripts/demo_picture` makes it."""
    return str(runpy.run_path(str(ROOT / "scripts" / "demo_picture"))["draw"](lines))


def test_commands_of_a_picture_go_on_behind_a_backslash() -> None:
    lines = drawn_lines(
        draw(
            [
                "1. A step",
                "   \x1b[36m$ lace --lace a sync tcp:h --select 'my file' \\\x1b[0m",
                "   \x1b[36m      --expose \x1b[1mview.lace@$BOB\x1b[0m \\",
                "   \x1b[36m      --dry-runs & \x1b[0m",
                "     request\tB.x --no-command",
                "   $ KEY=$(lace key new)",
                "   $ lace init && lace list   # a remark",
                "   $ lace list --limit \\",
                "     …",
                "   $ cat club.lace",
            ]
        )
    )
    typed = typed_commands(lines)
    words = [each for command in typed for each in command_lines(command)]
    sync = ["--lace", "a", "sync", "tcp:h", "--select", "my file"]
    assert words == [
        [*sync, "--expose", "view.lace@$BOB", "--dry-runs"],
        ["key", "new"],
        ["init"],
        ["list"],
    ]
    for each in words[1:]:
        check_command(each)
    with pytest.raises(click.UsageError, match="--dry-runs"):  # it stands on the third line
        check_command(words[0])
