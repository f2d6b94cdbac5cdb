"""Records of 010: read one from a stream, check it, and make small ones."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.interop.peer.keys import Key, verifies
from tests.interop.peer.text import MAX_LINE, PeerError, decode, digest, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MARK", "Record", "Source", "blob", "plex", "read_all", "read_record", "seal"]

MARK = bytes.fromhex("f09f96a73a20")
PLEX_HEADERS = ("Group", "App", "Name", "TAI")
RESERVED = {*PLEX_HEADERS, "Data-Length", "Signed-By", "Signature", "Type"}
MAX_DATA = 32 << 20
MAX_HEADERS = 512
_MARKLINE = re.compile(rb"([BPS])\.([0-9A-Z_a-z~]{43})\.H3")
_HEADER = re.compile(r"([^:\x00-\x20\x7f]+): ([^ \x00-\x1f\x7f][^\x00-\x1f\x7f]*)")


class Source(Protocol):
    """Where the bytes of records come from."""

    def line(self, limit: int) -> bytes:
        """Read up to an LF; the answer is without it."""
        ...

    def take(self, count: int) -> bytes:
        """Read exactly so many bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """A record: its hash text, its bytes, its fields, and what is wrong with it, if anything is."""

    id: str
    raw: bytes
    fields: tuple[tuple[str, int, str], ...]
    problem: str | None = None

    def has(self, name: str, value: str) -> bool:
        """Tell whether a field has a value, at any index."""
        return any(found == name and text == value for found, _, text in self.fields)


@dataclass(slots=True)
class _Reading:
    """One outer record while it is read."""

    source: Source
    raw: bytearray = field(default_factory=bytearray)
    fields: list[tuple[str, int, str]] = field(default_factory=list)
    problem: str | None = None

    def line(self) -> bytes:
        line = self.source.line(MAX_LINE)
        self.raw += line + b"\n"
        return line

    def wrong(self, problem: str) -> None:
        self.problem = self.problem or problem

    def header(self, wanted: str | None = None) -> tuple[str, str]:
        """Read a header; a line that is none loses the framing."""
        text = self.line().decode("utf-8")
        match = _HEADER.fullmatch(text)
        if match is None or unicodedata.normalize("NFC", text) != text:
            raise PeerError(f"not a header: {text!r}")
        if wanted is not None and match[1] != wanted:
            raise PeerError(f"{match[1]} where {wanted} belongs")
        return match[1], match[2]

    def record(self, markline: bytes, letters: str) -> str:
        """Read what follows a markline; returns the hash text."""
        match = _MARKLINE.fullmatch(markline.removeprefix(MARK))
        if match is None or not markline.startswith(MARK) or match[1].decode() not in letters:
            raise PeerError(f"not the markline of a record of {letters}: {markline!r}")
        start = len(self.raw)
        {b"B": self.blob, b"P": self.plex, b"S": self.seal}[match[1]]()
        if encode(digest(bytes(self.raw[start:]))) != match[2].decode():
            self.wrong("the hash is not that of the payload")
        return match[0].decode()

    def blob(self) -> None:
        _, length = self.header("Data-Length")
        if re.fullmatch("0|[1-9][0-9]*", length) is None or int(length) > MAX_DATA or self.line():
            raise PeerError("not the headers of a Blob")
        self.fields.append(("Data-Length", 0, length))
        self.raw += self.source.take(int(length))

    def plex(self) -> None:
        for name in PLEX_HEADERS:
            self.fields.append((name, 0, self.header(name)[1]))
        counts: dict[str, int] = {}
        before = ""
        while not (line := self.line()).startswith(MARK):
            match = _HEADER.fullmatch(line.decode("utf-8"))
            if match is None or sum(counts.values()) >= MAX_HEADERS:
                raise PeerError("not an extra header")
            name = match[1]
            if name in RESERVED or name.encode() < before.encode():
                self.wrong("extra headers are out of order")
            before = name
            self.fields.append((name, counts.get(name, 0), match[2]))
            counts[name] = counts.get(name, 0) + 1
        self.record(line, "B")

    def seal(self) -> None:
        _, verifier = self.header("Signed-By")
        _, signature = self.header("Signature")
        self.fields += [("Signed-By", 0, verifier), ("Signature", 0, signature)]
        inner = self.record(self.line(), "P")
        if not verifies(verifier, decode(inner[2:-3], 32), signature):
            self.wrong("the signature is not the verifier's")


def read_record(source: Source) -> Record:
    """Read one record. A lost framing raises; all else that is wrong is the record's problem."""
    reading = _Reading(source)
    identifier = reading.record(reading.line(), "BPS")
    fields = (("Type", 0, identifier[0]), *reading.fields)
    return Record(identifier, bytes(reading.raw), fields, reading.problem)


class _Bytes:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def line(self, limit: int) -> bytes:
        end = self.raw.index(b"\n", self.at, self.at + limit + 1)
        line, self.at = self.raw[self.at : end], end + 1
        return line

    def take(self, count: int) -> bytes:
        piece, self.at = self.raw[self.at : self.at + count], self.at + count
        return piece


def read_all(raw: bytes) -> Iterator[Record]:
    """Read records that stand one after another."""
    source = _Bytes(raw)
    while source.at < len(raw):
        yield read_record(source)


def _marked(letter: str, payload: bytes) -> bytes:
    return MARK + f"{letter}.{encode(digest(payload))}.H3\n".encode() + payload


def _made(raw: bytes) -> Record:
    (record,) = read_all(raw)
    return record


def blob(data: bytes) -> Record:
    """Make a Blob."""
    return _made(_marked("B", f"Data-Length: {len(data)}\n\n".encode() + data))


def plex(
    group: str,
    name: str,
    data: bytes = b"x",
    *,
    app: str = "n",
    headers: Iterable[tuple[str, str]] = (),
) -> Record:
    """Make a Plex; headers are in the order of their names."""
    lines = [("Group", group), ("App", app), ("Name", name), ("TAI", "1700000000:000000000")]
    head = "".join(f"{header}: {value}\n" for header, value in [*lines, *headers])
    return _made(_marked("P", head.encode() + blob(data).raw))


def seal(inner: Record, key: Key) -> Record:
    """Make the Seal of a Plex."""
    signature = key.sign(decode(inner.id[2:-3], 32))
    head = f"Signed-By: {key.verifier}\nSignature: {signature}\n".encode()
    return _made(_marked("S", head + inner.raw))
