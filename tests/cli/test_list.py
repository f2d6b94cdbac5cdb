"""The table view: columns, sorting, limits, and texts that would trick a terminal."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.api.records import list_rows
from lace.record.model import Blob, Plex, Seal
from lace.record.validate import ValidRecord
from tests.cli.running import call, on_terminal

if TYPE_CHECKING:
    from pathlib import Path

    Records = list[Blob | Plex | Seal]


def ids(*arguments: object) -> list[str]:
    return [line.split("\t")[0] for line in call("list", *arguments).lines]


def test_default_columns(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("list")
    assert (done.code, done.err) == (0, "")
    blob, plex, old, new = records
    assert isinstance(new, Seal)
    assert [line.split("\t") for line in done.lines] == [
        [old.id, "//u//notes//a", "1700000000:000000001", str(len(old.bytes)), new.signed_by],
        [new.id, "//u//notes//a", "1700000000:000000003", str(len(new.bytes)), new.signed_by],
        [plex.id, "//u//notes//b", "1700000000:000000002", str(len(plex.bytes)), ""],
        [blob.id, "", "", str(len(blob.bytes)), ""],
    ]


def test_json_has_true_values(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    shown = call("list", "--json").json_lines()
    assert shown[3] == {
        "id": records[0].id,
        "coordinate": None,
        "tai": None,
        "size": len(records[0].bytes),
        "signed_by": None,
    }


@pytest.mark.requirement("020-16")
def test_fields_are_a_view_of_the_facts(filled: Path) -> None:
    """What a cell shows is what the Field facts say; showing changes no fact."""
    assert filled.is_dir()
    before = call("facts").raw
    names = ["Type", "Data-Length", "Group", "App", "Name", "TAI", "Signed-By", "Signature",
             "Tag", "+Link", "It's"]  # fmt: skip
    expected: dict[str, dict[str, list[str]]] = {}
    for fact in call("facts", "--json").json_lines():
        if fact["predicate"] == "Field":
            record, name, _index, value = fact["values"]
            expected.setdefault(record, {}).setdefault(name, []).append(value)
    rows = call("list", "--json", "--fields", ",".join(["id", *names])).json_lines()
    assert len(rows) == len(expected)
    for row in rows:
        for name in names:
            value = row[name]
            shown = [] if value is None else value if isinstance(value, list) else [str(value)]
            assert shown == expected[row["id"]].get(name, []), name
    assert call("facts").raw == before


def test_repeated_headers_are_joined_when_piped(filled: Path) -> None:
    assert filled.is_dir()
    done = call("list", "//u//notes//b", "--fields", "Name,Tag,Nothing")
    assert done.lines == ["b\tx, y\t"]
    assert "no record listed has the field Nothing" in done.err


def test_a_mistyped_field_is_told(filled: Path) -> None:
    assert filled.is_dir()
    assert "did you mean Name?" in call("list", "--fields", "id,Nmae").err
    assert "did you mean size?" in call("list", "--sort", "sizee").err
    assert call("list", "--fields", "id,,Name").code == 2


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("coordinate", [2, 3, 1, 0]),
        ("tai", [2, 1, 3, 0]),
        ("TAI", [2, 1, 3, 0]),
        ("stored", [0, 1, 2, 3]),
        ("size", [0, 1, 2, 3]),
        ("Data-Length", [2, 3, 1, 0]),
    ],
)
def test_sorting(filled: Path, records: Records, sort: str, order: list[int]) -> None:
    assert filled.is_dir()
    expected = [records[index].id for index in order]
    assert ids("--sort", sort) == expected
    assert ids("--sort", sort, "--limit", 2) == expected[:2]


@pytest.mark.parametrize("sort", ["id", "signed-by", "Signed-By", "Tag", "Type", "Name"])
def test_sorting_by_what_not_all_have(filled: Path, records: Records, sort: str) -> None:
    assert filled.is_dir()
    field = {"id": "id", "signed-by": "signed-by"}.get(sort, sort)
    rows = call("list", "--sort", sort, "--json", "--fields", f"id,{field}").json_lines()
    present = [(row[field], row["id"]) for row in rows if row[field] is not None]
    assert present == sorted(present)
    assert [row[field] is None for row in rows] == sorted(row[field] is None for row in rows)
    assert sorted(row["id"] for row in rows) == sorted(record.id for record in records)
    back = call("list", "--sort", sort, "--reverse", "--json", "--fields", f"id,{field}")
    reversed_present = [
        (row[field], row["id"]) for row in back.json_lines() if row[field] is not None
    ]
    assert reversed_present == present[::-1]
    for limit in range(5):
        assert len(ids("--sort", sort, "--limit", limit)) == min(limit, 4)


@pytest.mark.parametrize("sort", ["Tag", "Data-Length", "Signature"])
def test_sorting_keeps_no_record(filled: Path, sort: str) -> None:
    with open_lace(filled) as lace, lace.snapshot() as snapshot:
        for row in list_rows(snapshot, "", sort=sort, reverse=False, limit=None):
            row.values(["Tag", "Data-Length"])
            held = gc.get_referents(row)
            assert row.stored in held
            assert not any(isinstance(part, ValidRecord) for part in held)


def test_sorting_large_records_takes_little_memory(folder: Path) -> None:
    size, number = 1_000_000, 20
    with open_lace(folder) as lace:
        lace.add_all(Blob(b"%02d" % i + bytes(size)) for i in range(number))
    tracemalloc.start()
    try:
        assert len(ids("--sort", "Data-Length", "--fields", "id,Data-Length")) == number
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size * number / 2


def test_prefix_and_limit(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    assert ids("//u//notes//b") == [records[1].id]
    assert ids("u//notes//b") == [records[1].id]
    assert len(ids("//u")) == 3
    assert ids("//v") == []
    assert ids("--limit", 1) == [records[2].id]
    assert ids("--limit", 0) == []
    assert call("list", "--limit", "-1").code == 2
    assert ids("//u//notes//a", "--reverse", "--limit", 1) == [records[3].id]


def test_a_header_called_like_a_column(folder: Path) -> None:
    plex = Plex(group="g", app="a", name="n", data=b"", headers=[("size", "huge")])
    with open_lace(folder) as lace:
        lace.add(plex)
    done = call("list", "--fields", "size,header:size")
    assert done.lines == [f"{len(plex.bytes)}\thuge"]


TRICKS = "[red]x[/red] \x9b31m \u202eevil :smile: =cmd()"


@pytest.fixture
def tricky(folder: Path) -> Path:
    headers = [("Note", TRICKS)]
    with open_lace(folder) as lace:
        lace.add(Plex(group="[bold]g", app="a", name="\u200bn\u0085", data=b"", headers=headers))
    return folder


def test_tricks_are_visible_when_piped(tricky: Path) -> None:
    assert tricky.is_dir()
    (line,) = call("list", "--fields", "coordinate,Note").lines
    assert line == (
        "//[bold]g//a//\\u{200b}n\\u{85}\t[red]x[/red] \\u{9b}31m \\u{202e}evil :smile: =cmd()"
    )
    shown = call("list", "--fields", "Note", "--json").json_lines()
    assert shown == [{"Note": [TRICKS]}]
    assert call("list", "--json").raw.isascii()


def test_tricks_are_visible_on_a_terminal(tricky: Path) -> None:
    for arguments in (["list", "--fields", "coordinate,Note"], ["facts"], ["list", "--json"]):
        shown = on_terminal("--lace", tricky, *arguments, columns=200).out
        assert "[bold]g" in shown
        for sign in "\x9b\u202e\u200b\u0085":
            assert sign not in shown
    shown = on_terminal("--lace", tricky, "list", "--fields", "Note", columns=200).out
    assert "[red]x[/red] \\u{9b}31m \\u{202e}evil :smile: =cmd()" in shown
