"""Both stores pass the one contract suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.store.sqlite.store import SqliteStore
from tests.oracle.memory_store import MemoryStore
from tests.store.contract import StoreContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        made = SqliteStore(tmp_path / "lace", create=True)
        yield made
        made.close()
