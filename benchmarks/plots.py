"""Line charts as SVG, written by hand: both axes logarithmic, readable on light and dark.

There is no background: a reader's own shows through, and the text takes a colour that goes
with it. A line's kind of dash says which engine it is, so colour is not all that tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["COLOURS", "Line", "line_chart"]

COLOURS: Final = ("#3b82c4", "#d9742b", "#2f9e6e", "#a86bc9", "#c44f5c", "#8a8f36")
"""Seen well enough on white and on black."""

_WIDTH, _HEIGHT = 790, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 236, 44, 56
_LABEL_GAP: Final = 15.0
_STYLE: Final = """\
text { font: 12px system-ui, sans-serif; fill: #444c56; }
.title { font-size: 15px; font-weight: 600; }
.grid { stroke: #808890; stroke-opacity: .28; }
.axis { stroke: #808890; }
@media (prefers-color-scheme: dark) { text { fill: #c9d1d9; } }
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: points of size and value, both above zero."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str
    dash: str = ""


def line_chart(
    title: str, lines: Sequence[Line], *, across: str, up: str, unit: Callable[[float], str]
) -> str:
    """Return a chart; `across` and `up` say what the axes are, `unit` writes a value."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_of = _scale(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, whole=False)
    low, high = floor(log10(min(ys))), ceil(log10(max(ys)))
    high = max(high, low + 1)
    y_of = _scale(10.0**low, 10.0**high, _HEIGHT - _BOTTOM, _TOP, whole=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        _text(_LEFT, 24, title, kind="title"),
    ]
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        parts.append(_rule(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        parts.append(_text(_LEFT - 8, y + 4, unit(10.0**power), anchor="end"))
    for x in sorted(set(xs)):
        parts.append(_rule(x_of(x), _TOP, x_of(x), _HEIGHT - _BOTTOM, "grid"))
        parts.append(_text(x_of(x), _HEIGHT - _BOTTOM + 18, f"{x:,.0f}", anchor="middle"))
    parts.append(_rule(_LEFT, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM, "axis"))
    parts.append(_rule(_LEFT, _TOP, _LEFT, _HEIGHT - _BOTTOM, "axis"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(_text(middle, _HEIGHT - 14, across, anchor="middle"))
    turn = f"rotate(-90 16 {(_TOP + _HEIGHT - _BOTTOM) / 2:.0f})"
    parts.append(
        f'<text x="16" y="{(_TOP + _HEIGHT - _BOTTOM) / 2:.0f}" text-anchor="middle" '
        f'transform="{turn}">{escape(up)}</text>'
    )
    places = _apart([y_of(line.points[-1][1]) for line in lines])
    for line, place in zip(lines, places, strict=True):
        parts += _drawn(line, x_of, y_of, place)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(
    line: Line, x_of: Callable[[float], float], y_of: Callable[[float], float], label_at: float
) -> list[str]:
    at = [(x_of(x), y_of(y)) for x, y in line.points]
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    shape = f'fill="none" stroke="{line.colour}" stroke-width="2"{dash}'
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in at]
    end = _WIDTH - _RIGHT
    return [
        f'<polyline points="{path}" {shape}/>',
        *dots,
        f'<line x1="{end + 8}" y1="{label_at:.1f}" x2="{end + 30}" y2="{label_at:.1f}" {shape}/>',
        _text(end + 36, label_at + 4, line.label),
    ]


def _apart(places: Sequence[float]) -> list[float]:
    """Move labels down until none covers another, then up again from where the chart ends."""
    order = sorted(range(len(places)), key=lambda at: places[at])
    moved = list(places)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + _LABEL_GAP)
    limit = float(_HEIGHT - _BOTTOM)
    for at in reversed(order):
        moved[at] = min(moved[at], limit)
        limit = moved[at] - _LABEL_GAP
    return moved


def _scale(
    low: float, high: float, start: float, end: float, *, whole: bool
) -> Callable[[float], float]:
    room = 0.0 if whole else 0.04 * (end - start)
    first, span = log10(low), log10(high) - log10(low) or 1.0

    def place(value: float) -> float:
        return start + room + (log10(value) - first) / span * (end - start - 2 * room)

    return place


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
