"""Files that are written whole or not at all, also by two at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lace.api.system import written_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "some.records"
    target.write_bytes(b"before")

    def fail() -> None:
        with written_file(target, lambda error: error) as file:
            file.write(b"half")
            raise ValueError("half-way")

    with pytest.raises(ValueError, match="half-way"):
        fail()
    assert target.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [target]


def test_two_write_at_once(tmp_path: Path) -> None:
    target, both = tmp_path / "some.records", threading.Barrier(2, timeout=30)

    def write(letter: bytes) -> None:
        with written_file(target, lambda error: error) as file:
            both.wait()
            file.write(letter * 1000)
            both.wait()

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert target.read_bytes() in (b"a" * 1000, b"b" * 1000)
    assert list(tmp_path.iterdir()) == [target]
