"""`lace demo`: Lace at work, in a temporary folder, with the commands that a person would type."""

from __future__ import annotations

import io
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.cli.session import Session

__all__ = ["command"]

_PICTURE: Final = b"P2\n# a sunrise, 8 by 4\n8 4\n9\n" + b"\n".join(
    (
        b"1 1 2 3 3 2 1 1",
        b"1 2 4 7 7 4 2 1",
        b"2 4 7 9 9 7 4 2",
        b"3 3 3 3 3 3 3 3",
    )
)
_FILES: Final = {
    "sunrise.pgm": _PICTURE + b"\n",
    "today.txt": b"Up before the sun. Coffee on the pier, gulls already arguing.\n",
    "today-2.txt": b"Up before the sun. Coffee on the pier; the gulls have won.\n",
    "reply.txt": b"That view! Same bench tomorrow?\n",
    "reading.txt": b"The Sea Around Us, chapter 3. Tides are slow conversations.\n",
    "answers.lace": (
        b"# Notes that were answered, and all that hangs together with them.\n"
        b"Answered(P) :- RecordLink(R,'Re+Link',_,'answers',P), Have(R).\n"
        b"Together(P) :- Answered(P).\n"
        b"Together(T) :- Together(P), RecordLink(P,_,_,_,T), Have(T).\n"
        b"Together(R) :- Together(P), RecordLink(R,_,_,_,P).\n"
    ),
}


class _Show:
    """Runs the commands of the demonstration, and shows each with what it says."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._number = 0

    def step(self, words: str) -> None:
        """Say what comes next."""
        self._number += 1
        self.line(f"\n{self._number}. {words}")

    def line(self, text: str) -> None:
        """Write a line as it is."""
        for part in text.split("\n"):
            self._session.output.line(part)

    def file(self, name: str) -> None:
        """Show a file of the folder."""
        self.line(f"   $ cat {name}")
        for line in _FILES[name].decode("utf-8").rstrip("\n").split("\n"):
            self.line(f"     {line}")

    def run(self, *words: str, shown: bool = True) -> str:
        """Run a command as it would be typed in the folder; returns what it writes."""
        from lace.cli.main import invoke
        from lace.cli.session import Session as NewSession

        captured = io.BytesIO()
        inner = NewSession({}, Output(captured, terminal=True))
        inner.output.color = False
        inner.output.quiet = True
        place = ["--lace", str(self._folder / ".lace")]
        arguments = [str(self._folder / word) if word in _FILES else word for word in words]
        self.line(f"   $ lace {_typed(words)}")
        code = invoke([*place, *arguments], inner)
        if code:
            raise AssertionError(f"a step of the demonstration ended with {code}")
        text = captured.getvalue().decode("utf-8").replace(f"{self._folder}/", "")
        if shown:
            for line in text.rstrip("\n").split("\n"):
                self.line(f"     {line}" if line else "")
        return text.strip()


def _typed(words: Sequence[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Return a word as a person would type it: quotes inside of the other quotes."""
    if "'" in word and not set(word) & set('"$`!\\'):
        return f'"{word}"'
    return shlex.quote(word)


def _run(show: _Show) -> None:
    show.step("Make a lace: a folder that keeps records. It is the folder .lace here.")
    show.run("init", shown=False)
    show.step("Make a signing key. What is shown is its public half, the verifier.")
    show.run("key", "new")
    show.step("Store a picture as it is. The answer is its hash: that is its name everywhere.")
    picture = show.run("put", "sunrise.pgm")
    note = ("--group", "harbour", "--app", "notes", "--name")
    show.step("Store signed notes. A coordinate says where they belong; a header links them.")
    today = show.run(
        "put", "today.txt", *note, "today", "--sign", "--header", f"+Link: picture {picture}"
    )
    show.run("put", "reading.txt", *note, "reading", "--sign", "--header", "Mood: calm")
    show.step("Store an unsigned reply that links to the first note.")
    show.run("put", "reply.txt", *note, "replies/1", "--header", f"Re+Link: answers {today}")
    show.step("Store a second version of the note: the coordinate stays, the newest one counts.")
    show.run("put", "today-2.txt", *note, "today", "--sign")
    show.step("Show what is there.")
    show.run("list")
    show.step("Read the newest version back by its coordinate.")
    show.run("get", "//harbour//notes//today", "--body")
    show.step("Ask what Lace knows of the first note: facts, which rules ask questions of.")
    show.run("facts", today)
    show.step("Ask with rules: which notes were answered, and what hangs together with them?")
    show.file("answers.lace")
    show.run("query", "--rules", "answers.lace")
    show.step("Ask why the picture is among them: every answer has a derivation.")
    show.run("why", "--rules", "answers.lace", f"Together('{picture}')")
    show.step("Check everything again: every hash, every signature.")
    show.run("verify")


@lace_command(
    "demo",
    piped="The same text as on a terminal.",
    json_keys={},
    examples=[
        ("lace demo", "see Lace at work; nothing is left behind"),
        ("lace demo --keep", "keep the folder, to look around in it"),
    ],
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder.")
@click.pass_obj
def command(session: Session, keep: bool) -> int:
    """Show Lace at work.

    A lace, a key, signed records, a table, facts, a query with its why, verification.
    Everything happens in a temporary folder, which is removed at the end. Each step says in
    plain words what it does and shows the command that you would type.
    """
    folder = Path(tempfile.mkdtemp(prefix="lace-demo-"))
    output = session.output
    try:
        for name, data in _FILES.items():
            (folder / name).write_bytes(data)
        output.line(f"Lace at work, in {folder}")
        _run(_Show(session, folder))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    output.line("")
    if keep:
        output.line(f"Done. To look around: cd {shlex.quote(str(folder))} && lace list")
    else:
        output.line("Done; the folder is gone again. To start your own: lace init")
    return 0
