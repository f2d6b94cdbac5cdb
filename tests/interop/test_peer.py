"""The peer of these tests by itself: its reading of the texts agrees with the vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peer.advertise import States, advertise, merkle_root
from tests.interop.peer.keys import Key, verifies
from tests.interop.peer.plan import make_plan, recognise
from tests.interop.peer.records import Record, read_all
from tests.interop.peer.streams import Address, parse
from tests.interop.peer.text import (
    MAX_LINE,
    PeerError,
    decode,
    encode,
    format_fact,
    lines_of,
    parse_fact,
)

TESTS = Path(__file__).resolve().parents[1]
VECTORS = TESTS / "vectors"
ACCEPT = sorted((VECTORS / "records" / "accept").glob("*.record"))


def vectors(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text("utf-8"))


def test_the_peer_shares_no_code() -> None:
    files = sorted((TESTS / "interop" / "peer").glob("*.py"))
    assert len(files) >= 8
    for file in files:
        text = file.read_text("utf-8")
        assert "import lace" not in text
        assert "from lace" not in text
        assert len(text.splitlines()) <= 350


def test_base64_ascend() -> None:
    for raw, text in vectors("b64a")["accept"]:
        assert encode(bytes.fromhex(raw)) == text
        if raw:
            assert decode(text, len(raw) // 2) == bytes.fromhex(raw)
    for text in ("~m", "01"):
        with pytest.raises(PeerError):
            decode(text, 1)


def test_keys_and_signatures() -> None:
    keys = {}
    for entry in vectors("keys"):
        key = Key.from_secret(decode(entry["secret"][2:-3], 32))
        assert key.verifier == entry["verifier"]
        keys[key.verifier] = key
    for entry in vectors("signatures"):
        message, aux = bytes.fromhex(entry["msg32"]), bytes.fromhex(entry["aux32"])
        assert keys[entry["verifier"]].sign(message, aux) == entry["signature"]
        assert verifies(entry["verifier"], message, entry["signature"])
        assert not verifies(entry["verifier"], aux, entry["signature"])


@pytest.mark.parametrize("path", ACCEPT, ids=lambda path: path.stem)
def test_records(path: Path) -> None:
    (record,) = read_all(path.read_bytes())
    assert record.problem is None
    facts = path.with_suffix(".facts").read_bytes().decode().split("\n")[:-1]
    fields = {
        format_fact(("Field", record.id, name, str(index), value))
        for name, index, value in record.fields
    }
    assert fields == {line for line in facts if line.startswith("Field(")}
    for line in facts:
        if len(line.encode()) > MAX_LINE:
            continue  # a fact of the store that no stream can carry
        assert format_fact(parse_fact(line.encode())) == line


def test_advertisements() -> None:
    records: dict[str, Record] = {
        record.id: record for path in ACCEPT for record in read_all(path.read_bytes())
    }
    checked = 0
    for entry in vectors("advertisements"):
        if entry["id"] in records:
            schema = None if entry["schema"] is None else frozenset(entry["schema"])
            made = advertise(records[entry["id"]], entry["source"], schema)
            lines = entry["text"].encode().split(b"\n")[:-1]
            fitting = [line for line in lines if len(line) <= MAX_LINE]
            assert lines_of(made.facts).splitlines(keepends=True) == [
                line + b"\n" for line in fitting
            ]
            if lines == fitting:  # a field that does not fit is left out (G60)
                assert made.digest.hex() == entry["digest"]
            checked += 1
    assert checked > 100


def test_roots() -> None:
    for entry in vectors("merkle"):
        assert (
            encode(merkle_root([bytes.fromhex(each) for each in entry["digests"]])) == entry["root"]
        )
    assert encode(States().summary()[1]) == vectors("merkle")[0]["root"]


def test_plans() -> None:
    (entry,) = [each for each in vectors("plans") if "Field" not in str(each["operand0"])]
    plan = make_plan((recognise(entry["operand0"]), recognise(entry["operand1"])))
    assert plan.transcript == entry["transcript"]
    assert (plan.id, list(plan.origins)) == (entry["id"], entry["origins"])
    with pytest.raises(PeerError):
        recognise(vectors("plans")[0]["operand0"])


def test_addresses() -> None:
    assert parse("stdio") == Address("stdio")
    assert parse("unix:/tmp/lace.sock").path == "/tmp/lace.sock"
    assert parse("tcp:example.com").port == 4790
    assert parse("tcp:[::1]:9000") == Address("tcp", "::1", 9000)
    assert parse("wss:example.com") == Address("wss", "example.com", 443, "/interlace")
    for text in ("ws://h/interlace", "stdio:", "unix:x", "tcp:h:0", "ws:h/other", "tcp:h:70000"):
        with pytest.raises(PeerError):
            parse(text)
