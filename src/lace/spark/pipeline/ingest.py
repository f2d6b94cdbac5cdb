"""The stage `ingest`: files of records to the tables of records, faults and sources.

Only files that are new by path, size and digest are read. Records are kept once, whatever file
they come in and however often. A group of files is one commit: when a job dies, what was committed
stays, the rest is as if it had not begun, and the same command goes on.
"""

from __future__ import annotations

import glob
import json
import mmap
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from lace.base.limits import MAX_DATA_LENGTH
from lace.errors import EngineError, LimitExceeded, UsageError
from lace.record.reader import FrameError, Framer, RawRecord, RecordReader, hides_record, is_intact
from lace.record.validate import ValidRecord
from lace.spark.engine.relations import map_in_arrow
from lace.spark.engine.session import shuffle_partitions
from lace.spark.pipeline.tables import (
    QUARANTINE,
    RECORDS,
    SOURCES,
    arrow_schema,
    batches_of,
    columns_of,
    read_files,
    read_rows,
    read_table,
    record_row,
    row_batch,
    struct_of,
    write_rows,
    write_table,
)
from lace.spark.pipeline.warehouse import (
    file_digest,
    not_written,
    translate_os_errors,
    translate_spark_errors,
)
from lace.store.file_errors import open_writer
from lace.store.interface import Order
from lace.store.validation import (
    SIGNATURE_BATCH,
    SIGNATURE_BATCH_BYTES,
    make_batches,
    validate_batches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lace.errors import RecordError
    from lace.record.reader import Fault
    from lace.spark.pipeline.warehouse import DataFile, Job, WarehouseFolder
    from lace.store.sqlite.snapshot import SqliteSnapshot
    from lace.store.validation import ValidationResults


# -- Byte ranges of a file of records that can be read apart, and together give the same outcomes.
#
# The frames are hopped over one after another, without a look at the data. Where a frame is lost,
# a recovering reader goes on until it has found an intact record; from there the hops continue, and
# what lies between is a range of its own. A search for marklines would be wrong: data holds them
# too.

RANGE_BYTES: Final = 32 * 1024 * 1024
"""A range ends behind the record that makes it larger than this."""
_SEARCH_PIECE: Final = 256 * 1024
_READ_PIECE: Final = 1024 * 1024
_MOST_REPAIRS: Final = 1000
"""Lost frames in one file that are searched around here; the rest of it is then one range."""


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a file, from a record's start on; `plain` ones hold nothing but whole frames."""

    start: int
    end: int
    plain: bool


def file_ranges(path: Path, max_data_bytes: int) -> list[Range]:
    """Return the ranges of a file, in their order; together they are all of it."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return []
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as view:
            return list(find_ranges(view, max_data_bytes))


def find_ranges(
    view: mmap.mmap | bytes, max_data_bytes: int, range_bytes: int = RANGE_BYTES
) -> Iterator[Range]:
    """Yield the ranges of bytes that hold records."""
    framer = Framer()
    size = len(view)
    begin = last = at = 0  # of the range; of the record before; of the record to be framed
    repairs = 0
    while at < size:
        end = _frame_end(framer, view, at, max_data_bytes)
        if end is not None:
            if end - begin > range_bytes and at > begin:
                yield Range(begin, at, plain=True)
                begin = at
            last, at = at, end
            continue
        # What follows a broken record may begin inside it, so the reader starts before that.
        start = last if last >= begin else at
        if start > begin:
            yield Range(begin, start, plain=True)
        repairs += 1
        found = _next_intact(view, start, at, max_data_bytes) if repairs <= _MOST_REPAIRS else size
        yield Range(start, found, plain=False)
        begin = last = at = found
    if at > begin:
        yield Range(begin, at, plain=True)


def _frame_end(framer: Framer, view: mmap.mmap | bytes, at: int, max_data_bytes: int) -> int | None:
    """Return where the record there ends; None when a reader might see it otherwise."""
    framer.restart()
    try:
        if not framer.frame(view, at):  # type: ignore[arg-type]  # a map is as good as bytes
            return None
    except FrameError:
        return None
    end = at + framer.end
    length = framer.end - framer.data_at
    if end > len(view) or length > MAX_DATA_LENGTH:
        return None
    if framer.blob_at > 0 and length <= max_data_bytes:
        head = view[at : at + framer.blob_at]
        record = RawRecord(at, head, framer.plex_at, framer.blob_at, framer.data_at)
        if hides_record(record):
            return None
    return end


def _next_intact(view: mmap.mmap | bytes, start: int, lost: int, max_data_bytes: int) -> int:
    """Return the end of the first intact record that a recovering reader finds; else of all."""
    reader = RecordReader(max_data_bytes=max_data_bytes, recover=True, size=len(view), start=start)
    for piece in range(start, len(view), _SEARCH_PIECE):
        for outcome in reader.feed(view[piece : piece + _SEARCH_PIECE]):
            is_later = outcome.offset > start or start == lost
            if (
                is_later
                and isinstance(outcome, RawRecord)
                and not hides_record(outcome)
                and is_intact(outcome)
            ):
                return outcome.offset + len(outcome.data)
    return len(view)


def read_range(
    path: Path, part: Range, size: int, max_data_bytes: int
) -> Iterator[RawRecord | Fault]:
    """Yield the records and faults of a range, as a reader of the whole file would."""
    reader = RecordReader(max_data_bytes=max_data_bytes, recover=True, size=size, start=part.start)
    with path.open("rb") as file:
        file.seek(part.start)
        place = part.start
        while place < size:
            piece = file.read(min(_READ_PIECE, size - place))
            if not piece:
                raise OSError(f"{path} became shorter while it was read")
            place += len(piece)
            for outcome in reader.feed(piece):
                if outcome.offset >= part.end:
                    return
                yield outcome
                if not part.plain or not isinstance(outcome, RawRecord):
                    continue
                if outcome.offset + len(outcome.data) >= part.end:
                    return
        for outcome in reader.finish():
            if outcome.offset < part.end:
                yield outcome


# -- Which files an ingest reads: those named, those in folders, those that patterns match.

MAX_SOURCES: Final = 1_000_000
"""Files that one ingest reads."""
_PATTERN: Final = frozenset("*?[")
_COMPRESSED: Final = {
    b"\x1f\x8b": ("gzip", "gunzip -k"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"BZh": ("bzip2", "bunzip2 -k"),
    b"\xfd7zXZ\x00": ("xz", "unxz -k"),
    b"PK\x03\x04": ("zip", "unzip"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it was when it was looked at; the three together say whether it is new."""

    path: str
    size: int
    digest: str


def find_files(names: Sequence[str]) -> list[Path]:
    """Return the files that names mean, absolute, each once, in a fixed order.

    A folder means all files below it but those whose name begins with a dot or an underscore.
    """
    found: dict[Path, None] = {}
    for name in names:
        before = len(found)
        matched = False
        for path in _matching(name):
            matched = True
            found[Path(os.path.abspath(path))] = None  # noqa: PTH100 - links stay as they are
            if len(found) > MAX_SOURCES:
                raise LimitExceeded(
                    f"more than {MAX_SOURCES} files", limit="MAX_SOURCES", allowed=MAX_SOURCES
                )
        if not matched and len(found) == before:
            raise UsageError(f"{name} has no file", hint="name files of records, or their folder")
    for path in found:
        _check_readable(path)
    return sorted(found)


def _matching(name: str) -> Iterator[Path]:
    path = Path(name)
    if path.is_dir():
        yield from _below(path)
    elif path.exists() or not _PATTERN.intersection(name):
        yield path
    else:
        for each in glob.iglob(name, recursive=True):  # noqa: PTH207 - an absolute pattern too
            found = Path(each)
            if found.is_dir():
                yield from _below(found)
            else:
                yield found


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(each for each in folders if not each.startswith((".", "_")))
        for name in files:
            path = Path(place) / name
            if not name.startswith((".", "_")) and path.is_file():
                yield path


def _refuse(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error


def _check_readable(path: Path) -> None:
    try:
        str(path).encode("utf-8")
        if not path.is_file():
            reason = "it is no file" if path.exists() else "there is no such file"
            raise UsageError(f"{path} cannot be read: {reason}", hint="nothing was ingested")
        with path.open("rb") as file:
            start = file.read(8)
    except UnicodeEncodeError:
        raise UsageError(f"{path!r} has a name that is not UTF-8", hint="rename it") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="nothing was ingested"
        ) from error
    for magic, (kind, command) in _COMPRESSED.items():
        if start.startswith(magic):
            raise UsageError(
                f"{path} is compressed ({kind}), and records are read as they are",
                hint=f"decompress it first: {command} {path.name}",
            )


def describe_source(path: Path) -> Source:
    """Return a file's path, size and digest."""
    try:
        return Source(str(path), path.stat().st_size, file_digest(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


# -- What an executor does of an ingest: ranges of files in, rows of records and of faults out.
#
# Everything here is importable by name, so that Spark sends no code. The rows are made by the same
# functions as those of `lace import`. A fault is a row of the kind `fault`, whose `head` is its
# rule
# and reason as JSON.

RECORD: Final = "record"
FAULT: Final = "fault"
STAGED_COLUMNS: Final = (("kind", "string"), *columns_of(RECORDS))
WRITTEN_COLUMNS: Final = (("kind", "string"), ("file", "string"), ("rows", "bigint"))
_NAME_BYTES: Final = 16
_REPEATED: Final = ("type", "group_path", "app", "signed_by")
"""Columns in which many rows have the same value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A range of a source to validate; `size` is that of the whole file."""

    path: str
    source: int
    size: int
    range: Range


@dataclass(frozen=True, slots=True)
class Validation:
    """The function of a task: which pieces each task validates."""

    tasks: tuple[tuple[Piece, ...], ...]
    max_data_bytes: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches for the tasks whose numbers come."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in self.tasks[number]:
                    yield from _validated(piece, self.max_data_bytes)


@dataclass(frozen=True, slots=True)
class WritingUdf:
    """The function of a task that writes the rows itself, and returns the files that it made.

    Rows need not pass through the Java process then, which takes as long as validating them.
    Each attempt of a task has files of its own; only those count of which Spark hears.
    """

    validation: Validation
    target: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield an Arrow batch that names the files of this attempt."""
        with ExitStack() as stack:
            files: dict[str, _File] = {}
            for batch in self.validation(batches):
                for kind, rows in _by_kind(batch):
                    if kind not in files:
                        files[kind] = stack.enter_context(_File(Path(self.target), kind, rows))
                    files[kind].write(rows)
        made = [(kind, file.name, file.rows) for kind, file in files.items()]
        yield row_batch(WRITTEN_COLUMNS, made)


class _File:
    """A file of rows of one kind, which is being written."""

    def __init__(self, folder: Path, kind: str, rows: Any) -> None:  # noqa: ANN401 - Arrow
        from pyarrow import parquet

        self.name = f"{kind}-{os.urandom(_NAME_BYTES).hex()}.parquet"
        self.rows = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = parquet.ParquetWriter(
            folder / self.name,
            rows.schema,
            compression="zstd",
            use_dictionary=list(_REPEATED),
            write_statistics=False,  # hashes are in no order: nobody can pass over a page
            write_page_checksum=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._writer.close()

    def write(self, rows: Any) -> None:  # noqa: ANN401 - Arrow has no types
        """Add rows."""
        self._writer.write_batch(rows)
        self.rows += rows.num_rows


def _by_kind(batch: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - Arrow has no types
    """Yield the rows of each kind that a batch has, without the column that says it."""
    from pyarrow import compute

    kinds = batch.column("kind")
    rows = batch.drop_columns(["kind"])
    for kind in kinds.unique().to_pylist():
        is_kind = compute.equal(kinds, kind)
        yield kind, rows if compute.all(is_kind).as_py() else rows.filter(is_kind)


def _validated(piece: Piece, max_data_bytes: int) -> Iterator[Any]:
    outcomes = read_range(Path(piece.path), piece.range, piece.size, max_data_bytes)
    batches = make_batches(outcomes, max_records=SIGNATURE_BATCH, max_bytes=SIGNATURE_BATCH_BYTES)
    for verdicts in validate_batches(batches, os.urandom, 0):
        yield _rows(verdicts, piece.source)


def _rows(verdicts: ValidationResults, source: int) -> Any:  # noqa: ANN401 - Arrow has no types
    rows: list[tuple[object, ...]] = [
        (RECORD, *record_row(outcome), source, raw.offset)
        for raw, outcome in zip(verdicts.batch.records, verdicts.outcomes, strict=True)
        if isinstance(outcome, ValidRecord)
    ]
    rows += [_fault_row(error, source) for error in verdicts.errors()]
    return row_batch(STAGED_COLUMNS, rows)


def _fault_row(error: RecordError, source: int) -> tuple[object, ...]:
    offset = error.place.offset if error.place else None
    fault = json.dumps({"rule": error.rule or "", "reason": error.message}).encode()
    nothing = (None,) * (len(STAGED_COLUMNS) - 7)
    return (FAULT, None, None, None, fault, *nothing, source, offset or 0)


MOST_DATA_BYTES: Final = 256 * 1024 * 1024
"""Data of one record that fits into a row, whatever the setting says."""
GROUP_BYTES: Final = 4 * 1024 * 1024 * 1024
"""How much is validated before it is committed."""
_TASK_BYTES: Final = 128 * 1024 * 1024


@dataclass(slots=True)
class Ingested:
    """Counts of an ingest."""

    files: int = 0
    skipped: int = 0
    stored: int = 0
    known: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Files to ingest, each with how it was when it was looked at; and how many are not new."""

    files: tuple[tuple[Path, Source], ...]
    skipped: int


def find_new(
    warehouse: WarehouseFolder, paths: Sequence[Path], labels: Mapping[str, str] | None = None
) -> NewFiles:
    """Return which files were not ingested yet as they are now."""
    known = known_sources(warehouse)
    new: list[tuple[Path, Source]] = []
    for path in paths:
        found = describe_source(path)
        source = Source((labels or {}).get(found.path, found.path), found.size, found.digest)
        if source not in known:
            new.append((path, source))
    return NewFiles(tuple(new), len(paths) - len(new))


def find_lace_records(
    job: Job,
    folder: Path,
    snapshot: SqliteSnapshot,
    report: Callable[[int, int], None] | None = None,
) -> NewFiles:
    """Write the records of a lace to a file of the job; returns it unless it was ingested so."""
    target = job.scratch("lace") / "lace.records"
    total = snapshot.totals().records
    with translate_os_errors(target):
        target.parent.mkdir(parents=True)
    with open_writer(target, lambda error: not_written(target, error)) as file:
        for number, record in enumerate(snapshot.records(order=Order.ID), 1):
            file.write(record.bytes)
            if report is not None:
                report(number, total)
    path = target.resolve()
    return find_new(job.warehouse, [path], {str(path): f"lace:{folder.resolve()}"})


def ingest(
    session: SparkSession,
    job: Job,
    new: NewFiles,
    *,
    max_data_bytes: int,
    group_bytes: int = GROUP_BYTES,
) -> Ingested:
    """Ingest files, group by group; returns the counts."""
    counts = Ingested(skipped=new.skipped)
    group: list[tuple[Path, Source]] = []
    size = 0
    limit = min(max_data_bytes, MOST_DATA_BYTES)
    for path, source in new.files:
        group.append((path, source))
        size += source.size
        if size >= group_bytes:
            _ingest_group(session, job, group, limit, counts)
            group, size = [], 0
    if group:
        _ingest_group(session, job, group, limit, counts)
    return counts


def known_sources(warehouse: WarehouseFolder) -> frozenset[Source]:
    """Return the files that were ingested, as they were then."""
    rows = read_rows(warehouse, SOURCES, ("path", "size", "digest"))
    return frozenset(Source(**row) for row in rows)


def _ingest_group(
    session: SparkSession,
    job: Job,
    group: list[tuple[Path, Source]],
    max_data_bytes: int,
    counts: Ingested,
) -> None:
    warehouse = job.warehouse
    first = warehouse.manifest.rows(SOURCES)
    pieces = [
        Piece(path=str(path), source=number, size=source.size, range=part)
        for number, (path, source) in enumerate(group, first)
        for part in file_ranges(path, max_data_bytes)
    ]
    added: dict[str, tuple[DataFile, ...]] = {}
    with translate_spark_errors("ingest"):
        if pieces:
            size = sum(source.size for _path, source in group)
            staged = _write_validated(
                session, pieces, size, max_data_bytes, job.scratch("validated")
            )
            total, kept = _keep_new(session, job, staged[RECORD], size)
            added[RECORDS] = kept
            added[QUARANTINE] = _write_faults(job, staged[FAULT], group, first)
            stored = sum(file.rows for file in kept)
            counts.stored += stored
            counts.known += total - stored
            counts.rejected += sum(file.rows for file in added[QUARANTINE])
    sources = enumerate((source for _path, source in group), first)
    rows = [(number, each.path, each.size, each.digest) for number, each in sources]
    added[SOURCES] = write_table(job, SOURCES, rows)
    job.commit(warehouse.manifest.with_added(added), "ingest")
    counts.files += len(group)


def _write_validated(
    session: SparkSession, pieces: list[Piece], size: int, max_data_bytes: int, target: Path
) -> dict[str, list[Path]]:
    """Validate pieces, and write their rows below a folder; returns the files of each kind."""
    parallel = int(session.sparkContext.defaultParallelism)
    number = min(len(pieces), max(parallel, -(-size // _TASK_BYTES)))
    tasks = tuple(tuple(each) for each in _shares(pieces, number))
    written = map_in_arrow(
        session.range(0, len(tasks), 1, len(tasks)),
        WritingUdf(Validation(tasks, max_data_bytes), str(target)),
        struct_of(WRITTEN_COLUMNS),
    ).collect()
    found: dict[str, list[Path]] = {RECORD: [], FAULT: []}
    for row in sorted(written, key=lambda row: str(row["file"])):
        path = target / row["file"]
        if not path.is_file() or _rows_of([path]) != row["rows"]:
            raise EngineError(
                f"a worker wrote {row['rows']} rows, and they are not in {target}",
                hint="keep the warehouse on a disk that all workers share with this machine",
            )
        found[row["kind"]].append(path)
    return found


def _shares(pieces: list[Piece], number: int) -> Iterator[list[Piece]]:
    """Yield shares of about equal size, each of neighbours."""
    total = sum(piece.range.end - piece.range.start for piece in pieces)
    share: list[Piece] = []
    size = before = 0
    for piece in pieces:
        share.append(piece)
        size += piece.range.end - piece.range.start
        if size - before >= total / number:
            yield share
            share, before = [], size
    if share:
        yield share


def _keep_new(
    session: SparkSession, job: Job, paths: list[Path], size: int
) -> tuple[int, tuple[DataFile, ...]]:
    """Return how many valid records came, and the files of those that are new, each once."""
    from pyspark.sql import functions

    if not paths:
        return 0, ()
    shuffle_partitions(session, size // 8)
    came = read_files(session, paths, columns_of(RECORDS))
    keys = came.select("hash", "source", "source_offset")
    first = keys.groupBy("hash").agg(
        functions.min(functions.struct("source", "source_offset")).alias("first")
    )
    if job.warehouse.manifest.rows(RECORDS):
        known = read_table(session, job.warehouse, RECORDS, ["hash"])
        first = first.join(known, "hash", "left_anti")
    first = first.select("hash", "first.source", "first.source_offset")
    total = _rows_of(paths)
    target = job.folder(RECORDS)
    # The plain case, in which all are new, needs no copy.
    if first.count() == total:
        with translate_os_errors(target):
            target.mkdir(parents=True)
            for path in paths:  # and not what an attempt that does not count has left beside them
                path.rename(target / path.name)
    else:
        chosen = came.join(first, ["hash", "source", "source_offset"], "left_semi")
        write_rows(chosen.select(*[name for name, _kind in columns_of(RECORDS)]), target)
    return total, job.adopt(target)


def _rows_of(paths: Sequence[Path]) -> int:
    from pyarrow import parquet

    return sum(parquet.read_metadata(path).num_rows for path in paths)


def _write_faults(
    job: Job, paths: list[Path], group: list[tuple[Path, Source]], first: int
) -> tuple[DataFile, ...]:
    """Make the table of faults; they are few or their file is not worth more than one process."""
    import pyarrow as pa
    from pyarrow import parquet

    if not paths:
        return ()
    target = job.folder(QUARANTINE)
    names = {number: source.path for number, (_path, source) in enumerate(group, first)}
    schema = arrow_schema(columns_of(QUARANTINE))
    with translate_os_errors(target):
        target.mkdir(parents=True)
        place = target / "part-0.parquet"
        with parquet.ParquetWriter(place, schema, write_page_checksum=True) as writer:
            for path in paths:
                for batch in batches_of(path, ("source", "source_offset", "head")):
                    rows = [_fault(row, names) for row in batch.to_pylist()]
                    writer.write_table(pa.Table.from_pylist(rows, schema))
    return job.adopt(target)


def _fault(row: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, object]:
    return {
        "source": row["source"],
        "path": names[row["source"]],
        "source_offset": row["source_offset"],
        **json.loads(row["head"]),
    }
