"""Fact sources: iterate, query and count always agree."""

from __future__ import annotations

import os
from itertools import product

import pytest

from lace.errors import LimitExceeded
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import record_facts
from lace.facts.source import FactSource, MemoryFacts, RecordFacts
from lace.record.model import Blob, Plex, Record
from lace.record.seal import SigningKey
from lace.record.validate import ValidRecord, frame_record, validate_many

KEY = SigningKey(b"\x07" * 32, os.urandom)
PLEX = Plex(
    group="u",
    app="a",
    name="n",
    tai="1700000037:000000000",
    data=b"hi",
    headers=[("x", "1"), ("x", "1"), ("y+Link", f"see {Blob(b'hi').id}")],
)
RECORDS: list[Record] = [Blob(b"hi"), PLEX, PLEX.seal(KEY)]


def valid(records: list[Record]) -> dict[str, ValidRecord]:
    found = validate_many([frame_record(record.bytes) for record in records], os.urandom)
    return {v.hash_text: v for v in found if isinstance(v, ValidRecord)}


def sources() -> list[FactSource]:
    records = valid(RECORDS)
    facts = [fact for record in records.values() for fact in record_facts(record)]
    return [MemoryFacts([*facts, *facts]), RecordFacts(records.values, records.get)]


@pytest.mark.parametrize("source", sources(), ids=["memory", "records"])
def test_the_three_answers_agree(source: FactSource) -> None:
    for predicate in [*RECORD_PREDICATES, "Unknown"]:
        tuples = list(source.iterate(predicate))
        assert len(tuples) == len(set(tuples)) == source.count(predicate)
        assert list(source.query(predicate)) == tuples
        for values, size in product(tuples, range(1, 6)):
            leading = values[:size]
            expected = {other for other in tuples if other[: len(leading)] == leading}
            found = list(source.query(predicate, *leading))
            assert len(found) == len(set(found))
            assert set(found) == expected
        for leading in (("nobody",), ("nobody", "x"), (PLEX.id, "nothing")):
            if leading[0] != PLEX.id or predicate == "Field":
                assert list(source.query(predicate, *leading)) == []


def test_both_sources_have_the_same_facts() -> None:
    memory, records = sources()
    for predicate in RECORD_PREDICATES:
        assert set(memory.iterate(predicate)) == set(records.iterate(predicate))
    assert memory.count("Have") == 3
    assert memory.count("PlexHash") == 1
    assert memory.count("BlobHash") == 2


def test_more_values_than_a_predicate_has_match_nothing() -> None:
    for source in sources():
        assert list(source.query("Have", PLEX.id, "more")) == []
        assert list(source.query("Unknown", "x")) == []


def test_memory_facts_of_any_predicate() -> None:
    source = MemoryFacts([("TransportEncrypted",), ("Here", "V"), ("Here", "V"), ("Here", "W")])
    assert list(source.iterate("TransportEncrypted")) == [()]
    assert source.count("TransportEncrypted") == 1
    assert sorted(source.iterate("Here")) == [("V",), ("W",)]
    assert list(source.query("Here", "W")) == [("W",)]


def test_the_limit_of_the_profile_stops_the_facts() -> None:
    records = valid(RECORDS)
    source = RecordFacts(records.values, records.get, max_value_bytes=20)
    with pytest.raises(LimitExceeded):
        source.count("Have")
    with pytest.raises(LimitExceeded):
        list(source.query("Have", PLEX.id))
