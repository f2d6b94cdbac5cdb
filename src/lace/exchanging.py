"""Exchanges between laces that are open in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lace.driver.kept import KeptLinks
from lace.driver.pairing import Pairing
from lace.driver.party import Party
from lace.interlacing.capabilities import capabilities_of
from lace.interlacing.machine import Machine, MachineConfig
from lace.rules.limits import peer_limits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.interlacing.result import Outcome
    from lace.policy.local import Policy
    from lace.record.seal import SigningKey
    from lace.store.sqlite.store import SqliteStore

__all__ = ["Interlaced", "Side", "run_exchange"]

IN_PROCESS = "stdio"
"""The address of a link that has none."""


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
        InterlaceFailure: the sides do not agree, or a limit was reached; whatever was
            validated before stays stored.
    """
    parties = [_party(side, index, clock) for index, side in enumerate((left, right))]
    link = Pairing(*parties)
    try:
        link.start()
        link.run()
    finally:
        for party in parties:
            party.close()
    outcomes = [party.machine.outcome for party in parties]
    if outcomes[0] is None or outcomes[1] is None:
        raise AssertionError("an exchange that nobody disturbs ends")
    for outcome in outcomes:
        if outcome is not None and outcome.failure is not None:
            raise outcome.failure
    return Interlaced(outcomes[0], outcomes[1])


def _party(side: Side, index: int, clock: Callable[[], Tai]) -> Party:
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
    )
    return Party(
        Machine(config),
        side.store,
        side.settings,
        transport=IN_PROCESS,
        clock=clock,
        random_bytes=os.urandom,
        workers=side.workers,
        kept=kept,
    )
