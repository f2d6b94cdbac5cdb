"""Framing of 060: the preface, fact blocks, resources, comments, batches of records."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.interop.peer.records import MARK, Record, read_record
from tests.interop.peer.text import MAX_LINE, Fact, PeerError, lines_of, parse_fact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.interop.peer.streams import Stream

__all__ = ["Batch", "Wire"]

KNOT = bytes.fromhex("f09faaa23a20")
PUZZLE_PIECE = bytes.fromhex("f09fa7a93a20")
PREFACE = KNOT + b"iltp/1\n"
MAX_COMMENT = 128
MAX_RESOURCE_BYTES = 1 << 20
MAX_RESOURCE_LINES = 4096


@dataclass(slots=True)
class Batch:
    """What one transfer phase brought."""

    records: list[Record] = field(default_factory=list)
    not_available: list[str] = field(default_factory=list)


class Wire:
    """Both directions of a stream. All blocks that pass are kept, for whoever looks on."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.sent: list[list[Fact]] = []
        self.received: list[list[Fact]] = []
        self.resources: dict[str, str] = {}
        self._buffer = b""
        # Both sides may write at once, so nobody may stop reading in order to write.
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, daemon=True)
        if stream.concurrent:
            self._writer.start()

    # -- out

    def _write_all(self) -> None:
        while (data := self._outgoing.get()) is not None:
            self._write(data)
        self.stream.end()

    def _write(self, data: bytes) -> None:
        # A stream that takes nothing more has ended: the reader comes to its end and says so.
        with suppress(OSError):
            self.stream.write(data)

    def _send(self, data: bytes) -> None:
        if self.stream.concurrent:
            self._outgoing.put(data)
        else:
            self._write(data)

    def send_preface(self) -> None:
        self._send(PREFACE)

    def send_resource(self, identifier: str, kind: str, text: str) -> None:
        marker = PUZZLE_PIECE + f"{identifier} {kind}\n".encode()
        self._send(marker + text.encode() + b"\n\n")

    def send_comment(self, text: str) -> None:
        self._send(f"#{text}\n".encode())

    def send_block(self, facts: Iterable[Fact]) -> None:
        block = list(facts)
        self.sent.append(block)
        self._send(lines_of(block) + b"\n")

    def send_batch(self, records: Iterable[Record], not_available: Iterable[str]) -> None:
        for record in records:
            self._send(record.raw + b"\n")
        gone: list[Fact] = [("NotAvailable", name) for name in not_available]
        self._send(lines_of(gone) + b"\n")

    def finish(self) -> None:
        """End the writing, read on to the peer's end."""
        self.end_writing()
        if not self.at_end():
            raise PeerError("bytes after the last phase")

    def end_writing(self) -> None:
        if not self.stream.concurrent:
            self.stream.end()
            return
        self._outgoing.put(None)
        self._writer.join()

    # -- in

    def _more(self) -> bool:
        piece = self.stream.read()
        self._buffer += piece
        return bool(piece)

    def at_end(self) -> bool:
        """Tell whether the stream ends here."""
        return not self._buffer and not self._more()

    def take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not self._more():
                raise PeerError("the stream ends in the middle of something [060-104]")
        piece, self._buffer = self._buffer[:count], self._buffer[count:]
        return piece

    def line(self, limit: int) -> bytes:
        while (end := self._buffer.find(b"\n", 0, limit + 1)) < 0:
            if len(self._buffer) > limit or not self._more():
                raise PeerError("a line is too long, or the stream ends in it")
        return self.take(end + 1)[:-1]

    def _starts(self, mark: bytes) -> bool:
        while len(self._buffer) < len(mark) and mark.startswith(self._buffer):
            if not self._more():
                raise PeerError("the stream ends where something belongs")
        return self._buffer.startswith(mark)

    def read_preface(self) -> None:
        if self.line(len(PREFACE)) + b"\n" != PREFACE:
            raise PeerError("not the knot preface [060-26]")
        if self._starts(b"\n"):
            raise PeerError("a blank line after the preface [060-27]")

    def _read_comment(self, *, after_comment: bool) -> None:
        if after_comment:
            raise PeerError("two comments in a row [060-84]")
        self.line(MAX_COMMENT - 1)

    def _read_resource(self) -> None:
        marker = self.line(MAX_LINE)[len(PUZZLE_PIECE) :].decode()
        identifier, _, kind = marker.partition(" ")
        lines: list[str] = []
        while line := self.line(MAX_RESOURCE_BYTES):
            lines.append(line.decode())
            if len(lines) > MAX_RESOURCE_LINES or lines[-1].startswith(("#", "🪢", "🧩", "🖧")):
                raise PeerError("not the body of a resource")
        if {"R": "lacegram", "E": "exchange-plan"}.get(identifier[:1]) != kind or not lines:
            raise PeerError(f"not a resource: {marker!r}")
        text = "\n".join(lines)
        if self.resources.setdefault(identifier, text) != text:
            raise PeerError("two bodies of one identifier [060-53]")

    def read_block(self) -> list[Fact]:
        """Read the next block that is a step: one of TickReady alone is none (G54d)."""
        while True:
            block = self._read_facts()
            facts = [fact for fact in block if fact[0] != "TickReady"]
            if facts or not block:
                self.received.append(facts)
                return facts

    def _read_facts(self) -> list[Fact]:
        facts: dict[Fact, None] = {}
        after_comment = False
        while not self._starts(b"\n"):
            comment = self._starts(b"#")
            if comment:
                self._read_comment(after_comment=after_comment)
            elif not facts and self._starts(PUZZLE_PIECE):
                self._read_resource()
            else:
                facts[parse_fact(self.line(MAX_LINE))] = None
            after_comment = comment
        self.take(1)
        return list(facts)

    def read_batch(self) -> Batch:
        """Read a batch: records and NotAvailable lines, ended by a blank line (G52, G56)."""
        batch = Batch()
        after_comment = False
        while not self._starts(b"\n"):
            comment = self._starts(b"#")
            if comment:
                self._read_comment(after_comment=after_comment)
            elif self._starts(MARK):
                batch.records.append(read_record(self))
                if self._starts(b"\n"):
                    self.take(1)
                elif not self._starts(MARK):
                    raise PeerError("something else directly after a record (G56)")
            else:
                fact = parse_fact(self.line(MAX_LINE))
                if fact[0] != "NotAvailable" or len(fact) != 2:
                    raise PeerError(f"{fact[0]} among records")
                batch.not_available.append(fact[1])
            after_comment = comment
        self.take(1)
        return batch

    # -- for whoever looks on

    def modes_seen(self) -> set[int]:
        """The modes of reconciliation that the blocks after the hellos show, both ways (G44)."""
        seen: set[int] = set()
        for blocks in (self.sent, self.received):
            names = {fact[0] for block in blocks[2:] for fact in block}
            summaries = {len(fact[1]) for fact in blocks[2] if fact[0] == "AdvertisementPartition"}
            if 0 in summaries:
                seen.add(2)
            elif summaries:
                seen.add(1)
            elif "Advertised" in names:
                seen.add(0)
        return seen
