"""Fact lines: complete, and sorted bytewise over the whole output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lace.api import open_lace
from lace.api.records import sorted_facts
from lace.base.text import is_nfc
from lace.facts.extract import record_facts
from lace.facts.lines import format_fact, parse_fact
from lace.record.model import Blob, Plex, Seal
from tests.cli.running import call

if TYPE_CHECKING:
    from pathlib import Path

    from lace.api import SigningKey

    Records = list[Blob | Plex | Seal]


def expected_lines(folder: Path) -> list[bytes]:
    with open_lace(folder, create=False) as lace, lace.snapshot() as snapshot:
        return sorted(
            format_fact(fact).encode()
            for record in snapshot.records()
            for fact in record_facts(record)
        )


def test_all_facts_sorted_bytewise(filled: Path) -> None:
    done = call("facts")
    assert (done.code, done.err) == (0, "")
    lines = done.raw.split(b"\n")[:-1]
    assert lines == sorted(lines)
    assert lines == expected_lines(filled)
    assert call("facts", "--all").raw == done.raw
    for line in lines:
        parse_fact(line)


@pytest.mark.requirement("020-37")
def test_no_fact_holds_a_coordinate(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    coordinates = {str(record.coordinate) for record in records if not isinstance(record, Blob)}
    assert len(coordinates) == 2
    for fact in call("facts", "--json").json_lines():
        for value in fact["values"]:
            assert not any(coordinate in value for coordinate in coordinates)
            assert not value.startswith("//")


def test_facts_of_records(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("facts", "//u//notes//a", records[0].id, f"////{records[0].id}")
    wanted = (records[3].id, records[0].id)
    expected = [line for line in call("facts").lines if line.split("'")[1] in wanted]
    assert done.lines == expected
    assert call("facts", "//u//notes//none").code == 1
    assert call("facts", records[0].id, "--all").code == 2


def test_facts_as_json(filled: Path) -> None:
    assert filled.is_dir()
    shown = [
        (entry["predicate"], *entry["values"]) for entry in call("facts", "--json").json_lines()
    ]
    assert [format_fact(fact) for fact in shown] == call("facts").lines


def test_facts_of_an_empty_lace(folder: Path) -> None:
    assert folder.is_dir()
    assert call("facts").raw == b""


def test_a_value_limit_is_heeded(filled: Path) -> None:
    assert filled.is_dir()
    done = call("facts", "--set", "max_value_bytes=50")
    assert done.code == 1
    assert "[020-15]" in done.err


_text = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=":/|{}#"),
    min_size=1,
    max_size=8,
).filter(lambda text: is_nfc(text) and text.strip(". ") == text)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    parts=st.lists(
        st.tuples(_text, st.lists(st.tuples(_text.filter(lambda t: " " not in t), _text))),
        max_size=5,
    )
)
@pytest.mark.property
def test_the_order_holds_for_any_records(
    tmp_path_factory: pytest.TempPathFactory,
    key: SigningKey,
    parts: list[tuple[str, list[tuple[str, str]]]],
) -> None:
    folder = tmp_path_factory.mktemp("order")
    reserved = {"Group", "App", "Name", "TAI", "Type", "Signature"}
    with open_lace(folder / "lace") as lace:
        for number, (name, headers) in enumerate(parts):
            usable = [(header, value) for header, value in headers if header not in reserved]
            plex = Plex(group="g", app="a", name=name, data=name.encode(), headers=usable)
            lace.add_all([plex, plex.blob] if number % 2 else [plex.seal(key)])
        with lace.snapshot() as snapshot:
            lines = [line.encode() for part in sorted_facts(snapshot, 1024) for line, _fact in part]
    assert lines == sorted(lines)
    assert lines == expected_lines(folder / "lace")
