"""`lace trace`: captures of exchanges, to be read and replayed."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api.records import format_fact
from lace.api.trace import (
    PHASES,
    WAY_NAMES,
    Blank,
    Broken,
    Comment,
    ConnectionEnd,
    Facts,
    OversizedRecord,
    Preface,
    RecordHead,
    RecordItem,
    Resource,
    Seen,
    TraceStep,
    Unread,
    Wrong,
    read_capture,
    replay_capture,
)
from lace.base.text import safe_text
from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.link_options import path_of
from lace.cli.output import plural, size_text
from lace.errors import LaceError, Place, hide_decisions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.api.trace import Direction, Item, Replayed, Stage, TraceEvent
    from lace.cli.output import Output
    from lace.cli.session import Session


# -- A captured exchange as a story for people, or a line of JSON for each item.

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
    "whole": "end: whether it came after a whole loop",
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
    """Tells what a walk through a capture finds."""

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

    def tell(self, told: TraceEvent) -> None:
        """Report something."""
        match told:
            case TraceStep():
                pass  # its blocks were shown
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
            case ConnectionEnd():
                self._end(told)

    def _seen(self, seen: Seen) -> None:
        item, stage = seen.item, seen.stage
        name, text = _describe(item, stage)
        is_end = isinstance(item, Blank)
        if is_end and self._is_empty[seen.direction]:
            name, text = "empty", "batch" if stage.is_batch else "block"
        self._is_empty[seen.direction] = is_end
        document = {"line": seen.line, "size": seen.size, **_document(item, self._spells(stage))}
        self._item(stage, seen.direction, item.offset, document, name, text)
        if isinstance(item, Facts) and not self._output.json:
            self._facts(item, stage)

    def _spells(self, stage: Stage) -> bool:
        return self._with_facts or stage.phase in _SPELLED

    def _facts(self, item: Facts, stage: Stage) -> None:
        if not self._spells(stage):
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
        rule = f" [{error.rule}]" if error.rule else ""
        rule = hide_decisions(rule) if self._output.terminal else rule
        what = "no stream from here: " if item == "broken" else ""
        document = {"item": item, "message": message, "rule": error.rule}
        self._item(stage, direction, offset, document, item.upper(), f"{what}{message}{rule}")

    def _unread(self, direction: Direction, stage: Stage, offset: int, size: int) -> None:
        text = f"{plural(size, 'byte')} more, behind the end of the other direction"
        self._item(stage, direction, offset, {"item": "unread", "size": size}, "UNREAD", text)

    def _end(self, end: ConnectionEnd) -> None:
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

    def _totals(self, end: ConnectionEnd) -> Iterator[tuple[str, int, int]]:
        for phase in PHASES:
            sent, came = self._bytes[phase, ">"], self._bytes[phase, "<"]
            if sent or came:
                yield phase, sent, came
        whole = end.offsets[">"], end.offsets["<"]
        known = [sum(n for (_, w), n in self._bytes.items() if w == way) for way in (">", "<")]
        if known != list(whole):
            yield "not read", whole[0] - known[0], whole[1] - known[1]
        yield "all bytes", *whole

    def _item(
        self,
        stage: Stage,
        direction: Direction,
        offset: int,
        document: dict[str, Any],
        name: str,
        text: str,
    ) -> None:
        """Write an item: its document as a line of JSON, or its name and text."""
        if self._output.json:
            place = {"connection": self._number, "way": WAY_NAMES[direction], "offset": offset}
            self._output.json_line({**place, **_stage_document(stage), **document})
            return
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


def _ending(end: ConnectionEnd) -> str:
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
        case RecordItem(raw=raw):
            return "record", f"{item.id}, {size_text(len(raw.data))}"
        case OversizedRecord(id=identifier, size=size):
            return "record", f"{identifier}, {size_text(size)}, above max_data_bytes"
        case Comment(text=text):
            return "comment", safe_text(text.decode("utf-8", "backslashreplace"))
        case Blank():
            return "end", "of the batch" if stage.is_batch else "of the block"
        case RecordHead():
            raise AssertionError("the head of a record is not shown")


def _document(item: Item, is_spelled: bool) -> dict[str, Any]:
    """Return the JSON of an item."""
    match item:
        case Resource(id=identifier, kind=kind):
            return {"item": "resource", "id": identifier, "kind": kind}
        case Facts():
            facts = {"facts": [list(fact) for fact in item.facts]} if is_spelled else {}
            return {"item": "facts", "predicates": _counts(item), **facts}
        case RecordItem() | OversizedRecord():
            return {"item": "record", "id": item.id}
        case Comment(text=text):
            return {"item": "comment", "text": text.decode("utf-8", "backslashreplace")}
        case _:
            return {"item": type(item).__name__.lower()}


@group(
    "trace",
    examples=[
        ("lace sync office --capture talk.trace", "capture an exchange"),
        ("lace trace show talk.trace", "read it"),
        ("lace trace replay talk.trace", "prove that it is as it should be"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Read captures of exchanges, which `lace sync --capture FILE` writes.

    No lace, no peer and no network are needed.
    """
    require_subcommand(ctx)


@command.command(
    "show",
    cls=LaceCommand,
    api="api.trace.read_capture",
    piped="The same lines as on a terminal: a line for each connection and stage, and for each "
    "item > (sent) or < (came), its offset, what it is and what it says.",
    json_keys=STORY_KEYS,
    examples=[
        ("lace trace show talk.trace", "the story of an exchange"),
        ("lace trace show talk.trace --facts", "with every fact"),
        ("lace trace show talk.trace --json", "a line of JSON for each item"),
    ],
)
@click.argument("file", metavar="FILE")
@click.option("--facts", "with_facts", is_flag=True, help="Show every fact, not only how many.")
@click.pass_obj
def show(session: Session, file: str, with_facts: bool) -> int:
    """Tell what went over the wire: phases, items, their offsets, and bytes by phase.

    What breaks the rules of a stream or of an exchange is shown in its place; that a capture
    could be read is all that exit code 0 says. A file that is no capture gives 1, a missing one 2.
    """
    settings, _ = session.settings(session.find_settings())
    story = Story(session.output, with_facts=with_facts)
    for connection in read_capture(file, settings):
        story.begin()
        for told in connection:
            story.tell(told)
    return 0


@command.command(
    "replay",
    cls=LaceCommand,
    api="api.trace.replay_capture",
    piped="A line for each connection: how much was replayed and that it is identical; then "
    "lines for what was agreed and how it ended.",
    json_keys={
        "connection": "the number of the connection; one line of JSON for each",
        "items": "items that were read and written again, to the same bytes",
        "records": "records among them; all are valid",
        "sent": "bytes that were sent",
        "came": "bytes that came",
        "plan": "the E. identifier of the plan that both agreed on, or null",
        "link": "the identifier of the link, or null",
        "proven": "the verifiers that were proven by hello: sent, came",
        "claimed": "the verifiers that were claimed without a signature: only a transport can have "
        "proven them",
        "unjudged": "the directions whose proof does not hold by the capture alone",
        "stage": "where it ended",
        "whole": "whether that was after a whole loop",
        "settled": "whether nothing was requested in that loop",
    },
    examples=[
        ("lace trace replay talk.trace", "read, judge and write again every byte"),
        (
            "lace trace replay talk.trace --channel-cert server.pem",
            "with the certificate that proofs over wss contain",
        ),
    ],
)
@click.argument("file", metavar="FILE")
@click.option(
    "--channel-cert",
    metavar="FILE",
    help="The server's certificate, PEM, for an exchange over wss: proofs contain it.",
)
@click.pass_obj
def replay_command(session: Session, file: str, channel_cert: str | None) -> int:
    """Read both directions, write them again, and compare: every byte must be the same.

    On the way every record is validated; blocks must be in a phase that has them, records
    must answer requests, and plan and proofs are computed again from what both sides sent. Exit
    code 1 reports the first thing that is not as it should be, with its offset. What depends on
    what the sides had stored is not judged: a capture does not have it.
    """
    settings, _ = session.settings(session.find_settings())
    certificate = path_of(channel_cert)
    try:
        for done in replay_capture(file, settings, channel_cert=certificate):
            _show(session.output, done)
    except LaceError as error:
        if error.place is not None and error.place.source not in (file, str(certificate)):
            source = f"{file}: {error.place.source}"
            error.place = Place(source, error.place.line, offset=error.place.offset)
        raise
    return 0


def _show(output: Output, done: Replayed) -> None:
    agreed, end = done.agreed, done.end
    if end is None:
        raise AssertionError("a walk ends with an end")
    if output.json:
        output.json_line(
            {
                "connection": done.number,
                "items": done.items,
                "records": done.records,
                **{WAY_NAMES[way]: size for way, size in done.sizes.items()},
                "plan": agreed.plan_id if agreed else None,
                "link": agreed.link_id if agreed else None,
                "proven": {WAY_NAMES[w]: v for w, v in agreed.proven.items()} if agreed else {},
                "claimed": {WAY_NAMES[w]: v for w, v in agreed.claimed.items()} if agreed else {},
                "unjudged": [WAY_NAMES[way] for way in agreed.unjudged] if agreed else [],
                "stage": str(end.stage),
                "whole": end.is_whole,
                "settled": end.is_settled,
            }
        )
        return
    output.say(
        f"connection {done.number}: replayed {plural(done.items, 'item')}, "
        f"{done.sizes['>']:,} bytes sent and {done.sizes['<']:,} came, identical; "
        f"{plural(done.records, 'record')}, all valid"
    )
    if agreed is not None:
        output.say(f"  plan {agreed.plan_id}")
        for way, name in (("proven here", ">"), ("proven there", "<")):
            output.say(f"  {way}: {_proof(done, name)}")
    where = "after a whole loop" if end.is_whole else f"in {end.stage}"
    settled = ", in which nothing was requested" if end.is_settled else ""
    output.say(f"  ended {where}{settled}")


def _proof(done: Replayed, way: str) -> str:
    agreed = done.agreed
    if agreed is None:
        return "nobody"
    for direction, verifier in agreed.proven.items():
        if direction == way:
            return verifier
    for direction, verifier in agreed.claimed.items():
        if direction == way:
            return f"{verifier}, by a claim that only the transport can have proven"
    if way in agreed.unjudged:
        return "not by this capture alone; over wss name the server's certificate, --channel-cert"
    return "nobody"
