"""The asking half of reconciliation: from summaries to what the peer advertises (G44).

There are two strategies. A `Searcher` takes from the sets that it knows whatever a root or a
fingerprint shows to be the same, and asks for the rest: to list a partition, or to narrow it.
What it puts together must have the count and root that the peer announced.

When two sides ask each other, one of them need not search. A `Follower` takes the peer to have
what it has itself, asks only for the lists that the peer asks for, and leaves the rest to its
searcher when that does not lead to the announced root. The side that is followed therefore asks
also for lists that it knows to be empty, where it has records that the peer lacks.

Apart from `reconcile`, which alternates turns; this is the side that asks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from lace.base import b64a
from lace.exchange.advertisement import claim_bytes, digests_of
from lace.exchange.advertisement_set import child_prefixes, fingerprint_of, payload_of
from lace.exchange.failures import Failure, InterlaceFailure, limit_failure
from lace.exchange.merkle import EMPTY_ROOT
from lace.exchange.summaries import (
    CHILDREN,
    LINE_BYTES,
    LIST,
    NARROW,
    ClaimSet,
    Costs,
    InquiryLimits,
    Shares,
    Summary,
    is_listing_cheaper,
    start_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lace.exchange.advertisement import Advertisement


S = TypeVar("S", bound=ClaimSet)

# -- The queue of questions: which partitions are wanted, and what is asked about them (G44).
#
# Nothing is asked twice, questions that are open do not nest, and a turn asks only for what
# it expects to fit. Where answers would pass the limit of summaries, larger partitions are
# listed instead.

Estimate: TypeAlias = "Callable[[str], float]"

_PUNCTUATION: Final = 5
"""Bytes of a question's line beside its predicate and prefix."""


@dataclass(slots=True, kw_only=True)
class Wanted:
    """A partition that is asked about next.

    `count` is how many records it has, about, and `known` how many of them some known set
    has; `fingerprint` is what the peer has said of it, if it is to be looked at.
    """

    prefix: str
    count: float
    known: int = 0
    must_list: bool = False
    fingerprint: bytes | None = None


class QueryQueue:
    """The questions of one loop, from wanted to answered."""

    def __init__(self, mode: int, limits: InquiryLimits, advertisement_bytes: int) -> None:
        self._mode = mode
        self._limits = limits
        self._advertisement_bytes = advertisement_bytes
        self.costs = Costs.of_mode(mode, advertisement_bytes)
        self.shares = Shares()
        self.wanted: list[Wanted] = []
        self.open: dict[str, str] = {}
        self.asked: set[tuple[str, str]] = set()
        self._start = start_length(mode)
        self._due: dict[str, int] = {}
        self.lines = limits.taken
        """The summaries that count toward the limit."""

    def expect_listings(self, listings: int) -> None:
        """Expect this many listings of each partition that is listed."""
        self.costs = Costs.of_mode(self._mode, self._advertisement_bytes, listings=listings)

    def answered(self, prefix: str) -> None:
        """Take note that a question has its answer."""
        self._due.pop(prefix, None)
        if self.open.pop(prefix, None) is None:
            raise InterlaceFailure(
                Failure.MALFORMED_BLOCK, f"nobody asked about partition {prefix!r}", rule="G44"
            )

    def count_lines(self, lines: int) -> None:
        """Count summaries that came."""
        self.lines += lines
        if self.lines > self._limits.summaries:
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
        busy = {*self.open, *(each.prefix for each in self.wanted)}
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
        """Return what to ask next: the question's predicate and the prefix, each asked once."""
        if not self.wanted:
            return []
        self._keep_summary_limit(estimate)
        asked: list[tuple[str, str]] = []
        room, lines = self._limits.answer_bytes // 2, self._limits.question_bytes
        later: list[Wanted] = []
        for wanted in sorted(self.wanted, key=lambda each: each.prefix):
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
        self.wanted = later
        if self.lines + len(self.open) > self._limits.summaries:
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
        """Whether nothing may be asked about a partition: it is beyond the depth."""
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
        room = self._limits.summaries - self.lines - sum(self._due.values())
        lines = sum(map(self._lines_for, self.wanted))
        length = max(len(each.prefix) for each in self.wanted)
        while lines > room and length > self._start:
            length -= 1
            lines -= self._merge(length, lines - room, estimate)
        if lines > room:
            for each in self.wanted:
                each.must_list = each.must_list or self._can_list(each)

    def _merge(self, length: int, excess: int, estimate: Estimate) -> int:
        """Want larger partitions instead of those in them; returns how many lines that saves."""
        families: dict[str, list[Wanted]] = {}
        for each in self.wanted:
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
            for each in self.wanted
            if len(each.prefix) <= length or each.prefix[:length] not in merged
        ]
        self.wanted = [*kept, *merged.values()]
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


# -- What is known of the peer's advertisements so far, put together of partitions (G44).
#
# Some partitions are known for certain: they were listed, or a known state has their count
# and root. Others are taken on trust, by a fingerprint or because a side follows; these can
# be doubted. Where partitions nest, the inner one counts.


@dataclass(frozen=True, slots=True)
class PartialSet(Generic[S]):
    """What the peer has, by partition: what is certain, and what is taken on trust."""

    empty: S
    certain: dict[str, S] = field(default_factory=dict)
    trusted: dict[str, S] = field(default_factory=dict)
    _relearned: set[str] = field(default_factory=set)

    def is_certain(self, prefix: str) -> bool:
        """Tell whether a partition, or one around it, is known for certain."""
        return any(prefix[:length] in self.certain for length in range(len(prefix) + 1))

    def learn(self, prefix: str, state: S, *, is_narrowed: bool = False) -> None:
        """Know a partition for certain; if it was narrowed, forget what was taken for its parts."""
        self.trusted.pop(prefix, None)
        self.certain[prefix] = state
        if is_narrowed:
            self._relearned.add(prefix)

    def joined(self) -> S:
        """Return everything that is known or trusted."""
        self._forget_parts()
        return self.empty.joined([*self.trusted.items(), *self.certain.items()])

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


# -- Partitions of which the peer lacks just one record: found by the fingerprint alone (G44).
#
# A partition that differs most often differs in one record. If it is this side that has it,
# then what the peer has is this side's partition less that record, and there are not many of
# those: the one that has the peer's fingerprint needs no question.

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


class SingleDifference:
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

    def find(self, prefix: str, fingerprint: bytes, states: Iterable[S]) -> tuple[S, str] | None:
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


# -- The two strategies.

_LEAST_ROOM: Final = 1024
"""Summaries that must be allowed for a side to follow: it may have to search afterwards."""


class Searcher(Generic[S]):
    """Finds what the peer advertises in one loop, by questions about what no known set has.

    `states` are sets that the peer's may be equal to, `empty` is one without records.
    `is_followed` says that the peer seems to leave the search to this side.
    """

    def __init__(
        self,
        mode: int,
        empty: S,
        states: Sequence[S],
        limits: InquiryLimits,
        advertisement_bytes: int,
    ) -> None:
        self._mode = mode
        self._empty = empty
        self.limits = limits
        self.states = list(states)
        self.queue = QueryQueue(mode, limits, advertisement_bytes)
        self.found = PartialSet(empty)
        self._single = SingleDifference()
        self._is_delta = False
        self._announced: dict[str, Summary] = {}
        self.total = 0
        """How many records were announced, or listed, in turn 0."""
        self.is_followed = False
        self.listed: dict[str, Advertisement] = {}
        self.listed_bytes = 0
        """The bytes of the texts that were listed."""
        self._lists: list[str] = []
        self.result: S | None = None

    # -- what arrives --------------------------------------------------------------------------

    def announce(self, summaries: Mapping[str, Summary]) -> None:
        """Take the summaries of turn 0."""
        self.queue.count_lines(len(summaries))
        self._announced = dict(summaries)
        self.total = sum(each.count for each in summaries.values())

    @property
    def whole(self) -> Summary:
        """What was announced of everything (mode 2)."""
        return self._announced[""]

    def take_all(self, state: S, found: Mapping[str, Advertisement]) -> None:
        """Take a full listing."""
        self.total = state.count("")
        self.result = state
        self._note_listed(found)

    def is_known(self) -> bool:
        """Tell whether known sets have all that was announced."""
        announced = self._announced.items()
        return all(
            self._known(prefix, each) is not None for prefix, each in announced if each.count
        )

    def _known(self, prefix: str, summary: Summary) -> S | None:
        """Return the known set that has the count and root of a partition, if any."""
        matching = (state for state in self.states if _fits(state, prefix, summary))
        return next(matching, None)

    def begin(self) -> None:
        """Look for what no known set has; all of them are there now."""
        for prefix, summary in self._announced.items():
            self._place(prefix, summary)
        self._settle()

    def _place(self, prefix: str, summary: Summary) -> None:
        """Take a partition from a set that has its count and root, or want it."""
        if summary.count == 0:
            return
        known = self._known(prefix, summary)
        if known is None:
            self._want(prefix, summary.count)
        else:
            self.found.learn(prefix, known)

    def _want(self, prefix: str, count: float) -> None:
        known = self._largest(prefix)
        self.queue.wanted.append(Wanted(prefix=prefix, count=count, known=known))

    def _largest(self, prefix: str) -> int:
        """Return how many records known sets have of a partition, at most."""
        return max((state.count(prefix) for state in self.states), default=0)

    def take_summaries(self, parent: str, children: Mapping[str, Summary]) -> None:
        """Take the summaries of a partition's children (mode 1)."""
        self.queue.answered(parent)
        self.queue.count_lines(len(children))
        expected = self._announced[parent].count
        if sum(each.count for each in children.values()) != expected:
            raise InterlaceFailure(
                Failure.MALFORMED_SUMMARY,
                f"the children of partition {parent!r} do not add up to {expected:,}",
                rule="G44",
            )
        self._announced.update(children)
        before = len(self.queue.wanted)
        for prefix, summary in children.items():
            self._place(prefix, summary)
        self._note_share(parent, before)

    def take_children(
        self, parent: str, fingerprints: Sequence[bytes], *, is_asked: bool = True
    ) -> None:
        """Take the fingerprints of a partition's children (mode 2)."""
        if is_asked:
            self.queue.answered(parent)
        else:  # those of the whole set answer a cursor
            self.queue.asked.add((NARROW, parent))
        self.queue.count_lines(1)
        self.found.trusted.pop(parent, None)
        known = [(state, state.children(parent)) for state in self.states]
        before = len(self.queue.wanted)
        about = self.estimate(parent) / CHILDREN
        for at, (child, given) in enumerate(zip(child_prefixes(parent), fingerprints, strict=True)):
            states = [(state, *children[at]) for state, children in known]
            self._compare(child, given, states, about)
        self._note_share(parent, before)

    def _compare(
        self,
        child: str,
        given: bytes,
        known: Sequence[tuple[S, int, bytes]],
        about: float,
    ) -> None:
        """Take a child from where its fingerprint is known, or want its records, `about` many."""
        if child in self.found.certain:
            if fingerprint_of(self.found.certain[child].root(child)) != given:
                raise _mismatch(f"partition {child!r} has another root than its list")
            return
        most = max((count for _, count, _ in known), default=0)
        if given == fingerprint_of(EMPTY_ROOT):
            self.found.trusted[child] = self._empty
            if most:
                self._point_at(child)
            return
        for state, count, root in known:
            if count and fingerprint_of(root) == given:
                self.found.trusted[child] = state
                return
        self.queue.wanted.append(
            Wanted(prefix=child, count=most or about, known=most, fingerprint=given)
        )

    def estimate(self, prefix: str) -> float:
        """Return about how many records a partition has."""
        announced = self._announced.get(prefix)
        if announced is not None:
            return float(announced.count)
        known = self._largest(prefix)
        return float(known) if known else self.estimate(prefix[:-1]) / CHILDREN

    def _note_share(self, parent: str, before: int) -> None:
        """Note how many of a partition's children differ: those that were queued last."""
        added = self.queue.wanted[before:]
        differing = sum(not each.must_list for each in added)
        self.queue.shares.note(len(parent) + 1, CHILDREN, differing)

    def _note_listed(self, found: Mapping[str, Advertisement]) -> None:
        """Keep advertisements that were listed; there are no more than were announced."""
        self.listed.update(found)
        self.listed_bytes += claim_bytes(found.values())
        if len(self.listed) > self.total:
            raise InterlaceFailure(
                Failure.COUNT_MISMATCH,
                f"the peer announced {self.total:,} records and lists more",
            )

    @property
    def is_all_listed(self) -> bool:
        """Whether what was listed is the result, and nothing else.

        Of nested lists one counts, and the other may have had more.
        """
        if self.result is None or len(self.listed) != self.result.count(""):
            return False
        pairs = itertools.pairwise(sorted(self._lists))
        return not any(inner.startswith(outer) for outer, inner in pairs)

    def take_listing(
        self, prefix: str, summary: Summary, found: Mapping[str, Advertisement], source: str
    ) -> None:
        """Take the records of a partition; their count and root must be those announced."""
        self.queue.answered(prefix)
        self.queue.count_lines(1)
        made = self._empty.changed(list(found), digests_of(found.values(), source), ())
        earlier = self._announced.get(prefix, summary)
        if not _fits(made, "", summary) or earlier != summary:
            raise _mismatch(
                f"the {len(found):,} advertisements of partition {prefix!r} are not those announced"
            )
        self._announced[prefix] = summary
        is_narrowed = (NARROW, prefix) in self.queue.asked
        self.found.learn(prefix, made, is_narrowed=is_narrowed)
        self._lists.append(prefix)
        self._note_listed(found)

    def take_delta(self, state: S, found: Mapping[str, Advertisement]) -> None:
        """Take the whole state that a delta leads to; it is not checked yet."""
        self.found.trusted[""] = state
        self._is_delta = True
        self._note_listed(found)

    # -- being followed ------------------------------------------------------------------------

    def be_followed(self, *, is_followed: bool) -> None:
        """Take note whether the peer leaves the search to this side."""
        self.is_followed = is_followed
        self.queue.expect_listings(2 if is_followed else 1)

    def _point_at(self, prefix: str) -> None:
        """Ask for a list that is known to be empty, so that the follower asks for it as well."""
        queue = self.queue
        if queue.is_too_deep(prefix):
            return  # the follower searches by itself then
        if self.is_followed and (LIST, prefix) not in queue.asked:
            queue.wanted.append(Wanted(prefix=prefix, count=0, must_list=True))

    # -- what is asked -------------------------------------------------------------------------

    def look_closer(self) -> None:
        """Settle partitions that differ where the peer just lacks one record of them."""
        wanted, self.queue.wanted = self.queue.wanted, []
        unsolved = [each for each in wanted if not self._lacks_one(each)]
        self.queue.wanted += unsolved

    def _lacks_one(self, wanted: Wanted) -> bool:
        given, wanted.fingerprint = wanted.fingerprint, None
        expected = self.queue.shares.expected(len(wanted.prefix))
        if given is None or not self._single.is_worth(wanted.known, expected):
            return False
        found = self._single.find(wanted.prefix, given, self.states)
        if found is None:
            return False
        self.found.trusted[wanted.prefix], alone = found
        self._point_at(alone)
        return True

    def questions(self) -> list[tuple[str, str]]:
        """Return what to ask next: the question's predicate and the prefix, each asked once."""
        self.look_closer()
        self._settle()
        return self.queue.questions(self.estimate)

    # -- the end -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """When nothing is open, put the pieces together and compare with what was announced."""
        if self.queue.open or self.queue.wanted or self.result is not None:
            return
        made = self.found.joined()
        start = start_length(self._mode)
        announced = self._announced.items()
        if all(_fits(made, prefix, each) for prefix, each in announced if len(prefix) == start):
            self.result = made
        else:
            self._doubt(made)

    def _doubt(self, made: S) -> None:
        """Ask again for what was taken by fingerprint, level by level; what is empty comes last."""
        doubted = list(self.found.doubt())
        if not doubted:
            raise _mismatch("the advertisements of the peer do not have the root that it announced")
        if self._is_delta:
            self.listed.clear()  # nothing of a wrong delta is to be used
            self.listed_bytes = 0
        elif doubted[0][0] == "":
            self.states.insert(0, made)  # what came while it followed need not come again
        for prefix, count in doubted:
            self._want(prefix, count or 1.0)
            self.queue.wanted[-1].must_list = self._is_delta
        self._is_delta = False


class Follower(Generic[S]):
    """Leaves the search to the peer: takes it to have what a known set has, but for what it lists.

    It asks for the lists that the peer asks for. When the peer is done, or there is nothing
    more to ask, its searcher checks the result, and goes on.
    """

    def __init__(self, searcher: Searcher[S], state: S) -> None:
        self._searcher = searcher
        self._state = state
        searcher.found.trusted[""] = state
        self.is_done = False
        """Whether it has nothing left to ask: the searcher goes on."""

    @staticmethod
    def can_replace(searcher: Searcher[S]) -> bool:
        """Tell whether there is something to search for, by more than a list, and room for it."""
        whole = Wanted(prefix="", count=searcher.total, known=searcher.total)
        is_large = searcher.queue.choose(whole)[0] == NARROW
        has_room = searcher.limits.summaries >= _LEAST_ROOM
        return is_large and has_room and not searcher.is_known()

    def watch(self, questions: Iterable[tuple[str, str]]) -> None:
        """Want the lists that the peer asks for."""
        searcher = self._searcher
        listed = [prefix for kind, prefix in questions if kind == LIST]
        searcher.queue.wanted += [
            Wanted(prefix=prefix, count=searcher.estimate(prefix), must_list=True)
            for prefix in searcher.queue.free(listed)
            if not searcher.found.is_certain(prefix)
        ]

    def questions(self, *, must_ask: bool = False) -> list[tuple[str, str]]:
        """Return what to ask next; where the phase could end otherwise, something must be asked."""
        searcher = self._searcher
        searcher.look_closer()
        asked = searcher.queue.questions(searcher.estimate)
        if asked or searcher.queue.open or not must_ask:
            return asked
        prefix = self._small_partition()
        if prefix is None:
            self.is_done = True
            return []
        searcher.queue.ask(LIST, prefix)
        return [(LIST, prefix)]

    def _small_partition(self) -> str | None:
        """Return a partition with a short list: so small that it is likely empty."""
        searcher, length = self._searcher, 1
        while searcher.total * CHILDREN > CHILDREN**length:
            length += 1
        names = map("".join, itertools.product(b64a.ALPHABET, repeat=length))
        some = searcher.queue.free(itertools.islice(names, CHILDREN))
        left = [prefix for prefix in some if not searcher.found.is_certain(prefix)]
        return min(left, key=self._state.count, default=None)


def _fits(state: ClaimSet, prefix: str, summary: Summary) -> bool:
    """Tell whether a partition of a set has a count and root."""
    return state.count(prefix) == summary.count and state.root(prefix) == summary.root


def _mismatch(message: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.ROOT_MISMATCH, message, rule="050-169")
