"""Header lines, paths and addresses against plain readings of the same rules."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lace.errors import RecordError
from lace.record.headers import RESERVED_NAMES, Header, check_line, parse_headers, sort_headers
from lace.record.ids import Verifier
from lace.record.paths import (
    Address,
    AddressError,
    Coordinate,
    PathError,
    check_path,
    format_address,
    parse_address,
)
from tests.property import oracle
from tests.property.strategies import KEYS, headers, names, paths, record_ids, tais, values

pytestmark = pytest.mark.property

ODD = st.sampled_from(
    [b": ", b":", b" ", b"\n", b"\t", b"\r", b"\x7f", b"\0", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"]
    + [text.encode() for text in ("e\u0301", "é", "\u2028", "\u0085", "\U0001f5a7", "a" * 1020)]
)
good_lines = st.tuples(names, values).map(lambda header: f"{header[0]}: {header[1]}\n".encode())
odd_lines = st.lists(ODD | st.sampled_from([b"a", b"A: b"]), max_size=5).map(b"".join)
blocks = st.lists(good_lines | odd_lines | st.just(b"\n"), max_size=6).map(b"".join)


@given(blocks, st.integers(0, 1000))
@example(b"A: 1\nB: \t\n", 0)
@example(b"A: \xff\nB\n", 7)
@example(b"A: " + b"x" * 1021 + b"\n", 0)
@example(b"A: " + b"x" * 1022 + b"\nB:\n", 0)
@example("A: e\u0301\n".encode(), 0)
@example(b"A: 1\n \n", 0)
@example(b"A: 1", 0)
def test_a_block_is_read_as_its_lines_are(block: bytes, offset: int) -> None:
    lines = block.split(b"\n")
    expected = [oracle.line_rules(line) for line in lines[:-1]]
    if any(expected) or lines[-1]:
        with pytest.raises(RecordError) as caught:
            parse_headers(block, offset)
        number = next((i for i, rules in enumerate(expected) if rules), len(expected))
        start = sum(len(line) + 1 for line in lines[:number])
        assert caught.value.place is not None
        place = caught.value.place.offset
        assert place is not None
        assert offset + start <= place <= offset + start + len(lines[number])
        wanted = expected[number] if number < len(expected) else {"010-header-form"}
        assert caught.value.rule in wanted
    else:
        assert parse_headers(block, offset) == [oracle.split_header(line) for line in lines[:-1]]


@given(st.text(max_size=8) | names, st.text(max_size=8) | values)
@example("a:", "b")
@example("a: b", "c")
@example("a", "b\nc: d")
@example("a", "\ud800")
@example("", "b")
@example("a", "x" * 1022)
@example("a", "x" * 1021)
def test_what_can_be_written_is_what_can_be_read(name: str, value: str) -> None:
    try:
        raw = f"{name}: {value}\n".encode()
        readable = parse_headers(raw, 0) == [(name, value)]
    except (RecordError, UnicodeEncodeError):
        readable = False
    if readable:
        check_line(name, value)
    else:
        with pytest.raises(RecordError):
            check_line(name, value)


@given(st.lists(headers, max_size=8))
def test_sorted_headers_ascend_bytewise_and_keep_the_order_of_equals(given_: list[Header]) -> None:
    made = sort_headers(given_)
    encoded = [name.encode() for name, _ in made]
    assert encoded == sorted(encoded)
    for name in {name for name, _ in made}:
        assert [h for h in made if h[0] == name] == [h for h in given_ if h[0] == name]


@given(st.sampled_from(sorted(RESERVED_NAMES)), st.lists(headers, max_size=3))
def test_reserved_names_are_refused_among_others(name: str, others: list[Header]) -> None:
    with pytest.raises(RecordError) as caught:
        sort_headers([*others, (name, "x")])
    assert caught.value.rule == "010-extra-reserved"


path_texts = st.text(st.sampled_from("a./|{}#é \x1f\x7f\u0301\n\u0085"), max_size=7)


@given(path_texts | paths)
@example("..")
@example("a/..")
@example("../a")
@example("...")
@example(".a/b.")
@example("a\n")
@example("e\u0301")
def test_paths(text: str) -> None:
    if oracle.is_path(text):
        check_path("Name", text)
        assert Coordinate(text, "a", text).name == text
    else:
        with pytest.raises(PathError) as caught:
            check_path("Name", text)
        assert caught.value.rule == "010-path"


coordinates = st.builds(Coordinate, paths, paths, paths)
verifiers = st.sampled_from([key.verifier for key in KEYS])
plex_ids = record_ids().filter(lambda text: text.type == "P")
seal_ids = record_ids().filter(lambda text: text.type == "S")
addresses = st.one_of(
    st.builds(Address, hash=record_ids()),
    st.builds(Address, coordinate=coordinates),
    st.builds(Address, coordinate=coordinates, type=st.sampled_from("PS")),
    st.builds(Address, coordinate=coordinates, type=st.just("P"), tai=tais),
    st.builds(Address, coordinate=coordinates, type=st.just("P"), tai=tais, hash=plex_ids),
    st.builds(Address, coordinate=coordinates, type=st.just("S"), signed_by=verifiers),
    st.builds(Address, coordinate=coordinates, type=st.just("S"), signed_by=verifiers, tai=tais),
    st.builds(
        Address,
        coordinate=coordinates,
        type=st.just("S"),
        signed_by=verifiers,
        tai=tais,
        hash=seal_ids,
    ),
)


@given(addresses)
def test_addresses_round_trip(address: Address) -> None:
    text = format_address(address)
    assert parse_address(text) == address
    if address.coordinate is None and address.hash is not None:
        assert parse_address(address.hash) == address


@given(addresses.map(format_address), st.data())
def test_a_changed_address_is_refused_or_means_itself(text: str, source: st.DataObject) -> None:
    at = source.draw(st.integers(0, len(text)))
    piece = source.draw(st.sampled_from(["", "/", "//", "|", "/|/", "plex", ".", "\n", "é"]))
    changed = text[:at] + piece + text[at + source.draw(st.integers(0, 2)) :]
    try:
        found = parse_address(changed)
    except AddressError:
        return
    assert format_address(found).removeprefix("////") == changed.removeprefix("////")


@given(record_ids())
def test_verifier_and_record_id_are_different_things(text: str) -> None:
    with pytest.raises(RecordError):
        Verifier(text)
