"""The bytes of records, written by a program."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api.records import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path


def test_records_are_written_one_after_another(tmp_path: Path) -> None:
    first, second = lace.Blob(b"one"), lace.Plex(group="g", app="a", name="n", data=b"two")
    with lace.open(tmp_path / "lace") as store:
        store.add_all([first, second])
        file = io.BytesIO()
        assert store.export(file) == 2
        assert file.getvalue() == first.bytes + second.bytes
        target = tmp_path / "some.records"
        assert store.export(target, "//g//a//n") == 1
        assert target.read_bytes() == second.bytes
        with pytest.raises(NotFoundError, match="not in this lace"):
            store.export(tmp_path / "none", "//g//a//other")
        assert not (tmp_path / "none").exists()
        with pytest.raises(lace.UsageError, match="opened for bytes"):
            store.export(io.StringIO())  # type: ignore[arg-type]


def test_facts_and_status(tmp_path: Path) -> None:
    record = lace.Plex(group="g", app="a", name="n", data=b"two")
    with lace.open(tmp_path / "lace") as store:
        store.add(record)
        store.add(lace.Blob(b"one"))
        facts = list(store.facts(record.id))
        assert ("Have", record.id) in facts
        assert set(facts) < set(store.facts())
        status = store.status()
        assert (status.records, status.keys, status.default_key) == (2, 0, None)
        assert status.lace == str((tmp_path / "lace").resolve())
        assert status.database_bytes > 0
