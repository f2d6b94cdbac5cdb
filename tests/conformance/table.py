"""Which tests check which requirement: read from register and markers, written as pages.

`make conformance` collects all tests and writes the pages into docs/reference. A test names the
ids it checks with `@pytest.mark.requirement("020-27")`; an id without a test must stand in
`WITHOUT_TEST`, with the reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pytest

__all__ = [
    "LEVELS",
    "WITHOUT_TEST",
    "Requirement",
    "faults",
    "format_pages",
    "names_of_tests",
    "read_register",
    "write_pages",
]

ROOT: Final = Path(__file__).resolve().parents[2]
REGISTER: Final = ROOT / "docs" / "reference" / "requirements"
LEVELS: Final = ("MUST", "SHOULD", "MAY", "EX")
ENTRY: Final = re.compile(r"^- `(\d{3}-\d{2,3})` \[([A-Z]+)\] (.+)$", re.MULTILINE)

WITHOUT_TEST: Final[Mapping[str, str]] = {}
"""Ids that no test can check, each with the reason. An id with a test does not belong here."""

HEAD = """\
# Conformance

This page and those below it are made by `make conformance`, from the
[register](requirements.md) and the markers of the tests; a test checks that they are up to
date. They show for each requirement the tests that name it. `make test` runs all of them, and
fails when an id loses its last test.

Levels: MUST includes MUST NOT, definitions and table rows; EX is an example with a stated outcome.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One statement of the register."""

    id: str
    level: str
    statement: str
    page: str


def read_register() -> dict[str, Requirement]:
    """All requirements by id, in the order of the register."""
    return {
        match[1]: Requirement(id=match[1], level=match[2], statement=match[3], page=page.name)
        for page in sorted(REGISTER.glob("0*.md"))
        for match in ENTRY.finditer(page.read_text("utf-8"))
    }


def names_of_tests(items: Iterable[pytest.Item]) -> dict[str, set[str]]:
    """For each id the tests that name it, as file and function; parameters do not count."""
    named: dict[str, set[str]] = defaultdict(set)
    for item in items:
        path, *_classes, function = item.nodeid.split("[")[0].split("::")
        for marker in item.iter_markers("requirement"):
            for name in marker.args:
                named[str(name)].add(f"{path}::{function}")
    return dict(named)


def faults(register: Mapping[str, Requirement], named: Mapping[str, set[str]]) -> list[str]:
    """What is wrong: ids without a test or a reason, reasons without need, unknown ids."""
    found = [
        f"{name}: no test names it any more, and no reason stands in WITHOUT_TEST"
        for name in register
        if name not in named and name not in WITHOUT_TEST
    ]
    found += [
        f"{name}: has a test, so no reason is needed" for name in WITHOUT_TEST if name in named
    ]
    found += [
        f"{name}: not in the register" for name in sorted({*named, *WITHOUT_TEST} - {*register})
    ]
    return found


def format_pages(
    register: Mapping[str, Requirement], named: Mapping[str, set[str]]
) -> dict[str, str]:
    """The pages, by their path below docs/reference."""
    by_page: dict[str, list[Requirement]] = defaultdict(list)
    for requirement in register.values():
        by_page[requirement.page].append(requirement)
    pages = {"conformance.md": HEAD + "\n".join(_overview(by_page, named)) + "\n"}
    for page, requirements in by_page.items():
        lines = [
            f"# Conformance to {page[:3]}",
            "",
            f"Which tests check each statement of [text {page[:3]}](../requirements/{page}).",
            "Made by `make conformance`.",
            "",
            "| id | level | tests | where |",
            "| --- | --- | --: | --- |",
            *(_row(requirement, named) for requirement in requirements),
        ]
        pages[f"conformance/{page}"] = "\n".join(lines) + "\n"
    return pages


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Write the pages below a folder."""
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _overview(
    by_page: Mapping[str, list[Requirement]], named: Mapping[str, set[str]]
) -> Iterator[str]:
    yield "| text | " + " | ".join(LEVELS) + " | with a test | tests |"
    yield "| --- |" + " --: |" * (len(LEVELS) + 2)
    for page, requirements in by_page.items():
        counts = [sum(one.level == level for one in requirements) for level in LEVELS]
        tested = [one.id for one in requirements if one.id in named]
        tests = len(set().union(*(named[name] for name in tested)))
        cells = [*counts, f"{len(tested)} of {len(requirements)}", tests]
        yield f"| [{page[:3]}](conformance/{page}) | " + " | ".join(map(str, cells)) + " |"
    yield "\n## Without a test\n"
    yield from [f"- `{name}`: {reason}" for name, reason in WITHOUT_TEST.items()] or ["None."]
    yield "\n```{toctree}\n:hidden:\n:glob:\n\nconformance/*\n```"


def _row(requirement: Requirement, named: Mapping[str, set[str]]) -> str:
    tests = sorted(named.get(requirement.id, ()))
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        path, function = test.split("::")
        files[path].append(f"`{function}`")
    where = "; ".join(
        f"[{path.removeprefix('tests/')}](../../../{path}): {', '.join(functions)}"
        for path, functions in files.items()
    )
    link = f"[{requirement.id}](../requirements/{requirement.page}#{requirement.id})"
    return f"| {link} | {requirement.level} | {len(tests)} | {where or 'see the overview'} |"
