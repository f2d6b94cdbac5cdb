"""Ranges read apart give what one reader of the whole file gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from lace.api import SigningKey
from lace.record.reader import RawRecord, read_records
from lace.spark.pipeline.ingest import Range, file_ranges, find_ranges, read_range
from tests.spark.samples import make_records

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.reader import Fault

LIMIT = 1500
_RECORDS = make_records(SigningKey.generate(), 40)


def described(outcome: RawRecord | Fault) -> tuple[object, ...]:
    if isinstance(outcome, RawRecord):
        return tuple(outcome)
    return (outcome.offset, outcome.error.rule, outcome.error.message, outcome.lost)


def damaged(seed: int) -> bytes:
    """Return records with some damage: cut, changed, doubled, missing or foreign bytes."""
    chance = random.Random(seed)
    pieces = [bytearray(record.bytes) for record in chance.choices(_RECORDS, k=12)]
    for _number in range(chance.randrange(5)):
        piece = chance.choice(pieces)
        at = chance.randrange(len(piece)) if piece else 0
        match chance.randrange(6):
            case 0:
                piece[at:] = b""
            case 1:
                piece[at : at + 1] = b"9"
            case 2:
                piece[at:at] = chance.randbytes(chance.randrange(80))
            case 3:
                piece[at:at] = chance.choice(_RECORDS).bytes
            case 4:
                del piece[at : at + chance.randrange(200)]
            case 5:
                piece[:] = piece.replace(b"Data-Length: ", b"Data-Length: 1", 1)
    return b"".join(pieces)


@pytest.mark.parametrize("seed", range(400))
@pytest.mark.requirement("020-05", "020-06")
def test_ranges_give_the_outcomes_of_the_whole(tmp_path: Path, seed: int) -> None:
    data = damaged(seed)
    path = tmp_path / "file"
    path.write_bytes(data)
    whole = [
        described(outcome)
        for outcome in read_records([data], max_data_bytes=LIMIT, recover=True, size=len(data))
    ]
    ranges = list(find_ranges(data, LIMIT, range_bytes=random.Random(seed).choice([1, 900, 5000])))
    apart = [
        described(outcome)
        for part in ranges
        for outcome in read_range(path, part, len(data), LIMIT)
    ]
    assert apart == whole


@pytest.mark.parametrize("seed", range(20))
def test_ranges_cover_the_file_once(seed: int) -> None:
    data = damaged(seed)
    ranges = list(find_ranges(data, LIMIT, range_bytes=700))
    assert [part.start for part in ranges] == [0, *(part.end for part in ranges[:-1])]
    assert ranges[-1].end == len(data)
    assert all(part.start < part.end for part in ranges)


def test_whole_records_make_plain_ranges(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"".join(record.bytes for record in _RECORDS))
    assert file_ranges(path, LIMIT) == [Range(0, path.stat().st_size, plain=True)]


def test_an_empty_file_has_no_range(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert file_ranges(path, LIMIT) == []


def test_many_lost_frames_become_one_range() -> None:
    blob = _RECORDS[1].bytes
    data = (b"x" + blob) * 1500
    ranges = list(find_ranges(data, LIMIT))
    assert ranges[-1] == Range(ranges[-1].start, len(data), plain=False)
    assert len(ranges) < 1100
    assert sum(part.end - part.start for part in ranges) == len(data)


def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(_RECORDS[5].bytes)
    size = path.stat().st_size
    path.write_bytes(_RECORDS[5].bytes[:-1])
    with pytest.raises(OSError, match="became shorter"):
        list(read_range(path, Range(0, size, plain=True), size, LIMIT))
