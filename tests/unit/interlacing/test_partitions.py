"""Merkle roots and advertisement sets: counts, roots and slices, also after changes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.interlacing.merkle import EMPTY_ROOT, as_digests, root_of
from lace.interlacing.partitions import AdvertisementSet, child_prefixes, payload_of

VECTORS = Path(__file__).parents[2] / "vectors"
LEAF, NODE = b"lace-advertisement-leaf/v1", b"lace-advertisement-node/v1"


def plain_root(digests: list[bytes]) -> bytes:
    """Return the root, as the specification says it, step by step."""
    level = [digest(LEAF + each) for each in sorted(digests)]
    if not level:
        return digest(b"lace-advertisement-empty/v1")
    while len(level) & (len(level) - 1):
        level.append(EMPTY_ROOT)
    while len(level) > 1:
        level = [
            digest(NODE + left + right) for left, right in zip(level[::2], level[1::2], strict=True)
        ]
    return level[0]


@pytest.mark.requirement("050-163", "050-164", "050-165", "050-166", "050-167", "050-168")
def test_root_vectors() -> None:
    for vector in json.loads((VECTORS / "merkle.json").read_text("utf-8")):
        digests = [bytes.fromhex(text) for text in vector["digests"]]
        assert b64a.encode(root_of(as_digests(digests))) == vector["root"]


def test_roots_are_those_of_the_plain_reading() -> None:
    source = random.Random(1)
    for count in (*range(20), 63, 64, 65, 200):
        digests = [source.randbytes(32) for _ in range(count)]
        assert root_of(as_digests(digests)) == plain_root(digests)
    same = [bytes(8) + source.randbytes(24) for _ in range(20)]
    assert root_of(as_digests(same)) == plain_root(same)


def record(source: random.Random, lead: bytes = b"") -> str:
    raw = lead + source.randbytes(32 - len(lead))
    return f"{source.choice('BPS')}.{b64a.encode(raw)}.H3"


def check(found: AdvertisementSet, wanted: dict[str, bytes], prefixes: list[str]) -> None:
    assert len(found) == len(wanted)
    assert set(found) == wanted.keys()
    for prefix in prefixes:
        inside = {r: d for r, d in wanted.items() if payload_of(r).startswith(prefix)}
        assert found.count(prefix) == len(inside)
        assert found.records(prefix) == sorted(inside, key=lambda r: (payload_of(r), r))
        assert found.root(prefix) == plain_root(list(inside.values()))
        assert dict(zip(*found.items(prefix), strict=True)) == inside
    for each, expected in wanted.items():
        assert found.digest(each) == expected


@pytest.mark.requirement("050-158", "050-159", "050-160", "050-162")
@pytest.mark.parametrize("seed", range(12))
def test_a_set_through_changes(seed: int) -> None:
    source = random.Random(seed)
    lead = source.choice([b"", b"\x00", b"\xff\xff", b"ab"])
    prefixes = [
        "",
        *(payload_of(record(source, lead))[:length] for length in range(1, 6)),
        "~~",
        "00",
    ]
    wanted: dict[str, bytes] = {}
    found = AdvertisementSet()
    for _ in range(8):
        come = {
            record(source, lead): source.randbytes(32) for _ in range(source.choice([0, 1, 30]))
        }
        if wanted and source.random() < 0.5:
            come[source.choice(sorted(wanted))] = source.randbytes(32)
        gone = [r for r in wanted if source.random() < 0.1 and r not in come]
        before, before_wanted = found, dict(wanted)
        found = found.changed(list(come), come.values(), gone)
        wanted = {r: d for r, d in wanted.items() if r not in gone} | come
        check(found, wanted, prefixes)
        check(before, before_wanted, prefixes[:2])
        added, removed = found.difference(before)
        assert sorted(added) == sorted(r for r, d in wanted.items() if before_wanted.get(r) != d)
        assert sorted(removed) == sorted(before_wanted.keys() - wanted.keys())
    assert found == AdvertisementSet.of(list(wanted), wanted.values())
    assert found.changed([], [], []) is found
    for length in (1, 2, 3):
        assert found.partitions(length) == sorted({payload_of(r)[:length] for r in wanted})


def test_records_of_other_formats_have_their_place() -> None:
    known, other = "B." + "0" * 43 + ".H3", "P.abc.H4x"
    found = AdvertisementSet.of([other, known], [b"x" * 32, b"y" * 32])
    assert found.records() == [known, other]
    assert found.records("ab") == [other]
    assert found.digest(other) == b"x" * 32
    assert other in found
    assert found.has([known, other, "B.abc.H3"]).tolist() == [True, True, False]
    assert "B.abc.H4x" not in found
    assert 5 not in found
    assert list(found.changed([], [], [other])) == [known]


def test_sets_are_joined_of_partitions() -> None:
    source = random.Random(5)
    records = [record(source) for _ in range(300)]
    whole = AdvertisementSet.of(records, [source.randbytes(32) for _ in records])
    pieces = [(prefix, whole) for prefix in child_prefixes("")]
    assert AdvertisementSet.joined(reversed(pieces)) == whole
    assert AdvertisementSet.joined(pieces).root("") == whole.root("")
    assert AdvertisementSet.joined([]) == AdvertisementSet()
    assert whole != AdvertisementSet()
    assert whole != "a set"


def test_fingerprints_are_the_beginnings_of_the_childrens_roots() -> None:
    source = random.Random(6)
    records = [record(source) for _ in range(50)]
    found = AdvertisementSet.of(records, [source.randbytes(32) for _ in records])
    assert found.fingerprints("") == [found.root(child)[:6] for child in child_prefixes("")]
    assert AdvertisementSet().fingerprints("") == [EMPTY_ROOT[:6]] * 64
