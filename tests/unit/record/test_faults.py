"""Faults: errors that move with their record."""

from __future__ import annotations

from lace.errors import Place, RecordError
from lace.record.headers import fault, relocate


def test_a_fault_has_a_place_and_a_rule() -> None:
    error = fault("010-cut", "too short", 12, "send all of it")
    assert str(error) == "byte 12: too short [010-cut]; send all of it"


def test_a_fault_moves_to_the_file_that_holds_the_record() -> None:
    error = relocate(fault("010-cut", "too short", 12), "file", 1000)
    assert error.place == Place(source="file", offset=1012)
    assert relocate(RecordError("no place"), None, 7).place == Place(offset=7)
    assert relocate(RecordError("x", place=Place(line=3)), None, 7).place == Place(offset=7)
