"""Blocks of control facts: whatever comes is a block or one kind of error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lace.base import b64a
from lace.base.tai import Tai
from lace.exchange.blocks import (
    CHILDREN_CHARACTERS,
    CONTROL_PREDICATES,
    PHASE_PREDICATES,
    Phase,
    Syntax,
    check_block,
    format_block,
    parse_block,
    sorted_lines,
)
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.hello import read_hello, read_setup
from lace.exchange.ticks import start_ticks
from tests.property.strategies import mutations, nfc_text

if TYPE_CHECKING:
    from lace.facts.lines import Fact

pytestmark = pytest.mark.property

symbols = st.sampled_from(b64a.ALPHABET)
digests = st.binary(min_size=32, max_size=32).map(b64a.encode)
decimals = st.integers(0, 10**19 - 1).map(str)
GOOD: dict[Syntax, st.SearchStrategy[str]] = {
    Syntax.TEXT: nfc_text(min_size=0, max_size=10) | st.just("it's \\ here"),
    Syntax.RECORD: st.builds("{}.{}.H3".format, st.sampled_from("BPS"), digests),
    Syntax.PREFIX: st.text(symbols, max_size=43),
    Syntax.DECIMAL: decimals,
    Syntax.DIGEST: digests,
    Syntax.CHILDREN: symbols.map(lambda symbol: symbol * CHILDREN_CHARACTERS),
    Syntax.TAI: st.integers(0, 10**19 - 1).map(Tai.from_nanoseconds),
    Syntax.VERIFIER: digests.map("V.{}.H3".format),
    Syntax.SIGNATURE: st.binary(min_size=64, max_size=64).map(b64a.encode),
    Syntax.MODULE: digests.map("R.{}".format),
    Syntax.PLAN: digests.map("E.{}".format),
    Syntax.OPERAND: st.sampled_from("01"),
    Syntax.FORMAT: st.sampled_from(["H3", "h4", "X"]),
}
phases = st.sampled_from(Phase)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Phase, list[Fact]]:
    """A phase, and facts that may stand in it: at most one of each singleton."""
    phase = draw(phases)
    facts: list[Fact] = []
    for predicate in PHASE_PREDICATES[phase].values():
        fact = st.tuples(*(GOOD[syntax] for syntax in predicate.syntax))
        most = 1 if predicate.singleton else 3
        facts += [(predicate.name, *values) for values in draw(st.lists(fact, max_size=most))]
    return phase, draw(st.permutations(facts))


def read(lines: list[bytes], phase: Phase) -> Failure | None:
    """Read lines as far as setup, hello and ticks do, and return what is wrong with them."""
    try:
        block = parse_block(lines, phase)
        assert format_block(block) == b"".join(f + b"\n" for f in [*dict.fromkeys(lines), b""])
        if phase is Phase.SETUP:
            read_setup(block, local_index=1)
        elif phase is Phase.HELLO:
            read_hello(block)
        elif block.tick is not None:
            start_ticks(Tai("1640995200:000000000"), 10**9).hear(block.tick)
    except InterlaceFailure as error:
        return error.failure
    return None


@given(blocks())
def test_what_is_written_is_read(made: tuple[Phase, list[Fact]]) -> None:
    phase, facts = made
    raw = format_block(facts)
    assert raw.endswith(b"\n")
    block = parse_block(raw.split(b"\n")[:-2], phase)
    assert block.facts == tuple(dict.fromkeys(facts))
    assert block == check_block(facts[::-1], phase)
    assert sorted_lines(block) == sorted_lines([*facts, *facts])
    assert len(block) == sum(len(block.of(name)) for name in PHASE_PREDICATES[phase])


@given(blocks().flatmap(lambda made: st.tuples(st.just(made[0]), mutations(format_block(made[1])))))
def test_a_changed_block_is_refused_or_means_itself(made: tuple[Phase, bytes]) -> None:
    phase, raw = made
    failure = read(raw.split(b"\n")[:-2], phase)
    assert failure is None or failure.action.is_abort


@given(st.lists(st.binary(max_size=40), max_size=5), phases)
@example([b""], Phase.HELLO)
@example([b"HelloAllAdvertisedFields()"], Phase.HELLO)
def test_any_bytes(lines: list[bytes], phase: Phase) -> None:
    failure = read(lines, phase)
    assert failure is None or failure.action.is_abort


@given(
    st.lists(
        st.lists(st.sampled_from([*CONTROL_PREDICATES, "", "Have"]) | st.text(max_size=4)).map(
            tuple
        ),
        max_size=5,
    ),
    phases,
)
@example([()], Phase.REQUEST)
@example([("Advertised", "\ud800", "\ud800")], Phase.LISTING)
def test_any_tuples(facts: list[Fact], phase: Phase) -> None:
    failure = None
    try:
        assert set(check_block(facts, phase)) == set(facts)
    except InterlaceFailure as error:
        failure = error.failure
        str(error).encode()
    assert failure in (None, Failure.MALFORMED_BLOCK, Failure.MALFORMED_SUMMARY)
