"""Every command with `--json`: what it writes is JSON, and only with keys that its help names."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from lace.api import SigningKey, open_lace
from tests.cli.documented import PIPELINE_SAMPLES, check_documented, read_documents
from tests.cli.links import Party, make_parties, plex, serving
from tests.cli.policies import TEAM
from tests.cli.running import call, process
from tests.cli.test_help import COMMANDS

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
"""They need Spark; tests/pipeline/test_json.py runs them."""
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
SAMPLES = {
    "init": sample("init", "--lace", "new"),
    "status": sample("status"),
    "key new": sample("key", "new"),
    "key import": sample("key", "import", given=SECRET),
    "key list": sample("key", "list"),
    "key default": sample("key", "default", "KEY"),
    "key remove": sample("key", "remove", "KEY", "--yes"),
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
    "sync": sample("sync", "stdio", *LEFT, *SERVED),
    "remote get": sample("remote", "get", "stdio", "//u//n//right/1", *SERVED),
    "remote list": sample("remote", "list", "stdio", *SERVED),
    "remote store": sample("remote", "store", "stdio", NOTE, *SERVED),
    "remote watch": sample("remote", "watch", "stdio", "--limit", "1", *SERVED),
    "trace show": sample("trace", "show", "talk.trace"),
    "trace replay": sample("trace", "replay", "talk.trace"),
    "import": sample("import", "some.records"),
    "export": sample("export", "--all", "-o", "out.records"),
    "remove": sample("remove", NOTE, "--yes"),
    "verify": sample("verify"),
    "pipeline status": sample("pipeline", "status", "wh"),
    "config show": sample("config", "show"),
    "log": sample("log"),
    "completion": sample("completion", "bash"),
    "doctor": sample("doctor", codes=(0, 1, 3)),
}


@pytest.fixture
def left(tmp_path: Path) -> Party:
    """The present folder has two laces and all files that the samples name."""
    left, _right = make_parties(tmp_path)
    with open_lace(left.folder) as lace:
        lace.add(plex("more"))
    for name, text in {
        "team.lace": TEAM,
        "rules.lace": RULES,
        "wrong.lace": "Named(P,N) :- Have(P).\n",
        "one.lacetest.toml": CASES,
    }.items():
        Path(name).write_text(text)
    Path("some.records").write_bytes(plex("new").bytes)
    return left


def test_every_command_has_a_sample() -> None:
    leaves = {path for path, each in COMMANDS.items() if not hasattr(each, "list_commands")}
    assert leaves == {f"lace {name}" for name in SAMPLES} | SPARK | ELSEWHERE


@pytest.mark.parametrize("name", SAMPLES)
def test_a_command_writes_json_as_documented(name: str, left: Party) -> None:
    each = SAMPLES[name]
    if name.startswith("trace"):
        process("--lace", left.folder, "sync", "stdio", *LEFT, "--capture", "talk.trace", *SERVED)
    if name.startswith("pipeline"):
        from lace.pipeline.warehouse import Warehouse

        Warehouse.create(Path("wh"))
    words = [left.verifier if word == "KEY" else word for word in each.arguments]
    place = [] if "--lace" in words[:3] else ["--lace", str(left.folder)]
    if name == "log":
        assert call("key", "new", *place).code == 0
    done = call("--json", *place, *words, given=each.given)
    assert done.code in each.codes, done.err
    documents = read_documents(done.out)
    assert documents, "nothing was written"
    check_documented(name, documents)


def test_a_server_writes_json_as_documented(left: Party, tmp_path: Path) -> None:
    right = Party(tmp_path / "right", left.verifier, left.select, left.view)
    with serving(right, left, "tcp:127.0.0.1:0", "--once", "--json") as server:
        address = json.loads(server.address)
        left.sync(left, address["address"])
        out, _err = server.process.communicate(timeout=60)
    check_documented("serve", [address, *read_documents(out.decode())])
