"""A warehouse behind a server: one state of it, read-only, shared by all links.

Of a state there are in memory where each record is, and the advertisements of the plans that are
asked for. Nothing here starts Spark or Java.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from lace.base.limits import DEFAULT_SETTINGS, MAX_LINE_BYTES
from lace.errors import EngineError, LimitExceeded, Place, StoreError
from lace.exchange.advertisement import Advertisement, is_bare
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.events import Described, EvaluationDone
from lace.exchange.negotiation import runtime_facts
from lace.facts.extract import facts_of_columns
from lace.link.evaluator import StoreEvaluator
from lace.policy.schema import Schema
from lace.rules.profiles import MAY_SEND
from lace.spark.pipeline.advertise import (
    WHOLE,
    claims_of,
    inputs_of,
    read_partitions,
    read_state,
    state_names,
)
from lace.spark.pipeline.derived import answer_table, evaluations, name_of_sending, read_evaluated
from lace.spark.pipeline.facts import HEAD_COLUMNS, facts_of_heads
from lace.spark.pipeline.records import RecordIndex
from lace.spark.pipeline.tables import ADVERTISEMENTS, RECORDS, batches_of
from lace.spark.pipeline.warehouse import (
    WarehouseDamagedError,
    WarehouseFolder,
    WarehouseOutdatedError,
    translate_damage,
)
from lace.store.sqlite.connection import StoreCounters
from lace.store.sqlite.fact_state import FactState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.engine.budget import Supervisor
    from lace.engine.exchange_facts import ClaimTable
    from lace.exchange.effects import Describe, Evaluate
    from lace.exchange.negotiation import Terms
    from lace.facts.extract import FactColumns
    from lace.facts.lines import Fact
    from lace.link.evaluator import ExchangeEvaluator, Known
    from lace.policy.compile import Executable
    from lace.record.ids import RecordId
    from lace.record.validate import ValidRecord
    from lace.spark.pipeline.advertise import AdvertisementState
    from lace.spark.pipeline.warehouse import Manifest
    from lace.store.interface import Admission
    from lace.store.store_view import ExchangeStore


_MOST_HELD: Final = 4
"""Advertisement states that are held in memory; beyond, the one used longest ago is read again."""


def open_served(
    folder: Path,
    before: ServedWarehouse | None = None,
    *,
    most: int = DEFAULT_SETTINGS.warehouse_served_records,
) -> ServedWarehouse:
    """Open the newest state of a warehouse."""
    if util.find_spec("pyarrow") is None:
        raise EngineError("pyarrow is not installed", hint="pip install 'lace[spark]'")
    warehouse = WarehouseFolder.open(folder)
    count = warehouse.manifest.rows(RECORDS)
    if count > most:
        raise LimitExceeded(
            f"the warehouse has {count:,} records, more than are served",
            limit="warehouse_served_records",
            allowed=most,
            observed=count,
            place=Place(str(folder)),
            hint=f"each takes 41 bytes of memory; if there is room, raise the limit, "
            f"warehouse_served_records={most}, with --set warehouse_served_records=N",
        )
    return ServedWarehouse(warehouse, before)


class ServedWarehouse:
    """One state of a warehouse; any thread may ask."""

    def __init__(self, warehouse: WarehouseFolder, before: ServedWarehouse | None = None) -> None:
        self.warehouse = warehouse
        self.index: RecordIndex = RecordIndex(
            warehouse, before.index if before is not None else None
        )
        self._plans = _registered(warehouse)
        self._states = [
            state
            for name in state_names(warehouse.manifest)
            if (state := read_state(warehouse, name)) is not None
            and state.inputs == inputs_of(warehouse.manifest, state.asked.of)
        ]
        self._held: OrderedDict[str, AdvertisementSet] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def generation(self) -> int:
        """The generation of the warehouse."""
        return self.warehouse.manifest.generation

    @property
    def plans(self) -> int:
        """How many exchanges are registered, and up to date."""
        return len(self._plans)

    def find(
        self, executable: Executable, runtime: Iterable[Fact], source: str, schema: Schema
    ) -> AdvertisementSet | None:
        """Return what is advertised in an exchange, if that was computed beforehand."""
        names = self._plans.get(name_of_sending(self.warehouse.manifest, executable, runtime), ())
        tables = {answer_table(name, MAY_SEND) for name in names}
        for state in self._states:
            asked = state.asked
            if asked.of in tables and (asked.source, asked.schema) == (source, schema):
                with self._old_or_damaged():
                    return self._advertisements(state)
        return None

    @contextmanager
    def _old_or_damaged(self) -> Iterator[None]:
        """Tell files that are missing because newer states have replaced them from damage."""
        try:
            yield
        except WarehouseDamagedError as error:
            place = error.place.source if error.place is not None else None
            if place is None or Path(place).exists():
                raise
            newest = self._newest()
            if any(str(self.warehouse.folder / file.path) == place for file in newest.all_files()):
                raise
            raise WarehouseOutdatedError(
                f"generation {self.generation} of the warehouse, which is served, is too old: "
                f"files of it were removed, and generation {newest.generation} is the newest",
                place=Place(str(self.warehouse.folder)),
                hint="send SIGHUP to the server, which takes the newest state then",
            ) from error

    def _newest(self) -> Manifest:
        """Return what the warehouse consists of now; where nobody can tell, of what it did."""
        try:
            return WarehouseFolder.open(self.warehouse.folder).manifest
        except StoreError:
            return self.warehouse.manifest

    def _advertisements(self, state: AdvertisementState) -> AdvertisementSet:
        name = state.asked.name
        with self._lock:  # of several that ask at once, one reads
            found = self._held.get(name)
            if found is None:
                found = self._held[name] = self._read(name)
            self._held.move_to_end(name)
            if len(self._held) > _MOST_HELD:
                self._held.popitem(last=False)
            return found

    def _read(self, name: str) -> AdvertisementSet:
        """Read a state, and compare it with its own root and with the records."""
        table = f"{ADVERTISEMENTS}/{name}"
        records: list[str] = []
        digests: list[bytes] = []
        for path in self.warehouse.files(table):
            with translate_damage(path):
                for batch in batches_of(path, ("record", "digest")):
                    records += batch.column(0).to_pylist()
                    digests += batch.column(1).to_pylist()
        missing = self.index.missing(records)
        if missing:
            raise _damaged(f"{table} has {missing[0]}, and no table has that record")
        found = AdvertisementSet.of(records, digests)
        if (len(found), found.root("")) != read_partitions(self.warehouse, name)[WHOLE]:
            raise _damaged(f"{table} has not the count and root that it had")
        return found

    def describe(
        self, records: Sequence[str], source: str, schema: Schema
    ) -> Iterator[Advertisement]:
        """Yield the advertisements of records, as of a source."""
        reads = {"Field": None if schema.all else schema.names}
        with self._old_or_damaged():
            for path, batch in self.index.rows_of(records, ("hash", *HEAD_COLUMNS)):
                with translate_damage(path):
                    hashes = batch.column("hash").to_pylist()
                    found = claims_of(hashes, facts_of_columns(_columns(batch), reads), source)
                yield from found

    def facts(self) -> Iterator[Fact]:
        """Yield the facts of all records, made of what stands before their data."""
        with self._old_or_damaged():
            for batch in self.index.all_rows(HEAD_COLUMNS):
                yield from facts_of_columns(_columns(batch))

    def bytes_of(self, records: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of those records that are here, checked against their hashes."""
        with self._old_or_damaged():
            yield from self.index.bytes_of(records)

    @property
    def record_bytes(self) -> int:
        """Bytes of the files that records are in."""
        return sum(file.size for file in self.warehouse.manifest.files(RECORDS))


def _columns(batch: object) -> FactColumns:
    """Return the facts of rows; rows that nobody wrote so are damage."""
    try:
        return facts_of_heads(batch)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise _damaged(f"the heads of {RECORDS} cannot be read: {error}") from error


def _registered(warehouse: WarehouseFolder) -> dict[str, list[str]]:
    """Return the names of evaluations by what decides their answers; any may be advertised."""
    found: dict[str, list[str]] = {}
    newest = max((file.generation for file in warehouse.manifest.files(RECORDS)), default=0)
    if newest > warehouse.manifest.facts_generation:
        return found  # there are records that no evaluation has seen
    for name in evaluations(warehouse.manifest):
        known = read_evaluated(warehouse, name)
        if known is not None and known.registration is not None and known.registration.sends:
            found.setdefault(known.registration.sends, []).append(name)
    return found


def _damaged(what: str) -> WarehouseDamagedError:
    return WarehouseDamagedError(
        f"the warehouse is damaged: {what}",
        hint="`lace pipeline verify WAREHOUSE --all` tells more",
    )


# -- A warehouse as the store of one side of an exchange: its records are sent, and it takes none.


class WarehouseStore:
    """A warehouse behind one link; what it shows stays the same within an epoch."""

    def __init__(self, newest: Callable[[], ServedWarehouse]) -> None:
        self._newest = newest
        self._served = newest()

    @property
    def folder(self) -> Path:
        """Where the warehouse is."""
        return self._served.warehouse.folder

    @property
    def read_only(self) -> bool:
        """Nothing is ever written to it."""
        return True

    def renew(self) -> ServedWarehouse:
        """Go on with the newest state that is open, and return it."""
        self._served = self._newest()
        return self._served

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """Open a view of the state."""
        yield _Snapshot(self._served)

    @contextmanager
    def fact_snapshot(self) -> Iterator[tuple[_Snapshot, FactState]]:
        """Open a view of the state together with its facts."""
        yield _Snapshot(self._served), _facts(self._served)

    def discard_segments(self) -> None:
        """Nothing is kept beside the records."""

    def admit(self, records: Sequence[ValidRecord]) -> Admission:
        """Refuse records: none was asked for."""
        raise StoreError(
            f"{len(records):,} records are to be stored in a warehouse, which is only read",
            hint="take records with a lace, and `lace pipeline import-lace WAREHOUSE`",
        )


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One state of a warehouse."""

    served: ServedWarehouse

    def counters(self) -> StoreCounters:
        """Return counters by which states are told apart; they are none of a lace."""
        served = self.served
        return StoreCounters(len(served.index), served.record_bytes, served.generation)

    def removals(self, after: int) -> list[tuple[int, RecordId]]:
        """Nothing is ever removed."""
        return []

    def has(self, identifier: str) -> bool:
        """Tell whether the record is here."""
        return not self.served.index.missing([identifier])

    def new_records(self, after: int) -> list[ValidRecord]:
        """Nothing comes within a state."""
        return []

    def bytes_of(self, identifiers: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of those records that are here, checked against their hashes."""
        return self.served.bytes_of(identifiers)


@dataclass(frozen=True, slots=True)
class _HeadFacts(FactState):
    """The facts of a warehouse: there are no segments, and no records are held."""

    served: ServedWarehouse

    def tail_facts(self, max_value_bytes: int) -> Iterator[Fact]:
        """Yield the facts of all records; the caller checks their length."""
        return self.served.facts()


def _facts(served: ServedWarehouse) -> FactState:
    nothing = np.empty(0, np.int32)
    return _HeadFacts(None, nothing, [], served.generation, 0, len(served.index), served)


# -- The evaluations of an exchange over a warehouse: registered beforehand, or made here if small.
#
# A warehouse takes no records, so its side never asks for any.

_LIMIT = "warehouse_embedded_records"


class PlanNotRegisteredError(StoreError):
    """A warehouse has no answer to a plan, and is too large for one to be made in an exchange."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class WarehouseEvaluating:
    """Chooses how an exchange with a warehouse is evaluated, at the beginning of each epoch."""

    store: WarehouseStore
    most_records: int

    def __call__(
        self,
        store: ExchangeStore,
        executable: Executable,
        terms: Terms,
        *,
        transport: str,
        encrypted: bool,
        max_value_bytes: int,
        max_line_bytes: int | None,
        known: Known | None = None,
        supervisor: Supervisor | None = None,
    ) -> ExchangeEvaluator:
        """Return what answers the questions of an epoch."""
        served = self.store.renew()
        runtime = runtime_facts(terms, transport=transport, encrypted=encrypted)
        if is_bare(terms.schema) or max_line_bytes == MAX_LINE_BYTES:
            found = served.find(executable, runtime, terms.source, terms.schema)
            if found is not None:
                return _Registered(served, found, terms)
        if len(served.index) > self.most_records:
            raise _not_registered(served, executable, terms, self.most_records)
        return _Sending(
            store,
            executable,
            terms,
            transport=transport,
            encrypted=encrypted,
            max_value_bytes=max_value_bytes,
            max_line_bytes=max_line_bytes,
            known=known,
            supervisor=supervisor,
        )


def _not_registered(
    served: ServedWarehouse, executable: Executable, terms: Terms, allowed: int
) -> PlanNotRegisteredError:
    folder, count = served.warehouse.folder, len(served.index)
    proven = terms.peer.verifier
    viewer = f" --viewer {proven}" if proven is not None else ""
    what = "--exchange exchange"
    if not _is_required(terms.schema, executable):  # both sides offer more than the plan needs
        what = "--of exchange/MaySend"
        names = sorted(terms.schema.names)
        what += " --all-fields" if terms.schema.all else "".join(f" --field {n}" for n in names)
    return PlanNotRegisteredError(
        f"the plan {executable.plan.id} for the viewer {executable.viewer} is not registered in "
        f"{folder}, whose {count:,} records are more than are evaluated here",
        hint=f"register it: `lace pipeline evaluate {folder} --index {executable.index} "
        f"--select FILE --peer-select FILE --expose FILE{viewer} && lace pipeline advertise "
        f"{folder} {what} --source {terms.source}`; or raise the limit, "
        f"{_LIMIT}={allowed}, with --set {_LIMIT}=N",
    )


def _is_required(schema: Schema, executable: Executable) -> bool:
    """Tell whether advertisements carry the fields that the plan requires, and no others."""
    required = executable.plan.required
    return schema == Schema(names=required.names, all=required.all)


class _Registered:
    """Answers that were computed beforehand: what may be sent is one set, for the whole epoch."""

    def __init__(self, served: ServedWarehouse, own: AdvertisementSet, terms: Terms) -> None:
        self._served, self._terms = served, terms
        self._untold: AdvertisementSet | None = own

    @property
    def position(self) -> tuple[int, int]:
        """The generation of the warehouse."""
        return self._served.generation, 0

    @property
    def is_resting(self) -> bool:
        """What the peer says is new each time."""
        return False

    def evaluate(self, effect: Evaluate) -> EvaluationDone:
        """Tell all that may be sent, the first time; nothing changes after that."""
        own, self._untold = self._untold, None
        return EvaluationDone((), (), (), 0, own)

    def describe(self, effect: Describe) -> Described:
        """Answer what advertisements of records say."""
        schema = self._terms.schema
        if is_bare(schema):
            return Described(tuple(map(Advertisement, effect.records)))
        return Described(tuple(self._served.describe(effect.records, effect.source, schema)))

    def claims(self) -> ClaimTable | None:
        """What the peer claims decides nothing here, and is not kept."""
        return None

    def state(self) -> str | None:
        """No state has a name: to look this one up is as quick."""
        return None

    def release(self) -> None:
        """Keep what was read: no rules of a peer are evaluated."""


class _Sending(StoreEvaluator):
    """An evaluation over a store that takes no records: nothing is requested."""

    def evaluate(self, effect: Evaluate) -> EvaluationDone:
        """Answer what may be sent now."""
        return replace(super().evaluate(effect), requestable=(), pending=0)
