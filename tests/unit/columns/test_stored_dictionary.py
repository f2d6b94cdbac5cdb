"""The stored dictionary: texts to ids and back, whatever the texts and their hashes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.base import b64a
from lace.columns.segment import SegmentWriter, create_generation
from lace.columns.segment_journal import Covered
from lace.columns.stored_dictionary import MOST_TEXT_BYTES, Hashes, TextHash
from lace.facts.extract import FactColumns
from lace.record.hash_rows import keys_of_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

KEY = bytes(range(32))
ODD_TEXTS = [
    "",
    "a",
    "é",
    "e\u0301",
    "\U0001f5a7",
    "x" * 1024,
    "\U0001f5a7" * 256,
    " ",
    "a\0",
    "a\0\0",
]


class Constant(TextHash):
    """A hash that is the same for all texts."""

    def of_texts(self, texts: Sequence[bytes]) -> Hashes:
        return np.full(len(texts), 7, np.uint64)

    def of_rows(self, rows: npt.NDArray[np.uint8]) -> Hashes:
        return np.full(len(rows), 7, np.uint64)


class Coarse(TextHash):
    """A hash with two values, in the middle and at the end of what there is."""

    def of_texts(self, texts: Sequence[bytes]) -> Hashes:
        return np.array([(len(text) % 2) * (2**64 - 1) for text in texts], np.uint64)

    def of_rows(self, rows: npt.NDArray[np.uint8]) -> Hashes:
        return self.of_texts([row.tobytes() for row in rows])


def columns(values: Sequence[str], hashes: Sequence[bytes] = ()) -> FactColumns:
    """Facts that hold such texts and hashes; no record has them, and no writer minds."""
    made = FactColumns(list(hashes), ["0"] * len(hashes), *([] for _ in range(10)))
    made.header_value += values
    made.header_name += ["n"] * len(values)
    made.header_index += ["0"] * len(values)
    made.header_row += [0] * len(values)
    return made


def hash_text(number: int) -> bytes:
    return f"P.{b64a.encode(number.to_bytes(32, 'big'))}.H3".encode()


def written(
    folder: Path, batches: Sequence[Sequence[str]], make_hash: Callable[[bytes], TextHash]
) -> SegmentWriter:
    create_generation(folder, KEY)
    writer = SegmentWriter(folder, make_hash=make_hash)
    for number, batch in enumerate(batches):
        covered = Covered(number + 1, 0, number + 1, 0, 0)
        writer.append(columns(batch, [hash_text(number)]), covered, np.empty(0, np.int32))
    return writer


@pytest.mark.parametrize("make_hash", [TextHash, Constant, Coarse])
def test_odd_texts_whatever_the_hash(
    tmp_path: Path, make_hash: Callable[[bytes], TextHash]
) -> None:
    batches = [ODD_TEXTS, ODD_TEXTS[::-1], ["new", *ODD_TEXTS], [hash_text(1).decode(), "0"]]
    writer = written(tmp_path / "g", batches, make_hash)
    dictionary = writer.segments.dictionary
    everything = sorted({text for batch in batches for text in batch})
    ids = dictionary.find(everything)
    assert (ids >= 0).all()
    assert len(set(ids.tolist())) == len(everything)
    assert dictionary.texts(ids) == everything
    assert len(set(dictionary.texts(np.arange(len(dictionary), dtype=np.int32)))) == len(dictionary)
    absent = ["", "b", "a\0\0\0", "x" * 1023, "y" * MOST_TEXT_BYTES, "z" * 100_000, "\ud800"]
    assert dictionary.find(absent)[1:].tolist() == [-1] * 6
    again = SegmentWriter(tmp_path / "g", make_hash=make_hash).segments.dictionary
    assert again.find(everything).tolist() == ids.tolist()


def test_what_is_added_is_seen_once_it_is_published(tmp_path: Path) -> None:
    """Whoever opens the segments before that finds what was there, and can go on with it."""
    folder = tmp_path / "g"
    writer = written(folder, [["a", "b"]], TextHash)
    for number in (1, 2):
        covered = Covered(number + 1, 0, number + 1, 0, 0)
        writer.add(columns([f"c{number}"], [hash_text(number)]), covered, np.empty(0, np.int32))
    assert not writer.is_current()
    other = SegmentWriter(folder)
    assert other.entry.high_water == 1
    assert other.segments.dictionary.find(["a", "c1", "c2"]).tolist()[1:] == [-1, -1]
    writer.publish()
    assert writer.is_current()
    last = SegmentWriter(folder).segments
    assert last.entry.high_water == 3
    assert (last.dictionary.find(["a", "b", "c1", "c2"]) >= 0).all()
    names = {path.name for path in folder.glob("run-*")}
    assert len(names) == len(last.runs), "merged runs are gone"


def test_what_was_never_published_is_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "g"
    lost = written(folder, [["a", "b"]], TextHash)
    lost.add(columns(["lost"], [hash_text(8)]), Covered(2, 0, 2, 0, 0), np.empty(0, np.int32))
    writer = SegmentWriter(folder)
    writer.append(columns(["c"], [hash_text(1)]), Covered(2, 0, 2, 0, 0), np.empty(0, np.int32))
    found = SegmentWriter(folder).segments.dictionary
    assert (found.find(["a", "b", "c"]) >= 0).all()
    assert found.find(["lost"]).tolist() == [-1]


def test_runs_of_an_older_state_are_not_opened_again(tmp_path: Path) -> None:
    folder = tmp_path / "g"
    writer = written(folder, [[f"text {number}" for number in range(2_000)]], TextHash)
    before = writer.segments.runs[0]
    writer.append(columns(["c"], [hash_text(1)]), Covered(2, 0, 2, 0, 0), np.empty(0, np.int32))
    assert writer.segments.runs[0] is before
    assert len(writer.segments.runs) == 2


def test_a_hash_that_is_also_a_value_has_one_id(tmp_path: Path) -> None:
    text = hash_text(0).decode()
    writer = written(tmp_path / "g", [[text, "x"], [text]], TextHash)
    segments = writer.segments
    (found,) = segments.dictionary.find([text]).tolist()
    assert segments.column("Have", 0).tolist()[0] == found
    values = segments.column("Field", 3, int(segments.dictionary.find(["n"])[0])).tolist()
    assert values.count(found) == 2


@pytest.mark.parametrize("make_hash", [TextHash, Constant, Coarse])
def test_hashes_are_found_in_binary_as_they_are_as_texts(
    tmp_path: Path, make_hash: Callable[[bytes], TextHash]
) -> None:
    """Also one that was the value of a header before a record had it, and is kept as a text."""
    early = hash_text(2).decode()
    batches = [["x", early], ["y", hash_text(9).decode()], ["z"], ["w" * 48]]
    dictionary = written(tmp_path / "g", batches, make_hash).segments.dictionary
    texts = [hash_text(number).decode() for number in (3, 9, 0, 7, 2, 1, 8)]
    rows, _ = keys_of_hashes(texts)
    found = dictionary.find_hashes(rows)
    assert found.tolist() == dictionary.find(texts).tolist()
    assert [at for at, number in enumerate(found.tolist()) if number < 0] == [3, 6]
    assert dictionary.find_hashes(rows[:0]).tolist() == []


def test_many_texts_over_many_appends_and_merges(tmp_path: Path) -> None:
    batches = [
        [f"t{n}" for n in range(size, 2 * size)] for size in (1, 2, 4, 4096, 8192, 5, 20_000)
    ]
    writer = written(tmp_path / "g", batches, TextHash)
    dictionary = writer.segments.dictionary
    counts = [run.count for run in writer.entry.runs]
    assert all(later * 2 <= earlier for earlier, later in itertools.pairwise(counts))
    assert sum(counts) == len(dictionary)
    everything = sorted({text for batch in batches for text in batch})
    ids = dictionary.find(everything)
    assert dictionary.texts(ids) == everything
    assert dictionary.find([f"u{n}" for n in range(10_000)]).tolist() == [-1] * 10_000
    runs = {path.name for path in (tmp_path / "g").glob("run-*")}
    assert runs == {f"run-{run.number}" for run in writer.entry.runs}


@pytest.mark.property
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40)))
def test_the_hash_of_a_text_does_not_depend_on_its_company(texts: list[str]) -> None:
    text_hash = TextHash(KEY)
    encoded = [text.encode() for text in texts]
    together = text_hash.of_texts(encoded).tolist()
    assert together == [int(text_hash.of_texts([text])[0]) for text in encoded]
    for text, hash_value in zip(encoded, together, strict=True):
        row = np.frombuffer(text, np.uint8).reshape(1, -1)
        assert int(text_hash.of_rows(row)[0]) == hash_value
    assert len(set(together)) == len(set(texts))
    assert TextHash(KEY[::-1]).of_texts([b"x"]) != text_hash.of_texts([b"x"])
