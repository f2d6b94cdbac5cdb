"""FactSource: how an evaluation reads base facts; two simple ones (030).

`MemoryFacts` holds facts; `RecordFacts` computes those of records when asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lace.base.limits import MAX_LINE_BYTES
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.extract import record_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lace.facts.lines import Fact
    from lace.record.validate import ValidRecord


Values = tuple[str, ...]


class FactSource(Protocol):
    """The facts of one snapshot, by predicate name; the three answers always agree."""

    def iterate(self, predicate: str) -> Iterator[Values]:
        """Yield all tuples of the predicate, each once, in no particular order."""
        ...

    def query(self, predicate: str, *leading: str) -> Iterator[Values]:
        """Yield the tuples whose first values are the given ones."""
        ...

    def count(self, predicate: str) -> int:
        """Return how many tuples `iterate` yields."""
        ...


class MemoryFacts:
    """A set of facts in memory, as a source."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._tuples: dict[str, dict[Values, None]] = {}
        for name, *values in facts:
            self._tuples.setdefault(name, {})[tuple(values)] = None

    def iterate(self, predicate: str) -> Iterator[Values]:
        """Yield all tuples of the predicate."""
        yield from self._tuples.get(predicate, ())

    def query(self, predicate: str, *leading: str) -> Iterator[Values]:
        """Yield the tuples whose first values are the given ones."""
        for values in self._tuples.get(predicate, ()):
            if values[: len(leading)] == leading:
                yield values

    def count(self, predicate: str) -> int:
        """Return how many tuples the predicate has."""
        return len(self._tuples.get(predicate, ()))


class RecordFacts:
    """The record facts of a set of records, computed when they are asked for."""

    def __init__(
        self,
        records: Callable[[], Iterable[ValidRecord]],
        find: Callable[[str], ValidRecord | None],
        max_value_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._records = records
        self._find = find
        self._max_value_bytes = max_value_bytes

    def iterate(self, predicate: str) -> Iterator[Values]:
        """Yield all tuples of the predicate, record by record."""
        if predicate in RECORD_PREDICATES:
            for record in self._records():
                yield from self._of(record, predicate)

    def query(self, predicate: str, *leading: str) -> Iterator[Values]:
        """Yield the tuples whose first values are the given ones; the first is a record."""
        if not leading:
            yield from self.iterate(predicate)
        elif predicate in RECORD_PREDICATES:
            record = self._find(leading[0])
            for values in self._of(record, predicate) if record else ():
                if values[: len(leading)] == leading:
                    yield values

    def count(self, predicate: str) -> int:
        """Return how many tuples the predicate has."""
        return sum(1 for _ in self.iterate(predicate))

    def _of(self, record: ValidRecord, predicate: str) -> Iterator[Values]:
        for name, *values in record_facts(record, max_value_bytes=self._max_value_bytes):
            if name == predicate:
                yield tuple(values)


# -- Views: the facts of some records only, as a source of their own (020).
#
# What a viewer may query is a set of records; which they are is for policy to say. Through
# a view, the facts of other records do not exist: not for positive atoms, and no more for
# negated or counted ones.


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
