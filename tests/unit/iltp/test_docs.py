"""The page on streams says what the code does, and its examples run."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from lace.base.limits import DEFAULT_SETTINGS, LEAST_FACT_BYTES, MAX_LINE_BYTES
from lace.iltp.address import DEFAULT_PORTS, MAX_UNIX_PATH_BYTES, parse_address
from lace.iltp.fact_lines import MAX_COMMENT_BYTES
from lace.iltp.items import KNOT, OPEN_RECORD, PREFACE, PUZZLE_PIECE, RECORD
from lace.iltp.resources import (
    MAX_MARKER_BYTES,
    MAX_RESOURCE_BYTES,
    MAX_RESOURCE_LINES,
    MAX_RESOURCES,
    check_resource,
)

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "iltp.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["address", "reader", "resources", "writer"])
def test_examples_in_docstrings(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"lace.iltp.{name}"))
    assert results.attempted
    assert not results.failed


def test_the_bytes() -> None:
    for marker in (KNOT, PUZZLE_PIECE, RECORD, OPEN_RECORD):
        assert f"| `{marker.hex(' ').upper()}` (" in PAGE
    assert f"`{PREFACE.hex(' ').upper()}`" in PAGE
    for sign, marker in (("🪢", KNOT), ("🧩", PUZZLE_PIECE), ("🖧", RECORD)):
        assert f"{sign}: ".encode() == marker


def test_the_limits() -> None:
    rows = dict(re.findall(r"^\| ([a-z ]+) \| ([0-9,]+)", PAGE, re.MULTILINE))
    assert {name: int(value.replace(",", "")) for name, value in rows.items()} == {
        "fact line": MAX_LINE_BYTES,
        "comment line": MAX_COMMENT_BYTES,
        "marker line of a resource": MAX_MARKER_BYTES,
        "resource": MAX_RESOURCE_BYTES,
        "lines of a resource": MAX_RESOURCE_LINES,
        "resources of a direction": MAX_RESOURCES,
    }
    assert "`max_setup_block_size`" in PAGE
    assert "`max_resource_bytes` together, 4 MiB unless" in PAGE
    assert DEFAULT_SETTINGS.max_resource_bytes == 4 * 2**20
    assert DEFAULT_SETTINGS.max_setup_block_size == 2**20
    assert f"a fact counts for at least {LEAST_FACT_BYTES} bytes" in PAGE
    assert f"at most {MAX_UNIX_PATH_BYTES} bytes" in PAGE


def test_the_addresses() -> None:
    for scheme, port in DEFAULT_PORTS.items():
        assert re.search(rf"^\| `{scheme}:.*\| {port} \|$", PAGE, re.MULTILINE)
    assert parse_address("tcp:example.com").transport_text in PAGE


def test_the_example_of_a_resource() -> None:
    (shown,) = re.findall(r"^```\n🧩: (\S+) (\S+)\n(.*?)\n\n```$", PAGE, re.MULTILINE | re.DOTALL)
    identifier, kind, body = shown
    check_resource(identifier, kind, body.encode())
