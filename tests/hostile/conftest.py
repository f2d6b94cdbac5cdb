"""A folder for each test, and a WebSocket server for those of one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hostile.kit import Attacked


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A WebSocket server that all tests of a file attack; it is checked at the end."""
    folder = tmp_path_factory.mktemp("ws")
    with attacked(folder, address="ws:127.0.0.1:0") as target:
        yield target
