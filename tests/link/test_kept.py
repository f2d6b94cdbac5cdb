"""What is kept of a link: the next exchange tells changes, and trusts nothing unproven."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import lace
from lace.base.limits import MIB
from lace.engine.exchange_facts import ClaimTable
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.capabilities import Cursor
from lace.link.messages import BlockMessage, Message, Outbound
from lace.policy.schema import ALL_FIELDS, Schema
from lace.store import links
from lace.store.links import KeptLink, LinkFiles
from tests.link.test_pairing import EVERYTHING, SELECT, hashes, plex, policy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.facts.lines import Fact

BY_NAME = """\
SelectHave(P) :- Have(P), Field(P,'Group',_,'u').
SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'App',_,'wiki').
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Fact]:
    """All facts that both sides send."""
    facts: list[Fact] = []
    pieces = Outbound.pieces

    def noting(self: Outbound, message: Message) -> Iterator[bytes]:
        if isinstance(message, BlockMessage):
            facts.extend(message.effect.facts)
        return pieces(self, message)

    monkeypatch.setattr(Outbound, "pieces", noting)
    return facts


def run(left: lace.Lace, right: lace.Lace, select: str = SELECT) -> None:
    done = lace.interlace(left, right, policy(right, select), policy(left, select))
    assert done
    assert done.left.cursor_updated


def count(facts: list[Fact], name: str) -> int:
    return sum(fact[0] == name for fact in facts)


def first_loop(facts: list[Fact]) -> list[Fact]:
    """What was said before anything was requested."""
    ends = [at for at, fact in enumerate(facts) if fact[0] == "MayRequest"]
    return facts[: ends[0]] if ends else facts


@pytest.mark.parametrize("select", [SELECT, EVERYTHING, BY_NAME])
def test_an_exchange_continues_the_one_before(
    sides: tuple[lace.Lace, lace.Lace], said: list[Fact], select: str
) -> None:
    left, right = sides
    for number in range(30):
        left.add(plex(f"n/{number}"))
        right.add(plex(f"m/{number}"))
    run(left, right, select)
    said.clear()
    run(left, right, select)
    assert count(said, "AdvertisementCursor") == 2
    assert count(said, "Advertised") == count(said, "AdvertisementDelta") == 0
    new = left.add(plex("new"))
    said.clear()
    run(left, right, select)
    assert count(said, "AdvertisementDelta") >= 1
    assert count(said, "Advertised") == 1
    assert (new in hashes(right)) is (select is not BY_NAME)


def test_claims_about_records_that_are_not_here_are_kept(
    sides: tuple[lace.Lace, lace.Lace], said: list[Fact]
) -> None:
    """What was not selected may be selected later, when other records have come."""
    left, right = sides
    select = """\
SelectHave(P) :- Have(P), Field(P,'Group',_,'u').
SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Name',_,N), Open(N).
SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'App',_,'key').
Open(N) :- Have(P), Field(P,'App',_,'key'), Field(P,'Name',_,N).
"""
    for number in range(10):
        left.add(plex(f"n/{number}"))
    run(left, right, select)
    assert not hashes(right)
    right.add(
        lace.Plex(group="u", app="key", name="n/3", data=b"", tai=lace.Tai("1640995200:000000000"))
    )
    said.clear()
    run(left, right, select)
    assert len(hashes(right)) == 2
    listed = [fact for fact in said if fact[0] == "Advertised" and fact[1] in hashes(left)]
    assert len(listed) < 10


def test_what_is_kept_does_not_depend_on_the_records_here(
    sides: tuple[lace.Lace, lace.Lace], said: list[Fact]
) -> None:
    """A record that was removed since is claimed by the peer all the same, with its fields."""
    left, right = sides
    kept = [left.add(plex(f"n/{number}")) for number in range(5)]
    run(left, right)
    assert right.remove(kept[0])
    said.clear()
    run(left, right)
    assert set(kept) == hashes(right)
    assert count(first_loop(said), "AdvertisementCursor") == 2
    assert count(first_loop(said), "Advertised") == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other", "folder"])
def test_what_is_damaged_is_not_used(
    sides: tuple[lace.Lace, lace.Lace], said: list[Fact], damage: str
) -> None:
    left, right = sides
    wanted = {left.add(plex(f"n/{number}")) for number in range(5)}
    run(left, right)
    for each in (left, right):
        (path,) = (each.store.folder / links.LINKS_NAME).iterdir()
        raw = path.read_bytes()
        match damage:
            case "cut":
                path.write_bytes(raw[:-1])
            case "flipped":
                path.write_bytes(raw[:60] + bytes([raw[60] ^ 1]) + raw[61:])
            case "empty":
                path.write_bytes(b"")
            case "other":
                path.write_bytes(b"lace-link/9\n" + raw[12:])
            case _:
                path.unlink()
                path.mkdir()
    wanted.add(right.add(plex("more")))
    said.clear()
    run(left, right)
    assert hashes(left) == hashes(right) == wanted
    assert count(first_loop(said), "AdvertisementCursor") == 0


@pytest.mark.requirement("050-228")
def test_what_is_longer_than_an_exchange_may_bring_is_not_used(
    sides: tuple[lace.Lace, lace.Lace], said: list[Fact]
) -> None:
    left, right = sides
    select = BY_NAME.replace("'App'", "'Name'")
    added = [right.add(plex(f"{number:04}" * 200)) for number in range(1_400)]
    run(left, right, select)
    assert right.remove(*added[2:]) == len(added) - 2
    said.clear()
    left.settings = replace(left.settings, max_advertised_bytes=MIB)
    run(left, right, select)
    assert count(first_loop(said), "AdvertisementCursor") == 1, "the other side has a short one"
    said.clear()
    run(left, right, select)
    assert count(first_loop(said), "AdvertisementCursor") == 2


RECORD = f"P.{'0' * 43}.H3"


def kept_link(number: int = 0) -> KeptLink:
    records = [f"P.{each:043d}.H3" for each in range(number)]
    advertised = AdvertisementSet.of(records, [bytes([each]) * 32 for each in range(number)])
    return KeptLink(
        cursor=Cursor(advertised, AdvertisementSet(), Schema(names=frozenset({"App", "é"}))),
        claims=ClaimTable((RECORD, "é\n'"), {"Advertised": b"abcd", "AdvertisedField": b""}),
    )


@pytest.mark.parametrize("number", [0, 1, 20])
def test_a_file_says_what_was_kept(tmp_path: Path, number: int) -> None:
    files = LinkFiles(tmp_path)
    assert files.load("a") is None
    files.save("a", kept_link(number))
    found = files.load("a")
    assert found == kept_link(number)
    assert files.load("b") is None
    (path,) = files.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    files.forget("a")
    assert files.load("a") is None


@pytest.mark.requirement("050-116")
def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    """A large file would be written, and waited for, at the end of each exchange."""
    files = LinkFiles(tmp_path)
    path = files._path("a")
    files.save("a", kept_link(20))
    with path.open("rb") as held:  # so that its inode is nobody else's
        first = os.fstat(held.fileno()).st_ino
        os.utime(path, (1, 1))
        files.save("a", kept_link(20))
        assert path.stat().st_ino == first
        assert path.stat().st_mtime > 1, "it was used just now"
        files.save("a", kept_link(19))
        assert path.stat().st_ino != first
    assert files.load("a") == kept_link(19)


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_a_file_that_was_cut_is_written_again(tmp_path: Path, keep: int) -> None:
    files = LinkFiles(tmp_path)
    files.save("a", kept_link(3))
    path = files._path("a")
    path.write_bytes(path.read_bytes()[:keep])
    files.save("a", kept_link(3))
    assert files.load("a") == kept_link(3)


def test_all_fields_are_kept_as_that(tmp_path: Path) -> None:
    files = LinkFiles(tmp_path)
    cursor = Cursor(AdvertisementSet(), AdvertisementSet(), ALL_FIELDS)
    files.save("a", KeptLink(cursor=cursor))
    found = files.load("a")
    assert found is not None
    assert found.cursor.schema == ALL_FIELDS


def test_the_file_of_another_link_is_not_taken(tmp_path: Path) -> None:
    files = LinkFiles(tmp_path)
    files.save("a", kept_link(2))
    files._path("a").rename(files._path("b"))
    assert files.load("b") is None
    assert not files._path("b").exists()


def test_what_a_crash_has_left_is_removed(tmp_path: Path) -> None:
    files = LinkFiles(tmp_path)
    files.save("a", kept_link(2))
    stale, fresh = files.folder / "b.new", files.folder / "c.new"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (1, 1))
    files.save("d", kept_link(3))
    assert not stale.exists()
    assert fresh.exists(), "another process may be writing it"
    assert files.load("a") == kept_link(2)


def test_few_links_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_LINKS", 3)
    files = LinkFiles(tmp_path)
    for number, name in enumerate("abcde"):
        files.save(name, kept_link(1))
        os.utime(files._path(name), (number, number))
    files.save("f", kept_link(1))
    assert [name for name in "abcdef" if files.load(name)] == ["d", "e", "f"]


def test_a_store_that_is_only_read_keeps_nothing(tmp_path: Path) -> None:
    files = LinkFiles(tmp_path, may_write=False)
    files.save("a", kept_link())
    assert not files.folder.exists()
