"""What one side of a link is told at the start: its policy, its means, its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lace.base.limits import MAX_LINE_BYTES
from lace.interlacing.capabilities import Capabilities, Schema
from lace.rules.limits import PEER_LIMITS, RuleLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.interlacing.partitions import AdvertisementSet
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand
    from lace.record.ids import Verifier
    from lace.record.seal import SigningKey

__all__ = ["Cursor", "Cursors", "MachineConfig", "Modules"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """What was kept of an earlier exchange over the same link.

    `theirs` is what the peer advertised, `ours` what it was told of this side; both under
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
    """One side of one link.

    Args:
        operand: the selector, with this side's index.
        exposures: what is exposed, and to whom.
        lowering: what is asked beyond selection.
        capabilities: formats, schema, limits, modes, ticks.
        random_bytes: randomness for nonces and signatures.
        key: this side's signing key, if it has one.
        claim: the verifier that this side claims without a key, because its transport proves
            it to the peer; a key claims its own verifier.
        is_open: go on after a fixed point.
        is_plain: leave the nonce out, for a peer that knows only 050.
        expected: the verifiers that a peer may claim; none: anyone.
        transport_peer: the verifier that the transport has proven.
        channel: the digest of the channel, on a TLS stream.
        peer_limits: limits of the peer's rules.
        cursors: what was kept of earlier exchanges, by Link-Id.
        modules: the modules of peers that the transport proves, of earlier connections; None: there
            are none.
        store_differing: store records whose claims differ all the same.
        max_line_bytes: the longest line that the binding carries; None for any.
    """

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
