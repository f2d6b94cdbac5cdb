"""What commands show of the segments beside the store."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from lace.store.sqlite.segments import APPEND_RECORDS
from tests.cli.running import call
from tests.store.samples import flip, mixed
from tests.store.segment_samples import generation

if TYPE_CHECKING:
    from pathlib import Path


def segments_line() -> list[str]:
    (found,) = [
        check for check in call("doctor", "--json").json()["checks"] if check["name"] == "segments"
    ]
    return [found["state"], found["found"]]


def test_status_and_doctor(folder: Path, tmp_path: Path) -> None:
    assert segments_line() == ["ok", "facts of 0 records, 0 behind"]
    file = tmp_path / "records"
    file.write_bytes(b"".join(record.bytes for record in mixed(APPEND_RECORDS + 4)))
    done = call("import", file)
    assert done.code == 0
    assert done.err == ""
    shown = call("status", "--json").json()
    assert shown["segments_records"] == APPEND_RECORDS + 4
    assert shown["segments_bytes"] > 10_000
    assert segments_line() == ["ok", f"facts of {APPEND_RECORDS + 4} records, 0 behind"]
    path = generation(folder) / "field.3"
    path.write_bytes(flip(path.read_bytes(), 99))
    state, found = segments_line()
    assert (state, "field.3 is damaged" in found) == ("optional", True)
    assert call("verify").code == 0  # the records are whole
    shutil.rmtree(folder / "segments")
    assert segments_line() == ["optional", "none that can be used"]
    assert call("doctor").code == 0


def test_a_failure_to_write_them_is_a_warning(folder: Path, tmp_path: Path) -> None:
    (folder / "segments").write_text("in the way")
    file = tmp_path / "records"
    file.write_bytes(b"".join(record.bytes for record in mixed(APPEND_RECORDS)))
    done = call("import", file)
    assert done.code == 0
    assert f"stored {APPEND_RECORDS}" in done.lines
    assert "facts beside the store could not be brought up to date" in done.err
