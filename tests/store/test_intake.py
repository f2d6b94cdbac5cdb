"""Imports: whatever the chunks, the batches and the processes, the same records and errors."""

from __future__ import annotations

import io
import os
import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lace
from lace.base.limits import DEFAULT_SETTINGS, Settings
from lace.errors import RecordError, UsageError
from lace.record.model import MARKER, write_record
from lace.store.intake import Intake, import_stream
from tests.oracle.memory_store import MemoryStore
from tests.store.actors import finish, start
from tests.store.samples import blob, contents, flip, forged, mixed, plex, seal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from lace.record.validate import ValidRecord
    from lace.store.interface import Admission

GOOD = mixed(60)
MIB = 1024 * 1024


def run(
    chunks: Iterable[bytes],
    *,
    store: MemoryStore | None = None,
    workers: int = 0,
    settings: Settings = DEFAULT_SETTINGS,
    size: int | None = None,
    admit_embedded: bool = False,
) -> tuple[Intake, dict[str, bytes], list[tuple[int | None, str | None, str]]]:
    """Import; returns the counts, the records, and offset, rule and text of each error."""
    target = store or MemoryStore()
    errors: list[tuple[int | None, str | None, str]] = []

    def report(_counts: Intake, found: Sequence[RecordError]) -> None:
        errors.extend(
            (error.place.offset if error.place else None, error.rule, str(error)) for error in found
        )

    counts = import_stream(
        target,
        chunks,
        settings=settings,
        random_bytes=os.urandom,
        workers=workers,
        source="in.records",
        size=size,
        admit_embedded=admit_embedded,
        report=report,
    )
    return counts, contents(target), errors


def pieces(raw: bytes, size: int) -> Iterator[bytes]:
    for start_at in range(0, len(raw), size):
        yield raw[start_at : start_at + size]


def spoiled() -> tuple[bytes, list[bytes], list[int]]:
    """A stream with bad records among the good; the good ones, and where the bad ones start."""
    bad = {
        4: flip(GOOD[4].bytes, len(GOOD[4].bytes) - 1),  # the data
        11: flip(GOOD[11].bytes, 20),  # the hash
        20: forged(seal(plex("forged"))),  # the signature
        21: write_record("P", b"Group: u\nApp: a\nName: ../x\nTAI: 1\n" + blob().bytes)[1],
        30: b"junk between records",
        31: GOOD[31].bytes[:-9],  # cut; the next record stands in its data
        45: write_record("B", b"Data-Length: 007\n\n1234567")[1],
        52: GOOD[52].bytes.replace(b"Data-Length", b"Date-Length"),
    }
    raws = [bad.get(number, record.bytes) for number, record in enumerate(GOOD)]
    starts = [sum(map(len, raws[:number])) for number in sorted(bad)]
    good = [record.bytes for number, record in enumerate(GOOD) if number not in bad]
    return b"".join(raws), good, starts


SPOILED, KEPT, SPOTS = spoiled()


def test_a_good_stream_is_stored_whole() -> None:
    raw = b"".join(record.bytes for record in GOOD)
    counts, found, errors = run([raw])
    assert counts == Intake(60, 0, 0, len(raw))
    assert found == {record.id: record.bytes for record in GOOD}
    assert errors == []


def test_a_bad_record_is_reported_where_it_is_and_stops_nothing() -> None:
    counts, found, errors = run([SPOILED])
    # Cut record 31 took the start of record 32 for data; the reader went on behind its claim.
    assert Counter(KEPT) - Counter(found.values()) <= Counter([GOOD[32].bytes])
    assert set(found.values()) <= set(KEPT)
    assert counts.stored == len(found)
    assert counts.rejected == len(errors) >= len(SPOTS)
    offsets = [offset for offset, _rule, _text in errors if offset is not None]
    assert len(offsets) == len(errors)
    for spot, behind in pairwise([*SPOTS, len(SPOILED)]):
        assert any(spot <= offset < behind for offset in offsets), spot
    for offset, rule, text in errors:
        assert text.startswith(f"in.records: byte {offset}: ")
        assert f"[{rule}]" in text
    rules = [rule for _offset, rule, _text in errors]
    for rule in ("010-digest", "009-signature", "010-path", "010-markline", "010-data-length"):
        assert rule in rules


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("batch", [1, 7, 8000])
def test_processes_and_batches_change_nothing(workers: int, batch: int) -> None:
    expected = run([SPOILED])
    settings = Settings(import_batch_records=batch)
    assert run([SPOILED], workers=workers, settings=settings) == expected
    chunked = run(pieces(SPOILED, 1000), workers=workers, settings=settings, size=len(SPOILED))
    assert chunked == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 54, 55, 56, 64, 333, 4096])
def test_chunks_of_any_size_change_nothing(size: int) -> None:
    expected = run([SPOILED])
    assert run(pieces(SPOILED, size)) == expected
    assert run(pieces(SPOILED, size), size=len(SPOILED)) == expected


@pytest.mark.property
@example(seed=53641, cuts=[], damages=4)  # two frames have their fault behind others that follow
@given(
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, 6000), max_size=8),
    damages=st.integers(0, 4),
)
def test_random_damage_in_random_pieces(seed: int, cuts: list[int], damages: int) -> None:
    noise = random.Random(seed)
    raw = b"".join(record.bytes for record in noise.choices(GOOD, k=8))
    for _damage in range(damages):
        at = noise.randrange(len(raw))
        kind = noise.randrange(4)
        if kind == 0:
            raw = flip(raw, at)
        elif kind == 1:
            raw = raw[:at] + raw[at + noise.randrange(1, 80) :]
        elif kind == 2:
            raw = raw[:at] + noise.choice([MARKER, b"\n", noise.randbytes(9)]) + raw[at:]
        else:
            raw = raw[: max(1, at)]
        if not raw:
            return
    whole = run([raw])
    known = {record.id: record.bytes for record in GOOD}
    inner = {
        part.id: part.bytes
        for record in GOOD
        if not isinstance(record, lace.Blob)
        for part in (record.plex if isinstance(record, lace.Seal) else record,)
    }
    inner |= {
        record.plex.blob.id: record.plex.blob.bytes
        for record in GOOD
        if isinstance(record, lace.Seal)
    }
    inner |= {record.blob.id: record.blob.bytes for record in GOOD if isinstance(record, lace.Plex)}
    assert whole[1].items() <= {**known, **inner}.items()
    assert len(whole[2]) == whole[0].rejected
    bounds = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    assert run(raw[a:b] for a, b in pairwise(bounds)) == whole
    assert run([raw], size=len(raw), settings=Settings(import_batch_records=3)) == whole


# -- counts -----------------------------------------------------------------------------


def test_counts_tell_stored_known_and_rejected() -> None:
    store = MemoryStore()
    a, b, c = (blob(name).bytes for name in "abc")
    bad = flip(b, len(b) - 1)
    assert run([a + b + a], store=store)[0] == Intake(2, 1, 0, len(a + b + a))
    assert run([a + bad + c], store=store)[0] == Intake(1, 1, 1, len(a + bad + c))
    assert run([a, b, c], store=store)[0] == Intake(0, 3, 0, len(a + b + c))


def test_an_import_run_again_stores_nothing() -> None:
    store = MemoryStore()
    first = run([SPOILED], store=store)[0]
    again = run([SPOILED], store=store)[0]
    assert again == Intake(0, first.stored, first.rejected, first.bytes_read)


@pytest.mark.requirement("020-39", "020-41")
@pytest.mark.parametrize("workers", [0, 1])
def test_embedded_records_are_admitted_when_asked(workers: int) -> None:
    outer = [seal(plex(f"x{number}", data=f"d{number}")) for number in range(20)]
    alone = [plex(f"y{number}", data=f"d{number}") for number in range(20)]
    everything: list[lace.Seal | lace.Plex] = [*outer, *alone]
    raw = b"".join(record.bytes for record in everything)
    settings = Settings(import_batch_records=8)
    assert len(run([raw], workers=workers, settings=settings)[1]) == 40
    counts, found, errors = run([raw], workers=workers, settings=settings, admit_embedded=True)
    assert errors == []
    expected = {record.id: record.bytes for record in everything}
    expected |= {record.plex.id: record.plex.bytes for record in outer}
    expected |= {record.plex.blob.id: record.plex.blob.bytes for record in outer}
    expected |= {record.blob.id: record.blob.bytes for record in alone}
    assert found == expected
    assert counts.stored == 40 + 20 + 20
    assert counts.known == 20  # each Blob is in a Seal's Plex and in a Plex of its own


def test_a_header_that_looks_like_a_markline_hides_no_embedded_record() -> None:
    inner = blob("data").id
    lines = [("A", f"🖧: {inner}"), ("B", f"x🖧: {inner}")]
    outer = seal(plex("x", headers=lines))
    signed_twice = seal(plex("y", headers=[*lines, ("C", f"🖧: {outer.plex.id}")]))
    counts, found, errors = run([outer.bytes, signed_twice.bytes], admit_embedded=True)
    assert errors == []
    assert set(found) == {
        *(outer.id, outer.plex.id, inner),
        *(signed_twice.id, signed_twice.plex.id),
    }
    assert (counts.stored, counts.known) == (5, 1)


def test_marker_bytes_inside_data_are_data() -> None:
    inside = blob("inside")
    outer = lace.Blob(b"\n" + inside.bytes + b"\n" + inside.bytes[:30])
    assert run([outer.bytes])[1] == {outer.id: outer.bytes}


class Watched(MemoryStore):
    """Remembers how large the batches were."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, int]] = []

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        self.batches.append((len(records), sum(len(record.bytes) for record in records)))
        return super().admit(records)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_bounded_by_records_and_by_bytes(workers: int) -> None:
    raw = b"".join(blob(f"{number}".ljust(1000)).bytes for number in range(100))
    store = Watched()
    run([raw], store=store, workers=workers, settings=Settings(import_batch_records=10))
    assert store.batches
    assert max(count for count, _size in store.batches) <= 10
    store = Watched()
    run([raw], store=store, workers=workers, settings=Settings(import_batch_bytes=5000))
    assert max(size for _count, size in store.batches) <= 5000 + 1100
    assert sum(count for count, _size in store.batches) == 100


@pytest.mark.parametrize("workers", [0, 1])
def test_one_forged_signature_among_many_is_found(workers: int) -> None:
    records = [seal(plex(f"s{number}", at=number), 1 + number % 5) for number in range(600)]
    raws = [record.bytes for record in records]
    raws[417] = forged(records[417])
    counts, found, errors = run(raws, workers=workers, settings=Settings(import_batch_records=300))
    assert counts == Intake(599, 0, 1, sum(map(len, raws)))
    assert found == {record.id: record.bytes for record in records if record != records[417]}
    [(offset, rule, _text)] = errors
    assert rule == "009-signature"
    start_at = sum(map(len, raws[:417]))
    assert offset is not None
    assert start_at <= offset < start_at + len(raws[417])


# -- files that are not what they should be ---------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[lace.Lace]:
    with lace.open(tmp_path / "lace") as store:
        yield store


@pytest.mark.parametrize("how", ["path", "stream"])
def test_a_file_cut_in_the_middle(tmp_path: Path, opened: lace.Lace, how: str) -> None:
    raws = [record.bytes for record in GOOD[:5]]
    for cut in (1, 10, 55, 60, len(raws[4]) - 1):
        path = tmp_path / "cut"
        path.write_bytes(b"".join(raws[:4]) + raws[4][:-cut])
        errors: list[RecordError] = []
        with path.open("rb") as stream:
            counts = opened.import_file(
                path if how == "path" else stream,
                report=lambda _counts, found, errors=errors: errors.extend(found),  # type: ignore[misc]  # bound now
            )
        assert (counts.stored + counts.known, counts.rejected) == (4, 1)
        [error] = errors
        assert error.rule in ("010-cut", "010-markline")
        assert error.place is not None
        assert error.place.offset == sum(map(len, raws[:4]))
        assert error.place.source == str(path)
    assert len(opened) == 4


@pytest.mark.parametrize("how", ["path", "stream"])
@pytest.mark.parametrize("length", [10**12, 10**18, 2**31, 10**30])
def test_a_data_length_beyond_all_reason(
    tmp_path: Path, opened: lace.Lace, how: str, length: int
) -> None:
    path = tmp_path / "lie"
    lie = MARKER + b"B." + b"0" * 43 + b".H3\nData-Length: %d\n\n" % length
    path.write_bytes(GOOD[0].bytes + lie + b"abc" + GOOD[1].bytes)
    with path.open("rb") as stream:
        counts = opened.import_file(path if how == "path" else stream)
    assert (counts.stored, counts.rejected) == (2, 1)
    assert GOOD[1].id in opened


@pytest.mark.parametrize("how", ["path", "stream"])
def test_a_length_that_the_file_does_not_have(tmp_path: Path, opened: lace.Lace, how: str) -> None:
    path = tmp_path / "lie"
    lie = MARKER + b"B." + b"0" * 43 + b".H3\nData-Length: 30000000\n\n"
    path.write_bytes(lie + GOOD[0].bytes + GOOD[1].bytes)
    with path.open("rb") as stream:
        counts = opened.import_file(path if how == "path" else stream)
    assert (counts.stored, counts.rejected) == (2, 1)


def test_an_empty_file_holds_nothing(tmp_path: Path, opened: lace.Lace) -> None:
    (tmp_path / "empty").touch()
    assert opened.import_file(tmp_path / "empty") == Intake()
    assert opened.import_file(io.BytesIO()) == Intake()
    assert len(opened) == 0


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_file_that_is_not_there_is_wrong_usage(
    tmp_path: Path, opened: lace.Lace, name: str
) -> None:
    with pytest.raises(UsageError) as caught:
        opened.import_file(tmp_path / name)
    assert caught.value.exit_code == 2
    assert str(tmp_path / name) in str(caught.value)


def test_a_file_of_something_else_gives_few_words(tmp_path: Path, opened: lace.Lace) -> None:
    path = tmp_path / "noise"
    path.write_bytes(random.Random(1).randbytes(3 * MIB))
    errors: list[RecordError] = []
    counts = opened.import_file(path, report=lambda _counts, found: errors.extend(found))
    assert counts.stored == 0
    assert counts.rejected == len(errors) == 1
    assert len(str(errors[0])) < 500


def test_data_above_the_limit_is_passed_over(tmp_path: Path) -> None:
    small, large, after = blob("s"), blob("l" * 2000), blob("a")
    raw = small.bytes + large.bytes + seal(plex("x", data="l" * 2000)).bytes + after.bytes
    with lace.open(tmp_path / "lace", settings={"max_data_bytes": 1000}) as store:
        errors: list[RecordError] = []
        counts = store.import_file(
            io.BytesIO(raw), report=lambda _counts, found: errors.extend(found)
        )
        assert (counts.stored, counts.rejected) == (2, 2)
        assert [error.rule for error in errors] == ["010-size-limit"] * 2
        assert all("max_data_bytes=2000" in (error.hint or "") for error in errors)
        assert after.id in store


@pytest.mark.slow
@pytest.mark.parametrize("how", ["path", "stream"])
@pytest.mark.exhaustive
def test_a_blob_of_two_gigabytes_costs_no_memory(tmp_path: Path, how: str) -> None:
    path = tmp_path / "huge"
    length = 2_000_000_000
    before, after = blob("before"), seal(plex("after"))
    head = MARKER + b"B." + b"0" * 43 + b".H3\nData-Length: %d\n\n" % length
    with path.open("wb") as file:
        file.write(before.bytes + head)
        end = file.tell() + length
    os.truncate(path, end)  # a hole: no disk is filled
    with path.open("ab") as file:
        file.write(after.bytes)
    output = finish(start("measure_import", tmp_path / "lace", path, how), 120)
    stored, known, rejected, own, below = map(int, output.split())
    path.unlink()
    assert (stored, known, rejected) == (2, 0, 1)
    assert own < 200
    assert below < 200
    with lace.open(tmp_path / "lace", read_only=True) as store:
        assert before.id in store
        assert after.id in store


@pytest.mark.slow
@pytest.mark.parametrize("how", ["path", "path on one processor"])
@pytest.mark.parametrize(
    ("count", "size"),
    [(300, 1_000_000), pytest.param(10, 30_000_000, marks=pytest.mark.exhaustive)],
)
def test_a_large_file_is_imported_in_little_memory(
    tmp_path: Path, count: int, size: int, how: str
) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        for number in range(count):
            file.write(lace.Blob(number.to_bytes(4) * (size // 4)).bytes)
    output = finish(start("measure_import", tmp_path / "lace", path, how), 120)
    path.unlink()
    stored, known, rejected, own, below = map(int, output.split())
    assert (stored, known, rejected) == (count, 0, 0)
    assert own < 400
    assert below < 400
