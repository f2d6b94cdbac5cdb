"""The schema that somebody asks for: what is said, what is refused, and with which words."""

from __future__ import annotations

import pytest

from lace.errors import LaceError, PolicyError, UsageError
from lace.policy.operand import RequiredFields
from lace.policy.schema import ALL_FIELDS, Offer, Schema, check_own_fields, formats_of, schema_of


@pytest.mark.requirement("040-106")
def test_a_schema_is_what_was_asked_for() -> None:
    assert schema_of(None, all_fields=False) is None
    assert schema_of(None, all_fields=True) is ALL_FIELDS
    assert schema_of(["Group", "App", "Group"], all_fields=False) == Schema(
        names=frozenset({"Group", "App"})
    )
    assert schema_of([], all_fields=False) == Schema(names=frozenset())


@pytest.mark.requirement("040-106")
@pytest.mark.parametrize(
    ("fields", "all_fields", "error", "message"),
    [
        ("Group", False, UsageError, "fields are names of fields, not str; as in ['Group', 'App']"),
        (7, False, UsageError, "fields are names of fields, not int; as in ['Group', 'App']"),
        ([7], False, UsageError, "a field is a name, not int"),
        (["Group"], True, UsageError, "some fields and all fields were asked for;"),
        (None, 1, UsageError, "all_fields is True or False, not int"),
        ([""], False, PolicyError, "must have no space and no colon, got '' [050-129]"),
        (["a b"], False, PolicyError, "must have no space and no colon, got 'a b' [050-129]"),
        (["a:b"], False, PolicyError, "must have no space and no colon, got 'a:b' [050-129]"),
    ],
)
def test_anything_else_is_refused(
    fields: object, all_fields: object, error: type[LaceError], message: str
) -> None:
    with pytest.raises(error) as caught:
        schema_of(fields, all_fields=all_fields)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.requirement("050-130", "050-131")
def test_what_the_own_selector_reads_is_offered() -> None:
    offered = Schema(names=frozenset({"Group", "App"}))
    check_own_fields(offered, RequiredFields(names=frozenset({"App"})))
    check_own_fields(ALL_FIELDS, RequiredFields(all=True))
    with pytest.raises(PolicyError, match="field Name, Topic, which is not among") as caught:
        check_own_fields(offered, RequiredFields(names=frozenset({"Topic", "App", "Name"})))
    assert caught.value.rule == "050-130"
    with pytest.raises(PolicyError, match="all of them must be offered") as caught:
        check_own_fields(offered, RequiredFields(all=True))
    assert caught.value.rule == "050-131"


@pytest.mark.requirement("050-122")
def test_record_formats_are_those_that_stores_hold() -> None:
    assert formats_of(None) is None
    assert formats_of(["H3", "H3"]) == frozenset({"H3"})
    with pytest.raises(PolicyError, match="needs at least one record format"):
        formats_of([])
    with pytest.raises(PolicyError, match="must be one that stores can hold, got 'H9'"):
        formats_of(["H3", "H9"])


@pytest.mark.requirement("050-130", "050-131")
@pytest.mark.parametrize(
    ("schema", "required", "unmet", "needs_all"),
    [
        (Schema(names=frozenset({"App"})), RequiredFields(), (), False),
        (
            Schema(names=frozenset({"App"})),
            RequiredFields(names=frozenset({"App", "B", "A"})),
            ("A", "B"),
            False,
        ),
        (Schema(names=frozenset({"App"})), RequiredFields(all=True), (), True),
        (ALL_FIELDS, RequiredFields(names=frozenset({"A"})), (), False),
        (ALL_FIELDS, RequiredFields(all=True), (), False),
    ],
)
def test_an_offer_says_what_a_plan_requires_beyond_it(
    schema: Schema, required: RequiredFields, unmet: tuple[str, ...], needs_all: bool
) -> None:
    offer = Offer.of(schema, frozenset({"H3"}), required)
    assert (offer.unmet, offer.needs_all) == (unmet, needs_all)
    assert offer.is_met is (not unmet and not needs_all)
