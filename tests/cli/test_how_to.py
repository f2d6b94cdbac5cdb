"""The page on exposing and previewing: its commands run, and print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.running import clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "expose-and-preview.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "=== the next block"


def steps() -> list[tuple[str, str, str | None]]:
    """Each block that runs: its language, its text, and the output that follows, if any."""
    found = BLOCK.findall(PAGE.read_text("utf-8"))
    made: list[tuple[str, str, str | None]] = []
    for language, text in found:
        if language:
            made.append((language, text, None))
        else:
            made[-1] = (*made[-1][:2], text)
    return made


def script() -> str:
    lines = [f'lace() {{ "{sys.executable}" -m lace "$@"; }}']
    for language, text, _ in steps():
        lines.append(f"echo '{MARK}'")
        if language == "python":
            lines.append(f"\"{sys.executable}\" - <<'PYTHON'\n{text}PYTHON")
        else:
            lines.append(text)
    return "\n".join(lines)


def test_the_page_is_true(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", script()],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=120,
    )
    printed = done.stdout.split(f"{MARK}\n")[1:]
    assert len(printed) == len(steps())
    for (_, text, wanted), found in zip(steps(), printed, strict=True):
        assert found == (wanted or ""), text
