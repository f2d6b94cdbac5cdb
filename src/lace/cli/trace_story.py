"""A captured exchange as a story for people, or a line of JSON for each item."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lace.base.text import safe_text
from lace.cli.output import plural, size_text
from lace.facts.lines import format_fact
from lace.iltp.items import (
    Blank,
    Comment,
    Facts,
    OversizedRecord,
    Preface,
    RecordHead,
    Resource,
    StoredRecord,
)
from lace.trace.replay import WAY_NAMES
from lace.trace.walk import PHASES, Broken, End, Seen, Step, Unread, Wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.cli.output import Output
    from lace.errors import LaceError
    from lace.iltp.items import Item
    from lace.trace.walk import Stage, Told
    from lace.transport.capture import Direction

__all__ = ["STORY_KEYS", "Story"]

STORY_KEYS: Final = {
    "connection": "the number of the connection, from 1; on every line",
    "item": "preface, resource, facts, record, comment, blank; wrong, broken or unread for what "
    "is not as it should be; end and totals at the end of a connection",
    "way": "sent or came",
    "offset": "where it begins in that direction's stream",
    "line": "the line of the capture on which it ends",
    "size": "its bytes in the stream",
    "phase": "setup, hello, advertise, request or transfer",
    "epoch": "which setup it belongs to, from 1",
    "loop": "which loop, from 1; 0 before",
    "turn": "which turn of an advertise phase, from 0",
    "id": "the identifier of a resource, or the hash that a record claims",
    "kind": "the kind of a resource",
    "predicates": "how many facts there are of each predicate",
    "facts": "the facts, as lists; for setup and hello, and with --facts for all",
    "text": "the text of a comment",
    "message": "what is wrong",
    "rule": "the rule that is broken, or null",
    "whole": "end: whether it came behind a whole loop",
    "settled": "end: whether nothing was requested in that loop",
    "sent": "end: bytes in all; totals: bytes by phase",
    "came": "the same of the other direction",
}
"""The keys of the lines of JSON."""

_MOST_SHOWN: Final = 40
"""Facts of a block that are shown without being asked for."""
_SPELLED: Final = frozenset({"setup", "hello"})
"""Phases whose facts are few and all of interest."""


class Story:
    """Tells what a walk through a capture finds.

    Args:
        output: where to.
        with_facts: tell every fact, not only how many there are.
    """

    def __init__(self, output: Output, *, with_facts: bool) -> None:
        self._output, self._with_facts = output, with_facts
        self._number = 0
        self._stage: Stage | None = None
        self._bytes: Counter[tuple[str, Direction]] = Counter()
        self._is_empty: dict[Direction, bool] = {">": True, "<": True}

    def begin(self) -> None:
        """Begin with a connection."""
        self._number += 1
        self._stage = None
        self._bytes.clear()
        self._is_empty = dict.fromkeys(self._is_empty, True)
        if not self._output.json:
            self._output.say(f"connection {self._number}")

    def tell(self, told: Told) -> None:
        """Report something."""
        match told:
            case Step():
                pass  # its blocks were told
            case Seen():
                self._bytes[told.stage.phase, told.direction] += told.size
                if not isinstance(told.item, RecordHead):  # the record itself follows
                    self._seen(told)
            case Wrong(direction, stage, offset, failure):
                self._problem("wrong", stage, direction, offset, failure)
            case Broken(direction, stage, error):
                self._problem("broken", stage, direction, error.offset, error)
            case Unread(direction, stage, offset, size):
                self._unread(direction, stage, offset, size)
            case End():
                self._end(told)

    def _seen(self, seen: Seen) -> None:
        if self._output.json:
            self._line(
                seen.stage,
                seen.direction,
                seen.item.offset,
                line=seen.line,
                size=seen.size,
                **_document(seen.item, is_spelled=self._is_spelled(seen.stage)),
            )
            return
        name, text = _describe(seen.item, seen.stage)
        is_end = isinstance(seen.item, Blank)
        if is_end and self._is_empty[seen.direction]:
            name, text = "empty", "batch" if seen.stage.is_batch else "block"
        self._is_empty[seen.direction] = is_end
        self._text(seen.stage, seen.direction, seen.item.offset, name, text)
        if isinstance(seen.item, Facts):
            self._facts(seen.item, seen.stage)

    def _is_spelled(self, stage: Stage) -> bool:
        return self._with_facts or stage.phase in _SPELLED

    def _facts(self, item: Facts, stage: Stage) -> None:
        if not self._is_spelled(stage):
            return
        most = None if self._with_facts else _MOST_SHOWN
        for fact in islice(item.facts, most):
            self._output.say(f"                 {safe_text(format_fact(fact))}")
        if most is not None and len(item.facts) > most:
            left = len(item.facts) - most
            self._output.say(f"                 and {left:,} more; --facts shows all")

    def _problem(
        self, item: str, stage: Stage, direction: Direction, offset: int, error: LaceError
    ) -> None:
        message = safe_text(error.message)
        if self._output.json:
            self._line(stage, direction, offset, item=item, message=message, rule=error.rule)
            return
        rule = f" [{error.rule}]" if error.rule else ""
        what = "no stream from here: " if item == "broken" else ""
        self._text(stage, direction, offset, item.upper(), f"{what}{message}{rule}")

    def _unread(self, direction: Direction, stage: Stage, offset: int, size: int) -> None:
        if self._output.json:
            self._line(stage, direction, offset, item="unread", size=size)
            return
        text = f"{plural(size, 'byte')} more, behind the end of the other direction"
        self._text(stage, direction, offset, "UNREAD", text)

    def _end(self, end: End) -> None:
        output = self._output
        if output.json:
            output.json_line(
                {
                    "connection": self._number,
                    "item": "end",
                    **_stage_document(end.stage),
                    "whole": end.is_whole,
                    "settled": end.is_settled,
                    **{WAY_NAMES[way]: size for way, size in end.offsets.items()},
                }
            )
            totals = {
                WAY_NAMES[way]: {phase: self._bytes[phase, way] for phase in PHASES}
                for way in end.offsets
            }
            output.json_line({"connection": self._number, "item": "totals", **totals})
            return
        output.say(f"end: {_ending(end)}")
        for phase, sent, came in self._totals(end):
            output.say(f"  {phase:<12} {sent:>14,} sent {came:>14,} came")

    def _totals(self, end: End) -> Iterator[tuple[str, int, int]]:
        for phase in PHASES:
            sent, came = self._bytes[phase, ">"], self._bytes[phase, "<"]
            if sent or came:
                yield phase, sent, came
        whole = end.offsets[">"], end.offsets["<"]
        known = [sum(n for (_, w), n in self._bytes.items() if w == way) for way in (">", "<")]
        if known != list(whole):
            yield "not read", whole[0] - known[0], whole[1] - known[1]
        yield "all bytes", *whole

    def _line(
        self,
        stage: Stage,
        direction: Direction,
        offset: int,
        **rest: Any,  # noqa: ANN401 - JSON values
    ) -> None:
        document = {"connection": self._number, "way": WAY_NAMES[direction], "offset": offset}
        self._output.json_line({**document, **_stage_document(stage), **rest})

    def _text(self, stage: Stage, direction: Direction, offset: int, name: str, text: str) -> None:
        if stage != self._stage:
            self._stage = stage
            self._output.say(str(stage))
        self._output.say(f"  {direction} {offset:>10} {name:<9} {text}".rstrip(" "))


def _stage_document(stage: Stage) -> dict[str, Any]:
    return {
        "phase": stage.phase,
        "epoch": stage.epoch,
        "loop": stage.loop,
        "turn": stage.turn,
    }


def _ending(end: End) -> str:
    if end.is_settled:
        return f"after loop {end.stage.loop - 1}, in which neither side requested anything"
    if end.is_whole:
        return f"after loop {end.stage.loop - 1}, before a fixed point"
    return f"it broke off in {end.stage}"


def _counts(item: Facts) -> dict[str, int]:
    return dict(Counter(fact[0] for fact in item.facts))


def _describe(item: Item, stage: Stage) -> tuple[str, str]:
    """Return what an item is called, and what there is to say of it."""
    match item:
        case Preface():
            return "preface", ""
        case Resource(id=identifier, kind=kind, body=body):
            return "resource", f"{identifier}, {kind}, {size_text(len(body))}"
        case Facts():
            if stage.phase in _SPELLED:
                return stage.phase, plural(len(item.facts), "fact")
            counts = _counts(item).items()
            said = ", ".join(f"{safe_text(name)} {count:,}" for name, count in counts)
            return stage.phase, said
        case StoredRecord(raw=raw):
            return "record", f"{item.id}, {size_text(len(raw.data))}"
        case OversizedRecord(id=identifier, size=size):
            return "record", f"{identifier}, {size_text(size)}, above max_data_bytes"
        case Comment(text=text):
            return "comment", safe_text(text.decode("utf-8", "backslashreplace"))
        case Blank():
            return "end", "of the batch" if stage.is_batch else "of the block"
        case RecordHead():
            raise AssertionError("what begins a record is not told")


def _document(item: Item, *, is_spelled: bool) -> dict[str, Any]:
    """Return the JSON of an item."""
    match item:
        case Resource(id=identifier, kind=kind):
            return {"item": "resource", "id": identifier, "kind": kind}
        case Facts():
            facts = {"facts": [list(fact) for fact in item.facts]} if is_spelled else {}
            return {"item": "facts", "predicates": _counts(item), **facts}
        case StoredRecord() | OversizedRecord():
            return {"item": "record", "id": item.id}
        case Comment(text=text):
            return {"item": "comment", "text": text.decode("utf-8", "backslashreplace")}
        case _:
            return {"item": type(item).__name__.lower()}
