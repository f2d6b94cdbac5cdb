"""A command line for every command, and the folder in which they all work."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from lace.api import SigningKey, open_lace
from lace.record.model import Plex
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.documented import PIPELINE_SAMPLES
from tests.cli.links import Party, make_parties, plex
from tests.cli.policies import EXPOSE_TEAM, TEAM

__all__ = ["ELSEWHERE", "MORE", "SAMPLES", "SPARK", "Sample", "make_place", "words_in", "words_of"]

SECRET = SigningKey(b"\x07" * 32, os.urandom).secret_text().encode() + b"\n"
RULES = "Named(P,N) :- Field(P,'Name',_,N).\n"
CASES = """
rules = "rules.lace"
[[case]]
name = "one"
facts = ["Field('P.x','Name','0','a')"]
derived = { "Named/2" = [["P.x", "a"]] }
"""
SPARK = frozenset(f"lace pipeline {name}" for name in PIPELINE_SAMPLES)
"""They need Spark; tests/spark/test_json.py runs them."""
ELSEWHERE = frozenset({"lace serve", "lace demo"})
"""A server is run below, the demonstration in test_demo.py; both are held to their keys."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A command line, which exit codes are fine, and what is given to it."""

    arguments: tuple[str, ...]
    codes: frozenset[int] = frozenset({0})
    given: bytes = b""


def sample(*arguments: str, codes: tuple[int, ...] = (0,), given: bytes = b"") -> Sample:
    return Sample(arguments, frozenset(codes), given)


CHILD = ("--", sys.executable, "-m", "lace", "serve", "stdio", "--lace", "right")
SERVED = (*CHILD, "--select", "all.lace", "--expose", "view.lace")
LEFT = ("--select", "all.lace", "--expose", "view.lace")
NOTE = "//u//n//left/1"
LINK = [("+Link", f"cites {plex('left/1').id}")]
SAMPLES = {  # in an order in which all of them work in one place
    "init": sample("init", "--lace", "new"),
    "status": sample("status"),
    "key new": sample("key", "new"),
    "key import": sample("key", "import", given=SECRET),
    "key list": sample("key", "list"),
    "put": sample("put", "-", given=b"x"),
    "get": sample("get", NOTE, "--body"),
    "list": sample("list"),
    "facts": sample("facts", NOTE),
    "rules check": sample("rules", "check", "wrong.lace", codes=(1,)),
    "rules fmt": sample("rules", "fmt", "rules.lace", "--check"),
    "rules canonical": sample("rules", "canonical", "rules.lace"),
    "rules id": sample("rules", "id", "rules.lace"),
    "rules graph": sample("rules", "graph", "rules.lace"),
    "query": sample("query", "--rules", "rules.lace"),
    "why": sample("why", "--rules", "rules.lace", "Named('x','y')", codes=(1,)),
    "plan": sample("plan", "--operand0", "all.lace", "--operand1", "team.lace"),
    "preview": sample("preview", *LEFT, "--peer-select", "team.lace"),
    "disclose": sample("disclose", "--expose", "view.lace", "--viewer", "KEY"),
    "test": sample("test", "one.lacetest.toml"),
    "remote get": sample("remote", "get", "stdio", "//u//n//right/1", "--body", *SERVED),
    "remote list": sample("remote", "list", "stdio", *SERVED),
    "remote store": sample("remote", "store", "stdio", NOTE, *SERVED),
    "remote watch": sample("remote", "watch", "stdio", "--limit", "1", *SERVED),
    "sync": sample("sync", "stdio", *LEFT, "--capture", "talk.trace", *SERVED),
    "trace show": sample("trace", "show", "talk.trace"),
    "trace replay": sample("trace", "replay", "talk.trace"),
    "import": sample("import", "some.records"),
    "export": sample("export", "--all", "-o", "out.records"),
    "remove": sample("remove", NOTE, "--yes"),
    "verify": sample("verify"),
    "pipeline status": sample("pipeline", "status", "wh"),
    "key default": sample("key", "default", "KEY"),
    "key remove": sample("key", "remove", "KEY", "--yes"),
    "config show": sample("config", "show"),
    "log": sample("log"),
    "completion": sample("completion", "bash"),
    "explain": sample("explain", "030-37"),
    "doctor": sample("doctor", codes=(0, 1, 3)),
}
SEEN = f"MaySend('{plex('left/2').id}')"
VIEWED = ("--peer-select", "team.lace", "--viewer", "KEY")
MORE = [
    ("rules fmt", sample("rules", "fmt", "untidy.lace", "--check", "--diff", codes=(1,))),
    ("rules fmt", sample("rules", "fmt", "-", given=b"Named(P) :- Have(P).\n")),
    ("rules fmt", sample("rules", "fmt", "no-rules.lace", "--check", codes=(1,))),
    ("query", sample("query", "--rules", "rules.lace", "--stats")),
    ("why", sample("why", "--rules", "rules.lace", f"Named('{plex('left/2').id}','left/2')")),
    ("why", sample("why", *LEFT, *VIEWED, SEEN, codes=(1,))),
    ("disclose", sample("disclose", "--expose", "view.lace", *VIEWED)),
    (
        "disclose",
        sample(
            "disclose",
            "--expose",
            "view.lace",
            "--viewer",
            "KEY",
            "--baseline",
            "team-view.lace",
            codes=(1,),
        ),
    ),
    ("test", sample("test", "two.lacetest.toml", codes=(1,))),
    ("sync", sample("sync", "stdio", *LEFT, "--dry-run", *SERVED, codes=(0, 1))),
    ("import", sample("import", "no.records", codes=(1,))),
    ("trace show", sample("trace", "show", "bent.trace", codes=(0, 1))),
    ("status", sample("status")),
]
"""Command lines that show what those above do not; they come behind them."""


def words_of(name: str, left: Party) -> list[str]:
    """The words of a sample, with what differs from place to place."""
    return words_in(SAMPLES[name], left)


def words_in(each: Sample, left: Party) -> list[str]:
    """The same of any sample."""
    words = [left.verifier if word == "KEY" else word for word in each.arguments]
    return words if "--lace" in words[:3] else ["--lace", str(left.folder), *words]


def make_place(folder: Path) -> Party:
    """Put two laces into the present folder, and all files that the samples name."""
    left, _right = make_parties(folder)
    with open_lace(left.folder) as lace:
        linked = Plex(group="u", app="n", name="linked", data=b"x", headers=LINK)
        lace.add_all([plex("more"), linked])
    for name, text in {
        "team.lace": TEAM,
        "rules.lace": RULES,
        "wrong.lace": "Named(P,N) :- Have(P).\n",
        "one.lacetest.toml": CASES,
        "two.lacetest.toml": CASES.replace('["P.x", "a"]', '["P.x", "b"]'),
        "untidy.lace": "Named( P ):-Have(P).\n",
        "no-rules.lace": "Named(\n",
        "team-view.lace": EXPOSE_TEAM,
        "no.records": "this is no record\n",
    }.items():
        Path(name).write_text(text)
    Path("some.records").write_bytes(plex("new").bytes)
    WarehouseFolder.create(Path("wh"))
    return left
