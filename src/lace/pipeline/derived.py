"""Derived facts in a warehouse: their tables, and what they were made of.

An evaluation has a name. Each of its predicates is a table of texts, and one small table tells
of all of them: how many facts there are, and which rules over which facts made them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.base.text import shorten
from lace.errors import UsageError
from lace.pipeline.describing import DERIVED
from lace.pipeline.failures import damage_told
from lace.pipeline.manifest import WarehouseDamagedError
from lace.pipeline.registered import Registration
from lace.rules.profiles import MAY_SEND
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lace.interlacing.capabilities import Schema
    from lace.pipeline.manifest import Manifest
    from lace.pipeline.warehouse import Warehouse

__all__ = [
    "Evaluated",
    "answer_table",
    "check_name",
    "derived_tables",
    "evaluation_table",
    "evaluations",
    "find_derived",
    "find_exchange",
    "question_table",
    "read_derived",
    "read_evaluated",
    "without_derived",
    "write_evaluated",
]

_EVALUATIONS: Final = "evaluations"
_QUESTIONS: Final = "questions"
_USUAL: Final = "Selected"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PREDICATE: Final = re.compile(r"[A-Za-z0-9_]{1,120}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TOLD: Final = ("plan", "viewer", "fields", "sends")
"""Columns that describe an exchange; empty for plain rules."""
_BATCH_ROWS: Final = 65_536
_MOST_PREDICATES: Final = 1_000_000
"""Rows of the table that describes an evaluation; rules cannot define more."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation that is in a warehouse.

    `identity` is the same for the same rules, limits and facts; `counts` has how many facts
    each predicate has; `fresh` tells whether it was made now or had been before. Of an exchange
    `registration` tells which one. `made_by` names the version of Lace that made it; it is empty
    where that was one that did not say.
    """

    name: str
    identity: str
    counts: Mapping[PredicateKey, int]
    fresh: bool = False
    registration: Registration | None = None
    made_by: str = ""


def check_name(name: str) -> str:
    """Return the name of an evaluation.

    Raises:
        UsageError: it cannot be the name of a table.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for derived facts",
            hint="use up to 64 letters, digits, _ and -",
        )
    return name


def answer_table(name: str, predicate: PredicateKey) -> str:
    """Return the table of a predicate's facts.

    Raises:
        UsageError: the predicate's name is too long for one.
    """
    if not _PREDICATE.fullmatch(predicate.name):
        raise UsageError(
            f"{predicate} is too long for the name of a table",
            hint="give the predicate a name of at most 120 letters",
        )
    return f"{DERIVED}/{name}/{predicate.name}~{predicate.arity}"


def evaluation_table(name: str) -> str:
    """Return the table that describes an evaluation."""
    return f"{_EVALUATIONS}/{name}"


def question_table(name: str) -> str:
    """Return the table of the rules that an evaluation was made of."""
    return f"{_QUESTIONS}/{name}"


def derived_tables(manifest: Manifest) -> list[str]:
    """Return all tables of derived facts."""
    return sorted(table for table in manifest.tables if table.startswith(f"{DERIVED}/"))


def evaluations(manifest: Manifest) -> list[str]:
    """Return the names of all evaluations."""
    lead = f"{_EVALUATIONS}/"
    return sorted(table.removeprefix(lead) for table in manifest.tables if table.startswith(lead))


def without_derived(manifest: Manifest, name: str) -> Manifest:
    """Return a state without the tables of an evaluation."""
    mine = f"{DERIVED}/{name}/"
    about = (evaluation_table(name), question_table(name))
    for table in manifest.tables:
        if table in about or table.startswith(mine):
            manifest = manifest.with_replaced(table, ())
    return manifest


def write_evaluated(done: Evaluated, folder: Path) -> None:
    """Write the table that describes an evaluation into a new folder."""
    import pyarrow as pa
    from pyarrow import parquet

    keys = list(done.counts)
    told = done.registration.to_row() if done.registration is not None else {}
    table = pa.table(
        {
            "predicate": pa.array([key.name for key in keys], pa.string()),
            "arity": pa.array([key.arity for key in keys], pa.int32()),
            "rows": pa.array([done.counts[key] for key in keys], pa.int64()),
            "identity": pa.array([done.identity] * len(keys), pa.string()),
            "made_by": pa.array([done.made_by] * len(keys), pa.string()),
            **{name: pa.array([told.get(name, "")] * len(keys), pa.string()) for name in _TOLD},
        }
    )
    folder.mkdir(parents=True)
    parquet.write_table(
        table, folder / "evaluation.parquet", compression="zstd", write_page_checksum=True
    )


def read_evaluated(warehouse: Warehouse, name: str) -> Evaluated | None:
    """Return what is known of an evaluation; None where none has that name.

    Raises:
        WarehouseDamagedError: its table is damaged.
    """
    counts: dict[PredicateKey, int] = {}
    identities: set[str] = set()
    told: set[tuple[Registration | None, str]] = set()
    try:
        for path in warehouse.files(evaluation_table(name)):
            for row in _rows(path, _MOST_PREDICATES):
                counts[PredicateKey(str(row["predicate"]), int(row["arity"]))] = int(row["rows"])
                identities.add(str(row["identity"]))
                told.add((Registration.from_row(row), str(row.get("made_by") or "")))
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(name, str(error)) from error
    if not counts:
        return None
    if len(identities) != 1 or len(told) != 1 or not all(map(_DIGEST.fullmatch, identities)):
        raise _damaged(name, "its rows describe several evaluations")
    registration, made_by = told.pop()
    return Evaluated(
        name,
        identities.pop(),
        MappingProxyType(counts),
        registration=registration,
        made_by=made_by,
    )


def _damaged(name: str, reason: str) -> WarehouseDamagedError:
    return WarehouseDamagedError(
        f"the table {evaluation_table(name)} is damaged: {reason}",
        hint="`lace pipeline evaluate` makes another under another --out",
    )


def find_derived(warehouse: Warehouse, text: str) -> str:
    """Return the table that `NAME` or `NAME/PREDICATE` means: a derived set of records.

    Raises:
        UsageError: no evaluation is there, or several could be meant.
        WarehouseDamagedError: the table that describes an evaluation is damaged.
    """
    name, _, predicate = text.partition("/")
    known = read_evaluated(warehouse, name)  # a set without records has no table of its own
    found = sorted({key.name for key in known.counts if key.arity == 1}) if known else []
    wanted = predicate or (found[0] if len(found) == 1 else _USUAL)
    if wanted in found:
        return answer_table(name, PredicateKey(wanted, 1))
    hint = f"there are {', '.join(f'{name}/{each}' for each in found)}" if found else None
    raise UsageError(
        f"no derived set of records is called {shorten(text)!r}",
        hint=hint or "`lace pipeline evaluate WAREHOUSE --rules FILE --out NAME` makes one",
    )


def find_exchange(warehouse: Warehouse, name: str) -> tuple[str, Schema]:
    """Return what an exchange that was evaluated may send, as `NAME/PREDICATE`, and its fields.

    Raises:
        UsageError: no exchange was evaluated under that name.
        WarehouseDamagedError: the table that describes it is damaged.
    """
    known = read_evaluated(warehouse, name)
    if known is None or known.registration is None:
        raise UsageError(
            f"no exchange was evaluated as {shorten(name)!r}",
            hint="`lace pipeline evaluate WAREHOUSE --select FILE --peer-select FILE` does that",
        )
    return f"{name}/{MAY_SEND.name}", known.registration.schema


def read_derived(
    warehouse: Warehouse, name: str, predicate: PredicateKey
) -> Iterator[tuple[str, ...]]:
    """Yield the facts of a predicate, without Spark, in no particular order.

    Raises:
        WarehouseDamagedError: a file is damaged.
    """
    columns = [f"c{at}" for at in range(predicate.arity)]
    for path in warehouse.files(answer_table(name, predicate)):
        for row in _rows(path):
            yield tuple(row[column] for column in columns)


def _rows(path: Path, most: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file; more than there can be are damage."""
    from pyarrow import parquet

    seen = 0
    with damage_told(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            seen += batch.num_rows
            if most is not None and seen > most:
                raise WarehouseDamagedError(f"{path.name} has more than {most} rows")
            yield from batch.to_pylist()
