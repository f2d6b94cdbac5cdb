"""What must hold for any lacegram, and for any text at all."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lace.base.text import safe_text
from lace.errors import RuleError
from lace.rules.builtins import int_compare, lex_compare, text_shape
from lace.rules.canonical import canonical_text, canonicalize, lacegram_id, parse_canonical
from lace.rules.profiles import EXPOSURE, PROFILES, QUERY
from lace.rules.program import Lacegram, find_all
from lace.rules.source import format_source, parse_source
from tests.property import lacegrams as plain

pytestmark = pytest.mark.property

SAFETY = {"030-37", "030-38", "030-39", "030-40", "030-41", "030-42"}
STRATA = {"030-55", "030-56"}


def accepted(raw: bytes) -> bool:
    try:
        parse_canonical(raw)
    except RuleError:
        return False
    return True


@given(plain.authored())
def test_parsing_undoes_printing(made: tuple[plain.Program, str]) -> None:
    program, text = made
    expected = plain.canonical(program)
    with_dangling = text.rfind("#:json") > text.rfind(":-")
    if with_dangling:
        text += "\nA() :- true."
        expected = "\n".join(filter(None, [expected, "A() :- true."]))
    done = canonicalize(text)
    assert done.text == expected
    assert done.id == lacegram_id(expected)


@given(plain.programs)
def test_canonical_text_is_accepted_and_stays(program: plain.Program) -> None:
    text = plain.canonical(program)
    assert canonicalize(text).text == text
    assert canonical_text(parse_canonical(text.encode()).rules) == text


@given(plain.authored())
def test_formatting_is_idempotent_and_keeps_ids(made: tuple[plain.Program, str]) -> None:
    _, text = made
    with contextlib.suppress(RuleError):
        once = format_source(text)
        assert format_source(once) == once
        assert canonicalize(once) == canonicalize(text)
        comments = [line.strip(" \t") for line in text.split("\n") if line.strip(" \t")[:1] == "#"]
        assert [line for line in once.split("\n") if line.startswith("#")] == comments


@given(plain.programs.map(plain.canonical).flatmap(plain.mutated))
@example("A(P) :- Have(P).\n")
@example("\ufeffA(P) :- Have(P).")
@example("A(P) :- Have(P), P != '\u0338'.")
@example("")
@example("\n")
def test_canonical_means_that_canonicalising_changes_nothing(text: str) -> None:
    try:
        same = canonicalize(text).text == text
    except RuleError:
        same = False
    assert accepted(text.encode("utf-8", "surrogatepass")) is same


@given(st.one_of(plain.authored().flatmap(lambda made: plain.mutated(made[1])), st.text()))
@example("A(P) :- Cardinality(Have(")
@example("not " * 2000)
@example("A() :- " + "not " * 2000)
@example("#:json {")
def test_any_text_gives_findings_and_nothing_else(text: str) -> None:
    lines = text.split("\n")
    for profile in PROFILES.values():
        found = find_all(text, profile=profile, name="x")
        for finding in found:
            place = finding.place
            assert place.line is not None
            assert place.column is not None
            assert 1 <= place.line <= len(lines)
            assert 1 <= place.column <= len(lines[place.line - 1]) + 1
            assert finding.rule
            assert "\n" not in str(finding)
            assert all(line == safe_text(line) for line in finding.render().split("\n"))
        errors = [finding for finding in found if finding.severity == "error"]
        if errors:
            with pytest.raises(RuleError) as caught:
                Lacegram.parse(text, profile=profile, name="x")
            assert caught.value.findings == found
        else:
            assert Lacegram.parse(text, profile=profile, name="x").warnings == found


@given(st.binary(max_size=80))
def test_any_bytes_give_findings_and_nothing_else(raw: bytes) -> None:
    with contextlib.suppress(RuleError):
        assert canonicalize(raw).text.encode() is not None
    if accepted(raw):
        assert canonicalize(raw).text.encode() == raw


def rules_broken(program: plain.Program) -> set[str]:
    found = find_all(plain.canonical(program), profile=QUERY)
    return {str(finding.rule) for finding in found if finding.severity == "error"}


@given(plain.programs)
def test_safety_is_what_the_words_say(program: plain.Program) -> None:
    for rule in program:
        assert bool(rules_broken((rule,)) & SAFETY) is not plain.is_safe(rule)


@given(st.one_of(plain.skeletons, plain.programs))
def test_strata_are_what_the_words_say(program: plain.Program) -> None:
    stratified = plain.is_stratified(program)
    assert bool(rules_broken(program) & STRATA) is not stratified
    if stratified and all(map(plain.is_safe, program)):
        rules = Lacegram.parse(plain.canonical(program))
        found = {tuple(key): at for at, level in enumerate(rules.strata) for key in level}
        assert found == plain.levels(program)
        assert all(rules.strata)
        flat = [key for component in rules.program.components for key in component]
        assert sorted(flat) == sorted(rules.program.derived)


@given(plain.authored())
def test_spans_name_the_text_they_come_from(made: tuple[plain.Program, str]) -> None:
    _, text = made
    lines = text.split("\n")
    for rule in parse_source(text).rules:
        line = lines[rule.span.line - 1]
        assert line[rule.span.column - 1 : rule.span.end - 1] == line.strip(" \t")
        for _, atom in rule.uses():
            span = atom.name_span
            assert line[span.column - 1 : span.end - 1] == atom.name
            for term in atom.terms:
                assert line[term.span.column - 1 : term.span.end - 1] == str(term)


@given(plain.programs)
def test_exposures_read_nothing_that_a_peer_says(program: plain.Program) -> None:
    with contextlib.suppress(RuleError):
        read = Lacegram.parse(plain.canonical(program), profile=EXPOSURE).program.required_base
        assert not {"Advertised", "AdvertisedField", "TickTAI"} & {key.name for key in read}


@given(st.integers(), st.integers(), st.integers(0, 3), st.integers(0, 3))
def test_integers_of_any_length(left: int, right: int, more: int, still_more: int) -> None:
    def text(number: int, zeros: int) -> str:
        return f"{'-' if number < 0 else ''}{'0' * zeros}{abs(number)}"

    one, other = text(left, more), text(right, still_more)
    assert int_compare(one, "<", other) is (left < right)
    assert int_compare(one, ">=", other) is (left >= right)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text("\ud7ff\ue000\uffff\U00010000"))
def test_texts_order_as_their_bytes(left: str, right: str) -> None:
    assert lex_compare(left, "<", right) is (left.encode() < right.encode())


@given(
    st.text("ab/."), st.text("ab/", max_size=3), st.sampled_from(["", "/", "./"]), st.text("b/.")
)
def test_shapes_by_trying_every_split(text: str, start: str, delimiters: str, end: str) -> None:
    if delimiters:
        splits = ((text[:at], text[at], text[at + 1 :]) for at in range(len(start) + 1, len(text)))
        holds = text.startswith(start) and any(
            first.startswith(start)
            and mark in delimiters
            and not set(first[len(start) :]) & set(delimiters)
            and rest == end
            for first, mark, rest in splits
        )
    else:
        holds = any(
            text == start + text[len(start) : at] + end for at in range(len(start), len(text) + 1)
        )
    assert text_shape(text, start, delimiters, end) is holds
