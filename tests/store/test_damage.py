"""Bit rot: reads never return wrong bytes; verification names what is damaged, and only that."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import lace
from lace.base.limits import Settings
from lace.facts.catalogue import RECORD_PREDICATES
from lace.record.ids import RecordId
from lace.record.model import Plex, Seal
from lace.store.interface import NoStoreError, Order, StoreDamagedError
from lace.store.sqlite.snapshot import key_of_id
from lace.store.sqlite.store import DATABASE_NAME, SqliteStore
from lace.store.sqlite.verify import Verification, verify_store
from tests.store.samples import blob, contents, flip, forged, key, mixed, plex, seal, tai, valid

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Record

RECORDS = mixed(40)
VICTIM = next(record for record in RECORDS if isinstance(record, Seal))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / "lace", create=True)
    store.admit(valid(*RECORDS))
    store.close()
    return tmp_path / "lace"


def change(folder: Path, sql: str, *values: Any) -> None:
    """Change the database behind the store's back."""
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.execute(sql, values)
    assert connection.changes() == 1
    connection.pragma("wal_checkpoint(TRUNCATE)")
    connection.close()


def change_bytes(folder: Path, record: Record, raw: bytes) -> None:
    change(folder, "UPDATE record SET bytes = ? WHERE id = ?", raw, key_of_id(record.id))


def verify(folder: Path, workers: int = 0, **settings: int) -> Verification:
    store = SqliteStore(folder, read_only=True)
    with store.snapshot() as snapshot:
        found = verify_store(
            snapshot, settings=Settings(**settings), random_bytes=os.urandom, workers=workers
        )
    store.close()
    return found


def named(found: Verification) -> set[str]:
    return {damage.record for damage in found.damage}


def damaged_bytes() -> list[tuple[str, bytes]]:
    raw = VICTIM.bytes
    spots = [0, 6, 8, 30, 54, 60, 80, 140, len(raw) - 1]
    spots += [raw.index(word) for word in (b"Group", b"TAI: ", b"Data-Length", b"Signature: ")]
    return [
        *((f"bit at {at}", flip(raw, at)) for at in sorted(spots)),
        ("cut", raw[:-1]),
        ("empty", b""),
        ("longer", raw + b"\n"),
        ("zeros", bytes(len(raw))),
        ("its plex", VICTIM.plex.bytes),
        ("another record", blob("another").bytes),
        ("another signature", forged(VICTIM)),
        ("two records", raw + raw),
    ]


DAMAGED = damaged_bytes()


def test_an_undamaged_store_is_clean(folder: Path) -> None:
    for workers in (0, 2):
        found = verify(folder, workers, import_batch_records=7)
        assert found == Verification(40, sum(len(record.bytes) for record in RECORDS), 0, [])


def test_an_empty_store_is_clean(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "lace", create=True).close()
    assert verify(tmp_path / "lace") == Verification()


@pytest.mark.requirement("020-06")
@pytest.mark.parametrize("raw", [raw for _, raw in DAMAGED], ids=[name for name, _ in DAMAGED])
def test_damaged_bytes_are_an_error_and_never_an_answer(folder: Path, raw: bytes) -> None:
    change_bytes(folder, VICTIM, raw)
    store = SqliteStore(folder, read_only=True)
    with store.snapshot() as snapshot:
        for read in (snapshot.load, snapshot.read):
            with pytest.raises(StoreDamagedError) as caught:
                read(VICTIM.id)
            assert caught.value.exit_code == 6
            assert VICTIM.id in str(caught.value)
        with pytest.raises(StoreDamagedError):
            list(snapshot.records())
        for name in RECORD_PREDICATES:
            with pytest.raises(StoreDamagedError):
                list(snapshot.query(name, VICTIM.id))
        for record in RECORDS:
            if record != VICTIM:
                assert snapshot.read(record.id) == record.bytes
    store.close()
    found = verify(folder)
    assert named(found) - {""} == {VICTIM.id}
    assert all(damage.store_record_id == 1 for damage in found.damage if damage.record)
    with lace.open(folder) as opened:
        with pytest.raises(StoreDamagedError):
            opened.get(VICTIM.id)
        assert opened.get(RECORDS[1].id) == RECORDS[1]


def test_the_front_door_reports_damage(folder: Path) -> None:
    change_bytes(folder, VICTIM, flip(VICTIM.bytes, 99))
    with lace.open(folder, read_only=True) as store:
        found = store.verify()
        assert named(found) == {VICTIM.id}
        assert found.damaged == 1


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_every_damaged_record_is_named_and_no_other(folder: Path, workers: int) -> None:
    chosen = random.Random(7).sample(RECORDS, 9)
    for record in chosen:
        change_bytes(folder, record, flip(record.bytes, len(record.bytes) - 1))
    found = verify(folder, workers, import_batch_records=6)
    assert found.damaged == 9
    assert found.records == 40
    assert named(found) == {record.id for record in chosen}


def test_findings_above_the_limit_are_counted(folder: Path) -> None:
    for record in RECORDS[:9]:
        change_bytes(folder, record, flip(record.bytes, len(record.bytes) - 1))
    found = verify(folder, import_max_reports=4)
    assert found.damaged == 9
    assert len(found.damage) == 4


def test_a_forged_signature_in_the_store_is_found(folder: Path) -> None:
    raw = forged(VICTIM)
    identifier = RecordId(raw[6:54].decode())
    change_bytes(folder, VICTIM, raw)
    number = "UPDATE record SET id = ? WHERE id = ?"
    change(folder, number, key_of_id(identifier), key_of_id(VICTIM.id))
    found = verify(folder)
    assert [damage.record for damage in found.damage] == [identifier]
    assert "009-signature" in found.damage[0].reason


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"S",
        b"X" + bytes(32),
        b"S" + bytes(31),
        b"S" + bytes(32),
        b"\xff" * 33,
        b"B" + b"0" * 40,
    ],
)
def test_a_damaged_key_is_found(folder: Path, key: bytes) -> None:
    change(folder, "UPDATE record SET id = ? WHERE id = ?", key, key_of_id(VICTIM.id))
    found = verify(folder)
    assert found.damaged >= 1
    assert {damage.store_record_id for damage in found.damage} == {1}
    store = SqliteStore(folder, read_only=True)
    with store.snapshot() as snapshot:
        assert not snapshot.has(VICTIM.id)
        with pytest.raises(StoreDamagedError) as caught:
            list(snapshot.records())
        assert caught.value.exit_code == 6
        if key != b"S" + bytes(32):  # that one could be an identifier
            for order in Order:
                with pytest.raises(StoreDamagedError):
                    list(snapshot.listing(order=order))
    store.close()


@pytest.mark.parametrize("column", ["group_path", "app", "name", "tai", "signed_by"])
@pytest.mark.parametrize("value", ["other", None, ""])
def test_a_damaged_column_is_found(folder: Path, column: str, value: str | None) -> None:
    sql = f"UPDATE record SET {column} = ? WHERE id = ?"  # noqa: S608 - a column's name
    change(folder, sql, value, key_of_id(VICTIM.id))
    found = verify(folder)
    assert [damage.record for damage in found.damage] == [VICTIM.id]
    assert "columns" in found.damage[0].reason
    store = SqliteStore(folder)
    assert contents(store) == {record.id: record.bytes for record in RECORDS}
    store.close()


def test_columns_where_there_should_be_none_are_found(folder: Path) -> None:
    victim = next(record for record in RECORDS if record.id.type == "B")
    change(folder, "UPDATE record SET tai = ? WHERE id = ?", tai(1), key_of_id(victim.id))
    assert named(verify(folder)) == {victim.id}


def test_text_that_is_no_text_is_damage(folder: Path) -> None:
    sql = "UPDATE record SET name = CAST(x'ff' AS TEXT) WHERE id = ?"
    change(folder, sql, key_of_id(VICTIM.id))
    store = SqliteStore(folder, read_only=True)
    with store.snapshot() as snapshot:
        with pytest.raises(StoreDamagedError):
            list(snapshot.listing())
        with pytest.raises(StoreDamagedError):
            snapshot.describe(VICTIM.id)
        assert snapshot.read(VICTIM.id) == VICTIM.bytes
    store.close()
    found = verify(folder)
    assert named(found) - {""} == {VICTIM.id}
    assert found.records >= 39


@pytest.mark.parametrize("name", ["records", "record_bytes", "high_water"])
@pytest.mark.parametrize("by", [-1, 1])
def test_damaged_counters_are_found(folder: Path, name: str, by: int) -> None:
    change(folder, "UPDATE counter SET value = value + ? WHERE name = ?", by, name)
    found = verify(folder)
    if name == "high_water" and by == 1:  # a store may leave numbers out
        assert found.damaged == 0
        return
    assert [damage.record for damage in found.damage] == [""]
    assert name.split("_")[0] in found.damage[0].reason


@pytest.mark.parametrize("name", ["records", "record_bytes", "high_water"])
def test_a_lost_counter_is_damage(folder: Path, name: str) -> None:
    change(folder, "DELETE FROM counter WHERE name = ?", name)
    found = verify(folder)
    assert [damage.record for damage in found.damage] == [""]
    assert name in found.damage[0].reason
    store = SqliteStore(folder)
    with store.snapshot() as snapshot, pytest.raises(StoreDamagedError):
        snapshot.totals()
    store.close()


def test_a_high_water_gone_back_never_loses_a_record(folder: Path) -> None:
    change(folder, "UPDATE counter SET value = 3 WHERE name = 'high_water'")
    store = SqliteStore(folder)
    with pytest.raises(StoreDamagedError) as caught:  # never "known", never over another
        store.admit(valid(blob("new")))
    assert caught.value.exit_code == 6
    assert contents(store) == {record.id: record.bytes for record in RECORDS}
    store.close()


def test_a_lost_high_water_stops_admission(folder: Path) -> None:
    change(folder, "DELETE FROM counter WHERE name = 'high_water'")
    store = SqliteStore(folder)
    with pytest.raises(StoreDamagedError) as caught:
        store.admit(valid(blob("new")))
    assert caught.value.exit_code == 6
    assert contents(store) == {record.id: record.bytes for record in RECORDS}
    store.close()


def set_index(folder: Path, sql: str) -> None:
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'record_by_id'", (sql,))
    connection.close()


def test_an_index_that_lost_an_entry_is_found(folder: Path) -> None:
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    sql = str(connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'record_by_id'").get)
    connection.close()
    set_index(folder, f"{sql} WHERE store_record_id <> 1")
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    connection.execute("REINDEX record_by_id")
    connection.close()
    set_index(folder, sql)
    found = verify(folder)
    assert found.damaged >= 1
    assert "database" in found.damage[0].reason
    assert named(found) == {""}


@pytest.mark.parametrize("table", ["coordinate", "moment"])
def test_a_record_that_listings_leave_out_is_found(folder: Path, table: str) -> None:
    victim = next(record for record in RECORDS if record.id.type == "S")
    number = "(SELECT store_record_id FROM record WHERE id = ?)"
    sql = f"DELETE FROM {table} WHERE store_record_id = {number}"  # noqa: S608 - a table's name
    change(folder, sql, key_of_id(victim.id))
    found = verify(folder)
    assert [damage.record for damage in found.damage] == [victim.id]
    assert f"not in the table {table}: listings leave it out" in found.damage[0].reason


def listings(folder: Path) -> list[object]:
    store = SqliteStore(folder, read_only=True)
    found: list[object] = []
    with store.snapshot() as snapshot:
        for order in Order:
            for prefix in ("", "//v"):
                try:
                    found.append(list(snapshot.listing(prefix, order=order)))
                except StoreDamagedError:
                    found.append("damaged")
    store.close()
    return found


@pytest.mark.parametrize("table", ["coordinate", "moment"])
@pytest.mark.parametrize("number", ["store_record_id", "1000000"], ids=["wrong", "nowhere"])
def test_an_entry_of_no_record_is_found(folder: Path, table: str, number: str) -> None:
    """Where it leads to a record that it is not of, that is an error and no wrong answer."""
    before = listings(folder)
    entry = {"coordinate": f"'v', 'a', 'n', tai, {number}", "moment": f"'1', {number}"}[table]
    change(folder, f"INSERT INTO {table} SELECT {entry} FROM {table} LIMIT 1")  # noqa: S608
    found = verify(folder)
    assert [damage.record for damage in found.damage] == [""]
    assert f"the table {table} has entries of no record: 1" in found.damage[0].reason
    after = listings(folder)
    is_wrong = number == "store_record_id"
    assert ("damaged" in after) == is_wrong
    assert all(now in ("damaged", then) for now, then in zip(after, before, strict=True))


# -- raw pages --------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, list[Record]]:
    """A lace whose records fill many pages; some are larger than a page."""
    records = [*mixed(200, size=400), *mixed(20, prefix="large", size=9000)]
    store = SqliteStore(tmp_path / "lace", create=True)
    store.admit(valid(*records))
    store.close()
    return tmp_path / "lace", records


def damage_file(folder: Path, at: int, raw: bytes) -> None:
    with (folder / DATABASE_NAME).open("r+b") as file:
        file.seek(at)
        file.write(raw)


@pytest.mark.parametrize("seed", range(12))
def test_noise_in_the_file_is_never_a_wrong_answer(
    large: tuple[Path, list[Record]], seed: int
) -> None:
    folder, records = large
    noise = random.Random(seed)
    size = (folder / DATABASE_NAME).stat().st_size
    for _spot in range(noise.choice([1, 5])):
        at = noise.randrange(100, size)
        damage_file(folder, at, noise.randbytes(noise.choice([1, 4, 100, 5000])))
    expected = {record.id: record.bytes for record in records}
    try:
        store = SqliteStore(folder, read_only=True)
    except (NoStoreError, StoreDamagedError):
        return  # not recognised as a lace, or as one that is damaged
    unreadable: set[str] = set()
    with store.snapshot() as snapshot:
        for name, raw in expected.items():
            try:
                found = snapshot.read(name)
            except StoreDamagedError:
                unreadable.add(name)
            else:
                assert found in (raw, None)  # an index may have lost it
                if found is None:
                    unreadable.add(name)
        result = verify_store(snapshot, settings=Settings(), random_bytes=os.urandom, workers=0)
    if unreadable:
        assert result.damaged
    for damage in result.damage:
        if damage.record in expected and damage.record not in unreadable:
            assert any(each in damage.reason for each in ("columns", "UTF-8", "listings leave"))
    store.close()


@pytest.mark.parametrize("which", [0, 7, 19])
def test_a_bit_in_the_file_names_exactly_its_record(
    large: tuple[Path, list[Record]], which: int
) -> None:
    folder, records = large
    victim = records[200 + which]
    raw = (folder / DATABASE_NAME).read_bytes()
    at = raw.index(f"large{which}.400 ".encode()) + 2
    damage_file(folder, at, bytes([raw[at] ^ 4]))
    found = verify(folder)
    assert [damage.record for damage in found.damage] == [victim.id]
    assert found.records == 220


def test_a_lost_page_names_the_records_on_it(large: tuple[Path, list[Record]]) -> None:
    folder, records = large
    victims = [records[205], records[212]]
    raw = (folder / DATABASE_NAME).read_bytes()
    for victim in victims:  # the pages that hold the rest of a large record form a chain
        at = raw.index(victim.bytes[-4000:-3500]) // 4096 * 4096
        damage_file(folder, at, b"\xff" * 4096)
    found = verify(folder)
    assert named(found) - {""} == {victim.id for victim in victims}
    store = SqliteStore(folder, read_only=True)
    with store.snapshot() as snapshot:
        for record in records:
            if record in victims:
                with pytest.raises(StoreDamagedError) as caught:
                    snapshot.read(record.id)
                assert caught.value.exit_code == 6
            else:
                assert snapshot.read(record.id) == record.bytes
    store.close()


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_cut_file_is_damage(large: tuple[Path, list[Record]], share: float) -> None:
    folder, records = large
    path = folder / DATABASE_NAME
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share) // 4096 * 4096)
    expected = {record.id: record.bytes for record in records}
    try:
        found = verify(folder)
    except StoreDamagedError:
        return
    assert found.damaged > 0
    store = SqliteStore(folder, read_only=True)
    with store.snapshot() as snapshot:
        for name, raw in expected.items():
            with suppress(StoreDamagedError):
                assert snapshot.read(name) in (raw, None)
    store.close()


@pytest.mark.parametrize("write", [False, True])
def test_a_damaged_header_is_damage(folder: Path, write: bool) -> None:
    damage_file(folder, 0, b"\0" * 100)
    with pytest.raises(StoreDamagedError) as caught:
        lace.open(folder, read_only=not write)
    assert caught.value.exit_code == 6


def test_a_record_that_was_damaged_can_be_replaced(folder: Path) -> None:
    change_bytes(folder, VICTIM, flip(VICTIM.bytes, 99))
    with lace.open(folder) as store:
        assert store.remove(VICTIM.id) == 1
        assert store.add(VICTIM) == VICTIM.id
        assert store.get(VICTIM.id) == VICTIM
        assert store.verify().damaged == 0


def test_damage_is_seen_among_versions(folder: Path) -> None:
    new: Plex = plex("versions", at=2)
    old = seal(plex("versions", at=1))
    with lace.open(folder) as store:
        store.add_all([new, old])
        assert store.get("//u//a//versions") == new
    change_bytes(folder, new, old.bytes)
    with lace.open(folder) as store:
        with pytest.raises(StoreDamagedError):
            store.get("//u//a//versions")
        assert store.get(f"//u//a//versions/|/seal/{key().verifier}") == old


def test_a_mark_of_other_keys_is_found(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "lace", create=True)
    store.admit(valid(*mixed(10)))
    with store._transaction() as connection:
        connection.execute("UPDATE counter SET value = value + 1 WHERE name = 'key_xor'")
    with store.snapshot() as snapshot:
        found = verify_store(snapshot, settings=Settings(), random_bytes=os.urandom, workers=0)
    assert [damage.record for damage in found.damage] == [""]
    assert "keys" in found.damage[0].reason
    store.close()
