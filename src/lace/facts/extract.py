"""Records to facts: the one pure function that the store, the engines and Spark call.

The facts themselves are computed in `columns`; here they become tuples, record by record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lace.base.limits import MAX_LINE_BYTES
from lace.facts.columns import FIRST, FactColumns, fact_columns, split_link
from lace.facts.lines import Fact, check_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.record.validate import ValidRecord

__all__ = ["Reads", "facts_of_columns", "facts_of_records", "record_facts", "split_link"]

Reads: TypeAlias = "Mapping[str, frozenset[str] | None]"
"""Predicates of which facts are wanted; of `Field` and `RecordLink` only some names, or None."""


def record_facts(record: ValidRecord, *, max_value_bytes: int = MAX_LINE_BYTES) -> list[Fact]:
    """Return every record fact of a validated record, each once.

    Raises:
        LimitExceeded: a value is longer than the evaluating profile allows; nothing
            is cut and nothing is left out in silence.
    """
    return list(facts_of_records((record,), max_value_bytes=max_value_bytes))


def facts_of_records(
    records: Sequence[ValidRecord],
    *,
    max_value_bytes: int = MAX_LINE_BYTES,
    reads: Reads | None = None,
) -> Iterator[Fact]:
    """Yield every record fact of validated records, each once, field by field.

    Args:
        records: the records.
        max_value_bytes: how long a value may be, whether its fact is wanted or not.
        reads: the facts that are wanted, if not all are.

    Raises:
        LimitExceeded: a value is longer than the evaluating profile allows.
    """
    columns = fact_columns(records)
    if max_value_bytes < MAX_LINE_BYTES:  # no line of a valid record is longer than that
        for fact in _facts(columns, _Wanted(None)):
            for value in fact[1:]:
                check_value(value, max_value_bytes)
    yield from facts_of_columns(columns, reads)


def facts_of_columns(columns: FactColumns, reads: Reads | None = None) -> Iterator[Fact]:
    """Yield the facts, or those that are wanted, of records that are given as columns."""
    yield from _facts(columns, _Wanted(reads))


class _Wanted:
    """Which facts are wanted."""

    def __init__(self, reads: Reads | None) -> None:
        self._reads = reads

    def any_of(self, predicate: str) -> bool:
        """Tell whether any facts of a predicate are wanted."""
        return self._reads is None or predicate in self._reads

    def named(self, predicate: str, name: str) -> bool:
        """Tell whether the facts of a predicate that have a name are wanted."""
        if self._reads is None:
            return True
        names = self._reads.get(predicate, frozenset())
        return names is None or name in names


def _facts(columns: FactColumns, wanted: _Wanted) -> Iterator[Fact]:
    ids = [identifier.decode("ascii") for identifier in columns.records]
    plexes, seals = [ids[row] for row in columns.plexes], [ids[row] for row in columns.seals]
    if wanted.any_of("Have"):
        for p in ids:
            yield "Have", p
    for rows, fields in (
        (ids, columns.record_fields()),
        (plexes, columns.plex_fields()),
        (seals, columns.seal_fields()),
    ):
        for name, values in fields:
            if wanted.named("Field", name):
                for p, value in zip(rows, values, strict=True):
                    yield "Field", p, name, FIRST, value
    for predicate, rows, hashes in (
        ("BlobHash", plexes, columns.blob),
        ("PlexHash", seals, columns.plex),
    ):
        if wanted.any_of(predicate):
            for p, text in zip(rows, hashes, strict=True):
                yield predicate, p, text.decode("ascii")
    yield from _header_facts(ids, columns, wanted)


def _header_facts(ids: Sequence[str], columns: FactColumns, wanted: _Wanted) -> Iterator[Fact]:
    """Yield the facts of the extra headers and then those of record links."""
    names, rows, indexes = columns.header_name, columns.header_row, columns.header_index
    is_wanted = {name: wanted.named("Field", name) for name in set(names)}
    for row, name, index, value in zip(rows, names, indexes, columns.header_value, strict=True):
        if is_wanted[name]:
            yield "Field", ids[row], name, index, value
    is_wanted = {name: wanted.named("RecordLink", name) for name in is_wanted}
    for at, data, target in zip(
        columns.link_at, columns.link_data, columns.link_target, strict=True
    ):
        if is_wanted[names[at]]:
            yield "RecordLink", ids[rows[at]], names[at], indexes[at], data, target
