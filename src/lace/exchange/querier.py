"""The asking half of reconciliation: from summaries to what the peer advertises (G44).

An `Inquiry` is about the peer's frozen send set of one loop. It has the known states,
takes from them whatever a root or a fingerprint shows to be the same, and asks for the
rest: to list a partition, or to narrow it. What it assembles must have the count and root
that the peer announced.

When two sides ask each other, one of them need not search. It follows: it takes the other
to have what it has itself, asks only for the lists that the other asks for, and searches
when that does not lead to the announced root. Who is followed therefore asks also for
lists that it knows to be empty, where it has records that the peer lacks.

Apart from `reconcile`, which alternates turns; this is the side that asks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base import b64a
from lace.exchange.advertisement import claim_bytes, digests_of
from lace.exchange.advertisement_set import (
    AdvertisementSet,
    child_prefixes,
    fingerprint_of,
    payload_of,
)
from lace.exchange.failures import Failure, InterlaceFailure, limit_failure
from lace.exchange.merkle import EMPTY_ROOT
from lace.exchange.summaries import (
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lace.exchange.advertisement import Advertisement
    from lace.exchange.summaries import Summary


# -- The agenda of an inquiry: which partitions are wanted, and what is asked about them (G44).
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

    `count` is how many records it has, about, and `known` how many of them some state at
    hand has; `fingerprint` is what the peer has told of it, if it is to be looked at.
    """

    prefix: str
    count: float
    known: int = 0
    must_list: bool = False
    fingerprint: bytes | None = None


class Agenda:
    """The questions of one inquiry, from wanted to answered."""

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
        """Take note that a question has its answer."""
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
        """Count summaries that came."""
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
        """Return what to ask next: the question's predicate and the prefix, each asked once."""
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


# -- What is known of the peer's advertisements so far, put together of partitions (G44).
#
# Some partitions are known for certain: they were listed, or a known state has their count
# and root. Others are taken on trust, by a fingerprint or because a side follows; these can
# be doubted. Where partitions lie in each other, the inner one counts.


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


_NOTHING: Final = AdvertisementSet()
_LEAST_ROOM: Final = 1024
"""Summaries that must be allowed for a side to follow: it may have to search afterwards."""


class Inquiry:
    """Questions about one loop's advertisements of the peer.

    `is_following` says that it leaves the search to the peer, `is_followed` that the peer
    seems to leave it to this side.
    """

    def __init__(
        self,
        mode: int,
        states: Sequence[AdvertisementSet],
        limits: InquiryLimits,
        advertisement_bytes: int,
    ) -> None:
        self._mode = mode
        self._limits = limits
        self.states = list(states)
        self._agenda = Agenda(mode, limits, advertisement_bytes)
        self._is_delta = False
        self._announced: dict[str, Summary] = {}
        self._assembly = Assembly()
        self._lacking = LackingOne()
        self._total = 0
        self.is_following = self.is_followed = False
        self.listed: dict[str, Advertisement] = {}
        self.listed_bytes = 0
        """The bytes of the texts that were listed."""
        self._lists: list[str] = []
        self.result: AdvertisementSet | None = None

    @property
    def open(self) -> Mapping[str, str]:
        """The questions that have no answer yet: prefixes, and the predicate of each."""
        return self._agenda.open

    @property
    def summaries(self) -> int:
        """The summaries that count toward the limit."""
        return self._agenda.lines

    # -- what arrives --------------------------------------------------------------------------

    def announce(self, summaries: Mapping[str, Summary]) -> None:
        """Take the summaries of turn 0."""
        self._agenda.count_lines(len(summaries))
        self._announced = dict(summaries)
        self._total = sum(each.count for each in summaries.values())

    @property
    def whole(self) -> Summary:
        """What was announced of everything (mode 2)."""
        return self._announced[""]

    @property
    def total(self) -> int:
        """How many records were announced, or listed, in turn 0."""
        return self._total

    def take_all(self, state: AdvertisementSet, found: Mapping[str, Advertisement]) -> None:
        """Take a full listing."""
        self._total = len(state)
        self.result = state
        self._note_listed(found)

    def is_known(self) -> bool:
        """Tell whether some known state has all that was announced."""
        return all(
            any(
                state.count(prefix) == each.count and state.root(prefix) == each.root
                for state in self.states
            )
            for prefix, each in self._announced.items()
            if each.count
        )

    def begin(self) -> None:
        """Look for what no known state has; all states are there now."""
        for prefix, summary in self._announced.items():
            self._place(prefix, summary)
        self._settle()

    def _place(self, prefix: str, summary: Summary) -> None:
        """Take a partition from a state that has its count and root, or want it."""
        if summary.count == 0:
            return
        for state in self.states:
            if state.count(prefix) == summary.count and state.root(prefix) == summary.root:
                self._assembly.learn(prefix, state)
                return
        self._want(prefix, summary.count)

    def _want(self, prefix: str, count: float) -> None:
        known = max((state.count(prefix) for state in self.states), default=0)
        self._agenda.queue.append(Wanted(prefix=prefix, count=count, known=known))

    def take_summaries(self, parent: str, children: Mapping[str, Summary]) -> None:
        """Take the summaries of a partition's children (mode 1)."""
        self._agenda.answered(parent)
        self._agenda.count_lines(len(children))
        expected = self._announced[parent].count
        if sum(each.count for each in children.values()) != expected:
            raise InterlaceFailure(
                Failure.MALFORMED_SUMMARY,
                f"the children of partition {parent!r} do not add up to {expected:,}",
                rule="G44",
            )
        self._announced.update(children)
        before = len(self._agenda.queue)
        for prefix, summary in children.items():
            self._place(prefix, summary)
        self._note_share(parent, before)

    def take_children(self, parent: str, fingerprints: Sequence[bytes]) -> None:
        """Take the fingerprints of a partition's children (mode 2)."""
        self._agenda.answered(parent)
        self._narrowed(parent, fingerprints)

    def take_unasked_children(self, fingerprints: Sequence[bytes]) -> None:
        """Take the fingerprints of the whole set's children, which answer a cursor."""
        self._agenda.asked.add((NARROW, ""))
        self._narrowed("", fingerprints)

    def _narrowed(self, parent: str, fingerprints: Sequence[bytes]) -> None:
        self._agenda.count_lines(1)
        self._assembly.trusted.pop(parent, None)
        known = [(state, state.children(parent)) for state in self.states]
        before = len(self._agenda.queue)
        about = self._estimate(parent) / CHILDREN
        for at, (child, given) in enumerate(zip(child_prefixes(parent), fingerprints, strict=True)):
            states = [(state, *children[at]) for state, children in known]
            self._compare(child, given, states, about)
        self._note_share(parent, before)

    def _compare(
        self,
        child: str,
        given: bytes,
        known: Sequence[tuple[AdvertisementSet, int, bytes]],
        about: float,
    ) -> None:
        """Take a child from where its fingerprint is known, or want its records, `about` many."""
        if child in self._assembly.certain:
            if fingerprint_of(self._assembly.certain[child].root(child)) != given:
                raise _mismatch(f"partition {child!r} has another root than its list")
            return
        most = max((count for _, count, _ in known), default=0)
        if given == fingerprint_of(EMPTY_ROOT):
            self._assembly.trusted[child] = _NOTHING
            if most:
                self._point_at(child)
            return
        for state, count, root in known:
            if count and fingerprint_of(root) == given:
                self._assembly.trusted[child] = state
                return
        self._agenda.queue.append(
            Wanted(prefix=child, count=most or about, known=most, fingerprint=given)
        )

    def _estimate(self, prefix: str) -> float:
        """Return about how many records a partition has."""
        announced = self._announced.get(prefix)
        if announced is not None:
            return float(announced.count)
        known = max((state.count(prefix) for state in self.states), default=0)
        return float(known) if known else self._estimate(prefix[:-1]) / CHILDREN

    def _note_share(self, parent: str, before: int) -> None:
        """Note how many of a partition's children differ: those that were queued last."""
        added = self._agenda.queue[before:]
        differing = sum(not each.must_list for each in added)
        self._agenda.shares.note(len(parent) + 1, CHILDREN, differing)

    def _note_listed(self, found: Mapping[str, Advertisement]) -> None:
        """Keep advertisements that were listed; there are no more than were announced."""
        self.listed.update(found)
        self.listed_bytes += claim_bytes(found.values())
        if len(self.listed) > self._total:
            raise InterlaceFailure(
                Failure.COUNT_MISMATCH,
                f"the peer announced {self._total:,} records and lists more",
            )

    @property
    def is_all_listed(self) -> bool:
        """Whether what was listed is the result, and nothing else.

        Of lists that lie in each other one counts, and the other may have told of more.
        """
        if self.result is None or len(self.listed) != len(self.result):
            return False
        pairs = itertools.pairwise(sorted(self._lists))
        return not any(inner.startswith(outer) for outer, inner in pairs)

    def take_listing(
        self, prefix: str, summary: Summary, found: Mapping[str, Advertisement], source: str
    ) -> None:
        """Take the records of a partition; their count and root must be those announced."""
        self._agenda.answered(prefix)
        self._agenda.count_lines(1)
        records = list(found)
        digests = digests_of(found.values(), source)
        made = AdvertisementSet.of(records, digests)
        earlier = self._announced.get(prefix, summary)
        if (len(made), made.root("")) != (summary.count, summary.root) or earlier != summary:
            raise _mismatch(
                f"the {len(made):,} advertisements of partition {prefix!r} are not those announced"
            )
        self._announced[prefix] = summary
        is_narrowed = (NARROW, prefix) in self._agenda.asked
        self._assembly.learn(prefix, made, is_narrowed=is_narrowed)
        self._lists.append(prefix)
        self._note_listed(found)

    def take_delta(self, state: AdvertisementSet, found: Mapping[str, Advertisement]) -> None:
        """Take the whole state that a delta leads to; it is not checked yet."""
        self._assembly.trusted[""] = state
        self._is_delta = True
        self._note_listed(found)

    # -- following -----------------------------------------------------------------------------

    def can_follow(self) -> bool:
        """Tell whether there is something to search for, by more than a list, and room for it."""
        whole = Wanted(prefix="", count=self._total, known=self._total)
        is_large = self._agenda.choose(whole)[0] == NARROW
        return is_large and self._limits.summaries >= _LEAST_ROOM and not self.is_known()

    def follow(self, state: AdvertisementSet) -> None:
        """Leave the search to the peer, and take it to have what a state has."""
        self._assembly.trusted[""] = state
        self.is_following = True

    def watch(self, questions: Iterable[tuple[str, str]], *, is_done: bool) -> None:
        """See what the peer asks; who follows asks for the same lists, until it is done."""
        if not self.is_following:
            return
        listed = [prefix for kind, prefix in questions if kind == LIST]
        self._agenda.queue += [
            Wanted(prefix=prefix, count=self._estimate(prefix), must_list=True)
            for prefix in self._agenda.free(listed)
            if not self._assembly.is_certain(prefix)
        ]
        self.is_following = not is_done

    def be_followed(self, *, is_followed: bool) -> None:
        """Take note whether the peer leaves the search to this side."""
        self.is_followed = is_followed
        self._agenda.expect_listings(2 if is_followed else 1)

    def _point_at(self, prefix: str) -> None:
        """Ask for a list that is known to be empty, so that who follows asks for it as well."""
        agenda = self._agenda
        if agenda.is_too_deep(prefix):
            return  # who follows searches by itself then
        if self.is_followed and (LIST, prefix) not in agenda.asked:
            agenda.queue.append(Wanted(prefix=prefix, count=0, must_list=True))

    def _look_closer(self) -> None:
        """See whether the peer just lacks one record of a partition that differs."""
        wanted, self._agenda.queue = self._agenda.queue, []
        unsolved = [each for each in wanted if not self._lacks_one(each)]
        self._agenda.queue += unsolved

    def _lacks_one(self, wanted: Wanted) -> bool:
        given, wanted.fingerprint = wanted.fingerprint, None
        expected = self._agenda.shares.expected(len(wanted.prefix))
        if given is None or not self._lacking.is_worth(wanted.known, expected):
            return False
        found = self._lacking.find(wanted.prefix, given, self.states)
        if found is None:
            return False
        self._assembly.trusted[wanted.prefix], alone = found
        self._point_at(alone)
        return True

    # -- what is asked -------------------------------------------------------------------------

    def questions(self, *, must_ask: bool = False) -> list[tuple[str, str]]:
        """Return what to ask next: the question's predicate and the prefix, each asked once.

        Who follows has nothing to ask at times; where the phase could end then, it must ask.
        """
        self._look_closer()
        self._settle()
        asked = self._agenda.questions(self._estimate)
        if asked or self.open or not must_ask or not self.is_following:
            return asked
        least = self._least_question()
        if least is None:
            self.is_following = False
            return self.questions()
        self._agenda.ask(*least)
        return [least]

    def _least_question(self) -> tuple[str, str] | None:
        """Return a question for a short list: of a partition so small that it is likely empty."""
        length = 1
        while self._total * CHILDREN > CHILDREN**length:
            length += 1
        names = map("".join, itertools.product(b64a.ALPHABET, repeat=length))
        some = self._agenda.free(itertools.islice(names, CHILDREN))
        left = [prefix for prefix in some if not self._assembly.is_certain(prefix)]
        prefix = min(left, key=self.states[-1].count, default=None)
        return None if prefix is None else (LIST, prefix)

    # -- the end -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """When nothing is open, put the pieces together and compare with what was announced."""
        if self.open or self._agenda.queue or self.result is not None or self.is_following:
            return
        made = self._assembly.joined()
        if self._fits(made):
            self.result = made
            return
        self._doubt(made)

    def _fits(self, made: AdvertisementSet) -> bool:
        if self._mode == 1:
            return all(
                made.count(prefix) == each.count and made.root(prefix) == each.root
                for prefix, each in self._announced.items()
                if len(prefix) == 2
            )
        return len(made) == self.whole.count and made.root("") == self.whole.root

    def _doubt(self, made: AdvertisementSet) -> None:
        """Ask again for what was taken by fingerprint, level by level; what is empty comes last."""
        doubted = list(self._assembly.doubt())
        if not doubted:
            raise _mismatch("the advertisements of the peer do not have the root that it announced")
        if self._is_delta:
            self.listed.clear()  # nothing of a delta that lies is to be used
            self.listed_bytes = 0
        elif doubted[0][0] == "":
            self.states.insert(0, made)  # what came while it followed need not come again
        for prefix, count in doubted:
            self._want(prefix, count or 1.0)
            self._agenda.queue[-1].must_list = self._is_delta
        self._is_delta = False


def _mismatch(message: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.ROOT_MISMATCH, message, rule="050-169")
