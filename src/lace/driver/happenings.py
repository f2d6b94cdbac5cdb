"""What happens on a link, for observers in this process (050-207).

Nobody else hears of it: these are no facts, and no peer sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lace.interlacing.result import Outcome
    from lace.record.validate import ValidRecord

__all__ = [
    "Arrival",
    "EventsMissed",
    "LinkAgreed",
    "LinkEnded",
    "LinkEvent",
    "PhaseBegan",
    "RecordsStored",
    "RoundEnded",
    "arrival_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A record that came and is stored; a Blob has no coordinate."""

    id: str
    size: int
    group: str | None = None
    app: str | None = None
    name: str | None = None
    tai: str | None = None
    signed_by: str | None = None

    @property
    def coordinate(self) -> str:
        """The coordinate's text; empty for a Blob."""
        return f"//{self.group}//{self.app}//{self.name}" if self.group is not None else ""


@dataclass(frozen=True, slots=True)
class LinkAgreed:
    """Both sides agree on a plan, in the beginning and in each later epoch."""

    plan_id: str
    peer_verifier: str | None
    link_id: str | None


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """The link is at something else: setup, hello, advertise, request, transfer or waiting."""

    phase: str


@dataclass(frozen=True, slots=True)
class RecordsStored:
    """Records came and are stored: they stay, whatever becomes of the link."""

    records: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round of an open exchange has ended, at a fixed point or at the limit of loops."""

    outcome: Outcome

    @property
    def at_fixed_point(self) -> bool:
        """Whether nothing more was to be had."""
        return self.outcome.at_fixed_point


@dataclass(frozen=True, slots=True)
class LinkEnded:
    """The link has ended; nothing comes after this."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class EventsMissed:
    """Events that were not looked at in time, and are forgotten.

    Each record of a `RecordsStored` counts as one; `records` says how many of them those were.
    """

    count: int
    records: int = 0


LinkEvent: TypeAlias = (
    LinkAgreed | PhaseBegan | RecordsStored | RoundEnded | LinkEnded | EventsMissed
)


def arrival_of(record: ValidRecord) -> Arrival:
    """Return what is told of a record that is stored."""
    return Arrival(
        id=record.hash_text,
        size=len(record.bytes),
        group=record.group,
        app=record.app,
        name=record.name,
        tai=record.tai,
        signed_by=record.signed_by,
    )
