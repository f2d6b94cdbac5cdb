"""The states of a machine: which events are legal in each, and which state comes next.

One table. A state takes some events, and leaves for another by an event alone or by a trigger:
what this side finds when it handles one. An event that is not in the table does not come from an
honest peer or a sound driver: from a peer it is malformed or out of phase, an answer that nobody
waits for is a fault of the driver.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.exchange import events as happened
from lace.exchange.failures import Failure, InterlaceFailure

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(Enum):
    """The state of a machine: its text says what it does or waits for."""

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


class Trigger(Enum):
    """What moves a machine on when it handles an event, where the event alone does not."""

    SETUP_READ = "the peer's setup leads to a plan"
    AGREED = "both hellos lead to terms"
    NOTHING_NEW = "a loop would tell the peer nothing"
    CLAIMS_NEEDED = "advertisements of own records are needed"
    TURN_READY = "a turn of reconciliation is ready to be sent"
    ALL_KNOWN = "each side knows what the other advertises"
    REQUESTED = "the peer requests records that were advertised"
    NOT_REQUESTED = "the peer requests none of them"
    LOOP_OVER = "both batches are sent and stored"
    LOOP_DUE = "there is a reason to begin a loop"
    SETUP_DUE = "one side presents another operand"
    OVER = "the exchange ends"


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
_ALWAYS: Final = (
    happened.Changed,
    happened.Ended,
    happened.Progressed,
    happened.Renewed,
    happened.Stopped,
    happened.Woken,
)
"""Events that are legal in every state; where they lead to, a trigger says."""
_TRANSFER: Final = (
    happened.Admitted,
    happened.BatchEnded,
    happened.BatchSent,
    happened.BlockReceived,
    happened.RecordLost,
    happened.RecordsReceived,
    happened.Unavailable,
    happened.Validated,
)


Row: TypeAlias = "Mapping[type | Trigger, State]"
"""What leads from one state to which."""


def _row(state: State, moves: Row) -> Row:
    always: Row = {**dict.fromkeys(_ALWAYS, state), Trigger.OVER: State.CLOSED}
    return MappingProxyType({**always, **moves})


_MOVES: Final[Mapping[State, Row]] = {
    State.NEW: {
        happened.Started: State.SETUP,
    },
    State.SETUP: {
        happened.BlockReceived: State.SETUP,
        Trigger.SETUP_READ: State.HELLO,
    },
    State.HELLO: {
        happened.BlockReceived: State.HELLO,
        Trigger.AGREED: State.EVALUATING,
    },
    State.EVALUATING: {
        happened.EvaluationDone: State.EVALUATING,
        Trigger.NOTHING_NEW: State.WAITING,
        Trigger.CLAIMS_NEEDED: State.DESCRIBING,
        Trigger.TURN_READY: State.ADVERTISING,
    },
    State.DESCRIBING: {
        happened.Described: State.DESCRIBING,
        Trigger.CLAIMS_NEEDED: State.DESCRIBING,
        Trigger.TURN_READY: State.ADVERTISING,
    },
    State.ADVERTISING: {
        happened.BlockReceived: State.ADVERTISING,
        Trigger.CLAIMS_NEEDED: State.DESCRIBING,
        Trigger.TURN_READY: State.ADVERTISING,
        Trigger.ALL_KNOWN: State.COMPARING,
        Trigger.SETUP_DUE: State.SETUP,
    },
    State.COMPARING: {
        happened.EvaluationDone: State.REQUESTING,
    },
    State.REQUESTING: {
        happened.BlockReceived: State.REQUESTING,
        Trigger.REQUESTED: State.CHECKING,
        Trigger.NOT_REQUESTED: State.TRANSFERRING,
    },
    State.CHECKING: {
        happened.EvaluationDone: State.TRANSFERRING,
    },
    State.TRANSFERRING: {
        **dict.fromkeys(_TRANSFER, State.TRANSFERRING),
        Trigger.LOOP_OVER: State.WAITING,
    },
    State.WAITING: {
        happened.BlockReceived: State.WAITING,
        Trigger.LOOP_DUE: State.EVALUATING,
        Trigger.SETUP_DUE: State.SETUP,
    },
    State.CLOSED: {},
}
NEXT: Final[Mapping[State, Row]] = MappingProxyType(
    {state: _row(state, moves) for state, moves in _MOVES.items()}
)
"""The next state, by the present one and an event that is legal in it or a trigger."""
_FROM_PEER: Final = {
    happened.BlockReceived: Failure.MALFORMED_BLOCK,
    happened.RecordsReceived: Failure.UNREQUESTED_RECORD,
    happened.RecordLost: Failure.UNREQUESTED_RECORD,
    happened.Unavailable: Failure.UNREQUESTED_RECORD,
    happened.BatchEnded: Failure.MALFORMED_BLOCK,
}


class Position:
    """The state of one machine, which all its parts share; the table alone changes it."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = State.NEW

    @property
    def state(self) -> State:
        """The present state."""
        return self._state

    @property
    def takes_input(self) -> bool:
        """Whether something of the peer is legal."""
        return not NEXT[self._state].keys().isdisjoint(_FROM_PEER)

    def take(self, event: object) -> None:
        """Go to the state that an event leads to; refuse an event that is not legal."""
        kind, state = type(event), self._state
        following = NEXT[state].get(kind)
        if following is not None:
            self._state = following
            return
        failure = _FROM_PEER.get(kind)
        if failure is None:
            raise AssertionError(f"{kind.__name__} is no answer while {state.value}")
        raise InterlaceFailure(failure, f"{kind.__name__} while {state.value}", rule="G36")

    def move(self, trigger: Trigger) -> None:
        """Go to the state that a trigger leads to."""
        self._state = NEXT[self._state][trigger]
