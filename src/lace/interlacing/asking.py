"""The asking half of reconciliation: from summaries to what the peer advertises (G44).

An `Inquiry` is about the peer's frozen send set of one loop. It knows the states at hand,
takes from them whatever a root or a fingerprint shows to be the same, and asks for the
rest: to list a partition, or to narrow it. What it assembles must have the count and root
that the peer announced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.merkle import EMPTY_ROOT
from lace.interlacing.partitions import AdvertisementSet, child_prefixes, fingerprint_of
from lace.interlacing.questions import (
    CHILDREN,
    LINE_BYTES,
    Costs,
    InquiryLimits,
    is_listing_cheaper,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.interlacing.advertisement import Advertisement

__all__ = ["LIST", "NARROW", "Inquiry", "Summary"]

LIST: Final = "ListAdvertisementPartition"
NARROW: Final = "NarrowAdvertisementPartition"
_NOTHING: Final = AdvertisementSet()
_PUNCTUATION: Final = 5
"""Bytes of a question's line beside its predicate and prefix."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What was announced of a partition."""

    count: int
    root: bytes


@dataclass(slots=True)
class _Wanted:
    """A partition that differs: about how many records it has, which share of siblings differs."""

    prefix: str
    count: float
    differing: float
    must_list: bool = False


class Inquiry:
    """Questions about one loop's advertisements of the peer.

    Args:
        mode: 1 or 2.
        states: the states at hand, the likeliest first.
        limits: what bounds questions and answers.
        advertisement_bytes: the bytes of an advertisement record, about.
    """

    def __init__(
        self,
        mode: int,
        states: Sequence[AdvertisementSet],
        limits: InquiryLimits,
        advertisement_bytes: int,
    ) -> None:
        self._mode = mode
        self.states = list(states)
        self._limits = limits
        self._costs = Costs.of_mode(mode, advertisement_bytes)
        self._is_delta = False
        self._announced: dict[str, Summary] = {}
        self._pieces: dict[str, AdvertisementSet] = {}
        self._guessed: dict[str, AdvertisementSet] = {}
        self._queue: list[_Wanted] = []
        self.open: dict[str, str] = {}
        self._asked: set[tuple[str, str]] = set()
        self._lines = self._total = 0
        self.listed: dict[str, Advertisement] = {}
        self.result: AdvertisementSet | None = None

    # -- what arrives --------------------------------------------------------------------------

    def announce(self, summaries: Mapping[str, Summary]) -> None:
        """Take the summaries of turn 0."""
        self._count_lines(len(summaries))
        self._announced = dict(summaries)
        self._total = sum(each.count for each in summaries.values())

    @property
    def total(self) -> int:
        """How many records were announced, or listed, in turn 0."""
        return self._total

    def take_all(self, state: AdvertisementSet, found: Mapping[str, Advertisement]) -> None:
        """Take a full listing."""
        self._total = len(state)
        self.result = state
        self.listed.update(found)

    def is_known(self) -> bool:
        """Tell whether some state at hand has all that was announced."""
        return all(
            any(
                state.count(prefix) == each.count and state.root(prefix) == each.root
                for state in self.states
            )
            for prefix, each in self._announced.items()
            if each.count
        )

    def begin(self) -> None:
        """Look for what no state at hand has; all states are there now."""
        for prefix, summary in self._announced.items():
            self._place(prefix, summary)
        self._settle()

    def _place(self, prefix: str, summary: Summary) -> None:
        """Take a partition from a state that has its count and root, or want it."""
        if summary.count == 0:
            return
        for state in self.states:
            if state.count(prefix) == summary.count and state.root(prefix) == summary.root:
                self._pieces[prefix] = state
                return
        self._queue.append(_Wanted(prefix, summary.count, 0.0))

    def take_summaries(self, parent: str, children: Mapping[str, Summary]) -> None:
        """Take the summaries of a partition's children (mode 1)."""
        self._answered(parent)
        self._count_lines(len(children))
        expected = self._announced[parent].count
        if sum(each.count for each in children.values()) != expected:
            raise InterlaceFailure(
                Failure.MALFORMED_SUMMARY,
                f"the children of partition {parent!r} do not add up to {expected:,}",
                rule="G44",
            )
        self._announced.update(children)
        before = len(self._queue)
        for prefix, summary in children.items():
            self._place(prefix, summary)
        self._note_share(before)

    def take_children(self, parent: str, fingerprints: Sequence[bytes]) -> None:
        """Take the fingerprints of a partition's children (mode 2)."""
        self._answered(parent)
        self._narrowed(parent, fingerprints)

    def take_unasked_children(self, fingerprints: Sequence[bytes]) -> None:
        """Take the fingerprints of the whole set's children, which answer a cursor."""
        self._asked.add((NARROW, ""))
        self._narrowed("", fingerprints)

    def _narrowed(self, parent: str, fingerprints: Sequence[bytes]) -> None:
        self._count_lines(1)
        known = [(state, state.children(parent)) for state in self.states]
        total, empty = self._estimate(parent), fingerprint_of(EMPTY_ROOT)
        before = len(self._queue)
        for at, (child, given) in enumerate(zip(child_prefixes(parent), fingerprints, strict=True)):
            if given == empty:
                self._guessed[child] = _NOTHING
                continue
            for state, children in known:
                count, root = children[at]
                if count and fingerprint_of(root) == given:
                    self._guessed[child] = state
                    break
            else:
                most = max((children[at][0] for _, children in known), default=0)
                self._queue.append(_Wanted(child, most or total / CHILDREN, 0.0))
        self._note_share(before)

    def _estimate(self, prefix: str) -> float:
        """Return about how many records a partition has."""
        announced = self._announced.get(prefix)
        if announced is not None:
            return float(announced.count)
        known = max((state.count(prefix) for state in self.states), default=0)
        return float(known) if known else self._estimate(prefix[:-1]) / CHILDREN

    def _note_share(self, before: int) -> None:
        """Note which share of siblings differs for those that were queued last."""
        added = self._queue[before:]
        for each in added:
            each.differing = len(added) / CHILDREN

    def take_listing(
        self, prefix: str, summary: Summary, found: Mapping[str, Advertisement], source: str
    ) -> None:
        """Take the records of a partition; their count and root must be those announced."""
        self._answered(prefix)
        self._count_lines(1)
        records = list(found)
        digests = [found[record].digest(source) for record in records]
        made = AdvertisementSet.of(records, digests)
        earlier = self._announced.get(prefix, summary)
        if (len(made), made.root("")) != (summary.count, summary.root) or earlier != summary:
            raise InterlaceFailure(
                Failure.ROOT_MISMATCH,
                f"the {len(made):,} advertisements of partition {prefix!r} are not those announced",
                rule="050-169",
            )
        self._announced[prefix] = summary
        if (NARROW, prefix) in self._asked:
            self._forget_below(prefix)
        self._pieces[prefix] = made
        self.listed.update(found)

    def take_delta(self, state: AdvertisementSet, found: Mapping[str, Advertisement]) -> None:
        """Take the whole state that a delta leads to; it is not checked yet."""
        self._guessed[""] = state
        self._is_delta = True
        self.listed.update(found)

    def _forget_below(self, prefix: str) -> None:
        """Forget what was taken for a partition, which is known whole now."""
        for taken in (self._guessed, self._pieces):
            for each in [each for each in taken if each.startswith(prefix)]:
                del taken[each]
        self._queue = [each for each in self._queue if not each.prefix.startswith(prefix)]

    def _answered(self, prefix: str) -> None:
        if self.open.pop(prefix, None) is None:
            raise InterlaceFailure(
                Failure.MALFORMED_BLOCK, f"nobody asked about partition {prefix!r}", rule="G44"
            )

    def _count_lines(self, lines: int) -> None:
        self._lines += lines
        if self._lines > self._limits.summaries:
            raise InterlaceFailure(
                Failure.SUMMARY_LIMIT,
                f"the peer sent more than {self._limits.summaries:,} partition summaries",
                rule="050-231",
                hint="raise max_partition_summaries",
            )

    # -- what is asked -------------------------------------------------------------------------

    def questions(self) -> list[tuple[str, str]]:
        """Return what to ask next: the question's predicate and the prefix, each asked once."""
        self._settle()
        if not self._queue:
            return []
        self._keep_summary_limit()
        asked: list[tuple[str, str]] = []
        room, lines = self._limits.answer_bytes // 2, self._limits.question_bytes
        later: list[_Wanted] = []
        for wanted in sorted(self._queue, key=lambda each: each.prefix):
            kind, size = self._choose(wanted)
            line = len(kind) + len(wanted.prefix) + _PUNCTUATION
            if asked and (size > room or line > lines):
                later.append(wanted)
                continue
            if (kind, wanted.prefix) in self._asked:
                raise AssertionError(f"nothing is asked twice, and {wanted.prefix!r} would be")
            room -= size
            lines -= line
            self._asked.add((kind, wanted.prefix))
            self.open[wanted.prefix] = kind
            asked.append((kind, wanted.prefix))
        self._queue = later
        return asked

    def _choose(self, wanted: _Wanted) -> tuple[str, int]:
        """Return what to ask about a partition, and about how many bytes the answer has."""
        prefix, count = wanted.prefix, wanted.count
        size = LINE_BYTES + int(count * self._costs.advertisement)
        is_leaf = self._depth(prefix) >= self._limits.depth
        if wanted.must_list or is_leaf or (NARROW, prefix) in self._asked:
            return LIST, size
        if self._is_too_long(count, size):
            return NARROW, self._costs.children
        known = max((state.count(prefix) for state in self.states), default=0)
        if is_listing_cheaper(count, self._costs, known=known, differing=wanted.differing):
            return LIST, size
        return NARROW, self._costs.children

    def _depth(self, prefix: str) -> int:
        return len(prefix) - (0 if self._mode == 2 else 2)

    def _is_too_long(self, count: float, size: int) -> bool:
        return count > self._limits.listed or size > self._limits.answer_bytes // 2

    def _keep_summary_limit(self) -> None:
        """See that answers will not pass the limit of summaries: list larger partitions then."""
        room = self._limits.summaries - self._lines
        lines = sum(map(self._lines_for, self._queue))
        level = max(len(each.prefix) for each in self._queue)
        while lines > room and self._depth("x" * level) > 0:
            lines -= self._merge(level, lines - room)
            level -= 1

    def _merge(self, level: int, excess: int) -> int:
        """Want parents instead of their children of a level; returns how many lines that saves."""
        families: dict[str, list[_Wanted]] = {}
        for each in self._queue:
            if len(each.prefix) == level:
                families.setdefault(each.prefix[:-1], []).append(each)
        # Questions do not nest, so nothing below a parent may be asked for or open.
        below = [each.prefix for each in self._queue if len(each.prefix) > level]
        busy = {prefix[: level - 1] for prefix in (*below, *self.open)}
        saved = 0
        for parent in sorted(families, key=lambda each: -len(families[each])):
            merged = _Wanted(parent, self._estimate(parent), 1.0, must_list=True)
            gain = sum(map(self._lines_for, families[parent])) - 1
            if saved >= excess or gain < 1 or parent in busy or not self._can_list(merged):
                continue
            saved += gain
            children = {each.prefix for each in families[parent]}
            self._queue = [each for each in self._queue if each.prefix not in children]
            self._queue.append(merged)
        return saved

    def _can_list(self, merged: _Wanted) -> bool:
        """Tell whether a partition that was narrowed may be asked for as a whole after all."""
        _, size = self._choose(merged)
        is_asked = (LIST, merged.prefix) in self._asked
        return not is_asked and not self._is_too_long(merged.count, size)

    def _lines_for(self, wanted: _Wanted) -> int:
        kind, _ = self._choose(wanted)
        if kind == NARROW and self._mode == 1:
            return min(CHILDREN, int(wanted.count))
        return 1

    # -- the end -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """When nothing is open, put the pieces together and compare with what was announced."""
        if self.open or self._queue or self.result is not None:
            return
        made = AdvertisementSet.joined([*self._pieces.items(), *self._guessed.items()])
        if self._fits(made):
            self.result = made
            return
        self._doubt()

    def _fits(self, made: AdvertisementSet) -> bool:
        if self._mode == 1:
            return all(
                made.count(prefix) == each.count and made.root(prefix) == each.root
                for prefix, each in self._announced.items()
                if len(prefix) == 2
            )
        whole = self._announced[""]
        return len(made) == whole.count and made.root("") == whole.root

    def _doubt(self) -> None:
        """Ask again for what was taken by fingerprint, level by level; what is empty comes last."""
        filled = [prefix for prefix, state in self._guessed.items() if state.count(prefix)]
        doubted = filled or list(self._guessed)
        if not doubted:
            raise InterlaceFailure(
                Failure.ROOT_MISMATCH,
                "the advertisements of the peer do not have the root that it announced",
                rule="050-169",
            )
        if self._is_delta:
            self.listed.clear()  # nothing of a delta that lies is to be used
        level = min(map(len, doubted))
        for prefix in [prefix for prefix in doubted if len(prefix) == level]:
            state = self._guessed.pop(prefix)
            count = float(state.count(prefix)) or 1.0
            self._queue.append(_Wanted(prefix, count, 0.0, must_list=self._is_delta))
        self._is_delta = False
