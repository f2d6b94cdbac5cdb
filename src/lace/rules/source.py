"""Authoring text to rules, annotations and a sidecar of everything between them (030).

Text is split at LF and nowhere else. Every line is looked at, whatever the others
hold, up to the limit of rules; what is wrong goes to a reporter. The sidecar keeps
comments and blank lines, so that a formatter can put them back.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from lace.base.arguments import check_argument
from lace.base.text import is_nfc, normalize_nfc
from lace.rules.findings import Reporter, SourceText, show
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.parser import parse_line
from lace.rules.syntax import Rule, Span

if TYPE_CHECKING:
    from collections.abc import Mapping


# -- Comment lines of authoring text: human comments, and `#:json` annotations (030).
#
# An annotation is a JSON object that belongs to the next rule. Annotations never reach
# canonical text; they are kept beside it, by rule identifier.

Annotation = dict[str, object]
"""One JSON object: what an author says about a rule."""

ANNOTATION: Final = "#:json "
"""How an annotation line begins: one space behind the word."""


_MAX_DEPTH: Final = 64


class _Unfit(ValueError):
    """A JSON value that no annotation may hold."""


def parse_annotation(text: str, span: Span, reporter: Reporter) -> Annotation | None:
    """Return the object of an annotation line, or None after reporting its fault.

    `text` is what stands behind `#:json `.
    """
    repeated: list[str] = []
    try:
        value = _load(text, repeated)
    except UnicodeEncodeError:
        reporter.error("030-105", span, "an annotation holds a surrogate, which no UTF-8 text has")
        return None
    except RecursionError:
        reporter.error("030-105", span, "the JSON of an annotation is nested too deeply")
        return None
    except ValueError as error:
        reporter.error(
            "030-105", span, f"an annotation is one JSON object: {_reason(error)}", _FORM
        )
        return None
    if not isinstance(value, dict):
        found = _KINDS.get(type(value), "null")
        reporter.error("030-105", span, f"an annotation is one JSON object, not {found}", _FORM)
        return None
    if repeated:
        reporter.warn(
            "030-106",
            span,
            f"the key {show(repeated[0])} stands more than once in one annotation; the last wins",
        )
    return value


def _load(text: str, repeated: list[str]) -> object:
    """Return the JSON value of a text, and note keys that stand twice in one object."""

    def collect(pairs: list[tuple[str, object]]) -> Annotation:
        made = dict(pairs)
        if len(made) < len(pairs):
            counted = Counter(name for name, _ in pairs)
            repeated.extend(name for name, count in counted.items() if count > 1)
        return made

    value: object = json.loads(text, object_pairs_hook=collect, parse_constant=_refuse_constant)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    _check_depth(value)
    return value


_FORM: Final = 'write #:json {"label":"…"}'
_KINDS: Final = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def _check_depth(value: object) -> None:
    """Refuse deep nesting by a fixed number, since what an interpreter bears varies."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise RecursionError


def _refuse_constant(name: str) -> object:
    raise _Unfit(f"{name} is not JSON")


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[0].lower()}{error.msg[1:]} at character {error.pos + 1}"
    return str(error) if isinstance(error, _Unfit) else "a number is too large"


def merge_annotations(parts: list[Mapping[str, object]]) -> Annotation:
    """Return the annotations of one rule as one object; later keys win.

    >>> merge_annotations([{"label": "a", "tags": []}, {"label": "b"}])
    {'label': 'b', 'tags': []}
    """
    merged: Annotation = {}
    for part in parts:
        merged.update(part)
    return merged


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BOM: Final = "\ufeff"
_BLANKS: Final = " \t"
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One source line as the sidecar keeps it; a rule's `text` is its canonical line."""

    kind: Literal["blank", "comment", "annotation", "rule"]
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What parsing gave; usable as a lacegram only when the reporter has no errors.

    `annotations` has one entry for each rule. `sound` holds the rules whose
    variables are the author's, `exact` those of lines without any fault; `complete` is
    False when a line gave no rule.
    """

    rules: tuple[Rule, ...]
    annotations: tuple[Mapping[str, object], ...]
    entries: tuple[SourceEntry, ...]
    reporter: Reporter
    sound: tuple[Rule, ...]
    exact: tuple[Rule, ...]
    complete: bool


def parse_source(
    text: str | bytes, *, name: str | None = None, limits: RuleLimits = OWN_LIMITS
) -> Parsed:
    """Parse authoring text; look at `reporter` for what was wrong with it."""
    check_argument(text, (str, bytes), "rules are a Lacegram or its text")
    check_argument(limits, RuleLimits, "limits are RuleLimits")
    size = len(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    if size > limits.max_rules_bytes:
        return _too_large(size, name, limits)
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    reporter = Reporter(SourceText(name, tuple(lines)))
    reader = _SourceReader(reporter, limits)
    if lines[0].startswith(_BOM):
        reporter.error(
            "G10",
            Span(1, 1, 2),
            "the text begins with a byte order mark",
            "save it as UTF-8 without one",
        )
        lines[0] = f" {lines[0][1:]}"
    for number, line in enumerate(lines, 1):
        reader.read(number, line)
    return reader.finish()


def _too_large(size: int, name: str | None, limits: RuleLimits) -> Parsed:
    reporter = Reporter(SourceText(name, ("",)))
    reporter.error(
        "X3",
        Span(1, 1, 1),
        f"the text has {size:,} bytes",
        f"the limit is {limits.setting('max_rules_bytes')}={limits.max_rules_bytes}",
    )
    return _SourceReader(reporter, limits).finish()


class _SourceReader:
    """Goes through the lines, one after the other."""

    def __init__(self, reporter: Reporter, limits: RuleLimits) -> None:
        self._report = reporter
        self._limits = limits
        self._rules: list[Rule] = []
        self._annotations: list[Mapping[str, object]] = []
        self._entries: list[SourceEntry] = []
        self._sound: list[Rule] = []
        self._exact: list[Rule] = []
        self._complete = True
        self._pending: list[tuple[Span, Mapping[str, object]]] = []
        self._goes_on = False
        self._returns: list[Span] = []
        self._over: list[int] = []

    def read(self, number: int, line: str) -> None:
        """Take one line."""
        if not self._is_readable(number, line):
            self._complete = False
            self._pending.clear()
            return
        if "\r" in line:
            self._returns.append(Span(number, line.index("\r") + 1, line.index("\r") + 2))
            line = line.rstrip("\r")
            if "\r" in line:
                self._complete = False
                return
        text = line.strip(_BLANKS)
        if not text:
            self._entries.append(SourceEntry("blank", number))
        elif text[0] == "#":
            self._read_comment(number, line, text)
        else:
            self._read_rule(number, line)

    def _is_readable(self, number: int, line: str) -> bool:
        """Tell whether a line is UTF-8 text of a fair length; report it if not."""
        most = self._limits.max_rule_line_bytes
        size = len(line)
        if size <= most and not line.isascii():
            size = len(line.encode("utf-8", "surrogatepass"))
        if size > most:
            self._report.error(
                "030-111",
                Span(number, 1, 2),
                f"the line has {size:,} bytes",
                f"the limit is max_rule_line_bytes={most}; use several rules",
            )
            return False
        found = None if line.isascii() else _SURROGATE.search(line)
        if not found:
            return True
        at = found.start() + 1
        code = ord(found[0])
        what = f"byte {code - 0xDC00:#04x}" if 0xDC80 <= code <= 0xDCFF else f"U+{code:04X}"
        self._report.error("030-12", Span(number, at, at + 1), f"{what} is not UTF-8 text")
        return False

    def _read_comment(self, number: int, line: str, text: str) -> None:
        column = len(line) - len(line.lstrip(_BLANKS)) + 1
        span = Span(number, column, column + len(text))
        if not is_nfc(text):
            self._report.error(
                "G19",
                _first_difference(span, text, normalize_nfc(text)),
                "a comment is in Unicode normal form NFC, this one is not",
            )
        behind = line[column - 1 :]
        if behind.startswith(ANNOTATION):
            self._entries.append(SourceEntry("annotation", number, text))
            value = parse_annotation(text[len(ANNOTATION) :], span, self._report)
            self._pending.append((span, _NOTHING if value is None else value))
            return
        if text.startswith("#:json"):
            self._report.warn(
                "G12",
                span,
                "this line is a comment: no space follows #:json",
                'write #:json {"label":"…"} with one space',
            )
        self._entries.append(SourceEntry("comment", number, text))

    def _read_rule(self, number: int, line: str) -> None:
        if self._goes_on and ":-" not in line:
            self._goes_on = line.rstrip(_BLANKS).endswith(",")
            return  # the line before has said that a rule is one line
        if len(self._rules) >= self._limits.max_rules:
            self._over.append(number)
            return
        parsed = parse_line(number, line, self._report)
        self._goes_on = parsed.goes_on
        annotations = [value for _, value in self._pending]
        self._pending.clear()
        if parsed.rule is None:
            self._complete = False
            return
        if parsed.sound:
            self._sound.append(parsed.rule)
        if parsed.exact:
            self._exact.append(parsed.rule)
        self._rules.append(parsed.rule)
        self._annotations.append(merge_annotations(annotations) if annotations else _NOTHING)
        self._entries.append(SourceEntry("rule", number, str(parsed.rule)))

    def finish(self) -> Parsed:
        """Report what only the end of the text shows, and return everything."""
        for span, _ in self._pending:
            self._report.error(
                "G12", span, "no rule follows this annotation", "put it above the rule it is about"
            )
        if self._over:
            most = self._limits.max_rules
            self._report.error(
                "030-115",
                Span(self._over[0], 1, 2),
                f"the lacegram has {most + len(self._over):,} rules",
                f"the limit is {self._limits.setting('max_rules')}={most}",
            )
        if self._returns:
            more = len(self._returns) - 1
            also = f", and in {more:,} more line{'s' if more > 1 else ''}" if more else ""
            self._report.error(
                "030-25",
                self._returns[0],
                f"a carriage return stands here{also}",
                "end lines with LF alone",
            )
        return Parsed(
            rules=tuple(self._rules),
            annotations=tuple(self._annotations),
            entries=tuple(self._entries),
            reporter=self._report,
            sound=tuple(self._sound),
            exact=tuple(self._exact),
            complete=self._complete and not self._over,
        )


def _first_difference(span: Span, text: str, normal: str) -> Span:
    same = next((i for i, (a, b) in enumerate(zip(text, normal, strict=False)) if a != b), 0)
    return Span(span.line, span.column + same, span.column + same + 1)


# -- The standard form of authoring text: canonical rules, with comments and groups kept.
#
# Formatting never changes what a lacegram means: its identifiers stay the same, and
# formatting twice gives the same text as formatting once.


def format_source(
    text: str | bytes, *, name: str | None = None, limits: RuleLimits = OWN_LIMITS
) -> str:
    r"""Return authoring text in its standard form.

    Rules are canonical lines; comments and annotations begin at the margin and lose
    blanks at their end; groups are divided by one blank line; the text ends with LF.

    >>> format_source("# all\n\n\n A( P ):-Have(P) .")
    '# all\n\nA(P) :- Have(P).\n'
    """
    parsed = parse_source(text, name=name, limits=limits)
    if parsed.reporter.has_errors:
        raise parsed.reporter.refusal()
    lines: list[str] = []
    for entry in parsed.entries:
        if entry.kind != "blank":
            lines.append(_format_entry(entry))
        elif lines and lines[-1]:
            lines.append("")
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def _format_entry(entry: SourceEntry) -> str:
    if entry.kind == "annotation":
        return ANNOTATION + entry.text[len(ANNOTATION) :].lstrip(" \t")
    return entry.text
