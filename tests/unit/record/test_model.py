"""Record values: the bytes they make, and what their constructors refuse."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from lace.base.tai import Tai
from lace.errors import RecordError
from lace.record.ids import RecordId, Signature, Verifier
from lace.record.model import Blob, Plex, Record, Seal
from lace.record.paths import Coordinate
from lace.record.seal import SigningKey

KEY = SigningKey.parse_secret(
    "&.H222FFsbxS9gCF_Emyp1u8XqDA8F2lp4lrwO3c7W~NS.H3", lambda size: b"\x01" * size
)
OTHER = SigningKey(b"\x02" * 32, lambda size: b"\x01" * size)
BLOB_ID = "B.jLpBZM_wThkFeu9iNEWhpSNKCmEj~RTn9b8P39Z1bDh.H3"


def plex(**changes: object) -> Plex:
    fields: dict[str, object] = {
        "group": "u",
        "app": "ding",
        "name": "links/1",
        "data": b"hi",
        "tai": "1700000037:000000000",
        "headers": [("evidence+Link", f"seen today {BLOB_ID}")],
    }
    return Plex(**(fields | changes))  # type: ignore[arg-type]  # wrong values are the point


def test_the_worked_example_of_the_page_on_records() -> None:
    made = plex()
    seal = made.seal(KEY)
    assert made.blob.id == BLOB_ID
    assert made.id == "P.YXf~b8ymkbP7FmmfizLguOztnh1aCghhmMDSLAidx8h.H3"
    assert seal.id == "S.6Mom4A~PrUwnxPYb_nll4~1qDw5~5AEUE6gBnL6~8dS.H3"
    assert len(seal.bytes) == 475
    assert seal.bytes.endswith(b"\n\nhi")
    assert seal.signed_by == KEY.verifier
    assert made.id.digest.hex().upper() == (
        "8A1ABF988F71BE66473F1C6AB7E56BE58FB8CAC06532BB2CC5635C54AB68F08B"
    )


def test_parts_of_a_blob() -> None:
    blob = Blob(b"hi")
    assert (blob.id, blob.type, blob.data) == (BLOB_ID, "B", b"hi")
    assert type(blob.id) is RecordId
    for data in (bytearray(b"hi"), memoryview(b"hi")):
        other = Blob(data)  # type: ignore[arg-type]  # taken, but it is bytes that are kept
        assert other == blob
        assert type(other.data) is bytes
    assert Blob(b"").bytes.endswith(b"Data-Length: 0\n\n")


def test_parts_of_a_plex_and_a_seal() -> None:
    made = plex(headers=[("b", "2"), ("a", "1"), ("b", "1")])
    seal = made.seal(KEY)
    for record in (made, seal):
        assert record.coordinate == Coordinate("u", "ding", "links/1")
        assert (record.group, record.app, record.name) == ("u", "ding", "links/1")
        assert record.tai == Tai("1700000037:000000000")
        assert record.headers == (("a", "1"), ("b", "2"), ("b", "1"))
        assert record.data == b"hi"
    assert (made.type, seal.type) == ("P", "S")
    assert seal.plex == made
    assert type(seal.signed_by) is Verifier
    assert type(seal.signature) is Signature


def test_equal_bytes_are_equal_records() -> None:
    assert plex() == plex()
    assert hash(plex()) == hash(plex())
    assert plex() != plex(name="links/2")
    assert plex().blob != plex()
    assert plex() != plex().id
    assert len({plex(), plex(), plex().seal(KEY)}) == 2


@pytest.mark.parametrize("record", [Blob(b"x"), plex(), plex().seal(KEY)], ids=lambda r: r.type)
def test_values_are_frozen_and_can_be_copied(record: Record) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.id = RecordId(BLOB_ID)  # type: ignore[misc]  # frozen, which is the point
    for twin in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):  # noqa: S301
        assert twin == record
        assert twin.bytes == record.bytes


def test_reprs_are_short_and_say_what_it_is() -> None:
    assert repr(Blob(b"hi")) == "Blob(b'hi')"
    assert repr(Blob(b"x" * 10_000)) == f"Blob(b'{'x' * 24}', 10000 bytes)"
    assert len(repr(Blob(b"\xff" * 10_000))) < 100
    text = "Plex(//u//ding//links/1, 1700000037:000000000, b'hi')"
    assert repr(plex(headers=[])) == text
    assert repr(plex(headers=[("a", "1")])) == text[:-1] + ", headers=(('a', '1'),))"
    assert repr(plex(headers=[]).seal(KEY)) == f"Seal({text}, signed_by={KEY.verifier})"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"group": ""}, "010-path"),
        ({"app": "/a"}, "010-path"),
        ({"name": "a|b"}, "010-path"),
        ({"name": "e\u0301"}, "010-path"),
        ({"name": "a\nApp: b"}, "010-path"),
        ({"name": " a"}, "010-header-form"),
        ({"name": "\ud800"}, "010-utf8"),
        ({"group": "x" * 1024}, "010-line-length"),
        ({"tai": "1700000037"}, "010-tai"),
        ({"tai": ""}, "010-tai"),
        ({"headers": [("Type", "x")]}, "010-extra-reserved"),
        ({"headers": [("a", "")]}, "010-header-form"),
        ({"headers": [("a", "e\u0301")]}, "010-nfc"),
        ({"headers": [("a", "x\ny: z")]}, "010-control"),
        ({"headers": [("a", "x")] * 513}, "010-extra-count"),
        ({"data": "text"}, "010-data"),
        ({"data": None}, "010-data"),
    ],
)
def test_a_plex_refuses(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(RecordError) as caught:
        plex(**changes)
    assert caught.value.rule == rule


def test_data_is_bytes() -> None:
    with pytest.raises(RecordError, match="data is bytes, not str") as caught:
        Blob("text")  # type: ignore[arg-type]  # what a careless caller may do
    assert caught.value.hint == "encode text first"


def test_without_a_tai_the_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plex, "clock", staticmethod(lambda: Tai("1700000099:000000000")))
    assert plex(tai=None).tai == "1700000099:000000000"
    monkeypatch.setattr(Plex, "clock", None)
    with pytest.raises(RecordError, match="no clock") as caught:
        plex(tai=None)
    assert caught.value.rule == "010-tai"


def test_the_largest_head() -> None:
    made = plex(headers=[("a", "x" * 1021)] * 512)
    assert len(made.headers) == 512


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"signed_by": OTHER.verifier}, "009-signature"),
        ({"signed_by": "V.x.H3"}, "009-verifier"),
        ({"signature": "x"}, "009-signature-text"),
        ({"signature": "0" * 86}, "009-signature"),
        ({"plex": plex(name="other")}, "009-signature"),
    ],
)
def test_a_seal_refuses(changes: dict[str, object], rule: str) -> None:
    made = plex()
    fields = {"plex": made, "signed_by": KEY.verifier, "signature": KEY.sign(made.id.digest)}
    assert Seal(**fields) == made.seal(KEY)  # type: ignore[arg-type]  # of one type each
    with pytest.raises(RecordError) as caught:
        Seal(**(fields | changes))  # type: ignore[arg-type]  # wrong values are the point
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("header", "place"), [(("A", "x\x01y"), "byte 4: control byte"), (("A" * 1030, "v"), "byte 0:")]
)
def test_a_fault_of_a_header_has_its_place_in_the_line(header: tuple[str, str], place: str) -> None:
    with pytest.raises(RecordError, match=f"^{place}"):
        plex(headers=[header])
