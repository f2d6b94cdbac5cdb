"""What a shell completes, and the scripts with which it asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.cli.completion import MOST_ITEMS
from tests.cli.links import plex
from tests.cli.running import call, clean_environment, process

if TYPE_CHECKING:
    from pathlib import Path


def complete(*words: str, asking: str = "bash", **env: str) -> list[str]:
    """Return what is offered for the last word."""
    given = {"_LACE_COMPLETE": f"{asking}_complete", "COMP_WORDS": " ".join(["lace", *words])}
    # The shells count words, bash from the word `lace` on; an empty one is not in the line.
    given["COMP_CWORD"] = words[-1] if asking == "fish" else str(len(words))
    done = process(env={**given, **env})
    assert done.code == 0, done.err
    assert done.err == ""
    return [line for line in done.lines if line]


def values(lines: list[str]) -> list[str]:
    return [line.partition(",")[2] for line in lines]


def test_commands_and_options() -> None:
    assert sorted(values(complete("rem"))) == ["remote", "remove"]
    assert values(complete("remote", "")) == ["get", "list", "store", "watch"]
    assert values(complete("list", "--rev")) == ["--reverse"]
    assert values(complete("query", "--engine", "")) == ["embedded", "spark"]
    assert values(complete("completion", "z")) == ["zsh"]


def test_coordinates_part_by_part(folder: Path) -> None:
    with open_lace(folder) as lace:
        lace.add_all([plex(f"links/{number}") for number in range(3)])
        lace.add_all([plex("x", group="it's"), plex("x", group="uv")])
    at = ("--lace", str(folder))
    assert values(complete(*at, "get", "")) == ["//it's//", "//u//", "//uv//"]
    assert values(complete(*at, "get", "//u")) == ["//u//", "//uv//"]
    assert values(complete(*at, "list", "//u//n//li")) == [f"//u//n//links/{n}" for n in range(3)]
    assert values(complete(*at, "remote", "get", "office", "//u//")) == ["//u//n//"]
    assert complete(*at, "get", "P.") == []
    assert values(complete("get", "/", LACE_DIR=str(folder)))[0] == "//it's//"
    with open_lace(folder) as lace:
        lace.add_all([plex(f"many/{number}") for number in range(MOST_ITEMS + 50)])
    assert len(complete(*at, "get", "//u//n//")) == MOST_ITEMS


def test_keys_peers_settings_and_files(folder: Path, verifier: str) -> None:
    (folder / "lace.toml").write_text(
        '[peer.office]\naddress = "tcp:x"\npeer = "V.office"\n[peer.other]\naddress = "tcp:y"\n'
    )
    at = ("--lace", str(folder))
    assert values(complete(*at, "key", "default", "")) == [verifier, "V.office"]
    assert values(complete(*at, "put", "--key", "V.")) == [verifier, "V.office"]
    assert values(complete(*at, "sync", "o")) == ["office", "other"]
    assert values(complete(*at, "remote", "list", "")) == [
        *("office", "other", "stdio", "unix:", "tcp:", "ws:", "wss:")
    ]
    assert values(complete("--set", "max_lin")) == ["max_links=", "max_links_of_address="]
    assert complete("query", "--rules", "") == ["file,"]
    assert complete("--lace", "") == ["dir,"]
    for words in (["put"], ["import"], ["rules", "check"], ["rules", "fmt"], ["rules", "id"]):
        assert complete(*words, "") == ["file,"], words


@pytest.mark.parametrize("damage", ["none", "toml", "store"])
def test_what_cannot_be_read_is_not_told(tmp_path: Path, folder: Path, damage: str) -> None:
    if damage == "toml":
        (folder / "lace.toml").write_text("[peer")
    elif damage == "store":
        (folder / "store.sqlite3").write_bytes(b"\xff" * 8192)
    place = str(tmp_path / "nowhere") if damage == "none" else str(folder)
    assert complete("--lace", place, "get", "//") == []
    assert "stdio" in values(complete("--lace", place, "sync", "", LACE_NONSENSE="1"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts(shell: str) -> None:
    done = call("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_LACE_COMPLETE={shell}_complete" in done.out
    assert call("completion", shell, "--json").json() == {"shell": shell, "script": done.out}
    assert any("remote" in line for line in complete("rem", asking=shell))


def test_zsh_is_given_three_lines_an_item(folder: Path) -> None:
    """Type, value, description; the script takes them so, and an empty one would shift all."""
    (folder / "lace.toml").write_text('[peer.office]\naddress = "tcp:x"\n')
    at = ("--lace", str(folder))
    addresses = complete(*at, "sync", "", asking="zsh")
    assert addresses[:3] == ["plain", "office", "_"]
    assert addresses[1::3] == ["office", "stdio", "unix:", "tcp:", "ws:", "wss:"]
    settings = complete("--set", "max_links", asking="zsh")
    assert settings[1::3] == ["max_links=", "max_links_of_address="]
    assert all(settings[2::3]), "each with what it means"
    commands = complete("re", asking="zsh")
    assert set(commands[::3]) == {"plain"}
    assert sorted(commands[1::3]) == ["remote", "remove"]
    assert complete("import", "", asking="zsh")[0] == "file"
    assert complete("--lace", "", asking="zsh")[0] == "dir"


def test_zsh_puts_no_space_behind_what_goes_on() -> None:
    lines = [line.strip() for line in call("completion", "zsh").lines]
    at = lines.index('if [[ "$key" == *// || "$key" == *= || "$key" == *: ]]; then')
    assert lines[at + 2 : at + 5] == [
        'open_completions+=("$key")',
        'elif [[ "$descr" == "_" ]]; then',
        'completions+=("$key")',
    ]
    assert "compadd -U -V unsorted -S '' -a open_completions" in lines
    assert "compadd -U -V unsorted -a completions" in lines, "a whole value gets its space"
    assert "local -a open_completions" in lines
    for opening, closing in (("if ", "fi"), ("for ", "done")):
        opened = sum(line.startswith(opening) for line in lines)
        assert opened == lines.count(closing)


def test_fish_is_given_values_whole(folder: Path) -> None:
    with open_lace(folder) as lace:
        lace.add(plex("one, two"))
    at = ("--lace", str(folder))
    assert complete(*at, "get", "//u//n//", asking="fish") == ["plain,//u//n//one, two"]
    assert "plain,-e" in [line.partition("\t")[0] for line in complete("query", "-", asking="fish")]
    assert complete("query", "--rules", "", asking="fish") == ["file,"]
    script = call("completion", "fish").out
    assert 'set -l metadata (string split -m 1 -- "," $completion);' in script
    assert "printf '%s\\n' $metadata[2];" in script
    assert "echo $metadata" not in script, "echo takes -e and -n for its own"


def test_bash_itself(folder: Path, tmp_path: Path) -> None:
    with open_lace(folder) as lace:
        lace.add(plex("links/1"))
    script = (
        'eval "$(lace completion bash)"\n'
        "COMP_WORDS=(lace --lace .lace get //u//n//); COMP_CWORD=4\n"
        '_lace_completion lace; printf "%s\\n" "${COMPREPLY[@]}"; complete -p lace\n'
        'compopt() { printf "%s " compopt "$@"; }\n'
        "for word in 'get //u' 'get //u//n//' '--set max_links_' 'sync tc' 'rem'; do\n"
        "COMPREPLY=(); IFS=' ' COMP_WORDS=(lace --lace .lace $word); "
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        'echo "$word: $(_lace_completion lace)"\n'
        "done\n"
    )
    shown = in_shell(tmp_path, ["bash", "-c", script])
    assert shown[0] == "//u//n//links/1"
    assert "_lace_completion" in shown[1]
    assert shown[2:] == [
        "get //u: compopt -o nospace ",
        "get //u//n//: ",
        "--set max_links_: compopt -o nospace ",
        "sync tc: compopt -o nospace ",
        "rem: ",
    ]


ZSH = """
autoload -Uz compinit && compinit -u -d ./dump
eval "$(lace completion zsh)"
print -r -- registered ${_comps[lace]}
compadd() { print -r -- ${(j: :)@} : $completions $open_completions }
_describe() { print -r -- described ${completions_with_descriptions%%:*} }
for line in 'get //u' 'get //u//n//' '--set max_links_' 'sync tc' 'rem' 'completion z'; do
  words=(lace --lace .lace ${=line}); CURRENT=$#words
  _lace_completion
done
"""


def test_zsh_itself(folder: Path, tmp_path: Path) -> None:
    with open_lace(folder) as lace:
        lace.add(plex("links/1"))
    if shutil.which("zsh") is None:
        parts = "#compdef lace", "compdef _lace_completion lace"
        check_text("zsh", {"fi": ("if ",), "done": ("for ",), "}": ("_lace_completion()",)}, *parts)
        return
    assert in_shell(tmp_path, ["zsh", "-f", "-c", ZSH]) == [
        "registered _lace_completion",
        "-U -V unsorted -S  -a open_completions : //u//",
        "-U -V unsorted -a completions : //u//n//links/1",
        "-U -V unsorted -S  -a open_completions : max_links_of_address=",
        "-U -V unsorted -S  -a open_completions : tcp:",
        "described remote remove",
        "-U -V unsorted -a completions : zsh",
    ]


FISH = """
lace completion fish | source
for line in 'get //u' 'get //u//n//' '--set max_links_' 'sync tc' 'rem' 'completion z'
    string replace -r "\\t.*" "" -- (complete -C "lace --lace .lace $line"); or true
end
"""


def test_fish_itself(folder: Path, tmp_path: Path) -> None:
    with open_lace(folder) as lace:
        lace.add(plex("links/1"))
    if shutil.which("fish") is None:
        parts = "function _lace_completion;", "complete --no-files --command lace "
        check_text("fish", {"end;": ("function ", "for ", "if ")}, *parts)
        return
    assert in_shell(tmp_path, ["fish", "--no-config", "-c", FISH]) == [
        *("//u//", "//u//n//links/1", "max_links_of_address=", "tcp:", "remote", "remove", "zsh"),
    ]


def in_shell(folder: Path, command: list[str]) -> list[str]:
    """The lines that a shell writes to whom `lace` is a program; it complains of nothing."""
    program = folder / "bin" / "lace"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lace "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        env=clean_environment(PATH=path, HOME=str(folder)),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def check_text(shell: str, blocks: dict[str, tuple[str, ...]], *parts: str) -> None:
    """Where a shell is not installed: what its script defines, and that its blocks are closed."""
    script = call("completion", shell)
    assert f"_LACE_COMPLETE={shell}_complete" in script.out
    lines = [line.strip() for line in script.lines]
    for part in parts:
        assert part in script.out
    for closing, openings in blocks.items():
        opened = sum(line.startswith(openings) for line in lines)
        assert opened == lines.count(closing) > 0, (shell, closing)


def test_no_shell_is_named() -> None:
    done = call("completion")
    assert done.code == 2
    assert "'bash|zsh|fish'. Choose from: bash, zsh, fish; see" in done.err


def test_another_shell() -> None:
    done = call("completion", "tcsh")
    assert done.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.err
