"""The pages that are made from the program are up to date and whole."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from lace.base.limits import Settings
from tests.conformance.table import read_register

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def test_the_made_pages_are_up_to_date(tmp_path: Path) -> None:
    program = ROOT / "scripts" / "reference_pages"
    subprocess.run([sys.executable, program, tmp_path], check=True)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["errors.md", "limits.md", "requirements.md"]
    for name in made:
        assert (REFERENCE / name).read_text("utf-8") == (tmp_path / name).read_text("utf-8"), (
            "run: .venv/bin/python scripts/reference_pages"
        )


def test_the_register_has_every_requirement_and_no_other() -> None:
    page = (REFERENCE / "requirements.md").read_text("utf-8")
    entry = re.compile(r"^- \[`(.+?)`\]\(requirements/(.+)#(.+)\) ([A-Z]+): (.+)$", re.MULTILINE)
    found = entry.findall(page)
    assert page.count("\n- ") == len(found)
    register = read_register()
    assert [name for name, *_rest in found] == list(register)
    for name, file, anchor, level, statement in found:
        requirement = register[name]
        assert (file, anchor, level) == (requirement.page, name, requirement.level)
        statement, _, flag = statement.partition(" (*")
        assert requirement.statement.replace("](../", "](").startswith(statement)
        assert flag.rstrip("*)") == (requirement.flag.kind if requirement.flag else "")
        assert len(statement.split()) > 2


def test_every_setting_is_on_the_page() -> None:
    page = (REFERENCE / "limits.md").read_text("utf-8")
    for entry in fields(Settings):
        assert f"| `{entry.name}` |" in page


@pytest.mark.parametrize("name", ["010-nfc", "020-15", "030-37", "050-100", "G36", "X1"])
def test_ids_have_their_statement(name: str) -> None:
    page = (REFERENCE / "errors.md").read_text("utf-8")
    (row,) = [line for line in page.split("\n") if f"`{name}` |" in line]
    statement = row.split(" | ")[1]
    assert len(statement.split()) > 3
