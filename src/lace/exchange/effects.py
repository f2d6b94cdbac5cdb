"""What a machine wants done: to send, to evaluate, to load, to store, to be woken.

The driver carries effects out in their order. Those that have an answer get it
as an event; the machine takes nothing else from the peer until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lace.base.tai import Tai
    from lace.exchange.advertisement import Advertisement
    from lace.exchange.advertisement_set import AdvertisementSet
    from lace.exchange.capabilities import Cursor
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Outcome
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.record.reader import RawRecord
    from lace.record.validate import ValidRecord


@dataclass(frozen=True, slots=True)
class SendBlock:
    """Send a block of facts; modules that it names go before it, each once per stream."""

    facts: tuple[Fact, ...]
    modules: tuple[tuple[str, bytes], ...] = ()
    is_reconciling: bool = False


@dataclass(frozen=True, slots=True)
class Agree:
    """Both sides agree: evaluations from now on are of this policy under these terms.

    The first of them tells all that may be sent. `known` is what the peer is taken to claim
    until it says otherwise: what was kept under the Link-Id of the terms or, without one,
    what it claims already; None, nothing.
    """

    executable: Executable
    terms: Terms
    known: AdvertisementSet | None = None


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate the policy over the store as it is now; the answer is `Evaluated`.

    `added` are claims of the peer that are new or changed, `relabelled` records of this
    side that the peer is known to claim as well, `removed` what it claims no more. What is
    relabelled is of the evaluation before: it may be gone from the store by now. `local` is
    what exposures read as this side's clock (G05b).
    """

    tick: Tai
    local: Tai
    added: tuple[Advertisement, ...] = ()
    relabelled: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()
    most_requests: int = 0


@dataclass(frozen=True, slots=True)
class Describe:
    """Make advertisements of own records, as under a source; answered by `Described`, all of them.

    They are records that could be sent at the last evaluation. What is advertised is frozen
    for a loop, so that one that has gone from the store since is described all the same.
    """

    records: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Send records in their order, then what is unavailable, then the end of the batch.

    A record that is not here any more is reported as unavailable. After this many bytes or
    seconds the rest is left; at least one is answered. The answer is `BatchSent`.
    """

    records: tuple[str, ...]
    unavailable: tuple[str, ...]
    most_bytes: int
    most_seconds: int


@dataclass(frozen=True, slots=True)
class Validate:
    """Validate records; answered by `Validated`."""

    records: tuple[RawRecord, ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """Store validated records; answered by `Admitted`."""

    records: tuple[ValidRecord, ...]


@dataclass(frozen=True, slots=True)
class SaveCursor:
    """Keep the peer's advertisements, and one's own that it knows, for the next exchange.

    `is_settled` says that the last evaluation found these, and nothing to request or to leave.
    """

    link_id: str
    cursor: Cursor
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class KeepModule:
    """Keep the module of a peer that its transport proves, for connections to come."""

    verifier: str
    module_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Wake:
    """Say when an instant has come; a later `Wake` replaces it, None takes it back.

    A deadline is an instant of the steady clock, any other one of the wall clock.
    """

    at: Tai | None
    is_deadline: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A fixed point, or the loop limit, was reached; the exchange goes on if it is open."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Close:
    """End the stream without a word, and read on to the peer's end for a while."""

    outcome: Outcome


Effect: TypeAlias = (
    SendBlock
    | Agree
    | Evaluate
    | Describe
    | SendBatch
    | Validate
    | Admit
    | SaveCursor
    | KeepModule
    | Wake
    | Report
    | Close
)
