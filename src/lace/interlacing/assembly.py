"""What is known of the peer's advertisements so far, put together of partitions (G44).

Some partitions are known for certain: they were listed, or a known state has their count
and root. Others are taken on trust, by a fingerprint or because a side follows; these can
be doubted. Where partitions lie in each other, the inner one counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lace.interlacing.partitions import AdvertisementSet

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Assembly"]


@dataclass(frozen=True, slots=True)
class Assembly:
    """States of the peer by partition: those that are certain, and those on trust."""

    certain: dict[str, AdvertisementSet] = field(default_factory=dict)
    trusted: dict[str, AdvertisementSet] = field(default_factory=dict)
    _relearned: set[str] = field(default_factory=set)

    def is_certain(self, prefix: str) -> bool:
        """Tell whether a partition, or one that it lies in, is known for certain."""
        return any(prefix[:length] in self.certain for length in range(len(prefix) + 1))

    def learn(self, prefix: str, state: AdvertisementSet, *, is_narrowed: bool = False) -> None:
        """Know a partition for certain; if it was narrowed, forget what was taken for its parts."""
        self.trusted.pop(prefix, None)
        self.certain[prefix] = state
        if is_narrowed:
            self._relearned.add(prefix)

    def joined(self) -> AdvertisementSet:
        """Return everything that is known or trusted."""
        self._forget_parts()
        return AdvertisementSet.joined([*self.trusted.items(), *self.certain.items()])

    def _forget_parts(self) -> None:
        """Forget the parts of partitions that are known as a whole now."""
        whole = self._relearned
        for taken in (self.trusted, self.certain) if whole else ():
            for each in [
                each for each in taken if any(each[:length] in whole for length in range(len(each)))
            ]:
                del taken[each]
        whole.clear()

    def doubt(self) -> Iterator[tuple[str, int]]:
        """Yield the largest partitions on trust, with their counts, and trust them no more.

        Those that are taken to be empty come last.
        """
        filled = [prefix for prefix, state in self.trusted.items() if state.count(prefix)]
        doubted = filled or list(self.trusted)
        level = min(map(len, doubted), default=0)
        for prefix in [prefix for prefix in doubted if len(prefix) == level]:
            yield prefix, self.trusted.pop(prefix).count(prefix)
