"""The facts of many records at once, column by column: the one body that computes record facts.

`record_facts` turns the columns of one record into tuples; segments intern the columns of
many. A Plex has its own fields and those of its Blob; a Seal has all of these by reference,
under the Seal's identifier, and its own. Coordinates are never facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lace.record.headers import LINK_SUFFIX
from lace.record.ids import is_link_target
from lace.record.structure import SIGNATURE, SIGNED_BY
from lace.record.writer import MARKER, MARKLINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.record.structure import HeadParts
    from lace.record.validate import ValidRecord

__all__ = ["FIRST", "FactColumns", "fact_columns", "head_columns", "split_link"]

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
