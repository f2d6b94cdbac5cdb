"""What ids mean: every id has its texts, and the examples are what they claim to be."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lace
from lace.errors import LaceError, RuleError
from lace.rules.profiles import EXPOSURE, QUERY, SELECTOR, Profile
from lace.rules.program import check_canonical, check_source

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = tomllib.loads((ROOT / "src/lace/api/explanations.toml").read_text("utf-8"))


# -- The examples: each is read as what it is, and breaks the rule or keeps it.


def _rules(profile: Profile) -> Callable[[str], set[str | None]]:
    allowed = None if profile is QUERY else ()

    def found(text: str) -> set[str | None]:
        try:
            program = check_source(text, profile=profile, allowed=allowed)
        except RuleError as error:
            return {each.rule for each in error.findings}
        return {each.rule for each in program.warnings}

    return found


def _raised(read: Callable[[str], object]) -> Callable[[str], set[str | None]]:
    def found(text: str) -> set[str | None]:
        try:
            read(text)
        except LaceError as error:
            findings = getattr(error, "findings", ())
            return {each.rule for each in findings} or {error.rule}
        return set()

    return found


CHECKS: dict[str, Callable[[str], set[str | None]]] = {
    "query": _rules(QUERY),
    "selector": _rules(SELECTOR),
    "exposure": _rules(EXPOSURE),
    "canonical": _raised(lambda text: check_canonical(text.encode("utf-8"))),
}


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if "check" in entry])
def test_the_fault_breaks_this_rule_and_the_remedy_breaks_none(name: str) -> None:
    found = CHECKS[ENTRIES[name]["check"]]
    explained = lace.explain(name)
    assert found(explained.fault) == {name}
    assert found(explained.remedy) == set()


# -- The texts.


@pytest.mark.parametrize("name", ENTRIES)
def test_the_texts_are_whole_sentences(name: str) -> None:
    explained = lace.explain(name)
    for text in (explained.statement, explained.reason):
        assert re.match(r"[A-Z`]", text), text
        assert text.endswith("."), text
        assert "\n" not in text
        assert text.count("`") % 2 == 0
    assert explained.fault
    assert explained.remedy
    assert explained.fault != explained.remedy
    assert set(ENTRIES[name]) <= {"statement", "reason", "fault", "remedy", "page", "check"}


@pytest.mark.parametrize("name", ENTRIES)
def test_the_page_is_there(name: str) -> None:
    page, _, anchor = lace.explain(name).page.partition("#")
    text = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    headings = {re.sub(r"[^a-z0-9]+", "-", h.lower()) for h in re.findall(r"^#+ (.*)", text, re.M)}
    assert f'<a id="{anchor}"></a>' in text or f"- `{anchor}` [" in text or anchor in headings


@pytest.mark.parametrize("written", ["030-37", "[030-37]", " 030-37 "])
def test_an_id_is_found_however_it_is_written(written: str) -> None:
    assert lace.explain(written) == lace.explanations()["030-37"]


def test_an_unknown_id_is_met_with_those_near_it() -> None:
    with pytest.raises(lace.UsageError, match="no message shows the id '030-377'") as caught:
        lace.explain("030-377")
    assert caught.value.hint is not None
    assert "030-37" in caught.value.hint
    assert "`lace explain` lists all of them" in caught.value.hint
