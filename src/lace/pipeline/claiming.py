"""What an executor does for advertisements: records to claims, sorted digests to roots.

All of it is the code that an exchange uses; here it takes Arrow batches and gives some.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from lace.base.limits import MAX_LINE_BYTES
from lace.facts.extract import facts_of_columns
from lace.interlacing.advertisement import (
    Advertisement,
    digests_of,
    digests_of_bare,
    is_bare,
    ordered_fields,
)
from lace.interlacing.merkle import as_digests
from lace.interlacing.rows import payload_of
from lace.interlacing.spans import Span
from lace.pipeline.interning import HEAD_COLUMNS, facts_of_heads
from lace.pipeline.states import PREFIX_LENGTH
from lace.pipeline.tables import ADVERTISEMENTS, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Field
    from lace.interlacing.capabilities import Schema

__all__ = [
    "CLAIM_COLUMNS",
    "NODE_COLUMNS",
    "ROOT_COLUMNS",
    "Claiming",
    "Relabelling",
    "Rooting",
    "Spanning",
    "claim_batch",
    "claims_of",
]

CLAIM_COLUMNS: Final = columns_of(ADVERTISEMENTS)
ROOT_COLUMNS: Final = (("prefix", "string"), ("count", "bigint"), ("root", "binary"))
NODE_COLUMNS: Final = (("level", "int"), ("index", "bigint"), ("value", "binary"))


def claims_of(records: Sequence[str], facts: Iterable[Fact], source: str) -> list[Advertisement]:
    """Return the advertisements of records.

    Args:
        records: their hashes.
        facts: the Field facts that the schema lets through.
        source: who advertises them.
    """
    fields: dict[str, list[Field]] = {record: [] for record in records}
    for _predicate, record, name, index, value in facts:
        fields[record].append((name, index, value))
    return [_claim(record, source, found) for record, found in fields.items()]


def _claim(record: str, source: str, fields: Iterable[Field]) -> Advertisement:
    found = ordered_fields(record, source, fields, max_line_bytes=MAX_LINE_BYTES)
    return Advertisement(record, found)


@dataclass(frozen=True, slots=True)
class Claiming:
    """The function of a task: records in, advertisements out.

    Records come as `hash`, and where there are fields also as what stands before their data.
    """

    source: str
    schema: Schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of records that it takes."""
        return ("hash",) if is_bare(self.schema) else ("hash", *HEAD_COLUMNS)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of advertisements."""
        reads = {"Field": None if self.schema.all else self.schema.names}
        for batch in batches:
            records: list[str] = batch.column("hash").to_pylist()
            if is_bare(self.schema):
                digests = digests_of_bare(records, self.source)
                yield _batch(records, digests, [None] * len(records))
                continue
            facts = facts_of_columns(facts_of_heads(batch), reads)
            yield claim_batch(claims_of(records, facts, self.source), self.source)


def _fields_text(claim: Advertisement) -> str | None:
    if not claim.fields:
        return None
    return json.dumps(claim.fields, ensure_ascii=False, separators=(",", ":"))


def claim_batch(claims: Sequence[Advertisement], source: str) -> Any:  # noqa: ANN401 - Arrow
    """Return advertisements of a source as an Arrow batch."""
    texts = [_fields_text(each) for each in claims]
    return _batch([claim.record for claim in claims], digests_of(claims, source), texts)


def _batch(records: Sequence[str], digests: Sequence[bytes], fields: Sequence[str | None]) -> Any:  # noqa: ANN401 - Arrow has no types
    import pyarrow as pa

    columns = [
        pa.array([payload_of(record)[:PREFIX_LENGTH] for record in records], pa.string()),
        pa.array(records, pa.string()),
        pa.array(digests, pa.binary()),
        pa.array(fields, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, [name for name, _kind in CLAIM_COLUMNS])


@dataclass(frozen=True, slots=True)
class Relabelling:
    """The function of a task: advertisements in, the same of another source and schema out."""

    source: str
    schema: Schema

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of advertisements."""
        for batch in batches:
            records, texts = (batch.column(name).to_pylist() for name in ("record", "fields"))
            claims = [
                _claim(record, self.source, self._kept(text))
                for record, text in zip(records, texts, strict=True)
            ]
            yield claim_batch(claims, self.source)

    def _kept(self, text: str | None) -> Iterator[Field]:
        for name, index, value in json.loads(text) if text else ():
            if name in self.schema:
                yield name, index, value


class Rooting:
    """The function of a task: digests sorted by prefix and digest in, count and root out."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield an Arrow batch for each prefix."""
        import pyarrow as pa

        names = [name for name, _kind in ROOT_COLUMNS]
        for prefix, span in _spans(batches, {}):
            arrays = [pa.array([each]) for each in (prefix, len(span))]
            root = pa.array([span.root()], pa.binary())
            yield pa.RecordBatch.from_arrays([*arrays, root], names)


@dataclass(frozen=True, slots=True)
class Spanning:
    """The function of a task: sorted digests by the number of their share in, subtrees out.

    `starts` has, by that number, how many digests all shares before have.
    """

    starts: Mapping[int, int]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield an Arrow batch for each share: the subtrees that it cannot pair alone."""
        import pyarrow as pa

        names = [name for name, _kind in NODE_COLUMNS]
        for _share, span in _spans(batches, self.starts):
            arrays = [
                pa.array([node.level for node in span.nodes], pa.int32()),
                pa.array([node.index for node in span.nodes], pa.int64()),
                pa.array([node.value for node in span.nodes], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, names)


def _spans(batches: Iterator[Any], starts: Mapping[Any, int]) -> Iterator[tuple[Any, Span]]:
    """Yield each value of the first column with the span of its digests, the second column."""
    current: Any = None
    span: Span | None = None
    for batch in batches:
        first = 0
        digests = as_digests(batch.column(1).to_pylist())
        for key, run in groupby(batch.column(0).to_pylist()):
            last = first + sum(1 for _ in run)
            if span is None or key != current:
                if span is not None:
                    yield current, span
                current, span = key, Span(starts.get(key, 0))
            span.add(digests[first:last])
            first = last
    if span is not None:
        yield current, span
