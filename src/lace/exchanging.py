"""Exchanges between laces that are open in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lace.driver.kept import KeptLinks
from lace.driver.open_pairing import OpenPairing
from lace.driver.pairing import Pairing
from lace.driver.party import Party
from lace.errors import StoreError
from lace.interlacing.capabilities import capabilities_of
from lace.interlacing.failures import Failure
from lace.interlacing.machine import Machine, MachineConfig
from lace.rules.limits import peer_limits_of
from lace.transport.stream import Proven

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.interlacing.result import Outcome
    from lace.policy.local import Policy
    from lace.record.seal import SigningKey
    from lace.store.sqlite.store import SqliteStore

__all__ = ["Interlaced", "Side", "named", "open_exchange", "party_of", "run_exchange"]

_IN_PROCESS: Final = Proven(transport="stdio")
"""What is known of a link that has no transport."""
_NAMES: Final = ("the left", "the right")
"""The sides, as errors name them."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an exchange in this process."""

    store: SqliteStore
    settings: Settings
    policy: Policy
    key: SigningKey | None
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Interlaced:
    """What came of an exchange, for both sides; true when it ended at a fixed point."""

    left: Outcome
    right: Outcome

    def __bool__(self) -> bool:
        return self.left.at_fixed_point and self.right.at_fixed_point

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"left": self.left.to_json(), "right": self.right.to_json()}


def run_exchange(left: Side, right: Side, clock: Callable[[], Tai]) -> Interlaced:
    """Run one bounded exchange between two sides; the left one is operand 0.

    Raises:
        InterlaceFailure: the sides do not agree, or a limit was reached; its `result` says
            what had come of it by then. Whatever was validated before stays stored.
        StoreError: a store could not be read or written; the message says of which side, and
            `result` what had come of the exchange by then.
    """
    parties = [party_of(side, index, clock) for index, side in enumerate((left, right))]
    link = Pairing(*parties)
    try:
        link.start()
        link.run()
    finally:
        for party in parties:
            party.close()
    return _result(parties)


def _result(parties: Sequence[Party]) -> Interlaced:
    """Return what came of an exchange, or raise why it failed."""
    outcomes = [party.machine.outcome for party in parties]
    if outcomes[0] is None or outcomes[1] is None:
        raise AssertionError("an exchange that nobody disturbs ends")
    result = Interlaced(outcomes[0], outcomes[1])
    failures = [outcome.failure for outcome in outcomes if outcome and outcome.failure]
    # The side that only saw the other close says nothing of the cause.
    failures.sort(key=lambda failure: failure.failure is Failure.PEER_CLOSED)
    for name, party in zip(_NAMES, parties, strict=True):
        if isinstance(party.error, StoreError):
            raise named(party.error, name, result)
    if failures:
        failures[0].result = result
        raise failures[0]
    return result


def named(error: StoreError, name: str, result: object) -> StoreError:
    """Return the error of a side's lace, which says whose it is and what came before it."""
    error.message = f"{name} lace: {error.message}"
    error.result = result
    return error


def open_exchange(left: Side, right: Side, clock: Callable[[], Tai]) -> OpenPairing:
    """Start an open exchange between two sides, in a thread of its own.

    It goes on after a fixed point: whatever is stored on either side reaches the other.
    The sides' stores are used by that thread alone.
    """
    parties = (
        party_of(left, 0, clock, is_open=True),
        party_of(right, 1, clock, is_open=True),
    )
    made = OpenPairing(Pairing(*parties), parties, (left.store, right.store), clock)
    made.start()
    return made


def party_of(
    side: Side,
    index: int,
    clock: Callable[[], Tai],
    *,
    is_open: bool = False,
    is_plain: bool = False,
    expected: frozenset[str] = frozenset(),
    proven: Proven | None = None,
) -> Party:
    """Return a side as operand 0 or 1, not started.

    Args:
        side: the side.
        index: the index of its operand.
        clock: gives the time.
        is_open: go on after a fixed point.
        is_plain: leave the nonce out, for a peer that knows only 050.
        expected: the verifiers that the peer may be; none: anyone.
        proven: what the transport proves; nothing for a link within this process.
    """
    found = proven or _IN_PROCESS
    kept = KeptLinks(side.store)
    config = MachineConfig(
        operand=side.policy.operand(index),
        exposures=side.policy.exposures,
        lowering=side.policy.lowering,
        capabilities=capabilities_of(side.settings),
        random_bytes=os.urandom,
        key=side.key,
        peer_limits=peer_limits_of(side.settings),
        cursors=kept,
        is_open=is_open,
        is_plain=is_plain,
        expected=expected,
        transport_peer=found.peer,
        channel=found.channel,
    )
    return Party(
        Machine(config),
        side.store,
        side.settings,
        transport=found.transport,
        encrypted=found.encrypted,
        clock=clock,
        random_bytes=os.urandom,
        workers=side.workers,
        kept=kept,
    )
