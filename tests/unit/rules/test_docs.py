"""The examples of the documentation and of the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import lace.rules
from lace.rules.canonical import canonicalize
from lace.rules.program import Lacegram

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [DOCS / "reference" / "rules.md", DOCS / "how-to" / "write-rules.md"]
MODULES = [found.name for found in pkgutil.walk_packages(lace.rules.__path__, "lace.rules.")]


def blocks(page: Path) -> list[str]:
    """The fenced blocks that hold rules and nothing else."""
    found = re.findall(
        r"^```(?:lace)?\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return [
        block
        for block in found
        if ":-" in block
        and all(re.match(r"#|[A-Z]\w*\(.*\.$", line) for line in block.split("\n")[:-1])
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_rules_of_the_documentation(page: Path) -> None:
    found = blocks(page)
    assert len(found) >= 4
    for block in found:
        assert Lacegram.parse(block).rules


def test_identifiers_of_the_documentation() -> None:
    text = PAGES[0].read_text("utf-8")
    (block,) = [each for each in blocks(PAGES[0]) if each.startswith("SelectHave")]
    made = canonicalize(block)
    for name in (made.id, *made.rule_ids):
        assert f"`{name}`" in text


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
