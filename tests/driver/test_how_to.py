"""The page on exchanges in Python: its blocks run as one program, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "exchange-in-python.md"
BLOCK = re.compile(r"^```(python|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed: str | None = None
    for language, text in BLOCK.findall(PAGE.read_text("utf-8")):
        if language:
            assert not printed, "what is printed stands on the page"
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102 # our own page
            printed = out.getvalue()
        else:
            assert printed == text
            printed = None
    assert not printed
