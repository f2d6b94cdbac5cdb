"""Reconciliation of one loop: both sides' turns, from summaries to the peer's advertisements (G44).

In each turn both sides send one block. Turn 0 summarises; later turns answer the questions
of the turn before and ask new ones; the phase ends with the first turn from 1 on in which
both blocks are empty. Mode 0 is one block each way, the full listing.

Apart from `advertise`, which chooses what is compared; this is the protocol of the turns.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic

from lace.base import b64a
from lace.exchange.advertisement import advertisement_facts, check_repeated, digests_of, read_claims
from lace.exchange.advertisement_set import child_prefixes
from lace.exchange.failures import Failure, InterlaceFailure, limit_failure
from lace.exchange.merkle import EMPTY_ROOT
from lace.exchange.querier import Follower, S, Searcher
from lace.exchange.summaries import (
    LIST,
    NARROW,
    START_LENGTH,
    Summary,
    block_bytes,
    children_fact,
    claims_by_partition,
    partition_fact,
    read_children,
    read_partition,
    start_length,
    summaries_of,
    summary_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.exchange.advertisement import Advertisement
    from lace.exchange.summaries import ClaimSet, InquiryLimits
    from lace.facts.lines import Fact
    from lace.policy.schema import Schema


# -- The answering half of reconciliation: about one's own frozen send set (G44).
#
# Questions are answered in the order in which they came, as many as fit into a block and at
# least one; the rest follows in later turns. One answer is never split.


@dataclass(slots=True)
class Responder:
    """Answers the peer's questions about one loop's own advertisements."""

    mode: int
    own: ClaimSet
    source: str
    limits: InquiryLimits
    _waiting: deque[tuple[str, str]] = field(default_factory=deque)
    _asked: set[tuple[str, str]] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)
    _above: Counter[str] = field(default_factory=Counter)
    _listed: dict[str, list[str]] = field(default_factory=dict)
    """The records of partitions that the next block lists, as they were wanted."""

    def ask(self, questions: Iterable[tuple[str, str]]) -> None:
        """Take the questions of a turn."""
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
        """Forget the partitions around an answered one, unless they are around another."""
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
    """Return the prefixes of the partitions around a partition."""
    return [prefix[:length] for length in range(len(prefix))]


def _malformed(message: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.MALFORMED_BLOCK, message, rule="G44")


# -- The full listing of mode 0: every advertisement in one block, each way (050, G42).


def make_listing(
    own: ClaimSet,
    described: Mapping[str, Advertisement],
    source: str,
    limits: InquiryLimits,
) -> list[Fact]:
    """Return the facts of all advertisements, ordered by record."""
    if own.count("") > limits.listed:
        raise _too_many(f"{own.count(''):,} records are to be advertised in one listing", limits)
    facts = advertisement_facts((described[record] for record in sorted(own.records(""))), source)
    if block_bytes(facts) > limits.listing_bytes:
        raise limit_failure(
            Failure.OVERSIZED_BLOCK,
            f"the listing has more than {limits.block_bytes:,} bytes",
            limit="max_fact_block_size",
            allowed=limits.block_bytes,
            agreed=True,
        )
    return facts


def read_listing(
    facts: Sequence[Fact], source: str, schema: Schema, limits: InquiryLimits
) -> dict[str, Advertisement]:
    """Return the advertisements of a listing, by record."""
    found = read_claims(facts, source, schema)
    if len(found) > limits.listed:
        raise _too_many(f"the peer lists {len(found):,} advertisements", limits)
    return found


def _too_many(what: str, limits: InquiryLimits) -> InterlaceFailure:
    return limit_failure(
        Failure.LISTING_LIMIT,
        f"{what}, and the limit is {limits.listed:,}",
        limit="max_advertisement_records_listed",
        allowed=limits.listed,
        agreed=True,
    )


FULL: Final = 0
"""The mode of full listing."""
_PARTITION: Final = "AdvertisementPartition"
_CHILDREN: Final = "AdvertisementChildren"
_CURSOR: Final = "AdvertisementCursor"
_DELTA: Final = "AdvertisementDelta"
_WITHDRAWN: Final = "AdvertisementWithdrawn"
_LARGER: Final = 1.25
"""How many times as many records a side may have for the other to follow it."""


class Reconciliation(Generic[S]):
    """One loop's reconciliation, seen from one side.

    By turns call `block` and `receive` until `is_over`, and `begin` after turn 0. Before a
    block is made, `wanted` says which advertisements of one's own it needs. When it is over,
    `result` is what the peer advertises, and `listed` the advertisements that came with it.
    """

    def __init__(
        self,
        mode: int,
        own: S,
        sources: tuple[str, str],
        schema: Schema,
        limits: InquiryLimits,
        *,
        states: Sequence[S] = (),
        cursor: S | None = None,
        remembered: Mapping[bytes, S] | None = None,
        advertisement_bytes: int = 114,
    ) -> None:
        self.mode = mode
        self.turn = 0
        self._own = own
        self._source, self._peer_source = sources
        self._schema = schema
        self._limits = limits
        self._cursor = cursor if mode == 2 else None
        self._remembered = remembered or {}
        known = [cursor, *states] if cursor is not None else list(states)
        self._empty = own.joined([])
        self.searcher = Searcher(mode, self._empty, known, limits, advertisement_bytes)
        self._follower: Follower[S] | None = None
        """It asks instead of the searcher, as long as the search is left to the peer."""
        self._responder = Responder(mode, own, self._source, limits)
        self._named: bytes | None = None
        self._delta: tuple[list[str], list[str]] | None = None
        self._awaits_cursor = self._has_cursors = False
        self._is_due = self._sent_empty = self._has_answered = False
        self.is_over = False

    @property
    def result(self) -> S:
        """What the peer advertises, when the phase is over."""
        if self.searcher.result is None:
            raise AssertionError("a phase that is over has a result")
        return self.searcher.result

    @property
    def is_following(self) -> bool:
        """Whether this side leaves the search to the peer."""
        return self._follower is not None

    @property
    def listed(self) -> Mapping[str, Advertisement]:
        """The advertisements that the peer listed, by record."""
        return self.searcher.listed

    @property
    def is_all_listed(self) -> bool:
        """Whether these are the advertisements of the result, all of them and no others."""
        return self.searcher.is_all_listed

    def wanted(self) -> list[str]:
        """Return the records whose advertisements the next block needs."""
        if self.turn == 0:
            return self._own.records("") if self.mode == FULL else []
        if self._delta is not None:
            return self._delta[0]
        return self._responder.wanted()

    def block(self, described: Mapping[str, Advertisement]) -> list[Fact]:
        """Return the block of the present turn."""
        return self._opening(described) if self.turn == 0 else self._later_block(described)

    # -- turn 0 --------------------------------------------------------------------------------

    def _opening(self, described: Mapping[str, Advertisement]) -> list[Fact]:
        if self.mode == FULL:
            return make_listing(self._own, described, self._source, self._limits)
        if self.mode == 1:
            summaries = summaries_of(self._own, START_LENGTH)
            return [each.fact(prefix) for prefix, each in summaries.items()]
        facts = [partition_fact(self._own, "")]
        if self._cursor is not None:
            root = b64a.encode(self._cursor.root(""))
            facts.append((_CURSOR, str(self._cursor.count("")), root))
        return facts

    def receive(self, facts: Sequence[Fact]) -> None:
        """Take the peer's block of the present turn."""
        if self.mode == FULL:
            self._receive_listing(facts)
        elif self.turn == 0:
            self._receive_opening(facts)
        else:
            self._receive_turn(facts)

    def _receive_listing(self, facts: Sequence[Fact]) -> None:
        found = read_listing(facts, self._peer_source, self._schema, self._limits)
        digests = digests_of(found.values(), self._peer_source)
        self.searcher.take_all(self._empty.changed(list(found), digests, ()), found)
        self.is_over = True

    def _receive_opening(self, facts: Sequence[Fact]) -> None:
        summaries: dict[str, Summary] = {}
        cursor: bytes | None = None
        for fact in facts:
            if fact[0] == _PARTITION:
                prefix, summary = read_partition(fact)
                if prefix in summaries or len(prefix) != start_length(self.mode):
                    raise _malformed_summary(f"partition {prefix!r} does not belong in turn 0")
                if summary.count == 0 and self.mode == 1:
                    raise _malformed_summary(f"partition {prefix!r} is announced and empty")
                summaries[prefix] = summary
            elif fact[0] == _CURSOR and self.mode == 2 and cursor is None:
                cursor = b64a.decode(fact[2])
            else:
                raise _malformed(f"{fact[0]} does not belong in turn 0")
        if self.mode == 2:
            if len(summaries) != 1:
                raise _malformed_summary("turn 0 has not just one summary, of everything")
            self._note_cursors(summaries[""].root, cursor)
        self.searcher.announce(summaries)

    def _note_cursors(self, announced: bytes, theirs: bytes | None) -> None:
        """See whether one's own cursor, and the peer's, is a question."""
        self._awaits_cursor = self._cursor is not None and self._cursor.root("") != announced
        self._has_cursors = self._cursor is not None or theirs is not None
        if theirs is None or theirs == self._own.root(""):
            return
        self._named = theirs
        known = self._empty if theirs == EMPTY_ROOT else self._remembered.get(theirs)
        if known is not None:
            added, gone = self._own.difference(known)
            if len(added) <= self._limits.listed:
                self._delta = added, gone

    @property
    def needs_relabelled(self) -> bool:
        """Whether it helps to compare with one's own set under the peer's source label."""
        if self.mode == FULL or self.turn or not self._own.count("") or self._awaits_cursor:
            return False
        return not self.searcher.is_known()

    def begin(self, relabelled: S | None = None) -> None:
        """Go on to turn 1; with one's own set under the peer's label, if it was computed."""
        self.turn = 1
        searcher = self.searcher
        if relabelled is not None:
            searcher.states.append(relabelled)
        if self._is_follower and searcher.states and Follower.can_replace(searcher):
            self._follower = Follower(searcher, searcher.states[-1])
        elif not self._awaits_cursor:
            searcher.begin()

    @property
    def _is_follower(self) -> bool:
        """Whether it is for the peer to search: it has more, and no cursor helps either side."""
        if self.mode != 2 or self._has_cursors:
            return False
        theirs = self.searcher.whole
        ours = summary_of(self._own, "")
        return ours < theirs and theirs.count <= _LARGER * ours.count

    # -- later turns ---------------------------------------------------------------------------

    def _later_block(self, described: Mapping[str, Advertisement]) -> list[Fact]:
        """Return answers, then questions."""
        facts = self._cursor_answer(described) if self.turn == 1 else []
        facts += self._responder.block(described)
        self._has_answered = bool(facts)
        self._is_due = bool(self.searcher.queue.open) or self._awaits_cursor
        if not self._awaits_cursor:
            facts += self._questions(must_ask=not facts)
        self._sent_empty = not facts
        return facts

    def _questions(self, *, must_ask: bool) -> list[tuple[str, str]]:
        if self._follower is not None:
            asked = self._follower.questions(must_ask=must_ask)
            if not self._follower.is_done:
                return asked
            self._follower = None
        return self.searcher.questions()

    def _cursor_answer(self, described: Mapping[str, Advertisement]) -> list[Fact]:
        delta, self._delta = self._delta, None
        if self._named is None:
            return []
        if delta is not None:
            added, gone = delta
            facts: list[Fact] = [(_DELTA, b64a.encode(self._named))]
            facts += advertisement_facts((described[record] for record in added), self._source)
            facts += [(_WITHDRAWN, record) for record in gone]
            if block_bytes(facts) <= self._limits.answer_bytes:
                return facts
        return [children_fact(self._own, "")]

    def _receive_turn(self, facts: Sequence[Fact]) -> None:
        questions = [(fact[0], fact[1]) for fact in facts if fact[0] in (LIST, NARROW)]
        answers = [fact for fact in facts if fact[0] not in (LIST, NARROW)]
        if self._is_due and not answers:
            raise _malformed("the peer answers none of the questions")
        if self._awaits_cursor:
            self._receive_cursor_answer(answers)
        elif answers:
            self._receive_answers(answers)
        if questions and self.turn == 1 and self._named is not None:
            raise _malformed("the peer asks in turn 1, where its cursor is the question")
        self._responder.ask(questions)
        self._watch(questions)
        self.is_over = self._sent_empty and not facts
        self.turn += 1

    def _watch(self, questions: Sequence[tuple[str, str]]) -> None:
        """See by the questions of the peer whether it searches, and whether it is done with it."""
        searcher = self.searcher
        if self._follower is not None:
            self._follower.watch(questions)
            # A peer that asks nothing, although it had all answers when it made its block, is done.
            if not questions and not self._has_answered:
                self._follower = None
        if self.mode == 2 and self.turn == 1:
            is_searching = any(prefix == "" for _, prefix in questions)
            searcher.be_followed(is_followed=not is_searching and not self._has_cursors)
        elif searcher.is_followed and any(kind == NARROW for kind, _ in questions):
            searcher.be_followed(is_followed=False)

    def _receive_cursor_answer(self, answers: Sequence[Fact]) -> None:
        """Take the answer to one's cursor: a delta, or the children of everything."""
        self._awaits_cursor = False
        if self._cursor is None:
            raise AssertionError("who awaits an answer sent a cursor")
        if len(answers) == 1 and answers[0][:2] == (_CHILDREN, ""):
            self.searcher.take_children("", read_children(answers[0]), is_asked=False)
            return
        head = [fact for fact in answers if fact[0] == _DELTA]
        if [fact[1] for fact in head] != [b64a.encode(self._cursor.root(""))]:
            raise _malformed("a delta is not from the state that was named")
        found = read_claims(answers, self._peer_source, self._schema)
        gone = [fact[1] for fact in answers if fact[0] == _WITHDRAWN]
        if len(found) > self._limits.listed:
            raise _malformed("a delta is larger than a listing may be")
        if any(fact[0] in (_PARTITION, _CHILDREN) for fact in answers):
            raise _malformed("a delta comes with nothing but questions")
        left = self._cursor.changed((), (), gone)
        is_known = left.count("") == self._cursor.count("") - len(gone)
        if not is_known or not found.keys().isdisjoint(gone):
            raise _malformed("a delta withdraws what was not advertised")
        digests = digests_of(found.values(), self._peer_source)
        self.searcher.take_delta(left.changed(list(found), digests, ()), found)

    def _receive_answers(self, answers: Sequence[Fact]) -> None:
        """Give each open question its answer; whatever was not asked for is malformed."""
        searcher = self.searcher
        claims = read_claims(answers, self._peer_source, self._schema)
        check_repeated(claims, searcher.listed)
        heads: dict[str, Summary] = {}
        children: dict[str, dict[str, Summary]] = {}
        for fact in answers:
            if fact[0] == _PARTITION:
                prefix, summary = read_partition(fact)
                if searcher.queue.open.get(prefix) == LIST:
                    same = heads
                elif self.mode == 1 and prefix[:-1] in searcher.queue.open and summary.count:
                    same = children.setdefault(prefix[:-1], {})
                else:
                    raise _malformed_summary(f"nobody asked about partition {prefix!r}")
                if same.setdefault(prefix, summary) is not summary:
                    raise _malformed_summary(f"two summaries of partition {prefix!r}")
            elif fact[0] == _CHILDREN and self.mode == 2:
                searcher.take_children(fact[1], read_children(fact))
            elif fact[0] not in ("Advertised", "AdvertisedField"):
                raise _malformed(f"{fact[0]} answers no question")
        belongs = claims_by_partition(claims, heads)
        for prefix, summary in heads.items():
            searcher.take_listing(prefix, summary, belongs[prefix], self._peer_source)
        for parent, found in children.items():
            searcher.take_summaries(parent, found)


def _malformed_summary(message: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.MALFORMED_SUMMARY, message, rule="G44")
