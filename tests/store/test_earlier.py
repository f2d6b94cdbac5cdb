"""A lace and a warehouse that an earlier version made open, verify and answer as they did.

`tests/earlier` holds both: a lace of 311 records with segments, from which one was removed, and a
warehouse of eleven of them with facts and derived facts. Never make these files again; a change
of format adds others beside them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import lace

EARLIER = Path(__file__).resolve().parents[1] / "earlier"
NOTES = "Note(P) :- Field(P,'App',_,'notes').\nSealed(P) :- Note(P), PlexHash(P,_)."


def unpack(name: str, folder: Path) -> Path:
    """Unpack an archive, and return the folder that is in it."""
    with tarfile.open(EARLIER / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def test_a_lace(tmp_path: Path) -> None:
    with lace.open(unpack("lace", tmp_path)) as store:
        found = store.verify()
        assert (found.records, found.damaged) == (311, 0)
        answer = store.query(NOTES)
        assert len(answer["Note/1"]) == 11
        assert len(answer["Sealed/1"]) == 5
        note = store.get("//u//notes//n/3")
        assert note is not None
        assert note.data == b"note 3\n"
        added = store.add(lace.Plex(data=b"later", group="u", app="notes", name="n/13"))
        assert (added,) in store.query(NOTES)["Note/1"]
        assert store.verify().damaged == 0


@pytest.mark.spark
def test_a_warehouse(tmp_path: Path) -> None:
    warehouse = lace.open_warehouse(unpack("warehouse", tmp_path))
    assert warehouse.status()["records"] == 11
    assert warehouse.verify().is_sound
    assert warehouse.to_arrow("records").num_rows == 11
