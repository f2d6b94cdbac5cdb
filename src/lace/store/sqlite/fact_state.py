"""The facts of one snapshot: segments, without what was removed, and the records behind them.

Segments are trusted only when their counters, brought forward by the records and removals
behind them, are exactly those of the database. Facts depend on nothing but a record's
bytes, so a record that was removed and came back needs no new rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lace.columns.keys import distinct_sorted
from lace.columns.segment_journal import Covered
from lace.facts.extract import facts_of_records
from lace.store.sqlite.connection import xor_of_digests, xor_of_keys
from lace.store.sqlite.snapshot import id_from_key, key_of_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.columns.segment import Segments
    from lace.columns.segment_files import Ids
    from lace.columns.segment_journal import JournalEntry
    from lace.facts.lines import Fact
    from lace.record.ids import RecordId
    from lace.record.validate import ValidRecord
    from lace.store.sqlite.connection import StoreCounters
    from lace.store.sqlite.snapshot import SqliteSnapshot


@dataclass(frozen=True, slots=True)
class FactState:
    """What the facts of one snapshot are: those of `segments` without `removed`, and `tail`'s.

    `removed` holds ids of the segments' dictionary, sorted: covered records that are no
    longer stored. `tail` holds records that are stored and not covered. `records` is how many
    are stored in all.
    """

    segments: Segments | None
    removed: Ids
    tail: list[ValidRecord]
    high_water: int
    removal_sequence: int
    records: int

    def tail_facts(self, max_value_bytes: int) -> Iterator[Fact]:
        """Yield the facts of the records that segments do not cover."""
        return facts_of_records(self.tail, max_value_bytes=max_value_bytes)


@dataclass(frozen=True, slots=True)
class Advance:
    """How a snapshot differs from segments: `returned` are keys behind them that they cover."""

    covered: Covered
    removed: Ids
    returned: frozenset[bytes]

    def not_returned(
        self, numbered: Iterable[tuple[int, ValidRecord]]
    ) -> Iterator[tuple[int, ValidRecord]]:
        """Yield those records behind the segments that they do not cover."""
        for number, record in numbered:
            if not self.returned or key_of_id(record.hash_text) not in self.returned:
                yield number, record


def covered_by_counters(counters: StoreCounters) -> Covered:
    """Return what segments of a whole store cover; a store of version 1 has none."""
    return Covered(
        counters.high_water,
        counters.removal_sequence or 0,
        counters.records,
        counters.record_bytes,
        counters.key_xor or 0,
    )


def advance(segments: Segments, snapshot: SqliteSnapshot) -> Advance | None:
    """Return how a snapshot differs from segments; None when they are of other records."""
    now, entry = covered_by_counters(snapshot.counters()), segments.entry
    if now.high_water < entry.high_water or now.removal_sequence < entry.removal_sequence:
        return None
    behind = snapshot.keys(entry.high_water)
    removed = segments.removed()
    gone = _gone(segments, snapshot.removals(entry.removal_sequence), removed)
    records = entry.records - len(gone) + len(behind)
    key_xor = entry.key_xor ^ xor_of_keys(behind)
    if len(gone):
        keys = [key_of_id(text) or b"" for text in segments.dictionary.texts(gone)]
        key_xor ^= xor_of_keys(keys)
    if (records, key_xor) != (now.records, now.key_xor):
        return None
    removed = distinct_sorted(np.concatenate([removed, gone]))
    keys_back: frozenset[bytes] = frozenset()
    if len(removed) and behind:
        ids = segments.dictionary.find([id_from_key(key) for key in behind])
        is_back = np.isin(ids, removed)
        removed = removed[~np.isin(removed, ids[is_back])]
        keys_back = frozenset(key for key, back in zip(behind, is_back, strict=True) if back)
    return Advance(now, removed, keys_back)


def _gone(segments: Segments, removals: Sequence[tuple[int, RecordId]], known: Ids) -> Ids:
    """Return the ids of removed records that the segments have as stored."""
    if not removals:
        return np.empty(0, np.int32)
    found = segments.dictionary.find(list({text for _sequence, text in removals}))
    found = distinct_sorted(found[found >= 0])
    is_stored = np.isin(found, segments.column("Have", 0)) & ~np.isin(found, known)
    return found[is_stored]


def fact_state(segments: Segments, snapshot: SqliteSnapshot) -> FactState | None:
    """Return the facts of a snapshot; None when the segments are of other records."""
    found = advance(segments, snapshot)
    if found is None:
        return None
    behind = enumerate(snapshot.new_records(segments.entry.high_water))
    tail = [record for _place, record in found.not_returned(behind)]
    covered = found.covered
    return FactState(
        segments,
        found.removed,
        tail,
        covered.high_water,
        covered.removal_sequence,
        covered.records,
    )


def all_as_tail(snapshot: SqliteSnapshot) -> FactState:
    """Return the facts of a snapshot without segments."""
    counters = snapshot.counters()
    return FactState(
        None,
        np.empty(0, np.int32),
        snapshot.new_records(0),
        counters.high_water,
        counters.removal_sequence or 0,
        counters.records,
    )


def extended(before: JournalEntry, records: Sequence[ValidRecord], high_water: int) -> Covered:
    """Return what is covered when these records are, too."""
    return Covered(
        high_water,
        before.removal_sequence,
        before.records + len(records),
        before.record_bytes + sum(len(record.bytes) for record in records),
        before.key_xor ^ xor_of_digests([record.digest for record in records]),
    )
