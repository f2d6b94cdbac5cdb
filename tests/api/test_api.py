"""The front door: what a Python program that imports lace may rely on."""

from __future__ import annotations

import io
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import lace
from lace.api import now, open_lace, processors, read_chunks
from lace.errors import SettingError, UsageError
from lace.record.paths import AddressError
from lace.store.interface import NoStoreError, StoreUnavailableError
from tests.store.actors import finish, start
from tests.store.samples import blob, contents, flip, forged, key, mixed, plex, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "notes.lace"


@pytest.fixture
def store(folder: Path) -> Iterator[lace.Lace]:
    with lace.open(folder) as opened:
        yield opened


# -- the documented example ----------------------------------------------------------------


def test_the_lines_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = lace.Blob(b"evidence").id
    key = lace.SigningKey.generate()
    assert key.verifier.startswith("V.")
    assert key.verifier.endswith(".H3")
    with lace.open("notes.lace") as store:
        record = lace.Plex(
            group="u",
            app="ding",
            name="links/1",
            data=b"hi",
            headers=[("+Link", f"evidence {other}")],
        ).seal(key)
        added = store.add(record)
        assert isinstance(added, lace.RecordId)
        assert added == record.id
        assert record.bytes.startswith("🖧: S.".encode())
        assert lace.parse_record(record.bytes) == record
        assert store.get(added) == record
        with store.snapshot() as snapshot:
            assert list(snapshot.iterate("RecordLink")) == [
                (record.id, "+Link", "0", "evidence", other)
            ]
        assert store.remove(added) == 1
        assert store.get(added) is None
    assert (tmp_path / "notes.lace").is_dir()


def test_a_plex_takes_the_clock_and_sorts_its_headers() -> None:
    before = now()
    record = lace.Plex(
        group="u", app="a", name="n", data=b"", headers=[("B", "1"), ("A", "2"), ("B", "0")]
    )
    assert before <= record.tai <= now()
    assert record.headers == (("A", "2"), ("B", "1"), ("B", "0"))


# -- opening --------------------------------------------------------------------------------


def test_open_takes_a_path_in_any_form(folder: Path) -> None:
    with lace.open(str(folder)) as store:
        store.add(blob())
    with lace.open(folder, create=False) as store:
        assert len(store) == 1
    with lace.open(folder, read_only=True) as store:
        assert len(store) == 1


def test_open_without_a_lace(folder: Path) -> None:
    for create, read_only in ((False, False), (True, True), (False, True)):
        with pytest.raises(lace.StoreError) as caught:
            lace.open(folder, create=create, read_only=read_only)
        assert isinstance(caught.value, NoStoreError)
        assert caught.value.exit_code == 2
        assert "lace init" not in str(caught.value), "whoever calls this has no command line"
        assert "create" in str(caught.value)
    assert not folder.exists()


def test_open_refuses_a_foreign_folder_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for name, why in {
        "folder": "something else",
        "file": "file is not a folder; name a folder",
        "file/deeper": "file is not a folder; name a folder",
    }.items():
        with pytest.raises(lace.LaceError, match=why) as caught:
            lace.open(tmp_path / name)
        assert caught.value.exit_code == 2


def test_a_read_only_lace_refuses_changes(folder: Path, store: lace.Lace) -> None:
    kept = store.add(blob())
    with lace.open(folder, read_only=True) as reader:
        changes: list[Callable[[], object]] = [
            lambda: reader.add(blob("x")),
            lambda: reader.remove(kept),
            lambda: reader.import_file(io.BytesIO(blob("x").bytes)),
        ]
        for change in changes:
            with pytest.raises(StoreUnavailableError) as caught:
                change()
            assert caught.value.exit_code == 3
        assert reader.get(kept) == blob()


def test_a_failure_inside_the_block_keeps_what_was_added(folder: Path) -> None:
    def work() -> None:
        with lace.open(folder) as store:
            store.add(blob("kept"))
            raise KeyError("elsewhere")

    with pytest.raises(KeyError):
        work()
    with lace.open(folder) as store:
        assert blob("kept").id in store


# -- records --------------------------------------------------------------------------------


def test_records_are_added_as_values_or_bytes(store: lace.Lace) -> None:
    signed = seal(plex("x"))
    for record in (signed, signed.plex, signed.plex.blob):
        assert store.add(record) == record.id
        assert store.add(record.bytes) == record.id
        assert store.get(record.id) == record
        found = store.get(f"////{record.id}")
        assert type(found) is type(record)
    assert len(store) == 3


def test_membership_and_length(store: lace.Lace) -> None:
    record = blob("x")
    assert record.id not in store
    assert len(store) == 0
    store.add(record)
    assert record.id in store
    assert str(record.id) in store
    for other in (blob("y").id, "nonsense", "", 7, None, record, record.bytes):
        assert other not in store
    assert len(store) == 1


def test_many_records_keep_their_order(store: lace.Lace) -> None:
    records = mixed(30)
    given = store.add_all([*records, records[0], records[3].bytes])
    assert given == [record.id for record in [*records, records[0], records[3]]]
    assert len(store) == 30
    assert store.add_all([]) == []
    assert store.add_all(iter(records)) == [record.id for record in records]


SPOILED: dict[str, bytes] = {
    "data": flip(blob("x").bytes, len(blob("x").bytes) - 1),
    "cut": blob("x").bytes[:-1],
    "trailing": blob("x").bytes + b"\n",
    "two": blob("x").bytes + blob("y").bytes,
    "empty": b"",
    "noise": b"noise",
    "forged": forged(seal(plex("x"))),
}


@pytest.mark.requirement("020-05", "020-06")
@pytest.mark.parametrize("raw", SPOILED.values(), ids=SPOILED)
@pytest.mark.parametrize("position", [0, 5, 10])
def test_all_or_nothing_is_added(store: lace.Lace, raw: bytes, position: int) -> None:
    kept = store.add(blob("kept"))
    records: list[Any] = list(mixed(10))
    records.insert(position, raw)
    with pytest.raises(lace.RecordError) as caught:
        store.add_all(records)
    assert caught.value.exit_code == 1
    assert caught.value.rule
    assert contents(store.store) == {kept: blob("kept").bytes}
    with store.snapshot() as snapshot:
        assert snapshot.count("Have") == 1


def test_many_seals_with_one_forged_are_all_refused(store: lace.Lace) -> None:
    seals: list[Any] = [seal(plex(f"s{number}"), 1 + number % 3) for number in range(100)]
    with pytest.raises(lace.RecordError) as caught:
        store.add_all([*seals[:70], forged(seals[70]), *seals[71:]])
    assert caught.value.rule == "009-signature"
    assert len(store) == 0


def test_addresses(store: lace.Lace) -> None:
    old, new = plex("doc", at=1), plex("doc", at=2)
    signed = seal(old)
    store.add_all([old, new, signed])
    assert store.get("//u//a//doc") == new
    assert store.get("//u//a//doc/|/seal") == signed
    assert store.get(f"//u//a//doc/|/seal/{key().verifier}") == signed
    assert store.get(f"//u//a//doc/|/plex/{old.tai}") == old
    assert store.get("//u//a//other") is None
    assert store.get(blob("?").id) is None
    assert [found.id for found in store.find("//u//a//doc")] == [new.id, signed.id, old.id]
    assert [found.coordinate for found in store.find(old.id)] == ["//u//a//doc"]
    assert store.find("//u//a//other") == []


@pytest.mark.parametrize(
    "text", ["", "x", "//u", "//u//a//", "////x", "//u//a//n/|/blob", "//\ud800"]
)
def test_what_is_no_address_is_wrong_usage(store: lace.Lace, text: str) -> None:
    for ask in (store.get, store.find):
        with pytest.raises(AddressError) as caught:
            ask(text)
        assert caught.value.exit_code == 2


def test_removal(store: lace.Lace) -> None:
    ids = store.add_all(mixed(5))
    assert store.remove() == 0
    assert store.remove(ids[0]) == 1
    assert store.remove(ids[0], ids[1], ids[2]) == 2
    assert len(store) == 2
    assert ids[0] not in store


@pytest.mark.parametrize("wrong", ["garbage", "", 5, None, blob("x"), b"bytes"])
def test_what_is_no_record_hash_is_not_removed(store: lace.Lace, wrong: Any) -> None:
    kept = store.add(blob("kept"))
    with pytest.raises(lace.RecordError) as caught:
        store.remove(kept, wrong)
    assert caught.value.hint
    assert kept in store


@pytest.mark.parametrize("wrong", ["text", 5, None, [b"x"]])
def test_what_is_no_record_is_not_added(store: lace.Lace, wrong: Any) -> None:
    for add in (store.add, lambda record: store.add_all([blob("x"), record])):
        with pytest.raises(lace.RecordError) as caught:
            add(wrong)
        assert caught.value.hint
    assert len(store) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"A": "x"}},
        {"headers": {"AB": "x"}},
        {"headers": ["AB"]},
        {"headers": [("A", "x", "y")]},
        {"headers": [("A",)]},
        {"headers": "AB"},
        {"headers": 5},
        {"headers": None},
        {"tai": 5},
        {"tai": b"1700000000:000000001"},
        {"group": 5},
        {"app": None},
        {"name": b"n"},
        {"data": "text"},
    ],
    ids=repr,
)
def test_a_plex_of_wrong_types_is_refused(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"group": "u", "app": "a", "name": "n", "data": b"", **wrong}
    with pytest.raises(lace.RecordError) as caught:
        lace.Plex(**given)
    assert caught.value.hint
    assert caught.value.rule


@pytest.mark.parametrize("wrong", [{"plex": "x"}, {"signed_by": 5}, {"signature": None}], ids=repr)
def test_a_seal_of_wrong_types_is_refused(wrong: dict[str, Any]) -> None:
    signed = seal(plex("x"))
    given: dict[str, Any] = {
        "plex": signed.plex, "signed_by": signed.signed_by, "signature": signed.signature, **wrong
    }  # fmt: skip
    with pytest.raises(lace.RecordError) as caught:
        lace.Seal(**given)
    assert caught.value.hint


def test_a_snapshot_stays_as_it_was(store: lace.Lace) -> None:
    first = store.add(blob("first"))
    with store.snapshot() as snapshot:
        store.add(blob("second"))
        store.remove(first)
        assert [record.id for record in snapshot.records()] == [first]
    assert len(store) == 1


def test_verify_reports_as_it_goes(store: lace.Lace) -> None:
    store.add_all(mixed(20))
    seen: list[int] = []
    found = store.verify(report=lambda so_far: seen.append(so_far.records))
    assert found.damaged == 0
    assert seen[-1] == found.records == 20


# -- settings --------------------------------------------------------------------------------


def test_settings_come_from_the_file_and_the_caller(folder: Path) -> None:
    with lace.open(folder) as store:
        assert store.settings.max_data_bytes == 32 * 1024 * 1024
        store.add(blob("x" * 2000))
    (folder / "lace.toml").write_text('max_data_bytes = "1KiB"\n[peer.bob]\naddress = "x"\n')
    with lace.open(folder) as store:
        assert store.settings.max_data_bytes == 1024
        store.add(blob("y" * 1024))
        with pytest.raises(lace.RecordError) as caught:
            store.add(blob("y" * 1025))
        assert caught.value.rule == "010-size-limit"
        assert "max_data_bytes" in str(caught.value)
        assert store.get(blob("x" * 2000).id) == blob("x" * 2000)  # what is stored stays readable
        assert store.verify().damaged == 0
    with lace.open(folder, settings={"max_data_bytes": 2000}) as store:
        store.add(blob("z" * 2000))
        assert len(store) == 3


@pytest.mark.parametrize(
    "text",
    [
        "max_data_byte = 1",
        "max_data_bytes = -1",
        "max_data_bytes = true",
        "x = [1]",
        "nonsense",
        "\0",
    ],
)
def test_a_wrong_settings_file_is_wrong_usage(folder: Path, text: str) -> None:
    lace.open(folder).close()
    (folder / "lace.toml").write_text(text)
    with pytest.raises(SettingError) as caught:
        lace.open(folder)
    assert caught.value.exit_code == 2
    assert "lace.toml" in str(caught.value)


def test_wrong_settings_of_the_caller(folder: Path) -> None:
    settings: list[dict[str, object]] = [{"no_such": 1}, {"wait_seconds": "soon"}]
    for wrong in settings:
        with pytest.raises(SettingError):
            lace.open(folder, settings=wrong)
    assert not folder.exists()


# -- imports ---------------------------------------------------------------------------------


def test_an_import_counts_and_reports(tmp_path: Path, store: lace.Lace) -> None:
    records = mixed(20)
    path = tmp_path / "in"
    path.write_bytes(b"".join(record.bytes for record in records) + b"junk")
    errors: list[lace.RecordError] = []
    counts = store.import_file(path, report=lambda _counts, found: errors.extend(found))
    assert (counts.stored, counts.known, counts.rejected) == (20, 0, 1)
    assert str(path) in str(errors[0])
    counts = store.import_file(str(path))
    assert (counts.stored, counts.known, counts.rejected) == (0, 20, 1)
    counts = store.import_file(io.BytesIO(seal(plex("e")).bytes), admit_embedded=True)
    assert (counts.stored, counts.known) == (3, 0)
    with pytest.raises(UsageError):
        store.import_file(tmp_path / "missing")


def test_chunks_are_bounded() -> None:
    chunks = list(read_chunks(io.BytesIO(bytes(3 << 20))))
    assert sum(map(len, chunks)) == 3 << 20
    assert max(map(len, chunks)) <= 1 << 20
    assert processors() >= 1


# -- errors, other processes -------------------------------------------------------------------


def test_every_error_is_a_lace_error_with_an_exit_code() -> None:
    expected = {
        lace.RecordError: 1,
        lace.RuleError: 1,
        lace.PolicyError: 1,
        lace.ProtocolError: 4,
        lace.StoreError: 3,
        lace.EngineError: 3,
        lace.LimitExceeded: 1,
    }
    for kind, code in expected.items():
        assert issubclass(kind, lace.LaceError)
        assert kind.exit_code == code


def test_errors_cross_processes(store: lace.Lace) -> None:
    with pytest.raises(lace.RecordError) as caught:
        store.add(SPOILED["data"])
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert str(copied) == str(caught.value)
    assert copied.rule == "010-digest"


def test_two_processes_share_a_lace(folder: Path, store: lace.Lace) -> None:
    actors = [start("open_and_add", folder, name, 15) for name in "ab"]
    mine = [store.add(blob(f"mine/{number}")) for number in range(15)]
    for actor in actors:
        assert finish(actor) == "done\n"
    assert len(store) == 45
    theirs = [blob(f"{name}/{number}").id for name in "ab" for number in range(15)]
    for identifier in [*mine, *theirs]:
        assert identifier in store
    assert store.verify().damaged == 0
    with store.snapshot() as snapshot:
        given = [found.store_record_id for found in snapshot.listing()]
    assert len(set(given)) == 45


def test_the_lace_is_named_by_who_holds_it(folder: Path, store: lace.Lace) -> None:
    with open_lace(folder, purpose="a long import", settings={"wait_seconds": 0}) as other:
        with store.store._transaction(), pytest.raises(lace.StoreError) as caught:
            other.add(blob())
        assert caught.value.exit_code == 5
        assert f"process {os.getpid()} (lace.open" in str(caught.value)
        with other.store._transaction(), lace.open(folder, settings={"wait_seconds": 0}) as third:
            with pytest.raises(lace.StoreError, match="a long import"):
                third.add(blob())
            assert len(third) == 0
