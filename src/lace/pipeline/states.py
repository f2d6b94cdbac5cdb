"""Advertisement states of a warehouse: what was advertised under a name, and its roots.

The tables `advertised/NAME` (what was asked for, one row), `partitions/NAME` (count and root of the
whole and of each two-character prefix) and `advertisements/NAME` are one state. All here is small
and read without Spark; the advertisements themselves are not.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lace.base import b64a
from lace.base.b64a import B64AError
from lace.base.digest import Hasher
from lace.base.text import shorten
from lace.errors import UsageError
from lace.interlacing.capabilities import Schema
from lace.pipeline.failures import damage_told
from lace.pipeline.manifest import WarehouseDamagedError
from lace.pipeline.registered import format_schema, parse_schema
from lace.pipeline.tables import ADVERTISED, PARTITIONS, RECORDS, columns_of
from lace.pipeline.warehouse import told
from lace.policy.origin import is_opaque_label
from lace.record.ids import IdError, Verifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.pipeline.manifest import DataFile, Manifest
    from lace.pipeline.warehouse import Job, Warehouse

__all__ = [
    "PREFIX_LENGTH",
    "WHOLE",
    "Asked",
    "Partitions",
    "State",
    "inputs_of",
    "read_partitions",
    "read_state",
    "state_names",
    "write_partitions",
    "write_state",
]

PREFIX_LENGTH: Final = 2
"""Characters of a prefix, as mode 1 of reconciliation begins with (G44)."""
WHOLE: Final = ""
"""The prefix of all advertisements."""
Partitions: TypeAlias = "dict[str, tuple[int, bytes]]"
"""Count and root by prefix: of those that have records, and of the whole."""
_NAME: Final = re.compile(r"[A-Za-z0-9_~-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to advertise: as which source, with which fields, and of which table's records.

    `of` is the table of a derived set; empty for all records.

    Raises:
        UsageError: the name or the source has another form.
    """

    name: str
    source: str
    schema: Schema = field(default_factory=Schema)
    of: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{shorten(self.name)!r} is no name for advertisements",
                hint="write 1 to 64 letters, digits, _, ~ or -",
            )
        if not _is_source(self.source):
            raise UsageError(
                f"{shorten(self.source)!r} is no source of advertisements",
                rule="G42",
                hint="give a verifier, V.….H3, or the label of a side without a key, such as Opq_0",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What was asked for, and the files that it was made of: `inputs` is a digest of them.

    `covered` is the last generation of records that are in it.
    """

    asked: Asked
    inputs: str
    covered: int


def _is_source(text: str) -> bool:
    try:
        return is_opaque_label(text) or bool(Verifier(text))
    except IdError:
        return False


def state_names(manifest: Manifest) -> list[str]:
    """Return the names of all states."""
    lead = f"{ADVERTISED}/"
    return sorted(table.removeprefix(lead) for table in manifest.tables if table.startswith(lead))


def read_state(warehouse: Warehouse, name: str) -> State | None:
    """Return what is known of a state; None when none has that name.

    Raises:
        WarehouseDamagedError: it is not as it was written.
    """
    table = f"{ADVERTISED}/{name}"
    if not warehouse.manifest.files(table):
        return None
    with _as_written(table):
        (row,) = _rows(warehouse, table)
        schema = parse_schema(row["fields"])
        asked = Asked(name=name, source=row["source"], schema=schema, of=row["of"])
        return State(asked=asked, inputs=row["inputs"], covered=row["covered"])


def read_partitions(warehouse: Warehouse, name: str) -> Partitions:
    """Return count and root of the partitions of a state, and of the whole.

    Raises:
        WarehouseDamagedError: they are not as they were written.
    """
    table = f"{PARTITIONS}/{name}"
    with _as_written(table):
        rows = _rows(warehouse, table)
        found = {row["prefix"]: (row["count"], b64a.decode(row["root"])) for row in rows}
        if WHOLE not in found:
            raise ValueError("the whole is missing")
        return found


@contextmanager
def _as_written(table: str) -> Iterator[None]:
    """Translate an error of rows that nobody wrote so to damage."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, B64AError, UsageError) as error:
        raise WarehouseDamagedError(
            f"the table {table} is damaged: {error}",
            hint="`lace pipeline advertise` makes another under another --name",
        ) from error


def _rows(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    from pyarrow import parquet

    found: list[dict[str, Any]] = []
    for path in warehouse.files(table):
        with damage_told(path):
            found += parquet.read_table(path, page_checksum_verification=True).to_pylist()
    return found


def write_state(job: Job, state: State) -> tuple[DataFile, ...]:
    """Write what is known of a state."""
    columns: dict[str, list[Any]] = {
        "source": [state.asked.source],
        "fields": [format_schema(state.asked.schema)],
        "of": [state.asked.of],
        "inputs": [state.inputs],
        "covered": [state.covered],
    }
    return _write(job, ADVERTISED, columns)


def write_partitions(job: Job, partitions: Partitions) -> tuple[DataFile, ...]:
    """Write count and root of partitions, in the order of their prefixes."""
    rows = sorted(partitions.items())
    columns: dict[str, list[Any]] = {
        "prefix": [prefix for prefix, _ in rows],
        "count": [count for _, (count, _root) in rows],
        "root": [b64a.encode(root) for _, (_count, root) in rows],
    }
    return _write(job, PARTITIONS, columns)


def _write(job: Job, table: str, columns: Mapping[str, list[Any]]) -> tuple[DataFile, ...]:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"string": pa.string(), "bigint": pa.int64()}
    made = pa.table(
        {name: pa.array(columns[name], kinds[kind]) for name, kind in columns_of(table)}
    )
    target = job.folder(table)
    with told(target):
        target.mkdir(parents=True)
        parquet.write_table(made, target / "part-0.parquet", write_page_checksum=True)
    return job.adopt(target)


def inputs_of(manifest: Manifest, of: str) -> str:
    """Return a digest of the files that a state of now would be made of."""
    hasher = Hasher()
    for table in (RECORDS, of):
        for file in manifest.files(table):
            hasher.update(f"{table} {file.path} {file.digest}\n".encode())
    return hasher.digest().hex()
