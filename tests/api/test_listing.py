"""Tables of a lace: records and coordinates, lazily, as Arrow and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.api.tables import SHOWN_ROWS
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def note(name: str, at: int = 0, group: str = "u") -> lace.Plex:
    tai = f"17000000{at:02}:000000000"
    return lace.Plex(group=group, app="n", name=name, data=name.encode(), tai=lace.Tai(tai))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lace.Lace]:
    with lace.open(tmp_path / "x") as opened:
        opened.add_all([note("a", 1), note("a", 3), note("a", 2), note("b"), lace.Blob(b"x")])
        opened.add(note("c", group="v").seal(lace.SigningKey.generate()))
        yield opened


def test_records(store: lace.Lace) -> None:
    table = store.records()
    assert [row.coordinate for row in table] == [
        *["//u//n//a"] * 3,
        "//u//n//b",
        "//v//n//c",
        "",
    ]
    assert len(table) == 6
    assert repr(table) == "<Table: 6 records>"
    assert [row.tai for row in store.records("u//n//a", sort="tai", reverse=True, limit=2)] == [
        "1700000003:000000000",
        "1700000002:000000000",
    ]
    assert len(store.records("//u//", limit=0)) == 0
    store.add(note("d"))
    assert len(table) == 7, "a table is read anew each time"
    for row in store.records("//u//n//b"):
        found = store.get(row.id)
        assert isinstance(found, lace.Plex)
        assert found.data == b"b"


def test_reading_is_lazy(store: lace.Lace) -> None:
    rows = iter(store.records())
    first = next(rows)
    store.remove(*[str(row.id) for row in store.records()])
    assert first.coordinate == "//u//n//a"
    assert len(list(rows)) == 5, "one who reads goes on with the state that he began with"
    assert len(store.records()) == 0


def test_coordinates(store: lace.Lace) -> None:
    found = list(store.coordinates())
    assert [(str(each.coordinate), each.count) for each in found] == [
        ("//u//n//a", 3),
        ("//u//n//b", 1),
        ("//v//n//c", 1),
    ]
    tip = store.get("//u//n//a")
    assert tip is not None
    assert found[0].tip.id == tip.id
    assert [each.coordinate.name for each in store.coordinates("v")] == ["c"]
    assert len(store.coordinates(limit=2)) == 2


def test_arrow(store: lace.Lace) -> None:
    table = store.records().to_arrow()
    assert table.column_names == list(store.records().columns)
    assert table.num_rows == 6
    assert table["name"].to_pylist() == ["a", "a", "a", "b", "c", None]
    assert table["size"].to_pylist() == [row.size for row in store.records()]
    assert store.coordinates().to_arrow()["count"].to_pylist() == [3, 1, 1]
    empty = store.records("//nowhere//").to_arrow()
    assert (empty.num_rows, empty.column_names) == (0, table.column_names)
    assert empty.schema == table.schema


def test_a_notebook_shows_some_and_obeys_nothing(store: lace.Lace) -> None:
    trick = "<script>alert(1)</script>&\u202e"
    store.add_all([note(f"many/{number}") for number in range(SHOWN_ROWS + 5)])
    store.add(note(trick, group="a"))
    html = store.records()._repr_html_()
    assert "<script>" not in html
    assert "\u202e" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<tr>") == SHOWN_ROWS + 1
    assert "32 records" in html
    assert f"and {32 - SHOWN_ROWS} more" in html
    assert "coordinates" in store.coordinates()._repr_html_()
    long = store.add(note("x" * 900, group="b"))
    assert "x" * 300 not in store.records("//b//")._repr_html_()
    assert str(long) in store.records("//b//")._repr_html_()
    assert "<p>1 record</p>" in store.records("//b//")._repr_html_()
    assert repr(store.records("//b//")) == "<Table: 1 record>"
    assert "<p>1 coordinate</p>" in store.coordinates("//b//")._repr_html_()


def test_what_no_table_has(store: lace.Lace) -> None:
    with pytest.raises(UsageError, match="not sorted by 'colour'"):
        store.records(sort="colour")
    with pytest.raises(UsageError, match="a limit"):
        store.records(limit=-1)
