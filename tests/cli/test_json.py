"""Every command with `--json`: what it writes is JSON, and only with keys that its help names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.documented import check_documented, lacking, read_documents
from tests.cli.links import Party, serving
from tests.cli.running import call
from tests.cli.samples import ELSEWHERE, MORE, SAMPLES, SPARK, make_place, words_in
from tests.cli.test_help import COMMANDS


@pytest.fixture
def left(tmp_path: Path) -> Party:
    return make_place(tmp_path)


def test_every_command_has_a_sample() -> None:
    leaves = {path for path, each in COMMANDS.items() if not hasattr(each, "list_commands")}
    assert leaves == {f"lace {name}" for name in SAMPLES} | SPARK | ELSEWHERE


UNSEEN = {
    "sync": {"rejected-hashes"},  # by an honest peer; tests/unit/exchange/test_ledger.py
    "verify": {"damage"},  # test_verify.py
    "pipeline status": {"tables", "runs", "quarantine"},  # tests/spark/test_json.py
}
"""What no sample writes, and where it is tried."""


def test_every_command_writes_json_as_documented(left: Party) -> None:
    """One after another, in one place: no other keys than the help names, and all of them."""
    written: dict[str, list[Any]] = {}
    for name, each in [*SAMPLES.items(), *MORE]:
        if "bent.trace" in each.arguments:
            bend(Path("talk.trace"), Path("bent.trace"))
        done = call("--json", *words_in(each, left), given=each.given)
        assert done.code in each.codes, (name, done.err)
        documents = read_documents(done.out)
        assert documents, f"{name} has written nothing"
        if "--stats" in each.arguments:
            documents.append(json.loads(done.err))
        check_documented(name, documents)
        written.setdefault(name, []).extend(documents)
    unseen = {name: lacking(name, documents) for name, documents in written.items()}
    assert {name: keys for name, keys in unseen.items() if keys} == UNSEEN


def bend(capture: Path, bent: Path) -> None:
    """Put a comment into a capture, and a line that is none of its language."""
    lines = capture.read_text("utf-8").split("\n")
    at = next(at for at, line in enumerate(lines) if line.startswith("> ExchangeNonce"))
    bent.write_text("\n".join([*lines[:at], "> # a remark", *lines[at:-20], "> ???", ""]), "utf-8")


def test_a_server_writes_json_as_documented(left: Party, tmp_path: Path) -> None:
    right = Party(tmp_path / "right", left.verifier, left.select, left.view)
    with serving(right, left, "tcp:127.0.0.1:0", "--once", "--json") as server:
        address = json.loads(server.address)
        left.sync(left, address["address"])
        out, _err = server.process.communicate(timeout=60)
    documents = [address, *read_documents(out.decode())]
    check_documented("serve", documents)
    assert lacking("serve", documents) == {*UNSEEN["sync"], "left_out"}  # test_pipe_queue.py
