"""Two processes over TCP on this machine: records, blobs, many links at once, an unchanged lace.

Each comparison is taken in one run. Processor seconds are those of both sides together, with
their validation processes and with the start of both commands.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

import lace
from benchmarks.corpus import FOLDER, corpus
from benchmarks.exchange_side import SELECT
from benchmarks.measure import Run, children_cpu, process_cpu
from benchmarks.results import Row
from benchmarks.wire_clients import COMMON, COMMON_EXPOSE, RECORDS, run_clients, write_records
from benchmarks.wire_others import git_fetch, rsync_files
from benchmarks.wire_sides import (
    ALL,
    Sides,
    Synced,
    import_file,
    make_lace,
    make_sides,
    policies,
    serving,
    sync,
)
from lace.record.model import blob_payload, write_record

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "benchmark_wire_again",
    "benchmark_wire_blobs",
    "benchmark_wire_links",
    "benchmark_wire_records",
    "benchmark_wire_start",
]

ROUNDS: Final = 3
STARTS: Final = 5
AGAIN: Final = 5
BLOB_BYTES: Final = 16 * 2**20
LEAST_RATE: Final = 15_000
MOST_CPU: Final = 2.5
MOST_MEMORY: Final = 300
LEAST_BLOB_RATE: Final = 0.5
MOST_SLOWER: Final = 10.0
MOST_START: Final = 0.6
MOST_AGAIN_SECONDS: Final = 1.0
MOST_AGAIN_BYTES: Final = 500
_FROM, _TO = FOLDER / "wire-from.lace", FOLDER / "wire-to.lace"


@dataclass(frozen=True)
class _Moved:
    """Records that were imported on one side and then went over the wire to the other."""

    imported: Run
    synced: Synced
    cpu: float


def _moved(path: Path, count: int) -> _Moved:
    sides = make_sides(_FROM, _TO)
    imported = import_file(sides.here, path)
    before = children_cpu()
    with serving(sides.here, sides.options_here) as server:
        synced = sync(sides.there, server.address, sides.options_there)
    cpu = children_cpu() - before
    if synced.received != count:
        raise RuntimeError(f"{synced.received:,} of {count:,} records came")
    _clean()
    return _Moved(imported, synced, cpu)


def benchmark_wire_records(records: int) -> list[Row]:
    """Move signed records to an empty lace: first contact to stored; then what others take."""
    path = corpus(records)
    runs = [_moved(path, records) for _ in range(ROUNDS)]
    rate = median(records / run.synced.link_seconds for run in runs)
    whole = median(records / run.synced.command_seconds for run in runs)
    imported = median(records / run.imported.wall_seconds for run in runs)
    beside = median(run.imported.wall_seconds / run.synced.link_seconds for run in runs)
    ratio = median(run.cpu / run.imported.cpu_seconds for run in runs)
    import_cpu = median(run.imported.cpu_seconds for run in runs) / records * 1e6
    peak = max(run.synced.peak_bytes for run in runs) / 1e6
    return [
        Row(
            f"{records:,} signed records, first contact to stored",
            f"{rate:,.0f} records/s",
            f"≥ {LEAST_RATE:,} records/s",
            rate >= LEAST_RATE,
        ),
        Row("the whole command, with its start", f"{whole:,.0f} records/s"),
        Row("`lace import` of the same", f"{imported:,.0f} records/s, {import_cpu:.0f} µs CPU"),
        Row("its rate / that of an import", f"{beside:.2f} ×"),
        Row(
            "CPU a record, both sides",
            f"{median(run.cpu for run in runs) / records * 1e6:.0f} µs",
        ),
        Row(
            "its CPU / that of an import", f"{ratio:.2f} ×", f"≤ {MOST_CPU:g} ×", ratio <= MOST_CPU
        ),
        Row(
            "peak memory of the receiver",
            f"{peak:.0f} MB",
            f"< {MOST_MEMORY} MB",
            peak < MOST_MEMORY,
        ),
        _row_of_other("`git fetch` of the same, no signatures", git_fetch(records), records),
        _row_of_other("`rsync` of the same as files", rsync_files(records), records),
    ]


def _row_of_other(name: str, run: Run | None, records: int) -> Row:
    if run is None:
        return Row(name, "not installed")
    rate, cpu = records / run.wall_seconds, run.cpu_seconds / records * 1e6
    return Row(name, f"{rate:,.0f} records/s, {cpu:.0f} µs CPU a record")


def _blobs(count: int, size: int) -> Path:
    """Return the file that holds that many Blobs; made when it is not there."""
    path = FOLDER / f"blobs-{count}-{size}.lace"
    if not path.exists():
        scratch = path.with_suffix(".scratch")
        source = random.Random("lace blobs")
        with scratch.open("wb") as file:
            for _ in range(count):
                file.write(write_record("B", blob_payload(source.randbytes(size)))[1])
        scratch.replace(path)
    return path


def benchmark_wire_blobs(count: int, size: int = BLOB_BYTES) -> list[Row]:
    """Move large blobs; both figures are of whole commands, with their start."""
    path = _blobs(count, size)
    runs = [_moved(path, count) for _ in range(ROUNDS)]
    mebibytes = count * size / 2**20
    ratio = median(run.imported.wall_seconds / run.synced.command_seconds for run in runs)
    rate = median(mebibytes / run.synced.command_seconds for run in runs)
    local = median(mebibytes / run.imported.wall_seconds for run in runs)
    cpu = median(run.cpu / run.imported.cpu_seconds for run in runs)
    return [
        Row(f"{count} blobs of {size / 2**20:g} MiB, `lace sync`", f"{rate:.0f} MiB/s"),
        Row("`lace import` of the same", f"{local:.0f} MiB/s"),
        Row(
            "rate over the wire / rate of the import",
            f"{ratio:.2f} ×",
            f"≥ {LEAST_BLOB_RATE:g} ×",
            ratio >= LEAST_BLOB_RATE,
        ),
        Row("CPU of both sides / that of the import", f"{cpu:.2f} ×"),
        Row(
            "peak memory of the receiver",
            f"{max(run.synced.peak_bytes for run in runs) / 1e6:.0f} MB",
        ),
    ]


def benchmark_wire_links(count: int) -> list[Row]:
    """Let many clients begin at once; times are a client's own, from connecting to the end.

    The clients run on the same processors as the server, so that each time has a share of the
    work of all other clients in it.
    """
    place = FOLDER / "wire-links"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    make_lace(place / "server.lace")
    with lace.open(place / "server.lace") as own:
        write_records(own, COMMON)
    options = policies("wire-links", SELECT, COMMON_EXPOSE)
    options += ["--max-links", str(count), "--max-links-of-address", str(count)]
    with serving(place / "server.lace", options) as server:
        before = process_cpu(server.process.pid)
        told = run_clients(server.address, place, count)
        cpu = process_cpu(server.process.pid) - before
    with lace.open(place / "server.lace") as own:
        stored = len(own)
    shutil.rmtree(place)
    is_whole = not told.failures and stored == RECORDS * (count + 1)
    failed = f"; {told.failures[0]}" if told.failures else ""
    times = f"{told.median:.2f} s, {told.slow:.2f} s"
    ratio = told.slow / told.median
    return [
        Row(
            f"{count} clients at once, {RECORDS} records each way: failed",
            f"{len(told.failures)}; {stored:,} records stored{failed}",
            f"0; {RECORDS * (count + 1):,}",
            is_whole,
        ),
        Row("links that were open at the fullest moment", f"{told.most_at_once}"),
        Row("a client's time, median and 99th percentile", times),
        Row(
            "99th percentile / median",
            f"{ratio:.1f} ×",
            f"< {MOST_SLOWER:g} ×",
            ratio < MOST_SLOWER,
        ),
        Row("CPU of the server, a link", f"{cpu / count * 1e3:.0f} ms"),
    ]


def benchmark_wire_start() -> list[Row]:
    """Time `lace serve` from its start to the line that says where it accepts."""
    make_lace(_FROM)
    options = policies("wire", *ALL)
    ready: list[float] = []
    for _ in range(STARTS):
        with serving(_FROM, options) as server:
            ready.append(server.ready_seconds)
    _clean()
    seconds = median(ready)
    return [
        Row(
            "`lace serve` accepts after",
            f"{seconds:.2f} s",
            f"< {MOST_START:g} s",
            seconds < MOST_START,
        )
    ]


def _same_pair(records: int) -> Sides:
    """Return two laces that have met and hold the same; they are kept, as making them is long."""
    place = FOLDER / f"wire-again-{records}"
    if not place.exists():
        scratch = place.with_suffix(".scratch")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        for name in ("here", "there"):
            make_lace(scratch / f"{name}.lace")
            import_file(scratch / f"{name}.lace", corpus(records))
        scratch.replace(place)
    options = policies("wire-again", *ALL)
    return Sides(place / "here.lace", place / "there.lace", options, options)


def benchmark_wire_again(records: int) -> list[Row]:
    """Sync two laces where nothing has changed since they met."""
    sides = _same_pair(records)
    with serving(sides.here, sides.options_here) as server:
        first = sync(sides.there, server.address, sides.options_there)
    with serving(sides.here, sides.options_here) as server:
        fresh = sync(sides.there, server.address, sides.options_there)
        again = [sync(sides.there, server.address, sides.options_there) for _ in range(AGAIN)]
    link = median(run.link_seconds for run in again)
    size = max(run.reconciliation_bytes for run in [fresh, *again])
    if any(run.received for run in [first, fresh, *again]):
        raise RuntimeError("both laces hold the same records")
    name = f"unchanged, {records:,} records"
    return [
        Row(
            f"{name}: bytes of reconciliation, both ways",
            f"{size} B",
            f"< {MOST_AGAIN_BYTES} B",
            size < MOST_AGAIN_BYTES,
        ),
        Row(
            "apart from these: setup, hello, and the rest of the blocks, both ways",
            f"{max(run.control_bytes for run in [fresh, *again]):,} B",
        ),
        Row(
            f"{name}: connected to ended",
            f"{link:.2f} s",
            f"< {MOST_AGAIN_SECONDS:g} s",
            link < MOST_AGAIN_SECONDS,
        ),
        Row(
            "the whole command, with its start",
            f"{median(run.command_seconds for run in again):.2f} s",
        ),
        Row(
            "both for the first link of a server that has just started",
            f"{fresh.link_seconds:.2f} s, {fresh.command_seconds:.2f} s",
        ),
        Row("peak memory of `lace sync`", f"{max(run.peak_bytes for run in again) / 1e6:.0f} MB"),
    ]


def _clean() -> None:
    for folder in (_FROM, _TO):
        shutil.rmtree(folder, ignore_errors=True)
