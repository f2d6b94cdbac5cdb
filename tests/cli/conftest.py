"""A lace to work on, and records to put into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.api import SigningKey, open_lace
from lace.record.model import Blob, Plex, Seal
from tests.cli.running import call

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def key() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a lace that is there, and empty."""
    with open_lace(tmp_path / ".lace"):
        return tmp_path / ".lace"


@pytest.fixture
def records(key: SigningKey) -> list[Blob | Plex | Seal]:
    """A Blob, a Plex with repeated headers and a link, and two versions of a Seal."""
    blob = Blob(b"picture")
    plex = Plex(
        group="u",
        app="notes",
        name="b",
        data=b"second",
        tai="1700000000:000000002",
        headers=[("Tag", "x"), ("Tag", "y"), ("+Link", f"shows {blob.id}"), ("It's", "a \\ b")],
    )
    old = Plex(group="u", app="notes", name="a", data=b"old", tai="1700000000:000000001")
    new = Plex(group="u", app="notes", name="a", data=b"newer", tai="1700000000:000000003")
    return [blob, plex, old.seal(key), new.seal(key)]


@pytest.fixture
def filled(folder: Path, records: list[Blob | Plex | Seal]) -> Path:
    """The folder of a lace that holds the records."""
    with open_lace(folder) as lace:
        lace.add_all(records)
    return folder


@pytest.fixture
def file(tmp_path: Path, records: list[Blob | Plex | Seal]) -> Path:
    """A file of the records."""
    path = tmp_path / "some.records"
    path.write_bytes(b"".join(record.bytes for record in records))
    return path


@pytest.fixture
def verifier(folder: Path) -> str:
    """The verifier of a key that the lace has."""
    assert folder.is_dir()
    return call("key", "new").lines[0]
