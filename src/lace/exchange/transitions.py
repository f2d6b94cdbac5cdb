"""Which events are legal when: one table.

What is not in it does not happen to an honest peer and a sound driver. Of what a peer sends
it is malformed or out of phase; an answer that nobody waits for is a fault of the driver.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.exchange import events as happened
from lace.exchange.failures import Failure, InterlaceFailure

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(Enum):
    """What a machine is at."""

    NEW = "not started"
    SETUP = "waiting for the peer's setup"
    HELLO = "waiting for the peer's hello"
    EVALUATING = "evaluating what may be sent"
    DESCRIBING = "making advertisements"
    ADVERTISING = "waiting for the peer's advertisements"
    COMPARING = "evaluating what may be requested"
    REQUESTING = "waiting for the peer's request list"
    CHECKING = "evaluating what may still be sent"
    TRANSFERRING = "transferring records"
    WAITING = "waiting for something new"
    CLOSED = "closed"

    @property
    def phase(self) -> str | None:
        """The phase that it belongs to; None before the first and after the last."""
        return _PHASES.get(self)


_PHASES: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.SETUP: "setup",
        State.HELLO: "hello",
        State.EVALUATING: "advertise",
        State.DESCRIBING: "advertise",
        State.ADVERTISING: "advertise",
        State.COMPARING: "request",
        State.REQUESTING: "request",
        State.CHECKING: "transfer",
        State.TRANSFERRING: "transfer",
        State.WAITING: "waiting",
    }
)
_ALWAYS: Final = frozenset(
    {
        happened.Changed,
        happened.Ended,
        happened.Progressed,
        happened.Renewed,
        happened.Stopped,
        happened.Woken,
    }
)
_BLOCK: Final = frozenset({happened.BlockReceived})

LEGAL: Final[Mapping[State, frozenset[type]]] = MappingProxyType(
    {
        State.NEW: _ALWAYS | {happened.Started},
        State.SETUP: _ALWAYS | _BLOCK,
        State.HELLO: _ALWAYS | _BLOCK,
        State.EVALUATING: _ALWAYS | {happened.EvaluationDone},
        State.DESCRIBING: _ALWAYS | {happened.Described},
        State.ADVERTISING: _ALWAYS | _BLOCK,
        State.COMPARING: _ALWAYS | {happened.EvaluationDone},
        State.REQUESTING: _ALWAYS | _BLOCK,
        State.CHECKING: _ALWAYS | {happened.EvaluationDone},
        State.TRANSFERRING: _ALWAYS
        | {
            happened.Admitted,
            happened.BatchEnded,
            happened.BatchSent,
            happened.BlockReceived,
            happened.RecordLost,
            happened.RecordsReceived,
            happened.Unavailable,
            happened.Validated,
        },
        State.WAITING: _ALWAYS | _BLOCK,
        State.CLOSED: _ALWAYS,
    }
)
_FROM_PEER: Final = {
    happened.BlockReceived: Failure.MALFORMED_BLOCK,
    happened.RecordsReceived: Failure.UNREQUESTED_RECORD,
    happened.RecordLost: Failure.UNREQUESTED_RECORD,
    happened.Unavailable: Failure.UNREQUESTED_RECORD,
    happened.BatchEnded: Failure.MALFORMED_BLOCK,
}


def takes_input(state: State) -> bool:
    """Tell whether something of the peer is legal."""
    return not LEGAL[state].isdisjoint(_FROM_PEER)


def check_legal(event: object, state: State) -> None:
    """Refuse an event that does not belong."""
    kind = type(event)
    if kind in LEGAL[state]:
        return
    failure = _FROM_PEER.get(kind)
    if failure is None:
        raise AssertionError(f"{kind.__name__} is no answer while {state.value}")
    raise InterlaceFailure(failure, f"{kind.__name__} while {state.value}", rule="G36")
