"""Resources: marker lines, bodies, canonical form, identifiers, and the bounded store."""

from __future__ import annotations

import pytest

from lace.iltp.items import KNOT, OPEN_RECORD, PREFACE, PUZZLE_PIECE, RECORD, StreamFault
from lace.iltp.resources import (
    MAX_RESOURCE_BYTES,
    ResourceError,
    ResourceStore,
    check_body,
    check_resource,
    kind_of,
    parse_marker,
)
from lace.policy.operand import operand_of
from lace.rules.canonical import lacegram_id
from lace.rules.program import check_canonical
from tests.unit.iltp.streams import (
    OTHER_R,
    OTHER_RULES,
    PLAN,
    RULES,
    R,
    events,
    refusal,
    resource,
)

E = PLAN.id
SHORT = "R." + "0" * 42


def marker(text: str) -> bytes:
    return PUZZLE_PIECE + text.encode("utf-8", "surrogateescape")


def test_markers_and_kinds() -> None:
    assert parse_marker(marker(f"{R} lacegram")) == (R, "lacegram")
    assert parse_marker(marker(f"{E} exchange-plan")) == (E, "exchange-plan")
    assert (kind_of(R), kind_of(E)) == ("lacegram", "exchange-plan")
    with pytest.raises(ResourceError) as caught:
        kind_of(SHORT)
    assert caught.value.rule == "060-55"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "060-33"),
        (R, "060-33"),
        (f"{R} ", "060-33"),
        (f" {R} lacegram", "060-33"),
        (f"{R}  lacegram", "060-33"),
        (f"{R} lacegram ", "060-33"),
        (f"{R} lacegram x", "060-33"),
        (f"{R} lacegram\r", "060-33"),
        (f"{R}\tlacegram", "060-33"),
        (f"{R} lacegram\t", "060-33"),
        (f"{R} la\udcffcegram", "060-34"),
        (f"{R} e\u0301", "060-34"),
        (f"{R} Lacegram", "060-54"),
        (f"{R} blob", "060-54"),
        (f"{E} lacegram", "060-55"),
        (f"{R} exchange-plan", "060-55"),
        (f"{SHORT} lacegram", "060-55"),
        (f"R.{'0' * 42}1 lacegram", "060-55"),
    ],
)
def test_malformed_markers(text: str, rule: str) -> None:
    with pytest.raises(ResourceError) as caught:
        parse_marker(marker(text))
    assert caught.value.rule == rule
    error = refusal(PREFACE + marker(text) + b"\nA(P) :- Have(P).\n\n")
    assert (error.fault, error.rule) == (StreamFault.RESOURCE, rule)
    assert 13 <= error.offset <= 13 + len(marker(text))


@pytest.mark.parametrize(
    ("body", "at", "rule"),
    [
        (b"", 0, "060-40"),
        (b"A(P) :- Have(P).\n", 17, "060-40"),
        (b"A(P) :- Have(P).\r", 0, "060-40"),
        (b"A(P) :- Have(P).\n#x", 17, "060-41"),
        (b"A(P) :- Have(P).\n" + RECORD, 17, "060-41"),
        (KNOT, 0, "060-41"),
        (PUZZLE_PIECE, 0, "060-41"),
        (OPEN_RECORD, 0, "060-41"),
        (b"a\n\xff", 2, "060-37"),
        (b"a\ne\xcc\x81", 2, "060-37"),
        (b"x" * (MAX_RESOURCE_BYTES + 1), 0, "060-147"),
        (b"x\n" * 4096 + b"x", 0, "060-148"),
    ],
)
def test_bodies_that_cannot_stand_in_a_stream(body: bytes, at: int, rule: str) -> None:
    with pytest.raises(ResourceError) as caught:
        check_body(body)
    assert (caught.value.at, caught.value.rule) == (at, rule)


def test_bodies_up_to_their_limits() -> None:
    check_body(b"x" * MAX_RESOURCE_BYTES)
    check_body(b"x\n" * 4095 + "é".encode())


def test_a_resource_without_lines() -> None:
    for raw in (resource(body=b""), resource(body=b"")[:-1]):
        error = refusal(PREFACE + raw)
        assert (error.rule, error.offset) == ("060-37", 13 + len(resource(body=b"")) - 2)


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (b"A(P) :- Have(P)", 0),
        (b"A(P) :-  Have(P).", 0),
        (b"A(P) :- Have(P). ", 0),
        (b"A(P) :- Have(P).\nB(P) :- Have(P),Have(P).", 17),
        (b"A(P) :- Have(P), P = P.", 0),
        (b"A(P) :- Have(P), Prefix(P,'x').", 0),
        (b"A('x').", 0),
        (b"A(Q) :- Have(P).", 0),
        (b"A(P) :- Have(P), not A(P).", 0),
        (b"Have(P) :- Field(P,_,_,_).", 0),
        (b"\xef\xbb\xbfA(P) :- Have(P).", 0),
    ],
)
def test_what_is_not_canonical_is_never_repaired(body: bytes, at: int) -> None:
    with pytest.raises(ResourceError) as caught:
        check_resource(R, "lacegram", body)
    assert (caught.value.rule, caught.value.at) == ("060-47", at)
    assert str(caught.value).isprintable()
    error = refusal(PREFACE + resource(body=body))
    assert (error.fault, error.rule) == (StreamFault.RESOURCE, "060-47")
    assert error.offset == len(PREFACE) + len(resource(body=b"")) - 2 + at


def test_of_many_findings_the_first_is_told() -> None:
    body = b"A(P) :- Have(P), Field(P,'a',_,'b').\nB(Q) :- Have(P).\nC(Q) :- Have(P)."
    with pytest.raises(ResourceError) as caught:
        check_resource(R, "lacegram", body)
    assert caught.value.message == (
        "the lacegram is refused: head variable Q is not bound by a positive atom (line 2, 030-37)"
    )
    assert caught.value.at == body.index(b"B(")


def test_plans_have_to_be_canonical_too() -> None:
    check_resource(E, "exchange-plan", PLAN.transcript_bytes)
    lines = PLAN.transcript_bytes.split(b"\n")
    for changed in (lines[1:], [*lines[:2], *lines[3:]], [lines[1], lines[0], *lines[2:]]):
        with pytest.raises(ResourceError) as caught:
            check_resource(E, "exchange-plan", b"\n".join(changed))
        assert caught.value.rule == "060-49"


@pytest.mark.requirement("030-25", "060-37")
def test_constants_may_hold_tabs() -> None:
    body = RULES + "\nA(P) :- Field(P,'a\tb',_,'\x00\x1b\x85\u2028').".encode()
    identifier = lacegram_id(body.decode())
    assert ResourceStore().add(identifier, "lacegram", body) == body
    spaced = body.replace(b" :- ", b"\t:- ")
    with pytest.raises(ResourceError, match="spaces"):
        check_resource(lacegram_id(spaced.decode()), "lacegram", spaced)


def test_the_identifier_is_computed_again() -> None:
    for identifier, kind, body in (
        (OTHER_R, "lacegram", RULES),
        ("E." + "0" * 43, "exchange-plan", PLAN.transcript_bytes),
    ):
        error = refusal(PREFACE + resource(identifier, body, kind))
        assert error.rule == "060-57"


def test_the_store_keeps_one_copy_and_refuses_another_body() -> None:
    store = ResourceStore()
    body = store.add(R, "lacegram", bytes(RULES))
    assert store.add(R, "lacegram", RULES + b"") is body
    assert (store.get(R), store.get(OTHER_R), len(store)) == (RULES, None, 1)
    with pytest.raises(ResourceError) as caught:
        store.add(R, "lacegram", OTHER_RULES)
    assert caught.value.rule == "060-52"


def test_the_store_is_bounded() -> None:
    whole = ResourceStore(max_total_bytes=len(RULES) + len(OTHER_RULES))
    whole.add(R, "lacegram", RULES)
    whole.add(OTHER_R, "lacegram", OTHER_RULES)
    assert len(whole) == 2
    store = ResourceStore(max_total_bytes=len(RULES) + 10)
    store.add(R, "lacegram", RULES)
    with pytest.raises(ResourceError) as caught:
        store.add(OTHER_R, "lacegram", OTHER_RULES)
    assert caught.value.rule == "060-147"
    assert "max_resource_bytes=" in str(caught.value.hint)


@pytest.mark.slow
def test_the_largest_resource() -> None:
    def rules(size: int) -> bytes:
        line = b"A(P) :- Have(P), Field(P,'Name',_,'%b').\n"
        lines = [line % (b"x" * 300)] * (size // len(line % (b"x" * 300)) - 1)
        left = size - sum(map(len, lines)) - len(line % b"") + 1
        return b"".join(lines) + (line % (b"x" * left))[:-1]

    body = rules(MAX_RESOURCE_BYTES)
    assert len(body) == MAX_RESOURCE_BYTES
    identifier = check_canonical(body).id
    assert len(events(PREFACE + resource(identifier, body))) == 3
    error = refusal(PREFACE + resource(identifier, rules(MAX_RESOURCE_BYTES + 1)))
    assert error.rule == "060-147"
    assert operand_of(RULES, 0).module_id == R
