"""What every store of records does. A store passes by supplying the fixture `store`.

The answers expected here are worked out from the records themselves, by definitions written down
again in a few lines each; nothing of a store is used to check another.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lace.base.limits import DEFAULT_SETTINGS
from lace.facts.catalogue import BASE_PREDICATES, RECORD_PREDICATES
from lace.facts.extract import record_facts
from lace.record.ids import RecordId
from lace.record.model import Blob, Plex, Record, Seal
from lace.record.paths import Address, parse_address
from lace.record.validate import ValidRecord, embedded_records
from lace.store.intake import import_stream
from lace.store.interface import Order, RecordStore, Snapshot, StoredRecord, Totals
from tests.store.samples import blob, contents, key, mixed, numbers, plex, seal, tai, valid

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LISTED", "PREFIXES", "StoreContract"]

MANY = 10**9

NAMES = (
    *("n", "n/1", "n/10", "n/2", "n!", "n-", "n0", "N", "na", "a/n"),
    *("100%", "100", "a_b", "aXb", "a*b", "a[b]", "ab", "a?b", "it's", 'say "n"', "back\\slash"),
    *("é", "e", "ê/n", "日本語", "\ud7ff", "\ue000", "\uffff", "\U00010000", "😀", "\U0010ffff"),
    *("\U0010ffff\U0010ffff", "two  spaces", "trailing ", "...", "a.b", "-", "~", "NULL", "\u2028"),
)
LISTED: list[Record] = [
    *(plex(name, at=number) for number, name in enumerate(NAMES)),
    *(plex("n", group=group, at=7) for group in ("u/v", "u!", "u%", "_", "v", "é", "\U0010ffff")),
    *(plex("n", app=app, at=8) for app in ("a/b", "a!", "b", "a%", "é", "\U0010ffff")),
    plex("n", at=5, data="later"),
    plex("n", at=5, data="later still"),
    seal(plex("n", at=5, data="later")),
    seal(plex("n/1", at=1), 2),
    seal(plex("n/1", at=1), 3),
    *(blob(text) for text in ("", "one", "two", "three")),
]
PREFIXES = (
    *("", "/", "//", "///", "////", "//u", "//u/", "//u//", "//u///", "//u/v", "//u/v/", "//u//a"),
    *("//u//a/", "//u//a//", "//u//a///", "//u//a/b", "//u//a//n", "//u//a//n/", "//u//a//n//"),
    *("//u//a//n/1", "//u//a//n/1/", "//u//a//n/1//x", "//u//a//na", "//u//a//N", "//U", "//u//A"),
    *("u", "u//a//n", "a", "n", " ", " //u", "//u ", "%", "//%", "//u%", "//u_", "_", "//_"),
    *("//u//a//%", "//u//a//_", "//u//a//a_", "//u//a//a*", "//u//a//a[", "//u//a//a?", "//*"),
    *("//u//a//100%", "//u//a//100", "//u//a//it'", '//u//a//say "', "//u//a//back\\", "//u//a%"),
    *("//é", "//u//a//é", "//u//a//e", "//u//a//e\u0301", "//u//a//日", "//u//a//\ud7ff"),
    *("//u//a//\ue000", "//u//a//\uffff", "//u//a//😀", "//u//a//\U0010ffff", "//\U0010ffff"),
    *("//u//a//\U0010ffff\U0010ffff", "//u//\U0010ffff", "//u\0", "\0", "//\ud800", "\udcff"),
    *("//u//a//trailing", "//u//a//trailing ", "//u//a//.", "//u//a//..", "x" * 5000, "//u|/plex"),
)


def coordinate(record: Record) -> str:
    return "" if isinstance(record, Blob) else f"//{record.group}//{record.app}//{record.name}"


def sort_key(record: Record, order: Order, number: int) -> tuple[Any, ...]:
    """Bytewise, whatever a store's own collation is."""
    parts: tuple[str, ...] = ()
    if not isinstance(record, Blob):
        parts = (record.group, record.app, record.name, record.tai)
    match order:
        case Order.COORDINATE:
            return (*(part.encode() for part in parts), record.id.encode())
        case Order.TAI:
            return (*(part.encode() for part in parts[3:]), record.id.encode())
        case Order.STORED:
            return (number,)
        case Order.ID:
            return (record.id.encode(),)


def expected_listing(
    records: Sequence[Record],
    store: RecordStore,
    prefix: str = "",
    order: Order = Order.COORDINATE,
    reverse: bool = False,
) -> list[RecordId]:
    given = numbers(store)
    found = [record for record in records if coordinate(record).startswith(prefix)]
    groups = [found]
    if order in (Order.COORDINATE, Order.TAI):  # Blobs have neither and stand last
        groups = [
            [record for record in found if not isinstance(record, Blob)],
            [record for record in found if isinstance(record, Blob)],
        ]
    return [
        record.id
        for group in groups
        for record in sorted(
            group, key=lambda record: sort_key(record, order, given[record.id]), reverse=reverse
        )
    ]


def ids(found: Sequence[StoredRecord] | Sequence[ValidRecord]) -> list[RecordId]:
    return [entry.id for entry in found]


def facts_of(records: Sequence[ValidRecord]) -> Counter[tuple[str, ...]]:
    return Counter(fact for record in records for fact in record_facts(record))


class StoreContract:
    """The suite; a subclass has a fixture `store` that gives an empty store."""

    # -- admission -----------------------------------------------------------------

    def test_a_new_store_is_empty(self, store: RecordStore) -> None:
        with store.snapshot() as snapshot:
            assert snapshot.totals() == Totals(0, 0, 0)
            assert list(snapshot.records()) == []
            assert list(snapshot.listing()) == []
            assert [snapshot.count(name) for name in RECORD_PREDICATES] == [0] * 5

    @pytest.mark.requirement("020-07")
    def test_admission_stores_every_record_and_counts_them(self, store: RecordStore) -> None:
        records = mixed(30)
        admission = store.admit(valid(*records))
        assert len(admission.stored) == 30
        assert admission.known == 0
        assert contents(store) == {record.id: record.bytes for record in records}
        with store.snapshot() as snapshot:
            size = sum(len(record.bytes) for record in records)
            assert snapshot.totals() == Totals(30, size, max(admission.stored))
            assert set(snapshot.iterate("Have")) == {(record.id,) for record in records}

    def test_admission_is_idempotent(self, store: RecordStore) -> None:
        batch = valid(*mixed(12))
        store.admit(batch)
        before = numbers(store)
        for again in (batch, batch[::-1], batch[3:5]):
            admission = store.admit(again)
            assert admission.stored == ()
            assert admission.known == len(again)
        assert numbers(store) == before
        with store.snapshot() as snapshot:
            assert snapshot.totals().records == 12

    def test_known_and_new_records_in_one_batch(self, store: RecordStore) -> None:
        batch = valid(*mixed(9))
        store.admit(batch[::2])
        before = numbers(store)
        admission = store.admit(batch)
        assert len(admission.stored) == 4
        assert admission.known == 5
        after = numbers(store)
        assert {name: after[name] for name in before} == before
        assert sorted(set(after.values()) - set(before.values())) == sorted(admission.stored)

    def test_duplicates_in_one_batch_are_stored_once(self, store: RecordStore) -> None:
        a, b = valid(blob("a"), plex("b"))
        admission = store.admit([a, b, a, a, b])
        assert len(admission.stored) == 2
        assert admission.known == 3
        with store.snapshot() as snapshot:
            assert snapshot.totals().records == 2
            assert snapshot.totals().record_bytes == len(a.bytes) + len(b.bytes)

    def test_an_empty_batch_changes_nothing(self, store: RecordStore) -> None:
        admission = store.admit([])
        assert (admission.stored, admission.known) == ((), 0)
        with store.snapshot() as snapshot:
            assert snapshot.totals() == Totals(0, 0, 0)

    @pytest.mark.requirement("020-05")
    @pytest.mark.parametrize("kind", ["bytes", "value", "text", "parts", "nothing"])
    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_only_validated_records_are_admitted(
        self, store: RecordStore, kind: str, position: int
    ) -> None:
        record = plex("x")
        [proven] = valid(record)
        wrong: dict[str, Any] = {
            "bytes": record.bytes,
            "value": record,
            "text": record.id,
            "parts": tuple(proven),
            "nothing": None,
        }
        batch: list[Any] = valid(blob("a"), blob("b"))
        batch.insert(position, wrong[kind])
        with pytest.raises(TypeError, match="ValidRecord"):
            store.admit(batch)
        assert contents(store) == {}
        assert len(store.admit(valid(blob("a"))).stored) == 1

    # -- StoreRecordIds --------------------------------------------------------------

    def test_store_record_ids_rise_in_the_order_of_admission(self, store: RecordStore) -> None:
        given: list[int] = []
        for start in range(0, 20, 4):
            given += store.admit(valid(*mixed(20)[start : start + 4])).stored
        assert given == sorted(set(given))
        assert given[0] > 0
        assert [numbers(store)[record.id] for record in mixed(20)] == given

    def test_a_store_record_id_is_never_used_again(self, store: RecordStore) -> None:
        records = mixed(6)
        batch = valid(*records)
        store.admit(batch)
        used = set(numbers(store).values())
        highest = max(used)
        for _round in range(3):
            last = max(numbers(store).items(), key=lambda item: item[1])[0]
            store.remove([RecordId(last)])
            with store.snapshot() as snapshot:
                assert snapshot.totals().high_water >= highest
            [number] = store.admit(batch).stored
            assert number > highest
            assert number not in used
            used.add(number)
            highest = number
        store.remove([record.id for record in records])
        with store.snapshot() as snapshot:
            assert snapshot.totals() == Totals(0, 0, highest)
        assert min(store.admit(batch).stored) > highest

    # -- removal -----------------------------------------------------------------------

    def test_removal_takes_out_what_is_named_and_counts_it(self, store: RecordStore) -> None:
        records = mixed(10)
        store.admit(valid(*records))
        gone, kept = records[:4], records[4:]
        assert store.remove([record.id for record in gone]) == 4
        assert contents(store) == {record.id: record.bytes for record in kept}
        with store.snapshot() as snapshot:
            assert snapshot.totals().records == 6
            assert snapshot.totals().record_bytes == sum(len(record.bytes) for record in kept)
            assert set(snapshot.iterate("Have")) == {(record.id,) for record in kept}
            for record in gone:
                assert not snapshot.has(record.id)
                assert snapshot.read(record.id) is None
                assert list(snapshot.query("Field", record.id)) == []
        assert store.remove([record.id for record in gone]) == 0
        assert store.remove([]) == 0

    def test_removal_counts_a_record_once(self, store: RecordStore) -> None:
        record, other = blob("a"), blob("b")
        store.admit(valid(record))
        assert store.remove([record.id, other.id, record.id]) == 1

    def test_removal_of_an_outer_record_leaves_its_parts(self, store: RecordStore) -> None:
        outer = seal(plex("x"))
        store.admit(valid(outer, outer.plex, outer.plex.blob))
        assert store.remove([outer.id]) == 1
        assert set(contents(store)) == {outer.plex.id, outer.plex.blob.id}

    # -- snapshots ---------------------------------------------------------------------

    def test_a_snapshot_does_not_see_what_comes_later(self, store: RecordStore) -> None:
        first, second = mixed(10)[:5], mixed(10)[5:]
        store.admit(valid(*first))
        with store.snapshot() as snapshot:
            before = snapshot.totals()
            store.admit(valid(*second))
            store.remove([first[0].id])
            assert snapshot.totals() == before
            assert sorted(ids(list(snapshot.records()))) == sorted(record.id for record in first)
            assert snapshot.read(first[0].id) == first[0].bytes
            assert not snapshot.has(second[0].id)
            assert snapshot.count("Have") == 5
            assert snapshot.find(Address(hash=second[1].id)) == []
        assert set(contents(store)) == {record.id for record in [*first[1:], *second]}

    def test_snapshots_inside_each_other_keep_their_own_states(self, store: RecordStore) -> None:
        a, b, c = valid(blob("a"), blob("b"), blob("c"))

        def seen(snapshot: Snapshot) -> set[str]:
            return {values[0] for values in snapshot.iterate("Have")}

        store.admit([a])
        with store.snapshot() as outer:
            store.admit([b])
            with store.snapshot() as middle:
                store.remove([a.id])
                store.admit([c])
                with store.snapshot() as inner:
                    assert seen(outer) == {a.id}
                    assert seen(middle) == {a.id, b.id}
                    assert seen(inner) == {b.id, c.id}
                assert seen(outer) == {a.id}
                assert seen(middle) == {a.id, b.id}
            store.remove([b.id, c.id])
            assert seen(outer) == {a.id}
        assert contents(store) == {}

    def test_writing_goes_on_while_a_snapshot_is_being_read(self, store: RecordStore) -> None:
        records = mixed(40)
        store.admit(valid(*records[:20]))
        seen: list[RecordId] = []
        with store.snapshot() as snapshot:
            for number, record in enumerate(snapshot.records()):
                store.admit(valid(records[20 + number]))
                store.remove([records[number].id])
                seen.append(record.id)
        assert seen == [record.id for record in records[:20]]
        assert set(contents(store)) == {record.id for record in records[20:]}

    def test_an_unfinished_reading_does_not_hold_the_next_snapshot(
        self, store: RecordStore
    ) -> None:
        store.admit(valid(*mixed(50)))
        with store.snapshot() as snapshot:
            unfinished = [snapshot.records(), snapshot.listing(), snapshot.iterate("Field")]
            for reading in unfinished:
                next(iter(reading))
        new = blob("new")
        store.admit(valid(new))
        with store.snapshot() as snapshot:
            assert snapshot.has(new.id)
            assert snapshot.totals().records == 51
        del unfinished

    def test_a_failure_inside_a_snapshot_leaves_the_store_usable(self, store: RecordStore) -> None:
        store.admit(valid(blob("a")))

        def fail() -> None:
            with store.snapshot() as snapshot:
                for record in snapshot.records():
                    raise KeyError(record.id)

        with pytest.raises(KeyError):
            fail()
        store.admit(valid(blob("b")))
        assert len(contents(store)) == 2

    # -- reading -------------------------------------------------------------------------

    def test_each_type_is_described_and_read(self, store: RecordStore) -> None:
        signed = seal(plex("links/1", group="u/v", app="ding", at=9, headers=[("X", "1")]))
        records: list[Record] = [signed, signed.plex, signed.plex.blob]
        batch = valid(*records)
        given = store.admit(batch).stored
        with store.snapshot() as snapshot:
            for record, proven, number in zip(records, batch, given, strict=True):
                assert snapshot.has(record.id)
                assert snapshot.read(record.id) == record.bytes
                assert snapshot.load(record.id) == proven
                assert isinstance(snapshot.load(record.id), ValidRecord)
                placed = not isinstance(record, Blob)
                assert snapshot.describe(record.id) == StoredRecord(
                    store_record_id=number,
                    id=record.id,
                    size=len(record.bytes),
                    group="u/v" if placed else None,
                    app="ding" if placed else None,
                    name="links/1" if placed else None,
                    tai=tai(9) if placed else None,
                    signed_by=key().verifier if isinstance(record, Seal) else None,
                )

    def test_nothing_is_found_under_another_text(self, store: RecordStore) -> None:
        record = blob("a")
        store.admit(valid(record))
        text = str(record.id)
        strange = ["", "x", text[:-1], text + "\n", " " + text, text.lower(), "////" + text]
        strange += ["P" + text[1:], "V" + text[1:], text[:44] + "~" + text[45:], "\ud800", "\0"]
        strange += [blob("b").id, "%", "B.%.H3", text.replace(".H3", ".H4")]
        with store.snapshot() as snapshot:
            for name in strange:
                assert not snapshot.has(name), name
                assert snapshot.describe(name) is None
                assert snapshot.read(name) is None
                assert snapshot.load(name) is None
                assert list(snapshot.query("Have", name)) == []
        assert store.remove([RecordId(str(blob("b").id))]) == 0

    def test_data_of_any_bytes_comes_back_exactly(self, store: RecordStore) -> None:
        datas = [b"", b"\0", bytes(range(256)), b"\n\n", blob("inner").bytes, b"\xff" * 70_000]
        records = [Blob(data) for data in datas]
        store.admit(valid(*records))
        assert contents(store) == {record.id: record.bytes for record in records}

    @pytest.mark.parametrize("order", Order)
    def test_records_come_in_each_order_and_from_a_number_on(
        self, store: RecordStore, order: Order
    ) -> None:
        store.admit(valid(*LISTED))
        expected = expected_listing(LISTED, store, order=order)
        given = numbers(store)
        with store.snapshot() as snapshot:
            assert ids(list(snapshot.records(order=order))) == expected
            for after in (0, 1, 20, max(given.values()) - 1, max(given.values()), MANY):
                assert ids(list(snapshot.records(order=order, after=after))) == [
                    name for name in expected if given[name] > after
                ]

    # -- addresses and tips ------------------------------------------------------------

    def test_the_tip_is_the_latest_and_a_seal_outranks_its_plex(self, store: RecordStore) -> None:
        old = plex("doc", at=10, data="old")
        new = plex("doc", at=20, data="new")
        signed_old, signed_new = seal(old), seal(new)
        address = parse_address("//u//a//doc")

        def tip() -> RecordId | None:
            with store.snapshot() as snapshot:
                found = snapshot.find(address)
                return found[0].id if found else None

        assert tip() is None
        for record in (old, signed_old, new, signed_new):
            store.admit(valid(record))
            assert tip() == record.id
        store.remove([signed_new.id])
        assert tip() == new.id
        store.remove([new.id])
        assert tip() == signed_old.id

    def test_every_address_form_finds_what_it_names(self, store: RecordStore) -> None:
        versions = [plex("doc", at=at, data=data) for at in (10, 20) for data in "abc"]
        others: list[Record] = [plex("doc/x"), plex("doc", app="b"), plex("doc", group="v")]
        seals = [seal(version, signer) for version in versions for signer in (1, 2)]
        everything: list[Record] = [*versions, *seals, *others, *(seal(versions[0], 3),), blob()]
        store.admit(valid(*everything))
        here = "//u//a//doc"
        named: list[Plex | Seal] = [
            record
            for record in everything
            if not isinstance(record, Blob) and coordinate(record) == here
        ]

        def expect(kind: str = "PS", at: str = "", by: str = "", name: str = "") -> list[RecordId]:
            found = [
                record
                for record in named
                if record.id.type in kind
                and record.tai.startswith(at)
                and (not by or (isinstance(record, Seal) and record.signed_by == by))
                and record.id.startswith(name)
            ]
            found.sort(key=lambda record: (record.tai.encode(), record.id.encode()), reverse=True)
            return [record.id for record in found]

        one, two, nobody = key(1).verifier, key(2).verifier, key(4).verifier
        p, s = versions[1], seals[0]
        forms = {
            "": expect(),
            "/|/plex": expect("P"),
            f"/|/plex/{tai(10)}": expect("P", tai(10)),
            f"/|/plex/{tai(11)}": [],
            f"/|/plex/{p.tai}/{p.id}": [p.id],
            f"/|/plex/{tai(20)}/{p.id}": [],
            "/|/seal": expect("S"),
            f"/|/seal/{two}": expect("S", by=two),
            f"/|/seal/{nobody}": [],
            f"/|/seal/{one}/{tai(20)}": expect("S", tai(20), one),
            f"/|/seal/{one}/{tai(10)}/{s.id}": [s.id],
            f"/|/seal/{two}/{tai(10)}/{s.id}": [],
        }
        with store.snapshot() as snapshot:
            for form, expected in forms.items():
                assert ids(snapshot.find(parse_address(here + form))) == expected, form
                for limit in (None, 0, 1, 2, len(expected), 1000):
                    found = snapshot.find(parse_address(here + form), limit=limit)
                    assert ids(found) == expected[:limit], (form, limit)
            assert len(forms[""]) == 19
            for record in everything:
                for text in (str(record.id), f"////{record.id}"):
                    assert ids(snapshot.find(parse_address(text))) == [record.id]
                    assert snapshot.find(parse_address(text), limit=0) == []
            for text in (f"////{blob('?').id}", "//u//a//do", "//u//a//doc/y", "//U//a//doc"):
                assert snapshot.find(parse_address(text)) == []

    def test_coordinates_with_special_characters_are_found_exactly(
        self, store: RecordStore
    ) -> None:
        store.admit(valid(*LISTED))
        with store.snapshot() as snapshot:
            for record in LISTED:
                if not isinstance(record, Blob):
                    found = snapshot.find(parse_address(coordinate(record)))
                    same = [other for other in LISTED if coordinate(other) == coordinate(record)]
                    assert {entry.id for entry in found} == {other.id for other in same}

    # -- listings ----------------------------------------------------------------------

    def test_a_listing_takes_a_prefix_of_the_coordinate_text(self, store: RecordStore) -> None:
        store.admit(valid(*LISTED))
        with store.snapshot() as snapshot:
            for prefix in PREFIXES:
                expected = expected_listing(LISTED, store, prefix)
                assert ids(list(snapshot.listing(prefix))) == expected, prefix

    def test_every_start_of_every_coordinate_lists_it(self, store: RecordStore) -> None:
        store.admit(valid(*LISTED))
        starts = {
            coordinate(record)[:length]
            for record in LISTED
            for length in range(len(coordinate(record)) + 1)
        }
        with store.snapshot() as snapshot:
            for prefix in sorted(starts):
                for order in (Order.COORDINATE, Order.ID):
                    expected = expected_listing(LISTED, store, prefix, order)
                    assert ids(list(snapshot.listing(prefix, order=order))) == expected, prefix

    @pytest.mark.parametrize("order", Order)
    @pytest.mark.parametrize("reverse", [False, True])
    def test_a_listing_has_an_order_a_direction_and_a_limit(
        self, store: RecordStore, order: Order, reverse: bool
    ) -> None:
        store.admit(valid(*LISTED))
        count = len(LISTED)
        with store.snapshot() as snapshot:
            for prefix in ("", "//", "//u//a//n", "//u//a//n/", "nothing"):
                expected = expected_listing(LISTED, store, prefix, order, reverse)
                for limit in (None, 0, 1, 3, count - 5, count - 4, count - 3, count, count + 1):
                    found = snapshot.listing(prefix, order=order, reverse=reverse, limit=limit)
                    assert ids(list(found)) == expected[:limit], (prefix, limit)

    def test_a_listing_says_what_describe_says(self, store: RecordStore) -> None:
        store.admit(valid(*LISTED))
        with store.snapshot() as snapshot:
            for found in snapshot.listing():
                assert snapshot.describe(found.id) == found
                assert found.coordinate == next(
                    coordinate(record) for record in LISTED if record.id == found.id
                )

    # -- facts ---------------------------------------------------------------------------

    @pytest.mark.requirement("020-05", "020-07")
    def test_facts_are_those_of_the_stored_records(self, store: RecordStore) -> None:
        target = blob("target").id
        batch = valid(
            *mixed(15),
            seal(plex("l", headers=[("X+Link", f"see {target}"), ("X+Link", "bad"), ("Y", "1")])),
        )
        store.admit(batch)
        expected = facts_of(batch)
        with store.snapshot() as snapshot:
            for name in RECORD_PREDICATES:
                wanted = Counter(fact[1:] for fact in expected.elements() if fact[0] == name)
                assert wanted
                assert Counter(snapshot.iterate(name)) == wanted
                assert snapshot.count(name) == wanted.total()
                assert Counter(snapshot.query(name)) == wanted
                starts = {values[:length] for values in wanted for length in range(1, 6)}
                for start in starts | {("x",), (target,), (batch[0].id, "x")}:
                    found = Counter(snapshot.query(name, *start))
                    assert found == Counter(
                        values for values in wanted.elements() if values[: len(start)] == start
                    ), (name, start)

    def test_unknown_predicates_have_no_facts(self, store: RecordStore) -> None:
        store.admit(valid(*mixed(5)))
        names = ["", "have", "Have/1", "Nothing", *(set(BASE_PREDICATES) - set(RECORD_PREDICATES))]
        with store.snapshot() as snapshot:
            for name in names:
                assert list(snapshot.iterate(name)) == []
                assert list(snapshot.query(name)) == []
                assert list(snapshot.query(name, mixed(1)[0].id)) == []
                assert snapshot.count(name) == 0

    @pytest.mark.requirement("020-02", "020-39", "020-40", "020-41")
    def test_embedded_records_are_not_there_unless_admitted(self, store: RecordStore) -> None:
        outer = seal(plex("x", headers=[("X+Link", f"d {blob('t').id}")]))
        [proven] = valid(outer)
        inner = embedded_records(proven)
        assert ids(inner) == [outer.plex.id, outer.plex.blob.id]
        store.admit([proven])
        with store.snapshot() as snapshot:
            assert set(snapshot.iterate("Have")) == {(outer.id,)}
            assert set(snapshot.iterate("PlexHash")) == {(outer.id, outer.plex.id)}
            for record in (outer.plex, outer.plex.blob):
                assert not snapshot.has(record.id)
                assert snapshot.read(record.id) is None
                assert snapshot.find(Address(hash=record.id)) == []
                for name in RECORD_PREDICATES:
                    assert list(snapshot.query(name, record.id)) == []
        assert len(store.admit(inner).stored) == 2
        assert contents(store) == {
            record.id: record.bytes for record in (outer, outer.plex, outer.plex.blob)
        }

    @pytest.mark.requirement("020-04", "020-06")
    def test_an_invalid_record_yields_no_facts(self, store: RecordStore) -> None:
        good = plex("x", headers=[("X+Link", "d P.abc.H9")])
        damaged = good.bytes[:-1] + b"?"
        counts = import_stream(
            store,
            [damaged],
            settings=DEFAULT_SETTINGS,
            random_bytes=bytes,
            workers=0,
        )
        assert (counts.stored, counts.known, counts.rejected) == (0, 0, 1)
        with store.snapshot() as snapshot:
            assert [snapshot.count(name) for name in RECORD_PREDICATES] == [0] * 5
        store.admit(valid(good))
        with store.snapshot() as snapshot:  # the unsupported hash is a target, never a record
            assert set(snapshot.iterate("RecordLink")) == {
                (good.id, "X+Link", "0", "d", "P.abc.H9")
            }
            assert not snapshot.has("P.abc.H9")
            assert list(snapshot.query("Field", "P.abc.H9")) == []
