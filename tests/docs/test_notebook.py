"""The notebook of the examples: all its cells run, and show what its texts promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import marimo
import pytest

from examples.notebook import sightings
from tests.cli.running import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "notebook" / "sightings.py"
PICTURE = ROOT / "docs" / "images" / "sightings.svg"
CELL = re.compile(r"^@app\.(cell|function)\b.*\ndef (\w+)\(", re.MULTILINE)
TITLE = re.compile(r"<title>week of (\S+), (\w+): (\d+)</title>")


@dataclass(frozen=True, slots=True)
class Ran:
    """What each cell showed, by the name of the cell, and the names that all of them gave."""

    shown: dict[str, Any]
    names: Mapping[str, Any]

    def html(self, cell: str) -> str:
        """What a browser gets for a cell."""
        found = self.shown[cell]
        # As a notebook shows it. `marimo.as_html` would load what it knows of PySpark, which ends
        # a process that has loaded that and has no main module, as those of a test run.
        return str(found.text if isinstance(found, marimo.Html) else found._repr_html_())


@pytest.fixture(scope="module")
def ran() -> Iterator[Ran]:
    """The notebook, once run: an error in a cell is an error here."""
    outputs, names = sightings.app.run()
    cells = [name for _kind, name in CELL.findall(NOTEBOOK.read_text("utf-8"))]
    yield Ran(dict(zip(cells, outputs, strict=True)), names)
    names["store"].close()
    names["folder"].cleanup()


def test_every_cell_shows_something(ran: Ran) -> None:
    text = NOTEBOOK.read_text("utf-8")
    cells = [name for kind, name in CELL.findall(text) if kind == "cell"]
    assert len(cells) > 15
    assert [name for name in cells if ran.shown[name] is None] == []


def test_the_records_are_a_table(ran: Ran) -> None:
    html = ran.html("opened")
    assert html.startswith("<p>8 records</p><table>")
    assert html.count("sightings/2026-") == 8
    stored = ran.names["store"]
    assert len({row.signed_by for row in stored.records()}) == 5  # four people, and nobody
    assert stored.verify().damaged == 0


def test_the_plot_has_every_record_once(ran: Ran) -> None:
    ElementTree.fromstring(ran.names["plot"])  # noqa: S314 # our own
    bars = TITLE.findall(ran.html("plotted"))
    assert sum(int(count) for _week, _signer, count in bars) == len(ran.names["store"]) > 100
    plotted: Counter[str] = Counter()
    for _week, signer, count in bars:
        plotted[signer] += int(count)
    signed = Counter(
        ran.names["names"].get(row.signed_by, "unsigned") for row in ran.names["store"].records()
    )
    assert plotted == signed
    assert min(bars)[0] == "2026-03-02"
    assert {date.fromisoformat(week).weekday() for week, _signer, _count in bars} == {0}


def test_the_height_of_a_bar_is_its_number() -> None:
    plot = sightings.draw_weeks(
        {date(2026, 3, 2): Counter(Ada=4, Ben=1), date(2026, 3, 16): Counter({"<b>": 2})}
    )
    heights = re.findall(r'height="([\d.]+)" fill="#\w+"><title>[^:]*: (\d)', plot)
    assert heights == [("160.0", "4"), ("40.0", "1"), ("80.0", "2")]
    assert "<b>" not in plot
    assert "&lt;b&gt;: 2" in plot
    assert "no records" in sightings.draw_weeks({})


def test_the_answers_are_right(ran: Ran) -> None:
    """The rules say what this says by hand."""
    names, stored = ran.names["names"], ran.names["store"]
    seals = {row.id: stored.get(row.id) for row in stored.records() if row.signed_by}
    expected = set()
    for seal in seals.values():
        if seal.name.startswith("confirmations/"):
            ((_, link),) = seal.headers
            sighting = seals[link.removeprefix("confirms ")]
            is_other = sighting.signed_by != seal.signed_by
            is_nest = ("Nest", "yes") in sighting.headers
            if is_other and not is_nest and names[seal.signed_by] != "Dov":
                expected.add((sighting.name, sighting.id))
    assert ran.names["result"]["Reported/2"] == expected
    assert len(expected) > 10
    trusted = {names[verifier] for (verifier,) in ran.names["result"]["Trusted/1"]}
    assert trusted == {"Ada", "Ben", "Cleo"}
    assert min(expected)[0] in ran.html("answered")
    assert "mistake.lace:1:10: head variable Q" in ran.html("mistaken")


def test_derivations_are_shown(ran: Ran) -> None:
    why, names = ran.names["why"], ran.names["names"]
    chain = [names[step.fact[1]] for step in why.steps if step.fact[0] == "Trusted"]
    assert chain == ["Cleo", "Ben", "Ada"]
    html = ran.html("explained")
    assert html.startswith("<div")
    assert "<details" in html
    assert "where trust begins" in html
    why_not = ran.names["why_not"]
    assert not why_not
    assert "does not hold" in ran.html("not_explained")
    assert str(ran.names["keys"]["Dov"].verifier) in ran.html("not_explained")


def test_the_policy_tells_what_the_text_says(ran: Ran) -> None:
    loose, tight, stored = ran.names["loose"], ran.names["tight"], ran.names["store"]
    nests = {str(row.id) for row in stored.records() if has_nest(stored.get(row.id))}
    assert len(nests) > 5
    assert set(loose.hidden_hashes) < nests
    assert loose.hidden_hashes
    assert not tight.hidden_hashes
    assert not nests & {*loose.records, *tight.records}
    assert ran.names["tight_sent"] == ran.names["loose_sent"] - len(loose.hidden_hashes)
    assert f"<td>{ran.names['loose_sent']}</td>" in ran.html("disclosed")


def has_nest(record: Any) -> bool:
    return ("Nest", "yes") in record.headers


def test_the_picture_on_the_page_is_that_of_the_notebook(ran: Ran) -> None:
    made = f"{ran.names['plot']}\n"
    assert PICTURE.read_text("utf-8") == made, "run: .venv/bin/python scripts/notebook_picture"
    assert re.findall(r"https?://[^\"<\s]+", made) == ["http://www.w3.org/2000/svg"]


def test_it_runs_as_a_script_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::SyntaxWarning", str(NOTEBOOK)]
    environment = clean_environment(TMPDIR=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_marimo_finds_nothing_wrong() -> None:
    command = [sys.executable, "-m", "marimo", "check", "--strict", str(NOTEBOOK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
