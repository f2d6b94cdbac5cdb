"""Every requirement has a test, and the published table of them is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import table

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def collected_pages(folder: Path) -> dict[str, str]:
    """The pages as a process of its own makes them, which collects all tests and runs none."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--conformance-pages={folder}"],
        cwd=table.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_pages(folder)


def read_pages(folder: Path) -> dict[str, str]:
    paths = [folder / "conformance.md", *sorted((folder / "conformance").glob("*.md"))]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}


@pytest.mark.slow  # only where this run has not collected all tests itself
def test_every_requirement_has_a_test_and_the_table_is_up_to_date(
    all_tests: list[pytest.Item] | None, tmp_path: Path
) -> None:
    if all_tests is None:
        pages = collected_pages(tmp_path)
    else:
        register, named = table.read_register(), table.names_of_tests(all_tests)
        assert table.faults(register, named) == []
        pages = table.format_pages(register, named)
    assert read_pages(REFERENCE) == pages, "run: make conformance"


def test_an_id_without_a_test_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    register = table.read_register()
    named = {name: {"tests/test_a.py::test_b"} for name in register}
    assert table.faults(register, named) == []
    del named["020-27"]
    assert table.faults(register, named) == [
        "020-27: no test names it any more, and no reason stands in WITHOUT_TEST"
    ]
    monkeypatch.setattr(table, "WITHOUT_TEST", {"020-27": "because", "020-28": "because"})
    named["999-99"] = {"tests/test_a.py::test_b"}
    assert table.faults(register, named) == [
        "020-28: has a test, so no reason is needed",
        "999-99: not in the register",
    ]


def test_every_entry_of_the_register_is_read() -> None:
    register = table.read_register()
    entries = [
        line
        for page in table.REGISTER.glob("0*.md")
        for line in page.read_text("utf-8").split("\n")
        if line.startswith("- `0")
    ]
    assert len(entries) == len(register)
    assert {requirement.level for requirement in register.values()} == set(table.LEVELS)


def flagged(text: str, level: str = "MUST") -> list[str]:
    """What is wrong with a flag of the register."""
    entry = f"- `050-231` [{level}] Partition summaries\n{text}- `050-232` [MUST] Depth\n"
    register = {each.id: each for each in table.read_requirements("050-interlace.md", entry)}
    assert list(register) == ["050-231", "050-232"]
    assert register["050-232"].flag is None
    return table.faults(register, {name: {"tests/a.py::b"} for name in register})


OTHERWISE = "  - **Otherwise:** counted for a loop.\n"
REASON = "    **Reason:** it loops for\n    months.\n"
LITERAL = "    **Literal reading:** `literal_limits` = 1.\n"


@pytest.mark.parametrize(
    ("text", "level", "fault"),
    [
        (OTHERWISE + REASON + LITERAL, "MUST", None),
        ("  - **Absent.**\n" + REASON, "MAY", None),
        (OTHERWISE + LITERAL, "MUST", "flagged as otherwise without a reason"),
        (OTHERWISE + REASON, "MUST", "the flag does not say how to get the literal reading"),
        ("  - **Otherwise:**\n" + REASON + LITERAL, "MUST", "does not say what Lace decides"),
        (
            OTHERWISE + REASON + LITERAL.replace("literal_", "no_such_"),
            "MUST",
            "there is no setting no_such_limits",
        ),
        ("  - **Absent.**\n", "MAY", "flagged as absent without a reason"),
        ("  - **Absent.**\n" + REASON, "MUST", "only what is of the level MAY can be absent"),
    ],
)
def test_a_flag_needs_its_reason(text: str, level: str, fault: str | None) -> None:
    found = flagged(text, level)
    assert len(found) == (fault is not None)
    assert all(str(fault) in each for each in found)


def test_flags_are_counted_apart() -> None:
    register = table.read_register()
    named = {name: {"tests/test_a.py::test_b"} for name in register}
    kinds = [each.flag.kind for each in register.values() if each.flag is not None]
    for name in ("050-45", "050-231", "050-233", "050-234", "050-235"):  # those that X0 names
        flag = register[name].flag
        assert flag is not None
        assert flag.kind == "otherwise"
    page = table.format_pages(register, named)["conformance.md"]
    rows = [line.split(" | ") for line in page.split("\n") if "](conformance/" in line]
    columns = [sum(int(row[at]) for row in rows) for at in (5, 6, 7)]
    assert columns == [
        len(register) - len(kinds),
        kinds.count("otherwise"),
        kinds.count("absent"),
    ]


def test_what_is_absent_is_on_the_page_of_what_is_left_out() -> None:
    """Each with its reason; and the ids of that page are those of the register."""
    page = (REFERENCE / "left-out.md").read_text("utf-8")
    register = table.read_register()
    cited = set(re.findall(r"\[([0-9]{3}-[0-9]{2,3})\]\(requirements/[^)]+\)", page))
    assert cited <= set(register)
    absent = {each.id for each in register.values() if each.flag and each.flag.kind == "absent"}
    assert absent <= cited
    rows = [line for line in page.split("\n") if line.startswith("| ") and "(requirements/" in line]
    assert all(line.count(" | ") == 3 for line in rows), "what, ids, why, instead"
    assert "(left-out.md)" in table.HEAD
    assert "(reference/left-out.md)" in (REFERENCE.parent / "index.md").read_text("utf-8")
