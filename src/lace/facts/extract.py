"""Records to facts: the one pure function that the store, the engines and Spark call.

The facts themselves are computed in `columns`; here they become tuples, record by record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.base.limits import MAX_LINE_BYTES
from lace.facts.columns import FIRST, FactColumns, fact_columns, split_link
from lace.facts.lines import Fact, check_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.record.validate import ValidRecord

__all__ = ["facts_of_records", "record_facts", "split_link"]


def record_facts(record: ValidRecord, *, max_value_bytes: int = MAX_LINE_BYTES) -> list[Fact]:
    """Return every record fact of a validated record, each once.

    Raises:
        LimitExceeded: a value is longer than the evaluating profile allows; nothing
            is cut and nothing is left out in silence.
    """
    return list(facts_of_records((record,), max_value_bytes=max_value_bytes))


def facts_of_records(
    records: Sequence[ValidRecord], *, max_value_bytes: int = MAX_LINE_BYTES
) -> Iterator[Fact]:
    """Yield every record fact of validated records, each once, field by field.

    Raises:
        LimitExceeded: a value is longer than the evaluating profile allows.
    """
    facts = _facts(fact_columns(records))
    if max_value_bytes >= MAX_LINE_BYTES:  # no line of a valid record is longer than that
        yield from facts
        return
    for fact in facts:
        for value in fact[1:]:
            check_value(value, max_value_bytes)
        yield fact


def _facts(columns: FactColumns) -> Iterator[Fact]:
    ids = [identifier.decode("ascii") for identifier in columns.records]
    plexes, seals = [ids[row] for row in columns.plexes], [ids[row] for row in columns.seals]
    for p in ids:
        yield "Have", p
    for name, values in columns.record_fields():
        for p, value in zip(ids, values, strict=True):
            yield "Field", p, name, FIRST, value
    for name, values in columns.plex_fields():
        for p, value in zip(plexes, values, strict=True):
            yield "Field", p, name, FIRST, value
    for p, blob in zip(plexes, columns.blob, strict=True):
        yield "BlobHash", p, blob.decode("ascii")
    yield from _header_facts(ids, columns)
    for p, verifier, signature, plex in zip(
        seals, columns.signed_by, columns.signature, columns.plex, strict=True
    ):
        yield "Field", p, "Signed-By", FIRST, verifier
        yield "Field", p, "Signature", FIRST, signature.decode("ascii")
        yield "PlexHash", p, plex.decode("ascii")


def _header_facts(ids: Sequence[str], columns: FactColumns) -> Iterator[Fact]:
    """Yield the facts of the extra headers, in record order, a link behind its field."""
    links = dict(
        zip(columns.link_at, zip(columns.link_data, columns.link_target, strict=True), strict=True)
    )
    headers = zip(
        columns.header_row,
        columns.header_name,
        columns.header_index,
        columns.header_value,
        strict=True,
    )
    for at, (row, name, index, value) in enumerate(headers):
        yield "Field", ids[row], name, index, value
        if at in links:
            yield "RecordLink", ids[row], name, index, *links[at]
