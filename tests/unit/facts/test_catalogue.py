"""The base predicates."""

from __future__ import annotations

import pytest

from lace.facts.catalogue import BASE_PREDICATES, RECORD_PREDICATES, FactClass


def test_record_predicates() -> None:
    assert [str(predicate) for predicate in RECORD_PREDICATES.values()] == [
        "Have/1",
        "Field/4",
        "RecordLink/5",
        "BlobHash/2",
        "PlexHash/2",
    ]
    assert all(p.fact_class is FactClass.RECORD for p in RECORD_PREDICATES.values())


def test_base_predicates() -> None:
    classes = {str(p): p.fact_class for p in BASE_PREDICATES.values()}
    assert classes["Advertised/2"] is FactClass.ADVERTISEMENT
    assert classes["AdvertisedField/5"] is FactClass.ADVERTISEMENT
    assert classes["TransportEncrypted/0"] is FactClass.RUNTIME
    assert len(classes) == 14
    for name, predicate in BASE_PREDICATES.items():
        assert predicate.name == name
        assert predicate.meaning
        assert predicate.arity == len(predicate.arguments) == len(set(predicate.arguments))


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        BASE_PREDICATES["Mine"] = BASE_PREDICATES["Have"]  # type: ignore[index]  # read only


@pytest.mark.requirement("020-27")
@pytest.mark.parametrize(
    ("name", "places"),
    [("Have", (0,)), ("Field", (0, 1, 2)), ("RecordLink", (0, 1, 2)), ("BlobHash", (0,))],
)
def test_what_identifies_a_fact_ends_with_its_index(name: str, places: tuple[int, ...]) -> None:
    assert BASE_PREDICATES[name].identifying == places
