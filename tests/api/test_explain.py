"""What ids mean: every id has its texts, and the examples are what they claim to be."""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

import lace
from lace.base import b64a
from lace.base.digest import digest
from lace.base.limits import describe_settings
from lace.errors import LaceError, RuleError
from lace.exchange.blocks import Phase, parse_block
from lace.facts.lines import parse_fact
from lace.iltp.address import parse_address as link_address
from lace.iltp.items import StreamEnd
from lace.iltp.reader import Reader
from lace.policy.plan import parse_transcript
from lace.record.ids import Signature
from lace.record.paths import parse_address
from lace.record.seal import SigningKey
from lace.rules.profiles import EXPOSURE, QUERY, SELECTOR, Profile
from lace.rules.program import check_canonical, check_source
from tests.cli.running import call

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = tomllib.loads((ROOT / "src/lace/api/explanations.toml").read_text("utf-8"))
EXPLAINED = lace.explanations()


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


def _plex(headers: str) -> object:
    """Read a Plex that has these headers."""
    inner = headers.encode("utf-8") + b"\n" + lace.Blob(b"hi").bytes
    marker = f"\N{THREE NETWORKED COMPUTERS}: P.{b64a.encode(digest(inner))}.H3\n"
    return lace.parse_record(marker.encode("utf-8") + inner)


def _stream(text: str) -> None:
    """Read a stream to its end; a resource ends with a blank line."""
    reader = Reader()
    reader.feed(f"{text}\n".encode() + (b"\n" if "lacegram\n" in f"{text}\n" else b""))
    reader.end()
    while not isinstance(reader.next_event(), StreamEnd):
        pass


def _given(option: str) -> Callable[[str], set[str | None]]:
    """Return what `lace preview` says of a file of facts."""

    def found(text: str) -> set[str | None]:
        with TemporaryDirectory() as folder:
            file, select = Path(folder, "facts"), Path(folder, "all.lace")
            file.write_text(text + "\n")
            select.write_text(SELECT)
            words = ("--select", select, "--peer-select", select, option, file, "--json")
            lace.open(Path(folder, "lace")).close()
            done = call("preview", "--lace", Path(folder, "lace"), *words)
        return {each["error"]["rule"] for each in map(json.loads, _objects(done.err))}

    return found


def _objects(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("{")]


SELECT = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
TEAM = """\
SelectHave(P) :- Field(P,'Group',_,'team').
SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'team').
"""
CHECKS: dict[str, Callable[[str], set[str | None]]] = {
    "query": _rules(QUERY),
    "selector": _rules(SELECTOR),
    "exposure": _rules(EXPOSURE),
    "canonical": _raised(lambda text: check_canonical(text.encode("utf-8"))),
    "b64a": _raised(b64a.decode),
    "secret": _raised(lambda text: SigningKey.parse_secret(text, os.urandom)),
    "signature": _raised(Signature),
    "verifier": _raised(lace.Verifier),
    "identifier": _raised(lace.RecordId),
    "address": _raised(parse_address),
    "tai": _raised(lace.Tai),
    "headers": _raised(_plex),
    "record": _raised(lambda text: lace.parse_record(text.encode("utf-8"))),
    "fact": _raised(lambda text: parse_fact(text.encode("utf-8"))),
    "plan": _raised(lambda text: parse_transcript(text.encode("utf-8"))),
    "request": _raised(lambda text: parse_block([text.encode("utf-8")], Phase.REQUEST)),
    "link": _raised(link_address),
    "stream": _raised(_stream),
    "runtime": _given("--runtime"),
    "advertised": _given("--advertised"),
}


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if "check" in entry])
def test_the_fault_breaks_this_rule_and_the_remedy_breaks_none(name: str) -> None:
    found = CHECKS[ENTRIES[name]["check"]]
    explained = EXPLAINED[name]
    fault, remedy = explained.fault, explained.remedy
    if ENTRIES[name]["check"] == "plan":  # a part of a transcript, which is read as a whole
        whole = lace.plan(SELECT, TEAM).transcript
        assert f"{remedy}\n" in whole
        fault, remedy = whole.replace(remedy, fault), whole
    assert found(fault) == {name}
    assert found(remedy) == set()


# -- The ids.

ID = r"0(?:06|09|10)-[a-z0-9-]+|0[2-6]0-\d{2,3}|[GX]\d+[a-z]?"
UNCITED = {"G31"}
"""Ids that no error cites, and that people are told of on pages."""


def test_every_id_that_the_program_cites_is_explained_and_no_other() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "src" / "lace").rglob("*.py")]
    constants = (
        node.value
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    cited = {
        name
        for text in constants
        for name in (re.findall(rf"\[({ID})\]", text) or re.findall(rf"\A({ID})\Z", text))
    }
    assert cited - UNCITED == EXPLAINED.keys() - UNCITED
    assert EXPLAINED.keys() >= UNCITED


def test_ids_are_in_order() -> None:
    def place(name: str) -> tuple[bool, str, int, str]:
        text, _, rest = name.partition("-")
        return name[0] in "GX", text, int(rest) if rest.isdecimal() else 0, rest

    assert list(ENTRIES) == sorted(ENTRIES, key=place)


# -- The texts.


@pytest.mark.parametrize("name", ENTRIES)
def test_the_texts_are_whole_sentences(name: str) -> None:
    explained = EXPLAINED[name]
    for text in (explained.statement, explained.reason):
        assert re.match(r"[A-Z`]", text), text
        assert text.endswith("."), text
        assert "\n" not in text
        assert text.count("`") % 2 == 0
    assert explained.fault
    assert explained.remedy
    assert explained.fault != explained.remedy
    assert set(ENTRIES[name]) <= {"statement", "reason", "fault", "remedy", "page", "check"}


def test_settings_that_are_named_exist() -> None:
    known = {name for name, _meaning, _unit in describe_settings()}
    texts = (text for entry in ENTRIES.values() for text in entry.values())
    named = {name for text in texts for name in re.findall(r"\b(?:peer_)?max_[a-z_]+", text)}
    assert named - known == set()


@pytest.mark.parametrize("name", ENTRIES)
def test_the_page_is_there(name: str) -> None:
    page, _, anchor = EXPLAINED[name].page.partition("#")
    text = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    if not anchor:
        return
    headings = {re.sub(r"[^a-z0-9]+", "-", h.lower()) for h in re.findall(r"^#+ (.*)", text, re.M)}
    assert f'<a id="{anchor}"></a>' in text or f"- `{anchor}` [" in text or anchor in headings


@pytest.mark.parametrize("written", ["030-37", "[030-37]", " 030-37 "])
def test_an_id_is_found_however_it_is_written(written: str) -> None:
    assert lace.explain(written) == EXPLAINED["030-37"]


def test_an_unknown_id_is_met_with_those_near_it() -> None:
    with pytest.raises(lace.UsageError, match="no message shows the id '030-377'") as caught:
        lace.explain("030-377")
    assert caught.value.hint is not None
    assert "030-37" in caught.value.hint
    assert "`lace explain` lists all of them" in caught.value.hint
