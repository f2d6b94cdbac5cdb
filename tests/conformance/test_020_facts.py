"""Text 020, record facts: one test or more for each requirement from 020-01 to 020-42."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lace.base.text import is_nfc
from lace.errors import LimitExceeded, RecordError
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import record_facts
from lace.facts.lines import FactLineError, check_value, format_fact, parse_fact
from lace.record.ids import RecordId, is_link_target
from lace.record.model import Blob, Plex, Record, Seal, plex_payload, write_record
from lace.record.reader import Fault, read_records
from lace.record.seal import SigningKey
from lace.record.validate import (
    ValidRecord,
    embedded_records,
    frame_record,
    parse_record,
    validate_many,
)
from lace.store.sqlite.store import SqliteStore
from tests.oracle.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.facts.lines import Fact
    from lace.store.interface import RecordStore, Snapshot

requirement = pytest.mark.requirement

KEY = SigningKey(b"\x07" * 32, os.urandom)
ZERO = "0" * 43
TAI = "1700000037:000000000"
OTHER_FORMAT = "P.x.H9"
LINK = f"seen today B.{ZERO}.H3"


def plex(*headers: tuple[str, str], data: bytes = b"hello", name: str = "links/1") -> Plex:
    return Plex(group="u/v", app="ding", name=name, tai=TAI, headers=headers, data=data)


def valid(record: Record | bytes) -> ValidRecord:
    raw = record if isinstance(record, bytes) else record.bytes
    (found,) = validate_many([frame_record(raw)], os.urandom)
    assert isinstance(found, ValidRecord)
    return found


def facts_of(record: Record) -> set[Fact]:
    found = record_facts(valid(record))
    assert len(found) == len(set(found))
    return set(found)


def fields(record: Record, name: str) -> set[tuple[str, str]]:
    """Index and value of each field of that name."""
    return {
        (fact[3], fact[4])
        for fact in facts_of(record)
        if fact[0] == "Field" and fact[1] == record.id and fact[2] == name
    }


def all_facts(snapshot: Snapshot) -> set[Fact]:
    return {
        (predicate, *values)
        for predicate in RECORD_PREDICATES
        for values in snapshot.iterate(predicate)
    }


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordStore]:
    made: RecordStore = (
        MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s", create=True)
    )
    yield made
    made.close()


BLOB = Blob(b"hello")
PLEX = plex(("evidence+Link", LINK), ("note", "it's"))
SEAL = PLEX.seal(KEY)
KINDS = pytest.mark.parametrize("record", [BLOB, PLEX, SEAL], ids=["blob", "plex", "seal"])


@requirement("020-01")
@pytest.mark.parametrize("letter", "BPS")
def test_three_forms_are_record_identifiers(letter: str) -> None:
    identifier = RecordId(f"{letter}.{ZERO}.H3")
    assert identifier.type == letter
    assert identifier.digest == bytes(32)


@requirement("020-01")
@pytest.mark.parametrize(
    "text",
    [f"{letter}.{ZERO}.H3" for letter in "ACDEFGHIJKLMNOQRTUVWXYZbps&"]
    + [f"P.{ZERO}.H{suffix}" for suffix in "012456789"]
    + [f"P.{ZERO}.h3", f"P.{ZERO}", f"P.{ZERO[1:]}1.H3", f"P.{ZERO[1:]}.H3", OTHER_FORMAT],
)
def test_other_forms_are_not(text: str) -> None:
    with pytest.raises(RecordError) as caught:
        RecordId(text)
    assert caught.value.rule == "020-01"


@requirement("020-02")
def test_a_known_hash_without_have_has_no_facts(store: RecordStore) -> None:
    store.admit([valid(plex(("about+Link", f"see {SEAL.id}")))])
    with store.snapshot() as snapshot:
        assert not snapshot.has(SEAL.id)
        assert snapshot.read(SEAL.id) is None
        for predicate in RECORD_PREDICATES:
            assert list(snapshot.query(predicate, SEAL.id)) == []
    store.admit([valid(SEAL)])
    with store.snapshot() as snapshot:
        assert list(snapshot.query("Have", SEAL.id)) == [(SEAL.id,)]
        assert snapshot.read(SEAL.id) == SEAL.bytes
        assert {fact for fact in all_facts(snapshot) if fact[1] == SEAL.id} == facts_of(SEAL)


@requirement("020-03")
def test_a_link_to_an_unsupported_format_is_tolerated() -> None:
    record = plex(("about+Link", f"see {OTHER_FORMAT}"))
    assert is_link_target(OTHER_FORMAT)
    assert ("RecordLink", record.id, "about+Link", "0", "see", OTHER_FORMAT) in facts_of(record)


@requirement("020-04")
def test_an_unsupported_hash_never_becomes_a_record(store: RecordStore) -> None:
    store.admit([valid(plex(("about+Link", f"see {OTHER_FORMAT}")))])
    with store.snapshot() as snapshot:
        assert not snapshot.has(OTHER_FORMAT)
        assert all(fact[1] != OTHER_FORMAT for fact in all_facts(snapshot))
        for predicate in RECORD_PREDICATES:
            assert list(snapshot.query(predicate, OTHER_FORMAT)) == []
    other = PLEX.bytes.replace(b".H3\n", b".H9\n", 1)
    with pytest.raises(RecordError):
        parse_record(other)
    with pytest.raises(RecordError):
        frame_record(other)


@requirement("020-05")
@KINDS
def test_facts_come_from_stored_valid_records_only(record: Record, store: RecordStore) -> None:
    with store.snapshot() as snapshot:
        assert all_facts(snapshot) == set()
    with pytest.raises(TypeError):
        store.admit([record.bytes])  # type: ignore[list-item]  # bytes are not validated
    with pytest.raises(TypeError):
        store.admit([record])  # type: ignore[list-item]  # nor is a value
    store.admit([valid(record)])
    with store.snapshot() as snapshot:
        assert all_facts(snapshot) == facts_of(record)
    store.remove([record.id])
    with store.snapshot() as snapshot:
        assert all_facts(snapshot) == set()


@requirement("020-06")
@KINDS
@pytest.mark.parametrize("place", [0, 10, 30, 54, 56, -1])
def test_one_corrupt_byte_leaves_no_facts(record: Record, place: int, store: RecordStore) -> None:
    raw = bytearray(record.bytes)
    raw[place] ^= 0x01
    records = [o for o in read_records([bytes(raw)], recover=True) if not isinstance(o, Fault)]
    verdicts = validate_many(records, os.urandom)
    store.admit([verdict for verdict in verdicts if isinstance(verdict, ValidRecord)])
    with store.snapshot() as snapshot:
        assert all_facts(snapshot) == set()


@requirement("020-07")
@KINDS
def test_have(record: Record) -> None:
    assert {fact for fact in facts_of(record) if fact[0] == "Have"} == {("Have", record.id)}
    assert RECORD_PREDICATES["Have"].arity == 1


@requirement("020-08")
@KINDS
def test_field_is_one_fact_for_each_occurrence(record: Record) -> None:
    found = [fact for fact in record_facts(valid(record)) if fact[0] == "Field"]
    assert RECORD_PREDICATES["Field"].arity == 4
    assert all(len(fact) == 5 and fact[1] == record.id for fact in found)
    assert len(found) == {"B": 2, "P": 8, "S": 10}[record.type]
    assert len({fact[2:4] for fact in found}) == len(found)


@requirement("020-09")
def test_record_link_is_one_fact_for_each_occurrence() -> None:
    record = plex(("a+Link", LINK), ("a+Link", LINK), ("b+Link", f"two words B.{ZERO}.H3"))
    assert RECORD_PREDICATES["RecordLink"].arity == 5
    assert {fact for fact in facts_of(record) if fact[0] == "RecordLink"} == {
        ("RecordLink", record.id, "a+Link", "0", "seen today", f"B.{ZERO}.H3"),
        ("RecordLink", record.id, "a+Link", "1", "seen today", f"B.{ZERO}.H3"),
        ("RecordLink", record.id, "b+Link", "0", "two words", f"B.{ZERO}.H3"),
    }


@requirement("020-10")
@pytest.mark.parametrize("record", [PLEX, SEAL], ids=["plex", "seal"])
def test_blob_hash(record: Record) -> None:
    assert RECORD_PREDICATES["BlobHash"].arity == 2
    found = {fact for fact in facts_of(record) if fact[0] == "BlobHash"}
    assert found == {("BlobHash", record.id, BLOB.id)}


@requirement("020-11")
def test_plex_hash() -> None:
    assert RECORD_PREDICATES["PlexHash"].arity == 2
    found = {fact for fact in facts_of(SEAL) if fact[0] == "PlexHash"}
    assert found == {("PlexHash", SEAL.id, PLEX.id)}


@requirement("020-12")
def test_every_value_is_nfc_text() -> None:
    record = plex(("größe", "été \U0001f5a7"), ("한글", "값")).seal(KEY)
    for fact in facts_of(record):
        for value in fact:
            assert isinstance(value, str)
            assert is_nfc(value)
            value.encode("utf-8")
        assert parse_fact(format_fact(fact).encode()) == fact


def with_header(line: bytes) -> bytes:
    payload = plex_payload("u", "a", "n", TAI, (), b"") + line + BLOB.bytes
    return write_record("P", payload)[1]


@requirement("020-13")
def test_a_value_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(FactLineError) as caught:
        parse_fact(b"Field('P','Name','0','\xff')")
    assert caught.value.rule == "020-13"
    with pytest.raises(FactLineError) as caught:
        check_value("\udcff")
    assert caught.value.rule == "020-13"
    with pytest.raises(RecordError) as refused:
        valid_or_raise(with_header(b"x: \xff\n"))
    assert refused.value.rule == "010-utf8"


def valid_or_raise(raw: bytes) -> ValidRecord:
    (found,) = validate_many([frame_record(raw)], os.urandom)
    if isinstance(found, RecordError):
        raise found
    return found


@requirement("020-14")
def test_a_value_that_is_not_nfc_is_refused() -> None:
    with pytest.raises(FactLineError) as caught:
        parse_fact("Field('P','Name','0','e\u0301')".encode())
    assert caught.value.rule == "020-14"
    with pytest.raises(FactLineError) as caught:
        check_value("e\u0301")
    assert caught.value.rule == "020-14"
    with pytest.raises(RecordError) as refused:
        valid_or_raise(with_header("x: e\u0301\n".encode()))
    assert refused.value.rule == "010-nfc"
    check_value("\u00e9")


@requirement("020-15")
def test_a_value_above_the_limit_stops_everything() -> None:
    long = plex(("x", "y" * 60))
    assert ("Field", long.id, "x", "0", "y" * 60) in record_facts(valid(long), max_value_bytes=60)
    with pytest.raises(LimitExceeded) as caught:
        record_facts(valid(long), max_value_bytes=59)
    assert caught.value.rule == "020-15"
    assert (caught.value.limit, caught.value.allowed) == ("max_value_bytes", 59)
    assert caught.value.observed == 60
    with pytest.raises(LimitExceeded):
        parse_fact(b"F('" + b"x" * 1025 + b"')")
    assert parse_fact(b"F('" + b"x" * 1024 + b"')") == ("F", "x" * 1024)


@requirement("020-15")
def test_the_name_of_a_field_is_a_value_too() -> None:
    long = plex(("n" * 60, "v"))
    record_facts(valid(long), max_value_bytes=60)
    with pytest.raises(LimitExceeded):
        record_facts(valid(long), max_value_bytes=59)


@requirement("020-16")
def test_a_table_is_a_view_of_the_facts(store: RecordStore) -> None:
    """A row for each record, chosen fields as columns, can be made from the facts alone."""
    store.admit([valid(record) for record in (BLOB, PLEX, SEAL)])
    columns = ("Type", "Name", "note")
    with store.snapshot() as snapshot:
        rows = {
            p: tuple(
                next((v for _, _, _, v in snapshot.query("Field", p, column, "0")), "")
                for column in columns
            )
            for (p,) in snapshot.iterate("Have")
        }
        listed = {entry.id: (entry.id.type, entry.name or "") for entry in snapshot.listing()}
    assert rows == {
        BLOB.id: ("B", "", ""),
        PLEX.id: ("P", "links/1", "it's"),
        SEAL.id: ("S", "links/1", "it's"),
    }
    assert listed == {p: row[:2] for p, row in rows.items()}


@requirement("020-17")
def test_fields_hold_singletons_and_extra_headers_in_one_model() -> None:
    record = plex(("b", "2"), ("a", "1"), ("b", "1")).seal(KEY)
    names = [fact[2] for fact in record_facts(valid(record)) if fact[0] == "Field"]
    singletons = ("Type", "Data-Length", "Group", "App", "Name", "TAI", "Signed-By", "Signature")
    assert sorted(names) == sorted([*singletons, "a", "b", "b"])
    headers = [line.split(b": ")[0].decode() for line in record.bytes.split(b"\n") if b": " in line]
    assert set(names) - {"Type"} == set(headers) - {"\U0001f5a7"}


@requirement("020-18")
@KINDS
def test_type(record: Record) -> None:
    assert fields(record, "Type") == {("0", record.id[0])}


@requirement("020-19")
@pytest.mark.parametrize("size", [0, 1, 10, 12345])
def test_data_length(size: int) -> None:
    assert fields(Blob(b"x" * size), "Data-Length") == {("0", str(size))}


@requirement("020-20")
def test_group() -> None:
    assert fields(PLEX, "Group") == {("0", "u/v")}


@requirement("020-21")
def test_app() -> None:
    assert fields(PLEX, "App") == {("0", "ding")}


@requirement("020-22")
def test_name() -> None:
    assert fields(PLEX, "Name") == {("0", "links/1")}


@requirement("020-23")
def test_tai() -> None:
    assert fields(PLEX, "TAI") == {("0", TAI)}


@requirement("020-24")
def test_signed_by() -> None:
    assert fields(SEAL, "Signed-By") == {("0", KEY.verifier)}


@requirement("020-25")
def test_signature() -> None:
    assert fields(SEAL, "Signature") == {("0", SEAL.signature)}


@requirement("020-26")
def test_any_extra_header_is_a_field() -> None:
    names = ["x", "größe", "~", "a+Link", "\U0001f5a7x", "Group2", "type", "'"]
    record = plex(*((name, f"value of {name}") for name in names))
    for name in names:
        assert fields(record, name) == {("0", f"value of {name}")}


@requirement("020-27")
def test_index_counts_from_zero_in_decimal() -> None:
    record = plex(*(("x", f"v{number}") for number in range(12)), ("y", "once"))
    found = fields(record, "x")
    assert ("2", "v2") in found
    assert ("10", "v10") in found
    assert found == {(str(number), f"v{number}") for number in range(12)}
    assert fields(record, "y") == {("0", "once")}


@requirement("020-28")
@KINDS
def test_singletons_have_index_zero(record: Record) -> None:
    singletons = {"Type", "Data-Length", "Group", "App", "Name", "TAI", "Signed-By", "Signature"}
    found = [fact for fact in facts_of(record) if fact[0] == "Field" and fact[2] in singletons]
    assert {fact[3] for fact in found} == {"0"}
    assert len(found) == len({fact[2] for fact in found})


@requirement("020-29")
def test_indexes_follow_the_order_of_the_record() -> None:
    record = plex(("x", "c"), ("w", "-"), ("x", "a"), ("x", "b"))
    assert fields(record, "x") == {("0", "c"), ("1", "a"), ("2", "b")}
    lines = record.bytes.split(b"\n")
    places = [lines.index(line) for line in (b"x: c", b"x: a", b"x: b")]
    assert places == sorted(places)


@requirement("020-30")
def test_equal_headers_are_two_facts() -> None:
    record = plex(("x", "same"), ("x", "same"))
    assert fields(record, "x") == {("0", "same"), ("1", "same")}


@requirement("020-31")
def test_what_a_plex_carries() -> None:
    assert facts_of(PLEX) == {
        ("Have", PLEX.id),
        ("Field", PLEX.id, "Type", "0", "P"),
        ("Field", PLEX.id, "Data-Length", "0", "5"),
        ("Field", PLEX.id, "Group", "0", "u/v"),
        ("Field", PLEX.id, "App", "0", "ding"),
        ("Field", PLEX.id, "Name", "0", "links/1"),
        ("Field", PLEX.id, "TAI", "0", TAI),
        ("Field", PLEX.id, "evidence+Link", "0", LINK),
        ("Field", PLEX.id, "note", "0", "it's"),
        ("RecordLink", PLEX.id, "evidence+Link", "0", "seen today", f"B.{ZERO}.H3"),
        ("BlobHash", PLEX.id, BLOB.id),
    }


@requirement("020-32")
def test_a_seal_carries_the_same_under_its_own_id() -> None:
    own = {"Signed-By", "Signature", "Type"}
    moved = {
        (fact[0], SEAL.id, *fact[2:])
        for fact in facts_of(PLEX)
        if fact[0] != "Have" and fact[2] not in own
    }
    kept = {
        fact
        for fact in facts_of(SEAL)
        if fact[0] not in ("Have", "PlexHash") and fact[2] not in own
    }
    assert kept == moved
    assert {fact[1] for fact in facts_of(SEAL)} == {SEAL.id}


@requirement("020-33")
@pytest.mark.parametrize("record", [BLOB, PLEX], ids=["blob", "plex"])
def test_only_seals_are_signed(record: Record) -> None:
    assert not fields(record, "Signed-By")
    assert not fields(record, "Signature")
    assert not {fact for fact in facts_of(record) if fact[0] == "PlexHash"}
    assert fields(SEAL, "Signed-By")
    assert fields(SEAL, "Signature")


@requirement("020-34")
@KINDS
def test_data_length_by_reference(record: Record) -> None:
    assert fields(record, "Data-Length") == {("0", "5")}


@requirement("020-35")
@pytest.mark.parametrize(
    "header",
    [("note", LINK), ("Link", LINK), ("a+link", LINK), ("a+Linked", LINK), ("+Link2", LINK)],
)
def test_links_come_from_link_fields_only(header: tuple[str, str]) -> None:
    record = plex(header)
    assert not {fact for fact in facts_of(record) if fact[0] == "RecordLink"}
    linked = plex(("a+Link", LINK))
    assert ("RecordLink", linked.id, "a+Link", "0", *LINK.rsplit(" ", 1)) in facts_of(linked)


@requirement("020-36")
@pytest.mark.parametrize(
    "value",
    [
        f"B.{ZERO}.H3",
        "seen today",
        f"seen V.{ZERO}.H3",
        f"seen P.{ZERO[1:]}1.H3",
        "seen P.x.H3",
        "seen p.x.H9",
        "seen P..H9",
        f"B.{ZERO}.H3 seen",
        "x",
    ],
)
def test_a_malformed_link_stays_a_field(value: str) -> None:
    for record in (plex(("a+Link", value)), plex(("a+Link", value)).seal(KEY)):
        assert fields(record, "a+Link") == {("0", value)}
        assert not {fact for fact in facts_of(record) if fact[0] == "RecordLink"}


@requirement("020-37")
@KINDS
def test_no_fact_holds_a_coordinate(record: Record) -> None:
    for fact in facts_of(record):
        assert all("//" not in value for value in fact[1:])
    if not isinstance(record, Blob):
        assert fields(record, "Group") == {("0", record.group)}


@requirement("020-38")
def test_an_outer_record_has_the_selected_inner_facts() -> None:
    inner = {fact[2:] for fact in facts_of(BLOB) if fact[0] == "Field" and fact[2] != "Type"}
    assert inner == {("Data-Length", "0", "5")}
    for outer in (PLEX, SEAL):
        assert inner <= {fact[2:] for fact in facts_of(outer)}
    for name in ("Group", "App", "Name", "TAI", "evidence+Link", "note"):
        assert fields(SEAL, name) == fields(PLEX, name) != set()


@requirement("020-39", "020-40")
def test_storing_a_seal_gives_no_have_of_what_is_inside(store: RecordStore) -> None:
    store.admit([valid(SEAL)])
    with store.snapshot() as snapshot:
        assert set(snapshot.iterate("Have")) == {(SEAL.id,)}
        for inner in (PLEX.id, BLOB.id):
            assert list(snapshot.query("Have", inner)) == []
            assert list(snapshot.query("Field", inner)) == []
            assert snapshot.read(inner) is None
        assert list(snapshot.query("PlexHash", SEAL.id)) == [(SEAL.id, PLEX.id)]


@requirement("020-40", "020-41")
def test_embedded_records_can_be_admitted_in_their_own_right(store: RecordStore) -> None:
    outer = valid(SEAL)
    inner = embedded_records(outer)
    store.admit([outer, *inner])
    with store.snapshot() as snapshot:
        assert set(snapshot.iterate("Have")) == {(SEAL.id,), (PLEX.id,), (BLOB.id,)}
        assert snapshot.read(PLEX.id) == PLEX.bytes
        assert snapshot.read(BLOB.id) == BLOB.bytes
        assert all_facts(snapshot) == facts_of(SEAL) | facts_of(PLEX) | facts_of(BLOB)
    store.remove([PLEX.id])
    with store.snapshot() as snapshot:
        assert set(snapshot.iterate("Have")) == {(SEAL.id,), (BLOB.id,)}


@requirement("020-42")
def test_thin_and_trailer_records_are_refused_clearly(store: RecordStore) -> None:
    """Nothing is reconstructed here; the inner record being known does not change that."""
    store.admit([valid(BLOB)])
    thin = write_record("P", plex_payload("u", "a", "n", TAI, (), BLOB.bytes[:55]))[1]
    with pytest.raises(RecordError) as caught:
        parse_record(thin)
    assert caught.value.rule == "010-cut"
    with pytest.raises(RecordError) as caught:
        parse_record(b"\xe2\x8b\xaf" + PLEX.bytes)
    assert caught.value.rule == "010-unsupported"
    assert "trailer-hash form" in caught.value.message
    assert caught.value.hint
    whole = embedded_records(valid(SEAL))
    assert [record.id for record in whole] == [PLEX.id, BLOB.id]
    assert store.admit(whole).known == 1


@requirement("020-32", "020-10")
def test_the_value_and_its_facts_name_the_same_parts() -> None:
    assert isinstance(SEAL, Seal)
    assert ("BlobHash", SEAL.id, SEAL.plex.blob.id) in facts_of(SEAL)
    assert ("PlexHash", SEAL.id, SEAL.plex.id) in facts_of(SEAL)
