"""An open lace: add, read, list and remove records, import, verify, ask questions."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Self

from lace.api.records import (
    admit_records,
    as_identifier,
    find_records,
    load_records,
    sorted_facts,
)
from lace.api.system import now, opened_file, processors, read_chunks, writing_file
from lace.base.arguments import check_argument, check_callable, check_count
from lace.record.paths import parse_address
from lace.record.validate import parse_record
from lace.store.intake import Intake, Report, import_stream
from lace.store.keys import KeyRing
from lace.store.sqlite.store import Operation, SqliteStore
from lace.store.sqlite.verify import Damage, Verification, verify_store
from lace.store.validation import batches_alone, helpful_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from lace.api.tables import Table, Versions
    from lace.base.limits import Settings
    from lace.engine.budget import Statistics, Supervisor
    from lace.errors import Finding
    from lace.facts.lines import Fact
    from lace.link.side import Side
    from lace.policy.disclosure import Disclosure
    from lace.policy.local import Exposing, Policy
    from lace.policy.local import Rules as PolicyRules
    from lace.query.evaluate import Rules
    from lace.query.preview import Preview
    from lace.query.result import Result
    from lace.query.store_query import StoreQuestions
    from lace.record.ids import RecordId
    from lace.record.model import Record
    from lace.record.seal import SigningKey
    from lace.rules.limits import Limits
    from lace.rules.program import CheckedProgram
    from lace.store.interface import Admission, StoredRecord
    from lace.store.sqlite.snapshot import SqliteSnapshot


__all__ = ["Damage", "Lace", "LaceStatus", "Verification"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaceStatus:
    """What a lace holds: records, keys, and the sizes of its files."""

    lace: str
    records: int
    record_bytes: int
    high_water: int
    keys: int
    default_key: str | None
    store_version: int
    database_bytes: int
    wal_bytes: int
    segments_records: int
    segments_bytes: int


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Lace:
    """An open lace; use it in a `with` block. One is for one thread."""

    keys: KeyRing
    """The signing keys of the lace."""

    def __init__(self, store: SqliteStore, settings: Settings) -> None:
        check_argument(store, SqliteStore, "store is an open store", "open a lace with lace.open")
        self.store = store
        self.settings = settings
        self.keys = KeyRing(store.folder / "keys", os.urandom)
        self._questions: StoreQuestions | None = None

    def __repr__(self) -> str:
        store = self.store
        state = ", closed" if store.is_closed else ", read only" if store.read_only else ""
        return f"<Lace {str(store.folder)!r}{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the lace."""
        self.store.close()

    def again(self, purpose: str = "lace.open") -> Lace:
        """Open the same lace once more, with the same settings, for another thread."""
        store = self.store
        opened = SqliteStore(
            store.folder, read_only=store.read_only, settings=self.settings, purpose=purpose
        )
        return Lace(opened, self.settings)

    @contextmanager
    def side(
        self,
        policy: Policy,
        key: SigningKey | None,
        *,
        receipt_key: SigningKey | None = None,
        workers: int | None = None,
        purpose: str = "lace.connect",
    ) -> Iterator[Side]:
        """Open the same lace once more as one side of an exchange, until the end of the block.

        Args:
            policy: what this side selects and exposes.
            key: who it is; None for nobody.
            receipt_key: signs a receipt for each record that comes; None: no receipts.
            workers: processes that validate records; else as many as an import has.
            purpose: what this process is doing, for processes that wait for it.
        """
        from lace.link.side import Side

        with self.again(purpose) as own:
            count = own.workers if workers is None else workers
            yield Side(own.store, own.settings, policy, key, count, receipt_key=receipt_key)

    def __len__(self) -> int:
        with self.store.snapshot() as snapshot:
            return snapshot.totals().records

    def __contains__(self, identifier: object) -> bool:
        with self.store.snapshot() as snapshot:
            return isinstance(identifier, str) and snapshot.has(identifier)

    def snapshot(self) -> AbstractContextManager[SqliteSnapshot]:
        """Open a consistent view of the lace."""
        return self.store.snapshot()

    def add(self, record: Record | bytes) -> RecordId:
        """Store a record, a value or its bytes, and return its identifier.

        Raises:
            RecordError: the bytes are not a valid record.
            StoreError: it could not be stored.
        """
        return self.add_all([record])[0]

    def add_all(self, records: Iterable[Record | bytes]) -> list[RecordId]:
        """Store records and return their identifiers, in order; all of them or none."""
        return self.admit(records)[0]

    def admit(self, records: Iterable[Record | bytes]) -> tuple[list[RecordId], Admission]:
        """Store records as `add_all` does; also tells which of them are new here."""
        return admit_records(self.store, self.settings, records)

    def remove(self, *identifiers: str) -> int:
        """Take records out of the lace; returns how many were there.

        Raises:
            RecordError: one is no record hash; nothing is removed then.
        """
        return self.store.remove([as_identifier(identifier) for identifier in identifiers])

    def get(self, address: str) -> Record | None:
        """Return the record of a hash, or the tip of a coordinate, or None."""
        with self.store.snapshot() as snapshot:
            found = snapshot.find(parse_address(address), limit=1)
            raw = snapshot.read(found[0].id) if found else None
        return parse_record(raw, max_data_bytes=len(raw)) if raw is not None else None

    def find(self, address: str) -> list[StoredRecord]:
        """Return the records that an address names, the tip first."""
        with self.store.snapshot() as snapshot:
            return snapshot.find(parse_address(address))

    def records(
        self,
        prefix: str = "",
        *,
        sort: str = "coordinate",
        reverse: bool = False,
        limit: int | None = None,
    ) -> Table[StoredRecord]:
        """Return the records whose coordinate starts with a text, as a table that is read lazily.

        Args:
            prefix: the beginning of `//group//app//name`; nothing for all records.
            sort: by `coordinate`, `tai`, `stored` or `id`; records without it come last.
            reverse: the largest first.
            limit: at most this many.

        Raises:
            UsageError: there is no such order.
        """
        from lace.api.tables import list_records

        return list_records(self.store, prefix, sort=sort, reverse=reverse, limit=limit)

    def coordinates(self, prefix: str = "", *, limit: int | None = None) -> Table[Versions]:
        """Return the coordinates that start with a text, each with its newest record.

        Args:
            prefix: the beginning of `//group//app//name`; nothing for all of them.
            limit: at most this many.
        """
        from lace.api.tables import list_coordinates

        return list_coordinates(self.store, prefix, limit=limit)

    def facts(self, *addresses: str) -> Iterator[Fact]:
        """Yield the facts of all records, or of some, in the order of their fact lines.

        Args:
            addresses: hashes, or coordinates, which mean their newest version.

        Raises:
            NotFoundError: a record is not in the lace.
        """
        with self.store.snapshot() as snapshot:
            for lines in sorted_facts(snapshot, self.settings.max_value_bytes, addresses):
                yield from (fact for _line, fact in lines)

    def query(
        self,
        rules: Rules,
        *,
        engine: str = "embedded",
        predicates: Iterable[str] | None = None,
        statistics: Statistics | None = None,
        snapshot: SqliteSnapshot | None = None,
        limits: Limits | None = None,
        supervisor: Supervisor | None = None,
    ) -> Result:
        """Evaluate rules over the facts of one state of the lace.

        Asked again after records came or went, only what follows from the change is
        computed. A result is of its moment and does not change.

        Args:
            rules: a `Lacegram`, or its text, for which the settings of the lace give the limits.
            engine: the engine's name; `spark` computes all again each time.
            predicates: what is wanted, as `"Selected/1"`; else all that the rules define.
                The others are evaluated when the result is asked for them.
            statistics: where to note what is done.
            snapshot: the state to ask; else the present one.
            limits: by the names of their settings, as `{"max_work": 1_000_000}`; the others are
                those of the lace, or for a `Lacegram` its own if none is given.
            supervisor: watches the embedded engine, as a `lace.engine.budget.Cancellation`
                that another thread may cancel.

        Raises:
            RuleError: the rules are not legal.
            LimitExceeded: a limit was reached; there is no part of an answer.
            UsageError: the rules do not define one of the predicates, or there is no such engine.
            EngineError: what the engine needs is not installed, or the supervisor has stopped
                the evaluation (`EvaluationCancelled`).
        """
        return self._asking().ask(
            rules, engine, predicates, statistics, snapshot, supervisor, limits=limits
        )

    def check(self, *rules: Policy | Rules) -> tuple[Finding, ...]:
        """Return what looks wrong with rules once the records here are known.

        That is each name of a field, a group or an app that the rules ask for and no record here
        has; where a close one is here, the finding's hint names it. What looks wrong with the
        rules alone is in their own `warnings`.

        Args:
            rules: policies, of which the selector and all exposures are looked at; or rules, a
                `Lacegram` or its text.

        Raises:
            RuleError: the rules are not legal.
        """
        from lace.policy.local import Policy, modules_of
        from lace.query.evaluate import check_rules
        from lace.query.store_query import find_strange_names
        from lace.rules.limits import limits_of

        programs: list[CheckedProgram] = []
        for each in rules:
            if isinstance(each, Policy):
                programs += modules_of(each)
            else:
                programs.append(check_rules(each, limits=limits_of(self.settings)))
        return find_strange_names(self.store, programs)

    def _asking(self) -> StoreQuestions:
        if self._questions is None:
            from lace.query.store_query import StoreQuestions

            self._questions = StoreQuestions(self.store, self.settings)
        return self._questions

    def preview(
        self,
        policy: Policy,
        peer_select: PolicyRules,
        *,
        index: int = 0,
        viewer: str | None = None,
        public: Iterable[Fact] = (),
        at: str | None = None,
    ) -> Preview:
        """Return what an exchange with a peer would send and request, without any peer.

        Args:
            policy: this side's.
            peer_select: the peer's selector, which gets the limits of a peer's rules.
            index: the operand that this side is: 0 connects, 1 accepts.
            viewer: the peer's proven verifier; without one the peer has proven nothing.
            public: what the peer advertises (`Advertised`, `AdvertisedField`), and runtime
                facts such as `StartTAI`; `Peer` of the viewer is added when it is missing.
            at: the TAI instant that exposures read as `_LocalTAI`; else that of the clock,
                floored to the tick interval, as in an exchange.

        Raises:
            RuleError: the peer's selector is not legal.
            PolicyError: the viewer is no verifier, or there is no plan for these two.
            LimitExceeded: a limit was reached; there is no part of an answer.
        """
        from lace.query.preview import local_instant, preview_policy

        return preview_policy(
            self.store,
            self.settings,
            policy,
            peer_select,
            index=index,
            viewer=viewer,
            public=public,
            at=local_instant(self.settings, at, now),
        )

    def disclose(
        self,
        policy: Policy | Iterable[Exposing],
        viewer: str,
        *,
        peer_select: PolicyRules | None = None,
        public: Iterable[Fact] = (),
        lowering: str | None = None,
        at: str | None = None,
        allow_undefined: Iterable[str] = (),
        fields: Iterable[str] | None = None,
        all_fields: bool = False,
    ) -> Disclosure:
        """Return what a viewer may query of this lace, what that shows, and what would be sent.

        Args:
            policy: this side's, or exposures alone.
            viewer: the peer's proven verifier.
            peer_select: the peer's selector, to know what would be sent: what both selectors
                choose, or with exposures alone what the peer's chooses.
            public: what the peer advertises, and runtime facts; `Peer` of the viewer is added
                when it is missing.
            lowering: what is asked beyond selection, for exposures alone; a policy has one.
            at: the TAI instant that exposures read as `_LocalTAI`; else that of the clock.
            allow_undefined: predicates that nobody defines on purpose, for exposures alone.
            fields: the fields that advertisements may carry, for exposures alone; a policy has
                its own.
            all_fields: offer all fields, for exposures alone.

        Raises:
            RuleError: rules are not legal.
            PolicyError: the viewer is no verifier, or there is no such lowering.
            LimitExceeded: a limit was reached; there is no part of an answer.
        """
        from lace.query.preview import disclose_policy, local_instant

        return disclose_policy(
            self.store,
            self.settings,
            policy,
            viewer,
            peer_select=peer_select,
            public=public,
            lowering=lowering,
            at=local_instant(self.settings, at, now),
            allow_undefined=allow_undefined,
            fields=fields,
            all_fields=all_fields,
        )

    def signing_key(self) -> SigningKey | None:
        """Return the default key of this lace, if it has one."""
        default = self.keys.default()
        return None if default is None else self.keys.load(default)

    def import_file(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        *,
        admit_embedded: bool = False,
        report: Report | None = None,
    ) -> Intake:
        """Store every valid record of a file or stream; a bad one never stops the good ones.

        Raises:
            UsageError: there is no such file.
            StoreError: the records could not be stored.
        """
        check_callable(report, "report hears of progress")
        with opened_file(source) as (file, name, size):
            return import_stream(
                self.store,
                read_chunks(file),
                settings=self.settings,
                random_bytes=os.urandom,
                workers=self.workers,
                alone=batches_alone(self.settings),
                source=name,
                size=size,
                admit_embedded=admit_embedded,
                report=report,
            )

    def export(self, target: str | os.PathLike[str] | IO[bytes], *addresses: str) -> int:
        """Write the bytes of records, one after another, and return how many records that were.

        Args:
            target: a path, which appears when all is written, or a file that takes bytes.
            addresses: hashes, or coordinates, which mean their newest version; without any, all
                records in the order of storing.

        Raises:
            NotFoundError: a record is not in the lace; nothing is written then.
            StoreError: the file cannot be written.
        """
        count = 0
        with self.store.snapshot() as snapshot:
            found = [stored.id for stored in find_records(snapshot, addresses)]
            with writing_file(target) as file:
                for record in load_records(snapshot, found if addresses else None):
                    file.write(record.bytes)
                    count += 1
        return count

    def verify(self, report: Callable[[Verification], None] | None = None) -> Verification:
        """Check everything that the lace holds, signatures included."""
        check_callable(report, "report hears of progress")
        with self.store.snapshot() as snapshot:
            return verify_store(
                snapshot,
                settings=self.settings,
                random_bytes=os.urandom,
                workers=self.workers,
                alone=batches_alone(self.settings),
                report=report,
            )

    @property
    def workers(self) -> int:
        """How many validation processes a large import uses."""
        return self.settings.import_workers or helpful_workers(processors())

    def status(self) -> LaceStatus:
        """Return what the lace holds: records, keys, and the sizes of its files."""
        segments = self.store.segments
        state = segments.state()
        with self.store.snapshot() as snapshot:
            totals = snapshot.totals()
        path = self.store.path
        return LaceStatus(
            lace=str(self.store.folder.resolve()),
            records=totals.records,
            record_bytes=totals.record_bytes,
            high_water=totals.high_water,
            keys=len(self.keys.verifiers()),
            default_key=self.keys.default(),
            store_version=self.store.version,
            database_bytes=_size(path),
            wal_bytes=_size(path.with_name(f"{path.name}-wal")),
            segments_records=state[1].records if state else 0,
            segments_bytes=segments.size(),
        )

    def log(self, operation: Operation) -> None:
        """Add an operation to the lace's log."""
        check_argument(operation, Operation, "operation is an Operation")
        self.store.append_operation(operation)

    def operations(self, limit: int | None = None) -> list[Operation]:
        """Return the newest operations, the oldest of them first."""
        check_count(limit, "a limit")
        return self.store.operations(limit)
