"""The manifest: text both ways, and what is refused in one."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import MappingProxyType

import pytest

from lace.base.digest import digest
from lace.spark.pipeline.warehouse import (
    FIRST_MANIFEST,
    MOST_RUNS,
    DataFile,
    FieldSlot,
    Manifest,
    StageRun,
    WarehouseDamagedError,
    WarehouseVersionError,
    format_manifest,
    parse_manifest,
)

FILE = DataFile(path="data/g1/records/a.parquet", size=9, digest="0" * 64, rows=2, generation=1)
RUN = StageRun(
    stage="facts", generation=2, finished="1700000000:000000001", milliseconds=1500, rows=7
)
MANIFEST = Manifest(
    generation=3,
    facts_generation=2,
    texts=17,
    slots=MappingProxyType({"../+Link é": FieldSlot(9, 2)}),
    tables=MappingProxyType({"records": (FILE,), "facts/Field/9": (FILE, FILE)}),
    runs=(RUN,),
)


def rewritten(**changes: object) -> bytes:
    """Return a manifest with other values, whose digest is right."""
    body = json.loads(format_manifest(MANIFEST))
    del body["digest"]
    body.update(changes)
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"digest": digest(text).hex(), **body}).encode()


@pytest.mark.parametrize("manifest", [MANIFEST, FIRST_MANIFEST])
def test_reads_what_it_writes(manifest: Manifest) -> None:
    assert parse_manifest(format_manifest(manifest), "here") == manifest


def test_every_changed_byte_is_found() -> None:
    text = format_manifest(MANIFEST)
    for at in range(len(text)):
        changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        try:
            assert parse_manifest(changed, "here") == MANIFEST  # white space between values
        except (WarehouseDamagedError, WarehouseVersionError):
            continue


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_cut_manifest_is_damaged(length: int) -> None:
    with pytest.raises(WarehouseDamagedError, match=r"^here: the manifest is damaged") as caught:
        parse_manifest(format_manifest(MANIFEST)[:length], "here")
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd.parquet",
        "data/../../x.parquet",
        "data/g1/../../../x.parquet",
        "data/g1/.hidden.parquet",
        "data/x.parquet",
        "data/g1/a.txt",
        "data//a.parquet",
        "data/g1/a\n.parquet",
        "other/g1/a.parquet",
        7,
    ],
)
def test_no_path_leads_elsewhere(path: object) -> None:
    file = {"path": path, "size": 1, "digest": "0" * 64, "rows": 1, "generation": 1}
    with pytest.raises(WarehouseDamagedError, match="has no place in a manifest"):
        parse_manifest(rewritten(tables={"records": [file]}), "here")


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": -1},
        {"generation": True},
        {"generation": "1"},
        {"texts": 2**70},
        {"tables": []},
        {"tables": {"../x": []}},
        {"slots": {"a": [1]}},
        {"format": "something"},
        {"runs": {}},
        {"runs": [{"stage": "facts"}]},
        {"runs": [{**asdict(RUN), "stage": "\x1b[2J"}]},
        {"runs": [{**asdict(RUN), "finished": "soon"}]},
        {"runs": [{**asdict(RUN), "rows": -1}]},
        {"runs": [asdict(RUN)] * (MOST_RUNS + 1)},
    ],
)
def test_nonsense_is_damage(changes: dict[str, object]) -> None:
    with pytest.raises(WarehouseDamagedError):
        parse_manifest(rewritten(**changes), "here")


def test_a_newer_format_is_named() -> None:
    with pytest.raises(WarehouseVersionError, match="lace-warehouse/2") as caught:
        parse_manifest(rewritten(format="lace-warehouse/2"), "here")
    assert caught.value.exit_code == 3


def test_a_manifest_from_before_has_no_runs() -> None:
    body = json.loads(format_manifest(MANIFEST))
    del body["digest"], body["runs"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    old = json.dumps({"digest": digest(text).hex(), **body}).encode()
    assert parse_manifest(old, "here") == replace(MANIFEST, runs=())


def test_only_the_last_runs_are_kept() -> None:
    manifest = MANIFEST
    for number in range(MOST_RUNS + 5):
        manifest = manifest.with_run(replace(RUN, generation=number))
    assert [run.generation for run in manifest.runs] == list(range(5, MOST_RUNS + 5))
    assert parse_manifest(format_manifest(manifest), "here") == manifest


def test_added_and_replaced_files() -> None:
    other = DataFile(path="data/g2/x/b.parquet", size=1, digest="1" * 64, rows=5, generation=2)
    more = MANIFEST.with_added({"records": [other], "quarantine": []})
    assert more.files("records") == (FILE, other)
    assert "quarantine" not in more.tables
    assert more.rows("records") == 7
    assert MANIFEST.files("records") == (FILE,)
    assert more.with_replaced("records", [other]).files("records") == (other,)
    assert "records" not in more.with_replaced("records", []).tables
