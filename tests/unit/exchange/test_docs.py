"""The page on the exchange is true: its example, its tables and its numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lace.base import b64a
from lace.base.tai import Tai
from lace.exchange.blocks import PHASE_PREDICATES
from lace.exchange.capabilities import (
    DEFAULT_WIRE_LIMITS,
    LIMIT_FLOORS,
    MIN_TICK_NANOSECONDS,
    Capabilities,
    ExchangeLimits,
)
from lace.exchange.failures import Failure
from lace.exchange.hello import PROOF_LABEL, make_hello, make_setup, proof_context, proof_message
from lace.exchange.negotiation import negotiate
from lace.facts.lines import format_fact
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.record.seal import SigningKey

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "exchange.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
VECTORS = ROOT / "tests" / "vectors"


def rows(heading: str) -> list[list[str]]:
    """The rows of the table below a heading, without the line under it."""
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.split("\n")[2:]]


def test_the_example() -> None:
    vector = json.loads((VECTORS / "plans.json").read_text("utf-8"))[0]
    secrets = [each["secret"] for each in json.loads((VECTORS / "keys.json").read_text("utf-8"))]
    zero, one = (operand_of(vector[f"operand{index}"], index) for index in (0, 1))
    plan = make_plan(zero, one)
    keys = [SigningKey.parse_secret(secret, lambda size: b"\x01" * size) for secret in secrets[:2]]
    setups = [
        make_setup(operand, verifier=key.verifier, nonce=bytes([operand.index + 1]) * 32)
        for operand, key in zip((zero, one), keys, strict=True)
    ]
    for setup in setups:
        assert "\n".join(map(format_fact, setup.facts)) in BLOCKS
        assert f"`{setup.digest}`" in PAGE
    context = proof_context(setups[1], setups[0], plan.id)
    assert context is not None
    message = proof_message(context, index=0, signer=keys[0].verifier)
    assert f"`{b64a.encode(message)}`" in PAGE
    hellos = [
        make_hello(
            plan,
            Capabilities(),
            tai=Tai("1640995237:000000000"),
            index=index,
            key=keys[index],
            context=context,
            aux=b"\x03" * 32,
        )
        for index in (0, 1)
    ]
    assert "\n".join(map(format_fact, hellos[0].facts)) in BLOCKS
    terms = negotiate(
        plan,
        hellos[1],
        hellos[0],
        setup=setups[1],
        peer_setup=setups[0],
        capabilities=Capabilities(),
        context=context,
    )
    assert f"`{terms.link_id}`" in PAGE


def test_the_table_of_failures() -> None:
    assert rows("condition | action | rule | exit code") == [
        [each.condition, each.action.value, each.rule, str(each.exit_code)] for each in Failure
    ]


def test_the_table_of_phases() -> None:
    shown = [
        re.findall(r"`([^`]+)`", cells)
        for _, cells in rows("phase | predicates (`!` marks singletons)")
    ]
    assert shown == [
        [f"{predicate}{'!' if predicate.singleton else ''}" for predicate in held.values()]
        for held in PHASE_PREDICATES.values()
    ]


def test_the_table_of_limits() -> None:
    assert rows("limit | default | floor") == [
        [f"`{name}`", f"{value:,}", f"{LIMIT_FLOORS.get(name, 1):,}"]
        for name, value in DEFAULT_WIRE_LIMITS.items()
    ]


def test_numbers_and_names() -> None:
    limits = ExchangeLimits()
    assert f"`max_clock_skew_seconds` ({limits.max_clock_skew_seconds}," in PAGE
    assert f"{limits.max_tick_interval_seconds:,})" in PAGE
    assert f"{MIN_TICK_NANOSECONDS:,} ns" in PAGE
    assert f"`{PROOF_LABEL.decode()}`" in PAGE
