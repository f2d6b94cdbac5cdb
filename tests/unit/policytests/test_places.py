"""Lines are found again in TOML that has been read."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from lace.errors import UsageError
from lace.policytests.tables import PolicyTestError, Problems, TextPlaces, read_bounded, show_path

TEXT = '''\
# select = "in a comment"
select = "a.lace"
peer_select_text = """
index = 3
[[case]]
"""
[keys]
alice = "test"
"odd name" = 'test'
dotted.key = 1
[records.note]
headers = { "+Link" = "x", Tag = [
  "lowering = 2",
  "z",
] }
[[case]]
name = "first"
[[case]]
name = "second"
derived = { "A/2" = [
  ["a", "b"],
  ["c", "d"]
], B = 1 }
send = ["x"]
[case.limits]
max_work = 3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("select",), 2),
        (("peer_select_text",), 3),
        (("index",), None),
        (("keys",), 7),
        (("keys", "alice"), 8),
        (("keys", "odd name"), 9),
        (("keys", "dotted", "key"), 10),
        (("records", "note"), 11),
        (("records", "note", "headers"), 12),
        (("records", "note", "headers", "Tag"), 12),
        (("lowering",), None),
        (("case", 0), 16),
        (("case", 0, "name"), 17),
        (("case", 1), 18),
        (("case", 1, "derived", "A/2"), 20),
        (("case", 1, "send"), 24),
        (("case", 1, "limits", "max_work"), 26),
        (("case", 1, "nothing"), 18),
        (("case", 2), None),
        ((), None),
    ],
)
def test_lines(path: tuple[str | int, ...], line: int | None) -> None:
    tomllib.loads(TEXT)
    assert TextPlaces(TEXT).line(path) == line


def test_the_line_of_an_item() -> None:
    places = TextPlaces(TEXT)
    assert places.line(("records", "note", "headers"), '"z"') == 14
    assert places.line(("records", "note", "headers"), "second") == 12
    assert places.line(("case", 1, "send"), '"x"') == 24


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ((), ""),
        (("select",), "select"),
        (("case", 1, "derived", "A/2"), 'case 2, derived."A/2"'),
        (("keys", "a\x1bb"), 'keys."a\\u{1b}b"'),
    ],
)
def test_paths_are_shown(path: tuple[str | int, ...], shown: str) -> None:
    assert show_path(path) == shown


def test_all_problems_are_raised_in_the_order_of_the_text() -> None:
    problems = Problems("a.toml", TEXT)
    problems.refuse()
    assert not problems
    problems.add(("keys",), "second", "do this")
    problems.add(("select",), "first")
    assert problems
    with pytest.raises(PolicyTestError) as caught:
        problems.refuse()
    assert isinstance(caught.value, UsageError)
    assert caught.value.exit_code == 2
    lines = str(caught.value).split("\n")
    assert lines == ["a.toml:2: select: first", "a.toml:7: keys: second; do this"]
    assert [str(each) for each in caught.value.findings] == lines


def test_files_have_a_size(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1234")
    assert read_bounded(path, "a", 4) == b"1234"
    with pytest.raises(PolicyTestError, match="a: the file has more than 3 bytes"):
        read_bounded(path, "a", 3)
    with pytest.raises(PolicyTestError, match="b: it cannot be read: No such file"):
        read_bounded(tmp_path / "b", "b", 3)
    with pytest.raises(PolicyTestError, match="it cannot be read"):
        read_bounded(Path("a\0b"), "b", 3)
