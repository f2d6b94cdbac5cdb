"""The pages with commands: they run, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import clean_environment

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "=== the next block"


def steps(page: str) -> list[tuple[str, str, str | None]]:
    """Each block that runs: its language, its text, and the output that follows, if any."""
    found = BLOCK.findall((PAGES / page).read_text("utf-8"))
    made: list[tuple[str, str, str | None]] = []
    for language, text in found:
        if language in ("toml", "text"):
            continue
        if language:
            made.append((language, text, None))
        else:
            made[-1] = (*made[-1][:2], text)
    return made


def script(page: str) -> str:
    lines = [f'lace() {{ "{sys.executable}" -m lace "$@"; }}']
    for language, text, _ in steps(page):
        lines.append(f"echo '{MARK}'")
        if language == "python":
            lines.append(f"\"{sys.executable}\" - <<'PYTHON'\n{text}PYTHON")
        else:
            lines.append(text)
    return "\n".join(lines)


@pytest.mark.parametrize("page", ["expose-and-preview.md", "read-a-capture.md", "sync.md"])
def test_the_page_is_true(tmp_path: Path, page: str) -> None:
    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=120,
    )
    printed = done.stdout.split(f"{MARK}\n")[1:]
    assert len(printed) == len(steps(page))
    for (_, text, wanted), found in zip(steps(page), printed, strict=True):
        assert found == (wanted or ""), text
