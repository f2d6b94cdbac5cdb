"""The command lines that are timed: every command has one, or a reason, and they all succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import local_commands
from benchmarks.local_commands import EXCLUDED, command_names, lines_of, prepare
from tests.cli.running import call
from tests.cli.test_help import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path


def test_all_commands_are_known() -> None:
    groups = {path for path, each in COMMANDS.items() if hasattr(each, "list_commands")}
    assert {f"lace {name}" for name in command_names()} == COMMANDS.keys() - groups


def test_every_line_succeeds(tmp_path: Path) -> None:
    small = prepare(tmp_path / "small", 2)
    for number in range(2):
        lines = lines_of(small, number)
        assert lines.keys() | EXCLUDED.keys() == {*command_names()}
        for name, line in lines.items():
            given = line.given.read_bytes() if line.given is not None else b""
            done = call(*line.words, given=given)
            assert done.code == 0, (name, done.err)


def test_a_command_without_a_line_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = local_commands._Small(tmp_path, "V.x.H3", ("V.y.H3",))
    known = command_names()
    monkeypatch.setattr(local_commands, "command_names", lambda: [*known, "key forge"])
    with pytest.raises(LookupError, match="key forge"):
        lines_of(small, 0)
    monkeypatch.setattr(local_commands, "command_names", lambda: known)
    monkeypatch.setattr(local_commands, "EXCLUDED", {**EXCLUDED, "get": "no reason"})
    with pytest.raises(LookupError, match="get"):
        lines_of(small, 0)
