"""`lace import` against the sum of its parts, its growth with size, and its memory.

The parts, over the same records and in the same run: reading ranges, three BLAKE3
digests a Seal, batch Schnorr, SQLite inserts with the store's own schema, settings and
batch size, and the facts of the records appended to segments.
"""

from __future__ import annotations

import os
import shutil
from statistics import median
from typing import TYPE_CHECKING

from blake3 import blake3

from benchmarks.corpus import FOLDER, corpus
from benchmarks.measure import Run, cpu_of, run_command
from benchmarks.results import Row
from lace.api import read_chunks
from lace.base.limits import DEFAULT_SETTINGS
from lace.columns.segment import SegmentWriter, create_generation
from lace.columns.segment_journal import KEY_BYTES
from lace.facts.extract import fact_columns
from lace.record.reader import RawRecord, read_records
from lace.record.seal import verify_many
from lace.record.validate import ValidRecord, validate_many
from lace.store.sqlite.connection import connect, migrate
from lace.store.sqlite.fact_state import extended
from lace.store.sqlite.insert import enter_places, key_of_record
from lace.store.sqlite.segment_append import SLICE_RECORDS
from lace.store.validation import SIGNATURE_BATCH

if TYPE_CHECKING:
    from pathlib import Path

    import apsw

__all__ = ["benchmark_growth", "benchmark_import"]

BATCH = SIGNATURE_BATCH
TRANSACTION = DEFAULT_SETTINGS.import_batch_records
ROUNDS = 5
_INSERT = (
    "INSERT INTO record (store_record_id, id, group_path, app, name, tai, signed_by, bytes) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
)


def _import(records: int, *, memory: bool = False) -> Run:
    path, lace = corpus(records), FOLDER / "import.lace"
    shutil.rmtree(lace, ignore_errors=True)
    run_command(["-m", "lace", "--lace", str(lace), "init", "--quiet"])
    arguments = ["-m", "lace", "--lace", str(lace), "import", "--quiet", str(path)]
    return run_command(arguments, memory=memory)


def _read(path: Path) -> list[RawRecord]:
    with path.open("rb") as file:
        return [raw for raw in read_records(read_chunks(file)) if isinstance(raw, RawRecord)]


def _hash(records: list[RawRecord]) -> None:
    for _offset, data, plex_at, blob_at, _data_at in records:
        view = memoryview(data)
        blake3(view[55:]).digest()
        blake3(view[plex_at + 55 :]).digest()
        blake3(view[blob_at + 55 :]).digest()


def _verify(items: list[tuple[bytes, bytes, bytes]]) -> None:
    for start in range(0, len(items), BATCH):
        if not all(verify_many(items[start : start + BATCH], os.urandom)):
            raise RuntimeError("a signature of the corpus does not verify")


def _row(number: int, record: ValidRecord) -> tuple[apsw.SQLiteValue, ...]:
    """Return what `_INSERT` takes for a record."""
    coordinate = record.group, record.app, record.name, record.tai
    return number, key_of_record(record), *coordinate, record.signed_by, record.bytes


def _insert(rows: list[tuple[apsw.SQLiteValue, ...]], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "parts.sqlite3"
    settings = DEFAULT_SETTINGS
    connection = connect(
        path, read_only=False, create=True, cache_bytes=settings.store_cache_bytes, wait_seconds=1
    )
    migrate(connection, path)
    for start in range(0, len(rows), TRANSACTION):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, rows[start : start + TRANSACTION])
        enter_places(connection, start + 1)
        connection.execute("COMMIT")
    connection.close()


def _append(records: list[ValidRecord], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    create_generation(folder, os.urandom(KEY_BYTES))
    writer = SegmentWriter(folder)
    for start in range(0, len(records), SLICE_RECORDS):
        part = records[start : start + SLICE_RECORDS]
        covered = extended(writer.entry, part, start + len(part))
        writer.append(fact_columns(part), covered, writer.segments.removed())


def _measure_parts(records: int) -> dict[str, float]:
    path = corpus(records)
    frames = _read(path)
    valid: list[ValidRecord] = []
    for start in range(0, len(frames), BATCH):
        outcomes = validate_many(frames[start : start + BATCH], os.urandom)
        valid += [record for record in outcomes if isinstance(record, ValidRecord)]
    items = [_signature_item(record) for record in valid]
    rows = [_row(number, record) for number, record in enumerate(valid, 1)]
    return {
        "reading ranges": cpu_of(lambda: _read(path)),
        "three BLAKE3": cpu_of(lambda: _hash(frames)),
        "batch Schnorr": cpu_of(lambda: _verify(items)),
        "SQLite insert": cpu_of(lambda: _insert(rows, FOLDER / "parts")),
        "facts and segments": cpu_of(lambda: _append(valid, FOLDER / "segments")),
    }


def _signature_item(record: ValidRecord) -> tuple[bytes, bytes, bytes]:
    from lace.record.ids import RecordId, Signature, Verifier

    plex, signer, signature = record.plex_hash, record.signed_by, record.signature
    if plex is None or signer is None or signature is None:
        raise RuntimeError("the corpus holds Seals only")
    return Verifier(signer).public_key, RecordId(plex).digest, Signature(signature).raw


def benchmark_import(records: int) -> list[Row]:
    """Compare an import with the sum of its parts; the figures are medians."""
    corpus(records)
    runs: list[Run] = []
    parts: list[dict[str, float]] = []
    for _ in range(ROUNDS):  # by turns, so that other load on the machine meets both
        runs.append(_import(records))
        parts.append(_measure_parts(records))
    micro = 1e6 / records
    # A round's parts are compared with its own import: a slow moment of the machine meets both.
    ratio = median(
        run.cpu_seconds / sum(part.values()) for run, part in zip(runs, parts, strict=True)
    )
    costs = {name: median(part[name] for part in parts) * micro for name in parts[0]}
    whole = median(run.cpu_seconds for run in runs) * micro
    rate = median(records / run.wall_seconds for run in runs)
    rows = [Row(f"part: {name}", f"{cost:.1f} µs a record") for name, cost in costs.items()]
    return [
        *rows,
        Row("sum of the parts", f"{sum(costs.values()):.1f} µs a record"),
        Row(f"`lace import` of {records:,} Seals, CPU", f"{whole:.1f} µs a record"),
        Row("import / sum of the parts", f"{ratio:.2f}", "≤ 1.5", ratio <= 1.5),
        Row("import rate, wall clock", f"{rate:,.0f} records/s", "> 20,000", rate > 20_000),
    ]


def benchmark_growth(small: int, large: int) -> list[Row]:
    """Compare the cost of a record in a large import with that in a small one."""
    corpus(large)
    low = median(_import(small).cpu_seconds for _ in range(ROUNDS)) / small * 1e6
    run = _import(large, memory=True)
    high = run.cpu_seconds / large * 1e6
    peak = run.peak_bytes / 1e6
    return [
        Row(f"CPU a record at {small:,}", f"{low:.1f} µs"),
        Row(f"CPU a record at {large:,}", f"{high:.1f} µs"),
        Row("growth", f"{high / low:.2f}", "≤ 1.3", high <= 1.3 * low),
        Row(f"peak memory of importing {large:,}", f"{peak:.0f} MB", "< 400 MB", peak < 400),
        Row(f"import rate at {large:,}", f"{large / run.wall_seconds:,.0f} records/s"),
    ]
