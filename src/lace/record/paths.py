"""Group, App and Name are paths; a coordinate is one of each (010).

Addresses are how people name records: `////<hash>`, `//group//app//name`, and the
narrowings behind `/|/`. Addresses are syntax only; no fact ever holds one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lace.base.arguments import kind_of
from lace.base.tai import Tai, TaiError
from lace.base.text import CONTROL, is_nfc
from lace.errors import RecordError, UsageError
from lace.record.ids import IdError, RecordId, Verifier

_SEGMENT: Final = r"(?!\.{1,2}(?:/|\Z))[^/|{}#\x00-\x1f\x7f]+"
PATH: Final = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})*")
"""A legal path, apart from NFC, which is checked on whole headers."""

_LINE_SEGMENT: Final = r"(?!\.{1,2}(?:/|\n))[^/|{}#\x00-\x1f\x7f]+"
PATH_LINE: Final = f"(?! ){_LINE_SEGMENT}(?:/{_LINE_SEGMENT})*"
"""The same as part of a pattern for header lines, where LF ends it and no space begins it."""

_NARROWING: Final = "/|/"


class PathError(RecordError):
    """A text that is no path."""


class AddressError(UsageError):
    """A text that names no record in any form."""


def check_path(kind: str, text: str) -> None:
    """Raise PathError, saying which part is wrong, unless text is a legal path."""
    if not isinstance(text, str):
        raise PathError(
            f"{kind} is text, not {kind_of(text)}", rule="010-path", hint="give it as a str"
        )
    if PATH.fullmatch(text) and is_nfc(text):
        return
    raise PathError(f"{kind} {text!r} {_what_is_wrong(text)}", rule="010-path")


def _what_is_wrong(text: str) -> str:
    if not text:
        return "is empty"
    if text.startswith("/") or text.endswith("/"):
        return "begins or ends with a slash"
    segments = text.split("/")
    if "" in segments:
        return "has an empty segment"
    for segment in segments:
        if segment in (".", ".."):
            return f"has the segment {segment!r}"
    for character in "|{}#":
        if character in text:
            return f"holds {character!r}, which no path may"
    if CONTROL.search(text):
        return "holds a control character"
    return "is not in Unicode normalisation form C"


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """Group, App and Name: what a record is called; many versions may share one."""

    group: str
    app: str
    name: str

    def __post_init__(self) -> None:
        check_path("Group", self.group)
        check_path("App", self.app)
        check_path("Name", self.name)

    def __str__(self) -> str:
        return f"//{self.group}//{self.app}//{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What an address asks for: one hash, or the versions of a coordinate, narrowed."""

    hash: RecordId | None = None
    coordinate: Coordinate | None = None
    type: str | None = None
    signed_by: Verifier | None = None
    tai: Tai | None = None


def parse_address(text: str) -> Address:
    """Return what an address, or a bare record hash, asks for.

    Raises:
        AddressError: the text has none of the forms.

    >>> parse_address("//u//ding//links/1").coordinate.name
    'links/1'
    """
    if not isinstance(text, str):
        raise AddressError(
            f"a record is named by text, not by {kind_of(text)}",
            rule="010-address",
            hint="give its id, or //group//app//name",
        )
    try:
        if text.startswith("////"):
            return Address(hash=RecordId(text[4:]))
        if not text.startswith("//"):
            return Address(hash=RecordId(text))
        path, narrowed, rest = text.partition(_NARROWING)
        parts = path[2:].split("//")
        if len(parts) != 3:
            raise AddressError(
                f"{text!r} is not a coordinate",
                rule="010-address",
                hint="write //group//app//name",
            )
        coordinate = Coordinate(*parts)
        return _parse_narrowing(coordinate, rest) if narrowed else Address(coordinate=coordinate)
    except (IdError, PathError, TaiError) as error:
        raise AddressError(
            f"{text!r} names no record: {error.message}",
            rule=error.rule,
            hint="write a hash, ////hash or //group//app//name",
        ) from error


def _parse_narrowing(coordinate: Coordinate, rest: str) -> Address:
    match rest.split("/"):
        case ["plex"]:
            return Address(coordinate=coordinate, type="P")
        case ["plex", tai]:
            return Address(coordinate=coordinate, type="P", tai=Tai(tai))
        case ["plex", tai, record]:
            return Address(
                coordinate=coordinate, type="P", tai=Tai(tai), hash=_of_type("P", record)
            )
        case ["seal"]:
            return Address(coordinate=coordinate, type="S")
        case ["seal", signer]:
            return Address(coordinate=coordinate, type="S", signed_by=Verifier(signer))
        case ["seal", signer, tai]:
            return Address(
                coordinate=coordinate, type="S", signed_by=Verifier(signer), tai=Tai(tai)
            )
        case ["seal", signer, tai, record]:
            return Address(
                coordinate=coordinate,
                type="S",
                signed_by=Verifier(signer),
                tai=Tai(tai),
                hash=_of_type("S", record),
            )
    raise AddressError(
        f"{rest!r} does not narrow a coordinate",
        rule="010-address",
        hint="write plex[/tai[/hash]] or seal[/verifier[/tai[/hash]]] behind /|/",
    )


def _of_type(letter: str, text: str) -> RecordId:
    found = RecordId(text)
    if found.type != letter:
        raise IdError(f"{text!r} is not the hash of a record of type {letter}", rule="010-address")
    return found


def format_address(address: Address) -> str:
    """Return the text of an address; `parse_address` reads it back."""
    if address.coordinate is None:
        return f"////{address.hash}"
    text = str(address.coordinate)
    if address.type is None:
        return text
    parts = ["plex"] if address.type == "P" else ["seal", address.signed_by]
    parts += [address.tai, address.hash]
    return text + _NARROWING + "/".join(str(part) for part in parts if part is not None)
