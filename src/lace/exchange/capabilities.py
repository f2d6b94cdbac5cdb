"""What a side brings into an exchange: formats, schema, limits, its configuration (050).

A limit has the name of its setting. Six of them travel in hello, and the smaller value of
the two sides counts; the others hold on this side alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from lace.base.limits import DEFAULT_SETTINGS, MAX_LINE_BYTES, STORED_FORMATS
from lace.errors import SettingError
from lace.policy.operand import RequiredFields, advertised_fields
from lace.policy.schema import ALL_FIELDS, Schema, check_own_fields, formats_of, offered_schema
from lace.rules.limits import PEER_LIMITS, RuleLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lace.base.limits import Settings
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.policy.exposure import Exposure
    from lace.policy.local import Policy
    from lace.policy.operand import Operand
    from lace.record.ids import Verifier
    from lace.record.seal import SigningKey


_NO_FIELDS: Final = RequiredFields()
SECOND: Final = 1_000_000_000
"""Nanoseconds of a second."""
MIN_TICK_NANOSECONDS: Final = 1
"""The shortest tick interval; of the two sides' intervals the longer one counts (X2)."""
WIRE_LIMITS: Final = (
    "max_fact_block_size",
    "max_advertisement_records_listed",
    "max_partition_summaries",
    "max_narrowing_depth",
    "max_total_transferred_bytes",
    "max_loop_iterations",
)
"""The limits that every hello carries (G38)."""
LIMIT_FLOORS: Final[Mapping[str, int]] = {
    "max_fact_block_size": 2**20,
    "max_partition_summaries": 16_384,
    "max_narrowing_depth": 4,
}
"""Below these an exchange could not work, so that negotiation fails (G38)."""
LARGEST_LIMIT: Final = 2**63 - 1
RECONCILE_LIMIT: Final = "reconcile"
"""The limit name under which a hello offers a mode of reconciliation (G44)."""
RECONCILE_MODES: Final = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeLimits:
    """The limits of an exchange; the first six are agreed on, the rest are this side's own."""

    max_fact_block_size: int = 64 * 2**20
    max_advertisement_records_listed: int = 100_000
    max_partition_summaries: int = 16_384
    max_narrowing_depth: int = 12
    max_total_transferred_bytes: int = 2**30
    max_loop_iterations: int = 16
    max_advertised_records: int = 2**22
    max_advertised_bytes: int = 512 * 2**20
    max_rejected_records: int = 1000
    max_not_available_records: int = 100_000
    max_clock_skew_seconds: int = 300
    phase_timeout_seconds: int = 30
    service_budget_seconds: int = 10
    service_budget_bytes: int = 128 * 2**20
    max_tick_interval_seconds: int = 86_400
    max_value_bytes: int = 1024
    literal_limits: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            lowest = LIMIT_FLOORS.get(name, 1 if name in WIRE_LIMITS else 0)
            if isinstance(value, bool) or not isinstance(value, int):
                raise SettingError(f"limit {name} takes a whole number, not {value!r}")
            if not lowest <= value <= LARGEST_LIMIT:
                raise SettingError(f"limit {name}={value} is outside {lowest} to {LARGEST_LIMIT}")

    @property
    def wire(self) -> dict[str, int]:
        """The limits that hello carries, by name."""
        return {name: getattr(self, name) for name in WIRE_LIMITS}

    def narrowed(self, theirs: Mapping[str, int]) -> ExchangeLimits:
        """Return these limits with the smaller value of each that both sides have."""
        return replace(self, **{name: min(getattr(self, name), theirs[name]) for name in theirs})


DEFAULT_WIRE_LIMITS: Final[Mapping[str, int]] = ExchangeLimits().wire


def exchange_limits_of(settings: Settings) -> ExchangeLimits:
    """Return the limits that settings give to an exchange."""
    return ExchangeLimits(**{name: getattr(settings, name) for name in ExchangeLimits.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What this side can do and is willing to do in an exchange.

    `schema` is what it offers for advertisements, neither more nor less; None leaves it to
    `offered_schema`, which offers of the fields that the plan requires those that a peer's
    selector cannot have added.
    """

    formats: frozenset[str] = STORED_FORMATS
    schema: Schema | None = None
    offer_all: bool = False
    limits: ExchangeLimits = field(default_factory=ExchangeLimits)
    mode: int = 2
    tick_interval: int = 10 * SECOND

    def __post_init__(self) -> None:
        if not self.formats:
            raise SettingError("an exchange needs at least one record format")
        if self.mode not in RECONCILE_MODES:
            raise SettingError(f"there is no mode of reconciliation {self.mode!r}")
        if not MIN_TICK_NANOSECONDS <= self.tick_interval <= LARGEST_LIMIT:
            raise SettingError(f"a tick interval of {self.tick_interval} ns is refused by peers")

    @property
    def asked_schema(self) -> Schema | None:
        """The fields that this side names for itself; None if it names none."""
        return ALL_FIELDS if self.offer_all and self.schema is None else self.schema

    def offered_schema(self, required: RequiredFields, own: RequiredFields = _NO_FIELDS) -> Schema:
        """Return what a hello offers for a plan that requires some fields."""
        return offered_schema(self.asked_schema, own, required)


def capabilities_of(
    settings: Settings = DEFAULT_SETTINGS, policy: Policy | None = None, *, offer_all: bool = False
) -> Capabilities:
    """Return what a side offers: as its policy says, else its caller, else its settings."""
    made = Capabilities(
        formats=formats_of(settings.record_formats or None) or STORED_FORMATS,
        schema=Schema(names=frozenset(settings.offer_fields)) if settings.offer_fields else None,
        offer_all=bool(settings.offer_all_fields),
        limits=exchange_limits_of(settings),
        mode=settings.reconcile_mode,
        tick_interval=settings.tick_interval_seconds * SECOND,
    )
    if policy is None:
        return made
    schema = policy.schema or (ALL_FIELDS if offer_all else made.schema)
    if schema is not None:
        check_own_fields(schema, advertised_fields(policy.select))
    return replace(made, schema=schema, formats=policy.formats or made.formats)


# -- Sources: who advertises, on the wire and for rules (050-41, G42).
#
# On the wire S is a name that both sides know: the verifier of the sender's HelloSigner, or the
# verifier that it claimed as origin and its transport proves, else its opaque label. Digests and
# roots are over that form. For rules S is the verifier that the peer has proven by any means: the
# receiver replaces the source before it evaluates, so that `Peer(S)` holds for a proven peer.

_CLAIMS = ("Advertised", "AdvertisedField")


def relabelled(facts: Iterable[Fact], executable: Executable) -> tuple[Fact, ...]:
    """Return public facts as rules read them: the peer's label is replaced by the proven viewer.

    For facts that are given as they are on the wire, without an exchange.
    """
    label, source = executable.plan.operands[1 - executable.index].origin, executable.viewer
    return tuple(
        (*fact[:2], source, *fact[3:]) if fact[0] in _CLAIMS and fact[2:3] == (label,) else fact
        for fact in facts
    )


# -- The configuration of one side of a link: its policy, its means, its limits.


@dataclass(frozen=True, slots=True)
class Cursor:
    """What was kept of an earlier exchange over the same link.

    `theirs` is what the peer advertised, `ours` what it knows of this side; both under
    `schema`, and of no use under another. `claim_bytes` is what the texts of the peer's
    advertisements take at most.
    """

    theirs: AdvertisementSet
    ours: AdvertisementSet
    schema: Schema
    claim_bytes: int = field(default=0, compare=False)


class Cursors(Protocol):
    """What was kept of earlier exchanges; a mapping by Link-Id is one."""

    def get(self, link_id: str, /) -> Cursor | None:
        """Return what is kept of a link."""
        ...


class Modules(Protocol):
    """Modules that peers have sent on earlier connections, by verifier and `R.` identifier."""

    def get(self, verifier: str, module_id: str, /) -> bytes | None:
        """Return the bytes of a module that this peer has sent before."""
        ...

    def save(self, verifier: str, module_id: str, body: bytes, /) -> None:
        """Keep a module that this peer has sent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineConfig:
    """One side of one link."""

    operand: Operand
    exposures: tuple[Exposure, ...] = ()
    lowering: str = "standard-v1"
    capabilities: Capabilities = field(default_factory=Capabilities)
    random_bytes: Callable[[int], bytes]
    key: SigningKey | None = None
    claim: Verifier | None = None
    is_open: bool = False
    is_plain: bool = False
    expected: frozenset[str] = frozenset()
    transport_peer: str | None = None
    channel: str | None = None
    peer_limits: RuleLimits = PEER_LIMITS
    cursors: Cursors = field(default_factory=dict[str, Cursor])
    modules: Modules | None = None
    store_differing: bool = False
    max_line_bytes: int | None = MAX_LINE_BYTES

    def __post_init__(self) -> None:
        if self.key is not None and self.claim is not None:
            raise ValueError("a key claims its own verifier: give a key or a claim")

    @property
    def verifier(self) -> Verifier | None:
        """The verifier that this side claims in its setup; None if it claims none."""
        return self.claim if self.key is None else self.key.verifier
