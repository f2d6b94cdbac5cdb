"""Record links and indexes."""

from __future__ import annotations

import pytest

from lace.errors import LimitExceeded
from lace.facts.extract import Reads, fact_columns, facts_of_records, record_facts, split_link
from lace.record.model import Blob, Plex
from lace.record.seal import SigningKey
from lace.record.validate import ValidRecord, frame_record, validate_many

TARGET = f"P.{'0' * 43}.H3"


@pytest.mark.parametrize(
    ("name", "value", "link"),
    [
        ("a+Link", f"seen {TARGET}", ("seen", TARGET)),
        ("+Link", f"two words {TARGET}", ("two words", TARGET)),
        ("a+Link", f"ends in space  {TARGET}", ("ends in space ", TARGET)),
        ("a+Link", "other P.x.H9", ("other", "P.x.H9")),
        ("a+Link", TARGET, None),
        ("a+Link", f" {TARGET}", None),
        ("a+Link", f"{TARGET} seen", None),
        ("a+Link", f"seen\u00a0{TARGET}", None),
        ("a+Link", f"seen P.{'0' * 42}1.H3", None),
        ("a+Link", "seen P.x.H3", None),
        ("a+Link", "x", None),
        ("a+link", f"seen {TARGET}", None),
        ("a+Links", f"seen {TARGET}", None),
        ("Link", f"seen {TARGET}", None),
    ],
)
def test_links(name: str, value: str, link: tuple[str, str] | None) -> None:
    assert split_link(name, value) == link


def test_indexes_count_each_name() -> None:
    headers = (("a", "x"), ("b", "y"), ("b", "y"), ("b", "z"), ("c", "x"))
    inner = Plex(
        group="u", app="a", name="n", tai="1700000000:000000000", headers=headers, data=b""
    )
    (record,) = validate_many([frame_record(inner.bytes)], bytes)
    assert isinstance(record, ValidRecord)
    facts = [fact[2:] for fact in record_facts(record) if fact[0] == "Field"]
    assert [fact for fact in facts if fact[0] in "abc"] == [
        ("a", "0", "x"),
        ("b", "0", "y"),
        ("b", "1", "y"),
        ("b", "2", "z"),
        ("c", "0", "x"),
    ]


def test_columns_of_many_records_are_those_of_each() -> None:
    inner = Plex(
        group="u", app="a", name="n", tai="1700000000:000000000", data=b"x", headers=(("k", "v"),)
    )
    sealed = inner.seal(SigningKey(b"\1" * 32, lambda count: b"\1" * count))
    frames = [frame_record(record.bytes) for record in (Blob(b"12"), inner, sealed, Blob(b""))]
    records = [record for record in validate_many(frames, bytes) if isinstance(record, ValidRecord)]
    made = fact_columns(records)
    assert made.plexes == [1, 2]
    assert made.seals == [2]
    assert made.header_row == [1, 2]
    assert list(made.lengths) == ["2", "1", "1", "0"]
    assert [identifier.decode() for identifier in made.records] == [r.hash_text for r in records]
    assert made.plex == [inner.id.encode()]
    assert fact_columns([]).records == []


@pytest.mark.parametrize(
    "reads",
    [
        {},
        {"Have": None},
        {"Field": None},
        {"Field": frozenset({"Name", "Signed-By", "b+Link"})},
        {"Field": frozenset({"Type", "Signature"}), "RecordLink": None},
        {"Have": None, "RecordLink": frozenset({"a+Link"})},
        {"RecordLink": frozenset[str](), "BlobHash": None},
        {"PlexHash": None, "Unknown": None},
    ],
)
def test_only_the_facts_that_are_read(reads: Reads) -> None:
    headers = (("a+Link", f"seen {TARGET}"), ("b+Link", f"seen {TARGET}"), ("b+Link", "no link"))
    inner = Plex(
        group="u", app="a", name="n", tai="1700000000:000000000", data=b"x", headers=headers
    )
    sealed = inner.seal(SigningKey(b"\1" * 32, lambda count: b"\1" * count))
    frames = [frame_record(record.bytes) for record in (Blob(b"12"), inner, sealed)]
    records = [record for record in validate_many(frames, bytes) if isinstance(record, ValidRecord)]
    every = list(facts_of_records(records))
    assert sorted(every) == sorted(fact for record in records for fact in record_facts(record))
    assert {fact[0] for fact in every} == {"Have", "Field", "RecordLink", "BlobHash", "PlexHash"}
    expected = [
        fact
        for fact in every
        if fact[0] in reads and ((names := reads[fact[0]]) is None or fact[2] in names)
    ]
    assert list(facts_of_records(records, reads=reads)) == expected
    with pytest.raises(LimitExceeded):  # of a value that nobody reads, too
        list(facts_of_records(records, reads=reads, max_value_bytes=40))
