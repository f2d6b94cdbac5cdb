"""Advertisement records: canonical text, digests, and which fields they carry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lace.base.digest import digest
from lace.exchange.advertisement import (
    DIGEST_LABEL,
    Advertisement,
    advertised_fields_of,
    digest_of,
    digests_of_bare,
    is_bare,
)
from lace.facts.lines import Fact, format_fact, parse_fact
from lace.policy.schema import ALL_FIELDS, Schema

VECTORS = Path(__file__).parents[2] / "vectors"
SOURCE = "V.vISNhGb54ALSjDPjV~ESSDbZOre1F6igmKXAU9MCeV4.H3"
RECORD = "P.dSev08DrSbHtT9p800XpDvqdAA7dApj5PZBDAzoEXTO.H3"


def vectors() -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        (VECTORS / "advertisements.json").read_text("utf-8")
    )
    return found


@pytest.mark.requirement("050-66", "050-67", "050-68", "050-70", "050-71")
@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["digest"])[:12])
def test_vectors(vector: dict[str, object]) -> None:
    text, source = str(vector["text"]), str(vector["source"])
    facts = [parse_fact(line.encode()) for line in text.split("\n")[:-1]]
    fields = tuple((fact[3], fact[4], fact[5]) for fact in facts[1:])
    found = Advertisement(str(vector["id"]), fields)
    assert "".join(f"{format_fact(fact)}\n" for fact in found.facts(source)) == text
    assert found.digest(source).hex() == vector["digest"]
    names = vector["schema"]
    schema = ALL_FIELDS if names is None else Schema(names=frozenset(map(str, names)))  # type: ignore[call-overload] # a list of texts
    record_facts = [("Field", found.record, *field) for field in reversed(fields)]
    assert advertised_fields_of(found.record, source, record_facts, schema) == fields


@pytest.mark.requirement("050-69")
def test_fields_are_in_the_order_of_names_then_of_numbers() -> None:
    facts: list[Fact] = [
        *(("Field", RECORD, "Tag", index, "x") for index in ("10", "2", "0", "1")),
        ("Field", RECORD, "App", "0", "y"),
        ("Field", "B.other", "App", "0", "z"),
    ]
    found = advertised_fields_of(RECORD, SOURCE, facts, ALL_FIELDS)
    assert [(name, index) for name, index, _ in found] == [
        ("App", "0"),
        ("Tag", "0"),
        ("Tag", "1"),
        ("Tag", "2"),
        ("Tag", "10"),
    ]


def test_only_fields_of_the_schema_are_carried() -> None:
    facts: list[Fact] = [("Field", RECORD, name, "0", "x") for name in ("App", "Group")]
    schema = Schema(names=frozenset({"Group", "Name"}))
    assert advertised_fields_of(RECORD, SOURCE, facts, schema) == (("Group", "0", "x"),)
    assert advertised_fields_of(RECORD, SOURCE, facts, Schema()) == ()


def test_a_field_whose_line_would_be_too_long_is_left_out() -> None:
    """G60: never cut; and how long a line is depends on the source as well."""

    def kept(value: str, source: str = SOURCE) -> bool:
        facts: list[Fact] = [("Field", RECORD, "App", "0", value)]
        found = advertised_fields_of(RECORD, source, facts, ALL_FIELDS, max_line_bytes=1024)
        assert found in ((), (("App", "0", value),))
        return bool(found)

    room = 1024 - len(format_fact(("AdvertisedField", RECORD, SOURCE, "App", "0", "")).encode())
    assert kept("x" * room)
    assert not kept("x" * (room + 1))
    assert not kept("'" * room)
    assert kept("x" * (room + 9), "Opq_1")


def test_bare_digests_are_digests() -> None:
    assert digests_of_bare([RECORD], SOURCE) == [digest_of(RECORD, SOURCE, ())]
    line = f"Advertised('{RECORD}','it\\'s')\n".encode()
    assert digests_of_bare([RECORD], "it's") == [digest(DIGEST_LABEL + line)]
    assert is_bare(Schema())
    assert not is_bare(ALL_FIELDS)
    assert not is_bare(Schema(names=frozenset({"App"})))
