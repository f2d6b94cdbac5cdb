"""Records above the size from which they are copied otherwise."""

from __future__ import annotations

import pytest

from lace.errors import RecordError
from lace.record.model import Blob, Plex
from lace.record.reader import RawRecord, RecordReader


@pytest.mark.requirement("060-61")
@pytest.mark.parametrize("size", [64 * 1024 - 200, 64 * 1024, 200_000])
@pytest.mark.parametrize("recover", [False, True])
def test_a_large_record_is_read_as_it_is(size: int, recover: bool) -> None:
    records = [Blob(bytes([number]) * size).bytes for number in (1, 2)]
    reader = RecordReader(recover=recover)
    found = [*reader.feed(b"".join(records)), *reader.finish()]
    assert [each.data for each in found if isinstance(each, RawRecord)] == records


@pytest.mark.parametrize("name", ["group", "app", "name"])
def test_a_part_of_a_coordinate_is_text(name: str) -> None:
    parts: dict[str, object] = {"group": "u", "app": "a", "name": "n", name: 7}
    with pytest.raises(RecordError, match=f"{name.capitalize()} is text, not int"):
        Plex(data=b"", tai="1700000037:000000000", **parts)  # type: ignore[arg-type]
