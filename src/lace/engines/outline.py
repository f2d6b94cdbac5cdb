"""How explanations look: a tree of lines, as text for a terminal or as HTML for a notebook.

Whatever comes from records or rules is made safe to show here, and nowhere else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from lace.base.text import safe_text
from lace.rules.syntax import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.engines.explanation import Absence, Condition, Explanation, Miss, RuleReference
    from lace.facts.lines import Fact

__all__ = [
    "SHOWN_FACTS",
    "Line",
    "absence_lines",
    "count_text",
    "derivation_lines",
    "html_of",
    "result_html",
    "table_html",
    "text_of",
]

SHOWN_FACTS: Final = 100
"""Facts of a derivation that are shown unless more are asked for; the rest are counted."""
_CELL_CHARACTERS: Final = 200
"""Characters of a cell that a notebook shows."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an outline: how deep it stands, what it says, a remark, and notes below it."""

    depth: int
    text: str
    remark: str = ""
    notes: tuple[str, ...] = ()


def text_of(lines: Sequence[Line]) -> str:
    """Return lines as a tree drawn with box characters."""
    last = _last_of_its_parent(lines)
    open_above: list[bool] = []  # for each depth above: whether more is to come there
    made: list[str] = []
    for number, line in enumerate(lines):
        del open_above[max(line.depth - 1, 0) :]
        lead = "".join("│  " if more else "   " for more in open_above)
        has_more = not last[number]
        remark = f"   {line.remark}" if line.remark else ""
        branch = "" if line.depth == 0 else "├─ " if has_more else "└─ "
        made.append(safe_text(f"{lead}{branch}{line.text}{remark}"))
        if line.depth:
            open_above.append(has_more)
            lead += "│  " if has_more else "   "
        made += [safe_text(f"{lead}{note}") for note in line.notes]
    return "\n".join(made)


def _last_of_its_parent(lines: Sequence[Line]) -> list[bool]:
    """Tell for each line whether none with the same parent follows."""
    last = [True] * len(lines)
    follows: list[bool] = []  # by depth: whether a later line stands there, same parent
    for number in range(len(lines) - 1, -1, -1):
        depth = lines[number].depth
        follows += [False] * (depth + 1 - len(follows))
        del follows[depth + 1 :]
        last[number] = not follows[depth]
        follows[depth] = True
    return last


def html_of(lines: Sequence[Line]) -> str:
    """Return lines as nested lists that can be folded."""
    made: list[str] = ['<div class="lace-explanation">']
    open_lists = 0
    for number, line in enumerate(lines):
        while open_lists > line.depth:
            made.append("</details>")
            open_lists -= 1
        shown = f"<code>{_html(line.text)}</code>"
        if line.remark:
            shown += f" <em>{_html(line.remark)}</em>"
        shown += "".join(f"<br><small>{_html(note)}</small>" for note in line.notes)
        if number + 1 < len(lines) and lines[number + 1].depth > line.depth:
            made.append(f'<details open style="margin-left:1.5em"><summary>{shown}</summary>')
            open_lists += 1
        else:
            made.append(f'<div style="margin-left:1.5em">{shown}</div>')
    made += ["</details>"] * open_lists
    made.append("</div>")
    return "\n".join(made)


def result_html(shown: Mapping[str, tuple[int | None, Sequence[tuple[str, ...]]]]) -> str:
    """Return the first facts of predicates as tables that fold.

    Args:
        shown: for each predicate how many facts it has (None: they are not made) and some.
    """
    made: list[str] = []
    for name, (count, rows) in shown.items():
        told = "only counted, not made" if count is None else _counted(count, exact=True)
        lines = "".join(
            f"<tr>{''.join(f'<td><code>{_html(value)}</code></td>' for value in row)}</tr>"
            for row in rows
        )
        more = f"<p>and {count - len(rows):,} more</p>" if count and count > len(rows) else ""
        table = f"<table>{lines}</table>{more}" if lines else more
        made.append(f"<details><summary>{_html(name)}: {told}</summary>{table}</details>")
    return "".join(made)


def table_html(
    names: Sequence[str], rows: Iterable[Sequence[object]], count: int, noun: str
) -> str:
    """Return the first rows of a table, and how many there are in all."""
    shown = list(rows)
    head = "".join(f"<th>{_html(name)}</th>" for name in names)
    lines = "".join(
        f"<tr>{''.join(f'<td>{_html(_cell(value))}</td>' for value in row)}</tr>" for row in shown
    )
    more = f"<p>and {count - len(shown):,} more</p>" if count > len(shown) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<p>{count_text(count, _html(noun))}</p>{table}{more}"


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun, which is given in the plural.

    >>> count_text(1, "records")
    '1 record'
    """
    return f"{count:,} {noun.removesuffix('s') if count == 1 else noun}"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}…"


def _html(text: str) -> str:
    return escape(safe_text(text), quote=True)


def _fact(fact: Fact) -> str:
    return f"{fact[0]}({','.join(map(quote, fact[1:]))})"


def _notes(annotations: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in annotations.items()
    )


def _rule(depth: int, rule: RuleReference, lead: str = "") -> Line:
    return Line(depth, f"{lead}{rule}", notes=_notes(rule.annotations))


def derivation_lines(explanation: Explanation, limit: int | None) -> Iterator[Line]:
    """Yield the lines of a derivation, as many facts as the limit allows."""
    shown: set[Fact] = set()
    root = explanation.steps[0]
    waiting: list[tuple[int, Fact | Condition]] = [(0, root.fact)]
    while waiting:
        depth, entry = waiting.pop()
        if not isinstance(entry, tuple):
            yield _condition(depth, entry)
            continue
        step = explanation.step(entry)
        if step.is_base:
            shown.add(entry)
            yield Line(depth, _fact(entry), "base fact")
            continue
        if entry in shown:
            yield Line(depth, _fact(entry), "see above")
            continue
        if limit is not None and len(shown) >= limit:
            yield Line(depth, _fact(entry), "not shown further")
            continue
        shown.add(entry)
        yield Line(depth, _fact(entry))
        if step.rule is not None:
            yield _rule(depth + 1, step.rule, "by ")
        waiting += [
            (depth + 1, condition if condition.fact is None else condition.fact)
            for condition in reversed(step.conditions)
            if condition.kind != "true"
        ]
    left = len(explanation.steps) - len(shown)
    if left:
        yield Line(0, f"… and {left:,} more fact{'s' if left > 1 else ''} of this derivation")


def _condition(depth: int, condition: Condition) -> Line:
    match condition.kind:
        case "not":
            return Line(depth, condition.instance, "no such fact")
        case "count":
            return Line(depth, condition.instance, _counted(condition.count, condition.exact))
        case _:
            return Line(depth, condition.instance, "holds")


def _counted(count: int | None, exact: bool) -> str:
    shown = count_text(count or 0, "facts")
    return shown if exact else f"at least {shown}"


def absence_lines(absence: Absence, depth: int = 0) -> Iterator[Line]:
    """Yield the lines of an absence."""
    yield Line(depth, _fact(absence.fact), "does not hold")
    key = f"{absence.fact[0]}/{len(absence.fact) - 1}"
    match absence.kind:
        case "unknown":
            hint = f"; did you mean {absence.suggestion}?" if absence.suggestion else ""
            yield Line(depth + 1, f"no rule and no fact has the predicate {key}{hint}")
        case "base":
            yield Line(depth + 1, "no such base fact")
            yield from _nearest(depth + 1, absence.nearest)
        case "rules":
            for miss in absence.misses:
                yield _rule(depth + 1, miss.rule)
                yield from _miss(depth + 2, miss)


def _nearest(depth: int, fact: Fact | None) -> Iterable[Line]:
    if fact is not None:
        yield Line(depth, f"nearest: {_fact(fact)}")


def _miss(depth: int, miss: Miss) -> Iterator[Line]:
    if miss.kind == "head":
        expected = "" if miss.expected is None else quote(miss.expected)
        yield Line(depth, f"argument {miss.argument} of {miss.item} would be {expected}")
        return
    named = ", ".join(f"{name} = {quote(value)}" for name, value in miss.binding)
    yield Line(depth, f"failed: {miss.item}", notes=(f"with {named}",) if named else ())
    match miss.kind:
        case "not":
            found = "" if miss.nearest is None else _fact(miss.nearest)
            yield Line(depth, f"there is: {found}")
        case "count":
            yield Line(depth, f"found: {_counted(miss.count, miss.exact)}")
        case "test":
            yield Line(depth, f"{miss.instance}", "does not hold")
        case _:
            if miss.nearest is None:
                yield Line(depth, f"nothing like {miss.instance}")
            yield from _nearest(depth, miss.nearest)
            if miss.inner is not None:
                yield from absence_lines(miss.inner, depth)
