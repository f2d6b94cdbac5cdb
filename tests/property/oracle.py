"""Slow and plain readings of the record format and of record facts, to compare Lace with.

Written from the page on records and from text 020. Nothing here is shared with the code
under test, but for the hash functions, the Unicode tables and the signature arithmetic,
which have tests of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import unicodedata2
from blake3 import blake3

from lace.base.digest import derive
from lace.record import schnorr

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
MARKER = "\U0001f5a7: ".encode()
RESERVED = ["Group", "App", "Name", "TAI", "Data-Length", "Signed-By", "Signature", "Type"]
RESERVED.append("\U0001f5a7")


class Bad(Exception):
    """The bytes break a rule."""


def b64a_encode(data: bytes) -> str:
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 6)
    return "".join(ALPHABET[int(bits[i : i + 6], 2)] for i in range(0, len(bits), 6))


def b64a_decode(text: str) -> bytes | None:
    if any(character not in ALPHABET for character in text) or len(text) % 4 == 1:
        return None
    bits = "".join(f"{ALPHABET.index(character):06b}" for character in text)
    whole = len(bits) // 8 * 8
    if "1" in bits[whole:]:
        return None
    return bytes(int(bits[i : i + 8], 2) for i in range(0, whole, 8))


def digest_of(text: str, letters: str) -> bytes | None:
    """The 32 bytes inside `T.<43>.H3`, T being one of the letters."""
    if len(text) != 48 or text[0] not in letters or text[1] != "." or text[45:] != ".H3":
        return None
    return b64a_decode(text[2:45])


def is_path(text: str) -> bool:
    if unicodedata2.normalize("NFC", text) != text:
        return False
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        return False
    if any(character in "|{}#" for character in text):
        return False
    return all(segment not in ("", ".", "..") for segment in text.split("/"))


def is_tai(text: str) -> bool:
    places = [*range(10), *range(11, 20)]
    return len(text) == 20 and text[10] == ":" and all(text[i] in "0123456789" for i in places)


def line_rules(line: bytes) -> set[str]:
    """Every rule that a header line, without its LF, breaks."""
    broken = set()
    if len(line) > 1024:
        broken.add("010-line-length")
    if any(byte < 32 or byte == 127 for byte in line):
        broken.add("010-control")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return broken | {"010-utf8"}
    if unicodedata2.normalize("NFC", text) != text:
        broken.add("010-nfc")
    name, colon, rest = text.partition(":")
    if not colon or not name or " " in name or len(rest) < 2 or rest[0] != " " or rest[1] == " ":
        broken.add("010-header-form")
    return broken


def split_header(line: bytes) -> tuple[str, str]:
    if line_rules(line):
        raise Bad
    name, _, rest = line.decode().partition(":")
    return name, rest[1:]


@dataclass
class SlowRecord:
    """A record as the oracle reads it."""

    id: str
    headers: list[tuple[str, str]]
    data: bytes
    inner: SlowRecord | None


def read_record(raw: bytes, at: int, letters: str = "BPS") -> tuple[SlowRecord, int]:
    """Read the record that starts there; gives it and where it ends."""
    if raw[at : at + 6] != MARKER or raw[at + 54 : at + 55] != b"\n":
        raise Bad
    text = raw[at + 6 : at + 54].decode("ascii", "replace")
    digest = digest_of(text, letters)
    if digest is None:
        raise Bad
    if text[0] == "B":
        record, end = read_blob(raw, at + 55)
    else:
        record, end = read_outer(raw, at + 55, text[0])
    record.id = text
    if blake3(raw[at + 55 : end]).digest() != digest:
        raise Bad
    return record, end


def read_line(raw: bytes, at: int) -> tuple[bytes, int]:
    end = raw.find(b"\n", at)
    if end < 0:
        raise Bad
    return raw[at:end], end + 1


def read_blob(raw: bytes, at: int) -> tuple[SlowRecord, int]:
    line, at = read_line(raw, at)
    empty, at = read_line(raw, at)
    name, value = split_header(line)
    if name != "Data-Length" or empty or not value.isascii() or not value.isdigit():
        raise Bad
    if value != str(int(value)) or at + int(value) > len(raw):
        raise Bad
    end = at + int(value)
    return SlowRecord("", [], raw[at:end], None), end


def read_outer(raw: bytes, at: int, letter: str) -> tuple[SlowRecord, int]:
    headers = []
    while not raw.startswith(MARKER, at):
        line, at = read_line(raw, at)
        headers.append(split_header(line))
    inner, end = read_record(raw, at, "B" if letter == "P" else "P")
    if letter == "P":
        check_plex_headers(headers)
    else:
        check_seal_headers(headers, inner)
    return SlowRecord("", headers, inner.data, inner), end


def check_plex_headers(headers: list[tuple[str, str]]) -> None:
    names = [name for name, _ in headers]
    if names[:4] != ["Group", "App", "Name", "TAI"]:
        raise Bad
    if not all(is_path(value) for _, value in headers[:3]) or not is_tai(headers[3][1]):
        raise Bad
    extra = names[4:]
    if len(extra) > 512 or any(name in RESERVED for name in extra):
        raise Bad
    if [name.encode() for name in extra] != sorted(name.encode() for name in extra):
        raise Bad


def check_seal_headers(headers: list[tuple[str, str]], plex: SlowRecord) -> None:
    if [name for name, _ in headers] != ["Signed-By", "Signature"]:
        raise Bad
    key, signature = digest_of(headers[0][1], "V"), b64a_decode(headers[1][1])
    message = digest_of(plex.id, "P")
    if key is None or signature is None or len(signature) != 64 or message is None:
        raise Bad
    if not schnorr.verify(key, message, signature, derive):
        raise Bad


def validate(raw: bytes, max_data_bytes: int = 32 << 20) -> SlowRecord | None:
    """The record that the bytes are, exactly and completely; None if they are not."""
    try:
        record, end = read_record(raw, 0)
    except Bad:
        return None
    return record if end == len(raw) and len(record.data) <= max_data_bytes else None


def quote(value: str) -> str:
    return "'" + "".join("\\" + c if c in "\\'" else c for c in value) + "'"


def line(name: str, *values: str) -> str:
    return f"{name}({','.join(quote(value) for value in values)})"


def link_of(name: str, value: str) -> tuple[str, str] | None:
    """Data and target of a record-link field; None when the field is no well-formed one."""
    if not name.endswith("+Link") or " " not in value:
        return None
    data, target = value[: value.rindex(" ")], value[value.rindex(" ") + 1 :]
    parts = target.split(".")
    if not data or len(parts) != 3:
        return None
    letter, middle, suffix = parts
    if len(letter) != 1 or not "A" <= letter <= "Z" or not middle or not suffix:
        return None
    if any(c not in ALPHABET for c in middle) or not (suffix.isascii() and suffix.isalnum()):
        return None
    if suffix == "H3" and digest_of(target, "BPS") is None:
        return None
    return data, target


def facts(record: SlowRecord) -> set[str]:
    """The fact lines of a valid record, as 020 and decision G04 say."""
    p = record.id
    found = {line("Have", p), line("Field", p, "Type", "0", p[0])}
    found.add(line("Field", p, "Data-Length", "0", str(len(record.data))))
    plex = record
    if p[0] == "S":
        assert record.inner is not None
        plex = record.inner
        found.add(line("PlexHash", p, plex.id))
        found |= {line("Field", p, name, "0", value) for name, value in record.headers}
    if plex.inner is not None:
        found.add(line("BlobHash", p, plex.inner.id))
    for position, (name, value) in enumerate(plex.headers):
        index = str(sum(1 for other, _ in plex.headers[:position] if other == name))
        found.add(line("Field", p, name, index, value))
        link = link_of(name, value) if position >= 4 else None
        if link:
            found.add(line("RecordLink", p, name, index, *link))
    return found
