"""Every command explains itself, and the reference page says the same."""

from __future__ import annotations

import inspect
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import click
import pytest

import lace
from lace.cli.command import LaceCommand, LaceGroup
from lace.cli.main import REGISTER, cli
from lace.cli.peers import SyncArguments
from tests.cli.running import call
from tests.docs.examples import command_lines, parse_whole

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "commands.md"


def tree() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    waiting: list[tuple[str, click.Command]] = [("lace", cli)]
    while waiting:
        path, command = waiting.pop()
        found[path] = command
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                below = command.get_command(ctx, name)
                assert below is not None, f"{path} {name} has no module"
                waiting.append((f"{path} {name}", below))
    return dict(sorted(found.items()))


COMMANDS = tree()


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_has_help_examples_and_documented_output(path: str) -> None:
    command = COMMANDS[path]
    assert isinstance(command, (LaceCommand, LaceGroup))
    assert command.help, "no help"
    documentation = command.documentation
    assert documentation.examples, "no example"
    assert all("lace" in line for line, _meaning in documentation.examples)
    if isinstance(command, LaceCommand):
        assert documentation.piped, "its piped output is not documented"
        assert documentation.json_keys, "its JSON is not documented"
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{param.opts} has no help"


def test_a_command_names_what_a_program_calls_or_says_why_nothing_does() -> None:
    for path, command in COMMANDS.items():
        if isinstance(command, LaceCommand):
            documentation = command.documentation
            assert bool(documentation.api) != bool(documentation.shell_only), path
            for name in documentation.api:
                assert callable(resolve(name)) or isinstance(resolve(name), property), name


def resolve(name: str) -> object:
    """Return what a dotted name below `lace` is: a function, a class, a property or a method."""
    found: object = lace
    for part in name.split("."):
        if not hasattr(found, part):
            with suppress(ImportError):
                import_module(f"{getattr(found, '__name__', '')}.{part}")
        if not hasattr(found, part):  # an attribute that each instance gets
            module = sys.modules[getattr(found, "__module__", "")]
            found = vars(module)[inspect.get_annotations(found)[part]]  # type: ignore[arg-type]
        else:
            found = getattr(found, part)
    return found


@pytest.mark.parametrize("path", COMMANDS)
def test_examples_have_commands_options_and_values_that_exist(path: str) -> None:
    command = COMMANDS[path]
    assert isinstance(command, (LaceCommand, LaceGroup))
    for line, _meaning in command.documentation.examples:
        calls = command_lines(line)
        assert calls, f"{line!r} calls no lace"
        for words in calls:
            parse_whole(words)


@pytest.mark.parametrize(
    "line",
    [
        "lace lst",
        "lace list --limt 3",
        "lace list --limit three",
        "lace list a b c",
        "lace query -e x --engine sparc",
        "echo x | lace put --nme y",
        'KEY="$(lace key nw)"',
        "lace key",
        "lace get",
    ],
)
def test_an_example_that_is_wrong_is_found(line: str) -> None:
    (words,) = command_lines(line)
    with pytest.raises(click.UsageError):
        parse_whole(words)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_shows_examples_and_global_options(path: str) -> None:
    done = call(*path.split(" ")[1:], "--help")
    assert done.code == 0
    assert done.err == ""
    for part in ("Usage: ", "Examples:", "--lace DIR", "--json", "--set NAME=VALUE", "--debug"):
        assert part in done.out, part


@pytest.mark.parametrize("path", COMMANDS)
def test_the_reference_page_has_the_command(path: str) -> None:
    lines = PAGE.read_text("utf-8").split("\n")
    level = "#" * len(path.split(" "))
    assert (f"{level} {path}" in lines) or path == "lace"


def test_the_reference_page_is_what_the_commands_say() -> None:
    program = ROOT / "scripts" / "command_reference"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert PAGE.read_text("utf-8") == done.stdout, (
        "run: .venv/bin/python scripts/command_reference > docs/reference/commands.md"
    )


def test_the_help_of_lace_loads_no_command() -> None:
    """It is written from the register, which says what each command says of itself."""
    context = click.Context(cli)
    for name, (_module, summary) in REGISTER.items():
        found = cli.get_command(context, name)
        assert found is not None
        assert click.Command(name, help=summary).get_short_help_str(300) == (
            found.get_short_help_str(300)
        )
    code = (
        "import sys; from lace.cli.main import run; from lace.cli.session import Session;"
        "run(['--help'], Session({})); print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert not [module for module, _ in REGISTER.values() if f"'{module}'" in loaded]


def test_the_help_of_sync_names_all_keys_of_a_peers_table() -> None:
    told = " ".join((COMMANDS["lace sync"].help or "").split())
    listed = told.partition("by their names (")[2].partition(")")[0].split(", ")
    assert sorted(listed) == sorted(each.name.replace("_", "-") for each in fields(SyncArguments))
