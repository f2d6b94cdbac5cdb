"""Findings: collected by a reporter, shown with a caret, raised as one `RuleError`.

A reporter knows the lines of one source. Checks give it spans and words; it makes
`Finding` values in the order of the source. Output stays small whatever the input:
excerpts are cut to a window around the place, only the first hundred findings are
written out and the rest are counted.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from lace.base.text import safe_text
from lace.errors import Finding, Place, RuleError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lace.rules.syntax import Span


MAX_SHOWN: Final = 100
"""Findings that the text of an error holds; the rest are counted."""
MAX_KEPT: Final = 10_000
"""Findings of one severity that are kept as values; the rest are counted."""

_WINDOW: Final = 100
_BEFORE: Final = 60
_MAX_QUOTED: Final = 60
_BLANK_TAB: Final = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'|\t")
"""A constant, or a tab outside constants."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """The lines of a source, and what to call it in messages."""

    name: str | None
    lines: tuple[str, ...]
    _shown: dict[int, str] = field(default_factory=dict, compare=False, repr=False)

    def excerpt(self, span: Span) -> str:
        """Return the line of a span, cut to a window, with carets below the span."""
        if not 1 <= span.line <= len(self.lines):
            return ""
        line = self._show(span.line)
        start = span.column - 1
        first = max(0, start - _BEFORE) if len(line) > _WINDOW else 0
        last = first + _WINDOW
        lead = "…" if first else ""
        before = lead + safe_text(line[first:start])
        marked = safe_text(line[start : min(span.end - 1, last)])
        after = safe_text(line[span.end - 1 : last]) + ("…" if len(line) > last else "")
        carets = " " * len(before) + "^" * max(1, len(marked))
        return f"    {before}{marked}{after}\n    {carets}"

    def _show(self, number: int) -> str:
        """Return a line with a space for each tab outside constants; the last one is kept."""
        if number not in self._shown:
            self._shown.clear()
            self._shown[number] = _BLANK_TAB.sub(_without_tab, self.lines[number - 1])
        return self._shown[number]


def _without_tab(found: re.Match[str]) -> str:
    """Return a constant as it is, and a space for a tab outside constants."""
    return " " if found[0] == "\t" else found[0]


def show(text: str) -> str:
    """Return a piece of the author's text as a message may quote it: visible and short."""
    if len(text) > _MAX_QUOTED:
        text = f"{text[: _MAX_QUOTED - 1]}…"
    return safe_text(text)


class Reporter:
    """Takes what the checks find in one source."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._kept: dict[str, list[Finding]] = {"error": [], "warning": []}
        self._dropped = {"error": 0, "warning": 0}

    def error(
        self,
        rule: str,
        span: Span,
        message: str,
        hint: str | None = None,
        also: Sequence[Span] = (),
    ) -> None:
        """Add an error at a span; `also` names more spans that the excerpt shows."""
        self._add("error", rule, span, message, hint, also)

    def warn(self, rule: str, span: Span, message: str, hint: str | None = None) -> None:
        """Add a warning at a span."""
        self._add("warning", rule, span, message, hint, ())

    def _add(
        self,
        severity: Literal["error", "warning"],
        rule: str,
        span: Span,
        message: str,
        hint: str | None,
        also: Sequence[Span],
    ) -> None:
        kept = self._kept[severity]
        if len(kept) >= MAX_KEPT:
            self._dropped[severity] += 1
            return
        excerpts = [self.source.excerpt(each) for each in (span, *also)]
        kept.append(
            Finding(
                severity=severity,
                place=Place(self.source.name, span.line or None, span.column or None),
                message=message,
                rule=rule,
                hint=hint,
                excerpt="\n".join(excerpts),
            )
        )

    @property
    def error_count(self) -> int:
        """How many errors were found, kept or not."""
        return len(self._kept["error"]) + self._dropped["error"]

    @property
    def has_errors(self) -> bool:
        """Whether any error was found."""
        return bool(self._kept["error"])

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The warnings, in the order of the source."""
        return tuple(sorted(self._kept["warning"], key=_order))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of the source."""
        return tuple(sorted(self._kept["error"] + self._kept["warning"], key=_order))

    def refusal(self) -> RuleError:
        """Return the error that holds all findings; there is at least one error."""
        errors = sorted(self._kept["error"], key=_order)
        dropped, warnings = self._dropped["error"], len(self._kept["warning"])
        if len(errors) == 1 and not warnings:
            (one,) = errors
            return RuleError(
                one.message,
                findings=self.findings,
                rule=one.rule,
                place=one.place,
                hint=one.hint,
            )
        message = format_findings(
            errors, more=dropped, warnings=warnings + self._dropped["warning"]
        )
        return RuleError(message, findings=self.findings)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings of one source in the order of their places."""
    return tuple(sorted(findings, key=_order))


def format_findings(
    findings: Iterable[Finding], *, more: int = 0, warnings: int = 0, excerpts: bool = False
) -> str:
    """Return findings as lines, at most a hundred; then how many more, and the warnings' number.

    Where not all can be shown, errors are.

    With `excerpts`, each finding is followed by its source line and carets.
    """
    found = list(findings)
    shown = found
    if len(found) > MAX_SHOWN:  # warnings give way to errors
        errors = [each for each in found if each.severity == "error"][:MAX_SHOWN]
        others = [each for each in found if each.severity != "error"]
        shown = sorted(errors + others[: MAX_SHOWN - len(errors)], key=_order)
    lines = [each.render() if excerpts else each.log_line() for each in shown]
    rest = len(found) - len(lines) + more
    if rest:
        lines.append(f"and {rest:,} more finding{'s' if rest > 1 else ''}")
    if warnings:
        lines.append(f"and {warnings:,} warning{'s' if warnings > 1 else ''}")
    return "\n".join(lines)


def _order(finding: Finding) -> tuple[int, int]:
    return finding.place.line or 0, finding.place.column or 0


# -- Did you mean …? Names close to one that nobody knows, at a bounded cost.

FIELD_NAMES: Final = (
    "Type",
    "Data-Length",
    "Group",
    "App",
    "Name",
    "TAI",
    "Signed-By",
    "Signature",
)
"""The fields that the record formats give; extra headers have names of their own."""

_LIKENESS: Final = 0.74


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like a name, or None when none is close.

    Close names begin with the same letter; capitals, `_` and `-` do not count.

    >>> closest("Feild", ["Field", "Have"])
    'Field'
    """
    plain = _plain(name)
    best, likeness = None, _LIKENESS
    for other in sorted(set(known)):
        if other == name or abs(len(other) - len(name)) > 3:
            continue
        if _plain(other) == plain:
            return other
        if _plain(other)[:1] != plain[:1]:
            continue
        matcher = difflib.SequenceMatcher(None, plain, _plain(other), autojunk=False)
        if matcher.real_quick_ratio() >= likeness and matcher.ratio() >= likeness:
            best, likeness = other, matcher.ratio() + 1e-9
    return best


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


class Suggester:
    """Looks for close names until its budget of comparisons is spent; then finds none.

    One serves a whole lacegram, so that thousands of unknown names do not take long.
    """

    def __init__(self, comparisons: int = 5_000) -> None:
        self._left = comparisons

    def closest(self, name: str, known: Collection[str]) -> str | None:
        """Return the known name most like a name, or None."""
        self._left -= len(known)
        return closest(name, known) if self._left >= 0 else None
