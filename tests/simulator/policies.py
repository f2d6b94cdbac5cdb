"""Records and policies for simulated exchanges: made once, chosen from by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from lace.policy.exposure import Exposure, exposure_of
from lace.policy.operand import Operand, operand_of
from lace.record.seal import SigningKey
from tests.store.samples import blob, key, plex, seal, valid

if TYPE_CHECKING:
    from lace.record.model import Record
    from lace.record.validate import ValidRecord

START = 1_700_000_000
"""When simulated exchanges take place, in seconds."""
ALICE, BOB = (SigningKey(bytes([number]) * 32, lambda size: b"\x5a" * size) for number in (41, 42))


@cache
def pool() -> tuple[ValidRecord, ...]:
    """Twenty-eight records of two groups: plain, sealed by three signers, and a few Blobs."""
    made: list[Record] = [blob(f"blob {number}") for number in range(4)]
    for number in range(24):
        inner = plex(
            f"links/{number % 9}" if number % 5 else str(key(1 + number % 3).verifier),
            group="uv"[number % 2],
            app="ding" if number % 5 else "member",
            at=START - 20 + 2 * number,
            data=f"record {number}",
        )
        made.append(seal(inner, 1 + number % 3) if number % 4 == 0 else inner)
    return tuple(valid(*made))


@cache
def secrets() -> tuple[ValidRecord, ...]:
    """Records of a third group, that nobody is to know of."""
    return tuple(
        valid(*(plex(f"links/{n}", group="x", at=START + n, data=f"secret {n}") for n in range(5)))
    )


@dataclass(frozen=True)
class Selector:
    """A selector; what it reads decides how an exchange of it may end."""

    name: str
    rules: str
    is_steady: bool = True
    """Whether an exchange always comes to a fixed point."""
    is_timed: bool = False


SELECTORS = (
    Selector("all", "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."),
    Selector(
        "group",
        "SelectHave(P) :- Have(P), Field(P,'Group',_,'u').\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u').",
    ),
    Selector(
        "of whom it proves to be",
        "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S), Peer(S).",
    ),
    Selector(
        "any value",
        "SelectHave(P) :- Have(P), Field(P,_,_,'u').\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,_,_,'u').",
    ),
    Selector(
        "not v",
        "SelectHave(P) :- Have(P), not Field(P,'Group',_,'v').\n"
        "SelectAdvertised(P,S) :- Advertised(P,S), not AdvertisedField(P,S,'Group',_,'v').",
    ),
    Selector(
        "members",
        "SelectHave(P) :- Have(P), Field(P,'App',_,'member').\n"
        "SelectHave(P) :- Have(P), Field(P,'Signed-By',_,V), Member(V).\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,'App',_,'member').\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Signed-By',_,V), Member(V).\n"
        "Member(V) :- Have(P), Field(P,'App',_,'member'), Field(P,'Name',_,V).",
    ),
    Selector(
        "newest",
        "SelectHave(P) :- Dated(P,_), Cardinality(Before(P,_),'<','5').\n"
        "SelectAdvertised(P,S) :- Claimed(P,S,_), Cardinality(Earlier(P,S,_),'<','5').\n"
        "Dated(P,T) :- Have(P), Field(P,'TAI',_,T).\n"
        "Before(P,Q) :- Dated(P,T), Dated(Q,U), LexCompare(U,'>',T).\n"
        "Claimed(P,S,T) :- AdvertisedField(P,S,'TAI',_,T).\n"
        "Earlier(P,S,Q) :- Claimed(P,S,T), Claimed(Q,S,U), LexCompare(U,'>',T).",
    ),
    Selector(
        "one of a name",
        "SelectHave(P) :- Have(P).\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Name',_,N), not Named(N).\n"
        "Named(N) :- Have(Q), Field(Q,'Name',_,N).",
    ),
    Selector(
        "unless enough",
        "SelectHave(P) :- Have(P), not Rich('yes').\n"
        "SelectAdvertised(P,S) :- Advertised(P,S), not Rich('yes').\n"
        "Rich('yes') :- Have(P), Cardinality(Have(_),'>','12').",
    ),
    Selector(
        "what is new to you",
        "SelectHave(P) :- Have(P), not Seen(P).\n"
        "SelectAdvertised(P,S) :- Advertised(P,S).\n"
        "Seen(P) :- Advertised(P,_).",
        is_steady=False,
    ),
    Selector(
        "if you have v",
        "SelectHave(P) :- Have(P), AdvertisedField(_,_,'Group',_,'v').\n"
        "SelectHave(P) :- Have(P), Field(P,'Group',_,'v').\n"
        "SelectAdvertised(P,S) :- Advertised(P,S).",
        is_steady=False,
    ),
    Selector(
        "in time",
        "SelectHave(P) :- Have(P), Field(P,'TAI',_,T), TickTAI(U), LexCompare(T,'<',U).\n"
        "SelectAdvertised(P,S) :- AdvertisedField(P,S,'TAI',_,T), TickTAI(U),"
        " LexCompare(T,'<',U).",
        is_timed=True,
    ),
    Selector(
        "not too late",
        "SelectHave(P) :- Have(P), not Late('yes').\n"
        "SelectAdvertised(P,S) :- Advertised(P,S).\n"
        f"Late('yes') :- TickTAI(U), LexCompare(U,'>','{START + 25}:000000000').",
        is_timed=True,
    ),
)
EXPOSURES = (
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).",
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'u').",
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Field(P,'Name',_,'links/3').",
    "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'TAI',_,T), _LocalTAI(U), LexCompare(T,'<',U).",
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not _Late(P).\n"
    "_Late(P) :- Field(P,'Group',_,'u'), _LocalTAI(U),"
    f" LexCompare(U,'>','{START + 25}:000000000').",
)


@cache
def operand(rules: str, index: int) -> Operand:
    """The operand of a selector."""
    return operand_of(rules, index)


@cache
def exposure(rules: str) -> Exposure:
    """An exposure for anyone."""
    return exposure_of(rules, anyone=True)
