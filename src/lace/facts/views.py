"""Views: the facts of some records only, as a source of their own (020).

What a viewer may query is a set of records; which they are is for policy to say. Through
a view, the facts of other records do not exist: not for positive atoms, and no more for
negated or counted ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.facts.catalogue import RECORD_PREDICATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lace.facts.lines import Fact
    from lace.facts.source import FactSource, Values

__all__ = ["RecordView", "facts_of"]


class RecordView:
    """The facts of a source whose record is visible; facts of other classes stay as they are."""

    def __init__(self, source: FactSource, is_visible: Callable[[str], bool]) -> None:
        self._source = source
        self._is_visible = is_visible

    def _shown(self, predicate: str, found: Iterable[Values]) -> Iterator[Values]:
        if predicate not in RECORD_PREDICATES:
            yield from found
            return
        for values in found:
            if self._is_visible(values[0]):
                yield values

    def iterate(self, predicate: str) -> Iterator[Values]:
        """Yield all tuples of the predicate that are visible."""
        return self._shown(predicate, self._source.iterate(predicate))

    def query(self, predicate: str, *leading: str) -> Iterator[Values]:
        """Yield the visible tuples whose first values are the given ones."""
        return self._shown(predicate, self._source.query(predicate, *leading))

    def count(self, predicate: str) -> int:
        """Return how many tuples are visible."""
        return sum(1 for _ in self.iterate(predicate))


def facts_of(source: FactSource, predicates: Iterable[str]) -> Iterator[Fact]:
    """Yield the facts that a source has of some predicates."""
    for predicate in predicates:
        for values in source.iterate(predicate):
            yield (predicate, *values)
