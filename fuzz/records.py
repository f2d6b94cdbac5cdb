"""Records: everything that reads them takes any bytes.

Only documented errors come out, a record is never accepted under an id that its bytes do not
have, and any split of a stream gives the same outcomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.harness import ROOT, Target, chance_of, pieces_of
from lace.api.explain import explanations
from lace.errors import RecordError
from lace.facts.extract import record_facts
from lace.facts.lines import format_fact, parse_fact
from lace.record.model import MARKER, write_record
from lace.record.reader import Fault, RawRecord, read_records
from lace.record.validate import ValidRecord, embedded_records, parse_record, validate_many

if TYPE_CHECKING:
    from lace.record.model import Record

__all__ = ["TARGET"]

_KNOWN = frozenset(rule for rule in explanations() if rule <= "020-01")
_VECTORS = ROOT / "tests" / "vectors" / "records"
_PIECES = (
    *(MARKER, b"\n", b"\n" + MARKER, b": ", b" ", b"Data-Length: ", b"Group: ", b"x+Link: "),
    *(b"\xe2\x8b\xaf", b"\xff", b"e\xcc\x81", b"\0", b"9" * 12),
)
_HEAD = 55
"""Bytes of a record's first line."""


def _seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted(_VECTORS.glob("*/*.record"))]


def _mend(raw: bytes) -> bytes:
    """The same content under the hash that it has."""
    if len(raw) <= _HEAD:
        return raw
    letter = chr(raw[6]) if raw[6] in b"BPS" else "P"
    return write_record(letter, raw[_HEAD:])[1]


def _parse(raw: bytes) -> Record | RecordError:
    try:
        return parse_record(raw)
    except RecordError as error:
        return error


def check(raw: bytes) -> None:
    """Everything that must hold for any bytes at all."""
    found = _parse(raw)
    if isinstance(found, RecordError):
        assert found.rule in _KNOWN, found
        assert found.place is not None
        assert found.place.offset is not None
        assert 0 <= found.place.offset <= len(raw)
    else:
        assert found.bytes == raw, "accepted, but not as these bytes"
    parts = pieces_of(raw)
    for recover in (False, True):
        whole = [_show(outcome) for outcome in read_records([raw], recover=recover)]
        assert [_show(each) for each in read_records(parts, recover=recover)] == whole, "split"
    framed = [each for each in read_records([raw], recover=True) if isinstance(each, RawRecord)]
    chance = chance_of(raw)
    for frame, verdict in zip(framed, validate_many(framed, chance.randbytes), strict=True):
        if isinstance(verdict, ValidRecord):
            _check_valid(verdict, frame)
        else:
            assert verdict.rule in _KNOWN, verdict


def _check_valid(record: ValidRecord, frame: RawRecord) -> None:
    assert record.bytes == frame.data
    assert parse_record(record.bytes).id == record.id
    for fact in record_facts(record):
        assert parse_fact(format_fact(fact).encode()) == fact
    embedded_records(record)


def _show(outcome: RawRecord | Fault) -> tuple[object, ...]:
    if isinstance(outcome, Fault):
        return outcome.offset, outcome.lost, str(outcome.error)
    return tuple(outcome)


TARGET = Target(name="records", check=check, seeds=_seeds, pieces=_PIECES, mend=_mend)
