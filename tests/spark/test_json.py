"""The commands of the pipeline with `--json`: they write all keys that their help names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.documented import PIPELINE_SAMPLES, check_documented, lacking, read_documents
from tests.cli.running import call
from tests.spark.samples import SOURCE

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_command_writes_json_as_documented(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[Blob | Plex | Seal]
) -> None:
    """One after another, in one warehouse."""
    assert spark is not None  # the commands use the session that is open
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.records").write_bytes(b"".join(record.bytes for record in records[:20]))
    (tmp_path / "rules.lace").write_text("Named(P,N) :- Field(P,'Name',_,N).\n")
    (tmp_path / "mine.facts").write_text(f"Advertised('{records[0].id}','Opq_1')\n")
    assert call("init").code == 0
    assert call("put", "-", given=b"of the lace").code == 0
    for name, (words, code) in PIPELINE_SAMPLES.items():
        given = [SOURCE if word == "SOURCE" else word for word in words]
        done = call("--json", "pipeline", name, *given)
        assert done.code == code, (name, done.err)
        documents = read_documents(done.out)
        assert documents, name
        check_documented(f"pipeline {name}", documents, whole=True)
    (tmp_path / "bad.records").write_bytes(b"nothing of use")
    assert call("pipeline", "ingest", "wh", "bad.records").code == 1
    told = call("--json", "pipeline", "status", "wh").json()
    check_documented("pipeline status", [told])
    assert lacking("pipeline status", [told]) == {"quarantine"}
    told = call("--json", "pipeline", "status", "wh", "--quarantine").json()
    check_documented("pipeline status", [told], whole=True)
    assert lacking("pipeline status", [told]) == set()
