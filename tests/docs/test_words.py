"""The prose is plain technical English: phrases that a reader would stumble over are not used."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHRASES = re.compile(
    r"\b([Ww]hoever|anew|lest|is none|there is none|what came of|so many"
    r"|tells? of|at hand|put behind|goes over it|be the one who|that is why|have it do)\b",
)
TOPS = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
FOLDERS = ("src", "docs", "newsfragments", "examples")


def prose() -> list[Path]:
    """Return every file with text for a reader."""
    found = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    texts = [path for path in found if path.suffix in {".py", ".md"} and path.is_file()]
    return sorted([*texts, *(ROOT / name for name in TOPS)])


def test_no_odd_phrases() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in prose()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for match in PHRASES.finditer(line)
    ]
    assert not found


def test_an_odd_phrase_is_found() -> None:
    assert PHRASES.search("Whoever reads this")
    assert PHRASES.search("it tells of faults")
    assert not PHRASES.search("the least of them")
