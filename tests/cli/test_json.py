"""Every command with `--json`: what it writes is JSON, and only with keys that its help names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.documented import check_documented, read_documents
from tests.cli.links import Party, serving
from tests.cli.running import call
from tests.cli.samples import ELSEWHERE, SAMPLES, SPARK, make_place, words_of
from tests.cli.test_help import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def left(tmp_path: Path) -> Party:
    return make_place(tmp_path)


def test_every_command_has_a_sample() -> None:
    leaves = {path for path, each in COMMANDS.items() if not hasattr(each, "list_commands")}
    assert leaves == {f"lace {name}" for name in SAMPLES} | SPARK | ELSEWHERE


def test_every_command_writes_json_as_documented(left: Party) -> None:
    """One after another, in one place."""
    for name, each in SAMPLES.items():
        done = call("--json", *words_of(name, left), given=each.given)
        assert done.code in each.codes, (name, done.err)
        documents = read_documents(done.out)
        assert documents, f"{name} has written nothing"
        check_documented(name, documents)


def test_a_server_writes_json_as_documented(left: Party, tmp_path: Path) -> None:
    right = Party(tmp_path / "right", left.verifier, left.select, left.view)
    with serving(right, left, "tcp:127.0.0.1:0", "--once", "--json") as server:
        address = json.loads(server.address)
        left.sync(left, address["address"])
        out, _err = server.process.communicate(timeout=60)
    check_documented("serve", [address, *read_documents(out.decode())])
