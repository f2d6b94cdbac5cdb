"""Merkle roots and advertisement sets: counts, roots and slices, also after changes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lace.base import b64a
from lace.base.digest import digest
from lace.exchange.advertisement_set import AdvertisementSet, child_prefixes, payload_of
from lace.exchange.merkle import EMPTY_ROOT, as_digests, leaves_of, root_of, roots_without_one
from lace.exchange.summaries import children_fact, read_children, summaries_of, summary_of

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
        digests = found.digests_of(found.records(prefix))
        assert dict(zip(found.records(prefix), digests, strict=True)) == inside
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
        made = summaries_of(found, length)
        assert list(made) == sorted({payload_of(r)[:length] for r in wanted})
        assert all(each == summary_of(found, prefix) for prefix, each in made.items())


@pytest.mark.requirement("050-158", "050-162")
@pytest.mark.parametrize("has_roots", [False, True])
def test_records_that_come_in_the_order_of_their_hashes(*, has_roots: bool) -> None:
    """As a peer gets them, some in each loop: each time all lie behind those before."""
    source = random.Random(3)
    wanted = {record(source): source.randbytes(32) for _ in range(200)}
    ordered = sorted(wanted, key=lambda each: (payload_of(each), each))
    found = AdvertisementSet()
    for start in range(0, len(ordered), 50):
        come = ordered[start : start + 50]
        source.shuffle(come)
        found = found.changed(come, [wanted[each] for each in come], ())
        if has_roots:
            assert found.root("") == plain_root([wanted[each] for each in found])
    check(found, wanted, ["", payload_of(ordered[120])[:1]])
    first, last = ordered[0], ordered[-1]
    changed = found.changed([last], [bytes(32)], [])
    check(changed, wanted | {last: bytes(32)}, [""])
    del wanted[first]
    check(found.changed([last], [wanted[last]], [first]), wanted, [""])


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
    wanted = [found.root(child)[:6] for child in child_prefixes("")]
    assert read_children(children_fact(found, "")) == wanted
    assert read_children(children_fact(AdvertisementSet(), "")) == [EMPTY_ROOT[:6]] * 64


def test_roots_without_one_are_those_of_the_plain_reading() -> None:
    source = random.Random(2)
    for count in (2, 3, 4, 5, 8, 9, 17, 33, 64):
        digests = sorted(source.randbytes(32) for _ in range(count))
        wanted = [plain_root([*digests[:at], *digests[at + 1 :]]) for at in range(count)]
        assert list(roots_without_one(leaves_of(as_digests(digests)))) == wanted


def test_the_record_that_a_peer_lacks_is_found_by_a_fingerprint() -> None:
    source = random.Random(3)
    records = [record(source, b"ab") for _ in range(20)]
    digests = [source.randbytes(32) for _ in records]
    whole = AdvertisementSet.of([*records, record(source, b"\xf0")], [*digests, b"z" * 32])
    prefix = payload_of(records[0])[:2]
    less = whole.changed([], [], [records[7]])
    found = whole.without_one(prefix, less.root(prefix)[:6])
    assert found is not None
    assert found[1] == records[7]
    assert found[0] == AdvertisementSet.joined([(prefix, less)])
    assert whole.without_one(prefix, bytes(6)) is None
    assert whole.without_one("~", bytes(6)) is None
    other = f"P.{prefix}c.H4x"
    assert less.changed([other], [b"y" * 32], []).without_one(prefix, bytes(6)) is None


def test_inner_partitions_count_where_sets_are_joined() -> None:
    source = random.Random(4)
    records = [record(source, b"a" * source.choice([0, 1])) for _ in range(400)]
    others = ["P.abc.H4x", "B.zz.H4x", "B.b0.H4x"]
    names = [*records, *others]
    sets = [AdvertisementSet.of(names, [source.randbytes(32) for _ in names]) for _ in range(3)]
    inner = payload_of(records[0])[:2]
    prefixes = {"": sets[0], inner: sets[1], inner + "0": sets[2], "b": sets[1], "ab": sets[2]}
    made = AdvertisementSet.joined(prefixes.items())
    assert made.records() == sets[0].records()
    for each in names:
        around = [payload_of(each)[:length] for length in range(len(payload_of(each)), -1, -1)]
        expected = next(prefixes[prefix] for prefix in around if prefix in prefixes)
        assert made.digest(each) == expected.digest(each)
    assert made.difference(sets[0])[1] == []
    assert {"P.abc.H4x", "B.b0.H4x"} <= set(made.difference(sets[0])[0])
    assert "B.zz.H4x" not in made.difference(sets[0])[0]


@pytest.mark.requirement("050-160")
def test_a_payload_shorter_than_a_prefix_is_in_no_partition_of_that_length() -> None:
    """Joining partitions of two characters leaves it out; it is in the whole set alone."""
    short, long = "Q.a.H9", "Q.abc.H9"
    found = AdvertisementSet.of([short, long], [b"x" * 32, b"y" * 32])
    assert list(summaries_of(found, 2)) == ["ab"]
    assert [found.count(each) for each in ("", "a", "ab", "abcd")] == [2, 2, 1, 0]
    assert found.records("ab") == [long]
    joined = AdvertisementSet.joined([("ab", found), ("zz", found)])
    assert joined.records() == [long]
    both = AdvertisementSet.joined([("", found), ("ab", AdvertisementSet())])
    assert both.records() == [short]


def test_many_records_of_other_formats_are_found_by_their_place() -> None:
    names = [f"P.{at:05}.H9" for at in range(3_000)]
    found = AdvertisementSet.of(names, [bytes([7]) * 32] * len(names))
    for prefix in ("", "0", "02", "029", "0299", "02999", "3", "029990"):
        inside = [name for name in names if name[2:7].startswith(prefix)]
        assert found.records(prefix) == inside
        assert found.count(prefix) == len(inside)


def test_records_of_other_formats_count_in_roots() -> None:
    source = random.Random(7)
    wanted = {record(source): source.randbytes(32) for _ in range(40)}
    wanted |= {"P.abc.H4x": b"x" * 32, "B.ab.H4x": b"y" * 32}
    found = AdvertisementSet.of(list(wanted), wanted.values())
    check(found, wanted, ["", "a", "ab", "abc"])
    for child, (count, root) in zip(child_prefixes("a"), found.children("a"), strict=True):
        assert (count, root) == (found.count(child), found.root(child))
    assert list(summaries_of(found, 1)) == sorted({payload_of(each)[0] for each in wanted})
    assert found.digests_of(["B.ab.H4x", "B.none.H4x"]) == [b"y" * 32, None]
    gone = found.changed([], [], ["B.ab.H4x"])
    assert gone.difference(found) == ([], ["B.ab.H4x"])
    assert gone != found


def test_whole_hashes_are_prefixes_too() -> None:
    payload = b64a.encode(b"\xab" * 32)
    names = [f"{letter}.{payload}.H3" for letter in "BPS"]
    found = AdvertisementSet.of(names, [bytes([at]) * 32 for at in range(3)])
    assert found.records(payload) == names
    assert [count for count, _ in found.children(payload[:42])].count(3) == 1
    with_fill = payload[:42] + b64a.ALPHABET[b64a.ALPHABET.index(payload[42]) + 1]
    assert found.count(with_fill) == 0
    assert found.held_bytes == 3 * (33 + 32 + 32)


FOREIGN = """
import random
from lace.exchange.advertisement_set import AdvertisementSet
names = [f"P.{at:03}.H9" for at in range(60)]
random.Random(1).shuffle(names)
one = AdvertisementSet.of(names[:40], [bytes(32)] * 40)
other = one.changed(names[20:], [bytes([7]) * 32] * 40, names[:20])
joined = AdvertisementSet.joined([("", one), ("0", other)])
print(other.difference(one), one.difference(other), other.records(), joined.records())
"""


def test_the_order_of_other_formats_is_that_of_their_bytes() -> None:
    """The same in every run of the program, whatever order its sets have."""
    found = {
        subprocess.run(
            [sys.executable, "-c", FOREIGN],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(found) == 1
    names = [f"P.{at:03}.H9" for at in range(30)]
    made = AdvertisementSet.of(names[::-1], [bytes(32)] * 30)
    assert made.records() == made.difference(AdvertisementSet())[0] == names
    assert AdvertisementSet().difference(made)[1] == names
