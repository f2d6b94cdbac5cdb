"""Comparing advertisement states: with roots, with relabelling, and with a peer's listing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lace.api import SigningKey
from lace.errors import UsageError
from lace.exchange.advertisement import Advertisement, advertised_fields_of
from lace.facts.extract import record_facts
from lace.facts.lines import FactLineError, format_fact
from lace.policy.schema import ALL_FIELDS, Schema
from lace.spark.pipeline.advertise import Asked
from lace.spark.pipeline.diff import Comparison, listing_of, side_of
from lace.spark.pipeline.records import iterate_records
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import call
from tests.spark.samples import SOURCE, advertise_as, ingest_files, make_records

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact
    from lace.record.model import Blob, Plex, Seal

pytestmark = pytest.mark.spark

PEER = "Opq_1"
SCHEMA = Schema(names=frozenset({"App", "Tag"}))


@pytest.fixture
def warehouse(spark: Any, tmp_path: Path, file: Path) -> WarehouseFolder:
    """States `old` of some records, and `new` of more."""
    made = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, made, file)
    advertise_as(spark, made, Asked(name="old", source=SOURCE, schema=SCHEMA))
    return made


def add_records(spark: Any, warehouse: WarehouseFolder, tmp_path: Path, count: int) -> set[str]:
    more = make_records(SigningKey.generate(), count + 2, seed=7)[2:]
    (tmp_path / "more").write_bytes(b"".join(record.bytes for record in more))
    ingest_files(spark, warehouse, tmp_path / "more")
    return {str(record.id) for record in more}


def listing(warehouse: WarehouseFolder, source: str = PEER, schema: Schema = SCHEMA) -> list[Fact]:
    made: list[Fact] = []
    for record in iterate_records(warehouse):
        text = str(record.id)
        fields = advertised_fields_of(text, source, record_facts(record), schema)
        made += Advertisement(text, fields).facts(source)
    return made


def found(spark: Any, compared: Comparison) -> dict[str, set[str]]:
    made: dict[str, set[str]] = {"a": set(), "b": set(), "differs": set()}
    rows = list(compared.records(lambda: spark))
    assert rows == sorted(rows)
    for kind, record in rows:
        made[kind].add(record)
    assert compared.counts(lambda: spark) == {kind: len(each) for kind, each in made.items()}
    return made


def test_states_of_one_source_are_compared_by_roots(
    spark: Any, warehouse: WarehouseFolder, tmp_path: Path
) -> None:
    same = Comparison(side_of(warehouse, "old"), side_of(warehouse, "old"))
    assert (same.is_same, same.prefixes) == (True, [])
    more = add_records(spark, warehouse, tmp_path, 3)
    advertise_as(spark, warehouse, Asked(name="new", source=SOURCE, schema=SCHEMA))
    compared = Comparison(side_of(warehouse, "new"), side_of(warehouse, "old"))
    assert compared.prefixes == sorted({record[2:4] for record in more})
    assert found(spark, compared) == {"a": more, "b": set(), "differs": set()}
    back = Comparison(side_of(warehouse, "old"), side_of(warehouse, "new"))
    assert found(spark, back) == {"a": set(), "b": more, "differs": set()}


def test_states_of_other_sources_and_schemas_are_computed_alike(
    spark: Any, warehouse: WarehouseFolder, tmp_path: Path
) -> None:
    more = add_records(spark, warehouse, tmp_path, 3)
    advertise_as(spark, warehouse, Asked(name="new", source=PEER, schema=ALL_FIELDS))
    compared = Comparison(side_of(warehouse, "old"), side_of(warehouse, "new"))
    assert (compared.prefixes, compared.is_same) == (None, False)
    assert found(spark, compared) == {"a": set(), "b": more, "differs": set()}


@pytest.mark.requirement("050-72")
def test_a_listing_of_a_peer(spark: Any, warehouse: WarehouseFolder, tmp_path: Path) -> None:
    facts = listing(warehouse)
    more = add_records(spark, warehouse, tmp_path, 2)
    gone = {facts[0][1]}
    facts = [fact for fact in facts if fact[1] not in gone]
    at = next(n for n, fact in enumerate(facts) if fact[0] == "AdvertisedField")
    facts[at] = (*facts[at][:-1], "something else")
    facts.append(("Advertised", sorted(more)[0], PEER))
    side = listing_of(list(reversed(facts)), "peer.facts")
    compared = Comparison(side_of(warehouse, "old"), side)
    assert found(spark, compared) == {"a": gone, "b": {sorted(more)[0]}, "differs": {facts[at][1]}}
    # Under the same source roots say which partitions to read.
    same = listing_of(
        [fact for fact in listing(warehouse, SOURCE) if fact[1] not in more | gone], "peer.facts"
    )
    compared = Comparison(side_of(warehouse, "old"), same)
    assert compared.prefixes == [next(iter(gone))[2:4]]
    assert found(spark, compared) == {"a": gone, "b": set(), "differs": set()}


def test_an_empty_listing(
    spark: Any, warehouse: WarehouseFolder, records: list[Blob | Plex | Seal]
) -> None:
    compared = Comparison(listing_of([], "peer.facts"), side_of(warehouse, "old"))
    everything = {str(record.id) for record in records}
    assert found(spark, compared) == {"a": set(), "b": everything, "differs": set()}


@pytest.mark.parametrize(
    "facts",
    [
        [("Advertised", "B.x.H9", PEER), ("Advertised", "B.y.H9", SOURCE)],
        [("AdvertisedField", "B.x.H9", PEER, "App", "0", "y")],
        [
            ("Advertised", "B.x.H9", PEER),
            ("AdvertisedField", "B.x.H9", PEER, "App", "0", "y"),
            ("AdvertisedField", "B.x.H9", PEER, "App", "0", "z"),
        ],
    ],
)
def test_what_no_peer_would_list(facts: list[Fact]) -> None:
    with pytest.raises(FactLineError) as caught:
        listing_of(facts, "peer.facts")
    assert caught.value.rule == "G42"
    assert "peer.facts" in str(caught.value)


def test_the_command(
    spark: Any, warehouse: WarehouseFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    same = call("pipeline", "diff", "wh", "old", "old")
    assert (same.code, same.raw) == (0, b"")
    nothing = {"a": 0, "b": 0, "differs": 0, "partitions": 0}
    assert call("pipeline", "diff", "wh", "old", "old", "--json").json() == nothing
    lines = [format_fact(fact) for fact in listing(warehouse)]
    more = sorted(add_records(spark, warehouse, tmp_path, 2))
    lines += [f"Advertised('{record}','{PEER}')" for record in more]
    (tmp_path / "peer.facts").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    result = call("pipeline", "diff", "wh", "old", "peer.facts")
    assert (result.code, result.lines) == (1, [f"b\t{record}" for record in more])
    result = call("pipeline", "diff", "wh", "old", "peer.facts", "--only", "b")
    assert (result.code, result.lines) == (1, more)
    result = call("pipeline", "diff", "wh", "peer.facts", "old", "--only", "b")
    assert (result.code, result.raw) == (0, b"")
    result = call("pipeline", "diff", "wh", "old", "peer.facts", "--json")
    assert (result.code, result.json()) == (1, {**nothing, "b": 2, "partitions": None})
    result = call("pipeline", "diff", "wh", "old", "older")
    assert (result.code, "there are old" in result.err) == (2, True)
    (tmp_path / "bad.facts").write_text("Advertised('x','y')\n")
    assert call("pipeline", "diff", "wh", "old", "bad.facts").code == 1
    with pytest.raises(UsageError, match="no advertisements called 'x'"):
        side_of(WarehouseFolder.create(tmp_path / "empty"), "x")
