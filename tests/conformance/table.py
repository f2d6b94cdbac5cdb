"""Which tests check which requirement: read from register and markers, written as pages.

`make conformance` collects all tests and writes the pages into docs/reference. A test names the
ids it checks with `@pytest.mark.requirement("020-27")`; an id without a test must stand in
`WITHOUT_TEST`, with the reason. The register flags an id where Lace decides otherwise than its
text, and an option of the texts that is absent; such ids are counted apart.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.base.limits import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pytest

__all__ = [
    "LEVELS",
    "WITHOUT_TEST",
    "Flag",
    "Requirement",
    "faults",
    "format_pages",
    "names_of_tests",
    "read_register",
    "read_requirements",
    "write_pages",
]

ROOT: Final = Path(__file__).resolve().parents[2]
REGISTER: Final = ROOT / "docs" / "reference" / "requirements"
LEVELS: Final = ("MUST", "SHOULD", "MAY", "EX")
ENTRY: Final = re.compile(r"^- `(\d{3}-\d{2,3})` \[([A-Z]+)\] (.+)$", re.MULTILINE)

FLAG: Final = re.compile(r"\n  - \*\*(Otherwise|Absent)[.:]\*\*(.*(?:\n    .*)*)")
PART: Final = re.compile(r"\*\*(Reason|Literal reading):\*\*")
SETTING: Final = re.compile(r"`([a-z_]+)`(?= =|,| and)")

WITHOUT_TEST: Final[Mapping[str, str]] = {}
"""Ids that no test can check, each with the reason. An id with a test does not belong here."""

HEAD = """\
# Conformance

This page and those below it are made by `make conformance`, from the
[register](requirements.md) and the markers of the tests; a test checks that they are up to
date. They show for each requirement the tests that name it. `make test` and `make test-slow` run
all of them, and `make test` fails when an id loses its last test.

Levels: MUST includes MUST NOT, definitions and table rows; EX is an example with a stated outcome.

*To the letter* counts the ids that hold as they are written. *Otherwise* counts those where Lace is
stricter or counts in another way ([X0](decisions.md#x0)), *absent* those of the level MAY that Lace
does not have; both are listed below with the reason. Whatever else the texts leave open and Lace
does not have is on the page [what is left out, and why](left-out.md).

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """What the register says of an id that does not hold as it is written."""

    kind: str
    """`otherwise` or `absent`."""
    decision: str
    reason: str
    literal: str
    """How to get the reading by the letter; empty for what is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One statement of the register."""

    id: str
    level: str
    statement: str
    page: str
    flag: Flag | None = None


def read_register() -> dict[str, Requirement]:
    """All requirements by id, in the order of the register."""
    return {
        requirement.id: requirement
        for page in sorted(REGISTER.glob("0*.md"))
        for requirement in read_requirements(page.name, page.read_text("utf-8"))
    }


def read_requirements(page: str, text: str) -> Iterator[Requirement]:
    """The requirements of one page of the register, each with its flag."""
    for match in ENTRY.finditer(text):
        yield Requirement(
            id=match[1],
            level=match[2],
            statement=match[3],
            page=page,
            flag=_read_flag(FLAG.match(text, match.end())),
        )


def _read_flag(found: re.Match[str] | None) -> Flag | None:
    if found is None:
        return None
    decision, *rest = PART.split(" ".join(found[2].split()))
    parts = dict(zip(rest[::2], map(str.strip, rest[1::2]), strict=True))
    return Flag(
        kind=found[1].lower(),
        decision=decision.strip(),
        reason=parts.get("Reason", ""),
        literal=parts.get("Literal reading", ""),
    )


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
    for requirement in register.values():
        found += _flag_faults(requirement)
    return found


def _flag_faults(requirement: Requirement) -> Iterator[str]:
    flag = requirement.flag
    if flag is None:
        return
    if not flag.reason:
        yield f"{requirement.id}: flagged as {flag.kind} without a reason"
    if flag.kind == "absent":
        if requirement.level != "MAY":
            yield f"{requirement.id}: only what is of the level MAY can be absent"
        return
    if not flag.decision:
        yield f"{requirement.id}: the flag does not say what Lace decides"
    if not flag.literal:
        yield f"{requirement.id}: the flag does not say how to get the literal reading"
    for name in SETTING.findall(flag.literal):
        if name not in {entry.name for entry in fields(Settings)}:
            yield f"{requirement.id}: there is no setting {name}"


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
    columns = (*LEVELS, "to the letter", "otherwise", "absent", "with a test", "tests")
    yield "| text | " + " | ".join(columns) + " |"
    yield "| --- |" + " --: |" * len(columns)
    for page, requirements in by_page.items():
        counts = [sum(one.level == level for one in requirements) for level in LEVELS]
        tested = [one.id for one in requirements if one.id in named]
        tests = len(set().union(*(named[name] for name in tested)))
        flags = Counter("" if one.flag is None else one.flag.kind for one in requirements)
        states = [flags[kind] for kind in ("", "otherwise", "absent")]
        cells = [*counts, *states, f"{len(tested)} of {len(requirements)}", tests]
        yield f"| [{page[:3]}](conformance/{page}) | " + " | ".join(map(str, cells)) + " |"
    flagged = [one for each in by_page.values() for one in each if one.flag is not None]
    yield "\n## Decided otherwise\n"
    yield "| id | Lace | reason | literal reading |\n| --- | --- | --- | --- |"
    for one in flagged:
        if one.flag is not None and one.flag.kind == "otherwise":
            texts = (one.flag.decision, one.flag.reason, one.flag.literal)
            yield f"| {_link(one)} | " + " | ".join(_moved(text) for text in texts) + " |"
    yield "\n## Absent\n"
    yield "| id | what the text allows | reason |\n| --- | --- | --- |"
    for one in flagged:
        if one.flag is not None and one.flag.kind == "absent":
            allowed = one.statement.split(" → test:")[0]
            yield f"| {_link(one)} | {_moved(allowed)} | {_moved(one.flag.reason)} |"
    yield "\n## Without a test\n"
    yield from [f"- `{name}`: {reason}" for name, reason in WITHOUT_TEST.items()] or ["None."]
    yield "\n```{toctree}\n:hidden:\n:glob:\n\nconformance/*\n```"


def _link(requirement: Requirement) -> str:
    return f"[{requirement.id}](requirements/{requirement.page}#{requirement.id})"


def _moved(text: str) -> str:
    """A text of the register with links as the overview needs them."""
    return text.replace("](../", "](")


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
    level = requirement.level
    if requirement.flag is not None:
        level += f", [{requirement.flag.kind}](../requirements/{requirement.page}#{requirement.id})"
    return f"| {link} | {level} | {len(tests)} | {where or 'see the overview'} |"
