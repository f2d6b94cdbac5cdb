"""Exchanges of two laces in one process: real stores, real validation, real policies."""

from __future__ import annotations

import pytest

import lace
from lace.errors import ProtocolError

SELECT = """\
SelectHave(P) :- Have(P), Field(P,'Group',_,'u').
SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'u').
"""
EVERYTHING = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
EXPOSE = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
TAI = lace.Tai("1640995200:000000000")


def plex(name: str, group: str = "u", data: bytes = b"x") -> lace.Plex:
    return lace.Plex(group=group, app="ding", name=name, data=data, tai=TAI)


def policy(peer: lace.Lace, select: str = SELECT, expose: str = EXPOSE) -> lace.Policy:
    viewer = peer.keys.default()
    assert viewer is not None
    return lace.Policy(select=select, exposures=[(expose, str(viewer))])


def hashes(store: lace.Lace) -> set[str]:
    with store.snapshot() as snapshot:
        return {str(record.id) for record in snapshot.records()}


def test_two_laces_converge_on_what_both_select(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    mine = {left.add(plex(f"left/{number}")) for number in range(20)}
    theirs = {right.add(plex(f"right/{number}")) for number in range(20)}
    both = plex("both")
    common = {left.add(both), right.add(both)}
    private = right.add(plex("secret", group="private"))
    done = lace.interlace(left, right, policy(right), policy(left))
    assert done
    assert hashes(left) == mine | theirs | common
    assert hashes(right) == mine | theirs | common | {private}
    assert set(done.left.received) == theirs
    assert set(done.right.received) == mine
    assert done.left.counters.requested == done.left.counters.stored == 20
    assert (done.left.rejected, done.left.not_available) == ((), ())
    assert [name for name, _ in done.left.seconds] == [
        "setup",
        "hello",
        "advertise",
        "request",
        "transfer",
    ]
    assert all(0 <= seconds < 60 for _, seconds in done.left.seconds)


def test_again_nothing_moves_and_later_only_what_is_new(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    left, right = sides
    for number in range(50):
        left.add(plex(f"n/{number}"))
    assert lace.interlace(left, right, policy(right), policy(left))
    again = lace.interlace(left, right, policy(right), policy(left))
    assert again.left.counters.requested == again.right.counters.requested == 0
    new = right.add(plex("new"))
    later = lace.interlace(left, right, policy(right), policy(left))
    assert later.left.received == (new,)
    assert later.right.received == ()


def test_seals_and_their_support_come_in_two_loops(sides: tuple[lace.Lace, lace.Lace]) -> None:
    """050-242: evidence that arrives in one loop selects more in the next."""
    left, right = sides
    select = """\
SelectHave(P) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'member').
SelectHave(P) :- Have(P), Field(P,'App',_,'ding'), Field(P,'Signed-By',_,V), Active(V).
SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'App',_,'member').
SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'App',_,'ding'), \
AdvertisedField(P,S,'Signed-By',_,V), Active(V).
Active(V) :- Have(P), Field(P,'App',_,'member'), Field(P,'Name',_,V).
"""
    key, stranger = lace.SigningKey.generate(), lace.SigningKey.generate()
    member = lace.Plex(group="u", app="member", name=str(key.verifier), data=b"", tai=TAI)
    left.add(member)
    wanted = left.add(plex("by a member").seal(key))
    left.add(plex("by a stranger").seal(stranger))
    done = lace.interlace(left, right, policy(right, select), policy(left, select))
    assert done
    assert hashes(right) == {member.id, wanted}
    assert done.right.counters.loops >= 2


def test_with_nothing_exposed_nothing_is_sent(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    left.add(plex("a"))
    alone = lace.Policy(select=EVERYTHING)
    done = lace.interlace(left, right, alone, alone)
    assert done
    assert not hashes(right)


def test_a_hidden_record_that_a_peer_names_does_not_move(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    left, right = sides
    hidden = left.add(plex("hidden", group="private"))
    named = f"SelectHave('{hidden}') :- true.\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    shown = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'u').\n"
    done = lace.interlace(left, right, policy(right, EVERYTHING, shown), policy(left, named))
    assert done
    assert not hashes(right)


def test_sides_that_differ_in_lowering_do_not_agree(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    strict = lace.Policy(select=SELECT, lowering="encrypted-v1")
    with pytest.raises(ProtocolError, match="differ in lowering"):
        lace.interlace(left, right, strict, lace.Policy(select=SELECT))


def test_the_function_stays_a_function(sides: tuple[lace.Lace, lace.Lace]) -> None:
    """The machine's package is loaded by then, and has another name."""
    left, right = sides
    for _ in range(2):
        assert lace.interlace(left, right, policy(right), policy(left))
