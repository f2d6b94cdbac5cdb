"""Resources: canonical text that a stream carries for an identifier (060).

What was sent is checked as it is and never repaired: it has to be canonical, and the
identifier is computed again from it. Whether a lacegram may be an operand is decided
where operands are taken.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.limits import DEFAULT_SETTINGS
from lace.base.text import is_nfc, safe_text
from lace.errors import LaceError, ProtocolError, RuleError
from lace.iltp.items import KNOT, OPEN_RECORD, PUZZLE_PIECE, RECORD
from lace.policy.plan import parse_transcript
from lace.rules.findings import show
from lace.rules.limits import OWN_LIMITS
from lace.rules.program import check_canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.errors import Finding
    from lace.rules.limits import RuleLimits


LACEGRAM: Final = "lacegram"
"""The kind of canonical 030 text, under an `R.` identifier."""
EXCHANGE_PLAN: Final = "exchange-plan"
"""The kind of a canonical 040 transcript, under an `E.` identifier."""

MAX_MARKER_BYTES: Final = 1024
"""Bytes of a marker line without its LF."""
MAX_RESOURCE_BYTES: Final = 2**20
"""Bytes of one resource: its lines joined by LF."""
MAX_RESOURCE_LINES: Final = 4096
"""Lines of one resource."""
MAX_RESOURCES: Final = 256
"""Resource blocks of one direction, repeated ones too."""
_DIGEST: Final = f"[{b64a.ALPHABET}]{{42}}[{b64a.final_characters(32)}]"
_SHAPES: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {LACEGRAM: re.compile(rf"R\.{_DIGEST}"), EXCHANGE_PLAN: re.compile(rf"E\.{_DIGEST}")}
)
_MARKERS: Final = (KNOT, PUZZLE_PIECE, RECORD, OPEN_RECORD)


class ResourceError(ProtocolError):
    """A resource that is refused, `at` this many bytes behind the start of what was checked."""

    def __init__(self, message: str, *, rule: str, at: int = 0, hint: str | None = None) -> None:
        super().__init__(message, rule=rule, hint=hint)
        self.at = at


def kind_of(identifier: str) -> str:
    """Return the kind of resource that an identifier stands for.

    >>> kind_of("E." + "0" * 43)
    'exchange-plan'
    """
    for kind, shape in _SHAPES.items():
        if shape.fullmatch(identifier):
            return kind
    raise ResourceError(
        f"'{show(identifier)}' is no identifier of a resource",
        rule="060-55",
        hint="it is R or E, a dot and 43 Base64-Ascend characters",
    )


def parse_marker(line: bytes) -> tuple[str, str]:
    """Return identifier and kind of a marker line, which is given without its LF."""
    rest = line[len(PUZZLE_PIECE) :]
    try:
        text = rest.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ResourceError(
            f"byte {rest[error.start]:#04x} is not UTF-8",
            rule="060-34",
            at=len(PUZZLE_PIECE) + error.start,
        ) from None
    identifier, _, kind = text.partition(" ")
    if not (identifier and kind) or re.search(r"[ \t\r]", identifier + kind):
        raise ResourceError(
            f"'{show(text)}' is not an identifier, a space and a kind",
            rule="060-33",
            at=len(PUZZLE_PIECE),
        )
    if not is_nfc(text):
        raise ResourceError("the marker line is not in NFC", rule="060-34", at=len(PUZZLE_PIECE))
    if kind not in _SHAPES:
        raise ResourceError(
            f"there is no kind of resource '{show(kind)}'",
            rule="060-54",
            at=len(PUZZLE_PIECE),
            hint=f"the kinds are {', '.join(_SHAPES)}",
        )
    if not _SHAPES[kind].fullmatch(identifier):
        raise ResourceError(
            f"'{show(identifier)}' is not the identifier of a resource of kind {kind}",
            rule="060-55",
            at=len(PUZZLE_PIECE),
        )
    return identifier, kind


def check_body(body: bytes) -> None:
    """Refuse a body that cannot stand in a stream, whatever it says."""
    if len(body) > MAX_RESOURCE_BYTES:
        raise too_large()
    lines = body.split(b"\n")
    if len(lines) > MAX_RESOURCE_LINES:
        raise ResourceError(f"a resource has more than {MAX_RESOURCE_LINES} lines", rule="060-148")
    at = 0
    for line in lines:
        problem = _line_problem(line)
        if problem:
            raise ResourceError(problem[0], rule=problem[1], at=at)
        at += len(line) + 1


def too_large() -> ResourceError:
    """Return the error of a resource that is too large."""
    return ResourceError(f"a resource has more than {MAX_RESOURCE_BYTES} bytes", rule="060-147")


def _line_problem(line: bytes) -> tuple[str, str] | None:
    if not line:
        return "a resource has no empty line", "060-40"
    if b"\r" in line:
        return "a carriage return stands in a resource", "060-40"
    if line.startswith(b"#"):
        return "a comment stands in a resource", "060-41"
    if line.startswith(_MARKERS):
        return "a line of a resource begins with a marker", "060-41"
    if line.isascii():
        return None
    try:
        fits = is_nfc(line.decode("utf-8"))
    except UnicodeDecodeError:
        return "a line of a resource is not UTF-8", "060-37"
    return None if fits else ("a line of a resource is not in NFC", "060-37")


def check_resource(
    identifier: str, kind: str, body: bytes, *, limits: RuleLimits = OWN_LIMITS
) -> None:
    """Refuse a resource that is not canonical, or whose identifier is not that of its body."""
    check_body(body)
    try:
        if kind == LACEGRAM:
            computed = check_canonical(body, limits=limits).id
        else:
            computed = parse_transcript(body).id
    except LaceError as error:
        raise _not_canonical(kind, body, error) from None
    if computed != identifier:
        raise ResourceError(
            f"the {kind} is {computed}, not {show(identifier)} as it was called",
            rule="060-57",
            hint="send the very bytes that the identifier was made from",
        )


def _not_canonical(kind: str, body: bytes, error: LaceError) -> ResourceError:
    """Return the refusal of a body; of many findings the first one is enough."""
    first: LaceError | Finding = error
    if isinstance(error, RuleError):
        first = next((found for found in error.findings if found.severity == "error"), error)
    line = (first.place and first.place.line) or 1
    return ResourceError(
        f"the {kind} is refused: {safe_text(first.message)} (line {line}, {first.rule})",
        rule="060-47" if kind == LACEGRAM else "060-49",
        at=_line_start(body, line),
        hint=first.hint and safe_text(first.hint),
    )


def _line_start(body: bytes, line: int) -> int:
    return sum(len(before) + 1 for before in body.split(b"\n", line - 1)[: line - 1])


class ResourceStore:
    """The resources that one stream has brought, by identifier; bounded."""

    def __init__(
        self,
        *,
        limits: RuleLimits = OWN_LIMITS,
        max_count: int = MAX_RESOURCES,
        max_total_bytes: int = DEFAULT_SETTINGS.max_resource_bytes,
    ) -> None:
        self._limits = limits
        self._max_count = max_count
        self._max_total_bytes = max_total_bytes
        self._bodies: dict[str, bytes] = {}
        self._total = 0
        self.count = 0
        """How many blocks have begun."""

    def __len__(self) -> int:
        return len(self._bodies)

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._bodies

    def get(self, identifier: str) -> bytes | None:
        """Return the bytes of a resource, or None if it has not come."""
        return self._bodies.get(identifier)

    def begin(self) -> None:
        """Count a block that begins."""
        if self.count >= self._max_count:
            raise ResourceError(
                f"more than {self._max_count} resources in one exchange", rule="060-149"
            )
        self.count += 1

    def add(self, identifier: str, kind: str, body: bytes) -> bytes:
        """Check a resource and keep it; returns its body, which is kept once."""
        known = self._bodies.get(identifier)
        if known is not None:
            if known != body:
                raise ResourceError(f"another body for {identifier}, which is known", rule="060-52")
            return known
        if self._total + len(body) > self._max_total_bytes:
            raise ResourceError(
                f"more than {self._max_total_bytes} bytes of resources on one stream",
                rule="060-147",
                hint=f"the limit is max_resource_bytes={self._max_total_bytes}",
            )
        check_resource(identifier, kind, body, limits=self._limits)
        self._bodies[identifier] = body
        self._total += len(body)
        return body
