"""The command lines of all commands that need neither Spark nor a peer, on a small lace.

A command that has neither a line here nor a reason to have none is an error.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from benchmarks.measure import environment
from lace.api import SigningKey
from lace.cli.main import cli
from lace.spark.pipeline.warehouse import WarehouseFolder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EXCLUDED", "Line", "command_names", "lines_of", "prepare"]

EXCLUDED = {
    "sync": "it needs a peer",
    "serve": "it needs a peer",
    "remote get": "it needs a peer",
    "remote list": "it needs a peer",
    "remote store": "it needs a peer",
    "remote watch": "it needs a peer",
    "pipeline ingest": "it needs Spark",
    "pipeline facts": "it needs Spark",
    "pipeline advertise": "it needs Spark",
    "pipeline diff": "it needs Spark",
    "pipeline evaluate": "it needs Spark",
    "pipeline run": "it needs Spark",
    "pipeline import-lace": "it needs Spark",
    "demo": "it starts a peer and Spark, and has a target of its own",
}
"""Commands that are not timed, and why."""

_SELECT = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
_EXPOSE = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
_RULES = "Note(P) :- Field(P,'App',_,'notes').\n"
_FACTS = "Field('P.x','App','0','notes')\n"
_CASES = """\
rules = "rules.lace"
[[case]]
name = "one"
facts = ["Field('P.x','App','0','notes')"]
derived = { "Note/1" = [["P.x"]] }
"""


@dataclass(frozen=True)
class Line:
    """A command line, and the file that is its standard input."""

    words: tuple[str, ...]
    given: Path | None = None


def command_names() -> list[str]:
    """Return every command that does something, as it is typed after `lace`."""
    found: list[str] = []
    waiting: list[tuple[str, click.Command]] = [("", cli)]
    while waiting:
        path, command = waiting.pop()
        if not isinstance(command, click.Group):
            found.append(path)
            continue
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is None:
                raise LookupError(f"lace {path} {name} has no module")
            waiting.append((f"{path} {name}".strip(), below))
    return sorted(found)


def _lace(*words: str) -> str:
    """Run a command that prepares something; returns what it prints."""
    command = [sys.executable, "-m", "lace", *words]
    return subprocess.check_output(command, env=environment(), text=True)


@dataclass(frozen=True)
class _Small:
    """A folder with a lace of a few records, and what commands are told of."""

    folder: Path
    verifier: str
    spare: tuple[str, ...]
    """Keys that may be removed, one a round."""

    @property
    def here(self) -> tuple[str, ...]:
        return "--quiet", "--lace", str(self.folder / "small.lace")

    def path(self, name: str) -> str:
        return str(self.folder / name)


def prepare(folder: Path, rounds: int) -> _Small:
    """Make a folder anew, for so many rounds of all lines."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = {"select.lace": _SELECT, "expose.lace": _EXPOSE, "rules.lace": _RULES}
    texts |= {"note.txt": "hi\n", "one.lacetest.toml": _CASES, "some.facts": _FACTS}
    texts |= {f"secret{at}": f"{SigningKey.generate().secret_text()}\n" for at in range(rounds)}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    small = _Small(folder, "", ())
    coordinate = ("--group", "g", "--app", "notes", "--name")
    _lace(*small.here, "init")
    verifier = _lace(*small.here, "key", "new").split()[0]
    spare = tuple(_lace(*small.here, "key", "new").split()[0] for _ in range(rounds))
    for name in ("n", *(f"old/{at}" for at in range(rounds))):
        _lace(*small.here, "put", small.path("note.txt"), *coordinate, name)
    _lace(*small.here, "export", "--all", "-o", small.path("some.records"))
    other = ("--quiet", "--lace", str(folder / "other.lace"))
    _lace(*other, "init")
    side = ("--select", small.path("select.lace"), "--expose", small.path("expose.lace"))
    served = ("--", sys.executable, "-m", "lace", *other, "serve", "stdio", *side)
    _lace(*small.here, "sync", "stdio", *side, "--capture", small.path("talk.trace"), *served)
    WarehouseFolder.create(folder / "empty.wh")
    return _Small(folder, verifier, spare)


def lines_of(small: _Small, number: int) -> dict[str, Line]:
    """Return the lines of a round, in an order in which all of them succeed.

    Raises:
        LookupError: a command has neither a line nor a reason to have none, or has both.
    """
    select, expose, rules = (small.path(f"{name}.lace") for name in ("select", "expose", "rules"))
    policy = ("--select", select, "--peer-select", select, "--expose", expose)
    warehouse, out = small.path("empty.wh"), small.path("out.records")
    coordinate = ("--group", "g", "--app", "notes", "--name", f"new/{number}")
    made: dict[str, tuple[str, ...]] = {
        "init": (),
        "status": (),
        "key new": (),
        "key import": (),
        "key list": (),
        "key default": (small.verifier,),
        "key remove": (small.spare[number], "--yes"),
        "put": (small.path("note.txt"), *coordinate, "--sign"),
        "get": ("//g//notes//n",),
        "list": (),
        "facts": (),
        "rules check": (rules,),
        "rules fmt": (rules, "--check"),
        "rules canonical": (rules,),
        "rules id": (rules,),
        "rules graph": (rules,),
        "query": ("--rules", rules),
        "why": ("--rules", rules, "--facts", small.path("some.facts"), "Note('P.x')"),
        "plan": ("--operand0", select, "--operand1", select),
        "preview": policy,
        "disclose": ("--expose", expose, "--viewer", small.verifier),
        "test": (small.path("one.lacetest.toml"),),
        "trace show": (small.path("talk.trace"),),
        "trace replay": (small.path("talk.trace"),),
        "import": (small.path("some.records"),),
        "export": ("--all", "-o", out),
        "remove": (f"//g//notes//old/{number}", "--yes"),
        "verify": (),
        "pipeline status": (warehouse,),
        "pipeline verify": (warehouse,),
        "pipeline export": (warehouse, "--all", "-o", out),
        "pipeline export-lace": (warehouse,),
        "config show": (),
        "log": (),
        "completion": ("bash",),
        "doctor": (),
        "explain": ("030-37",),
    }
    names = set(command_names())
    if strange := names ^ {*made, *EXCLUDED} or {*made} & {*EXCLUDED}:
        raise LookupError(f"timed or excluded, and one of both: {', '.join(sorted(strange))}")
    secret = {"key import": small.folder / f"secret{number}"}
    return {
        name: Line((*small.here, *name.split(), *words), secret.get(name))
        for name, words in made.items()
    }
