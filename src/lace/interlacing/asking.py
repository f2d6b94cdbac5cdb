"""The asking half of reconciliation: from summaries to what the peer advertises (G44).

An `Inquiry` is about the peer's frozen send set of one loop. It has the known states,
takes from them whatever a root or a fingerprint shows to be the same, and asks for the
rest: to list a partition, or to narrow it. What it assembles must have the count and root
that the peer announced.

When two sides ask each other, one of them need not search. It follows: it takes the other
to have what it has itself, asks only for the lists that the other asks for, and searches
when that does not lead to the announced root. Who is followed therefore asks also for
lists that it knows to be empty, where it has records that the peer lacks.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.interlacing.advertisement import claim_bytes, digests_of
from lace.interlacing.agenda import Agenda, Wanted
from lace.interlacing.assembly import Assembly
from lace.interlacing.failures import Failure, InterlaceFailure
from lace.interlacing.lacking import LackingOne
from lace.interlacing.merkle import EMPTY_ROOT
from lace.interlacing.partitions import AdvertisementSet, child_prefixes, fingerprint_of
from lace.interlacing.questions import CHILDREN, LIST, NARROW, InquiryLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.interlacing.advertisement import Advertisement
    from lace.interlacing.summaries import Summary

__all__ = ["Inquiry"]

_NOTHING: Final = AdvertisementSet()
_LEAST_ROOM: Final = 1024
"""Summaries that must be allowed for a side to follow: it may have to search afterwards."""


class Inquiry:
    """Questions about one loop's advertisements of the peer.

    `is_following` says that it leaves the search to the peer, `is_followed` that the peer
    seems to leave it to this side.

    Args:
        mode: 1 or 2.
        states: the known states, the likeliest first.
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
