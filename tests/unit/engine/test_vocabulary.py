"""Names that rules use and no record has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.engine.factbase import FactBase
from lace.engine.field_histogram import strange_names
from lace.query.store_query import find_strange_names
from lace.record.model import Plex
from lace.rules.program import check_source

if TYPE_CHECKING:
    from pathlib import Path

FACTS = [
    ("Have", "P.1"),
    ("Field", "P.1", "Group", "0", "team"),
    ("Field", "P.1", "App", "0", "notes"),
    ("Field", "P.1", "Tag", "0", "urgent"),
    ("Field", "P.1", "Blocked-By", "0", "x"),
]


def base(facts: list[tuple[str, ...]] = FACTS) -> FactBase:
    made = FactBase(max_value_bytes=1024)
    made.change(facts)
    return made


def found(body: str, facts: list[tuple[str, ...]] = FACTS) -> list[str]:
    program = check_source(f"A(P) :- Have(P), {body}.")
    return [str(each) for each in strange_names(base(facts), program)]


@pytest.mark.requirement("020-08")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("Field(P,'Tagg',_,_)", "the field 'Tagg' [020-08]; did you mean 'Tag'?"),
        (
            "not Field(P,'Blokced-By',_,_)",
            "the field 'Blokced-By' [020-08]; did you mean 'Blocked-",
        ),
        ("Field(P,'Zebra',_,V), V != 'x'", "the field 'Zebra' [020-08]"),
        ("Cardinality(Field(P,'Taggs',_,_),'<','2')", "the field 'Taggs' [020-08]; did you mean"),
        ("Field(P,'Group',_,'teams')", "the group 'teams' [020-08]; did you mean 'team'?"),
        ("not Field(P,'App',_,'note')", "the app 'note' [020-08]; did you mean 'notes'?"),
        ("Field(P,'App',_,'calendar')", "the app 'calendar' [020-08]"),
        ("Field(P,'Group',_,G), G != 'taem'", "the group 'taem' [020-08]; did you mean 'team'?"),
        ("Field(P,'Group',_,G), 'taem' != G", "the group 'taem' [020-08]; did you mean 'team'?"),
        (
            "AdvertisedField(P,_,'Group',_,'taem')",
            "the group 'taem' [020-08]; did you mean 'team'?",
        ),
        ("AdvertisedField(P,_,'Tagg',_,_)", "the field 'Tagg' [020-08]; did you mean 'Tag'?"),
    ],
)
def test_names_that_no_record_has(body: str, said: str) -> None:
    (one,) = found(body)
    assert f"warning: no record here has {said}" in one
    assert ("did you mean" in one) == ("did you mean" in said)


@pytest.mark.parametrize(
    "body",
    [
        "Field(P,'Tag',_,'anything')",
        "Field(P,'Group',_,'team')",
        "Field(P,'Group',_,G), G != 'team'",
        "Field(P,'Signed-By',_,_)",
        "Field(P,Name,_,'teams'), Name != 'x'",
        "AdvertisedField(P,_,'Group',_,'elsewhere')",
        "AdvertisedField(P,_,'Zebra',_,_)",
        "Field(P,'Name',_,'teams')",
        "Field(P,'Grop',_,_)",
    ],
)
def test_names_that_are_no_reason_to_wonder(body: str) -> None:
    """What records have, what formats give, what a peer may have, what is reported elsewhere."""
    assert found(body) == []


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("Of('taem') :- true.\nA(P) :- Field(P,'Group',_,G), Of(G).", ["the group 'taem'"]),
        ("Of('team') :- true.\nA(P) :- Field(P,'Group',_,G), Of(G).", []),
        ("Of('x','Zebra') :- true.\nA(P) :- Of(_,N), Field(P,N,_,_).", ["the field 'Zebra'"]),
        (
            "Of('q') :- true.\nA(P) :- Field(P,'Group',_,G), Of(G).\n"
            "B(P) :- Field(P,'App',_,X), Of(X).",
            ["the group or app 'q'"],
        ),
        (
            "Of('team') :- true.\nA(P) :- Field(P,'Group',_,G), Of(G).\n"
            "B(P) :- Field(P,'App',_,X), Of(X).",
            [],
        ),
        ("Of('q') :- true.\nOf(G) :- Have(G).\nA(P) :- Field(P,'Group',_,G), Of(G).", []),
        ("Of('q') :- true.\nA(P) :- Field(P,'Group',_,G), not Of(G).", ["the group 'q'"]),
        ("Of('q') :- true.\nA(P) :- Field(P,'Name',_,G), Of(G).", []),
        ("Of('q') :- true.\nA(P) :- AdvertisedField(P,_,'Group',_,G), Of(G).", []),
        (
            "Of('taem') :- true.\nA(P) :- AdvertisedField(P,_,'Group',_,G), Of(G).",
            ["the group 'taem'"],
        ),
    ],
)
def test_constants_that_a_helper_binds(rules: str, said: list[str]) -> None:
    """They are names where a variable has them, at the place where the helper says them."""
    findings = strange_names(base(), check_source(rules))
    assert [each.message for each in findings] == [f"no record here has {each}" for each in said]
    assert all(each.place.line == 1 for each in findings)


def test_nothing_is_said_of_names_where_there_are_no_records() -> None:
    assert found("Field(P,'Group',_,'nobody')", []) == []


def test_each_name_once_with_its_place() -> None:
    text = "A(P) :- Field(P,'Zebra',_,_).\nB(P) :- Field(P,'Zebra',_,_), Field(P,'Group',_,'q')."
    lines = text.split("\n")
    findings = strange_names(base(), check_source(text, name="x.lace"), lines)
    assert [str(each.place) for each in findings] == ["x.lace:1:17", "x.lace:2:49"]
    assert findings[1].excerpt.endswith("^^^")


def test_many_names_are_compared_with_few() -> None:
    """What is listed and compared is bounded, however many there are of both."""
    many: list[tuple[str, ...]] = [("Field", f"P.{n}", "Group", "0", f"g{n}") for n in range(6_000)]
    assert found("Field(P,'Group',_,'g6001')", FACTS + many) == [
        "1:36: warning: no record here has the group 'g6001' [020-08]"
    ]
    rules = "\n".join(f"A(P) :- Field(P,'Zebra{n}',_,_)." for n in range(4_000))
    fields: list[tuple[str, ...]] = [("Field", "P.1", f"Tag{n}", "0", "x") for n in range(1_000)]
    assert len(strange_names(base(FACTS + fields), check_source(rules))) == 4_000


@pytest.mark.parametrize("others", [1, 5_000], ids=["few", "segments"])
def test_removed_records_have_no_names(tmp_path: Path, others: int) -> None:
    program = check_source("A(P) :- Field(P,'Group',_,'team'), Field(P,'Extra',_,_).")
    gone = Plex(group="team", app="a", name="n", data=b"", headers=[("Extra", "1")])
    more = [Plex(group="other", app="a", name=f"n{n}", data=b"") for n in range(others)]
    with open_lace(tmp_path / "x") as lace:
        lace.add_all([gone, *more])
        assert find_strange_names(lace.store, [program]) == ()
        assert (tmp_path / "x" / "segments").exists() == (others > 4_096)
        lace.remove(gone.id)
        found = find_strange_names(lace.store, [program])
        assert [each.message for each in found] == [
            "no record here has the group 'team'",
            "no record here has the field 'Extra'",
        ]
