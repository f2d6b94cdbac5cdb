"""Values to bytes and back, and what becomes of bytes that were changed."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.api.explain import explanations
from lace.errors import LaceError, RecordError
from lace.facts.extract import record_facts
from lace.facts.lines import check_value, format_fact, parse_fact
from lace.record.model import Blob, Plex, Record, Seal
from lace.record.reader import Fault, RawRecord, RecordReader, read_records
from lace.record.validate import (
    ValidRecord,
    embedded_records,
    frame_record,
    parse_record,
    trust_stored,
    validate_many,
)
from tests.property import oracle
from tests.property.strategies import mutations, plexes, records, seals

KNOWN = frozenset(rule for rule in explanations() if rule <= "020-01")

pytestmark = pytest.mark.property


def valid(raw: bytes) -> ValidRecord:
    (found,) = validate_many([frame_record(raw)], os.urandom)
    assert isinstance(found, ValidRecord)
    return found


@given(records())
def test_write_read_validate(record: Record) -> None:
    assert parse_record(record.bytes) == record
    assert parse_record(record.bytes).bytes == record.bytes
    found = valid(record.bytes)
    assert found.id == record.id
    assert found.digest == record.id.digest
    assert found.type == record.type
    assert found.data == record.data
    assert found.data_length == len(record.data)
    assert trust_stored(record.bytes, record.id) == found
    if isinstance(record, Blob):
        assert (found.group, found.plex_hash, found.blob_hash, found.headers) == (None,) * 3 + ((),)
        return
    assert (found.group, found.app, found.name) == (record.group, record.app, record.name)
    assert (found.tai, found.headers) == (record.tai, record.headers)
    plex = record if isinstance(record, Plex) else record.plex
    assert found.blob_hash == plex.blob.id
    if isinstance(record, Seal):
        assert found.plex_hash == record.plex.id
        assert (found.signed_by, found.signature) == (record.signed_by, record.signature)
    else:
        assert (found.plex_hash, found.signed_by, found.signature) == (None,) * 3


@given(records())
def test_the_slow_reading_agrees(record: Record) -> None:
    slow = oracle.validate(record.bytes)
    assert slow is not None
    assert slow.id == record.id
    assert slow.data == record.data


@given(records())
def test_facts_are_those_of_the_slow_reading(record: Record) -> None:
    slow = oracle.validate(record.bytes)
    assert slow is not None
    facts = record_facts(valid(record.bytes))
    lines = [format_fact(fact) for fact in facts]
    assert len(lines) == len(set(lines))
    assert set(lines) == oracle.facts(slow)
    for fact, line in zip(facts, lines, strict=True):
        assert parse_fact(line.encode()) == fact
        for value in fact[1:]:
            check_value(value)


@given(records(), st.integers(1, 1024))
def test_a_value_limit_stops_the_facts_or_changes_nothing(record: Record, limit: int) -> None:
    found = valid(record.bytes)
    facts = record_facts(found)
    longest = max(len(value.encode()) for fact in facts for value in fact[1:])
    if longest > limit:
        with pytest.raises(LaceError):
            record_facts(found, max_value_bytes=limit)
    else:
        assert record_facts(found, max_value_bytes=limit) == facts


@given(seals())
def test_embedded_records_are_records(record: Seal) -> None:
    inner = embedded_records(valid(record.bytes))
    assert [found.bytes for found in inner] == [record.plex.bytes, record.plex.blob.bytes]
    assert inner == [valid(found.bytes) for found in inner]
    assert [found.bytes for found in embedded_records(inner[0])] == [record.plex.blob.bytes]
    assert embedded_records(inner[1]) == []


@given(plexes())
def test_a_header_that_looks_like_the_embedded_markline_does_not_mislead(plex: Plex) -> None:
    value = f"\U0001f5a7: {plex.blob.id}"
    bait = Plex(
        group=plex.group,
        app=plex.app,
        name=plex.name,
        tai=plex.tai,
        headers=[*plex.headers, ("ref", value)],
        data=plex.data,
    )
    found = valid(bait.bytes)
    assert [inner.bytes for inner in embedded_records(found)] == [plex.blob.bytes]
    outcomes = list(read_records([bait.bytes, bait.bytes], recover=True))
    assert [o.data for o in outcomes if isinstance(o, RawRecord)] == [bait.bytes] * 2
    assert len(outcomes) == 2


@given(records())
def test_a_valid_record_is_made_by_validation_only(record: Record) -> None:
    found = valid(record.bytes)
    with pytest.raises(TypeError):
        ValidRecord(*found)
    with pytest.raises(TypeError):
        ValidRecord._make(found)
    with pytest.raises(TypeError):
        found._replace(group="other")
    for twin in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):  # noqa: S301
        assert type(twin) is ValidRecord
        assert twin == found
        assert twin.id == record.id


@given(st.data())
def test_a_changed_record_is_never_accepted_as_the_same(source: st.DataObject) -> None:
    record = source.draw(records())
    changed = source.draw(mutations(record.bytes))
    found = parse(changed)
    assert isinstance(found, RecordError) is (oracle.validate(changed) is None)
    if isinstance(found, RecordError):
        assert found.rule in KNOWN
        assert found.place is not None
        assert found.place.offset is not None
        assert 0 <= found.place.offset <= len(changed)
    else:
        assert found.bytes == changed
        assert (found.id == record.id) is (changed == record.bytes)


def parse(raw: bytes) -> Record | RecordError:
    """The record, or why it is none; every other exception passes and fails the test."""
    try:
        return parse_record(raw)
    except RecordError as error:
        return error


@given(st.data())
def test_a_changed_record_between_others_costs_only_itself(source: st.DataObject) -> None:
    """The work is bounded, nothing but faults comes out, and nothing false gets in."""
    first, record = source.draw(records()), source.draw(records())
    stream = first.bytes + source.draw(mutations(record.bytes)) + first.bytes
    reader = RecordReader(recover=True, max_data_bytes=1 << 20)
    framed: list[RawRecord] = []
    steps = 0
    for start in range(0, len(stream), 64):
        for outcome in reader.feed(stream[start : start + 64]):
            steps += 1
            framed += [outcome] if isinstance(outcome, RawRecord) else []
        assert len(reader._buffer) <= len(stream)
    for outcome in reader.finish():
        steps += 1
        framed += [outcome] if isinstance(outcome, RawRecord) else []
    assert steps <= 4 * len(stream) // len("\U0001f5a7: ".encode()) + 4
    verdicts = validate_many(framed, os.urandom)
    assert isinstance(verdicts[0], ValidRecord)
    assert verdicts[0].bytes == first.bytes
    for raw, verdict in zip(framed, verdicts, strict=True):
        slow = oracle.validate(raw.data)
        assert isinstance(verdict, ValidRecord) is (slow is not None)
        if isinstance(verdict, RecordError):
            assert verdict.rule in KNOWN


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_answered(raw: bytes, recover: bool) -> None:
    for outcome in read_records([raw], recover=recover):
        assert isinstance(outcome, Fault)
        assert outcome.error.rule in KNOWN
    with pytest.raises(RecordError):
        parse_record(raw)
