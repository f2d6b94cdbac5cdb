"""The answering half of reconciliation: about one's own frozen send set (G44).

Questions are answered in the order in which they came, as many as fit into a block and at
least one; the rest follows in later turns. One answer is never split.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lace.interlacing.claims import advertisement_facts
from lace.interlacing.failures import Failure, InterlaceFailure, limit_failure
from lace.interlacing.partitions import child_prefixes
from lace.interlacing.questions import LIST, NARROW, start_length
from lace.interlacing.summaries import block_bytes, children_fact, partition_fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Advertisement
    from lace.interlacing.partitions import AdvertisementSet
    from lace.interlacing.questions import InquiryLimits

__all__ = ["Answers"]


@dataclass(slots=True)
class Answers:
    """The peer's questions about one loop's own advertisements.

    Args:
        mode: 1 or 2.
        own: the send set.
        source: the source label of this side.
        limits: what bounds answers.
    """

    mode: int
    own: AdvertisementSet
    source: str
    limits: InquiryLimits
    _waiting: deque[tuple[str, str]] = field(default_factory=deque)
    _asked: set[tuple[str, str]] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)
    _above: Counter[str] = field(default_factory=Counter)
    _listed: dict[str, list[str]] = field(default_factory=dict)
    """The records of partitions that the next block lists, as they were wanted."""

    def ask(self, questions: Iterable[tuple[str, str]]) -> None:
        """Take the questions of a turn.

        Raises:
            InterlaceFailure: a question was asked before, is about a prefix that is too short
                or too deep, lies within another that is open, or narrows an empty partition.
        """
        for kind, prefix in questions:
            if (kind, prefix) in self._asked:
                raise _malformed(f"the peer asks again about partition {prefix!r}")
            if self.mode == 1 and len(prefix) < 2:
                raise _malformed(f"partitions begin with two characters, not {prefix!r}")
            if kind == NARROW and self.own.count(prefix) == 0:
                raise _malformed(f"the peer narrows the empty partition {prefix!r}")
            if self._depth(prefix) + (kind == NARROW) > self.limits.depth:
                raise limit_failure(
                    Failure.DEPTH_LIMIT,
                    f"the peer asks beyond the depth at {prefix!r}",
                    limit="max_narrowing_depth",
                    allowed=self.limits.depth,
                    agreed=True,
                )
            if len(self._asked) >= self.limits.summaries:
                # Each answer is a summary at least, and the peer keeps its own limit of these.
                raise limit_failure(
                    Failure.SUMMARY_LIMIT,
                    f"the peer asks more than {self.limits.summaries:,} questions in a loop",
                    limit="max_partition_summaries",
                    allowed=self.limits.summaries,
                    agreed=True,
                )
            if self._is_nested(prefix):
                raise _malformed(f"questions that are open nest at partition {prefix!r}")
            self._asked.add((kind, prefix))
            self._waiting.append((kind, prefix))
            self._open.add(prefix)
            self._above.update(_prefixes_of(prefix))

    def _leave(self, prefix: str) -> None:
        """Forget the partitions that an answered one lies in, unless another does, too."""
        for each in _prefixes_of(prefix):
            self._above[each] -= 1
            if not self._above[each]:
                del self._above[each]

    def _is_nested(self, prefix: str) -> bool:
        if prefix in self._open or self._above[prefix]:
            return True
        return any(each in self._open for each in _prefixes_of(prefix))

    def _depth(self, prefix: str) -> int:
        return len(prefix) - start_length(self.mode)

    def _is_listed(self, kind: str, prefix: str) -> bool:
        return kind == LIST and self.own.count(prefix) <= self.limits.listed

    def wanted(self) -> list[str]:
        """Return the records whose advertisements the next block needs."""
        found: list[str] = []
        for kind, prefix in self._waiting:
            if self._is_listed(kind, prefix):
                if found and len(found) + self.own.count(prefix) > self.limits.listed:
                    break
                self._listed[prefix] = self.own.records(prefix)
                found += self._listed[prefix]
        return found

    def block(self, described: Mapping[str, Advertisement]) -> list[Fact]:
        """Return the answers that fit into one block; of lists, those that are described."""
        made: list[Fact] = []
        size = 0
        while self._waiting:
            kind, prefix = self._waiting[0]
            records: list[str] | None = None
            if self._is_listed(kind, prefix):
                records = self._listed.get(prefix) or self.own.records(prefix)
                if not described.keys() >= {*records}:
                    break
            answer = self._answer(prefix, records, described)
            more = block_bytes(answer)
            if more > self.limits.answer_bytes and records is not None:
                answer = self._answer(prefix, None, described)
                more = block_bytes(answer)
            if made and size + more > self.limits.answer_bytes:
                break
            made += answer
            size += more
            self._waiting.popleft()
            self._open.discard(prefix)
            self._leave(prefix)
        self._listed.clear()
        return made

    def _answer(
        self, prefix: str, records: list[str] | None, described: Mapping[str, Advertisement]
    ) -> list[Fact]:
        if records is not None:
            found = (described[record] for record in records)
            return [
                partition_fact(self.own, prefix),
                *advertisement_facts(found, self.source),
            ]
        if self._depth(prefix) >= self.limits.depth:
            raise InterlaceFailure(
                Failure.LISTING_LIMIT,
                f"partition {prefix!r} has {self.own.count(prefix):,} advertisements,"
                f" and the limit is {self.limits.listed:,}",
                rule="050-230",
                hint="raise max_advertisement_records_listed or max_fact_block_size on both sides",
            )
        if self.mode == 2:
            return [children_fact(self.own, prefix)]
        children = (child for child in child_prefixes(prefix) if self.own.count(child))
        return [partition_fact(self.own, child) for child in children]


def _prefixes_of(prefix: str) -> list[str]:
    """Return the prefixes of the partitions that a partition lies in."""
    return [prefix[:length] for length in range(len(prefix))]


def _malformed(message: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.MALFORMED_BLOCK, message, rule="G44")
