"""Canonical text and what is named by it: `R.` for a lacegram, `U.` for a rule (030).

There is one canonical form and one function that writes it; a text is canonical
exactly when that function gives it back. `parse_canonical` is for text that was
exchanged or named by hash: it refuses everything else and repairs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import digest
from lace.rules.findings import Reporter, show
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.source import Parsed, merge_annotations, parse_source
from lace.rules.syntax import Rule, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_RULE_LABEL: Final = b"lace-rule/v1"


def canonical_text(rules: Iterable[Rule]) -> str:
    """Return the canonical text of rules in their order: lines joined by LF, no final LF."""
    return "\n".join(map(str, rules))


def lacegram_id(canonical: str) -> str:
    """Return the `R.` identifier of a canonical text.

    >>> lacegram_id("")
    'R.gmD9jVNudQQWG4sfDio9IPkB9SbilHAso9fJnjGVCb8'
    """
    return f"R.{b64a.encode(digest(canonical.encode('utf-8')))}"


def rule_id(line: str) -> str:
    """Return the `U.` identifier of a canonical rule line, with its period and without LF."""
    return f"U.{b64a.encode(digest(_RULE_LABEL + line.encode('utf-8')))}"


def collect_annotations(
    ids: Sequence[str], annotations: Sequence[Mapping[str, object]]
) -> Mapping[str, Mapping[str, object]]:
    """Return annotations by rule identifier; equal rules share one, later keys win."""
    collected: dict[str, Mapping[str, object]] = {}
    for name, annotation in zip(ids, annotations, strict=True):
        if annotation:
            merged = merge_annotations([collected.get(name, {}), annotation])
            collected[name] = MappingProxyType(merged)
    return MappingProxyType(collected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """What canonicalising gives: the text, its identifiers, and annotations by `U.` id."""

    text: str
    id: str
    rule_ids: tuple[str, ...]
    annotations: Mapping[str, Mapping[str, object]]


def canonicalize(
    text: str | bytes, *, name: str | None = None, limits: RuleLimits = OWN_LIMITS
) -> Canonical:
    """Return the canonical form of authoring text; only its syntax is checked."""
    parsed = parse_source(text, name=name, limits=limits)
    if parsed.reporter.has_errors:
        raise parsed.reporter.refusal()
    canonical = canonical_text(parsed.rules)
    ids = tuple(rule_id(str(rule)) for rule in parsed.rules)
    return Canonical(
        text=canonical,
        id=lacegram_id(canonical),
        rule_ids=ids,
        annotations=collect_annotations(ids, parsed.annotations),
    )


def parse_canonical(
    raw: bytes, *, name: str | None = None, limits: RuleLimits = OWN_LIMITS
) -> Parsed:
    """Parse bytes that must be canonical text."""
    parsed = parse_source(raw, name=name, limits=limits)
    if not parsed.reporter.has_errors and canonical_text(parsed.rules).encode("utf-8") != raw:
        _explain(parsed, parsed.reporter)
    if parsed.reporter.has_errors:
        raise parsed.reporter.refusal()
    return parsed


def _explain(parsed: Parsed, reporter: Reporter) -> None:
    """Report every line that canonical text would not hold."""
    lines = reporter.source.lines
    for entry in parsed.entries:
        line = lines[entry.line - 1]
        whole = Span(entry.line, 1, len(line) + 1)
        match entry.kind:
            case "rule":
                if entry.text != line:
                    _explain_line(line, entry.text, whole, reporter)
            case "blank" if entry.line == len(lines) > 1:
                column = len(lines[-2]) + 1
                end = Span(entry.line - 1, column, column)
                reporter.error("G10", end, "canonical text has no LF behind its last rule")
            case "blank":
                reporter.error("G10", whole, "canonical text has no blank line")
            case _:
                reporter.error("030-101", whole, f"canonical text has no {entry.kind}")


def _explain_line(line: str, canonical: str, whole: Span, reporter: Reporter) -> None:
    pairs = enumerate(zip(line, canonical, strict=False))
    at = next((i for i, (one, other) in pairs if one != other), min(len(line), len(canonical)))
    reporter.error(
        "G10",
        Span(whole.line, at + 1, at + 2),
        "the spaces of this rule are not the canonical ones",
        f"canonical is: {show(canonical)}",
    )
