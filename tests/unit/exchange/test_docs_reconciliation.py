"""The page on reconciliation is true: its blocks are those of reconciliations that are run here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import lace
from lace.base import b64a
from lace.exchange.advertisement import DIGEST_LABEL, Advertisement
from lace.exchange.advertisement_set import fingerprint_of
from lace.exchange.merkle import EMPTY_ROOT
from lace.facts.lines import format_fact
from lace.policy.schema import Schema
from tests.unit.exchange import reconciling
from tests.unit.exchange.reconciling import Party, check, claims_of, set_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "reconciliation.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
KEYS = json.loads((ROOT / "tests" / "vectors" / "keys.json").read_text("utf-8"))
ALICE, BOB = (str(entry["verifier"]) for entry in KEYS[:2])
ONE, TWO, THREE, FOUR = (
    str(lace.Blob(text.encode()).id) for text in ("one", "two", "three", "four")
)
BARE = Schema()


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "SOURCES", (ALICE, BOB))


def turns_of(a: Party, b: Party) -> list[tuple[str, str]]:
    """The blocks of both sides, turn by turn."""
    made: list[tuple[str, str]] = []
    while not a.at.is_over:
        ours, theirs = a.block(), b.block()
        made.append(("\n".join(map(format_fact, ours)), "\n".join(map(format_fact, theirs))))
        a.receive(theirs)
        b.receive(ours)
    check(a, b)
    return made


def test_advertisement_records() -> None:
    claim = Advertisement(ONE)
    assert "\n".join(map(format_fact, claim.facts(BOB))) in BLOCKS
    assert f"`{b64a.encode(claim.digest(BOB))}`" in PAGE
    assert f'"{DIGEST_LABEL.decode()}"' in PAGE


def test_the_empty_value() -> None:
    text = b64a.encode(EMPTY_ROOT)
    assert f"`{text}`" in PAGE
    assert f"has `{text[:8]}`" in PAGE
    assert b64a.encode(fingerprint_of(EMPTY_ROOT)) == text[:8]


@pytest.mark.requirement("050-72", "050-73", "050-74", "050-76")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_blocks_of_each_mode(mode: int) -> None:
    turns = turns_of(
        Party(0, mode, claims_of([ONE], BARE)), Party(1, mode, claims_of([ONE, TWO, THREE], BARE))
    )
    shown = [turns[0][1]] if mode == 0 else [turns[0][1], turns[1][0], turns[2][1]]
    places = [PAGE.index(f"```\n{block}\n```") for block in shown]
    assert places == sorted(places)
    if mode == 1:
        assert turns[1][1] == turns[2][0] == ""
    assert len(turns) == (1 if mode == 0 else 4)
    assert mode == 0 or turns[3] == ("", "")


def test_the_delta() -> None:
    known = set_of(claims_of([ONE, TWO, THREE], BARE), BOB)
    own = set_of(claims_of([ONE], BARE), ALICE)
    turns = turns_of(
        Party(0, 2, claims_of([ONE], BARE), cursor=known, remembered=(own,)),
        Party(1, 2, claims_of([TWO, THREE, FOUR], BARE), cursor=own, remembered=(known,)),
    )
    assert turns[0][0] in BLOCKS
    assert turns[1] == ("", turns[1][1])
    assert turns[1][1] in BLOCKS
