"""Charts: well-formed, with every line, and labels that do not cover one another."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as Xml

import pytest

from benchmarks.plots import COLOURS, Line, line_chart

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("W1, <a> & b", "W2", "W3", "W4")


def chart(*values: float) -> Xml.Element:
    lines = [
        Line(name, ((10.0, value), (100.0, value * 10)), COLOURS[at], "6 4" if at else "")
        for at, (name, value) in enumerate(zip(NAMES, values, strict=False))
    ]
    return Xml.fromstring(  # noqa: S314
        line_chart("A & B", lines, across="size", up="time", unit=lambda value: f"{value:g}")
    )


@pytest.mark.parametrize("values", [(1.0, 1.0, 1.0, 1.0), (0.001, 0.002, 5.0), (3.0,)])
def test_a_chart_has_its_lines_and_labels(values: tuple[float, ...]) -> None:
    root = chart(*values)
    texts = {text.text: float(text.attrib["y"]) for text in root.iter(f"{SVG}text")}
    assert {"A & B", "size", "time", "10", "100"} <= set(texts)
    places = sorted(texts[name] for name in NAMES[: len(values)])
    assert all(below - above > 14 for above, below in pairwise(places))
    assert places[0] > 0
    assert places[-1] < float(root.attrib["height"])
    assert len(list(root.iter(f"{SVG}polyline"))) == len(values)


def test_more_is_higher() -> None:
    (line,) = chart(1.0).iter(f"{SVG}polyline")
    first, last = (tuple(map(float, point.split(","))) for point in line.attrib["points"].split())
    assert last[0] > first[0]
    assert last[1] < first[1]
