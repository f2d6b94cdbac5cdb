"""The examples of a page: its fenced blocks, which of them run, and what they should print.

- A `sh` block runs in bash; each of its commands has to succeed, unless the block looks at `$?`. A
  `python` block is a program of its own, and a `lace` block has to be legal rules. All blocks of a
  page run in order, in one folder that is empty at first.
- A block without a language, next after one that runs, is what that one prints. `…` stands for
  anything within a line, and a line `…` for any lines.
- `<!-- example: file NAME -->` before a block writes its text into a file, `more of NAME` behind
  what the file has.
- `<!-- example: before` begins a comment whose lines run there, unseen by the reader.
- `<!-- example: not run, because … -->` before a block keeps it from running, `none run from here`
  all that follow. Their commands are still compared with the options that there are.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from lace.cli.command import require_subcommand
from lace.cli.main import cli
from lace.cli.session import Session

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Block",
    "check_command",
    "command_lines",
    "matches",
    "parse_whole",
    "read_blocks",
    "script",
]

PART = re.compile(
    r"^<!-- example: (?P<mark>before\n|[^\n]*?)(?P<hidden>(?<=\n).*?)? ?-->$"
    r"|^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = re.compile(r"(not run|none run from here), because \S+ .*")
OPERATORS = set("|&;<>()")
MARK = "=== the next block"
Kind = Literal["run", "rules", "not run"]


@dataclass(slots=True)
class Block:
    """One example: its language and text, whether it runs, and what it should print, if told."""

    language: str
    text: str
    kind: Kind
    shown: str | None = None


def read_blocks(page: Path) -> list[Block]:
    """The examples of a page, in order; what is no example, such as TOML, is left out."""
    blocks: list[Block] = []
    mark, rest_runs, printing = "", True, False
    for part in PART.finditer(page.read_text("utf-8")):
        language, text = part["language"], part["text"]
        if part["mark"] is not None:
            assert not mark, f"{page.name}: no block follows on {mark!r}"
            mark = part["mark"].strip()
            if mark == "before":
                blocks.append(Block("sh", part["hidden"], "run"))
                mark = ""
            elif mark.startswith("none run"):
                assert NOT_RUN.fullmatch(mark), mark
                mark, rest_runs = "", False
            continue
        if made := _block(language, text, mark, rest_runs):
            blocks.append(made)
        elif language == "" and printing:
            blocks[-1].shown = text
        printing = made is not None and made.kind == "run"
        mark = ""
    return blocks


def _block(language: str, text: str, mark: str, runs: bool) -> Block | None:
    if file := re.fullmatch(r"(file|more of) (\S+)", mark):
        sign = ">" if file[1] == "file" else ">>"
        return Block("sh", f"cat {sign} {file[2]} <<'FILE'\n{text}FILE\n", "run")
    assert not mark or NOT_RUN.fullmatch(mark), mark
    if language == "lace":
        return Block(language, text, "rules")
    if language in ("sh", "python"):
        return Block(language, text, "not run" if mark or not runs else "run")
    assert not mark, f"this is not run anyway: {mark}"
    return None


def script(blocks: list[Block]) -> str:
    """A bash script that runs blocks, and writes a mark before what each of them prints."""
    lines = []
    for block in blocks:
        lines.append(f"echo '{MARK}'")
        lines.append("set +e" if "$?" in block.text else "set -e")
        if block.language == "python":
            lines.append(f"python - <<'PYTHON'\n{block.text}PYTHON")
        else:
            lines.append(block.text)
    return "\n".join(lines)


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, `…` being anything."""
    lines = [
        r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line).replace("…", r"[^\n]*") + r"\n"
        for line in shown.split("\n")[:-1]
    ]
    return re.fullmatch("".join(lines), printed) is not None


def command_lines(text: str) -> list[list[str]]:
    """The words of every line that calls `lace`, up to a pipe, a redirection or another command."""
    found = []
    for line in re.sub(r"\\\n\s*", " ", text).split("\n"):
        line = re.sub(r'"\$\(([^"]*)\)"', r"$(\1)", line)  # what is called within quotes
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words = list(lexer)
        for index, word in enumerate(words):
            before = words[index - 1] if index else "--"
            if word == "lace" and (before == "--" or set(before) <= OPERATORS or "=" in before):
                rest = words[index + 1 :]
                end = next((i for i, part in enumerate(rest) if set(part) <= OPERATORS), None)
                found.append(rest[:end])
    return found


def check_command(words: list[str]) -> None:
    """Raise a `click.UsageError` if there is no such command, or it has no such option."""
    command: click.Command = cli
    context = click.Context(command, info_name="lace", **command.context_settings)
    while isinstance(command, click.Group):
        words = command.make_parser(context).parse_args(list(words))[1]
        if not words:
            return
        name, command_found, words = command.resolve_command(context, words)
        assert command_found is not None
        command = command_found
        context = click.Context(command, parent=context, info_name=name, **command.context_settings)
    own = words[: words.index("--")] if "--" in words else words
    command.make_parser(context).parse_args(list(own))


def parse_whole(words: list[str]) -> None:
    """Raise a `click.UsageError` if click would: also at values, and at arguments that lack."""
    context = cli.make_context("lace", list(words), obj=Session({}))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            require_subcommand(context)
            return
        name, found, rest = context.command.resolve_command(context, rest)
        assert found is not None
        context = found.make_context(name, rest, parent=context)
