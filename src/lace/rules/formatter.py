"""The standard form of authoring text: canonical rules, with comments and groups kept.

Formatting never changes what a lacegram means: its identifiers stay the same, and
formatting twice gives the same text as formatting once.
"""

from __future__ import annotations

from lace.rules.annotations import ANNOTATION
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.source import Entry, parse_source

__all__ = ["format_source"]


def format_source(
    text: str | bytes, *, name: str | None = None, limits: RuleLimits = OWN_LIMITS
) -> str:
    r"""Return authoring text in its standard form.

    Rules are canonical lines; comments and annotations begin at the margin and lose
    blanks at their end; groups are divided by one blank line; the text ends with LF.

    Raises:
        RuleError: the text does not parse; `findings` says why.

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


def _format_entry(entry: Entry) -> str:
    if entry.kind == "annotation":
        return ANNOTATION + entry.text[len(ANNOTATION) :].lstrip(" \t")
    return entry.text
