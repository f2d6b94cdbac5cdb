"""The README: its picture is whole and loads nothing, its figures are those that were measured."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from tests.docs.examples import check_command, command_lines

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"


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


def test_the_picture_of_the_demo_shows_commands_that_exist() -> None:
    lines = re.findall(r">([^<]*)</text>", PICTURE.read_text("utf-8"))
    shown = [line.replace("&#160;", " ").replace("\xa0", " ").strip() for line in lines]
    typed = [line[2:] for line in shown if line.startswith("$ lace ") and "…" not in line]
    assert len(typed) >= 3
    for line in typed:
        for words in command_lines(line.replace("&#x27;", "'")):
            check_command(words)
