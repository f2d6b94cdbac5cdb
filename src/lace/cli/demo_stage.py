"""Where the demonstration plays: commands run as they would be typed, shown with what they say.

Most run in this process, which is quick. The server of an exchange and Spark are processes of
their own, as they are for users.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.cli.output import Output
from lace.cli.progress import Waiting
from lace.cli.wrapping import wrap_answer, wrap_command, wrap_prose
from lace.errors import LaceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lace.cli.session import Session

__all__ = ["DemoError", "Stage"]

_MOST_LINES: Final = 14
"""Lines of an answer that are shown; of a longer one, how many are left."""
_END_SECONDS: Final = 20.0
_RUN_END_SECONDS: Final = 30
"""Java may be starting, and has to end then."""
_LONG: Final = re.compile(r"([A-Z]\.[0-9A-Za-z_~]{6})[0-9A-Za-z_~]{37}(?:\.H3)?")
"""Hashes and verifiers; what is shown of them tells them apart."""
_MARGIN: Final = 3
_DEEPER: Final = 5
"""How far what a command says stands from the edge."""
_TABLE_WIDTH: Final = 95
"""How wide tables are where no terminal says it."""


class DemoError(LaceError):
    """A step of the demonstration did not do what it is there to show."""


class _Aside(Output):
    """What a command of the story writes; the story itself says what there is to heed."""

    def warn(self, text: str) -> None:
        """Say nothing."""


class Stage:
    """Runs the commands of the demonstration in a folder, and shows each with what it says."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._names: dict[str, str] = {}
        self._is_json = session.output.json
        self._width = None if self._is_json else session.output.width
        self.steps = 0
        """How many steps were shown."""

    # -- words ---------------------------------------------------------------------------------

    def step(self, words: str) -> None:
        """Say what comes next."""
        self.steps += 1
        self._show("")
        self.prose(f"{self.steps}. {words}", "bold", rest=_MARGIN)

    def say(self, text: str) -> None:
        """Say something in passing."""
        self.prose(text, "green", first=_MARGIN, rest=_MARGIN)

    def prose(self, text: str, style: str = "", *, first: int = 0, rest: int = 0) -> None:
        """Show a paragraph in as many lines as it needs here, that far from the edge."""
        if self._width is None:
            self._show(" " * first + text, style)
            return
        for line in wrap_prose(text, self._width, " " * first, " " * rest):
            self._show(line, style)

    def typed(self, line: str, remark: str = "") -> None:
        """Show a command line, with what there is to say of what it writes."""
        width, prompt = self._width, f"{' ' * _MARGIN}$ "
        if width is None:
            lines = [f"{prompt}{line}"]
        else:
            lines = wrap_command(line, width, prompt, " " * (_DEEPER + 2))
        if remark and (width is None or len(f"{lines[-1]}   {remark}") <= width):
            lines[-1] += f"   {remark}"
        elif remark:
            lines.append(f"{' ' * len(prompt)}{remark}")
        for each in lines:
            self._show(each, "cyan")

    def _show(self, text: str, style: str = "") -> None:
        if not self._is_json:
            self._session.output.styled_line((text, style), is_whole=True)
            self._session.output.flush()

    def name(self, verifier: str, variable: str) -> None:
        """Have a verifier stand in a variable of the shell from now on."""
        self._names[verifier] = f"${variable}"
        self.typed(f"{variable}={verifier}")

    def file(self, name: str) -> None:
        """Show a file of the folder."""
        text = (self._folder / name).read_text("utf-8")
        self.typed(f"cat {name}", "# keys are cut short here" if _LONG.search(text) else "")
        self._indent(text)

    def write(self, name: str, text: str) -> None:
        """Put a file into the folder."""
        (self._folder / name).write_text(text, "utf-8")

    def read(self, name: str) -> bytes:
        """Return what a file of the folder holds."""
        return (self._folder / name).read_bytes()

    def path(self, name: str) -> Path:
        """Return where a file of the folder is."""
        return self._folder / name

    def _indent(self, text: str) -> None:
        lines = text.rstrip("\n").split("\n") if text.strip() else []
        most = len(lines) if len(lines) <= _MOST_LINES + 2 else _MOST_LINES
        for line in lines[:most]:
            self._show_answer(_LONG.sub(_shortened, line))
        if len(lines) > most:
            self._show_answer(f"… and {len(lines) - most:,} more lines", "dim")

    def _show_answer(self, line: str, style: str = "") -> None:
        """Show a line of what a command says; a long one goes on below, a little deeper."""
        if self._width is None or not line:
            self._show(f"{' ' * _DEEPER}{line}" if line else "", style)
            return
        for each in wrap_answer(line, self._width, " " * _DEEPER):
            self._show(each, style)

    # -- commands ------------------------------------------------------------------------------

    def run(
        self,
        *words: str,
        code: int = 0,
        shown: bool = True,
        quietly: bool = False,
        variable: str | None = None,
    ) -> str:
        """Run a command as it would be typed in the folder; returns what it writes.

        Args:
            words: the command line.
            code: the exit code that it is to have.
            shown: show what it writes.
            quietly: do not show the command either.
            variable: where the shell would keep what it writes.
        """
        if not quietly:
            self._typed(words, variable)
        text = self._invoke(words, code, is_terminal=not self._is_json)
        if variable is not None:
            self._names[text.strip()] = f"${variable}"
        elif shown and not quietly:
            self._indent(text)
        return text.strip()

    def figures(self, *words: str) -> str:
        """Run a command that moves records, with its progress; returns what it tells a script."""
        self._typed(words)
        return self._invoke(words, 0, is_terminal=False)

    def _invoke(self, words: Sequence[str], code: int, *, is_terminal: bool) -> str:
        from lace.cli.main import invoke
        from lace.cli.session import Session as NewSession

        captured = io.BytesIO()
        width = _TABLE_WIDTH if self._width is None else self._width - _DEEPER
        inner = NewSession({}, _Aside(captured, is_terminal, width))
        inner.output.color = False
        inner.output.quiet = True
        inner.output.progress = self._session.output.progress_wanted and not self._is_json
        found = invoke([self._absolute(word) for word in words], inner)
        if found != code:
            raise DemoError(f"`lace {_typed(words)}` ended with exit code {found}, not {code}")
        return captured.getvalue().decode("utf-8").replace(f"{self._folder}{os.sep}", "")

    def start(self, title: str, *words: str) -> str:
        """Run a command as a process of its own, which may take its time; returns what it writes.

        Args:
            title: what is going on meanwhile.
            words: the command line.
        """
        self._typed(words)
        with nullcontext() if self._is_json else Waiting(self._session, title):
            code, out, err = self._run(words)
        if code:
            raise DemoError(f"`lace {_typed(words)}` failed: {err.strip() or f'exit code {code}'}")
        return out

    def _run(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a process to its end; returns its exit code and what it wrote.

        An interrupt at the terminal is for this process alone, which tells the other one to end,
        and waits until all is gone that it has made for a while.
        """
        with subprocess.Popen(  # noqa: S603 - ourselves
            self._command(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            cwd=self._folder,
            text=True,
        ) as process:
            try:
                out, err = process.communicate()
            except BaseException:
                _end(process, _RUN_END_SECONDS)
                raise
        return process.returncode, out, err

    @contextmanager
    def serving(self, *words: str) -> Iterator[str]:
        """Run a server until the end of the block; gives the address that it prints."""
        self._typed((*words, "&"))
        with subprocess.Popen(  # noqa: S603 - ourselves
            self._command(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            text=True,
        ) as process:
            try:
                address = process.stdout.readline().strip() if process.stdout else ""
                if not address:
                    raise DemoError("the server does not start")
                self._indent(address)
                yield address
            finally:
                _end(process)

    def _command(self, words: Sequence[str]) -> list[str]:
        color = [] if self._session.output.color else ["--no-color"]
        return [sys.executable, "-m", "lace", *color, *words]

    def _typed(self, words: Sequence[str], variable: str | None = None) -> None:
        line = f"lace {_typed(words, self._names)}"
        self.typed(line if variable is None else f"{variable}=$({line})")

    def _absolute(self, word: str) -> str:
        """Return a word with the place of the file that it names, if it names one."""
        name, at, viewer = word.partition("@")
        is_here = name.endswith((".lace", ".txt", ".facts", ".records")) and "/" not in name
        return f"{self._folder / name}{at}{viewer}" if is_here else word


def _end(process: subprocess.Popen[str], seconds: float = _END_SECONDS) -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return
    process.kill()


def _typed(words: Sequence[str], names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a command line as a person would type it, with variables for verifiers."""
    return " ".join(word if word == "&" else _quoted(word, names) for word in words)


def _shortened(found: re.Match[str]) -> str:
    return f"{found[1]}…"


def _quoted(word: str, names: Mapping[str, str]) -> str:
    """Return a word as a person would type it: quotes inside of the other quotes."""
    for verifier, variable in names.items():
        if verifier in word:
            put = word.replace(verifier, variable)
            return f'"{put}"' if " " in put else put
    if "'" in word and not set(word) & set('"$`!\\'):
        return f'"{word}"'
    return shlex.quote(word)
