"""What happens to a machine: blocks and records that arrive, answers to its effects, time.

Events are values; a list of them replays a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Advertisement
    from lace.interlacing.partitions import AdvertisementSet
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand
    from lace.record.reader import RawRecord
    from lace.record.validate import ValidRecord

__all__ = [
    "Admitted",
    "BatchEnded",
    "BatchSent",
    "BlockReceived",
    "Changed",
    "Described",
    "Ended",
    "Evaluated",
    "Event",
    "Progressed",
    "RecordLost",
    "RecordsReceived",
    "Renewed",
    "Started",
    "Stopped",
    "Unavailable",
    "Validated",
    "Woken",
]


@dataclass(frozen=True, slots=True)
class Started:
    """The link is there."""


@dataclass(frozen=True, slots=True)
class BlockReceived:
    """A whole block of facts arrived, with the resources that came before it, by identifier.

    `modules` has modules (`R.`) and transcripts of plans (`E.`), each as its identifier says.
    `size` is how many bytes all of it had; 0 where nobody knows.
    """

    facts: tuple[Fact, ...]
    modules: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    size: int = 0


@dataclass(frozen=True, slots=True)
class RecordsReceived:
    """Records of a transfer arrived, framed and not validated."""

    records: tuple[RawRecord, ...]


@dataclass(frozen=True, slots=True)
class RecordLost:
    """A record of a transfer was read past: it is larger than this side takes."""

    record: str
    size: int


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The peer says that it cannot send a requested record any more."""

    record: str


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """The peer's transfer batch is over; `size` is what it had beside the bytes of records."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The answer to `Evaluate`.

    `come` and `gone` say how the records that may be sent and are here changed since the
    last evaluation; what came carries its advertised fields. `requestable` are records
    that may be requested, are advertised, not here and of a negotiated format: some of
    `pending`, those excluded left out. None is left out of both without a reason: where
    some may be asked for, there is at least one.

    The first answer of an epoch may be that everything is as it was when the cursor was
    kept: then `kept` are the records that may be sent, and the rest is empty.
    """

    come: tuple[Advertisement, ...]
    gone: tuple[str, ...]
    requestable: tuple[str, ...]
    pending: int
    kept: AdvertisementSet | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """The answer to `Describe`: the advertisements that it names."""

    advertisements: tuple[Advertisement, ...]


@dataclass(frozen=True, slots=True)
class Validated:
    """The answer to `Validate`: each record, or why it is invalid; in the order given."""

    outcomes: tuple[ValidRecord | str, ...]


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to `Admit`: how many of the records are stored now, new or known.

    `receipts` were published for those stored since the last answer that named any, and
    `omitted` more would have been, were it not for the limit or a peer that proves nothing.
    """

    stored: int
    receipts: int = 0
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class BatchSent:
    """The answer to `SendBatch`: what was sent, what was not here any more, and the bytes."""

    sent: tuple[str, ...]
    unavailable: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """Another mebibyte arrived; the peer is not stalling."""


@dataclass(frozen=True, slots=True)
class Woken:
    """The instant that `Wake` named has come."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Records were stored here, or removed, by someone else."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """This side has another operand or other exposures from now on."""

    operand: Operand
    exposures: tuple[Exposure, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The caller wants this side to end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The peer's stream has ended; a reset counts as an end."""


Event: TypeAlias = (
    Started
    | BlockReceived
    | RecordsReceived
    | RecordLost
    | Unavailable
    | BatchEnded
    | Evaluated
    | Described
    | Validated
    | Admitted
    | BatchSent
    | Progressed
    | Woken
    | Changed
    | Renewed
    | Stopped
    | Ended
)
