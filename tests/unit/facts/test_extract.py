"""Record links and indexes."""

from __future__ import annotations

import pytest

from lace.facts.extract import indexed_headers, split_link

TARGET = f"P.{'0' * 43}.H3"


@pytest.mark.parametrize(
    ("name", "value", "link"),
    [
        ("a+Link", f"seen {TARGET}", ("seen", TARGET)),
        ("+Link", f"two words {TARGET}", ("two words", TARGET)),
        ("a+Link", f"ends in space  {TARGET}", ("ends in space ", TARGET)),
        ("a+Link", "other P.x.H9", ("other", "P.x.H9")),
        ("a+Link", TARGET, None),
        ("a+Link", f" {TARGET}", None),
        ("a+Link", f"{TARGET} seen", None),
        ("a+Link", f"seen\u00a0{TARGET}", None),
        ("a+Link", f"seen P.{'0' * 42}1.H3", None),
        ("a+Link", "seen P.x.H3", None),
        ("a+Link", "x", None),
        ("a+link", f"seen {TARGET}", None),
        ("a+Links", f"seen {TARGET}", None),
        ("Link", f"seen {TARGET}", None),
    ],
)
def test_links(name: str, value: str, link: tuple[str, str] | None) -> None:
    assert split_link(name, value) == link


def test_indexes_count_each_name() -> None:
    headers = (("a", "x"), ("b", "y"), ("b", "y"), ("b", "z"), ("c", "x"))
    assert list(indexed_headers(headers)) == [
        ("a", "0", "x"),
        ("b", "0", "y"),
        ("b", "1", "y"),
        ("b", "2", "z"),
        ("c", "0", "x"),
    ]
