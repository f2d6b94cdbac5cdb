"""Partitions of which the peer lacks just one record: found by the fingerprint alone (G44).

A partition that differs most often differs in one record. If it is this side that has it,
then what the peer has is this side's partition less that record, and there are not many of
those: the one that has the peer's fingerprint needs no question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.interlacing.rows import payload_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.interlacing.partitions import AdvertisementSet

__all__ = ["LackingOne"]

_LEAST: Final = 2
"""Records of a partition that has something left without one of them."""
_FEW: Final = 64
"""Records of a partition in which it costs nothing to look."""
_MANY: Final = 4096
"""Records of a partition in which it may be worth its time."""
_MOST_TRIED: Final = 2**15
"""Records of all partitions of a loop that have more than a few."""
_SINGLE: Final = 1.25
"""Differences that a partition may be expected to have for one record to be all of them."""


class LackingOne:
    """Looks for the one record that the peer lacks, as long as it is worth the time."""

    __slots__ = ("_tried",)

    def __init__(self) -> None:
        self._tried = 0

    def is_worth(self, records: int, expected: float) -> bool:
        """Tell whether to look into a partition of some records, of which some differ, about."""
        if records < _LEAST:
            return False
        if records <= _FEW:
            return True
        if records > _MANY or expected > _SINGLE:
            return False
        self._tried += records
        return self._tried <= _MOST_TRIED

    def find(
        self, prefix: str, fingerprint: bytes, states: Iterable[AdvertisementSet]
    ) -> tuple[AdvertisementSet, str] | None:
        """Return what the peer has of a partition, and the prefix of what it lacks; or None."""
        for state in states:
            found = state.without_one(prefix, fingerprint)
            if found is not None:
                rest, gone = found
                payload = payload_of(gone)
                lengths = range(len(prefix) + 1, len(payload))
                alone = (payload[:length] for length in lengths if not rest.count(payload[:length]))
                return rest, next(alone, payload)
        return None
