"""Advertisements and roots of the pipeline are those of an exchange."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lace.api import SigningKey
from lace.base import b64a
from lace.errors import UsageError
from lace.exchange.advertisement import Advertisement, advertised_fields_of
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.merkle import EMPTY_ROOT, as_digests, root_of
from lace.exchange.summaries import summaries_of
from lace.facts.extract import record_facts
from lace.policy.schema import ALL_FIELDS, Schema
from lace.record.model import Blob, Plex
from lace.spark.pipeline import advertise as advertise_module
from lace.spark.pipeline.advertise import (
    WHOLE,
    Asked,
    is_current,
    read_partitions,
    read_state,
    root_of_whole,
    roots_of_prefixes,
    state_names,
)
from lace.spark.pipeline.derived import find_derived
from lace.spark.pipeline.records import iterate_records
from lace.spark.pipeline.tables import (
    ADVERTISEMENTS,
    read_table,
)
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import call
from tests.spark.samples import (
    SOURCE,
    advertise_as,
    derive,
    ingest_files,
    make_records,
    names_of,
    run_script,
)

if TYPE_CHECKING:
    from lace.record.model import Seal

pytestmark = pytest.mark.spark

VECTORS = Path(__file__).parents[1] / "vectors"
SOME = Schema(names=frozenset({"App", "Tag", "Data-Length", "Nowhere"}))


def embedded(
    warehouse: WarehouseFolder, schema: Schema, source: str = SOURCE, only: set[str] | None = None
) -> tuple[AdvertisementSet, dict[str, Advertisement]]:
    """Return what an exchange would advertise."""
    claims = {}
    for record in iterate_records(warehouse):
        text = str(record.id)
        if only is None or text in only:
            fields = advertised_fields_of(
                text, source, record_facts(record), schema, max_line_bytes=1024
            )
            claims[text] = Advertisement(text, fields)
    digests = [claim.digest(source) for claim in claims.values()]
    return AdvertisementSet.of(list(claims), digests), claims


def check(
    spark: Any, warehouse: WarehouseFolder, asked: Asked, only: set[str] | None = None
) -> AdvertisementSet:
    """Compare a state with what an exchange would advertise."""
    wanted, claims = embedded(warehouse, asked.schema, asked.source, only)
    found = read_partitions(warehouse, asked.name)
    assert found[WHOLE] == (len(wanted), wanted.root(""))
    prefixes = list(summaries_of(wanted, 2))
    assert found.keys() == {WHOLE, *prefixes}
    for prefix in prefixes:
        assert found[prefix] == (wanted.count(prefix), wanted.root(prefix))
    rows = read_table(spark, warehouse, f"{ADVERTISEMENTS}/{asked.name}").collect()
    assert len(rows) == len(claims)
    for row in rows:
        claim = claims[row["record"]]
        assert bytes(row["digest"]) == claim.digest(asked.source)
        assert row["prefix"] == row["record"][2:4]
        assert [tuple(field) for field in json.loads(row["fields"] or "[]")] == [*claim.fields]
    return wanted


@pytest.mark.requirement("050-66", "050-67", "050-69", "050-71", "050-160", "050-163")
def test_states_equal_those_of_an_exchange(spark: Any, tmp_path: Path, file: Path) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    roots = set()
    for name, schema in (("bare", Schema()), ("some", SOME), ("every", ALL_FIELDS)):
        asked = Asked(name=name, source=SOURCE, schema=schema)
        done = advertise_as(spark, warehouse, asked)
        wanted = check(spark, warehouse, asked)
        assert (done.records, done.added, done.root) == (len(wanted), len(wanted), wanted.root(""))
        assert done.partitions == len(list(summaries_of(wanted, 2)))
        roots.add(done.root)
    assert len(roots) == 3
    assert state_names(warehouse.manifest) == ["bare", "every", "some"]


def test_a_field_whose_line_is_too_long_is_left_out(spark: Any, tmp_path: Path) -> None:
    long = Plex(group="u", app="a", name="n", headers=[("Tag", "x" * 1000), ("Tag", "y")], data=b"")
    (tmp_path / "file").write_bytes(long.bytes)
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, tmp_path / "file")
    asked = Asked(name="all", source=SOURCE, schema=SOME)
    advertise_as(spark, warehouse, asked)
    check(spark, warehouse, asked)
    (row,) = read_table(spark, warehouse, f"{ADVERTISEMENTS}/all").collect()
    assert ["Tag", "1", "y"] in json.loads(row["fields"])
    assert "xxx" not in row["fields"]


@pytest.mark.requirement("050-168")
def test_an_empty_warehouse_and_one_record(spark: Any, tmp_path: Path) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    asked = Asked(name="all", source="Opq_0", schema=SOME)
    done = advertise_as(spark, warehouse, asked)
    assert (done.records, done.partitions, done.root) == (0, 0, EMPTY_ROOT)
    assert is_current(warehouse, asked) == done
    blob = Blob(b"alone")
    (tmp_path / "file").write_bytes(blob.bytes)
    ingest_files(spark, warehouse, tmp_path / "file")
    assert is_current(warehouse, asked) is None
    done = advertise_as(spark, warehouse, asked)
    assert (done.records, done.added, done.partitions) == (1, 1, 1)
    check(spark, warehouse, asked)


@pytest.mark.parametrize("chosen", [1024, 0])
def test_later_runs_add(
    spark: Any,
    tmp_path: Path,
    file: Path,
    records: list[Blob | Plex | Seal],
    monkeypatch: pytest.MonkeyPatch,
    chosen: int,
) -> None:
    monkeypatch.setattr(advertise_module, "_MOST_CHOSEN", chosen)  # all prefixes, or the new ones
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    asked = Asked(name="all", source=SOURCE, schema=SOME)
    advertise_as(spark, warehouse, asked)
    first = warehouse.manifest.files(f"{ADVERTISEMENTS}/all")
    before, generation = names_of(warehouse.folder), warehouse.manifest.generation
    again = advertise_as(spark, warehouse, asked)
    assert (again.records, again.added) == (len(records), 0)
    assert (names_of(warehouse.folder), warehouse.manifest.generation) == (before, generation)
    more = make_records(SigningKey.generate(), 12, seed=4)[2:]
    (tmp_path / "more").write_bytes(b"".join(record.bytes for record in more))
    ingest_files(spark, warehouse, tmp_path / "more")
    done = advertise_as(spark, warehouse, asked)
    assert (done.records, done.added) == (len(records) + len(more), len(more))
    files = warehouse.manifest.files(f"{ADVERTISEMENTS}/all")
    assert files[: len(first)] == first
    assert sum(each.rows for each in files[len(first) :]) == len(more)
    check(spark, warehouse, asked)
    # Another source is another state, made anew.
    other = Asked(name="all", source="Opq_1", schema=SOME)
    assert advertise_as(spark, warehouse, other).added == done.records
    check(spark, warehouse, other)
    assert not {*warehouse.manifest.files(f"{ADVERTISEMENTS}/all")} & {*files}


def test_a_derived_set(
    spark: Any, tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)

    with pytest.raises(UsageError, match="no derived set of records is called 'mine'"):
        find_derived(warehouse, "mine")
    # A text that is no record here cannot be advertised.
    chosen = [str(record.id) for record in records[3:30]]
    texts = [*chosen, "no record", str(Blob(b"elsewhere").id)]
    derive(warehouse, "mine", {"Selected": texts, "Other": chosen[:1]})
    derive(warehouse, "one", {"Alone": chosen})
    derive(warehouse, "two", {"Here": chosen, "There": chosen})
    assert find_derived(warehouse, "mine/Other") == "derived/mine/Other~1"
    assert find_derived(warehouse, "one") == "derived/one/Alone~1"
    with pytest.raises(UsageError) as caught:
        find_derived(warehouse, "two")
    assert caught.value.hint == "there are two/Here, two/There"
    table = find_derived(warehouse, "mine")
    asked = Asked(name="mine", source=SOURCE, schema=SOME, of=table)
    assert advertise_as(spark, warehouse, asked).records == len(chosen)
    check(spark, warehouse, asked, {*chosen})
    assert is_current(warehouse, asked)
    for left in (chosen[5:], []):
        derive(warehouse, "mine", {"Selected": left})
        assert find_derived(warehouse, "mine") == table
        assert advertise_as(spark, warehouse, asked).records == len(left)
        check(spark, warehouse, asked, {*left})


@pytest.mark.requirement("050-163", "050-164", "050-165", "050-166", "050-167")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 4097])
def test_the_root_of_the_whole(spark: Any, count: int) -> None:
    source = random.Random(count)
    digests = [source.randbytes(32) for _ in range(count)]
    rows = spark.createDataFrame([(each,) for each in digests], "digest binary")
    for parts in (1, 3):
        assert root_of_whole(rows, parts) == root_of(as_digests(digests))


@pytest.mark.requirement("050-163", "050-167")
def test_root_vectors(spark: Any) -> None:
    vectors = json.loads((VECTORS / "merkle.json").read_text("utf-8"))
    rows = [
        (str(number), bytes.fromhex(text))
        for number, vector in enumerate(vectors)
        for text in vector["digests"]
    ]
    found = roots_of_prefixes(spark.createDataFrame(rows, "prefix string, digest binary"), 3)
    for number, vector in enumerate(vectors):
        if vector["digests"]:
            count, root = found[str(number)]
            assert (count, b64a.encode(root)) == (len(vector["digests"]), vector["root"])
    whole = spark.createDataFrame([row[1:] for row in rows], "digest binary").distinct()
    wanted = root_of(as_digests({digest for _number, digest in rows}))
    assert root_of_whole(whole, 2) == wanted


@pytest.mark.requirement("050-163", "050-167")
def test_roots_of_prefixes_of_many_sizes(spark: Any) -> None:
    source = random.Random(3)
    sizes = {"00": 1, "01": 2, "0~": 3, "zz": 1000, "~~": 4097}
    digests = {prefix: [source.randbytes(32) for _ in range(n)] for prefix, n in sizes.items()}
    rows = [(prefix, each) for prefix, found in digests.items() for each in found]
    source.shuffle(rows)
    found = roots_of_prefixes(spark.createDataFrame(rows, "prefix string, digest binary"), 2)
    assert found == {
        prefix: (len(each), root_of(as_digests(each))) for prefix, each in digests.items()
    }


@pytest.mark.requirement("050-66", "050-67", "050-68", "050-70", "050-71")
def test_advertisement_vectors(spark: Any, tmp_path: Path) -> None:
    vectors = json.loads((VECTORS / "advertisements.json").read_text("utf-8"))
    paths = sorted((VECTORS / "records" / "accept").glob("*.record"))
    (tmp_path / "file").write_bytes(b"".join(path.read_bytes() for path in paths))
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, tmp_path / "file")
    schemas = {json.dumps(vector["schema"]) for vector in vectors}
    assert len(schemas) == 3
    for number, text in enumerate(schemas):
        names = json.loads(text)
        schema = ALL_FIELDS if names is None else Schema(names=frozenset(names))
        asked = Asked(name=str(number), source=vectors[0]["source"], schema=schema)
        advertise_as(spark, warehouse, asked)
        rows = read_table(spark, warehouse, f"{ADVERTISEMENTS}/{number}").collect()
        found = {row["record"]: bytes(row["digest"]).hex() for row in rows}
        of_schema = [vector for vector in vectors if json.dumps(vector["schema"]) == text]
        # A field whose line is longer than a stream carries is left out (G60).
        long = [
            each for each in of_schema if max(map(len, each["text"].encode().split(b"\n"))) > 1024
        ]
        assert len(long) <= 1
        for vector in of_schema:
            assert (found[vector["id"]] == vector["digest"]) == (vector not in long), vector


def test_the_command(
    spark: Any, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    wanted, _claims = embedded(warehouse, Schema(names=frozenset({"App"})))
    base = ("pipeline", "advertise", "wh", "--source", SOURCE)
    result = call(*base, "--field", "App")
    root = b64a.encode(wanted.root(""))
    assert (result.code, result.err) == (0, "")
    count, parts = len(wanted), len(list(summaries_of(wanted, 2)))
    assert result.lines == [
        f"records {count}",
        f"added {count}",
        f"partitions {parts}",
        f"root {root}",
    ]
    assert call(*base, "--field", "App", "--json").json() == {
        "name": "all",
        "records": count,
        "added": 0,
        "partitions": parts,
        "root": root,
    }
    assert call(*base, "--all-fields", "--name", "x").code == 0
    status = call("pipeline", "status", "wh", "--json").json()
    assert status["advertised"] == {"all": count, "x": count}
    assert f"advertised x {count}" in call("pipeline", "status", "wh").lines
    found = read_state(WarehouseFolder.open(tmp_path / "wh"), "x")
    assert found is not None
    assert found.asked == Asked(name="x", source=SOURCE, schema=ALL_FIELDS)
    assert read_state(warehouse, "nothing") is None
    for wrong in (
        (*base, "--field", "App", "--all-fields"),
        (*base, "--name", "a/b"),
        (*base, "--of", "nothing"),
        ("pipeline", "advertise", "wh", "--source", "me"),
        ("pipeline", "advertise", "nowhere", "--source", SOURCE),
    ):
        assert call(*wrong).code == 2


def test_a_kill_inside_the_commit_leaves_nothing(spark: Any, tmp_path: Path, file: Path) -> None:
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, file)
    generation = warehouse.manifest.generation
    script = """
import os, signal, sys
from pathlib import Path
from lace.cli.main import run
from lace.cli.session import Session
def die(*_rest): os.kill(os.getpid(), signal.SIGKILL)
Path.replace = die
run(["pipeline", "advertise", sys.argv[1], "--source", sys.argv[2]], Session({}))
"""
    done = run_script(script, str(warehouse.folder), SOURCE)
    assert done.returncode == -signal.SIGKILL, done.stderr
    again = WarehouseFolder.open(warehouse.folder)
    assert again.manifest.generation == generation
    assert state_names(again.manifest) == []
    assert list((warehouse.folder / "data").glob("*/advertisements/*.parquet"))
    asked = Asked(name="all", source=SOURCE)
    advertise_as(spark, again, asked)
    check(spark, again, asked)
    listed = {each.path.removeprefix("data/") for each in again.manifest.all_files()}
    assert names_of(warehouse.folder / "data") == listed
