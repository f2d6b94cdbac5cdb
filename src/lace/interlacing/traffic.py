"""What moves beside records: the bytes of reconciliation and of all other control.

A machine sees facts, not bytes. The driver says how many bytes came and went; where
nothing is written out, they are those that the lines would have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.facts.lines import Fact

__all__ = ["Traffic", "line_bytes"]

_PER_FACT: Final = 2
"""Two parentheses and a line feed, less the comma that the last value has not."""
_PER_VALUE: Final = 3
"""Two quotes and a comma."""


@dataclass(slots=True)
class Traffic:
    """Bytes beside those of records, in both directions.

    Reconciliation is whatever is said to find out what the other side advertises. Control
    is all the rest: setup, hello, requests, ticks, `NotAvailable`, and what frames records.
    """

    reconciliation_received: int = 0
    reconciliation_sent: int = 0
    control_received: int = 0
    control_sent: int = 0

    def received(self, size: int, is_reconciling: bool) -> None:
        """Count what came."""
        if is_reconciling:
            self.reconciliation_received += size
        else:
            self.control_received += size

    def sent(self, size: int, is_reconciling: bool) -> None:
        """Count what was sent."""
        if is_reconciling:
            self.reconciliation_sent += size
        else:
            self.control_sent += size


def line_bytes(facts: Sequence[Fact]) -> int:
    """Return how many bytes a block of facts has as lines, if their values are plain ASCII.

    It is fast, and does not look for what would be escaped.

    >>> line_bytes([("MayRequest", "P.x.H9"), ("HelloAllAdvertisedFields",)])
    49
    """
    texts = sum(map(len, chain.from_iterable(facts)))
    values = sum(map(len, facts)) - len(facts)
    bare = sum(len(fact) == 1 for fact in facts)
    return texts + values * _PER_VALUE + len(facts) * _PER_FACT + bare + 1
