"""A field outside the offered schema does not show: not in one byte, in any mode (040-106).

Two stores hold the same records and read them alike, but for one field: to the one it says this,
to the other that. Whatever a side sends is the same then, unless it offers that field.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import lace
from lace.base.limits import Settings
from lace.exchange import events as happened
from lace.facts import extract as columns
from lace.link import side as exchanging
from lace.link.client import LinkOptions
from lace.link.messages import BlockMessage, EndMessage, Outbound
from lace.link.side import Side, party_of
from lace.store.sqlite.store import SqliteStore
from tests.link.pairing import Pairing
from tests.simulator.policies import ALICE, BOB, EXPOSURES, START
from tests.store.samples import valid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.link.messages import Message
    from lace.link.party import Party

NOW = lace.Tai(f"{START:010d}:000000000")
VALUES = b"the first of two", b"the other of two"
EVERYTHING = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
GROUP = (
    "SelectHave(P) :- Have(P).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,_).\n"
)
SECRET = GROUP.replace("'Group'", "'Secret'")
ANY_FIELD = GROUP.replace("'Group'", "_")


def records(count: int, beginning: str) -> list[lace.Plex]:
    return [
        lace.Plex(
            group="u",
            app="d",
            name=f"{beginning}/{number}",
            data=b"x",
            tai=NOW,
            headers=[("Secret", VALUES[0].decode()), ("Topic", "t")],
        )
        for number in range(count)
    ]


def says(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    """Let the field of every record say something else than its bytes do."""
    read = columns._add_headers

    def other(made: columns.FactColumns, row: int, head: bytes) -> None:
        read(made, row, head.replace(VALUES[0], value))

    monkeypatch.setattr(columns, "_add_headers", other)


def transcript(
    folder: Path, mode: int, policies: tuple[lace.Policy, lace.Policy], *, is_open: bool
) -> tuple[bytes, bytes]:
    """What the side of the first policy sends: all of it, and its blocks alone."""
    stores = [SqliteStore(folder / name, create=True) for name in ("here", "there")]
    stores[0].admit(valid(*records(40, "both") + records(9, "here")))
    stores[1].admit(valid(*records(40, "both") + records(9, "there")))
    means = Settings(reconcile_mode=mode)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchanging, "os", SimpleNamespace(urandom=random.Random(1).randbytes))
        parties = [
            party_of(Side(store, means, policy, key), at, lambda: NOW, LinkOptions(is_open=is_open))
            for at, (store, policy, key) in enumerate(
                zip(stores, policies, (ALICE, BOB), strict=True)
            )
        ]
    whole: list[bytes] = []
    blocks: list[bytes] = []
    listen(parties[0], whole, blocks)
    link = Pairing(*parties)
    link.start()
    link.run()
    if is_open:
        stores[0].admit(valid(*records(3, "later")))
        for party in parties:
            if party.has_news():
                party.take(happened.Changed())
        link.run()
        for party in parties:
            party.take(happened.Stopped())
        link.run()
    for party in parties:
        party.close()
    for store in stores:
        store.close()
    return b"".join(whole), b"".join(blocks)


def listen(party: Party, whole: list[bytes], blocks: list[bytes]) -> None:
    outbound, messages = Outbound(max_block_bytes=2**26), party.messages

    def noting() -> Iterator[Message]:
        for message in messages():
            if not isinstance(message, EndMessage):
                pieces = list(outbound.pieces(message))
                whole.extend(pieces)
                if isinstance(message, BlockMessage):
                    blocks.extend(pieces)
            yield message

    party.messages = noting  # type: ignore[method-assign]


def policy(select: str, **offer: object) -> lace.Policy:
    return lace.Policy(select=select, exposures=[EXPOSURES[0]], **offer)  # type: ignore[arg-type]


OURS = {
    "default": lambda: policy(EVERYTHING),
    "some": lambda: policy(GROUP, fields=["Group", "Topic"]),
    "none": lambda: policy(EVERYTHING, fields=[]),
}
THEIRS = {
    "all": lambda: policy(EVERYTHING, all_fields=True),
    "group": lambda: policy(GROUP, all_fields=True),
    "secret": lambda: policy(SECRET, all_fields=True),
    "any": lambda: policy(ANY_FIELD, all_fields=True),
}


def both(
    folder: Path, mode: int, ours: lace.Policy, theirs: lace.Policy, *, is_open: bool
) -> list[tuple[bytes, bytes]]:
    """What is sent of each of the two stores."""
    found = []
    for number, value in enumerate(VALUES):
        with pytest.MonkeyPatch.context() as patch:
            says(patch, value)
            place = folder / str(number)
            place.mkdir()
            found.append(transcript(place, mode, (ours, theirs), is_open=is_open))
    return found


@pytest.mark.requirement("040-106", "050-151")
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_field_that_is_not_offered_does_not_show(
    tmp_path: Path, mode: int, ours: str, theirs: str, *, is_open: bool
) -> None:
    one, other = both(tmp_path, mode, OURS[ours](), THEIRS[theirs](), is_open=is_open)
    assert one[0] == other[0]
    for _, blocks in (one, other):
        assert b"'Secret'" not in blocks
        assert not any(value in blocks for value in VALUES)
    if theirs in ("secret", "any"):
        assert b"Advertised('" not in one[1], "there is no exchange with such a peer"


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_field_that_is_offered_shows(tmp_path: Path, mode: int) -> None:
    """Otherwise the test above would see nothing."""
    ours = policy(EVERYTHING, fields=["Secret"])
    one, other = both(tmp_path, mode, ours, THEIRS["secret"](), is_open=False)
    assert one[0] != other[0]
    assert VALUES[0] in one[1]
    assert VALUES[1] in other[1]
