"""Records to facts: the one pure function that the store, the engines and Spark call.

The facts themselves are computed in `columns`; here they become tuples, record by record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.base.limits import MAX_LINE_BYTES
from lace.facts.columns import FIRST, FactColumns, fact_columns, split_link
from lace.facts.lines import Fact, check_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.record.validate import ValidRecord

__all__ = ["record_facts", "split_link"]


def record_facts(record: ValidRecord, *, max_value_bytes: int = MAX_LINE_BYTES) -> list[Fact]:
    """Return every record fact of a validated record, each once.

    Raises:
        LimitExceeded: a value is longer than the evaluating profile allows; nothing
            is cut and nothing is left out in silence.
    """
    columns = fact_columns((record,))
    p = columns.records[0].decode("ascii")
    facts: list[Fact] = [("Have", p)]
    facts += [("Field", p, name, FIRST, values[0]) for name, values in columns.record_fields()]
    if columns.plexes:
        facts += [("Field", p, name, FIRST, values[0]) for name, values in columns.plex_fields()]
        facts.append(("BlobHash", p, columns.blob[0].decode("ascii")))
        facts += _header_facts(p, columns)
    if columns.seals:
        facts.append(("Field", p, "Signed-By", FIRST, columns.signed_by[0]))
        facts.append(("Field", p, "Signature", FIRST, columns.signature[0].decode("ascii")))
        facts.append(("PlexHash", p, columns.plex[0].decode("ascii")))
    if max_value_bytes < MAX_LINE_BYTES:  # no line of a valid record is longer than that
        for fact in facts:
            for value in fact[1:]:
                check_value(value, max_value_bytes)
    return facts


def _header_facts(p: str, columns: FactColumns) -> Iterator[Fact]:
    """Yield the facts of the extra headers, in record order, a link behind its field."""
    links = dict(
        zip(columns.link_at, zip(columns.link_data, columns.link_target, strict=True), strict=True)
    )
    headers = zip(columns.header_name, columns.header_index, columns.header_value, strict=True)
    for at, (name, index, value) in enumerate(headers):
        yield ("Field", p, name, index, value)
        if at in links:
            yield ("RecordLink", p, name, index, *links[at])
