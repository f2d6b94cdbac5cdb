"""The front door: open a lace, add, read and remove records, import, verify, ask questions.

Here the outside world comes in: the clock, randomness, files, processors. Everything
below takes them as arguments.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

from lace.base.limits import MAX_LINE_BYTES, Settings, Source, resolve_settings
from lace.base.tai import Tai
from lace.errors import RecordError, SettingError, StoreError, UsageError
from lace.record.ids import RecordId
from lace.record.model import Plex, Record
from lace.record.paths import parse_address
from lace.record.seal import SigningKey
from lace.record.validate import ValidRecord, frame_record, parse_record, validate_many
from lace.store.intake import Intake, Report, import_stream
from lace.store.keys import KeyRing
from lace.store.sqlite.store import Operation, SqliteStore
from lace.store.sqlite.verify import Verification, verify_store
from lace.store.validation import ALONE_BATCHES, helpful_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from lace.algebra.evaluator import Answer
    from lace.engines.budget import Statistics
    from lace.engines.embedded.engine import Evaluation
    from lace.engines.queries import Rules
    from lace.engines.result import Result
    from lace.exchanging import Side
    from lace.facts.lines import Fact
    from lace.policy.disclosure import Disclosure
    from lace.policy.local import Exposing, Policy
    from lace.policy.local import Rules as PolicyRules
    from lace.previewing import Preview
    from lace.querying import StoreSession
    from lace.record.reader import RawRecord
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey
    from lace.store.interface import Admission, StoredRecord
    from lace.store.sqlite.snapshot import SqliteSnapshot

__all__ = [
    "SETTINGS_FILE",
    "Lace",
    "Result",
    "SigningKey",
    "evaluate",
    "now",
    "open_lace",
    "parse_record",
    "processors",
    "read_chunks",
    "read_settings_file",
]

SETTINGS_FILE: Final = "lace.toml"
_CHUNK_BYTES: Final = 1 << 20


def now() -> Tai:
    """Return the clock's reading as a TAI instant."""
    return Tai.from_unix_nanoseconds(time.time_ns())


# The two things that a record value cannot do without the outside world.
Plex.clock = now
SigningKey.random_source = os.urandom


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's bytes in pieces of bounded size, each as soon as it is there."""
    read = getattr(file, "read1", file.read)  # what a slow pipe has now, not what fills the piece
    while chunk := read(_CHUNK_BYTES):
        yield chunk


def read_settings_file(path: Path) -> Source:
    """Return the settings that a `lace.toml` gives; tables in it belong to other parts."""
    try:
        text = path.read_text("utf-8")
        if all(line.startswith("#") or not line for line in text.split("\n")):
            return Source(str(path), {})  # as `lace init` writes it; the parser need not be loaded
        import tomllib

        values = tomllib.loads(text)
    except FileNotFoundError:
        return Source(str(path), {})
    except (OSError, ValueError) as error:  # not readable, not UTF-8, or not TOML
        raise SettingError(f"{path} cannot be read: {error}") from error
    return Source(str(path), {k: v for k, v in values.items() if not isinstance(v, dict)})


def evaluate(rules: Rules, facts: Iterable[Sequence[str]], engine: str = "embedded") -> Result:
    """Evaluate rules over facts; no lace is needed.

    >>> result = evaluate("Path(X,Y) :- Edge(X,Y).", [("Edge", "a", "b")])
    >>> result["Path/2"]
    frozenset({('a', 'b')})

    Args:
        rules: a `Lacegram`, or its text, which may read every predicate that the facts have.
        facts: tuples of a predicate's name and its values.
        engine: the engine's name.

    Raises:
        RuleError: the rules are not legal, or define a predicate that there are facts of.
        LimitExceeded: a limit was reached; there is no part of an answer.
        EngineError: something among the facts is no fact, or the engine is not installed.
    """
    from lace.engines.queries import evaluate_rules

    return evaluate_rules(rules, facts, engine=engine)


def open_lace(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    settings: Mapping[str, object] | None = None,
    purpose: str = "lace.open",
) -> Lace:
    """Open the lace in a folder; make it when it is not there.

    Args:
        path: the lace's folder.
        create: make the lace when there is none; a folder of something else is refused.
        read_only: never write to it.
        settings: settings by name, over those of the folder's `lace.toml`.
        purpose: what this process is doing, for whoever waits for it.

    Raises:
        StoreError: there is no lace, it is damaged, or the disk does not let it be opened.
    """
    folder = Path(path)
    sources = [read_settings_file(folder / SETTINGS_FILE), Source("the caller", settings or {})]
    resolved, _origins = resolve_settings(sources)
    store = SqliteStore(
        folder, create=create, read_only=read_only, settings=resolved, purpose=purpose
    )
    return Lace(store, resolved)


class Lace:
    """An open lace; use it in a `with` block. One is for one thread."""

    def __init__(self, store: SqliteStore, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.keys = KeyRing(store.folder / "keys", os.urandom)
        self._session: StoreSession | None = None

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
        workers: int | None = None,
        purpose: str = "lace.connect",
    ) -> Iterator[Side]:
        """Open the same lace once more as one side of an exchange, until the end of the block.

        Args:
            policy: what this side selects and exposes.
            key: who it is; None for nobody.
            workers: processes that validate records; else as many as an import has.
            purpose: what this process is doing, for whoever waits for it.
        """
        from lace.exchanging import Side

        with self.again(purpose) as own:
            count = own.workers if workers is None else workers
            yield Side(own.store, own.settings, policy, key, count)

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
        frames = [self._frame(record) for record in records]
        outcomes = validate_many(frames, os.urandom)
        valid: list[ValidRecord] = []
        for outcome in outcomes:
            if isinstance(outcome, RecordError):
                raise outcome
            valid.append(outcome)
        admission = self.store.admit(valid)
        return [record.id for record in valid], admission

    def _frame(self, record: Record | bytes) -> RawRecord:
        raw: object = getattr(record, "bytes", record)
        if not isinstance(raw, bytes):
            raise RecordError(
                f"a record is a Blob, a Plex, a Seal or its bytes, not {type(record).__name__}",
                rule="010-data",
                hint="make one, as with lace.Blob(data)",
            )
        return frame_record(raw, self.settings.max_data_bytes)

    def remove(self, *identifiers: str) -> int:
        """Take records out of the lace; returns how many were there.

        Raises:
            RecordError: one is no record hash; nothing is removed then.
        """
        return self.store.remove([_as_identifier(identifier) for identifier in identifiers])

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

    def query(
        self,
        rules: Rules,
        *,
        engine: str = "embedded",
        predicates: Iterable[str] | None = None,
        statistics: Statistics | None = None,
        snapshot: SqliteSnapshot | None = None,
    ) -> Result:
        """Evaluate rules over the facts of one state of the lace.

        Asked again after records came or went, only what follows from the change is
        computed. A result is of its moment and does not change.

        Args:
            rules: a `Lacegram`, or its text, for which the settings of the lace give the limits.
            engine: the engine's name; `spark` computes all anew each time.
            predicates: what is wanted, as `"Selected/1"`; else all that the rules define.
                The others are evaluated when the result is asked for them.
            statistics: where to note what is done.
            snapshot: the state to ask; else the present one.

        Raises:
            RuleError: the rules are not legal.
            LimitExceeded: a limit was reached; there is no part of an answer.
            UsageError: the rules do not define one of the predicates, or there is no such engine.
            EngineError: what the engine needs is not installed.
        """
        from lace.engines.queries import check_engine, check_rules, find_predicates
        from lace.engines.result import Result
        from lace.rules.limits import limits_of

        check_engine(engine)
        checked = check_rules(rules, limits=limits_of(self.settings))
        if isinstance(predicates, str):
            predicates = [predicates]
        wanted = None if predicates is None else find_predicates(checked, predicates)
        ask = self._evaluate_on_spark if engine == "spark" else self._evaluate
        answer: Answer = ask(checked, wanted, statistics, snapshot)
        return Result(checked, answer, self._discard_segments)

    def preview(
        self,
        policy: Policy,
        peer_select: PolicyRules,
        *,
        index: int = 0,
        viewer: str | None = None,
        public: Iterable[Fact] = (),
    ) -> Preview:
        """Return what an exchange with a peer would send and request, without any peer.

        Args:
            policy: this side's.
            peer_select: the peer's selector, which gets the limits of a peer's rules.
            index: the operand that this side is: 0 connects, 1 accepts.
            viewer: the peer's proven verifier; without one the peer has proven nothing.
            public: what the peer advertises (`Advertised`, `AdvertisedField`), and runtime
                facts such as `StartTAI`; `Peer` of the viewer is added when there is none.

        Raises:
            RuleError: the peer's selector is not legal.
            PolicyError: the viewer is no verifier, or there is no plan for these two.
            LimitExceeded: a limit was reached; there is no part of an answer.
        """
        from lace.policy.local import prepare_exchange
        from lace.policy.operand import operand_of
        from lace.policy.public_facts import with_peer
        from lace.previewing import preview_store
        from lace.rules.limits import peer_limits_of

        peer = operand_of(peer_select, 1 - index, limits=peer_limits_of(self.settings))
        exchange = prepare_exchange(policy, peer, viewer)
        allowed = self.settings.max_value_bytes
        facts = with_peer(public, viewer)
        return preview_store(exchange, self.store, facts, max_value_bytes=allowed)

    def disclose(
        self,
        policy: Policy | Iterable[Exposing],
        viewer: str,
        *,
        peer_select: PolicyRules | None = None,
        public: Iterable[Fact] = (),
        lowering: str | None = None,
    ) -> Disclosure:
        """Return what a viewer may query of this lace, what that shows, and what would be sent.

        Args:
            policy: this side's, or exposures alone.
            viewer: the peer's proven verifier.
            peer_select: the peer's selector, to know what would be sent: what both selectors
                choose, or with exposures alone what the peer's chooses.
            public: what the peer advertises, and runtime facts; `Peer` of the viewer is added
                when there is none.
            lowering: what is asked beyond selection, for exposures alone; a policy has one.

        Raises:
            RuleError: rules are not legal.
            PolicyError: the viewer is no verifier, or there is no such lowering.
            LimitExceeded: a limit was reached; there is no part of an answer.
        """
        from lace.disclosing import disclose_policy

        return disclose_policy(
            self.store,
            self.settings,
            policy,
            viewer,
            peer_select=peer_select,
            public=public,
            lowering=lowering,
        )

    def signing_key(self) -> SigningKey | None:
        """Return the default key of this lace, if it has one."""
        default = self.keys.default()
        return None if default is None else self.keys.load(default)

    def _discard_segments(self) -> None:
        self._session = None
        self.store.discard_segments()

    def _evaluate_on_spark(
        self,
        checked: CheckedProgram,
        predicates: list[PredicateKey] | None,
        statistics: Statistics | None,
        snapshot: SqliteSnapshot | None,
    ) -> Answer:
        from lace.engines.spark.options import options_of
        from lace.querying import evaluate_on_spark

        return evaluate_on_spark(
            self.store,
            snapshot,
            checked,
            predicates,
            statistics,
            max_value_bytes=self.settings.max_value_bytes,
            options=options_of(self.settings),
        )

    def _evaluate(
        self,
        checked: CheckedProgram,
        predicates: list[PredicateKey] | None,
        statistics: Statistics | None,
        snapshot: SqliteSnapshot | None,
    ) -> Evaluation:
        from lace.querying import StoreSession, evaluate_snapshot, evaluate_values

        allowed = self.settings.max_value_bytes
        if allowed < MAX_LINE_BYTES:  # then values that are stored must be looked at again
            return evaluate_values(self.store, snapshot, checked, predicates, statistics)
        if snapshot is not None:
            return evaluate_snapshot(
                self.store, snapshot, checked, predicates, statistics, max_value_bytes=allowed
            )
        if self._session is None:
            self._session = StoreSession(self.store, max_value_bytes=allowed)
        return self._session.evaluate(checked, predicates, statistics)

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
        with _opened(source) as (file, name, size):
            return import_stream(
                self.store,
                read_chunks(file),
                settings=self.settings,
                random_bytes=os.urandom,
                workers=self.workers,
                alone=0 if self.settings.import_workers else ALONE_BATCHES,
                source=name,
                size=size,
                admit_embedded=admit_embedded,
                report=report,
            )

    def verify(self, report: Callable[[Verification], None] | None = None) -> Verification:
        """Check everything that the lace holds, signatures included."""
        with self.store.snapshot() as snapshot:
            return verify_store(
                snapshot,
                settings=self.settings,
                random_bytes=os.urandom,
                workers=self.workers,
                alone=0 if self.settings.import_workers else ALONE_BATCHES,
                report=report,
            )

    @property
    def workers(self) -> int:
        """How many validation processes a large import uses."""
        return self.settings.import_workers or helpful_workers(processors())

    def log(self, operation: Operation) -> None:
        """Add an operation to the lace's log."""
        self.store.append_operation(operation)

    def operations(self, limit: int | None = None) -> list[Operation]:
        """Return the newest operations, the oldest of them first."""
        return self.store.operations(limit)


def _as_identifier(identifier: object) -> RecordId:
    if isinstance(identifier, str):
        return RecordId(identifier)
    raise RecordError(
        f"a record hash is text, not {type(identifier).__name__}",
        rule="020-01",
        hint="give the record's id",
    )


@contextmanager
def _opened(
    source: str | os.PathLike[str] | IO[bytes],
) -> Iterator[tuple[IO[bytes], str | None, int | None]]:
    if not isinstance(source, (str, os.PathLike)):
        yield source, getattr(source, "name", None) and str(source.name), None
        return
    path = Path(source)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size if path.is_file() else None
            yield file, str(path), size
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise StoreError(f"reading {path} failed: {error.strerror}") from error


if not TYPE_CHECKING:  # a checker knows the name already, and refuses all others

    def __getattr__(name: str) -> object:
        """Load `Result` when it is first asked for: only who names the type needs that."""
        if name != "Result":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from lace.engines.result import Result

        globals()[name] = Result
        return Result
