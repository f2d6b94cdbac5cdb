"""A warehouse folder: one manifest, the Parquet files that it lists, and one writer at a time.

A job writes its files into a folder of its own below `data`, where nothing reads them, and then
replaces the manifest in one step: that is the only commit. What a job that died left behind is
removed by the next one. Files of the few states before stay, so that readers of those can end.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lace.base.digest import Hasher
from lace.base.limits import MAX_MANIFEST_BYTES
from lace.base.tai import Tai
from lace.errors import Place, StoreError, UsageError
from lace.pipeline.manifest import (
    FIRST_MANIFEST,
    LOST_HINT,
    DataFile,
    Manifest,
    Run,
    WarehouseDamagedError,
    format_manifest,
    parse_manifest,
)
from lace.store.file_errors import remove_all, translating
from lace.store.interface import NoStoreError, StoreUnavailableError
from lace.store.lock import WriteLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "MANIFEST_NAME",
    "Job",
    "Warehouse",
    "check_file",
    "file_digest",
    "not_written",
    "told",
]

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


class Warehouse:
    """A warehouse at one state; `manifest` stays as it is while others write.

    Args:
        folder: where it is.
        manifest: the state to read.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder.absolute()  # Java has another idea of where it is
        self.manifest = manifest
        self.not_removed: list[OSError] = []
        """What the last job could not remove: nothing that the warehouse consists of."""

    @classmethod
    def open(cls, folder: Path) -> Warehouse:
        """Open a warehouse that is there.

        Raises:
            NoStoreError: it does not exist.
            WarehouseDamagedError: its manifest is damaged, or gone.
        """
        return cls(folder, _read_manifest(folder))

    @classmethod
    def create(cls, folder: Path) -> Warehouse:
        """Open a warehouse, or make one where there is nothing yet.

        Raises:
            UsageError: the folder holds something else.
            WarehouseDamagedError: there was one, and its manifest is gone.
            StoreUnavailableError: it cannot be made.
        """
        if not (folder / MANIFEST_NAME).exists():
            _refuse_foreign(folder)
            with told(folder):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / _HISTORY).mkdir(exist_ok=True)
                (folder / "data").mkdir(exist_ok=True)
            with WriteLock(folder, "lace pipeline", what="warehouse").held(1):
                if not (folder / MANIFEST_NAME).exists():
                    _write_manifest(folder, FIRST_MANIFEST)
        return cls.open(folder)

    def files(self, table: str) -> list[Path]:
        """Return the files of a table, each looked at: its size and both ends are right.

        Raises:
            WarehouseDamagedError: one is missing, cut or no Parquet file.
        """
        found = self.manifest.files(table)
        for file in found:
            check_file(self.folder, file)
        return [self.folder / file.path for file in found]

    @contextmanager
    def writing(self, purpose: str, wait_seconds: float = 0) -> Iterator[Job]:
        """Be the one who writes, inside the `with` block, from the newest state on.

        Raises:
            StoreBusyError: another process writes.
        """
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

    def __init__(self, warehouse: Warehouse) -> None:
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
        """Return the Parquet files that were written below a folder, safe on the disk.

        Raises:
            WarehouseDamagedError: one of them is not whole.
            StoreUnavailableError: the disk is full, or fails.
        """
        from pyarrow import parquet

        made: list[DataFile] = []
        with told(folder):
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
        """Make a state the current one, in one step; the job may go on with another.

        Args:
            manifest: the state.
            stage: what made it; it becomes the last run that the manifest lists.

        Raises:
            StoreUnavailableError: it cannot be written; the state before stays.
        """
        new = replace(manifest, generation=self.generation)
        if stage is not None:
            new = new.with_run(self._run(new, stage))
        self._remove_scratch()
        _write_manifest(self.warehouse.folder, new)
        self.warehouse.manifest = new
        self._begin()

    def _run(self, new: Manifest, stage: str) -> Run:
        brought = (file for file in new.all_files() if file.generation == self.generation)
        return Run(
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
    """Look at a file of the manifest: its size and its ends, or with `whole` all its bytes.

    Raises:
        WarehouseDamagedError: it is not the file that was committed.
    """
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
def told(place: Path) -> Iterator[None]:
    """Translate `OSError` to `StoreUnavailableError`.

    Raises:
        StoreUnavailableError: whatever the operating system refused.
    """
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
    with told(scratch):
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
