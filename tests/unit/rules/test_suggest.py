"""Did you mean: close names only, and not for ever."""

from __future__ import annotations

import pytest

from lace.rules.findings import FIELD_NAMES, Suggester, closest
from lace.rules.program import check_source


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Haev", "Have"),
        ("have", "Have"),
        ("Feild", "Field"),
        ("Fields", "Field"),
        ("Have", None),
        ("Gave", None),
        ("Xyzzy", None),
        ("", None),
        ("SelectHav", "SelectHave"),
        ("Select_Have", "SelectHave"),
    ],
)
def test_predicates(name: str, near: str | None) -> None:
    assert closest(name, ["Have", "Field", "SelectHave", "SelectAdvertised"]) == near


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("name", "Name"),
        ("Nmae", "Name"),
        ("Signed_By", "Signed-By"),
        ("signedby", "Signed-By"),
        ("DataLength", "Data-Length"),
        ("Grup", "Group"),
        ("Tag", None),
        ("Seq", None),
        ("Game", None),
        ("evidence+Link", None),
    ],
)
def test_fields(name: str, near: str | None) -> None:
    assert closest(name, FIELD_NAMES) == near


def test_the_closest_of_several_wins() -> None:
    assert closest("Selecte", ["Selection", "Selected"]) == "Selected"


def test_a_budget_ends_the_search() -> None:
    suggester = Suggester(comparisons=3)
    assert suggester.closest("Haev", ["Have", "Field"]) == "Have"
    assert suggester.closest("Haev", ["Have", "Field"]) is None


@pytest.mark.requirement("020-08")
def test_every_field_name_of_a_rule_is_looked_at() -> None:
    """Also those after a known one, and a mistyped one only once."""
    body = (
        "Field(P,'Group',_,'a'), Field(P,'Grup',_,'b'), Field(P,'Grup',_,'c'), Field(P,'Ap',_,'d')"
    )
    warnings = check_source(f"A(P) :- {body}.").warnings
    assert [found.hint for found in warnings if found.rule == "020-08"] == [
        "did you mean 'Group'?",
        "did you mean 'App'?",
    ]
