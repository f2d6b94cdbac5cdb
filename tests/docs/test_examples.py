"""The examples of README, tutorial and how-to pages run, and print what the pages say."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import lace
from tests.cli.running import clean_environment
from tests.docs.examples import (
    MARK,
    Block,
    check_command,
    command_lines,
    matches,
    read_blocks,
    script,
)
from tests.spark_session import SETTINGS, write_defaults

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Runs as one program, with names that its blocks share: tests/link/test_how_to.py.
ELSEWHERE = DOCS / "how-to" / "exchange-in-python.md"
# The pages of the tutorial go on where the one before ended.
TUTORIAL = [
    DOCS / f"{name}.md"
    for name in re.findall(r"^tutorial/[\w-]+$", (DOCS / "index.md").read_text("utf-8"), re.M)
]
ALONE = [
    ROOT / "README.md",
    *(page for page in sorted((DOCS / "how-to").glob("*.md")) if page != ELSEWHERE),
]
PAGES = [*TUTORIAL, *ALONE]
EXPLAINED = sorted((DOCS / "explanation").glob("*.md"))
MOST_PAGES_AND_BLOCKS_NOT_RUN = 12


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def run_blocks(blocks: list[Block], folder: Path) -> None:
    """Run examples in an empty folder; what pages show has to be what was printed."""
    place, settings, programs = folder / "place", folder / "spark", folder / "programs"
    for each in (place, settings, programs):
        each.mkdir()
    for name, arguments in (("python", ""), ("lace", "-m lace ")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (programs / name).chmod(0o755)
    write_defaults(settings, SETTINGS)
    environment = clean_environment(
        HOME=str(place),
        PATH=f"{programs}:{os.environ['PATH']}",
        PYTHONUNBUFFERED="1",  # in one pipe as at a terminal: what is said comes after the data
        SPARK_CONF_DIR=str(settings),
        TMPDIR=str(folder),
    )
    running = subprocess.Popen(
        ["bash", "-c", script(blocks)],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=300)
    finally:  # servers that a page has started do not outlive it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert running.returncode == 0, output
    printed = output.split(f"{MARK}\n")[1:]
    for block, found in zip(blocks, printed, strict=True):
        if block.shown is not None:
            assert matches(block.shown, found), f"{block.text}\nprinted:\n{found}"


def blocks_to_run(page: Path) -> list[Block]:
    return [block for block in read_blocks(page) if block.kind == "run"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_tutorial_is_true(tmp_path: Path) -> None:
    assert len(TUTORIAL) == len(list((DOCS / "tutorial").glob("*.md")))
    run_blocks([block for page in TUTORIAL for block in blocks_to_run(page)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in ALONE if blocks_to_run(page)], ids=name_of)
def test_the_page_is_true(tmp_path: Path, page: Path) -> None:
    run_blocks(blocks_to_run(page), tmp_path)


@pytest.mark.parametrize("page", [*PAGES, *EXPLAINED], ids=name_of)
def test_rules_are_legal(page: Path) -> None:
    for block in read_blocks(page):
        if block.kind == "rules":
            lace.Lacegram.parse(block.text)


@pytest.mark.parametrize("page", [*PAGES, *EXPLAINED], ids=name_of)
def test_commands_that_are_not_run_have_options_that_exist(page: Path) -> None:
    for block in read_blocks(page):
        if block.language == "sh" and (page in EXPLAINED or block.kind == "not run"):
            for words in command_lines(block.text):
                check_command(words)


def test_few_examples_are_not_run() -> None:
    texts = [page.read_text("utf-8") for page in PAGES]
    marks = sum(text.count(", because ") for text in texts for text in re.findall("<!--.*", text))
    assert marks <= MOST_PAGES_AND_BLOCKS_NOT_RUN
    assert len([block for page in PAGES for block in blocks_to_run(page)]) > 60


def test_no_command_hides_in_a_block_that_is_no_example() -> None:
    for page in PAGES:
        for text in re.findall(r"^```text\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
            assert not re.search(r"^(lace|make|pip|systemctl|\$) ", text, re.M), name_of(page)


def test_what_is_shown_may_leave_things_out() -> None:
    assert matches("S.….H3\n", "S.abc.H3\n")
    assert not matches("S.….H3\n", "S.abc\n.H3\n")
    assert matches("a\n…\nb\n", "a\nx\ny\nb\n")
    assert matches("a\n…\nb\n", "a\nb\n")
    assert not matches("a\n…\nb\n", "a\nx\nc\n")
    assert matches("one …\ntwo\n", "one and more\ntwo\n")
    assert not matches("one …\ntwo\n", "one\nand\ntwo\n")


def test_a_wrong_option_is_found() -> None:
    check_command(["--lace", "x", "sync", "stdio", "--select", "f", "--", "ssh", "--nonsense"])
    with pytest.raises(click.UsageError):
        check_command(["sync", "stdio", "--selekt", "f"])
    with pytest.raises(click.UsageError):
        check_command(["sink"])
    assert command_lines("a | lace put \\\n  --sign > x; lace list 'a b' | sort") == [
        ["put", "--sign"],
        ["list", "a b"],
    ]
