"""Rows: the packed form of an advertisement set, and the trees that are made of it.

Only `ValueError` and `TypeError` come out of bytes that are no set; one that is, is written
again byte for byte, and its partitions together are the whole.
"""

from __future__ import annotations

import json
import random
import struct

from fuzz.harness import Target
from lace.base import b64a
from lace.exchange.advertisement_set import AdvertisementSet, child_prefixes

__all__ = ["TARGET"]


def _seeds() -> list[bytes]:
    chance = random.Random(7)
    made = []
    for count in (0, 1, 3, 40):
        records = [f"P.{b64a.encode(chance.randbytes(32))}.H3" for _ in range(count)]
        records += [f"B.{b64a.encode(chance.randbytes(20))}.H9" for _ in range(count // 3)]
        found = AdvertisementSet.of(records, [chance.randbytes(32) for _ in records])
        made.append(b"".join(found.to_pieces()))
    return made


_PIECES = (
    *(struct.pack("<Q", number) for number in (0, 1, 3, 2**31, 2**63)),
    *(
        b"{}",
        b"[]",
        b"[" * 50,
        json.dumps({"P.x.H9": "0" * 43}).encode(),
        b'"',
        b"null",
        b"\0" * 65,
    ),
)


def check(raw: bytes) -> None:
    """Everything that must hold for any bytes at all."""
    try:
        found = AdvertisementSet.from_bytes(memoryview(raw))
    except (ValueError, TypeError):
        return
    copy = AdvertisementSet.from_bytes(memoryview(b"".join(found.to_pieces())))
    assert copy == found, "not the same when written again"
    records = found.records()
    assert len(records) == len(found)
    assert sum(found.count(child) for child in child_prefixes("")) == found.count("")
    for prefix in ("", "A", "zz"):
        assert sum(count for count, _root in found.children(prefix)) == found.count(prefix)
    changed = found.changed((), (), records[:1])
    assert len(changed) == len(found) - len(records[:1])
    come, gone = found.difference(changed)
    assert (come, gone) == (records[:1], [])


TARGET = Target(name="rows", check=check, seeds=_seeds, pieces=_PIECES)
