"""Every finding, word for word: tests/vectors/rules/findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from lace.errors import RuleError, hide_decisions
from lace.rules.profiles import PROFILES
from lace.rules.program import Lacegram, find_all

FOLDER = Path(__file__).parents[2] / "vectors" / "rules" / "findings"
SOURCES = sorted(FOLDER.glob("*.lace"))


def test_there_are_fixtures() -> None:
    assert len(SOURCES) >= 25
    assert {path.stem for path in SOURCES} == {path.stem for path in FOLDER.glob("*.findings")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_findings(path: Path) -> None:
    profile = PROFILES[path.name.split("-")[0]]
    raw = path.read_bytes()
    expected = path.with_suffix(".findings").read_text("utf-8")
    found = find_all(raw, profile=profile, name=path.name)
    assert "".join(f"{finding.log_line()}\n{finding.excerpt}\n" for finding in found) == expected
    shown = "".join(f"{finding.render()}\n" for finding in found)
    assert shown == hide_decisions(expected)
    if any(finding.severity == "error" for finding in found):
        with pytest.raises(RuleError) as caught:
            Lacegram.parse(raw, profile=profile.name, name=path.name)
        assert caught.value.findings == found
    else:
        parsed = Lacegram.parse(raw, profile=profile.name, name=path.name)
        assert parsed.warnings == found
