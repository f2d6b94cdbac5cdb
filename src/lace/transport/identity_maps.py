"""Map files: which verifier a user or a client's certificate stands for.

Each line has a user number or the SHA-256 fingerprint of a certificate, and a verifier;
what follows `#` is a comment. A map says who a peer is, so nothing in it is guessed.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final, TypeVar

from lace.errors import Finding, Place, UsageError
from lace.record.ids import IdError, Verifier
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.errors import LaceError


# -- Small files that a server or client is told of: maps, certificates, keys.


def read_small_file(
    path: Path, most: int, refusal: Callable[[str, str], LaceError]
) -> tuple[bytes, int]:
    """Return the bytes of a file and its permissions."""
    try:
        # Without waiting: a pipe of that name would keep its reader for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refusal(
            f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise refusal("is not a file", "check the path")
        data = bytearray()
        while len(data) <= most and (piece := os.read(descriptor, most + 1 - len(data))):
            data += piece
    except OSError as error:
        raise refusal(f"cannot be read: {error.strerror}", "check its disk") from None
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise refusal(f"has more than {most} bytes", "check that it is the right file")
    return bytes(data), stat.S_IMODE(status.st_mode)


MAX_MAP_BYTES: Final = 1024 * 1024
"""The largest map file."""
_MAX_UID: Final = 2**32 - 2
_UID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_FINGERPRINT: Final = re.compile(r"[0-9A-Fa-f]{64}|[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){31}")
_BLANKS: Final = " \t"
_SPACES: Final = re.compile(r"[ \t]+")
_UID_HINT: Final = "write the number that `id -u NAME` prints"
_FINGERPRINT_HINT: Final = (
    "write the 64 digits that `openssl x509 -noout -fingerprint -sha256 -in FILE` prints"
)

_Key = TypeVar("_Key", int, str)


class MapError(UsageError):
    """A map file that is not legal; `findings` holds all that is wrong with it."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{first.message}{more}", place=first.place, hint=first.hint)
        self.findings = findings


def read_uid_map(path: Path) -> dict[int, Verifier]:
    """Return the users of a map file and their verifiers."""
    return parse_uid_map(_read(path), str(path))


def read_fingerprint_map(path: Path) -> dict[str, Verifier]:
    """Return the certificates of a map file and their verifiers; raises as `read_uid_map`."""
    return parse_fingerprint_map(_read(path), str(path))


def parse_uid_map(data: bytes, source: str) -> dict[int, Verifier]:
    """Return the users of a map and their verifiers."""
    return _parse(data, source, _parse_uid, f"a user number; {_UID_HINT}")


def parse_fingerprint_map(data: bytes, source: str) -> dict[str, Verifier]:
    """Return the certificates of a map, in `normal_fingerprint` form, and their verifiers."""
    return _parse(data, source, _parse_fingerprint, f"a fingerprint; {_FINGERPRINT_HINT}")


def normal_fingerprint(text: str) -> str:
    """Return a fingerprint in small letters and without colons."""
    return text.replace(":", "").lower()


def _parse_uid(text: str) -> int | None:
    return int(text) if _UID.fullmatch(text) and int(text) <= _MAX_UID else None


def _parse_fingerprint(text: str) -> str | None:
    return normal_fingerprint(text) if _FINGERPRINT.fullmatch(text) else None


def _parse(
    data: bytes, source: str, parse_key: Callable[[str], _Key | None], wanted: str
) -> dict[_Key, Verifier]:
    found: dict[_Key, Verifier] = {}
    lines: dict[_Key, int] = {}
    findings: list[Finding] = []
    expected, _, hint = wanted.partition("; ")

    def report(number: int, message: str, hint: str) -> None:
        place = Place(source, line=number)
        findings.append(Finding(severity="error", place=place, message=message, hint=hint))

    for number, raw in enumerate(data.split(b"\n"), start=1):
        try:
            words = _words(raw)
        except ValueError as error:
            report(number, str(error), "write ASCII text, with LF at the end of each line")
            continue
        if not words:
            continue
        if len(words) != 2:
            report(number, f"a line has {expected} and a verifier", "write both, with a space")
            continue
        key = parse_key(words[0])
        if key is None:
            report(number, f"'{show(words[0])}' is not {expected}", hint)
            continue
        try:
            verifier = Verifier(words[1])
        except IdError as error:
            report(number, f"'{show(words[1])}' is not a verifier", error.hint or "")
            continue
        if key in found:
            report(number, f"line {lines[key]} has the same key", "keep one of the two lines")
            continue
        found[key], lines[key] = verifier, number
    if findings:
        raise MapError(tuple(findings))
    return found


def _words(raw: bytes) -> list[str]:
    """Return the words of a line without its comment; a comment may hold any UTF-8 text."""
    text, mark, comment = raw.partition(b"#")
    if b"\r" in raw:
        raise ValueError("the line has a carriage return")
    try:
        comment.decode("utf-8")
        words = text.decode("ascii").strip(_BLANKS)
    except UnicodeDecodeError:
        where = "the comment is not UTF-8" if mark and text.isascii() else "the line is not ASCII"
        raise ValueError(where) from None
    return _SPACES.split(words) if words else []


def _read(path: Path) -> bytes:
    def refusal(what: str, hint: str) -> MapError:
        place, message = Place(str(path)), f"the map file {what}"
        return MapError((Finding(severity="error", place=place, message=message, hint=hint),))

    data, mode = read_small_file(path, MAX_MAP_BYTES, refusal)
    if mode & stat.S_IWOTH:
        raise refusal("can be written by everyone", f"run `chmod o-w {path}`")
    return data
