"""The pipeline's side of its benchmarks: one process, one warm session, and a pool beside it.

As a program it tells its steps: `python -m benchmarks.pipeline_side RECORDS [--pool] [--plain]`.
Processor time is that of all processes, in milliseconds, among the counts. A tenth of the records
is signed. What a plain function advertises must have the root that the pipeline found.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import compute, parquet

from benchmarks.corpus import FOLDER
from benchmarks.measure import Steps, cpu_of_tree, run_steps
from lace.base.limits import DEFAULT_SETTINGS
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.summaries import summaries_of
from lace.policy.schema import Schema
from lace.record.model import blob_payload, plex_payload, seal_payload, write_record
from lace.record.seal import SigningKey
from lace.spark.engine.session import open_session
from lace.spark.pipeline.advertise import PREFIX_LENGTH, AdvertisementUdf, Asked, advertise
from lace.spark.pipeline.ingest import RECORD, Piece, Validation, file_ranges, find_new, ingest
from lace.spark.pipeline.tables import RECORDS
from lace.spark.pipeline.warehouse import WarehouseFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from benchmarks.measure import StepsRun
    from lace.spark.pipeline.advertise import Done

VERSION: Final = 1
PART: Final = 50_000
WARM: Final = 4_000
ROUNDS: Final = 3
"""How often the ingest and the pool are measured, one after the other."""
POOL_ALONE: Final = "--pool-alone"
WORKERS: Final = 2
SIGNED: Final = 10
"""One record in so many is a Seal, the others are Plexes."""
LIMIT: Final = DEFAULT_SETTINGS.max_data_bytes
WAREHOUSE: Final = FOLDER / "ingest.wh"
BATCH: Final = 10_000
"""Records that a plain function takes at once, as Spark hands them over."""
ASKED: Final = Asked(
    name="bench",
    source=f"V.{'0' * 43}.H3",
    schema=Schema(names=frozenset({"App", "Name"})),
)


def _part(first: int, count: int) -> bytes:
    chance = random.Random(f"lace mixed {VERSION} {first}")
    key = SigningKey(random.Random(f"lace mixed key {VERSION}").randbytes(32), os.urandom)
    made: list[bytes] = []
    for number in range(first, first + count):
        _id, blob = write_record("B", blob_payload(chance.randbytes(chance.randrange(100, 250))))
        headers = (("Seq", str(number % 1000)), ("Tag", f"tag-{number % 7}"))
        tai = f"{1_700_000_000 + number:010d}:{number % 1000:09d}"
        name = f"links/{number % 10}/{number}"
        plex_id, plex = write_record("P", plex_payload("u", "ding", name, tai, headers, blob))
        if number % SIGNED == 0:
            signature = key.sign(plex_id.digest, chance.randbytes(32))
            plex = write_record("S", seal_payload(key.verifier, signature, plex))[1]
        made.append(plex)
    return b"".join(made)


def mixed(records: int) -> Path:
    """Return the file that holds that many records; made when it is not there."""
    path = FOLDER / f"mixed-{VERSION}-{records}.records"
    if path.exists():
        return path.absolute()
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"making a corpus of {records:,} records …", file=sys.stderr)
    firsts = range(0, records, PART)
    scratch = path.with_suffix(".scratch")
    with ProcessPoolExecutor(WORKERS) as pool, scratch.open("wb") as file:
        for part in pool.map(_part, firsts, [min(PART, records - first) for first in firsts]):
            file.write(part)
    return scratch.replace(path).absolute()


def _validate(pieces: tuple[Piece, ...], target: Path) -> int:
    """Validate ranges of a file and write the valid records, as a task of an ingest does."""
    writer: parquet.ParquetWriter | None = None
    rows = 0
    for batch in Validation((pieces,), LIMIT)(iter([pa.record_batch([[0]], names=["id"])])):
        table = pa.Table.from_batches([batch])
        valid = table.filter(compute.equal(table["kind"], RECORD)).drop_columns(["kind"])
        if writer is None:
            writer = parquet.ParquetWriter(
                target, valid.schema, compression="zstd", write_page_checksum=True
            )
        writer.write_table(valid)
        rows += valid.num_rows
    if writer is not None:
        writer.close()
    return rows


def _pool(path: Path) -> int:
    """Validate a file in plain processes; returns how many records were valid."""
    folder = FOLDER / "pool"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    size = path.stat().st_size
    pieces = [
        Piece(path=str(path), source=0, size=size, range=each) for each in file_ranges(path, LIMIT)
    ]
    shares = [tuple(pieces[at::WORKERS]) for at in range(WORKERS)]
    targets = [folder / f"{at}.parquet" for at in range(WORKERS)]
    with ProcessPoolExecutor(WORKERS) as pool:
        return sum(pool.map(_validate, shares, targets))


def _ingest(session: SparkSession, path: Path) -> int:
    """Ingest a file into a new warehouse; returns how many records were stored."""
    shutil.rmtree(WAREHOUSE, ignore_errors=True)
    warehouse = WarehouseFolder.create(WAREHOUSE)
    with warehouse.writing("a benchmark") as job:
        return ingest(session, job, find_new(warehouse, [path]), max_data_bytes=LIMIT).stored


def _advertise(session: SparkSession) -> Done:
    """Advertise all records of the warehouse."""
    with WarehouseFolder.open(WAREHOUSE).writing("a benchmark") as job:
        return advertise(session, job, ASKED)


def _plain(target: Path) -> bytes:
    """Advertise the same in one process without Spark, and write the same; returns the root."""
    warehouse = WarehouseFolder.open(WAREHOUSE)
    claiming = AdvertisementUdf(ASKED.source, ASKED.schema)
    writer: parquet.ParquetWriter | None = None
    records: list[str] = []
    digests: list[bytes] = []
    for path in warehouse.files(RECORDS):
        batches = parquet.ParquetFile(path).iter_batches(BATCH, columns=list(claiming.columns))
        for batch in claiming(batches):
            if writer is None:
                writer = parquet.ParquetWriter(target, batch.schema, compression="zstd")
            writer.write_batch(batch)
            records += batch.column("record").to_pylist()
            digests += batch.column("digest").to_pylist()
    if writer is not None:
        writer.close()
    made = AdvertisementSet.of(records, digests)
    summaries_of(made, PREFIX_LENGTH)
    return made.root("")


@contextmanager
def _measured(steps: Steps, name: str) -> Iterator[None]:
    before = cpu_of_tree()
    with steps.step(name):
        yield
    steps.count(f"{name} cpu ms", round((cpu_of_tree() - before) * 1e3))


def main(records: int, *, with_pool: bool, with_plain: bool) -> None:
    """Measure ingest and advertise in a session that has done both, and the same without Spark."""
    steps = Steps()
    path = mixed(records)
    with open_session(f"local[{WORKERS}]") as session:
        _ingest(session, mixed(WARM))
        _advertise(session)
        for _ in range(ROUNDS if with_pool else 1):  # in turn: a machine has its good minutes
            if with_pool:
                steps.take(_pool_alone(records))
            with _measured(steps, "ingest"):
                steps.count("ingest records", _ingest(session, path))
        with _measured(steps, "advertise"):
            done = _advertise(session)
        steps.count("advertise records", done.records)
    if with_plain:
        with _measured(steps, "plain"):
            root = _plain(FOLDER / "plain.parquet")
        steps.count("plain records", done.records if root == done.root else 0)
    steps.tell()


def _pool_alone(records: int) -> StepsRun:
    """Have a process of its own measure the pool: one with Java in it had better not fork."""
    found = run_steps(["-m", "benchmarks.pipeline_side", str(records), POOL_ALONE])
    if found is None:
        raise RuntimeError("the pool did not end")
    return found


def _measure_pool(records: int) -> None:
    steps = Steps()
    with _measured(steps, "pool"):
        steps.count("pool records", _pool(mixed(records)))
    steps.tell()


if __name__ == "__main__" and POOL_ALONE in sys.argv:
    _measure_pool(int(sys.argv[1]))
elif __name__ == "__main__":
    main(int(sys.argv[1]), with_pool="--pool" in sys.argv, with_plain="--plain" in sys.argv)
