"""Disclosures as values: saved, read back, compared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lace.errors import PolicyError
from lace.policy.disclosure import (
    FORMAT,
    Disclosure,
    FieldShown,
    LinksShown,
    Sent,
    SetChange,
    parse_disclosure,
)

ONE = Disclosure(
    lace="here",
    viewer="V.1",
    exposures=("R.1",),
    stored=9,
    records=("B.1", "P.2"),
    fields=(FieldShown("App", 1, 1, "notes"),),
    links=(LinksShown("+Link", 3, 2, 1),),
    hidden_hashes=("P.3",),
    hidden_here=1,
    blobs=1,
    plexes=0,
    sent=Sent("R.2", None, ("P.2",), "standard-v1"),
)


@pytest.mark.parametrize(
    "saved",
    [ONE, replace(ONE, sent=None), replace(ONE, sent=Sent("R.2", "R.3", (), "encrypted-v1"))],
)
def test_what_is_saved_is_read_back(saved: Disclosure) -> None:
    raw = json.dumps(saved.to_json()).encode()
    assert parse_disclosure(raw) == saved
    assert saved.to_json()["count"] == 2


@pytest.mark.parametrize("key", [*ONE.to_json()])
def test_every_key_is_needed(key: str) -> None:
    document = ONE.to_json()
    del document[key]
    raw = json.dumps(document).encode()
    if key == "count":  # says what records says
        assert parse_disclosure(raw) == ONE
        return
    with pytest.raises(PolicyError, match=r"saved disclosure"):
        parse_disclosure(raw)


@pytest.mark.parametrize("raw", [b"", b"\xff", b"{", b"null", b"[1]", b'{"format": [1]}'])
def test_what_is_no_disclosure(raw: bytes) -> None:
    with pytest.raises(PolicyError, match=r"this is no"):
        parse_disclosure(raw)


def test_a_change() -> None:
    assert not ONE.compare(ONE)
    after = replace(
        ONE,
        records=("P.2", "P.3"),
        fields=(FieldShown("Tag", 1, 1, "x"),),
        hidden_hashes=("B.1", "P.4"),
        sent=Sent("R.2", None, ("P.2", "P.3"), "standard-v1"),
    )
    change = after.compare(ONE)
    assert change
    assert change.records == SetChange(("P.3",), ("B.1",))
    assert change.fields == SetChange(("Tag",), ("App",))
    assert change.hidden_hashes == SetChange(("P.4",), ())  # the others were told, or still are
    assert change.sent == SetChange(("P.3",), ())
    assert change.to_json()["changed"] is True
    assert not replace(ONE, sent=None).compare(ONE)
    assert replace(ONE, sent=None).compare(ONE).sent is None


def test_the_format_has_a_name() -> None:
    assert ONE.to_json()["format"] == FORMAT
