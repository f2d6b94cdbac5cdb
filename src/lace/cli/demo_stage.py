"""Where the demonstration plays: commands run as they would be typed, shown with what they say.

Most run in this process, which is quick. Those that take part in an exchange are processes of
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
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.cli.output import Output
from lace.errors import LaceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lace.cli.session import Session

__all__ = ["DemoError", "Stage"]

_MOST_LINES: Final = 14
"""Lines of an answer that are shown; of a longer one, how many are left."""
_END_SECONDS: Final = 20.0
_LONG: Final = re.compile(r"([A-Z]\.[0-9A-Za-z_~]{6})[0-9A-Za-z_~]{37}(?:\.H3)?")
"""Hashes and verifiers; what is shown of them tells them apart."""


class DemoError(LaceError):
    """A step of the demonstration did not do what it is there to show."""


class Stage:
    """Runs the commands of the demonstration in a folder, and shows each with what it says."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._names: dict[str, str] = {}
        self.steps = 0
        """How many steps were shown."""

    # -- words ---------------------------------------------------------------------------------

    def step(self, words: str) -> None:
        """Say what comes next."""
        self.steps += 1
        self._show("")
        self._show(f"{self.steps}. {words}", "bold")

    def say(self, text: str) -> None:
        """Say something in passing."""
        self._show(f"   {text}", "green")

    def _show(self, text: str, style: str = "") -> None:
        if not self._session.output.json:
            self._session.output.styled_line((text, style))
            self._session.output.flush()

    def name(self, verifier: str, variable: str) -> None:
        """Have a verifier stand in a variable of the shell from now on."""
        self._names[verifier] = f"${variable}"
        self._show(f"   $ {variable}={verifier}", "cyan")

    def file(self, name: str) -> None:
        """Show a file of the folder."""
        self._show(f"   $ cat {name}", "cyan")
        self._indent((self._folder / name).read_text("utf-8"))

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
            self._show(f"     {_LONG.sub(_shortened, line)}" if line else "")
        if len(lines) > most:
            self._show(f"     … and {len(lines) - most:,} more lines", "dim")

    # -- commands ------------------------------------------------------------------------------

    def run(self, *words: str, code: int = 0, shown: bool = True, quietly: bool = False) -> str:
        """Run a command as it would be typed in the folder; returns what it writes.

        Args:
            words: the command line.
            code: the exit code that it is to have.
            shown: show what it writes.
            quietly: do not show the command either.
        """
        from lace.cli.main import invoke
        from lace.cli.session import Session as NewSession

        captured = io.BytesIO()
        inner = NewSession({}, Output(captured, terminal=not self._session.output.json))
        inner.output.color = False
        inner.output.quiet = True
        if not quietly:
            self._typed(words)
        found = invoke([self._absolute(word) for word in words], inner)
        if found != code:
            raise DemoError(f"`lace {_typed(words)}` ended with exit code {found}, not {code}")
        text = captured.getvalue().decode("utf-8").replace(f"{self._folder}{os.sep}", "")
        if shown and not quietly:
            self._indent(text)
        return text.strip()

    def start(self, *words: str) -> str:
        """Run a command as a process that shows its own progress; returns what it writes."""
        self._typed(words)
        is_seen = sys.stderr is not None and sys.stderr.isatty() and not self._session.output.json
        done = subprocess.run(  # noqa: S603 - ourselves
            self._command(words),
            stdout=subprocess.PIPE,
            stderr=None if is_seen else subprocess.PIPE,
            cwd=self._folder,
            text=True,
            check=False,
        )
        if done.returncode:
            problem = (done.stderr or "").strip() or f"exit code {done.returncode}"
            raise DemoError(f"`lace {_typed(words)}` failed: {problem}")
        return done.stdout

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

    def _typed(self, words: Sequence[str]) -> None:
        self._show(f"   $ lace {_typed(words, self._names)}", "cyan")

    def _absolute(self, word: str) -> str:
        """Return a word with the place of the file that it names, if it names one."""
        name, at, viewer = word.partition("@")
        is_here = name.endswith((".lace", ".txt", ".facts", ".records")) and "/" not in name
        return f"{self._folder / name}{at}{viewer}" if is_here else word


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
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
