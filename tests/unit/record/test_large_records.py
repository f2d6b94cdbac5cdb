"""Records above the size from which they are copied otherwise."""

from __future__ import annotations

import pytest

from lace.errors import RecordError
from lace.record.model import MARKER, Blob, Plex
from lace.record.reader import Fault, RawRecord, RecordReader


@pytest.mark.requirement("060-61")
@pytest.mark.parametrize("size", [64 * 1024 - 200, 64 * 1024, 200_000])
@pytest.mark.parametrize("recover", [False, True])
def test_a_large_record_is_read_as_it_is(size: int, recover: bool) -> None:
    records = [Blob(bytes([number]) * size).bytes for number in (1, 2)]
    reader = RecordReader(recover=recover)
    found = [*reader.feed(b"".join(records)), *reader.finish()]
    assert [each.data for each in found if isinstance(each, RawRecord)] == records


def broken(data: bytes) -> bytes:
    """A Blob that its markline does not name, so that records may begin inside it."""
    whole = bytes(Blob(data).bytes)
    at = whole.index(b"B.") + 2
    return whole[:at] + b"0" * 43 + whole[at + 43 :]


@pytest.mark.parametrize(("beyond", "is_found"), [(0, True), (1, False)])
def test_recovery_looks_at_64_mib_again_and_no_more(beyond: int, is_found: bool) -> None:
    """Beyond as much as was read: else a stream of records inside records takes forever."""
    hidden = bytes(Blob(b"intact").bytes)
    inner = broken(hidden + b"!")
    head = len(broken(bytes(64 << 20))) - (64 << 20)
    # Looked at again: all of the outer record, then the inner one, which ends right behind
    # `head` and itself. Only the outer record counts beyond what was read.
    outer = broken(inner + bytes((64 << 20) + beyond - len(inner)))
    reader = RecordReader(recover=True, max_data_bytes=1 << 30)
    found = [*reader.feed(outer + b"no record"), *reader.finish()]
    places = [(each.offset, len(each.data)) for each in found if isinstance(each, RawRecord)]
    assert places[:2] == [(0, len(outer)), (head, len(inner))]
    assert places[2:] == ([(head + len(inner) - len(hidden) - 1, len(hidden))] if is_found else [])


@pytest.mark.parametrize(("allowed", "is_found"), [(64 << 20, True), (0, False)])
def test_a_plex_after_cut_headers_is_looked_at_again_within_that(
    monkeypatch: pytest.MonkeyPatch, allowed: int, is_found: bool
) -> None:
    """Only the hash of the outer Plex says whether it embeds the other; beyond that it may."""
    monkeypatch.setattr("lace.record.reader._RECOVERY_BYTES", allowed)
    first, second = (
        bytes(Plex(group="u", app="a", name=name, tai="1700000037:000000000", data=b"x").bytes)
        for name in ("first", "second")
    )
    cut = first[: first.rindex(MARKER)]
    reader = RecordReader(recover=True)
    found = [*reader.feed(cut + second), *reader.finish()]
    kept = [each.data for each in found if isinstance(each, RawRecord)]
    assert (second in kept) is is_found


@pytest.mark.parametrize(("allowed", "is_reported"), [(64 << 20, True), (0, False)])
def test_a_broken_plex_after_cut_headers_is_reported_within_that(
    monkeypatch: pytest.MonkeyPatch, allowed: int, is_reported: bool
) -> None:
    monkeypatch.setattr("lace.record.reader._RECOVERY_BYTES", allowed)
    whole = bytes(Plex(group="u", app="a", name="n", tai="1700000037:000000000", data=b"x").bytes)
    cut = whole[: whole.rindex(MARKER)]
    reader = RecordReader(recover=True)
    stream = cut + whole.replace(b"Data-Length: 1", b"Data-Length: x")
    found = [*reader.feed(stream), *reader.finish()]
    faults = [each.offset for each in found if isinstance(each, Fault)]
    assert (len(cut) in faults) is is_reported


@pytest.mark.parametrize("recover", [False, True])
def test_the_end_of_a_stream_gives_what_is_whole_and_reports_what_is_cut(recover: bool) -> None:
    whole = bytes(Blob(b"whole").bytes)
    reader = RecordReader(recover=recover)
    reader.feed(whole)  # nobody has asked for what it completes
    assert [each.data for each in reader.finish() if isinstance(each, RawRecord)] == [whole]
    reader = RecordReader(recover=recover)
    assert not list(reader.feed(whole[:-1]))
    (cut,) = reader.finish()
    assert isinstance(cut, Fault)
    assert cut.error.rule == "010-cut"


@pytest.mark.parametrize("name", ["group", "app", "name"])
def test_a_part_of_a_coordinate_is_text(name: str) -> None:
    parts: dict[str, object] = {"group": "u", "app": "a", "name": "n", name: 7}
    with pytest.raises(RecordError, match=f"{name.capitalize()} is text, not int"):
        Plex(data=b"", tai="1700000037:000000000", **parts)  # type: ignore[arg-type]
