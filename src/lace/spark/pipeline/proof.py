"""What a proof of a warehouse found: how much was compared, what is wrong, what was left out.

Apart from `audit`, which needs pyarrow: commands read the limit without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

Reports: TypeAlias = "list[tuple[str, str]]"
"""What something was found about, and what was found: the first of them."""
MAX_SAMPLE: Final = 100_000
"""Records that a sample may have; they are named one by one."""
_MOST_REPORTS: Final = 1000


def add_report(reports: Reports, what: str, reason: str) -> None:
    """Add to reports, unless there are enough already."""
    if len(reports) < _MOST_REPORTS:
        reports.append((what, reason))


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
    faults: Reports = field(default_factory=list)
    uncompared: Reports = field(default_factory=list)

    def note(self, what: str, reason: str) -> None:
        """Note something wrong."""
        self.wrong += 1
        add_report(self.faults, what, reason)

    def leave(self, what: str, reason: str) -> None:
        """Note something that was not compared."""
        add_report(self.uncompared, what, reason)
