"""Reconciliation in the three modes of G44, as the one who asks and the one who answers.

In mode 0 both sides list everything. In modes 1 and 2 they go in turns: a summary, then questions
and answers until both blocks of a turn are empty. Mode 1 begins with partitions of two characters,
mode 2 with one root and descends by packed children; it knows cursors and deltas, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.interop.peer.advertise import EMPTY, FINGERPRINT, Advertisement, States, gather
from tests.interop.peer.text import ALPHABET, Fact, PeerError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Reconciliation"]

LIST = "ListAdvertisementPartition"
NARROW = "NarrowAdvertisementPartition"
PARTITION = "AdvertisementPartition"
CHILDREN = "AdvertisementChildren"
CURSOR = "AdvertisementCursor"
DELTA = "AdvertisementDelta"
WITHDRAWN = "AdvertisementWithdrawn"
CLAIMS = ("Advertised", "AdvertisedField")
NO_FINGERPRINT = encode(EMPTY[:FINGERPRINT])
CHARACTERS = len(NO_FINGERPRINT)


@dataclass(slots=True)
class _Answers:
    """One block of a turn, sorted by what its lines are."""

    partitions: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    withdrawn: list[str] = field(default_factory=list)
    claims: list[Fact] = field(default_factory=list)
    questions: list[Fact] = field(default_factory=list)
    delta: str | None = None
    cursor: str | None = None

    @classmethod
    def of(cls, block: Iterable[Fact]) -> _Answers:
        found = cls()
        for fact in block:
            match fact:
                case ("AdvertisementPartition", prefix, count, root):
                    found.partitions[prefix] = int(count), decode(root, 32)
                case ("AdvertisementChildren", prefix, text) if len(text) == 64 * CHARACTERS:
                    cut = range(0, len(text), CHARACTERS)
                    found.children[prefix] = [text[at : at + CHARACTERS] for at in cut]
                case ("AdvertisementWithdrawn", name):
                    found.withdrawn.append(name)
                case ("AdvertisementDelta", root):
                    found.delta = root
                case ("AdvertisementCursor", _, root):
                    found.cursor = root
                case (name, _) if name in (LIST, NARROW):
                    found.questions.append(fact)
                case (name, *_) if name in CLAIMS:
                    found.claims.append(fact)
                case _:
                    raise PeerError(f"not a line of reconciliation: {fact}")
        return found


@dataclass(slots=True)
class Reconciliation:
    """One advertise phase. `run` sends and receives blocks, and returns the peer's state."""

    mode: int
    own: States
    source: str
    schema: frozenset[str] | None
    at_hand: list[States]
    small: int = 16
    cursor: States | None = None
    told_before: Mapping[str, States] = field(default_factory=dict)
    most_listed: int = 100_000
    announced: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    pieces: dict[str, list[Advertisement]] = field(default_factory=dict)
    guessed: dict[str, bool] = field(default_factory=dict)
    to_ask: list[Fact] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    by_cursor: bool = False

    def run(self, turn: Callable[[list[Fact]], list[Fact]]) -> States:
        """Run the phase to its end."""
        if self.mode == 0:
            claims = [fact for each in self.own.under("") for fact in each.facts]
            return States(gather(turn(claims), self.source, self.schema))
        theirs = _Answers.of(turn(self._summary()))
        self._read_summary(theirs)
        owed = theirs.questions
        if theirs.cursor not in (None, encode(self.own.summary()[1])):
            owed = [(CURSOR, theirs.cursor or "")]
        while True:
            mine = [fact for question in owed for fact in self._answer(question)]
            mine += self._ask()
            block = turn(mine)
            if not mine and not block:
                return self._assembled()
            theirs = _Answers.of(block)
            owed = theirs.questions
            self._read(theirs)

    # -- the one who answers

    def _summary(self) -> list[Fact]:
        if self.mode == 1:
            return [self.own.partition(prefix) for prefix in self.own.parts("", 2)]
        summary = [self.own.partition("")]
        if self.cursor is not None:
            count, root = self.cursor.summary()
            summary.append((CURSOR, str(count), encode(root)))
        return summary

    def _answer(self, question: Fact) -> list[Fact]:
        kind, prefix = question
        if kind == CURSOR:
            return self._answer_cursor(prefix)
        found = self.own.under(prefix)
        if kind == LIST and len(found) <= self.most_listed:
            return [self.own.partition(prefix), *(fact for each in found for fact in each.facts)]
        if not found:
            raise PeerError("Narrow of an empty partition")
        if self.mode == 2:
            return [self.own.children(prefix)]
        return [self.own.partition(part) for part in self.own.parts(prefix)]

    def _answer_cursor(self, root: str) -> list[Fact]:
        before = self.told_before.get(root)
        if before is None:
            return [self.own.children("")]
        answer: list[Fact] = [(DELTA, root)]
        for name, each in self.own.by_id.items():
            known = before.by_id.get(name)
            if known is None or known.digest != each.digest:
                answer += each.facts
        return answer + [(WITHDRAWN, name) for name in before.by_id if name not in self.own.by_id]

    # -- the one who asks

    def _read_summary(self, theirs: _Answers) -> None:
        self.announced = theirs.partitions
        lengths = {len(prefix) for prefix in self.announced}
        if lengths - {2} if self.mode == 1 else lengths != {0}:
            raise PeerError("not the summary of this mode")
        if self.cursor is not None and self.cursor.summary()[1] != self.announced[""][1]:
            self.by_cursor = True
            self.open[""] = CURSOR
            return
        for prefix, summary in self.announced.items():
            self._settle(prefix, summary)

    def _settle(self, prefix: str, summary: tuple[int, bytes]) -> None:
        """Take a partition from a state at hand, or ask for it."""
        for state in self.at_hand:
            if state.summary(prefix) == summary:
                self.pieces[prefix] = state.under(prefix)
                return
        if summary[0]:
            self._wish(prefix, summary[0])

    def _wish(self, prefix: str, expected: float) -> None:
        kind = LIST if expected <= self.small else NARROW
        self.to_ask.append((kind, prefix))

    def _ask(self) -> list[Fact]:
        if not self.to_ask and not self.open and self.mode == 2:
            self._doubt()
        asked, self.to_ask = self.to_ask, []
        for kind, prefix in asked:
            if (kind + prefix) in self.asked:
                raise PeerError("this peer asks twice")
            self.asked.add(kind + prefix)
            self.open[prefix] = kind
        return asked

    def _read(self, theirs: _Answers) -> None:
        if theirs.delta is not None:
            self._read_delta(theirs)
            return
        arrived = States(gather(theirs.claims, self.source, self.schema))
        parts: dict[str, list[str]] = {}
        for part in theirs.partitions:
            parts.setdefault(part[:-1], []).append(part)
        used = 0
        for prefix, kind in list(self.open.items()):
            summary = theirs.partitions.pop(prefix, None)
            if kind == LIST and summary is not None:
                if arrived.summary(prefix) != summary:
                    raise PeerError(f"the list of {prefix!r} is not what was announced")
                self.pieces[prefix] = arrived.under(prefix)
                used += summary[0]
            elif prefix in theirs.children:
                self._read_children(prefix, theirs.children.pop(prefix))
            elif prefix in parts and self.mode == 1:
                for part in parts[prefix]:
                    self._settle(part, theirs.partitions.pop(part))
            else:
                continue
            del self.open[prefix]
        if used != len(arrived) or theirs.partitions or theirs.children or theirs.withdrawn:
            raise PeerError("answers that nobody asked for")

    def _read_children(self, prefix: str, fingerprints: list[str]) -> None:
        expected = self.announced[""][0] / 64 ** (len(prefix) + 1)
        for character, fingerprint in zip(ALPHABET, fingerprints, strict=True):
            part = prefix + character
            if fingerprint == NO_FINGERPRINT:
                self.guessed[part] = True
                self.pieces[part] = []
                continue
            for state in self.at_hand:
                if state.fingerprint(part) == fingerprint:
                    self.guessed[part] = False
                    self.pieces[part] = state.under(part)
                    break
            else:
                self._wish(part, expected)

    def _read_delta(self, theirs: _Answers) -> None:
        before = self.cursor
        if self.open.pop("", "") != CURSOR or before is None:
            raise PeerError("a delta that nobody asked for")
        if theirs.delta != encode(before.summary()[1]):
            raise PeerError("a delta from another state")
        kept = {name: each for name, each in before.by_id.items() if name not in theirs.withdrawn}
        for each in gather(theirs.claims, self.source, self.schema):
            kept[each.id] = each
        self.pieces[""] = list(kept.values())
        if States(kept.values()).summary() != self.announced[""]:
            self.to_ask.append((LIST, ""))

    def _doubt(self) -> None:
        """Where the whole is not what was announced, ask for what was taken by fingerprint."""
        if self._whole().summary() == self.announced[""]:
            return
        for as_empty in (False, True):
            doubtful = [part for part, empty in self.guessed.items() if empty == as_empty]
            if doubtful:
                self.to_ask = [(LIST, part) for part in doubtful]
                self.guessed = {p: empty for p, empty in self.guessed.items() if empty != as_empty}
                return
        raise PeerError("the assembled state is not the announced one")

    def _whole(self) -> States:
        return States(each for piece in self.pieces.values() for each in piece)

    def _assembled(self) -> States:
        whole = self._whole()
        if self.open or any(whole.summary(p) != summary for p, summary in self.announced.items()):
            raise PeerError("the assembled state is not the announced one")
        return whole
