"""The pages on Python: the blocks of each run as one program, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("how-to/exchange-in-python.md", "reference/python.md")
BLOCK = re.compile(r"^```(python|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_true(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed: str | None = None
    for language, text in BLOCK.findall((DOCS / page).read_text("utf-8")):
        if language:
            assert not printed, "what is printed stands on the page"
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, page, "exec"), names)  # noqa: S102 # our own page
            printed = out.getvalue()
        else:
            assert printed == text
            printed = None
    assert not printed
