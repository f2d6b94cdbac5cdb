"""B64A, hashes, fact lines and TAI: the small texts of the protocol (006, 010, 050)."""

from __future__ import annotations

import re
import time
import unicodedata
from typing import TYPE_CHECKING

import blake3

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ALPHABET",
    "MAX_LINE",
    "Fact",
    "PeerError",
    "digest",
    "encode",
    "decode",
    "format_fact",
    "lines_of",
    "parse_fact",
    "tai_now",
]

Fact = tuple[str, ...]

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
MAX_LINE = 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\(")


class PeerError(Exception):
    """The other side broke the protocol, or what was agreed cannot be done."""


def digest(*parts: bytes) -> bytes:
    """BLAKE3 of parts that stand one after another."""
    return blake3.blake3(b"".join(parts)).digest()


def encode(raw: bytes) -> str:
    """Base64-Ascend: six bits at a time, the last group filled with zeros."""
    bits = "".join(f"{byte:08b}" for byte in raw)
    bits += "0" * (-len(bits) % 6)
    return "".join(ALPHABET[int(bits[at : at + 6], 2)] for at in range(0, len(bits), 6))


def decode(text: str, size: int) -> bytes:
    """Read Base64-Ascend of so many bytes."""
    if len(text) != (size * 8 + 5) // 6 or any(character not in ALPHABET for character in text):
        raise PeerError(f"not B64A of {size} bytes: {text!r}")
    bits = "".join(f"{ALPHABET.index(character):06b}" for character in text)
    if "1" in bits[size * 8 :]:
        raise PeerError(f"fill bits are set: {text!r}")
    return int(bits[: size * 8], 2).to_bytes(size, "big")


def format_fact(fact: Fact) -> str:
    """One fact line, without its LF."""
    escaped = (value.replace("\\", "\\\\").replace("'", "\\'") for value in fact[1:])
    quoted = ",".join(f"'{value}'" for value in escaped)
    return f"{fact[0]}({quoted})"


def lines_of(facts: Iterable[Fact]) -> bytes:
    """Fact lines, each with its LF."""
    return b"".join(format_fact(fact).encode() + b"\n" for fact in facts)


def parse_fact(line: bytes) -> Fact:
    """Read one fact line (G35): no space outside quotes, no period, no variable."""
    text = line.decode("utf-8")
    name = _NAME.match(text)
    if name is None or len(line) > MAX_LINE or unicodedata.normalize("NFC", text) != text:
        raise PeerError(f"not a fact line: {text!r}")
    values = [name[0][:-1]]
    at = name.end()
    while text[at : at + 1] == "'":
        value = ""
        at += 1
        while text[at : at + 1] != "'":
            if text[at : at + 1] == "\\":
                at += 1
                if text[at : at + 1] not in ("\\", "'"):
                    raise PeerError(f"not an escape: {text!r}")
            if at >= len(text) or text[at] in "\n\r":
                raise PeerError(f"not a constant: {text!r}")
            value += text[at]
            at += 1
        values.append(value)
        at += 1
        if text[at : at + 2] == ",'":
            at += 1
    if text[at:] != ")":
        raise PeerError(f"not a fact line: {text!r}")
    return tuple(values)


def tai_now() -> str:
    """The clock's reading as TAI: Unix seconds + 37."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{seconds + 37:010}:{nanoseconds:09}"
