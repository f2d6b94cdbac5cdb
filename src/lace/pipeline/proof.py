"""What a proof of a warehouse found: how much was compared, what is wrong, what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["Proof"]

_MOST_REPORTS: Final = 1000


@dataclass(slots=True)
class Proof:
    """What was compared, and what is not as it should be; `faults` has the first of that.

    `derived` are derived facts that were compared; `uncompared` has what was not, and why.
    """

    validated: int = 0
    records: int = 0
    facts: int = 0
    advertisements: int = 0
    roots: int = 0
    derived: int = 0
    wrong: int = 0
    faults: list[tuple[str, str]] = field(default_factory=list)
    uncompared: list[tuple[str, str]] = field(default_factory=list)

    def note(self, what: str, reason: str) -> None:
        """Note something wrong."""
        self.wrong += 1
        if len(self.faults) < _MOST_REPORTS:
            self.faults.append((what, reason))

    def leave(self, what: str, reason: str) -> None:
        """Note something that was not compared."""
        if len(self.uncompared) < _MOST_REPORTS:
            self.uncompared.append((what, reason))
