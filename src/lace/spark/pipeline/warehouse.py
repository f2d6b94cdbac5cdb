"""A warehouse folder: one manifest, the Parquet files that it lists, and one writer at a time.

A job writes its files into a folder of its own below `data`, where nothing reads them, and then
replaces the manifest in one step: that is the only commit. What a job that died left behind is
removed by the next one. Files of the few states before stay, so that readers of those can end.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.base.digest import Hasher, digest
from lace.base.limits import MAX_MANIFEST_BYTES
from lace.base.tai import Tai, TaiError
from lace.base.text import shorten
from lace.errors import EngineError, LaceError, Place, RecordError, StoreError, UsageError
from lace.record.ids import IdError
from lace.store.file_errors import remove_all, translating
from lace.store.interface import NoStoreError, StoreUnavailableError
from lace.store.lock import WriteLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


# -- The manifest of a warehouse: which files it consists of, and nothing else counts.
#
# A manifest is one JSON file with the digest of its own body. It lists every file with size, digest
# and rows, and the generation that brought it; and it lists the last runs of stages. A file's path
# is made of the writer's own names, never of anything that a record holds, and a manifest with any
# other path is refused.

FORMAT: Final = "lace-warehouse/1"
LOST_HINT: Final = (
    "take the newest whole one of the folder manifests as manifest.json, or ingest again into "
    "another folder"
)
"""What to do without a manifest."""
_FORMAT: Final = re.compile(r"lace-warehouse/[0-9]{1,4}")
_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9_=.-]{0,120}"
_PATH: Final = re.compile(rf"data/{_PART}(?:/{_PART}){{1,5}}\.parquet")
_TABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}(?:/[A-Za-z0-9_~-]{1,128}){0,3}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_STAGE: Final = re.compile(r"[a-z][a-z-]{0,31}")
_MOST: Final = 2**62
MOST_RUNS: Final = 20
"""How many of the last runs a manifest lists."""


class WarehouseDamagedError(StoreError):
    """A file of the warehouse is missing, cut or changed."""

    exit_code = 6


class WarehouseOutdatedError(StoreError):
    """A state of the warehouse is read that is so old that its files were removed."""


class WarehouseVersionError(StoreError):
    """The warehouse was written by a newer version of Lace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file: its path below the warehouse, size, BLAKE3 digest and number of rows."""

    path: str
    size: int
    digest: str
    rows: int
    generation: int


@dataclass(frozen=True, slots=True)
class FieldSlot:
    """Where the facts of one Field Name are, from the generation `since` on."""

    slot: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One run of a stage: what it was, when its commit was (TAI), how long it took.

    `rows` are those of the files that it brought, of all tables.
    """

    stage: str
    generation: int
    finished: str
    milliseconds: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One state of a warehouse.

    `facts_generation` says up to which generation the records have their facts, `texts` how
    many texts the dictionary has, `slots` which Field Names have files of their own. `runs` are
    the last ones, the newest at the end.
    """

    generation: int = 0
    facts_generation: int = 0
    texts: int = 0
    slots: Mapping[str, FieldSlot] = field(default_factory=lambda: MappingProxyType({}))
    tables: Mapping[str, tuple[DataFile, ...]] = field(default_factory=lambda: MappingProxyType({}))
    runs: tuple[StageRun, ...] = ()

    def files(self, table: str) -> tuple[DataFile, ...]:
        """Return the files of a table; a table that nothing was written to has none."""
        return self.tables.get(table, ())

    def all_files(self) -> tuple[DataFile, ...]:
        """Return every file, table by table."""
        return tuple(file for files in self.tables.values() for file in files)

    def rows(self, table: str) -> int:
        """Return how many rows a table has."""
        return sum(file.rows for file in self.files(table))

    def with_added(self, added: Mapping[str, Iterable[DataFile]]) -> Manifest:
        """Return this state with more files in some tables."""
        tables = dict(self.tables)
        for table, files in added.items():
            if new := tuple(files):
                tables[table] = (*tables.get(table, ()), *new)
        return replace(self, tables=MappingProxyType(tables))

    def with_replaced(self, table: str, files: Iterable[DataFile]) -> Manifest:
        """Return this state with other files in one table."""
        tables = {name: kept for name, kept in self.tables.items() if name != table}
        if new := tuple(files):
            tables[table] = new
        return replace(self, tables=MappingProxyType(tables))

    def with_run(self, run: StageRun) -> Manifest:
        """Return this state with one more run; the oldest one goes where there are many."""
        return replace(self, runs=(*self.runs, run)[-MOST_RUNS:])


FIRST_MANIFEST: Final = Manifest()


def format_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's file."""
    body = {
        "format": FORMAT,
        "generation": manifest.generation,
        "facts_generation": manifest.facts_generation,
        "texts": manifest.texts,
        "slots": {name: [each.slot, each.since] for name, each in manifest.slots.items()},
        "tables": {
            table: [asdict(file) for file in files]
            for table, files in sorted(manifest.tables.items())
        },
        "runs": [asdict(run) for run in manifest.runs],
    }
    text = json.dumps({"digest": _body_digest(body), **body}, indent=1).encode() + b"\n"
    if len(text) > MAX_MANIFEST_BYTES:
        raise StoreError(
            f"the manifest would have {len(text)} bytes, above the limit of {MAX_MANIFEST_BYTES}",
            hint="begin another warehouse",
        )
    return text


def _body_digest(body: Mapping[str, object]) -> str:
    return digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hex()


def parse_manifest(text: bytes, source: str) -> Manifest:
    """Return the state that a manifest's file describes."""
    try:
        if len(text) > MAX_MANIFEST_BYTES:
            raise ValueError(f"more than {MAX_MANIFEST_BYTES} bytes")
        found = json.loads(text)
        given = found.pop("digest")
        format_name = str(found["format"])
        if format_name != FORMAT and _FORMAT.fullmatch(format_name):
            raise WarehouseVersionError(
                f"the warehouse has the format {format_name}, and this Lace reads {FORMAT}",
                place=Place(source),
                hint="use the Lace that wrote it, or a newer one",
            )
        if format_name != FORMAT:
            raise ValueError(f"{format_name!r} is no format of a warehouse")
        if given != _body_digest(found):
            raise ValueError("its digest is another")
        return _manifest(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WarehouseDamagedError(
            f"the manifest is damaged: {error}",
            place=Place(source),
            hint=LOST_HINT,
        ) from error


def _manifest(found: Mapping[str, Any]) -> Manifest:
    tables = {
        _matching(_TABLE, name): tuple(_data_file(each) for each in files)
        for name, files in found["tables"].items()
    }
    slots = {
        str(name): FieldSlot(_number(slot), _number(since))
        for name, (slot, since) in found["slots"].items()
    }
    return Manifest(
        generation=_number(found["generation"]),
        facts_generation=_number(found["facts_generation"]),
        texts=_number(found["texts"]),
        slots=MappingProxyType(slots),
        tables=MappingProxyType(tables),
        runs=_runs(found.get("runs", [])),
    )


def _runs(found: object) -> tuple[StageRun, ...]:
    """Return the runs that a manifest lists; one that was written before has none."""
    if not isinstance(found, list) or len(found) > MOST_RUNS:
        raise ValueError(f"runs are a list of at most {MOST_RUNS}")
    return tuple(
        StageRun(
            stage=_matching(_STAGE, each["stage"]),
            generation=_number(each["generation"]),
            finished=_instant(each["finished"]),
            milliseconds=_number(each["milliseconds"]),
            rows=_number(each["rows"]),
        )
        for each in found
    )


def _data_file(found: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=_matching(_PATH, found["path"]),
        size=_number(found["size"]),
        digest=_matching(_DIGEST, found["digest"]),
        rows=_number(found["rows"]),
        generation=_number(found["generation"]),
    )


def _matching(pattern: re.Pattern[str], text: object) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(f"{text!r} has no place in a manifest")
    return text


def _instant(text: object) -> str:
    try:
        return str(Tai(str(text)))
    except TaiError as error:
        raise ValueError(f"{text!r} is no instant") from error


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is no count")
    return value


MANIFEST_NAME: Final = "manifest.json"
_HISTORY: Final = "manifests"
_KEPT_STATES: Final = 4
"""How many states before the current one keep their files, for those who still read them."""
_OURS: Final = re.compile(
    r"manifest\.json(\.[0-9a-f]+\.part)?|manifests|data|write\.lock|write\.turnstile"
)
_GENERATION: Final = re.compile(r"g[0-9]{8,}-[0-9a-f]{12}")
_STATE: Final = re.compile(r"[0-9]{12}\.json")
_MAGIC: Final = b"PAR1"
_LEAST_BYTES: Final = 12
_PIECE: Final = 1024 * 1024


class WarehouseFolder:
    """A warehouse at one state; `manifest` stays as it is while others write."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder.absolute()  # Java has another idea of where it is
        self.manifest = manifest
        self.not_removed: list[OSError] = []
        """What the last job could not remove: nothing that the warehouse consists of."""

    @classmethod
    def open(cls, folder: Path) -> WarehouseFolder:
        """Open a warehouse that is there."""
        return cls(folder, _read_manifest(folder))

    @classmethod
    def prepare(cls, folder: Path) -> WarehouseFolder:
        """Open a warehouse, or one that `writing` makes where there is nothing yet."""
        if (folder / MANIFEST_NAME).exists():
            return cls.open(folder)
        _refuse_foreign(folder)
        return cls(folder, FIRST_MANIFEST)

    @classmethod
    def create(cls, folder: Path) -> WarehouseFolder:
        """Open a warehouse, or make one where there is nothing yet."""
        if not (folder / MANIFEST_NAME).exists():
            _refuse_foreign(folder)
            with translate_os_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / _HISTORY).mkdir(exist_ok=True)
                (folder / "data").mkdir(exist_ok=True)
            with WriteLock(folder, "lace pipeline", what="warehouse").held(1):
                if not (folder / MANIFEST_NAME).exists():
                    _write_manifest(folder, FIRST_MANIFEST)
        return cls.open(folder)

    def files(self, table: str) -> list[Path]:
        """Return the paths of a table's files, as `paths` does."""
        return self.paths(self.manifest.files(table))

    def paths(self, files: Iterable[DataFile]) -> list[Path]:
        """Return the paths of files, of which size and both ends are right."""
        found = list(files)
        for file in found:
            check_file(self.folder, file)
        return [self.folder / file.path for file in found]

    @contextmanager
    def writing(self, purpose: str, wait_seconds: float = 0) -> Iterator[Job]:
        """Hold the write lock inside the `with` block, from the newest state on."""
        if self.manifest is FIRST_MANIFEST:
            type(self).create(self.folder)
        with WriteLock(self.folder, purpose, what="warehouse").held(wait_seconds):
            self.manifest = _read_manifest(self.folder)
            self.not_removed = _sweep(self.folder, self.manifest)
            job = Job(self)
            try:
                yield job
            finally:
                self.not_removed += job.clean()


class Job:
    """One writer's work on a warehouse; nothing of it counts before `commit`."""

    def __init__(self, warehouse: WarehouseFolder) -> None:
        self.warehouse = warehouse
        self._begin()

    def _begin(self) -> None:
        self._begun = time.monotonic()
        self.generation = self.warehouse.manifest.generation + 1
        self._name = f"g{self.generation:08d}-{secrets.token_hex(6)}"
        self._folder = self.warehouse.folder / "data" / self._name

    def folder(self, name: str) -> Path:
        """Return a place for the files of one table of this generation; it is not made."""
        return self._folder / name

    def scratch(self, name: str) -> Path:
        """Return a place for files that no manifest will ever list."""
        return self._folder / f"scratch-{name}"

    def adopt(self, folder: Path) -> tuple[DataFile, ...]:
        """Return the Parquet files that were written below a folder, safe on the disk."""
        from pyarrow import parquet

        made: list[DataFile] = []
        with translate_os_errors(folder):
            for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
                if not path.is_file():
                    continue
                if path.suffix != ".parquet" or path.name.startswith((".", "_")):
                    path.unlink()  # what Spark leaves beside its files
                    continue
                rows = parquet.read_metadata(path).num_rows
                if rows == 0:
                    path.unlink()
                    continue
                _sync(path)
                made.append(
                    DataFile(
                        path=path.relative_to(self.warehouse.folder).as_posix(),
                        size=path.stat().st_size,
                        digest=file_digest(path),
                        rows=rows,
                        generation=self.generation,
                    )
                )
            for place in {(self.warehouse.folder / file.path).parent for file in made}:
                _sync(place)
        return tuple(made)

    def commit(self, manifest: Manifest, stage: str | None = None) -> None:
        """Make a state the current one, in one step; the job may go on with another."""
        new = replace(manifest, generation=self.generation)
        if stage is not None:
            new = new.with_run(self._run(new, stage))
        self._remove_scratch()
        _write_manifest(self.warehouse.folder, new)
        self.warehouse.manifest = new
        self._begin()

    def _run(self, new: Manifest, stage: str) -> StageRun:
        brought = (file for file in new.all_files() if file.generation == self.generation)
        return StageRun(
            stage=stage,
            generation=self.generation,
            finished=Tai.from_unix_nanoseconds(time.time_ns()),
            milliseconds=round((time.monotonic() - self._begun) * 1000),
            rows=sum(file.rows for file in brought),
        )

    def _remove_scratch(self) -> None:
        for path in self._folder.glob("scratch-*"):
            shutil.rmtree(path, ignore_errors=True)

    def clean(self) -> list[OSError]:
        """Remove what was not committed; returns what could not be removed, and why."""
        return remove_all([self._folder])


def file_digest(path: Path) -> str:
    """Return the BLAKE3 digest of a file's bytes, as hexadecimal text."""
    hasher = Hasher()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            hasher.update(piece)
    return hasher.digest().hex()


def check_file(folder: Path, file: DataFile, *, whole: bool = False) -> None:
    """Look at a file of the manifest: its size and its ends, or with `whole` all its bytes."""
    path = folder / file.path
    try:
        size = path.stat().st_size
        if size != file.size:
            raise _damaged(path, f"it has {size} bytes instead of {file.size}")
        with path.open("rb") as stream:
            first = stream.read(len(_MAGIC))
            stream.seek(max(0, size - len(_MAGIC)))
            last = stream.read(len(_MAGIC))
        if size < _LEAST_BYTES or first != _MAGIC or last != _MAGIC:
            raise _damaged(path, "it is no whole Parquet file")
        if whole and file_digest(path) != file.digest:
            raise _damaged(path, "its bytes have changed")
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error


def _damaged(path: Path, reason: str) -> WarehouseDamagedError:
    return WarehouseDamagedError(
        f"a file of the warehouse is damaged: {reason}",
        place=Place(str(path)),
        hint="put it back from a copy, or make the warehouse again from its sources",
    )


@contextmanager
def translate_os_errors(place: Path) -> Iterator[None]:
    """Translate `OSError` to `StoreUnavailableError`."""
    with translating(lambda error: not_written(place, error)):
        yield


def not_written(place: Path, error: OSError) -> StoreUnavailableError:
    """Return the error of a file that the operating system refuses to write."""
    return StoreUnavailableError(
        f"{error.filename or place} cannot be written: {error.strerror or error}",
        hint="nothing was committed; make room or set permissions, and run it again",
    )


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="name a folder for the warehouse")
    _refuse_lost(folder)
    foreign = [entry.name for entry in os.scandir(folder) if not _OURS.fullmatch(entry.name)]
    data = folder / "data"
    if foreign or (data.is_dir() and any(data.iterdir())):
        what = f"it holds {sorted(foreign)[0]!r}" if foreign else "its data is of something else"
        raise UsageError(
            f"{folder} is no warehouse: {what}", hint="name an empty folder, or one to be made"
        )


def _refuse_lost(folder: Path) -> None:
    """Refuse a folder that was a warehouse and has no manifest any more.

    The state that a new warehouse begins with does not count: its maker may have been
    killed before it had a manifest, and nothing is lost.
    """
    begun = f"{FIRST_MANIFEST.generation:012d}.json"
    states = (folder / _HISTORY).glob("*.json")
    is_kept = any(_STATE.fullmatch(path.name) and path.name != begun for path in states)
    if is_kept or any(_GENERATION.fullmatch(path.name) for path in (folder / "data").glob("g*")):
        raise WarehouseDamagedError(
            "the manifest of the warehouse is missing",
            place=Place(str(folder / MANIFEST_NAME)),
            hint=LOST_HINT,
        )


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            text = file.read(MAX_MANIFEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        _refuse_lost(folder)
        raise NoStoreError(
            f"there is no warehouse at {folder}",
            hint="make one with `lace pipeline ingest WAREHOUSE SOURCE…`",
        ) from None
    except OSError as error:
        raise StoreUnavailableError(f"{path} cannot be read: {error.strerror}") from error
    return parse_manifest(text, str(path))


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a manifest in place of the one before, which the history keeps for a while."""
    text = format_manifest(manifest)
    scratch = folder / f"{MANIFEST_NAME}.{secrets.token_hex(6)}.part"
    with translate_os_errors(scratch):
        try:
            with scratch.open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            (folder / _HISTORY).mkdir(exist_ok=True)
            kept = folder / _HISTORY / f"{manifest.generation:012d}.json"
            kept.unlink(missing_ok=True)
            os.link(scratch, kept)
            scratch.replace(folder / MANIFEST_NAME)
            _sync(folder)
        except BaseException:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(folder: Path, manifest: Manifest) -> list[OSError]:
    """Remove what no kept state lists: leftovers of jobs that died, and files long replaced.

    Returns:
        what could not be removed, and why.
    """
    listed = {file.path.split("/")[1] for file in manifest.all_files()}
    states = sorted(
        path for path in (folder / _HISTORY).glob("*.json") if _STATE.fullmatch(path.name)
    )
    old = [path for path in states if int(path.stem) <= manifest.generation]
    for path in old[-_KEPT_STATES - 1 :]:
        with suppress(StoreError, OSError):  # a damaged old state has no readers
            before = parse_manifest(path.read_bytes(), str(path))
            listed |= {file.path.split("/")[1] for file in before.all_files()}
    unlisted = [path for path in (folder / "data").glob("*") if path.name not in listed]
    replaced = {*states} - {*old[-_KEPT_STATES - 1 :]}
    return remove_all([*replaced, *folder.glob(f"{MANIFEST_NAME}.*.part"), *unlisted])


# -- What a failure inside Spark means: damage, a disk without room, or something else.

_FULL: Final = re.compile("No space left on device|File too large|Disk quota exceeded")
_DAMAGE: Final = re.compile(
    "could not verify page integrity|CRC checksum|FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|"
    "is not a Parquet file|expected magic number|Could not read footer|Failed to decompress|"
    "can not read class|ZstdException|PARQUET_CONVERSION_FAILURE|Corrupt"
)
_FILE: Final = re.compile(r"(?:file:)?(/[^\s'\"]+?\.parquet)")
_PYTHON: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_MOST_REASON: Final = 300


class SparkJobError(EngineError):
    """A job of Spark failed."""


@contextmanager
def translate_spark_errors(what: str) -> Iterator[None]:
    """Turn what Spark raises into errors of Lace."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except LaceError:
        raise
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise _meaning(what, error) from error


@contextmanager
def translate_damage(path: Path) -> Iterator[None]:
    """Translate an error of a file of the warehouse that cannot be read to damage."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, RecordError, IdError, OSError) as error:
        raise WarehouseDamagedError(
            f"a file of the warehouse is damaged: {str(error).splitlines()[0]}",
            place=Place(str(path)),
            hint="`lace pipeline verify WAREHOUSE` names every damaged file",
        ) from error


def _meaning(what: str, error: Exception) -> LaceError:
    text = _whole_text(error)
    if _FULL.search(text):
        return StoreUnavailableError(
            f"{what}: a disk is full", hint="nothing was committed; make room and run it again"
        )
    file = _FILE.search(text)
    if _DAMAGE.search(text):
        named = f" {file[1]}" if file else ""
        return WarehouseDamagedError(
            f"{what}: a file of the warehouse is damaged:{named or ' see `lace pipeline verify`'}",
            hint="`lace pipeline verify WAREHOUSE` names every damaged file",
        )
    return SparkJobError(
        f"{what}: the Spark job failed: {_reason(text)}",
        hint="nothing was committed; run it again, with --debug to see all that Spark says",
    )


def _whole_text(error: BaseException) -> str:
    """Return the texts of an error and its causes, on both sides."""
    parts: list[str] = []
    found: BaseException | None = error
    while found is not None and len(parts) < 8:
        parts.append(str(found))
        trace = getattr(found, "_stackTrace", None) or getattr(found, "java_exception", None)
        if trace is not None:
            parts.append(str(trace))
        found = found.__cause__ or found.__context__
    return "\n".join(parts)


def _reason(text: str) -> str:
    named = _PYTHON.findall(text)
    line = ": ".join(named[-1]) if named else (text.strip().splitlines() or ["?"])[0]
    return shorten(line, _MOST_REASON)
