"""Operations as selectors: what each of them chooses, evaluated over records and claims."""

from __future__ import annotations

import os

import pytest

from lace.api import SigningKey, evaluate
from lace.base.limits import MAX_GIVEN_RECORDS
from lace.errors import UsageError
from lace.facts.extract import facts_of_records
from lace.policy.local import Policy
from lace.policy.operations import (
    LISTED_FIELDS,
    coordinate_prefix,
    expose_records,
    list_prefix,
    select_prefix,
    select_record,
    select_records,
)
from lace.record.ids import IdError
from lace.record.model import Blob, Plex, Record, make_receipt
from lace.record.paths import AddressError
from lace.record.validate import ValidRecord, frame_record, parse_record, validate_many
from lace.rules.limits import PEER_LIMITS

KEY = SigningKey(b"\x07" * 32, os.urandom)
TAI = "1700000000:000000000"


def plex(group: str, app: str, name: str) -> Plex:
    return Plex(group=group, app=app, name=name, data=b"x", tai=TAI)


ODD = plex("it's", "a\\b", "c")
RECORDS: list[Record] = [
    plex("u", "n", "a"),
    plex("u", "n", "ab"),
    plex("u", "n/m", "a"),
    plex("u/v", "n", "a"),
    plex("uv", "n", "a"),
    plex("u", "n", "a").seal(KEY),
    ODD,
    Blob(b"x"),
]


def chosen(select: str) -> tuple[set[str], set[str]]:
    """Return what a selector chooses of records that are here, and of the same as claims."""
    outcomes = validate_many([frame_record(record.bytes) for record in RECORDS], os.urandom)
    valid = [each for each in outcomes if isinstance(each, ValidRecord)]
    facts = list(facts_of_records(valid, max_value_bytes=1024))
    claims: list[tuple[str, ...]] = [
        ("Advertised", fact[1], "S") for fact in facts if fact[0] == "Have"
    ]
    claims += [("AdvertisedField", fact[1], "S", *fact[2:]) for fact in facts if fact[0] == "Field"]
    Policy(select, limits=PEER_LIMITS)  # a peer takes it
    result = evaluate(select, [*facts, *claims])
    have = {row[0] for row in result["SelectHave/1"]}
    return have, {row[0] for row in result["SelectAdvertised/2"]}


def coordinate(record: Record) -> str:
    return str(getattr(record, "coordinate", ""))


@pytest.mark.requirement("050-206")
@pytest.mark.parametrize(
    "prefix",
    ["", "/", "//", "//u", "//u/", "//u//", "//u//n", "//u//n/", "//u//n//", "//u//n//a", "//it's"],
)
def test_a_prefix_chooses_what_begins_with_its_text(prefix: str) -> None:
    expected = {str(record.id) for record in RECORDS if coordinate(record).startswith(prefix)}
    assert expected, "the prefix tells nothing apart"
    have, claimed = chosen(select_prefix(prefix))
    assert have == claimed == expected


@pytest.mark.requirement("050-206")
@pytest.mark.parametrize("prefix", ["", "//u//n//", "//u/"])
def test_a_listing_lets_nothing_move(prefix: str) -> None:
    have, claimed = chosen(list_prefix(prefix))
    assert have == chosen(select_prefix(prefix))[0]
    assert claimed == set()
    for name in LISTED_FIELDS:
        assert f"'{name}'" in list_prefix(prefix)


@pytest.mark.requirement("050-206")
def test_a_record_by_hash_coordinate_and_narrowing() -> None:
    plain, seal = RECORDS[0], RECORDS[5]
    both = {str(plain.id), str(seal.id)}
    assert chosen(select_record("//u//n//a")) == (both, both)
    for text, record in (
        (str(plain.id), plain),
        (f"////{seal.id}", seal),
        ("//u//n//a/|/plex", plain),
        (f"//u//n//a/|/seal/{KEY.verifier}/{TAI}/{seal.id}", seal),
        ("//it's//a\\b//c", ODD),
    ):
        assert chosen(select_record(text)) == ({str(record.id)}, {str(record.id)}), text


@pytest.mark.requirement("050-206")
def test_given_records_and_their_receipts() -> None:
    wanted = [str(RECORDS[0].id), str(RECORDS[7].id)]
    assert chosen(select_records(wanted)) == (set(wanted), set(wanted))
    receipt = make_receipt(wanted[0], str(KEY.verifier), KEY, tai=TAI)
    other = make_receipt(str(ODD.id), str(KEY.verifier), KEY, tai=TAI)
    RECORDS.extend([receipt, other])
    try:
        have, claimed = chosen(select_records(wanted, receipts=True))
    finally:
        del RECORDS[-2:]
    assert have == claimed == {*wanted, str(receipt.id)}


@pytest.mark.parametrize(
    "text", ["/u", "///u", "//u////", "//u//n//a//b", "a|b", "//u//../x", "//e\u0301"]
)
def test_what_no_coordinate_begins_with_is_refused(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        coordinate_prefix(text)
    assert caught.value.rule == "010-address"


def test_too_many_records_and_no_hashes_are_refused() -> None:
    many = [str(Blob(str(number).encode()).id) for number in range(MAX_GIVEN_RECORDS + 1)]
    Policy(select_records(many[1:], receipts=True), limits=PEER_LIMITS)
    for make in (select_records, expose_records):
        with pytest.raises(UsageError, match="one operation takes 250"):
            make(many)
        with pytest.raises(IdError):
            make(["x') :- true."])
    with pytest.raises(AddressError):
        select_record("x') :- true.")


@pytest.mark.requirement("050-208")
@pytest.mark.requirement("050-209")
def test_a_receipt_is_a_seal_of_the_receiver() -> None:
    sender = str(SigningKey(b"\x08" * 32, os.urandom).verifier)
    receipt = make_receipt(str(ODD.id), sender, KEY, tai=TAI)
    assert parse_record(receipt.bytes) == receipt
    assert receipt.signed_by == KEY.verifier
    assert str(receipt.coordinate) == f"//lace//receipt//store/{ODD.id}"
    assert receipt.tai == TAI
    assert sorted(receipt.headers) == [("Stored-From", sender), ("Stored-Hash", str(ODD.id))]


@pytest.mark.requirement("050-206")
@pytest.mark.parametrize(
    ("prefix", "rules"),
    [("//u", 2), ("//u/", 4), ("//u//ding", 2), ("//u//ding/", 4), ("//u//ding//links/", 2)],
)
def test_only_a_slash_that_may_be_one_of_two_is_read_in_two_ways(prefix: str, rules: int) -> None:
    made = select_prefix(prefix)
    assert made.count(" :- ") == rules
    assert "'links')" not in made, "a name ends with its slash"
