"""Streams that come slowly, records that are large, and a lace that was closed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import lace
from lace.api import open_lace, read_chunks


def test_a_slow_pipe_is_read_as_it_comes() -> None:
    reader, writer = os.pipe()
    first, second = lace.Blob(b"first"), lace.Blob(b"second")
    seen = threading.Event()

    def write() -> None:
        os.write(writer, first.bytes)
        assert seen.wait(10), "the first piece was not handed on before the second came"
        os.write(writer, second.bytes)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb") as file:
        chunks = read_chunks(file)
        assert next(chunks) == first.bytes
        seen.set()
        assert b"".join(chunks) == second.bytes
    thread.join()


def test_large_records_among_small_ones(tmp_path: Path) -> None:
    small = [lace.Blob(b"%d" % number) for number in range(300)]
    large = [lace.Blob(bytes([number]) * 300_000) for number in range(12)]
    records = [record for pair in zip(small[:12], large, strict=True) for record in pair]
    records += small[12:]
    file = tmp_path / "mixed.records"
    file.write_bytes(b"".join(record.bytes for record in records))
    settings = {"import_batch_records": 8, "import_batch_bytes": "1MiB", "import_workers": 2}
    with open_lace(tmp_path / "lace", settings=settings) as store:
        assert store.import_file(file).stored == len(records)
        with store.snapshot() as snapshot:
            assert [found.id for found in snapshot.records()] == [record.id for record in records]
        assert store.verify().damaged == 0


def test_a_closed_lace_says_so(tmp_path: Path) -> None:
    store = open_lace(tmp_path / "lace")
    store.add(lace.Blob(b"kept"))
    store.close()
    with pytest.raises(lace.StoreError, match="was closed"):
        store.add(lace.Blob(b"late"))
    with pytest.raises(lace.StoreError, match="was closed"):
        len(store)
    with open_lace(tmp_path / "lace") as again:
        assert len(again) == 1


def test_closing_inside_a_snapshot_leaves_nothing_open(tmp_path: Path) -> None:
    store = open_lace(tmp_path / "lace")
    identifier = store.add(lace.Blob(b"kept"))
    with store.snapshot() as snapshot:
        store.close()
        assert snapshot.has(identifier)
    held = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
    assert not [path for path in held if path.startswith(str(tmp_path))]
