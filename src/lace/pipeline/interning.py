"""What an executor does for facts: texts become numbers, its own and then the dictionary's.

A *unit* is a share of the records with a list of texts of its own. `Interning` gives the facts of a
unit as numbers in that list, and the list; `resolve` puts the dictionary's ids for the unit's
numbers. So each text is compared with others once for a unit, and facts are never joined by text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from lace.facts.columns import FIRST, FactColumns, head_columns
from lace.pipeline.tables import FACT_WIDTH, REST_SLOT, STANDARD_SLOTS
from lace.record.structure import HeadParts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "HEAD_COLUMNS",
    "RESOLVED_COLUMNS",
    "TEXT",
    "UNIT_COLUMNS",
    "Interning",
    "Numbering",
    "Resolving",
    "facts_of_heads",
    "standard_slots",
]

TEXT: Final = "text"
"""The kind of the rows that are a unit's texts; of all others it is their predicate."""
HEAD_COLUMNS: Final = ("head", "size", "plex_at", "blob_at", "group_path", "app", "name", "tai")
_PLACES: Final = tuple((f"c{number}", "bigint") for number in range(FACT_WIDTH))
UNIT_COLUMNS: Final = (("kind", "string"), ("unit", "bigint"), *_PLACES, ("text", "string"))
RESOLVED_COLUMNS: Final = (("kind", "string"), ("slot", "int"), *_PLACES)
_UNIT_TEXTS: Final = 200_000
"""A unit ends when it has this many texts, each of at most a header line."""
_UNIT_BITS: Final = 32


@dataclass(slots=True)
class _Unit:
    """Facts of some records as numbers, and the texts that these stand for."""

    texts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[list[int]]] = field(default_factory=dict)

    def add(self, columns: FactColumns) -> None:
        """Add the facts of a batch of records."""
        ids = self._numbers(text.decode("ascii") for text in columns.records)
        plexes = [ids[row] for row in columns.plexes]
        seals = [ids[row] for row in columns.seals]
        first = self._number(FIRST)
        self._put("Have", ids)
        for rows, fields in (
            (ids, columns.record_fields()),
            (plexes, columns.plex_fields()),
            (seals, columns.seal_fields()),
        ):
            for name, values in fields:
                number = repeat(self._number(name), len(rows))
                self._put("Field", rows, number, repeat(first, len(rows)), self._numbers(values))
        self._put("BlobHash", plexes, self._numbers(text.decode("ascii") for text in columns.blob))
        self._put("PlexHash", seals, self._numbers(text.decode("ascii") for text in columns.plex))
        self._put_headers(columns, ids)

    def _put_headers(self, columns: FactColumns, ids: Sequence[int]) -> None:
        rows = [ids[row] for row in columns.header_row]
        names = self._numbers(columns.header_name)
        indexes = self._numbers(columns.header_index)
        self._put("Field", rows, names, indexes, self._numbers(columns.header_value))
        at = columns.link_at
        self._put(
            "RecordLink",
            [rows[place] for place in at],
            [names[place] for place in at],
            [indexes[place] for place in at],
            self._numbers(columns.link_data),
            self._numbers(columns.link_target),
        )

    def _put(self, predicate: str, *columns: Iterable[int]) -> None:
        kept = self.rows.setdefault(predicate, [[] for _column in columns])
        for held, column in zip(kept, columns, strict=True):
            held.extend(column)

    def _number(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _numbers(self, texts: Iterable[str]) -> list[int]:
        known = self.texts
        return [known.setdefault(text, len(known)) for text in texts]


class Interning:
    """The function of a task: heads of records in, units of numbered facts out."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of the kinds of facts, and of texts."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        unit, number = _Unit(), 0
        for batch in batches:
            unit.add(facts_of_heads(batch))
            if len(unit.texts) >= _UNIT_TEXTS:
                yield from _unit_batches(unit, (task << _UNIT_BITS) | number)
                unit, number = _Unit(), number + 1
        if unit.texts:
            yield from _unit_batches(unit, (task << _UNIT_BITS) | number)


def facts_of_heads(batch: Any) -> FactColumns:  # noqa: ANN401 - Arrow has no types
    """Return the facts of records of which only the bytes before the data are given."""
    columns = [batch.column(name).to_pylist() for name in HEAD_COLUMNS]
    return head_columns(list(map(HeadParts._make, zip(*columns, strict=True))))


def _unit_batches(unit: _Unit, number: int) -> Iterator[Any]:
    for predicate, columns in unit.rows.items():
        if columns[0]:
            yield _batch(predicate, number, columns, None)
    yield _batch(TEXT, number, [list(range(len(unit.texts)))], list(unit.texts))


def _batch(kind: str, unit: int, columns: Sequence[Sequence[int]], texts: list[str] | None) -> Any:  # noqa: ANN401 - Arrow has no types
    import pyarrow as pa

    count = len(columns[0])
    arrays = [
        pa.repeat(pa.scalar(kind), count),
        pa.repeat(pa.scalar(unit, pa.int64()), count),
        *(pa.array(column, pa.int64()) for column in columns),
        *(pa.nulls(count, pa.int64()) for _ in range(FACT_WIDTH - len(columns))),
        pa.array(texts, pa.string()) if texts is not None else pa.nulls(count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _kind in UNIT_COLUMNS])


@dataclass(frozen=True, slots=True)
class Numbering:
    """The function of a task: rows of one text each get the ids from its file's first on."""

    files: tuple[tuple[str, int], ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of ids and texts for the files whose numbers come."""
        import pyarrow as pa
        from pyarrow import parquet

        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, first = self.files[number]
                with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                    for rows in file.iter_batches(columns=["text"]):
                        ids = pa.array(range(first, first + len(rows)), pa.int64())
                        first += len(rows)
                        yield pa.RecordBatch.from_arrays([ids, rows.column(0)], ["id", "text"])


@dataclass(frozen=True, slots=True)
class Resolving:
    """The function of a group: a unit's facts and its texts' ids in, facts of ids out.

    `slots` has, by the id of a Name, the slot for the facts of Field.
    """

    slots: Mapping[int, int]

    def __call__(self, facts: Any, ids: Any) -> Any:  # noqa: ANN401 - Arrow has no types
        """Return the facts of the unit with the dictionary's ids."""
        import pyarrow as pa
        from pyarrow import compute

        order = compute.sort_indices(ids, sort_keys=[("number", "ascending")])
        by_number = ids.column("id").take(order).combine_chunks()
        columns = [by_number.take(facts.column(name).combine_chunks()) for name, _kind in _PLACES]
        kinds = facts.column("kind").combine_chunks()
        known = pa.array(list(self.slots), pa.int64())
        of_known = pa.array([*self.slots.values()], pa.int32())
        slots = compute.fill_null(
            of_known.take(compute.index_in(columns[1], value_set=known)), REST_SLOT
        )
        is_field = compute.equal(kinds, "Field")
        slot = compute.if_else(is_field, slots, pa.scalar(0, pa.int32()))
        return pa.table([kinds, slot, *columns], names=[name for name, _kind in RESOLVED_COLUMNS])


def standard_slots(ids: Mapping[str, int]) -> dict[int, int]:
    """Return the slots of the standard Names that have an id."""
    return {ids[name]: slot for name, slot in STANDARD_SLOTS.items() if name in ids}
