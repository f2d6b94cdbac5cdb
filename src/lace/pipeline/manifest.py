"""The manifest of a warehouse: which files it consists of, and nothing else counts.

A manifest is one JSON file with the digest of its own body. It lists every file with size, digest
and rows, and the generation that brought it; and it lists the last runs of stages. A file's path
is made of the writer's own names, never of anything that a record holds, and a manifest with any
other path is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.base.digest import digest
from lace.base.limits import MAX_MANIFEST_BYTES
from lace.base.tai import Tai, TaiError
from lace.errors import Place, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "FIRST_MANIFEST",
    "FORMAT",
    "LOST_HINT",
    "MOST_RUNS",
    "DataFile",
    "FieldSlot",
    "Manifest",
    "Run",
    "WarehouseDamagedError",
    "WarehouseOutdatedError",
    "WarehouseVersionError",
    "format_manifest",
    "parse_manifest",
]

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
class Run:
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
    runs: tuple[Run, ...] = ()

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

    def with_run(self, run: Run) -> Manifest:
        """Return this state with one more run; the oldest one goes where there are many."""
        return replace(self, runs=(*self.runs, run)[-MOST_RUNS:])


FIRST_MANIFEST: Final = Manifest()


def format_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's file.

    Raises:
        StoreError: it would be larger than a manifest can be.
    """
    body = {
        "format": FORMAT,
        "generation": manifest.generation,
        "facts_generation": manifest.facts_generation,
        "texts": manifest.texts,
        "slots": {name: [each.slot, each.since] for name, each in manifest.slots.items()},
        "tables": {
            table: [
                {
                    "path": file.path,
                    "size": file.size,
                    "digest": file.digest,
                    "rows": file.rows,
                    "generation": file.generation,
                }
                for file in files
            ]
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
    """Return the state that a manifest's file describes.

    Raises:
        WarehouseDamagedError: it is not as it was written.
        WarehouseVersionError: a newer Lace wrote it.
    """
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


def _runs(found: object) -> tuple[Run, ...]:
    """Return the runs that a manifest lists; one that was written before has none."""
    if not isinstance(found, list) or len(found) > MOST_RUNS:
        raise ValueError(f"runs are a list of at most {MOST_RUNS}")
    return tuple(
        Run(
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
