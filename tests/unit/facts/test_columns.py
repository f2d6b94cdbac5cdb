"""Facts by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.facts.extract import fact_columns, head_columns
from lace.record.validate import HeadParts
from tests.store.samples import blob, plex, seal, valid

if TYPE_CHECKING:
    from lace.record.model import Blob, Plex, Seal


@pytest.mark.requirement("020-34", "020-38")
@pytest.mark.parametrize("kinds", ["", "b", "p", "s", "bps", "sps"])
def test_heads_give_the_facts_of_their_records(kinds: str) -> None:
    made: dict[str, Blob | Plex | Seal] = {
        "b": blob("some data"),
        "p": plex("links/1", data="other"),
        "s": seal(plex("links/2")),
    }
    records = valid(*(made[kind] for kind in kinds)) if kinds else []
    heads = [
        HeadParts(
            each.bytes[: each.data_at],
            len(each.bytes),
            each.plex_at,
            each.blob_at,
            each.group,
            each.app,
            each.name,
            each.tai,
        )
        for each in records
    ]
    assert head_columns(heads) == fact_columns(records)


@pytest.mark.requirement("020-31", "020-32", "020-33")
def test_what_embeds_a_record_names_its_hash() -> None:
    inner = plex("links/2")
    outer = seal(inner)
    columns = fact_columns(valid(blob("some data"), inner, outer))
    assert columns.plexes == [1, 2]
    assert [each.decode() for each in columns.blob] == [str(inner.blob.id)] * 2
    assert columns.seals == [2]
    assert [each.decode() for each in columns.plex] == [str(inner.id)]
    assert [each.decode() for each in columns.signature] == [outer.signature]
