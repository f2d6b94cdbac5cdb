"""Comment lines of authoring text: human comments, and `#:json` annotations (030).

An annotation is a JSON object that belongs to the next rule. Annotations never reach
canonical text; they are kept beside it, by rule identifier.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.rules.findings import Reporter
    from lace.rules.syntax import Span

__all__ = ["ANNOTATION", "Annotation", "merge_annotations", "parse_annotation"]

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
