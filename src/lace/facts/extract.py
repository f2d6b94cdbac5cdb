"""Records to facts: the one pure function that the store, the engines and Spark call.

A Plex has its own fields and those of its Blob; a Seal has all of these by reference,
under the Seal's identifier, and its own. Coordinates are never facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.base.limits import MAX_LINE_BYTES
from lace.facts.lines import Fact, check_value
from lace.record.headers import LINK_SUFFIX, Header
from lace.record.ids import is_link_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.record.validate import ValidRecord

__all__ = ["indexed_headers", "record_facts", "split_link"]


def record_facts(record: ValidRecord, *, max_value_bytes: int = MAX_LINE_BYTES) -> list[Fact]:
    """Return every record fact of a validated record, each once.

    Raises:
        LimitExceeded: a value is longer than the evaluating profile allows; nothing
            is cut and nothing is left out in silence.
    """
    p = record.hash_text
    facts: list[Fact] = [
        ("Have", p),
        ("Field", p, "Type", "0", record.type),
        ("Field", p, "Data-Length", "0", str(record.data_length)),
    ]
    if record.group is not None:
        facts += _plex_facts(p, record)
    if record.signed_by is not None:
        facts += [
            ("Field", p, "Signed-By", "0", record.signed_by),
            ("Field", p, "Signature", "0", record.signature or ""),
            ("PlexHash", p, record.plex_hash or ""),
        ]
    if max_value_bytes < MAX_LINE_BYTES:  # no line of a valid record is longer than that
        for fact in facts:
            for value in fact[1:]:
                check_value(value, max_value_bytes)
    return facts


def _plex_facts(p: str, record: ValidRecord) -> list[Fact]:
    facts: list[Fact] = [
        ("Field", p, "Group", "0", record.group or ""),
        ("Field", p, "App", "0", record.app or ""),
        ("Field", p, "Name", "0", record.name or ""),
        ("Field", p, "TAI", "0", record.tai or ""),
        ("BlobHash", p, record.blob_hash or ""),
    ]
    for name, index, value in indexed_headers(record.headers):
        facts.append(("Field", p, name, index, value))
        link = split_link(name, value)
        if link:
            facts.append(("RecordLink", p, name, index, *link))
    return facts


def indexed_headers(headers: tuple[Header, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield name, occurrence index and value of each extra header, in record order."""
    before, index = "", 0
    for name, value in headers:
        index = index + 1 if name == before else 0
        before = name
        yield name, str(index), value


def split_link(name: str, value: str) -> tuple[str, str] | None:
    """Return data and target of a record-link header; None when it is not well-formed."""
    if not name.endswith(LINK_SUFFIX):
        return None
    data, _, target = value.rpartition(" ")
    return (data, target) if data and is_link_target(target) else None
