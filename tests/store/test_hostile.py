"""Hostile and unlucky imports: what must stay bounded, what must not be run, what must arrive."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lace
from lace.api import open_lace
from lace.record.reader import RawRecord, read_records
from lace.record.validate import ValidRecord, validate_many
from tests.store.samples import blob

VECTORS = Path(__file__).parent.parent / "vectors" / "records"

MORE_THAN_A_RECORD = (
    "bom-before-the-record",
    "trailer-hash-form",
    "trailing-byte-after-the-record",
)
PEAK = """
import sys
from lace.cli.main import run
from lace.cli.session import Session
code = run(["--lace", sys.argv[1], "import", "-q", sys.argv[2]], Session({}))
from tests.store.actors import most_memory
print(code, most_memory() // 1024)
"""


def test_nothing_in_the_current_folder_is_run(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("open('was-run', 'w')\n")
    (tmp_path / "types.py").write_text("open('was-run', 'w')\n")
    (tmp_path / "all").write_bytes(b"".join(blob(str(n)).bytes for n in range(20)))
    script = (
        "from lace.api import open_lace\n"
        "settings = {'import_workers': 1, 'import_batch_records': 2}\n"
        "with open_lace('lace', settings=settings) as store:\n"
        "    print(store.import_file('all').stored)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout.split() == [b"20"]
    assert not (tmp_path / "was-run").exists()


def test_an_error_keeps_no_batch_alive() -> None:
    bad = bytearray(blob("x").bytes)
    bad[-1] ^= 1
    frames = [RawRecord(0, bytes(bad), -1, 0, bytes(bad).index(b"\n\n") + 2)] * 50
    gc.collect()
    gc.disable()
    try:
        errors = validate_many(frames, os.urandom)
        assert all(isinstance(error, lace.RecordError) for error in errors)
        assert all(error.__traceback__ is None for error in errors if isinstance(error, Exception))
        del errors
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_flood_of_bad_records_takes_little_memory(tmp_path: Path) -> None:
    bad = bytearray(blob("").bytes)
    bad[10] = ord("0") if bad[10] != ord("0") else ord("1")
    file = tmp_path / "flood"
    file.write_bytes(bytes(bad) * 300_000)
    code, peak = _import_in_process(tmp_path, file)
    assert code == 1
    assert peak < 400


@pytest.mark.slow
@pytest.mark.exhaustive
def test_records_of_many_headers_take_little_memory(tmp_path: Path) -> None:
    headers = [(f"H{number:03d}", "x") for number in range(512)]
    file = tmp_path / "wide"
    with file.open("wb") as output:
        for number in range(9000):
            record = lace.Plex(group="u", app="a", name=str(number), data=b"", headers=headers)
            output.write(record.bytes)
    code, peak = _import_in_process(tmp_path, file)
    assert code == 0
    assert peak < 400


def _import_in_process(folder: Path, file: Path) -> tuple[int, int]:
    open_lace(folder / "lace").close()
    command = [sys.executable, "-c", PEAK, str(folder / "lace"), str(file)]
    done = subprocess.run(command, capture_output=True, check=True, cwd=VECTORS.parents[2])
    code, peak = done.stdout.split()[-2:]
    return int(code), int(peak)


def test_every_bad_record_between_good_ones(tmp_path: Path) -> None:
    good = [path.read_bytes() for path in sorted((VECTORS / "accept").glob("*.record"))]
    rejected = sorted((VECTORS / "reject").glob("*.record"))
    bad = [path.read_bytes() for path in rejected]
    rounds = -(-len(bad) // len(good))
    stream = (
        b"".join(part for pair in zip(good * rounds, bad, strict=False) for part in pair) + good[0]
    )
    file = tmp_path / "mixed"
    file.write_bytes(stream)
    with open_lace(tmp_path / "lace") as store:
        counts = store.import_file(file)
        wanted = {lace.parse_record(raw).id for raw in good}
        stored = {found.id for found in _records(store)}
        assert wanted <= stored
        # Three vectors are a good record with something before or behind it.
        whole = {path.stem: raw for path, raw in zip(rejected, bad, strict=True)}
        for identifier in stored - wanted:
            assert any(_bytes(store, identifier) in whole[stem] for stem in MORE_THAN_A_RECORD)
        assert counts.rejected == sum(1 for raw in bad if raw)  # one of them is empty


def _records(store: lace.Lace) -> list[ValidRecord]:
    with store.snapshot() as snapshot:
        return list(snapshot.records())


def _bytes(store: lace.Lace, identifier: str) -> bytes:
    found = store.get(identifier)
    assert found is not None
    return found.bytes


@pytest.mark.parametrize("letter", ["plex", "seal"])
def test_a_plex_behind_one_that_was_cut_arrives(letter: str) -> None:
    key = lace.SigningKey.generate()
    cut: lace.Plex | lace.Seal = lace.Plex(
        group="u", app="a", name="cut", data=b"gone", headers=[("Tag", "x")]
    )
    if letter == "seal":
        cut = lace.Plex(group="u", app="a", name="cut", data=b"gone").seal(key)
    good = lace.Plex(group="u", app="a", name="good", data=b"here")
    signature_end = cut.bytes.find(b"\n", cut.bytes.find(b"Signature: "))
    lost = []
    for end in range(1, len(cut.bytes)):
        found = [
            raw.data
            for raw in read_records([cut.bytes[:end] + good.bytes], recover=True)
            if isinstance(raw, RawRecord)
        ]
        if good.bytes not in found and end != signature_end + 1:
            lost.append(end)
    assert lost == []


def test_a_plex_that_embeds_a_plex_hides_it() -> None:
    (raw,) = [
        path.read_bytes()
        for path in (VECTORS / "reject").glob("*.record")
        if path.stem == "plex-embeds-a-plex"
    ]
    whole = list(read_records([raw], recover=True))
    assert not [found for found in whole if isinstance(found, RawRecord)]
    pieces = list(read_records([raw[i : i + 7] for i in range(0, len(raw), 7)], recover=True))
    assert not [found for found in pieces if isinstance(found, RawRecord)]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_blob_above_two_gibibytes_is_read_past(tmp_path: Path) -> None:
    inner, good = blob("inside"), blob("behind")
    length = 2**31 + 100
    file = tmp_path / "huge"
    head = lace.Blob(b"").bytes.replace(b"Data-Length: 0", b"Data-Length: %d" % length)
    with file.open("wb") as output:
        output.write(head)
        output.write(inner.bytes)
        output.truncate(len(head) + length)
        output.seek(len(head) + length)
        output.write(good.bytes)
    with open_lace(tmp_path / "lace") as store:
        counts = store.import_file(file)
        assert (counts.stored, counts.rejected) == (1, 1)
        assert good.id in store
