"""Records to facts: the one pure function that the store, the engines and Spark call.

The facts themselves are computed in `columns`; here they become tuples, record by record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lace.base.limits import MAX_LINE_BYTES
from lace.facts.lines import Fact, check_value
from lace.record.headers import LINK_SUFFIX
from lace.record.ids import is_link_target
from lace.record.model import MARKER, MARKLINE_BYTES
from lace.record.validate import SIGNATURE, SIGNED_BY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.record.validate import HeadParts, ValidRecord


# -- The facts of many records at once, column by column: the one body that computes record facts.
#
# `record_facts` turns the columns of one record into tuples; segments intern the columns of
# many. A Plex has its own fields and those of its Blob; a Seal has all of these by reference,
# under the Seal's identifier, and its own. Coordinates are never facts.

FIRST: Final = "0"
"""The index of a header's first occurrence."""

_HASH: Final = slice(len(MARKER), MARKLINE_BYTES - 1)
_HASH_AT: Final = _HASH.start
_HASH_END: Final = _HASH.stop
_PLEX_AT: Final = SIGNATURE.stop + 1
_SEALED_HASH: Final = slice(_PLEX_AT + _HASH_AT, _PLEX_AT + _HASH_END)
"""Where a Seal has the hash of its Plex: always in the same place."""
_REQUIRED_LINES: Final = 4


@dataclass(slots=True)
class FactColumns:
    """Facts by column; a row number tells which record of the batch a value belongs to.

    `records` and `lengths` have a value for each record; the columns from `group` to `blob`
    one for each row of `plexes`, those from `signed_by` to `plex` for each of `seals`. Record
    hashes and signatures are ASCII bytes: that many of them need not become texts here. Extra
    headers and record links carry their row with them; `link_at` is a link's position among
    the extra headers.
    """

    records: Sequence[bytes]
    lengths: Sequence[str]
    plexes: Sequence[int]
    group: Sequence[str]
    app: Sequence[str]
    name: Sequence[str]
    tai: Sequence[str]
    blob: Sequence[bytes]
    seals: Sequence[int]
    signed_by: Sequence[str]
    signature: Sequence[bytes]
    plex: Sequence[bytes]
    header_row: list[int] = field(default_factory=list)
    header_name: list[str] = field(default_factory=list)
    header_index: list[str] = field(default_factory=list)
    header_value: list[str] = field(default_factory=list)
    link_at: list[int] = field(default_factory=list)
    link_data: list[str] = field(default_factory=list)
    link_target: list[str] = field(default_factory=list)

    def record_fields(self) -> tuple[tuple[str, Sequence[str]], ...]:
        """Return name and values of the fields that every record has."""
        types = [chr(identifier[0]) for identifier in self.records]
        return (("Type", types), ("Data-Length", self.lengths))

    def plex_fields(self) -> tuple[tuple[str, Sequence[str]], ...]:
        """Return name and values of the fields that each row of `plexes` has."""
        return (
            ("Group", self.group),
            ("App", self.app),
            ("Name", self.name),
            ("TAI", self.tai),
        )

    def seal_fields(self) -> tuple[tuple[str, Sequence[str]], ...]:
        """Return name and values of the fields that each row of `seals` has of its own."""
        signatures = [signature.decode("ascii") for signature in self.signature]
        return (("Signed-By", self.signed_by), ("Signature", signatures))


def fact_columns(records: Sequence[ValidRecord]) -> FactColumns:
    """Return every record fact of validated records, each once, by column."""
    if not records:
        return FactColumns([], [], [], [], [], [], [], [], [], [], [], [])
    raws, _digests, plex_at, blob_at, data_at, *texts = zip(*records, strict=True)
    lengths = [str(len(raw) - at) for raw, at in zip(raws, data_at, strict=True)]
    return _columns(raws, lengths, plex_at, blob_at, texts)


def head_columns(heads: Sequence[HeadParts]) -> FactColumns:
    """Return every record fact of records of which only the heads are here, by column."""
    if not heads:
        return fact_columns(())
    raws, sizes, plex_at, blob_at, *texts = zip(*heads, strict=True)
    lengths = [str(size - len(raw)) for raw, size in zip(raws, sizes, strict=True)]
    return _columns(raws, lengths, plex_at, blob_at, texts)


def _columns(
    raws: Sequence[bytes],
    lengths: Sequence[str],
    plex_at: Sequence[int],
    blob_at: Sequence[int],
    texts: Sequence[Sequence[str]],
) -> FactColumns:
    """Return the facts of bytes that begin with a record's head; texts are group to TAI."""
    seals = [row for row, at in enumerate(plex_at) if at > 0]
    sealed = raws if len(seals) == len(raws) else [raws[row] for row in seals]
    plexes = [row for row, at in enumerate(blob_at) if at]
    inner: Sequence[Sequence[Any]] = (raws, plex_at, blob_at, *texts)
    if len(plexes) < len(raws):
        inner = [[column[row] for row in plexes] for column in inner]
    raw, at, blob_at, group, app, name, tai = inner
    made = FactColumns(
        records=[raw[_HASH] for raw in raws],
        lengths=lengths,
        plexes=plexes,
        group=group,
        app=app,
        name=name,
        tai=tai,
        blob=[raw[at + _HASH_AT : at + _HASH_END] for raw, at in zip(raw, blob_at, strict=True)],
        seals=seals,
        signed_by=[raw[SIGNED_BY].decode("ascii") for raw in sealed],
        signature=[raw[SIGNATURE] for raw in sealed],
        plex=[raw[_SEALED_HASH] for raw in sealed],
    )
    for row, octets, start, end in zip(plexes, raw, at, blob_at, strict=True):
        head = octets[start + MARKLINE_BYTES : end]
        if head.count(b"\n") > _REQUIRED_LINES:
            _add_headers(made, row, head)
    return made


def _add_headers(made: FactColumns, row: int, head: bytes) -> None:
    """Add the extra headers of a head, which has been validated: `Name: value` lines."""
    lines = head.decode("utf-8").split("\n")[_REQUIRED_LINES:-1]
    names: list[str] = []
    before, index = "", 0
    for line in lines:
        name, _, value = line.partition(": ")
        names.append(name)
        made.header_value.append(value)
        index = index + 1 if name == before else 0
        before = name
        made.header_index.append(str(index) if index else FIRST)
        if name.endswith(LINK_SUFFIX):
            link = split_link(name, value)
            if link:
                made.link_at.append(len(made.header_name) + len(names) - 1)
                made.link_data.append(link[0])
                made.link_target.append(link[1])
    made.header_name += names
    made.header_row += [row] * len(names)


def split_link(name: str, value: str) -> tuple[str, str] | None:
    """Return data and target of a record-link header; None when it is not well-formed."""
    if not name.endswith(LINK_SUFFIX):
        return None
    data, _, target = value.rpartition(" ")
    return (data, target) if data and is_link_target(target) else None


Reads: TypeAlias = "Mapping[str, frozenset[str] | None]"
"""Predicates of which facts are wanted; of `Field` and `RecordLink` only some names, or None."""


def record_facts(record: ValidRecord, *, max_value_bytes: int = MAX_LINE_BYTES) -> list[Fact]:
    """Return every record fact of a validated record, each once."""
    return list(facts_of_records((record,), max_value_bytes=max_value_bytes))


def facts_of_records(
    records: Sequence[ValidRecord],
    *,
    max_value_bytes: int = MAX_LINE_BYTES,
    reads: Reads | None = None,
) -> Iterator[Fact]:
    """Yield every record fact of validated records, each once, field by field."""
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
