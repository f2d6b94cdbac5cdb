"""The facts of a store as base facts that stay up to date, as exchanges and queries read them.

A `StoreFollower` holds the facts of one open lace and whatever was built on them, and
brings both up to date from what changed since it looked last. Only facts that somebody
reads are made of records that come.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from lace.algebra.lower import lower_program
from lace.algebra.nodes import scans_of
from lace.base.limits import MIB
from lace.columns.relation import NAME_AT, PARTITIONED
from lace.columns.segment_journal import SegmentDamagedError
from lace.engine.factbase import RecordBase
from lace.facts.extract import facts_of_records
from lace.rules.syntax import Constant, PredicateKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lace.algebra.nodes import RelationalProgram
    from lace.engine.factbase import Changes, FactBase
    from lace.facts.extract import Reads
    from lace.record.ids import RecordId
    from lace.record.validate import ValidRecord
    from lace.rules.program import CheckedProgram
    from lace.store.interface import Admission
    from lace.store.sqlite.connection import StoreCounters
    from lace.store.sqlite.fact_state import FactState


_MAX_CHANGE: Final = 50_000
"""Records that may have come or gone for a session to follow; beyond, it starts again."""
_MANY: Final = 512
"""Records beyond which their stored facts are read, not they themselves."""
_MUCH_BYTES: Final = 4 * MIB
"""This many bytes of records are too many, too: no more of them are remembered."""
_HAVE: Final = PredicateKey("Have", 1)


class Follows(Protocol):
    """What is built on base facts and told of their changes."""

    def update(self, changes: Changes) -> object:
        """Take in a change that the base facts have made."""
        ...


Session = TypeVar("Session", bound=Follows)
Answer = TypeVar("Answer")


class StoreFollower(Generic[Session]):
    """The facts of a store and what is built on them."""

    def __init__(
        self, store: ExchangeStore, begin: Callable[[FactBase], Session], *, max_value_bytes: int
    ) -> None:
        self._store = store
        self._begin = begin
        self._max_value_bytes = max_value_bytes
        self._records: RecordBase | None = None
        self._session: Session | None = None
        self._reads: dict[str, frozenset[str] | None] = {"Have": None}
        self._noted: set[CheckedProgram] = set()
        self._is_partial = False
        self._high_water = 0
        self._removal_sequence = 0
        self._record_bytes = 0

    @property
    def position(self) -> tuple[int, int]:
        """The last StoreRecordId and removal that was taken in."""
        return self._high_water, self._removal_sequence

    def read(self, predicate: str, names: frozenset[str] | None = None) -> None:
        """See that facts of a predicate are made of records that come, or of some names only."""
        if self._widen({predicate: names}):
            self._forget()

    def ask(self, *programs: CheckedProgram, question: Callable[[Session], Answer]) -> Answer:
        """Return the answer to a question for the store as it is now.

        Programs that read the store's facts for it are named; damage that shows in stored
        facts is mended by making them again from the records.
        """
        try:
            return question(self._ready(programs))
        except SegmentDamagedError:
            self._forget()
            self._store.discard_segments()
            return question(self._ready(programs))

    def _ready(self, programs: tuple[CheckedProgram, ...]) -> Session:
        for checked in programs:
            if checked not in self._noted:
                if self._widen(_reads_of(lower_program(checked))):  # of facts that were passed over
                    self._forget()
                self._noted.add(checked)
        return self._refresh()

    def _widen(self, reads: Reads) -> bool:
        """Note what is read; tells whether that is more than what was followed."""
        more = False
        for name, names in reads.items():
            known = self._reads.get(name, frozenset())
            if known is None or (names is not None and names <= known):
                continue
            self._reads[name] = None if names is None else names | known
            more = True
        return more and self._is_partial

    def _forget(self) -> None:
        self._records = self._session = None

    def _refresh(self) -> Session:
        if self._records is None or self._session is None:
            return self._open()
        with self._store.snapshot() as snapshot:
            counters = snapshot.counters()
            sequence = counters.removal_sequence or 0
            behind = (self._high_water, self._removal_sequence)
            self._records.check_files()
            if behind == (counters.high_water, sequence):
                return self._session
            come, gone = counters.high_water - behind[0], sequence - behind[1]
            size = counters.record_bytes - self._record_bytes
            is_long = (come > _MANY or size > _MUCH_BYTES) and not gone
            if not is_long and max(come, gone) <= _MAX_CHANGE:
                with self._whole_or_forgotten():
                    followed = self._follow(self._records, self._session, snapshot, counters)
                if followed:
                    self._high_water, self._removal_sequence = counters.high_water, sequence
                    self._record_bytes = counters.record_bytes
                    return self._session
        if is_long:
            with self._whole_or_forgotten():
                followed = self._follow_columns(self._records, self._session)
            if followed:
                return self._session
        return self._open()

    @contextmanager
    def _whole_or_forgotten(self) -> Iterator[None]:
        """See that nothing is built upon what is half done."""
        try:
            yield
        except BaseException:
            self._forget()
            raise

    def _open(self) -> Session:
        self._forget()
        with self._store.fact_snapshot() as (snapshot, state):
            self._records = record_base(state, self._max_value_bytes)
            self._high_water, self._removal_sequence = state.high_water, state.removal_sequence
            self._record_bytes = snapshot.counters().record_bytes
        self._is_partial = False
        self._session = self._begin(self._records.base)
        return self._session

    def _follow(
        self,
        records: RecordBase,
        session: Session,
        snapshot: ExchangeSnapshot,
        counters: StoreCounters,
    ) -> bool:
        """Bring the session up to date with a snapshot, unless part of the way is not known.

        Removals that segments cover are forgotten by the store. A session that has not seen
        them cannot follow; nor one that would not end with just as many records.
        """
        log = snapshot.removals(self._removal_sequence)
        if len(log) != (counters.removal_sequence or 0) - self._removal_sequence:
            return False
        removed = sorted({text for _, text in log})
        held = {text for text, here in zip(removed, records.has(removed), strict=True) if here}
        gone = [text for text in sorted(held) if not snapshot.has(text)]
        # A record that is held and new in the store was removed and came back meanwhile.
        new = snapshot.new_records(self._high_water)
        come = [record for record in new if not held or record.hash_text not in held]
        if records.count + len(come) - len(gone) != counters.records:
            return False
        facts = facts_of_records(come, max_value_bytes=self._max_value_bytes, reads=self._reads)
        self._is_partial = self._is_partial or bool(come)
        session.update(records.change(facts, gone))
        records.count += len(come) - len(gone)
        return True

    def _follow_columns(self, records: RecordBase, session: Session) -> bool:
        """Bring the session up to date from the stored facts of records that came.

        That takes a fraction of the time that reading the records does.
        """
        with self._store.fact_snapshot() as (snapshot, state):
            size = snapshot.counters().record_bytes
            if state.segments is None or len(state.removed):
                return False
            if state.removal_sequence != self._removal_sequence:
                return False
            tail = [each.hash_text for each in state.tail]
            known = records.has(tail)
            later = [each for each, here in zip(state.tail, known, strict=True) if not here]
            facts = facts_of_records(
                later, max_value_bytes=self._max_value_bytes, reads=self._reads
            )
            changes = records.extend(state.segments, self._reads, facts)
        if changes is None:
            return False
        self._is_partial = True
        come = changes.added.get(_HAVE)
        if records.count + (come.rows if come is not None else 0) != state.records:
            self._forget()
            return False
        records.count = state.records
        session.update(changes)
        self._high_water, self._record_bytes = state.high_water, size
        return True


def record_base(state: FactState, max_value_bytes: int) -> RecordBase:
    """Return the facts of one state of a store."""
    return RecordBase(
        state.segments,
        state.removed,
        state.tail_facts(max_value_bytes),
        max_value_bytes=max_value_bytes,
    )


def _reads_of(program: RelationalProgram) -> Reads:
    """Return what a program reads of records' facts."""
    reads: dict[str, frozenset[str] | None] = {}
    for step in program.steps:
        for branch in step.branches:
            for scan, _ in scans_of(branch.plan):
                name = scan.predicate.name
                if name not in PARTITIONED:
                    reads[name] = None
                    continue
                at = scan.terms[NAME_AT] if len(scan.terms) > NAME_AT else None
                known = reads.get(name, frozenset())
                if not isinstance(at, Constant) or known is None:
                    reads[name] = None
                else:
                    reads[name] = known | {at.value}
    return reads


# -- What an exchange needs of a store: its records' bytes and facts, and a place for new ones.
#
# A lace is one; so is a warehouse, which takes no records.


class ExchangeSnapshot(Protocol):
    """One consistent state of a store, as an exchange reads it."""

    def counters(self) -> StoreCounters:
        """Return all counters of this state."""
        ...

    def removals(self, after: int) -> list[tuple[int, RecordId]]:
        """Return the removals with a sequence above `after`: it, and which record."""
        ...

    def has(self, identifier: str) -> bool:
        """Tell whether the record is stored here in its own right."""
        ...

    def new_records(self, after: int) -> list[ValidRecord]:
        """Return the records with a StoreRecordId above `after`."""
        ...

    def bytes_of(self, identifiers: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of those records that are here, checked against their hashes."""
        ...


class ExchangeStore(Protocol):
    """A store as one side of an exchange."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether nothing is ever written to it."""
        ...

    def snapshot(self) -> AbstractContextManager[ExchangeSnapshot]:
        """Open a consistent view."""
        ...

    def fact_snapshot(self) -> AbstractContextManager[tuple[ExchangeSnapshot, FactState]]:
        """Open a consistent view together with its facts."""
        ...

    def discard_segments(self) -> None:
        """Give up stored facts in which damage was found."""
        ...

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        """Store every record that is not there yet: all of them, or on any failure none."""
        ...
