"""The README: its picture is whole and loads nothing, its figures are those that were measured."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import click
import pytest

from lace.cli import demo as demo_story
from lace.cli.demo import DemoStage
from tests.cli.running import call
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


class Step(NamedTuple):
    """A step of the story: what it says, what is typed, and whether its end is left out."""

    heading: str
    commands: list[str]
    is_cut: bool


def steps_of(lines: list[str]) -> list[Step]:
    """The steps of the story, as it is told or drawn; what differs each time is the same."""
    text = re.sub(r" \\\n\s*", " ", "\n".join(lines))
    text = re.sub(r"[A-Z]\.[\w~]{43}(\.H3)?", "V", text)
    text = re.sub(r"tcp:127\.0\.0\.1:[1-9]\d*", "tcp:127.0.0.1:port", text)
    text = re.sub(r"[\d,]+ signed records", "many signed records", text)
    found = []
    for part in re.split(r"^(?=\d+\. )", text, flags=re.MULTILINE)[1:]:
        heading = re.match(r"\d+\. .*(?:\n   (?! |\$ ).*)*", part)
        assert heading is not None
        body = part[heading.end() :].partition("\nDone; ")[0]
        commands = re.findall(r"^   \$ (.*)$", body, re.MULTILINE)
        found.append(Step(" ".join(heading[0].split()), commands, "\n     …" in body))
    return found


def test_the_picture_tells_the_story_of_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(stage: DemoStage, _title: str, *words: str) -> str:
        stage._typed(words)
        return stage._invoke(
            [each for each in words if each not in ("--engine", "spark")], 0, is_terminal=False
        )

    monkeypatch.setattr(demo_story, "READINGS", 30)
    monkeypatch.setattr(DemoStage, "start", start)  # no Java for this
    told = call("demo").out
    drawn = drawn_lines(PICTURE.read_text("utf-8"))
    story, picture = steps_of(told.split("\n")), steps_of(drawn)
    hint = "run: .venv/bin/python scripts/demo_picture"
    assert [step.heading for step in picture] == [step.heading for step in story], hint
    assert len(story) >= 15
    for shown, step in zip(picture, story, strict=True):
        assert shown.commands == step.commands[: len(shown.commands)], hint
        assert shown.commands, f"no command of {step.heading!r} is drawn"
        assert shown.is_cut or len(shown.commands) == len(step.commands), hint
    for text in (told, "\n".join(drawn)):
        assert text.rstrip().endswith("$ lace list")
    ends = [text.rpartition("Done; ")[2].split() for text in (told, "\n".join(drawn))]
    assert ends[0] == ends[1], hint


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
