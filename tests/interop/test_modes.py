"""A peer written from the text alone, and `lace`: they converge in every mode of reconciliation.

The peer (`tests/interop/peer`) shares no code with `lace`. Its blocks and those that it gets are
looked at, so that a test knows which mode was really used (G44).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.interop.laces import PEER, accepting, make_lace, notes, talk
from tests.interop.peer.advertise import States
from tests.interop.peer.keys import Key
from tests.interop.peer.records import blob, read_all
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import connect
from tests.interop.peer.text import digest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.peer.records import Record
    from tests.interop.peer.text import Fact

HERE, THERE, LATE = notes("here", 3), notes("there", 4), notes("late", 2)


@pytest.fixture(scope="module")
def common() -> list[Record]:
    """Records that both have, so many that nobody lists them where there is another way."""
    return notes("common", 2000)


@pytest.fixture(scope="module")
def meetings(common: list[Record]) -> dict[str, list[Record]]:
    """What a peer has in each of several exchanges with one lace, which begins with nothing."""
    return {
        "nothing there": HERE,
        "nothing here": [],
        "disjoint": THERE,
        "much to send": common,
        "equal": HERE + THERE + common,
        "a few of many differ": common[5:] + LATE,
    }


every_mode = pytest.mark.parametrize("mode", [0, 1, 2])
pytestmark = pytest.mark.slow


def ids(records: list[Record]) -> set[str]:
    return {record.id for record in records}


def make_peer(records: list[Record], mode: int, *, small: int = 16) -> Peer:
    peer = Peer(mode=mode, small=small)
    peer.add(records)
    return peer


def check(session: Session | None, mode: int, here: set[str], there: set[str]) -> None:
    """Both directions brought what was missing, in the mode that was agreed."""
    assert session is not None
    result = session.result
    assert set(result.received) == there - here
    assert result.sent == len(here - there)
    assert not result.rejected
    assert not result.not_available
    assert result.mode == mode
    assert session.wire.modes_seen() == {mode}


def names(*directions: list[list[Fact]]) -> set[str]:
    return {fact[0] for blocks in directions for block in blocks for fact in block}


@every_mode
@pytest.mark.requirement("050-72", "050-156", "050-158")
def test_the_peer_connects(tmp_path: Path, mode: int, meetings: dict[str, list[Record]]) -> None:
    lace = make_lace(tmp_path / "there")
    there: set[str] = set()
    with lace.serving("tcp:127.0.0.1:0") as server:
        for records in meetings.values():
            peer = make_peer(records, mode)
            check(talk(peer, server.address), mode, ids(records), there)
            there |= ids(records)
            assert set(peer.records) == there
        server.wait_for("outcome=fixed-point", len(meetings))
    assert lace.records() == there


@every_mode
def test_the_peer_connects_by_a_unix_socket(
    tmp_path: Path, mode: int, common: list[Record]
) -> None:
    lace = make_lace(tmp_path / "there", common + THERE)
    peer = make_peer(common[7:] + HERE, mode)
    with lace.serving(f"unix:{tmp_path}/s") as server:
        session = talk(peer, server.address)
    check(session, mode, ids(common[7:] + HERE), ids(common + THERE))
    assert lace.records() == set(peer.records) == ids(common + HERE + THERE)


@every_mode
@pytest.mark.requirement("050-72", "050-78", "050-156")
def test_lace_connects(tmp_path: Path, mode: int, common: list[Record]) -> None:
    lace = make_lace(tmp_path / "there")
    there: set[str] = set()
    for new, records in ((THERE, HERE), (common, common[5:] + LATE)):
        lace.add(new)
        there |= ids(new)
        peer = make_peer(records, mode)
        with accepting(peer) as server:
            done = lace.sync(server.address, "--json")
        assert done.code == 0, done.err
        assert done.json()["at-fixed-point"]
        assert set(done.json()["received-hashes"]) == ids(records) - there
        check(server.session, mode, ids(records), there)
        there |= ids(records)
        assert set(peer.records) == there
    assert lace.records() == there


@every_mode
def test_lace_starts_the_peer_on_stdio(tmp_path: Path, mode: int, common: list[Record]) -> None:
    lace = make_lace(tmp_path / "there", common + THERE)
    file = tmp_path / "here.records"
    file.write_bytes(b"".join(record.raw for record in common[7:] + HERE))
    done = lace.sync("stdio", "--json", "--", *PEER, file, mode)
    assert done.code == 0, done.err
    assert f"modes seen: [{mode}]\n" in done.err
    assert set(done.json()["received-hashes"]) == ids(HERE)
    assert ids(list(read_all(file.read_bytes()))) == ids(common + HERE + THERE)
    assert lace.records() == ids(common + HERE + THERE)


# -- narrowing -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd() -> list[Record]:
    """Records whose hashes begin alike: one partition of two characters holds them all."""
    found: list[Record] = []
    for number in itertools.count(1_000_000):
        start = digest(b"Data-Length: 7\n\n%d" % number)
        if start < b"\x00\x10":  # twelve bits, so two characters, are 0
            found.append(blob(b"%d" % number))
            if len(found) == 150:
                return found
    raise AssertionError("numbers do not end")


@pytest.mark.requirement("050-73", "050-74", "050-75", "050-76", "050-159")
def test_both_narrow_a_crowded_partition(tmp_path: Path, crowd: list[Record]) -> None:
    here, there = crowd[2:] + HERE, crowd[:-3] + THERE
    lace = make_lace(tmp_path / "there", there)
    peer = make_peer(here, 1, small=8)
    with lace.serving("tcp:127.0.0.1:0") as server:
        session = talk(peer, server.address)
    check(session, 1, ids(here), ids(there))
    for direction in (session.wire.sent, session.wire.received):
        assert names(direction) >= {"NarrowAdvertisementPartition", "ListAdvertisementPartition"}
    assert lace.records() == set(peer.records) == ids(here) | ids(there)


def test_the_root_is_narrowed_by_packed_children(tmp_path: Path, common: list[Record]) -> None:
    here, there = common[1:] + HERE, common[:-1] + THERE
    lace = make_lace(tmp_path / "there", there)
    peer = make_peer(here, 2, small=2)
    with lace.serving("tcp:127.0.0.1:0") as server:
        session = talk(peer, server.address)
    check(session, 2, ids(here), ids(there))
    for direction in (session.wire.sent, session.wire.received):
        assert names(direction) >= {
            "NarrowAdvertisementPartition",
            "AdvertisementChildren",
            "ListAdvertisementPartition",
        }
    told = sum(fact[0] == "Advertised" for block in session.wire.received for fact in block)
    assert told < 200, "what both have is not listed"


class Steering(States):
    """It tells of one partition the fingerprint that it would have without some record."""

    without = HERE[0].id

    def fingerprint(self, prefix: str) -> str:
        kept = [each for name, each in self.by_id.items() if name != self.without]
        return States(kept).fingerprint(prefix) if prefix else super().fingerprint(prefix)


class Misleading(Session):
    """Its fingerprints hide one record; its counts and roots do not."""

    def told(self, records: list[Record]) -> States:
        return Steering(super().told(records).by_id.values())


def test_a_fingerprint_only_steers(tmp_path: Path, common: list[Record]) -> None:
    """Where the whole has not the announced root, what was taken by fingerprint is asked again."""
    lace = make_lace(tmp_path / "there", common[:100])
    peer = make_peer([*common[:100], HERE[0]], 2)
    with lace.serving("tcp:127.0.0.1:0") as server:
        stream = connect(server.address)
        session = Misleading(peer, stream, 0)
        session.run()
        stream.close()
    assert session.result.sent == 1
    assert session.wire.modes_seen() == {2}
    assert "AdvertisementChildren" in names(session.wire.sent)
    asked = {fact[1] for block in session.wire.received for fact in block if len(fact) == 2}
    assert HERE[0].id[2] in asked, "its partition looked as if it were known"
    assert lace.records() == set(peer.records)


@pytest.mark.requirement("050-230")
@pytest.mark.parametrize("mode", [1, 2])
def test_a_list_above_the_limit_is_answered_as_a_narrow(
    tmp_path: Path, crowd: list[Record], mode: int
) -> None:
    lace = make_lace(tmp_path / "there", crowd)
    peer = make_peer([], mode, small=1000)
    peer.limits["max_advertisement_records_listed"] = 40
    with lace.serving("tcp:127.0.0.1:0") as server:
        session = talk(peer, server.address)
    check(session, mode, set(), ids(crowd))
    assert "NarrowAdvertisementPartition" not in names(session.wire.sent)
    blocks = session.wire.received[2:]
    lists = [sum(fact[0] == "Advertised" for fact in block) for block in blocks]
    assert sum(lists) == len(crowd)


@every_mode
@pytest.mark.requirement("050-180", "050-181")
def test_what_is_not_served_at_once_comes_later(tmp_path: Path, mode: int) -> None:
    """A sender may serve a part of a request list; the rest is deferred, not lost."""
    lace = make_lace(tmp_path / "there")
    peer = make_peer(HERE + THERE, mode)
    peer.most_served = 2
    with lace.serving("tcp:127.0.0.1:0") as server:
        session = talk(peer, server.address)
    assert session.result.loops == 5
    assert session.result.sent == 7
    assert lace.records() == ids(HERE + THERE)


@pytest.mark.requirement("050-116", "050-157")
def test_a_second_exchange_goes_by_the_state_of_the_first(
    tmp_path: Path, common: list[Record]
) -> None:
    """Between two proven verifiers a cursor is told, and a delta answers it, both ways."""
    lace = make_lace(tmp_path / "there", common[:300])
    lace.new_key()
    peer = make_peer(common[200:400], 2)
    peer.key = Key.generate()
    with lace.serving("tcp:127.0.0.1:0") as server:
        first = talk(peer, server.address)
        assert len(first.result.received) == 200
        peer.add(HERE)
        del peer.records[common[0].id]
        lace.add(THERE)
        session = talk(peer, server.address)
    summaries = session.wire.sent[2], session.wire.received[2]
    assert all("AdvertisementCursor" in names([summary]) for summary in summaries)
    answers = session.wire.sent[3], session.wire.received[3]
    assert all("AdvertisementDelta" in names([answer]) for answer in answers)
    assert ("AdvertisementWithdrawn", common[0].id) in session.wire.sent[3]
    assert set(session.result.received) == ids([common[0], *THERE])
    assert lace.records() == set(peer.records) == ids(common[:400] + HERE + THERE)
