"""Two exchanges, one after the other, tell nothing of records outside the view (050-32, 050-238).

Two laces have the same records inside the view of a peer and others outside of it, which the
peer neither has nor advertises. Over real stores, with what is kept of the first exchange
used in the second, every byte that leaves is the same, whatever rules the peer brings, and
whatever changes in between, inside the view alike and outside of it not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import lace
from lace.base.limits import Settings
from lace.base.tai import Tai
from lace.link import side as exchanging
from lace.link.client import LinkOptions
from lace.link.messages import EndMessage, Outbound
from lace.link.side import Side, party_of
from lace.store.sqlite.store import SqliteStore
from tests.link.pairing import Pairing
from tests.profiles import examples
from tests.property.test_interlace_simulation import BAITS, LOCAL
from tests.simulator.policies import ALICE, BOB, EXPOSURES, START, pool, secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.exchange.result import Outcome
    from lace.link.messages import Message
    from lace.link.party import Party

pytestmark = [pytest.mark.property, pytest.mark.requirement("050-32", "050-238", "050-157")]
NUMBERS = range(len(pool()))
SECRETS = range(len(secrets()))
NOW = Tai(f"{START}:000000000")


@dataclass(frozen=True)
class Moment:
    """What the stores hold before an exchange; of the first one, twice."""

    here: frozenset[int]
    there: frozenset[int]
    hidden: tuple[frozenset[int], frozenset[int]]


@dataclass
class Life:
    """Two stores through some exchanges, and the bytes that leave the first one in each."""

    folder: Path
    which: int
    moments: list[Moment]
    bait: str
    local: str
    mode: int
    options: LinkOptions
    said: list[bytes] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self) -> None:
        stores = [SqliteStore(self.folder / name, create=True) for name in ("here", "there")]
        try:
            for moment in self.moments:
                hold(stores[0], moment.here, moment.hidden[self.which])
                hold(stores[1], moment.there, frozenset())
                self._exchange(stores)
        finally:
            for store in stores:
                store.close()

    def _exchange(self, stores: list[SqliteStore]) -> None:
        means = Settings(reconcile_mode=self.mode)
        policies = (
            lace.Policy(select=self.local, exposures=[EXPOSURES[1]]),
            lace.Policy(select=self.bait, exposures=[EXPOSURES[0]]),
        )
        source = random.Random(len(self.said)).randbytes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exchanging, "os", SimpleNamespace(urandom=source))
            parties = [
                party_of(Side(store, means, policy, key), at, lambda: NOW, options=self.options)
                for at, (store, policy, key) in enumerate(
                    zip(stores, policies, (ALICE, BOB), strict=True)
                )
            ]
        heard: list[bytes] = []
        listen(parties[0], heard)
        link = Pairing(*parties)
        link.start()
        link.run()
        for party in parties:
            party.close()
        outcome = parties[0].machine.outcome
        assert outcome is not None
        assert outcome.failure is None, outcome.reason
        self.outcomes.append(outcome)
        self.said.append(b"".join(heard))


def hold(store: SqliteStore, shown: frozenset[int], hidden: frozenset[int]) -> None:
    """Let a store have these records, beside those that exchanges have brought."""
    everything = [*pool(), *secrets()]
    wanted = {pool()[at].hash_text for at in shown} | {secrets()[at].hash_text for at in hidden}
    with store.snapshot() as snapshot:
        held = {record.hash_text for record in snapshot.records()}
    gone = {each.hash_text for each in secrets()} - wanted
    store.remove([each.id for each in everything if each.hash_text in held & gone])
    store.admit([each for each in everything if each.hash_text in wanted - held])


def listen(party: Party, heard: list[bytes]) -> None:
    """Note the bytes that a party would put on a stream."""
    outbound = Outbound(max_block_bytes=2**26)
    messages = party.messages

    def noting() -> Iterator[Message]:
        for message in messages():
            if not isinstance(message, EndMessage):
                heard.extend(outbound.pieces(message))
            yield message

    party.messages = noting  # type: ignore[method-assign]


def _moments(data: st.DataObject) -> list[Moment]:
    some = st.frozensets(st.sampled_from(NUMBERS), min_size=4, max_size=12)
    unseen = st.frozensets(st.sampled_from(SECRETS))
    return [
        Moment(data.draw(some), data.draw(some), (data.draw(unseen), data.draw(unseen)))
        for _ in range(2)
    ]


@settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.data(),
    st.sampled_from(BAITS),
    st.sampled_from(LOCAL),
    st.sampled_from([2, 2, 2, 1, 0]),  # cursors are for mode 2
    st.booleans(),
)
def test_what_is_hidden_does_not_show_in_two_exchanges(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    bait: str,
    local: str,
    mode: int,
    offer_all: bool,
) -> None:
    moments = _moments(data)
    lives = [
        Life(
            tmp_path_factory.mktemp("life"), which, moments, bait, local, mode,
            LinkOptions(offer_all=offer_all),
        )
        for which in (0, 1)
    ]  # fmt: skip
    for life in lives:
        life.run()
    one, other = lives
    assert one.said[0] == other.said[0]
    assert one.said[1] == other.said[1]
    assert b"secret " not in b"".join(one.said)
    assert all(outcome.cursor_updated for outcome in one.outcomes)
    event("a cursor is named" if b"AdvertisementCursor" in one.said[1] else "no cursor")
    event("records leave" if one.outcomes[1].counters.bytes_sent else "none leave")


def test_a_cursor_is_used_and_what_is_shown_differs(tmp_path: Path) -> None:
    """The second exchange does use what was kept, and bytes do differ where the view does."""
    nothing = (frozenset[int](), frozenset[int]())
    first = Moment(frozenset({4, 6, 8}), frozenset({10}), nothing)
    lives = []
    for which, more in enumerate(({12}, {12, 14})):
        moments = [first, Moment(first.here | more, first.there, nothing)]
        folder = tmp_path / str(which)
        folder.mkdir()
        life = Life(folder, 0, moments, BAITS[0], LOCAL[1], 2, LinkOptions())
        life.run()
        lives.append(life)
    one, other = lives
    assert one.said[0] == other.said[0]
    assert b"AdvertisementCursor" not in one.said[0]
    assert b"AdvertisementCursor" in one.said[1]
    assert one.said[1] != other.said[1]
