"""Control facts: what each phase may hold, how values look, and blocks as sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.base import b64a
from lace.exchange.blocks import (
    CHILDREN_CHARACTERS,
    CONTROL_PREDICATES,
    PHASE_PREDICATES,
    Block,
    Phase,
    Syntax,
    advertise_phase,
    check_block,
    format_block,
    is_only_tick,
    parse_block,
    sorted_lines,
)
from lace.exchange.failures import Failure, InterlaceFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST = b64a.encode(b"\x11" * 32)
P = f"P.{DIGEST}.H3"
V = f"V.{DIGEST}.H3"
T = "1640995200:000000000"
HOSTILE = "\x1b[2J\u202e" + "x" * 500

GOOD: dict[str, tuple[str, ...]] = {
    "ExchangeOperand": ("0", f"R.{DIGEST}", "Opq_0", "selector"),
    "ExchangeNonce": (DIGEST,),
    "HelloExchangePlan": (f"E.{DIGEST}",),
    "HelloSigner": (V,),
    "HelloProof": (b64a.encode(b"\x22" * 64),),
    "HelloTAI": (T,),
    "HelloTickInterval": ("10000000000",),
    "HelloRecordFormat": ("H3",),
    "HelloAdvertisedField": ("Signed-By",),
    "HelloAllAdvertisedFields": (),
    "HelloLimit": ("max_loop_iterations", "16"),
    "Advertised": (P, V),
    "AdvertisedField": (P, V, "Group", "0", "u"),
    "AdvertisementPartition": ("ab", "12", DIGEST),
    "AdvertisementChildren": ("ab", "0" * CHILDREN_CHARACTERS),
    "AdvertisementCursor": ("12", DIGEST),
    "AdvertisementDelta": (DIGEST,),
    "AdvertisementWithdrawn": (P,),
    "ListAdvertisementPartition": ("ab",),
    "NarrowAdvertisementPartition": ("",),
    "MayRequest": (P,),
    "NotAvailable": (P,),
    "TickReady": (T,),
}
WHERE = {name: next(p for p, held in PHASE_PREDICATES.items() if name in held) for name in GOOD}
BAD: dict[Syntax, tuple[str, ...]] = {
    Syntax.TEXT: ("e\u0301", "\ud800", "a\nb", "a\r", "x" * 1025, "é" * 513),
    Syntax.RECORD: (
        "",
        "P.x",
        P + "\n",
        " " + P,
        P[:-3],
        "V" + P[1:],
        "p" + P[1:],
        f"P.{DIGEST[:-1]}z.H3",
        f"P.{DIGEST[:-1]}.H3",
        f"P.{DIGEST}0.H3",
        "P.a.",
        "P..H4",
        f"P.{'a' * 1020}.H4",
        "p.a.H4",
        "PP.a.H4",
        "É.a.H4",
        f"Q.{DIGEST}.H3",
        "P.a.H-4",
        "P.a.H4.",
        "P.a.b.H4",
        "P.a-.H4",
        HOSTILE,
    ),
    Syntax.PREFIX: ("-", "a b", "é", "a" * 44, "ab\n"),
    Syntax.DECIMAL: ("", "00", "01", "+1", "-1", "1_0", "1.0", " 1", "1\n", "\uff11", "1" * 20),
    Syntax.DIGEST: ("", DIGEST[:-1], DIGEST + "0", DIGEST[:-1] + "z", DIGEST + "\n"),
    Syntax.CHILDREN: ("", "0" * 511, "0" * 513, "-" * 512),
    Syntax.TAI: ("", "1640995200", T + "\n", T[:-1], "1640995200.000000000", "\uff11" + T[1:]),
    Syntax.VERIFIER: ("", P, V + "\n", "V.alice.H3", V[:-1] + "4"),
    Syntax.SIGNATURE: ("", "0" * 85, "0" * 87, "0" * 85 + "z"),
    Syntax.MODULE: ("", f"E.{DIGEST}", "R.GROUP_X", f"R.{DIGEST}.H3"),
    Syntax.PLAN: ("", f"R.{DIGEST}", "E.EXAMPLE", f"E.{DIGEST}\n"),
    Syntax.OPERAND: ("", "2", "00", "0\n", "-0"),
    Syntax.FORMAT: ("", ".H3", "H 3", "H" * 1025, "é"),
}


def refused(facts: Sequence[tuple[str, ...]], phase: Phase) -> InterlaceFailure:
    with pytest.raises(InterlaceFailure) as caught:
        check_block(facts, phase)
    text = str(caught.value)
    assert len(text) < 600
    assert not any(sign in text for sign in "\x1b\u202e\n")
    return caught.value


@pytest.mark.requirement("050-121")
@pytest.mark.parametrize(
    "record",
    ["P.a.H4", "Q.ab.Z", "A.~_0.sha256", f"V.{DIGEST}.H4", f"P.{'a' * 900}.{'H' * 100}"],
)
def test_records_of_any_other_format_are_well_formed(record: str) -> None:
    for name in ("Advertised", "MayRequest", "NotAvailable", "AdvertisementWithdrawn"):
        fact = (name, record, *GOOD[name][1:])
        assert list(check_block([fact], WHERE[name])) == [fact]


def test_every_control_predicate_is_here() -> None:
    assert set(CONTROL_PREDICATES) == set(GOOD)
    for name, values in GOOD.items():
        assert CONTROL_PREDICATES[name].arity == len(values)
    assert str(CONTROL_PREDICATES["Advertised"]) == "Advertised/2"


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("name", GOOD)
def test_where_each_may_stand(name: str, phase: Phase) -> None:
    fact = (name, *GOOD[name])
    if name in PHASE_PREDICATES[phase]:
        assert check_block([fact], phase).facts == (fact,)
    else:
        error = refused([fact], phase)
        assert (error.failure, error.rule) == (Failure.MALFORMED_BLOCK, "G36")
        assert "does not belong in" in error.message


def test_ticks_come_after_hello_and_never_inside_a_batch() -> None:
    without = {phase for phase, held in PHASE_PREDICATES.items() if "TickReady" not in held}
    assert without == {Phase.SETUP, Phase.HELLO, Phase.TRANSFER}


def test_phases_of_the_modes() -> None:
    assert [advertise_phase(mode, turn) for mode in (0, 1, 2) for turn in (0, 1, 7)] == [
        Phase.LISTING,
        Phase.LISTING,
        Phase.LISTING,
        Phase.SUMMARY_1,
        Phase.TURN_1,
        Phase.TURN_1,
        Phase.SUMMARY_2,
        Phase.TURN_2,
        Phase.TURN_2,
    ]


@pytest.mark.parametrize("name", ["Have", "MaySend", "advertised", HOSTILE, ""])
def test_unknown_predicates(name: str) -> None:
    error = refused([("Advertised", P, V), (name, P)], Phase.LISTING)
    assert (error.failure, error.rule) == (Failure.MALFORMED_BLOCK, "G36")
    assert error.hint == "there may be Advertised, AdvertisedField, TickReady"


@pytest.mark.parametrize("name", GOOD)
def test_another_arity(name: str) -> None:
    values = GOOD[name]
    for wrong in (*([values[:-1]] if values else []), (*values, "x")):
        error = refused([(name, *values), (name, *wrong)], WHERE[name])
        assert (error.failure, error.rule) == (Failure.MALFORMED_BLOCK, "G36")
        assert f"with {len(wrong)} values" in error.message


def test_a_fact_without_anything() -> None:
    assert refused([()], Phase.LISTING).failure is Failure.MALFORMED_BLOCK


@pytest.mark.parametrize("name", GOOD)
def test_singletons(name: str) -> None:
    fact = (name, *GOOD[name])
    predicate = PHASE_PREDICATES[WHERE[name]][name]
    assert check_block([fact, fact], WHERE[name]).facts == (fact,)
    if predicate.singleton and predicate.arity:
        other = {"HelloTickInterval": "2", "HelloTAI": T[:-1] + "1", "TickReady": T[:-1] + "1"}
        last = fact[-1]
        changed = other.get(name) or (last[:2] + "b" + last[3:])
        error = refused([fact, (*fact[:-1], changed)], WHERE[name])
        assert (error.failure, error.rule) == (Failure.MALFORMED_BLOCK, "G36")


def test_one_summary_in_turn_0_of_mode_2() -> None:
    facts = [("AdvertisementPartition", prefix, "1", DIGEST) for prefix in ("", "a")]
    assert len(check_block(facts, Phase.SUMMARY_1)) == 2
    assert "2 facts of AdvertisementPartition/3" in refused(facts, Phase.SUMMARY_2).message


@pytest.mark.parametrize("name", GOOD)
def test_malformed_values(name: str) -> None:
    values = GOOD[name]
    predicate = CONTROL_PREDICATES[name]
    for position, syntax in enumerate(predicate.syntax):
        for bad in BAD[syntax]:
            wrong = (name, *values[:position], bad, *values[position + 1 :])
            assert refused([wrong], WHERE[name]).failure is predicate.failure, wrong


def test_malformed_summaries_have_their_own_row() -> None:
    for name in ("AdvertisementPartition", "AdvertisementChildren", "AdvertisementCursor"):
        assert CONTROL_PREDICATES[name].failure is Failure.MALFORMED_SUMMARY


@pytest.mark.parametrize(
    "value", ["", "é", "it's \\ here", "\u2028", "\x85", "x" * 1024, "'", "\U0001f5a7"]
)
def test_texts_that_are_fine(value: str) -> None:
    fact = ("AdvertisedField", P, V, "Name", "0", value)
    assert check_block([fact], Phase.LISTING).facts == (fact,)


def test_records_of_other_formats_are_named() -> None:
    for other in (f"P.{DIGEST}.H4", "B.a.h3", "S.0~.X9"):
        assert len(check_block([("Advertised", other, "Opq_1")], Phase.LISTING)) == 1


def test_a_shorter_limit_for_values() -> None:
    fact = ("AdvertisedField", P, V, "Name", "0", "x" * 100)
    with pytest.raises(InterlaceFailure, match="100 bytes"):
        check_block([fact], Phase.LISTING, max_value_bytes=99)


def test_a_block_is_a_set_in_the_order_it_came() -> None:
    one, two = ("MayRequest", P), ("MayRequest", "B" + P[1:])
    block = check_block([two, one, two], Phase.REQUEST)
    assert list(block) == [two, one]
    assert len(block) == 2
    assert block == check_block([one, two], Phase.REQUEST)
    assert hash(block) == hash(check_block([one, two], Phase.REQUEST))
    assert block == check_block(iter([two, one]), Phase.REQUEST)
    assert block != check_block([one], Phase.REQUEST)
    assert block != (two, one)


def test_facts_by_predicate() -> None:
    tick = ("TickReady", T)
    request = ("MayRequest", P)
    block = check_block([request, tick], Phase.REQUEST)
    assert list(block.of("MayRequest")) == [request]
    assert list(block.of("NotAvailable")) == []
    assert block.one("TickReady") == tick
    assert block.one("NotAvailable") is None
    assert block.tick == T
    assert check_block([request], Phase.REQUEST).tick is None
    empty = check_block([], Phase.REQUEST)
    assert (len(empty), empty.tick) == (0, None)
    assert empty == Block()


def test_a_tick_alone_is_no_step() -> None:
    tick, request = ("TickReady", T), ("MayRequest", P)
    assert is_only_tick([tick])
    assert is_only_tick([tick, ("TickReady", "tomorrow")])
    assert not is_only_tick([request, tick])
    assert not is_only_tick([request])
    assert not is_only_tick([]), "an empty step is one"


def test_lines() -> None:
    facts = [("MayRequest", "b"), ("MayRequest", "a"), ("MayRequest", "b"), ("F", "it's")]
    assert format_block(facts) == (b"MayRequest('b')\nMayRequest('a')\nF('it\\'s')\n\n")
    assert sorted_lines(facts) == [b"F('it\\'s')\n", b"MayRequest('a')\n", b"MayRequest('b')\n"]
    assert format_block([]) == b"\n"
    assert sorted_lines([]) == []


def test_parsed_lines() -> None:
    raw = [f"MayRequest('{P}')".encode(), f"TickReady('{T}')".encode()]
    assert parse_block(raw, Phase.REQUEST).facts == (("MayRequest", P), ("TickReady", T))
    for line in (
        b"",
        b"MayRequest(P)",
        b"MayRequest(_)",
        raw[0] + b".",
        raw[0] + b"\r",
        b" " + raw[0],
        b"MayRequest( 'x')",
        b"MayRequest('\xff')",
        "MayRequest('e\u0301')".encode(),
        b"MayRequest('" + b"x" * 2000 + b"')",
        b"MayRequest('\x1b')",
        b"# comment",
    ):
        with pytest.raises(InterlaceFailure) as caught:
            parse_block([line], Phase.REQUEST)
        assert caught.value.failure is Failure.MALFORMED_BLOCK
        assert caught.value.rule
        assert not any(sign in str(caught.value) for sign in "\x1b\r\n")
