"""The two stores side by side: whatever is done to both, they answer alike.

StoreRecordIds are compared by their order only: a store may leave numbers out.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from lace.base.limits import Settings
from lace.facts.catalogue import RECORD_PREDICATES
from lace.record.model import Blob, Record
from lace.record.paths import parse_address
from lace.store.interface import Order, RecordStore, Snapshot
from lace.store.sqlite.store import SqliteStore
from tests.oracle.memory_store import MemoryStore
from tests.store.contract import PREFIXES
from tests.store.samples import blob, key, plex, seal, tai, valid

PLACES = [(name, group, at) for name in ("n", "n/1", "é%") for group in "uv" for at in (1, 2)]
PLEXES = [
    *(plex(name, group=group, at=at) for name, group, at in PLACES),
    plex("n", at=2, data="x", headers=[("X+Link", f"d {blob('t').id}"), ("X+Link", "broken")]),
]
SEALS = [seal(inner, 1 + at % 2) for at, inner in enumerate(PLEXES)]
RECORDS: list[Record] = [*PLEXES, *SEALS, blob(), blob("t")]
PROVEN = valid(*RECORDS)
HASHES = [record.id for record in RECORDS]
COORDINATES = sorted({str(record.coordinate) for record in RECORDS if not isinstance(record, Blob)})
NARROWINGS = [
    *("", "/|/plex", "/|/seal", f"/|/plex/{tai(2)}", f"/|/seal/{key(1).verifier}"),
    f"/|/seal/{key(2).verifier}/{tai(1)}",
    f"/|/plex/{tai(1)}/{PLEXES[0].id}",
]
SMALL = Settings(store_cache_bytes=1 << 20)

indexes = st.integers(0, len(RECORDS) - 1)
batches = st.lists(indexes, max_size=8)
prefixes = st.sampled_from([*PREFIXES, *COORDINATES])


def same(snapshot: Snapshot) -> list[Any]:
    """What two stores in the same state agree on."""
    totals = snapshot.totals()
    return [
        totals.records,
        totals.record_bytes,
        [record.id for record in snapshot.records()],
        [found.id for found in snapshot.listing()],
        [snapshot.count(name) for name in RECORD_PREDICATES],
        [snapshot.has(name) for name in HASHES],
    ]


class TwoStores(RuleBasedStateMachine):
    """Admissions, removals and questions, to both stores at once."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lace-stateful-"))
        self.memory = MemoryStore()
        self.sqlite = self.opened()
        self.held: list[tuple[ExitStack, Snapshot, Snapshot, list[Any]]] = []
        self.used: dict[int, str] = {}
        self.high_water = 0

    def opened(self) -> SqliteStore:
        return SqliteStore(self.folder / "lace", create=True, settings=SMALL)

    @initialize(batch=batches)
    def begin(self, batch: list[int]) -> None:
        self.admit(batch)

    @rule(batch=batches)
    def admit(self, batch: list[int]) -> None:
        records = [PROVEN[index] for index in batch]
        given = self.sqlite.admit(records)
        expected = self.memory.admit(records)
        assert (len(given.stored), given.known) == (len(expected.stored), expected.known)
        assert list(given.stored) == sorted(set(given.stored))
        assert not self.used.keys() & set(given.stored), "a StoreRecordId was used again"
        if given.stored:
            assert given.stored[0] > self.high_water
            self.high_water = given.stored[-1]
            with self.sqlite.snapshot() as snapshot:
                for found in snapshot.listing():
                    known = self.used.setdefault(found.store_record_id, found.id)
                    assert known == found.id

    @rule(batch=batches)
    def remove(self, batch: list[int]) -> None:
        names = [HASHES[index] for index in batch]
        assert self.sqlite.remove(names) == self.memory.remove(names)

    @rule()
    def reopen(self) -> None:
        if not self.held:
            self.sqlite.close()
            self.sqlite = self.opened()

    @precondition(lambda self: len(self.held) < 3)
    @rule()
    def hold_snapshots(self) -> None:
        stack = ExitStack()
        one = stack.enter_context(self.sqlite.snapshot())
        two = stack.enter_context(self.memory.snapshot())
        self.held.append((stack, one, two, same(two)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release_snapshots(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        stack, one, two, then = self.held.pop(index)
        assert same(one) == then
        assert same(two) == then
        stack.close()

    @rule(
        prefix=prefixes,
        order=st.sampled_from(Order),
        reverse=st.booleans(),
        limit=st.none() | st.integers(0, 30),
    )
    def list_records(self, prefix: str, order: Order, reverse: bool, limit: int | None) -> None:
        def ask(store: RecordStore) -> list[Any]:
            with store.snapshot() as snapshot:
                found = snapshot.listing(prefix, order=order, reverse=reverse, limit=limit)
                return [
                    (entry.id, entry.size, entry.coordinate, entry.tai, entry.signed_by)
                    for entry in found
                ]

        assert ask(self.sqlite) == ask(self.memory)

    @rule(coordinate=st.sampled_from(COORDINATES), narrowing=st.sampled_from(NARROWINGS))
    def find(self, coordinate: str, narrowing: str) -> None:
        def ask(store: RecordStore) -> list[Any]:
            with store.snapshot() as snapshot:
                return [found.id for found in snapshot.find(parse_address(coordinate + narrowing))]

        assert ask(self.sqlite) == ask(self.memory)

    @rule(index=indexes)
    def read_one(self, index: int) -> None:
        def ask(store: RecordStore) -> list[Any]:
            with store.snapshot() as snapshot:
                name = HASHES[index]
                known = snapshot.describe(name)
                facts = [Counter(snapshot.query(kind, name)) for kind in RECORD_PREDICATES]
                size = known.size if known else None
                return [snapshot.read(name), snapshot.load(name), size, facts]

        assert ask(self.sqlite) == ask(self.memory)

    @rule(predicate=st.sampled_from([*RECORD_PREDICATES, "Nothing"]), order=st.sampled_from(Order))
    def read_all(self, predicate: str, order: Order) -> None:
        def ask(store: RecordStore) -> list[Any]:
            with store.snapshot() as snapshot:
                facts = Counter(snapshot.iterate(predicate))
                return [facts, [record.id for record in snapshot.records(order=order)]]

        assert ask(self.sqlite) == ask(self.memory)

    @invariant()
    def states_are_equal(self) -> None:
        with self.sqlite.snapshot() as one, self.memory.snapshot() as two:
            assert same(one) == same(two)
            assert one.totals().high_water == self.high_water

    def teardown(self) -> None:
        for stack, *_rest in self.held:
            stack.close()
        self.sqlite.close()
        shutil.rmtree(self.folder)


TwoStores.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestTwoStores = pytest.mark.property(TwoStores.TestCase)
