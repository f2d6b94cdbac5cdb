"""The evaluations of an exchange over a warehouse: registered beforehand, or made here if small.

A warehouse takes no records, so its side never asks for any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lace.base.limits import MAX_LINE_BYTES
from lace.errors import StoreError
from lace.exchange.advertisement import Advertisement, is_bare
from lace.exchange.events import Described, EvaluationDone
from lace.exchange.negotiation import runtime_facts
from lace.link.evaluator import StoreEvaluator
from lace.policy.schema import Schema

if TYPE_CHECKING:
    from lace.engine.budget import Supervisor
    from lace.engine.exchange_facts import ClaimTable
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.exchange.effects import Describe, Evaluate
    from lace.exchange.negotiation import Terms
    from lace.link.evaluator import ExchangeEvaluator, Known
    from lace.policy.compile import Executable
    from lace.spark.served.warehouse import ServedWarehouse, WarehouseStore
    from lace.store.store_view import ExchangeStore


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
            StoreEvaluator(
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


class _Sending:
    """An evaluation over a store that takes no records: nothing is requested."""

    def __init__(self, whole: StoreEvaluator) -> None:
        self._whole = whole

    @property
    def position(self) -> tuple[int, int]:
        """Up to which record and removal of the store the last answer goes."""
        return self._whole.position

    @property
    def is_resting(self) -> bool:
        """Whether all of it is as it was kept."""
        return self._whole.is_resting

    def evaluate(self, effect: Evaluate) -> EvaluationDone:
        """Answer what may be sent now."""
        return replace(self._whole.evaluate(effect), requestable=(), pending=0)

    def describe(self, effect: Describe) -> Described:
        """Answer what advertisements of records say."""
        return self._whole.describe(effect)

    def claims(self) -> ClaimTable | None:
        """Return what the peer claims, to be kept."""
        return self._whole.claims()

    def state(self) -> str | None:
        """No state of a warehouse has a name."""
        return self._whole.state()

    def release(self) -> None:
        """Free what the peer's rules have made."""
        self._whole.release()
