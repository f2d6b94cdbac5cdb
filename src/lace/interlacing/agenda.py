"""The agenda of an inquiry: which partitions are wanted, and what is asked about them (G44).

Nothing is asked twice, questions that are open do not nest, and a turn asks only for what
it expects to fit. Where answers would pass the limit of summaries, larger partitions are
listed instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.interlacing.failures import Failure, InterlaceFailure, limit_failure
from lace.interlacing.questions import (
    CHILDREN,
    LINE_BYTES,
    LIST,
    NARROW,
    Costs,
    InquiryLimits,
    Shares,
    is_listing_cheaper,
    start_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Agenda", "Estimate", "Wanted"]

Estimate: TypeAlias = "Callable[[str], float]"

_PUNCTUATION: Final = 5
"""Bytes of a question's line beside its predicate and prefix."""


@dataclass(slots=True, kw_only=True)
class Wanted:
    """A partition that is asked about next.

    `count` is how many records it has, about, and `known` how many of them some state at
    hand has; `fingerprint` is what the peer has told of it, if it is to be looked at.
    """

    prefix: str
    count: float
    known: int = 0
    must_list: bool = False
    fingerprint: bytes | None = None


class Agenda:
    """The questions of one inquiry, from wanted to answered.

    Args:
        mode: 1 or 2.
        limits: what bounds questions and answers.
        advertisement_bytes: the bytes of an advertisement record, about.
    """

    def __init__(self, mode: int, limits: InquiryLimits, advertisement_bytes: int) -> None:
        self._mode = mode
        self._limits = limits
        self._advertisement_bytes = advertisement_bytes
        self.costs = Costs.of_mode(mode, advertisement_bytes)
        self.shares = Shares()
        self.queue: list[Wanted] = []
        self.open: dict[str, str] = {}
        self.asked: set[tuple[str, str]] = set()
        self._start = start_length(mode)
        self._due: dict[str, int] = {}
        self._lines = limits.taken

    def expect_listings(self, listings: int) -> None:
        """Expect this many listings of each partition that is listed."""
        self.costs = Costs.of_mode(self._mode, self._advertisement_bytes, listings=listings)

    def answered(self, prefix: str) -> None:
        """Take note that a question has its answer.

        Raises:
            InterlaceFailure: it was not asked.
        """
        self._due.pop(prefix, None)
        if self.open.pop(prefix, None) is None:
            raise InterlaceFailure(
                Failure.MALFORMED_BLOCK, f"nobody asked about partition {prefix!r}", rule="G44"
            )

    @property
    def lines(self) -> int:
        """The summaries that have been counted."""
        return self._lines

    def count_lines(self, lines: int) -> None:
        """Count summaries that came.

        Raises:
            InterlaceFailure: they are more than the limit allows.
        """
        self._lines += lines
        if self._lines > self._limits.summaries:
            raise self._too_many("the peer sent more than")

    def _too_many(self, what: str) -> InterlaceFailure:
        return limit_failure(
            Failure.SUMMARY_LIMIT,
            f"{what} {self._limits.summaries:,} partition summaries",
            limit="max_partition_summaries",
            allowed=self._limits.summaries,
            agreed=True,
        )

    def free(self, prefixes: Iterable[str]) -> list[str]:
        """Return those in and around no partition wanted or asked about, and not too deep."""
        busy = {*self.open, *(each.prefix for each in self.queue)}
        around = {each[:length] for each in busy for length in range(len(each))}
        return [
            prefix
            for prefix in prefixes
            if not self.is_too_deep(prefix)
            and prefix not in around
            and (LIST, prefix) not in self.asked
            and not any(prefix[:length] in busy for length in range(len(prefix) + 1))
        ]

    def questions(self, estimate: Estimate) -> list[tuple[str, str]]:
        """Return what to ask next: the question's predicate and the prefix, each asked once.

        Args:
            estimate: says how many records a partition has, about.

        Raises:
            InterlaceFailure: the peer has narrowed beyond the depth, or the answers, one
                summary each at least, would be more than the limit allows. A peer that
                answers slowly would have all that is open looked at in every turn till then.
        """
        if not self.queue:
            return []
        self._keep_summary_limit(estimate)
        asked: list[tuple[str, str]] = []
        room, lines = self._limits.answer_bytes // 2, self._limits.question_bytes
        later: list[Wanted] = []
        for wanted in sorted(self.queue, key=lambda each: each.prefix):
            self._check_depth(wanted)
            kind, size = self.choose(wanted)
            line = len(kind) + len(wanted.prefix) + _PUNCTUATION
            if asked and (size > room or line > lines):
                later.append(wanted)
                continue
            room -= size
            lines -= line
            self._due[wanted.prefix] = self._lines_for(wanted)
            self.ask(kind, wanted.prefix)
            asked.append((kind, wanted.prefix))
        self.queue = later
        if self._lines + len(self.open) > self._limits.summaries:
            raise self._too_many("what the peer advertises takes more than")
        return asked

    def ask(self, kind: str, prefix: str) -> None:
        """Take note that a question is asked."""
        if (kind, prefix) in self.asked:
            raise AssertionError(f"nothing is asked twice, and {prefix!r} would be")
        self.asked.add((kind, prefix))
        self.open[prefix] = kind

    def choose(self, wanted: Wanted) -> tuple[str, int]:
        """Return what to ask about a partition, and about how many bytes the answer has."""
        prefix, count = wanted.prefix, wanted.count
        size = LINE_BYTES + int(count * self.costs.advertisement)
        is_leaf = self._depth(prefix) >= self._limits.depth
        if (LIST, prefix) in self.asked:
            return NARROW, self.costs.children  # its list was too long, and came narrowed
        if wanted.must_list or is_leaf or (NARROW, prefix) in self.asked:
            return LIST, size
        if self._is_too_long(count, size):
            return NARROW, self.costs.children
        expected = self.shares.expected(len(prefix))
        if is_listing_cheaper(count, self.costs, known=wanted.known, expected=expected):
            return LIST, size
        return NARROW, self.costs.children

    def _depth(self, prefix: str) -> int:
        return len(prefix) - self._start

    def is_too_deep(self, prefix: str) -> bool:
        """Whether nothing may be asked about a partition: it lies beyond the depth."""
        return self._depth(prefix) > self._limits.depth

    def _check_depth(self, wanted: Wanted) -> None:
        if wanted.count and self.is_too_deep(wanted.prefix):
            raise limit_failure(
                Failure.DEPTH_LIMIT,
                f"the peer narrows partition {wanted.prefix[:-1]!r} beyond the depth",
                limit="max_narrowing_depth",
                allowed=self._limits.depth,
                agreed=True,
            )

    def _is_too_long(self, count: float, size: int) -> bool:
        return count > self._limits.listed or size > self._limits.answer_bytes // 2

    # -- the limit of summaries ----------------------------------------------------------------

    def _keep_summary_limit(self, estimate: Estimate) -> None:
        """See that answers will not pass the limit of summaries: list larger partitions then."""
        room = self._limits.summaries - self._lines - sum(self._due.values())
        lines = sum(map(self._lines_for, self.queue))
        length = max(len(each.prefix) for each in self.queue)
        while lines > room and length > self._start:
            length -= 1
            lines -= self._merge(length, lines - room, estimate)
        if lines > room:
            for each in self.queue:
                each.must_list = each.must_list or self._can_list(each)

    def _merge(self, length: int, excess: int, estimate: Estimate) -> int:
        """Want larger partitions instead of those in them; returns how many lines that saves."""
        families: dict[str, list[Wanted]] = {}
        for each in self.queue:
            if len(each.prefix) > length:
                families.setdefault(each.prefix[:length], []).append(each)
        # Questions do not nest, so nothing in a partition that is wanted may be open.
        busy = {prefix[:length] for prefix in self.open}
        saved = 0
        merged: dict[str, Wanted] = {}
        for prefix in sorted(families, key=lambda each: -len(families[each])):
            whole = Wanted(prefix=prefix, count=estimate(prefix), must_list=True)
            gain = sum(map(self._lines_for, families[prefix])) - 1
            if saved >= excess or gain < 1 or prefix in busy or not self._can_list(whole):
                continue
            saved += gain
            merged[prefix] = whole
        kept = [
            each
            for each in self.queue
            if len(each.prefix) <= length or each.prefix[:length] not in merged
        ]
        self.queue = [*kept, *merged.values()]
        return saved

    def _can_list(self, wanted: Wanted) -> bool:
        """Tell whether a partition that was or would be narrowed may be listed after all."""
        is_asked = (LIST, wanted.prefix) in self.asked
        size = LINE_BYTES + int(wanted.count * self.costs.advertisement)
        return not is_asked and not self._is_too_long(wanted.count, size)

    def _lines_for(self, wanted: Wanted) -> int:
        """Return how many summaries a partition brings, at least."""
        kind, _ = self.choose(wanted)
        if kind == LIST:
            return 1
        return min(CHILDREN, int(wanted.count)) if self._mode == 1 else 2
