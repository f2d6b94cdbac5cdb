"""Sections of RESULTS.md that are measured again: the others stay as they are."""

from __future__ import annotations

from benchmarks.results import RESULTS, Row, Section, replace_sections


def test_a_section_is_replaced_and_the_others_stay() -> None:
    old = [Section(f"Part {number}", [Row("time", f"{number} s")]) for number in range(3)]
    text = "\n".join(["# Results\n", *(section.markdown() for section in old)])
    new = Section("Part 1", [Row("time", "7 s", "≤ 8 s", True)])
    made = replace_sections(text, [new], command="make bench", date="2026-01-02")
    assert made.startswith("# Results\n\n## Part 0\n")
    assert old[0].markdown() in made
    assert made.endswith(old[2].markdown())
    assert "## Part 1\n\nMeasured again on 2026-01-02: `make bench`.\n\n| figure |" in made
    assert "| time | 7 s | ≤ 8 s | yes |\n\n## Part 2\n" in made
    assert "1 s" not in made
    assert replace_sections(made, [new], command="make bench", date="2026-01-02") == made


def test_a_section_that_is_not_there() -> None:
    text = RESULTS.read_text("utf-8")
    made = replace_sections(text, [Section("Nothing", [])], command="c", date="d")
    assert made.startswith(text.rstrip("\n"))
    assert made.count("\n## ") == text.count("\n## ") + 1
    assert "\n## Nothing\n\nMeasured again on d: `c`." in made
