"""Validation: many at once, places in files, and stored bytes."""

from __future__ import annotations

import os

import pytest

from lace.errors import Place, RecordError
from lace.record.model import Blob, Plex
from lace.record.reader import Fault, RawRecord, read_records
from lace.record.seal import SigningKey
from lace.record.validate import (
    ValidRecord,
    embedded_records,
    frame_record,
    parse_record,
    restore_valid,
    trust_stored,
    validate_many,
)

KEY = SigningKey(b"\x07" * 32, os.urandom)
PLEX = Plex(group="u", app="a", name="n", tai="1700000037:000000000", data=b"hi")
SEAL = PLEX.seal(KEY)
BLOB = Blob(b"hi")


def test_verdicts_keep_their_order_and_places() -> None:
    forged = bytearray(SEAL.bytes)
    forged[130] = forged[130] ^ 1 if chr(forged[130] ^ 1).isalnum() else ord("x")
    broken = BLOB.bytes[:-1] + b"!"
    raws = [BLOB.bytes, broken, SEAL.bytes, bytes(forged), PLEX.bytes]
    records = [o for o in read_records([b"".join(raws)]) if isinstance(o, RawRecord)]
    verdicts = validate_many(records, os.urandom, "file")
    kinds = [type(verdict) for verdict in verdicts]
    assert kinds == [ValidRecord, RecordError, ValidRecord, RecordError, ValidRecord]
    first, second = verdicts[1], verdicts[3]
    assert isinstance(first, RecordError)
    assert first.place == Place("file", offset=len(raws[0]) + 6)
    assert isinstance(second, RecordError)
    assert second.place is not None
    assert second.place.source == "file"


def test_nothing_to_validate() -> None:
    assert validate_many([], os.urandom) == []


def test_frames_of_other_bytes() -> None:
    with pytest.raises(RecordError) as caught:
        frame_record(b"")
    assert caught.value.rule == "010-cut"
    with pytest.raises(RecordError) as caught:
        frame_record(BLOB.bytes + BLOB.bytes)
    assert caught.value.rule == "010-trailing"
    assert "73 bytes follow" in caught.value.message
    with pytest.raises(RecordError) as caught:
        frame_record(BLOB.bytes[:60])
    assert caught.value.rule == "010-cut"
    with pytest.raises(RecordError) as caught:
        frame_record(SEAL.bytes, max_data_bytes=1)
    assert caught.value.rule == "010-size-limit"
    with pytest.raises(RecordError) as caught:
        parse_record(SEAL.bytes, max_data_bytes=1)
    assert caught.value.rule == "010-size-limit"
    assert "max_data_bytes=2" in str(caught.value)


def test_stored_bytes_are_what_was_stored() -> None:
    found = trust_stored(SEAL.bytes, SEAL.id)
    assert found.id == SEAL.id
    with pytest.raises(RecordError) as caught:
        trust_stored(SEAL.bytes, PLEX.id)
    assert caught.value.rule == "010-digest"
    assert PLEX.id in caught.value.message
    with pytest.raises(RecordError):
        trust_stored(SEAL.bytes[:-1], SEAL.id)


def test_a_verdict_and_its_bytes_are_the_record_again() -> None:
    (found,) = validate_many([frame_record(SEAL.bytes)], os.urandom)
    assert isinstance(found, ValidRecord)
    twin = restore_valid(found.bytes, found.verdict())
    assert type(twin) is ValidRecord
    assert twin == found
    assert found.bytes not in found.verdict()


def test_embedded_records() -> None:
    (found,) = validate_many([frame_record(SEAL.bytes)], os.urandom)
    assert isinstance(found, ValidRecord)
    assert [inner.id for inner in embedded_records(found)] == [PLEX.id, PLEX.blob.id]


def test_only_a_seal_has_a_signature() -> None:
    records = [SEAL.bytes, PLEX.bytes, PLEX.blob.bytes]
    seal, *others = validate_many([frame_record(each) for each in records], os.urandom)
    assert isinstance(seal, ValidRecord)
    assert (seal.signature, seal.signed_by) == (SEAL.signature, SEAL.signed_by)
    for other in others:
        assert isinstance(other, ValidRecord)
        assert other.signature is other.signed_by is other.plex_hash is None


def test_a_seal_that_embeds_a_broken_plex_says_so() -> None:
    from lace.record.model import seal_payload, write_record

    broken = PLEX.bytes[:-1] + b"!"
    _, raw = write_record("S", seal_payload(SEAL.signed_by, SEAL.signature, broken))
    with pytest.raises(RecordError) as caught:
        parse_record(raw)
    assert caught.value.rule == "010-digest"
    assert caught.value.place == Place(offset=raw.index(PLEX.id.encode()))


def test_a_fault_of_the_reader_is_raised_as_it_is() -> None:
    (fault,) = read_records([b"garbage"])
    assert isinstance(fault, Fault)
    with pytest.raises(RecordError) as caught:
        parse_record(b"garbage")
    assert str(caught.value) == str(fault.error)
