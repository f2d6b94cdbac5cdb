"""Every vector of tests/vectors that concerns encoding, signatures and records."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lace.api.explain import explanations
from lace.base import b64a
from lace.errors import RecordError
from lace.facts.extract import record_facts
from lace.facts.lines import format_fact, parse_fact
from lace.record.ids import Signature, Verifier
from lace.record.model import Blob, Plex, Record, Seal
from lace.record.reader import Fault, RawRecord, read_records
from lace.record.seal import SigningKey, verify, verify_many
from lace.record.validate import ValidRecord, frame_record, parse_record, validate_many
from tests.property import oracle

VECTORS = Path(__file__).parents[1] / "vectors"
ACCEPT = sorted((VECTORS / "records" / "accept").glob("*.record"))
REJECT = sorted((VECTORS / "records" / "reject").glob("*.record"))
OUTSIDE = {"010-trailing", "010-cut"}
KNOWN = frozenset(rule for rule in explanations() if rule <= "020-01")
"""What bytes as a whole break, not the record that they begin with."""


def load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text("utf-8"))


@dataclass(frozen=True)
class Reason:
    rule: str
    offset: int
    why: str


def reason_of(path: Path) -> Reason:
    lines = path.with_suffix(".reason").read_text("utf-8").splitlines()
    fields = dict(line.split(": ", 1) for line in lines)
    return Reason(fields["rule"], int(fields["offset"]), fields["why"])


def rebuild(value: Record) -> Record:
    """The same record from nothing but the fields of a value."""
    match value:
        case Blob():
            return Blob(value.data)
        case Plex():
            return Plex(
                group=value.group,
                app=value.app,
                name=value.name,
                tai=value.tai,
                headers=value.headers,
                data=value.data,
            )
        case Seal():
            plex = rebuild(value.plex)
            assert isinstance(plex, Plex)
            return Seal(plex=plex, signed_by=value.signed_by, signature=value.signature)


def validate(*raws: bytes) -> list[ValidRecord | RecordError]:
    return validate_many([frame_record(raw) for raw in raws], os.urandom)


def valid(raw: bytes) -> ValidRecord:
    (found,) = validate(raw)
    assert isinstance(found, ValidRecord)
    return found


def test_all_vectors_are_here() -> None:
    assert len(ACCEPT) == 46
    assert len(REJECT) == 80
    assert len(load("keys.json")) == len(load("signatures.json")) == 3
    assert sorted(path.suffix for path in (VECTORS / "records").rglob("*.*")) == sorted(
        [".record"] * 126 + [".facts"] * 46 + [".reason"] * 80
    )


@pytest.mark.parametrize(("data", "text"), load("b64a.json")["accept"])
def test_base64_ascend(data: str, text: str) -> None:
    assert b64a.encode(bytes.fromhex(data)) == text
    assert b64a.decode(text) == bytes.fromhex(data)


@pytest.mark.parametrize("text", load("b64a.json")["reject"])
def test_base64_ascend_refuses(text: str) -> None:
    with pytest.raises(b64a.B64AError) as caught:
        b64a.decode(text)
    assert caught.value.rule in KNOWN


@pytest.mark.parametrize("vector", load("keys.json"), ids=lambda vector: vector["verifier"])
def test_key(vector: dict[str, str]) -> None:
    key = SigningKey.parse_secret(vector["secret"], os.urandom)
    assert key.verifier == vector["verifier"]
    assert key.secret_text() == vector["secret"]


@pytest.mark.parametrize("vector", load("signatures.json"), ids=lambda vector: vector["verifier"])
def test_signature(vector: dict[str, str]) -> None:
    secrets = {entry["verifier"]: entry["secret"] for entry in load("keys.json")}
    key = SigningKey.parse_secret(secrets[vector["verifier"]], os.urandom)
    message, aux = bytes.fromhex(vector["msg32"]), bytes.fromhex(vector["aux32"])
    assert key.sign(message, aux) == vector["signature"]
    verifier, signature = Verifier(vector["verifier"]), Signature(vector["signature"])
    assert verify(verifier, message, signature)
    assert not verify(verifier, bytes(32), signature)
    item = (verifier.public_key, message, signature.raw)
    assert verify_many([item], os.urandom) == [True]
    assert verify_many([item, (item[0], bytes(32), item[2])], os.urandom) == [True, False]


@pytest.mark.parametrize("path", ACCEPT, ids=lambda path: path.stem)
def test_accepted_record(path: Path) -> None:
    raw = path.read_bytes()
    lines = path.with_suffix(".facts").read_bytes().decode("utf-8").split("\n")[:-1]
    identifier = next(line for line in lines if line.startswith("Have("))[6:-2]

    value = parse_record(raw)
    assert value.bytes == raw
    assert value.id == identifier
    assert value.type == identifier[0]
    assert rebuild(value) == value
    assert rebuild(value).bytes == raw

    record = valid(raw)
    assert record.bytes == raw
    assert record.id == identifier
    assert record.type == value.type
    assert record.data == value.data
    facts = record_facts(record)
    assert len(facts) == len(set(facts))
    assert {format_fact(fact) for fact in facts} == set(lines)
    assert [format_fact(parse_fact(line.encode())) for line in lines] == lines

    slow = oracle.validate(raw)
    assert slow is not None
    assert oracle.facts(slow) == set(lines)


def test_accepted_records_as_one_stream() -> None:
    raws = [path.read_bytes() for path in ACCEPT]
    framed = list(read_records([b"".join(raws)]))
    assert all(isinstance(outcome, RawRecord) for outcome in framed)
    records = [outcome for outcome in framed if isinstance(outcome, RawRecord)]
    assert [record.data for record in records] == raws
    verdicts = validate_many(records, os.urandom)
    assert [verdict.bytes for verdict in verdicts if isinstance(verdict, ValidRecord)] == raws


@pytest.mark.parametrize("path", REJECT, ids=lambda path: path.stem)
def test_rejected_record(path: Path) -> None:
    raw, reason = path.read_bytes(), reason_of(path)
    assert oracle.validate(raw) is None
    assert reason.rule in KNOWN

    with pytest.raises(RecordError) as caught:
        parse_record(raw)
    check_error(caught.value, reason)

    try:
        frame = frame_record(raw)
    except RecordError as error:
        check_error(error, reason)
    else:
        (verdict,) = validate_many([frame], os.urandom)
        assert isinstance(verdict, RecordError)
        check_error(verdict, reason)


def check_error(error: RecordError, reason: Reason) -> None:
    assert error.rule == reason.rule
    assert error.place is not None
    assert error.place.offset == reason.offset
    assert error.place.source is None
    assert error.message
    assert str(error).startswith(f"byte {reason.offset}: {error.message} [{reason.rule}]")


@pytest.mark.parametrize("path", REJECT, ids=lambda path: path.stem)
def test_rejected_record_in_the_middle_of_a_file(path: Path) -> None:
    """An import goes on behind it, and says where in the file it was."""
    bad, reason = path.read_bytes(), reason_of(path)
    good = [p.read_bytes() for p in ACCEPT if "seal" in p.stem][:3]
    stream = good[0] + bad + good[1] + good[2]
    records: list[RawRecord] = []
    errors: list[RecordError] = []
    for outcome in read_records([stream], recover=True, source="file"):
        if isinstance(outcome, Fault):
            errors.append(outcome.error)
        else:
            records.append(outcome)
    verdicts = validate_many(records, os.urandom, "file")
    found = [verdict.bytes for verdict in verdicts if isinstance(verdict, ValidRecord)]
    # A byte behind a good record, or three before one, do not make it a bad one.
    within = [part for part in (bad[:-1], bad[3:]) if oracle.validate(part)]
    assert found == [good[0], *within, good[1], good[2]]
    errors += [verdict for verdict in verdicts if isinstance(verdict, RecordError)]
    places = {(error.rule, error.place and error.place.offset) for error in errors}
    if reason.rule not in OUTSIDE:
        assert (reason.rule, len(good[0]) + reason.offset) in places
    assert bool(errors) is bool(bad)
    assert all(error.place and error.place.source == "file" for error in errors)
