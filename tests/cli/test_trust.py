"""Laces of other owners, and commands that a lace's own file names."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.base.limits import DEFAULT_SETTINGS, Settings
from tests.cli.links import Party, hashes, make_parties
from tests.cli.running import Result, call, on_terminal, process
from tests.cli.screens import at_terminal

if TYPE_CHECKING:
    from pathlib import Path

_ANOTHER = 4790
"""A user that is not the one who runs this."""


def give_away(path: Path) -> None:
    """Let a file or folder belong to another user.

    Only root can give a file away; anyone else puts a link to one of root's in its place.
    """
    if os.geteuid() == 0:
        os.chown(path, _ANOTHER, _ANOTHER)
    elif path.is_dir():
        shutil.rmtree(path)
        path.symlink_to("/usr")
    else:
        path.unlink()
        path.symlink_to("/etc/passwd")


# -- laces that were found ------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["folder", "settings"])
def test_a_found_lace_of_another_owner_is_refused(
    folder: Path, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("init")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert call("status").code == 0, "one's own lace is found from below"
    give_away(folder if what == "folder" else folder / "lace.toml")
    for command in (
        ["status"],
        ["list"],
        ["config", "show"],
        ["key", "list"],
        ["put", "-"],
        ["sync", "office"],
        ["remote", "list", "office"],
    ):
        done = process(*command)
        assert done.code == 2, (command, done.err)
        assert "belongs to another user (uid" in done.err
        assert f"--lace {folder}" in done.err
        assert "LACE_DIR" in done.err
        assert not done.raw
    doctor = call("doctor", "--json").json()
    (found,) = [check for check in doctor["checks"] if check["name"] == "lace"]
    assert found["state"] == "problem"
    assert "belongs to another user" in found["found"]
    assert "name it: --lace" in found["fix"]


def test_a_named_lace_may_be_of_another_owner(filled: Path) -> None:
    if os.geteuid() == 0:
        give_away(filled)
    else:  # the file of another user in one's own lace
        (filled / "lace.toml").symlink_to("/dev/null")
    assert process("status").code == 2
    assert process("--lace", filled, "status").code == 0
    assert process("status", "--lace", filled).code == 0
    assert process("status", env={"LACE_DIR": str(filled)}).code == 0
    with open_lace(filled, read_only=True) as lace:
        assert len(lace) == 4


def test_a_link_counts_as_its_owner_and_as_what_it_leads_to(tmp_path: Path) -> None:
    with open_lace(tmp_path / "real.lace"):
        pass
    (tmp_path / ".lace").symlink_to("real.lace")
    assert call("status").code == 0
    if os.geteuid() == 0:
        os.lchown(tmp_path / ".lace", _ANOTHER, _ANOTHER)
        done = call("status")
        assert (done.code, "belongs to another user" in done.err) == (2, True)
        os.lchown(tmp_path / ".lace", 0, 0)
    give_away(tmp_path / "real.lace")
    assert call("status").code == 2


@pytest.mark.parametrize("what", ["folder", "settings"])
def test_a_found_lace_that_anybody_can_write_to_is_refused(folder: Path, what: str) -> None:
    call("init")
    path = folder if what == "folder" else folder / "lace.toml"
    path.chmod(path.stat().st_mode | stat.S_IWOTH)
    done = call("status")
    assert done.code == 2
    assert f"anybody can write to {path}" in done.err
    assert f"chmod o-w {path}" in done.err
    assert call("--lace", folder, "status").code == 0
    path.chmod(path.stat().st_mode & ~stat.S_IWOTH | stat.S_IWGRP)
    assert call("status").code == 0, "a group's umask is no attack"


def test_init_does_not_take_a_lace_of_another_owner(folder: Path, tmp_path: Path) -> None:
    give_away(folder)
    done = call("init")
    assert done.code == 2
    assert "belongs to another user" in done.err
    assert call("init", tmp_path / "mine.lace").code == 0


def test_commands_that_need_no_lace_go_on_without_its_settings(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "lace.toml").write_text("max_rules = 256\n")
    rules = tmp_path / "many.rules"
    rules.write_text("".join(f"A(P) :- Field(P,'App',_,'a{n}').\n" for n in range(300)))
    assert call("rules", "check", rules).code == 1, "the settings of one's own lace count"
    give_away(folder / "lace.toml")
    done = call("rules", "check", rules)
    assert done.code == 0
    assert done.err.count("its settings are left aside") == 1
    assert "belongs to another user" in done.err


def test_settings_of_a_lace_name_no_program() -> None:
    """Of what a lace.toml says, only the table of a peer can name a program."""
    names = {"offer_fields", "record_formats"}
    for entry in fields(Settings):
        value = getattr(DEFAULT_SETTINGS, entry.name)
        assert isinstance(value, int) or entry.name in names, entry.name


# -- commands of peers ----------------------------------------------------------------------------


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Party, Party]:
    """Two laces; the table [peer.office] of the first starts a server for the second."""
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    left, right = make_parties(tmp_path)
    write_table(left, right, child_of(left, right))
    return left, right


def child_of(left: Party, right: Party) -> list[str]:
    return [sys.executable, "-m", "lace", "serve", "stdio", *right.policy(left)]


def write_table(left: Party, right: Party, command: list[str]) -> None:
    (left.folder / "lace.toml").write_text(
        '[peer.office]\naddress = "stdio"\nselect = "../all.lace"\n'
        f'expose = ["../view.lace@{right.verifier}"]\npeer = "{right.verifier}"\n'
        f"command = {json.dumps(command)}\n"
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


def sync(left: Party, config: Path, *more: object) -> Result:
    return process(
        "--lace", left.folder, "sync", "office", *more, env={"XDG_CONFIG_HOME": str(config)}
    )


def at_prompt(left: Party, config: Path, typed: bytes, *command: str) -> Result:
    return on_terminal(
        *("--lace", left.folder, *(command or ("sync", "office"))),
        typed=typed,
        env={"XDG_CONFIG_HOME": str(config), "NO_COLOR": "1"},
        columns=2000,
    )


def test_a_command_is_refused_without_a_terminal(
    parties: tuple[Party, Party], config: Path
) -> None:
    left, right = parties
    mark = left.folder / "ran"
    write_table(left, right, ["touch", str(mark), "\x1b[2Jx"])
    for command in (
        ["sync", "office"],
        ["sync", "office", "--dry-run"],
        ["remote", "list", "office"],
    ):
        done = process("--lace", left.folder, *command, env={"XDG_CONFIG_HOME": str(config)})
        assert done.code == 1, done.err
        assert "[peer.office]: this command was not approved: touch" in done.err
        assert r"\u{1b}[2Jx" in done.err
        assert "\x1b" not in done.err
        assert "run this once at a terminal" in done.err
        assert "after --: -- touch" in done.err
    assert not mark.exists()
    assert not config.exists()


def test_a_command_on_the_command_line_needs_no_approval(
    parties: tuple[Party, Party], config: Path
) -> None:
    left, right = parties
    write_table(left, right, ["touch", "x"])
    done = sync(left, config, "--", *child_of(left, right))
    assert done.code == 0, done.err
    assert hashes(left) == hashes(right)


def test_a_command_is_asked_for_once(parties: tuple[Party, Party], config: Path) -> None:
    left, right = parties
    command = child_of(left, right)
    with at_terminal("--lace", left.folder, "sync", "office", columns=2000) as screen:
        screen.wait_for("from now on? [y/N]:")
        assert "[peer.office] starts this command, with all your rights:" in screen.read()
        assert f"  {shlex.join(command)}\r\n" in screen.read()
        assert hashes(right) != hashes(left), "nothing runs before the answer"
        screen.type(b"\n")
        assert screen.end() == 1, screen.read()
        assert "nothing was done" in screen.read()
    done = at_prompt(left, config, b"n\n")
    assert done.code == 1
    assert sync(left, config).code == 1, "a no is not kept, and is no yes"
    done = at_prompt(left, config, b"y\n")
    assert done.code == 0, done.out
    assert hashes(left) == hashes(right)
    kept = config / "lace" / "approved-commands.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert json.loads(kept.read_text()) == {
        "version": 1,
        "approved": [{"lace": str(left.folder.resolve()), "command": command}],
    }
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    done = sync(left, config)
    assert done.code == 0, done.err
    listed = process(
        *("--lace", left.folder, "remote", "list", "office"), env={"XDG_CONFIG_HOME": str(config)}
    )
    assert len(listed.lines) == 10, listed.err


def test_a_relative_program_is_one_of_the_lace(
    parties: tuple[Party, Party], config: Path, tmp_path: Path
) -> None:
    """An approval names one file, in whatever folder a later command runs."""
    left, right = parties
    write_table(left, right, ["./run", "x"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder, child in ((left.folder, child_of(left, right)), (elsewhere, ["touch", "ran"])):
        (folder / "run").write_text(f"#!/bin/sh\nexec {shlex.join(child)}\n")
        (folder / "run").chmod(0o700)
    done = at_prompt(left, config, b"y\n")
    assert done.code == 0, done.out
    assert f"  {left.folder.resolve() / 'run'} x" in done.out
    done = process(
        *("--lace", left.folder.resolve(), "sync", "office"),
        env={"XDG_CONFIG_HOME": str(config)},
        cwd=elsewhere,
    )
    assert done.code == 0, done.err
    assert not (elsewhere / "ran").exists()


def test_approvals_are_for_one_lace_and_one_command(
    parties: tuple[Party, Party], config: Path, tmp_path: Path
) -> None:
    left, right = parties
    command = child_of(left, right)
    assert at_prompt(left, config, b"y\n").code == 0
    for changed in ([*command, "--open"], [" ".join(command)], [*command[:-1], command[-1] + " "]):
        write_table(left, right, changed)
        done = sync(left, config)
        assert done.code == 1
        assert "was not approved" in done.err
    write_table(left, right, command)
    shutil.copytree(left.folder, tmp_path / "copy")
    copied = process(
        "--lace", tmp_path / "copy", "sync", "office", env={"XDG_CONFIG_HOME": str(config)}
    )
    assert (copied.code, "was not approved" in copied.err) == (1, True)
    (tmp_path / "way").symlink_to(left.folder)
    for way in (tmp_path / "way", tmp_path / "copy" / ".." / "left"):
        found = process("--lace", way, "sync", "office", env={"XDG_CONFIG_HOME": str(config)})
        assert found.code == 0, f"{found.err}: the real path counts, not the way to it"
    (tmp_path / "way").unlink()
    (tmp_path / "way").symlink_to(tmp_path / "copy")
    found = process(
        "--lace", tmp_path / "way", "sync", "office", env={"XDG_CONFIG_HOME": str(config)}
    )
    assert found.code == 1
    write_table(left, right, ["true"])
    assert at_prompt(left, config, b"y\n").code == 4, "it runs, and is no peer"
    write_table(left, right, command)
    assert sync(left, config).code == 0, "a second approval keeps the first"


def _damage(kept: Path, how: str) -> None:
    text = kept.read_text()
    match how:
        case "foreign":
            give_away(kept)
        case "foreign folder":
            give_away(kept.parent)
        case "writable":
            kept.chmod(0o660)
        case "writable folder":
            kept.parent.chmod(0o777)
        case "cut":
            kept.write_text(text[:-20])
        case "version":
            kept.write_text(text.replace('"version": 1', '"version": 2'))
        case "shape":
            kept.write_text('{"version": 1, "approved": [{"lace": 1, "command": "x"}]}')
        case "deep":
            kept.write_text("[" * 100_000)
        case "large":
            kept.write_text(text + " " * (4 * 1024 * 1024))
        case "pipe":
            kept.unlink()
            os.mkfifo(kept)


@pytest.mark.parametrize(
    "how",
    [
        *("foreign", "foreign folder", "writable", "writable folder"),
        *("cut", "version", "shape", "deep", "large", "pipe"),
    ],
)
def test_approvals_that_others_could_have_written_count_for_nothing(
    parties: tuple[Party, Party], config: Path, how: str
) -> None:
    left, _ = parties
    assert at_prompt(left, config, b"y\n").code == 0
    _damage(config / "lace" / "approved-commands.json", how)
    done = sync(left, config)
    if how == "foreign folder" and os.geteuid() != 0:  # the folder is /usr now, with no such file
        assert done.code == 1
        return
    assert done.code == 1
    assert "warning: approvals are left aside: " in done.err
    assert "was not approved" in done.err
    again = at_prompt(left, config, b"y\n")
    assert again.code == 0, again.out
    assert "the approval counts for this run only: " in again.out
    assert sync(left, config).code == 1


def test_a_home_without_a_configuration_folder(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, _ = parties
    home = tmp_path / "home"
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": "relative", "NO_COLOR": "1"}
    done = on_terminal("--lace", left.folder, "sync", "office", typed=b"y\n", env=environment)
    assert done.code == 0, done.out
    assert (home / ".config" / "lace" / "approved-commands.json").is_file()
    assert process("--lace", left.folder, "sync", "office", env=environment).code == 0
