"""Modules kept across connections: for a peer that its transport proves, and for nobody else."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

import pytest

import lace
from lace.base.limits import Settings
from lace.exchange.blocks import format_block
from lace.exchange.failures import Failure
from lace.exchange.hello import make_setup
from lace.iltp.items import PREFACE
from lace.link.resources import LinkSupervisor
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.record.ids import Verifier
from lace.store.links import ModuleFiles
from tests.hostile.kit import Peer, connect_to
from tests.link.test_pairing import EVERYTHING, EXPOSE, SELECT, plex, policy

if TYPE_CHECKING:
    from pathlib import Path

ME = os.getuid()
R = "R." + "0" * 43
ALICE, BOB = (str(lace.SigningKey.generate().verifier) for _ in range(2))


def verifier(store: lace.Lace) -> str:
    return str(store.keys.default())


def setup_of(select: str, claim: str | None) -> bytes:
    """Preface and setup without a nonce, and without the bytes of the module."""
    who = None if claim is None else Verifier(claim)
    setup = make_setup(operand_of(select, 0), verifier=who)
    return PREFACE + format_block(setup.facts)


def ask(address: str, select: str, claim: str | None = None) -> bytes:
    """Leave the module out, and return all that the server says before it closes."""
    peer = Peer(connect_to(address))
    peer.send(setup_of(select, claim))
    try:
        return peer.outcome()
    finally:
        peer.connection.close()


def bring(
    tmp_path: Path, sides: tuple[lace.Lace, lace.Lace], select: str = SELECT
) -> tuple[str, str]:
    """Let the left side bring a selector to the right one, over a transport that proves both."""
    left, right = sides
    with (
        lace.serve(
            f"unix:{tmp_path}/first",
            right,
            policy(left, EVERYTHING),
            plain=True,
            claim=verifier(right),
            uid_map={ME: verifier(left)},
        ) as server,
        lace.connect(
            server.address,
            left,
            policy(right, select),
            plain=True,
            claim=verifier(left),
            uid_map={ME: verifier(right)},
        ) as link,
    ):
        assert link.result(60).at_fixed_point
    return verifier(left), verifier(right)


def kept(store: lace.Lace) -> list[Path]:
    return sorted((store.store.folder / "links" / "modules").glob("*"))


@pytest.mark.requirement("050-88", "060-95")
def test_a_peer_that_its_transport_proves_may_leave_a_module_out(
    tmp_path: Path, sides: tuple[lace.Lace, lace.Lace]
) -> None:
    left, right = sides
    mine, _ = bring(tmp_path, sides)
    assert len(kept(right)) == 1
    users = {ME: mine}
    theirs = policy(left, EVERYTHING)
    plan = make_plan(operand_of(SELECT, 0), operand_of(EVERYTHING, 1))
    with lace.serve(f"unix:{tmp_path}/s", right, theirs, plain=True, uid_map=users) as server:
        for claim in (mine, None):
            peer = Peer(connect_to(server.address))
            peer.send(setup_of(SELECT, claim))
            _, modules = peer.read_block()
            assert list(modules.values()) == [EVERYTHING.strip()], "Lace itself leaves none out"
            hello, _ = peer.read_block()
            assert ("HelloExchangePlan", plan.id) in hello
            peer.connection.close()
        unknown = SELECT.replace("'u'", "'v'")
        assert b"HelloExchangePlan" not in ask(server.address, unknown, mine)
        shutil.rmtree(right.store.folder / "links")
        assert b"HelloExchangePlan" not in ask(server.address, SELECT, mine), "gone with the links"


@pytest.mark.requirement("050-89", "060-97")
@pytest.mark.parametrize("asker", ["unproven", "claiming", "another"])
def test_nobody_else_can_ask_whether_it_is_here(
    tmp_path: Path,
    sides: tuple[lace.Lace, lace.Lace],
    monkeypatch: pytest.MonkeyPatch,
    asker: str,
) -> None:
    """Cached or not, the bytes are the same; and only one's own name is ever looked up."""
    left, right = sides
    mine = verifier(left)
    looked_up: list[str] = []
    get = ModuleFiles.get

    def noting(self: ModuleFiles, who: str, module_id: str, /) -> bytes | None:
        looked_up.append(who)
        return get(self, who, module_id)

    answers: list[bytes] = []
    users = {ME: BOB} if asker == "another" else None
    claim = {"unproven": None, "claiming": mine, "another": BOB}[asker]
    for is_kept in (False, True):
        if is_kept:
            bring(tmp_path, sides)
            assert len(kept(right)) == 1
        with monkeypatch.context() as patch:
            patch.setattr(ModuleFiles, "get", noting)
            address = f"unix:{tmp_path}/{is_kept}"
            with lace.serve(
                address, right, policy(left, EVERYTHING), plain=True, uid_map=users
            ) as server:
                answers.append(ask(server.address, SELECT, claim))
            (served,) = server.served
            assert served.outcome is not None
            assert served.outcome.failure is not None
            assert served.outcome.failure.failure is Failure.MISSING_MODULE
    assert answers[0] == answers[1]
    assert answers[0].endswith(b"'selector')\n\n"), "its setup and nothing more"
    assert looked_up == ([BOB, BOB] if asker == "another" else [])


@pytest.mark.requirement("050-89", "060-95")
def test_a_signature_comes_too_late(tmp_path: Path, sides: tuple[lace.Lace, lace.Lace]) -> None:
    """A key is proven in hello, after the plan: until then it is but a claim."""
    left, right = sides
    bring(tmp_path, sides)
    key = left.signing_key()
    assert key is not None
    with lace.serve("tcp:127.0.0.1:0", right, policy(left, EVERYTHING)) as server:
        peer = Peer(connect_to(server.address))
        setup = make_setup(operand_of(SELECT, 0), verifier=key.verifier, nonce=b"\x01" * 32)
        peer.send(PREFACE + format_block(setup.facts))
        assert b"HelloExchangePlan" not in peer.outcome()
        peer.connection.close()
    with (
        lace.serve("tcp:127.0.0.1:0", right, policy(left, EVERYTHING)) as server,
        lace.connect(server.address, left, policy(right, EVERYTHING)) as link,
    ):
        assert link.result(60).at_fixed_point
    assert len(kept(right)) == 1, "what could not be asked for is not kept either"


@pytest.mark.requirement("060-95")
def test_ones_own_operand_is_known_to_whom_it_was_sent(
    tmp_path: Path, sides: tuple[lace.Lace, lace.Lace]
) -> None:
    """It goes out with setup, before anything is read; so the peer may name it in turn."""
    left, right = sides
    with lace.serve(f"unix:{tmp_path}/s", right, policy(left, EVERYTHING), plain=True) as server:
        peer = Peer(connect_to(server.address))
        peer.send(setup_of(EVERYTHING, None))
        _, modules = peer.read_block()
        assert list(modules.values()) == [EVERYTHING.strip()]
        hello, _ = peer.read_block()
        assert any(fact[0] == "HelloExchangePlan" for fact in hello)
        peer.connection.close()


def test_what_moved_is_the_same_without_a_cache(
    tmp_path: Path, sides: tuple[lace.Lace, lace.Lace]
) -> None:
    left, right = sides
    record = left.add(plex("a"))
    with lace.open(right.store.folder, settings={"max_cached_modules": 0}) as none:
        bring(tmp_path, (left, none))
    assert record in right
    assert kept(right) == []


# -- the files -----------------------------------------------------------------------------------


def files(folder: Path, **settings: int) -> ModuleFiles:
    return ModuleFiles(folder, Settings(**settings))


def test_a_module_is_kept_for_one_peer(tmp_path: Path) -> None:
    cache = files(tmp_path)
    cache.save(ALICE, R, b"A(P) :- Have(P).")
    assert cache.get(ALICE, R) == b"A(P) :- Have(P)."
    assert cache.get(BOB, R) is None
    assert cache.get(ALICE, "R." + "1" * 43) is None
    (path,) = cache.folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert ALICE not in path.name


@pytest.mark.parametrize("damage", ["cut", "changed", "of another", "empty", "folder"])
def test_what_is_not_whole_counts_for_nothing(tmp_path: Path, damage: str) -> None:
    cache = files(tmp_path)
    cache.save(ALICE, R, b"text")
    (path,) = cache.folder.iterdir()
    raw = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(raw[:-1])
        case "changed":
            path.write_bytes(raw.replace(b"text", b"tent"))
        case "of another":
            cache.save(BOB, R, b"text")
            (other,) = set(cache.folder.iterdir()) - {path}
            other.replace(path)
        case "empty":
            path.write_bytes(b"")
        case _:
            path.unlink()
            path.mkdir()
    assert cache.get(ALICE, R) is None
    if damage != "folder":
        cache.save(ALICE, R, b"text")
        assert cache.get(ALICE, R) == b"text", "and it is replaced"


def test_limits(tmp_path: Path) -> None:
    names = ["R." + letter * 43 for letter in "0123456789"]

    def count(cache: ModuleFiles, who: str) -> list[int]:
        found = [number for number, name in enumerate(names) if cache.get(who, name) is not None]
        assert len(list(cache.folder.iterdir())) >= len(found)
        return found

    of_peer = files(tmp_path / "a", max_cached_modules_of_peer=3)
    of_peer.save(BOB, R, b"his")
    for at, name in enumerate(names):
        of_peer.save(ALICE, name, b"hers")
        (path,) = [each for each in of_peer.folder.iterdir() if each == of_peer._path(ALICE, name)]
        os.utime(path, ns=(at + 1, at + 1))
    assert count(of_peer, ALICE) == [7, 8, 9], "the last three"
    assert of_peer.get(BOB, R) == b"his", "one peer does not push out another's"
    in_all = files(tmp_path / "b", max_cached_modules=2, max_cached_modules_of_peer=2)
    for at, name in enumerate(names):
        in_all.save(ALICE if at % 2 else BOB, name, b"text")
        os.utime(in_all._path(ALICE if at % 2 else BOB, name), ns=(at + 1, at + 1))
    assert (count(in_all, ALICE), count(in_all, BOB)) == ([9], [8])
    in_bytes = files(tmp_path / "c", max_cached_module_bytes=1_000)
    for at, name in enumerate(names):
        in_bytes.save(ALICE, name, b"x" * 300)
        os.utime(in_bytes._path(ALICE, name), ns=(at + 1, at + 1))
    assert sum(each.stat().st_size for each in in_bytes.folder.iterdir()) <= 1_000
    assert count(in_bytes, ALICE) == [8, 9]
    in_bytes.save(BOB, R, b"x" * 1_001)
    assert in_bytes.get(BOB, R) is None, "one that is too large pushes out none"
    assert count(in_bytes, ALICE) == [8, 9]


def test_nothing_is_written_where_nothing_may_be(tmp_path: Path) -> None:
    quiet = ModuleFiles(tmp_path, Settings(), may_write=False)
    quiet.save(ALICE, R, b"text")
    files(tmp_path, max_cached_modules=0).save(ALICE, R, b"text")
    files(tmp_path, max_cached_modules_of_peer=0).save(ALICE, R, b"text")
    assert not quiet.folder.exists()


def test_what_a_crash_has_left_is_removed(tmp_path: Path) -> None:
    cache = files(tmp_path)
    cache.save(ALICE, R, b"text")
    stale, fresh = cache.folder / "a.b.new", cache.folder / "c.d.new"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (1, 1))
    cache.save(BOB, R, b"text")
    assert not stale.exists()
    assert fresh.exists(), "another process may be writing it"
    assert cache.get(ALICE, R) == b"text"


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    cache = files(tmp_path)
    cache.folder.mkdir()
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    cache._path(ALICE, R).with_suffix(".new").symlink_to(target)
    cache.save(ALICE, R, b"text")
    assert target.read_bytes() == b"mine"


@pytest.mark.parametrize("is_named", [True, False])
def test_links_of_a_verifier_that_the_policy_names_share_a_turn(
    tmp_path: Path,
    sides: tuple[lace.Lace, lace.Lace],
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,
) -> None:
    """Anyone can make verifiers; those of strangers share the turn of strangers."""
    left, right = sides
    groups: list[str] = []
    monkeypatch.setattr(LinkSupervisor, "belong_to", lambda _, group: groups.append(group))
    if is_named:
        bring(tmp_path, sides)
        assert sorted(groups) == sorted([verifier(left), verifier(right)])
        return
    anyone = lace.Policy(EVERYTHING, [EXPOSE])
    users = ({ME: verifier(right)}, {ME: verifier(left)})
    with (
        lace.serve(
            f"unix:{tmp_path}/s", right, anyone, plain=True, claim=verifier(right), uid_map=users[1]
        ) as server,
        lace.connect(
            server.address, left, anyone, plain=True, claim=verifier(left), uid_map=users[0]
        ) as link,
    ):
        assert link.result(60).at_fixed_point
    assert not groups
