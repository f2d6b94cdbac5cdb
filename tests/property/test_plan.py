"""Plans and their transcripts: reading undoes writing, and accepts nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lace.base import b64a
from lace.errors import PolicyError
from lace.policy.operand import RequiredFields
from lace.policy.plan import LOWERINGS, ExchangePlan, PlanOperand, parse_transcript
from tests.property.lacegrams import VALUES

if TYPE_CHECKING:
    import random

pytestmark = pytest.mark.property

MODULES = st.binary(min_size=32, max_size=32).map(lambda raw: f"R.{b64a.encode(raw)}")
LABELS = st.lists(
    st.sampled_from(b64a.ALPHABET).map("Opq_{}".format), min_size=2, max_size=2, unique=True
)
REQUIRED = st.one_of(
    st.frozensets(VALUES, max_size=6).map(lambda names: RequiredFields(names=names)),
    st.just(RequiredFields(all=True)),
)


@st.composite
def plans(draw: st.DrawFn) -> ExchangePlan:
    zero, one = draw(LABELS)
    return ExchangePlan(
        lowering=draw(st.sampled_from(LOWERINGS)),
        operands=(
            PlanOperand(index=0, module_id=draw(MODULES), origin=zero),
            PlanOperand(index=1, module_id=draw(MODULES), origin=one),
        ),
        required=draw(REQUIRED),
    )


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A transcript with one change."""
    raw = draw(plans()).transcript_bytes
    lines = raw.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(["byte", "insert", "cut", "drop", "twice", "swap", "LF", "join"])):
        case "byte":
            place = draw(st.integers(0, len(raw) - 1))
            return raw[:place] + bytes([draw(st.integers(0, 255))]) + raw[place + 1 :]
        case "insert":
            place = draw(st.integers(0, len(raw)))
            return raw[:place] + draw(st.binary(min_size=1, max_size=4)) + raw[place:]
        case "cut":
            return raw[: draw(st.integers(0, len(raw) - 1))]
        case "drop":
            del lines[at]
        case "twice":
            lines.insert(draw(st.integers(0, len(lines))), lines[at])
        case "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        case "LF":
            lines.append(b"")
        case _:
            lines[at : at + 2] = [b"".join(lines[at : at + 2])]
    return b"\n".join(lines)


def give_back(raw: bytes) -> None:
    """Reading refuses bytes in the documented way, or gives a plan that is written so."""
    refusal = None
    try:
        assert parse_transcript(raw).transcript_bytes == raw
    except PolicyError as error:
        refusal = error
    assert refusal is None or (refusal.rule and "\n" not in str(refusal))


@given(plans())
def test_reading_undoes_writing(plan: ExchangePlan) -> None:
    found = parse_transcript(plan.transcript_bytes)
    assert found == plan
    assert found.id == plan.id


@given(plans(), plans())
def test_plans_are_equal_as_their_identifiers_are(one: ExchangePlan, other: ExchangePlan) -> None:
    assert (one == other) == (one.id == other.id)


@given(mutations())
def test_a_change_is_refused_or_another_plan(raw: bytes) -> None:
    give_back(raw)


@given(plans(), st.randoms(use_true_random=False))
def test_the_order_of_lines_matters(plan: ExchangePlan, chance: random.Random) -> None:
    lines = plan.transcript_bytes.split(b"\n")
    chance.shuffle(lines)
    raw = b"\n".join(lines)
    if raw == plan.transcript_bytes:
        return
    with pytest.raises(PolicyError, match="not in its place"):
        parse_transcript(raw)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=80).map(lambda text: text.encode())))
def test_random_bytes(raw: bytes) -> None:
    give_back(raw)
