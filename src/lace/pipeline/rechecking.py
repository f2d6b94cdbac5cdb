"""What an executor does to prove a warehouse: records validated again, and digests of fact sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lace.base.digest import digest
from lace.errors import RecordError
from lace.facts.extract import facts_of_records, record_facts
from lace.facts.lines import Fact, format_fact
from lace.interlacing.advertisement import digests_of
from lace.pipeline.claiming import claims_of
from lace.pipeline.tables import RECORDS, columns_of
from lace.pipeline.validating import record_row
from lace.record.ids import IdError, RecordId
from lace.record.validate import frame_record, trust_stored, validate_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.interlacing.capabilities import Schema
    from lace.record.reader import RawRecord
    from lace.record.validate import ValidRecord

__all__ = [
    "PROVEN_COLUMNS",
    "ROW_COLUMNS",
    "VERDICT_COLUMNS",
    "FactSets",
    "Recomputing",
    "Revalidating",
    "fact_set_digest",
    "reasons_of",
]

PROVEN_COLUMNS: Final = (("record", "string"), ("size", "bigint"), ("digest", "binary"))
VERDICT_COLUMNS: Final = (("record", "string"), ("reason", "string"))
ROW_COLUMNS: Final = tuple(
    name for name, _kind in columns_of(RECORDS) if name not in ("source", "source_offset")
)
"""What the bytes of a record say of its row."""
_BATCH_ROWS: Final = 4096
_Row: TypeAlias = "tuple[str | None, int, bytes]"


def fact_set_digest(facts: Iterable[Fact]) -> bytes:
    """Return the digest of a set of facts: of their lines sorted bytewise, each with LF."""
    lines = sorted(format_fact(fact).encode("utf-8", "surrogatepass") for fact in facts)
    return digest(b"".join(line + b"\n" for line in lines))


def _batch(rows: list[_Row]) -> Any:  # noqa: ANN401 - Arrow has no types
    import pyarrow as pa

    kinds = (pa.string(), pa.int64(), pa.binary())
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    return pa.RecordBatch.from_arrays(columns, [name for name, _kind in PROVEN_COLUMNS])


@dataclass(frozen=True, slots=True)
class Recomputing:
    """The function of a task: records in, the digests of their facts or advertisements out.

    `claimed` is source and schema of advertisements; None for facts.
    """

    claimed: tuple[str, Schema] | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of records, sizes and digests; without a digest for wrong bytes."""
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("record", "head", "data")]
            made: list[_Row] = []
            records: list[ValidRecord] = []
            for text, head, data in zip(*columns, strict=True):
                try:
                    records.append(trust_stored((head or b"") + (data or b""), RecordId(text)))
                except (RecordError, IdError):
                    made.append((text, 0, b""))
            yield _batch([*made, *self._proven(records)])

    def _proven(self, records: list[ValidRecord]) -> list[_Row]:
        if self.claimed is None:
            facts = [(str(record.id), record_facts(record)) for record in records]
            return [(text, len(each), fact_set_digest(each)) for text, each in facts]
        source, schema = self.claimed
        reads = {"Field": None if schema.all else schema.names}
        hashes = [str(record.id) for record in records]
        claims = claims_of(hashes, facts_of_records(records, reads=reads), source)
        digests = digests_of(claims, source)
        return [
            (claim.record, len(claim.fields), each)
            for claim, each in zip(claims, digests, strict=True)
        ]


class Revalidating:
    """The function of a task: rows of records in, whether each is valid out.

    A record is validated as it was when it came, hashes and signature; and its row must be the
    one that its bytes give.
    """

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of hashes, each with what is wrong, or nothing."""
        import pyarrow as pa

        names = [name for name, _kind in VERDICT_COLUMNS]
        for batch in batches:
            rows = list(zip(*(batch.column(each).to_pylist() for each in ROW_COLUMNS), strict=True))
            hashes = pa.array([row[0] for row in rows], pa.string())
            reasons = pa.array(reasons_of(rows), pa.string())
            yield pa.RecordBatch.from_arrays([hashes, reasons], names)


def reasons_of(rows: Sequence[tuple[Any, ...]]) -> list[str | None]:
    """Return for each row of a record, of `ROW_COLUMNS`, what is wrong with it."""
    head, data = ROW_COLUMNS.index("head"), ROW_COLUMNS.index("data")
    found: list[str | None] = [None] * len(rows)
    frames: list[RawRecord] = []
    places: list[int] = []
    for at, row in enumerate(rows):
        raw = (row[head] or b"") + (row[data] or b"")
        try:
            frames.append(frame_record(raw, len(raw)))
            places.append(at)
        except RecordError as error:
            found[at] = _reason(error)
    for at, outcome in zip(places, validate_many(frames, os.urandom), strict=True):
        if isinstance(outcome, RecordError):
            found[at] = _reason(outcome)
        elif outcome.hash_text != rows[at][0]:
            found[at] = f"its bytes are {outcome.hash_text}"
        elif record_row(outcome) != rows[at]:
            found[at] = "its row says something else than its bytes"
    return found


def _reason(error: RecordError) -> str:
    return f"{error.message} [{error.rule}]" if error.rule else error.message


class FactSets:
    """The function of a task: values sorted by record, fact and place in, sets' digests out."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches of records, the numbers of their facts, and the sets' digests."""
        made: list[_Row] = []
        for record, facts in _sets(_values(batches)):
            made.append((record, len(facts), fact_set_digest(facts)))
            if len(made) >= _BATCH_ROWS:
                yield _batch(made)
                made = []
        if made:
            yield _batch(made)


def _values(batches: Iterator[Any]) -> Iterator[tuple[int, int, int, str, str]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _sets(
    values: Iterator[tuple[int, int, int, str, str]],
) -> Iterator[tuple[str | None, list[Fact]]]:
    """Yield each record with its facts; one whose own text is nowhere has none."""
    about: int | None = None
    record: str | None = None
    facts: dict[int, list[str]] = {}
    for subject, number, place, predicate, text in values:
        if about is not None and subject != about:
            yield record, [tuple(each) for each in facts.values()]
            record, facts = None, {}
        about = subject
        if place == 0:
            record = text
        facts.setdefault(number, [predicate]).append(text)
    if about is not None:
        yield record, [tuple(each) for each in facts.values()]
