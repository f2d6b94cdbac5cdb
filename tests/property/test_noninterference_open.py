"""An open exchange tells nothing of records outside the view, however long it goes on (020-86).

Two laces have the same records inside the view of a peer and others outside of it. Over real
stores, with the shipped driver and reconciliation by partitions, records arrive and go while the
exchange waits. Loop by loop, every byte that leaves is the same; and where only hidden records
arrived, none leaves.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import lace
from lace.base.limits import Settings
from lace.base.tai import Tai
from lace.exchange import events as happened
from lace.exchange.transfer import Transfer
from lace.link import side as exchanging
from lace.link.client import LinkOptions
from lace.link.side import Side, party_of
from lace.store.sqlite.store import SqliteStore
from tests.link.pairing import Pairing
from tests.profiles import examples
from tests.property.test_interlace_simulation import BAITS, LOCAL
from tests.property.test_noninterference_exchanges import hold, listen
from tests.simulator.policies import ALICE, BOB, EXPOSURES, START, pool, secrets

if TYPE_CHECKING:
    from pathlib import Path

    from lace.exchange.effects import SendBatch
    from lace.link.party import Party

pytestmark = [pytest.mark.property, pytest.mark.requirement("020-86", "050-32", "050-195")]
SHOWN = tuple(at for at, each in enumerate(pool()) if each.group == "u")
SECRETS = range(len(secrets()))
THERE = frozenset({9, 11})
"""What the peer has."""
TICKING = (
    f"SelectHave(P) :- Have(P), TickTAI(T), LexCompare(T,'>','{START + 25}:000000000').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S)."
)
"""A selector that reads ticks: loops begin by themselves."""


@dataclass(frozen=True)
class Moment:
    """What happens while the exchange waits: what is in the first store afterwards, and the time.

    `hidden` is what it holds outside the view, in each of the two lives.
    """

    shown: frozenset[int]
    hidden: tuple[frozenset[int], frozenset[int]]
    seconds: int = 0


@dataclass
class OpenLife:
    """One store through an open exchange; the bytes that leave it after each moment."""

    folder: Path
    which: int
    moments: list[Moment]
    bait: str
    local: str
    mode: int
    said: list[bytes] = field(default_factory=list)
    loops: int = 0

    def run(self) -> None:
        stores = [SqliteStore(self.folder / name, create=True) for name in ("here", "there")]
        self._clock = Tai(f"{START}:000000000")
        try:
            hold(stores[1], THERE, frozenset())
            hold(stores[0], self.moments[0].shown, self.moments[0].hidden[self.which])
            self._exchange(stores)
        finally:
            for store in stores:
                store.close()

    def _exchange(self, stores: list[SqliteStore]) -> None:
        parties = self._parties(stores)
        heard: list[bytes] = []
        listen(parties[0], heard)
        link = Pairing(*parties)
        link.start()
        link.run()
        self.said.append(b"".join(heard))
        for moment in self.moments[1:]:
            heard.clear()
            self._clock = self._clock.shift(moment.seconds * 1_000_000_000)
            hold(stores[0], moment.shown, moment.hidden[self.which])
            self._look(parties)
            link.run()
            self.said.append(b"".join(heard))
        for party in parties:
            party.take(happened.Stopped())
        link.run()
        outcome = parties[0].machine.outcome
        assert outcome is not None
        assert outcome.failure is None, outcome.reason
        self.loops = outcome.counters.loops
        for party in parties:
            party.close()

    def _look(self, parties: tuple[Party, Party]) -> None:
        """Tell both what a driver tells them when it looks: that there is news, or an alarm."""
        for party in parties:
            if party.has_news():
                party.take(happened.Changed())
            if party.take_alarm():
                party.take(happened.Woken())

    def _parties(self, stores: list[SqliteStore]) -> tuple[Party, Party]:
        means = Settings(reconcile_mode=self.mode)
        policies = (
            lace.Policy(select=self.local, exposures=[EXPOSURES[1]]),
            lace.Policy(select=self.bait, exposures=[EXPOSURES[0]]),
        )
        with pytest.MonkeyPatch.context() as patch:
            source = random.Random(1).randbytes
            patch.setattr(exchanging, "os", SimpleNamespace(urandom=source))
            here, there = (
                party_of(
                    Side(store, means, policy, key),
                    at,
                    lambda: self._clock,
                    LinkOptions(is_open=True, offer_all=self.mode == 2),
                )
                for at, (store, policy, key) in enumerate(
                    zip(stores, policies, (ALICE, BOB), strict=True)
                )
            )
        return here, there


def lives_of(
    factory: pytest.TempPathFactory, moments: list[Moment], bait: str, local: str, mode: int
) -> tuple[OpenLife, OpenLife]:
    """Both lives, after they have run."""
    one, other = (
        OpenLife(factory.mktemp("open"), which, moments, bait, local, mode) for which in (0, 1)
    )
    one.run()
    other.run()
    return one, other


@settings(
    max_examples=examples(10),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.data(),
    st.sampled_from([*BAITS, TICKING]),
    st.sampled_from(LOCAL),
    st.sampled_from([1, 2]),
)
def test_what_is_hidden_does_not_show_in_an_open_exchange(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    bait: str,
    local: str,
    mode: int,
) -> None:
    some = st.frozensets(st.sampled_from(SHOWN), max_size=8)
    unseen = st.frozensets(st.sampled_from(SECRETS))
    moments = [Moment(data.draw(some), (data.draw(unseen), data.draw(unseen)))]
    for _ in range(3):
        # What is shown only grows, as `hold` takes nothing of it away.
        shown = moments[-1].shown | data.draw(some)
        seconds = data.draw(st.sampled_from([0, 0, 11, 40]))
        moments.append(Moment(shown, (data.draw(unseen), data.draw(unseen)), seconds))
    one, other = lives_of(tmp_path_factory, moments, bait, local, mode)
    assert one.said == other.said
    assert one.loops == other.loops
    assert b"secret " not in b"".join(one.said)
    event(f"loops: {one.loops}")


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("bait", BAITS)
def test_hidden_arrivals_cause_no_bytes(
    tmp_path_factory: pytest.TempPathFactory, bait: str, mode: int
) -> None:
    nothing: frozenset[int] = frozenset()
    everything = frozenset(SECRETS)
    first = frozenset(SHOWN[:4])
    moments = [
        Moment(first, (nothing, nothing)),
        Moment(first, (everything, nothing)),  # arrivals, all of them hidden
        Moment(first | {SHOWN[5]}, (everything, nothing)),
        Moment(first | {SHOWN[5]}, (nothing, everything)),  # some go, others arrive
        Moment(first | {SHOWN[5], SHOWN[6]}, (nothing, everything)),
    ]
    one, other = lives_of(tmp_path_factory, moments, bait, LOCAL[0], mode)
    assert one.said == other.said
    assert one.said[1] == one.said[3] == b""
    assert one.said[0] != b""
    if bait == BAITS[0]:
        assert one.said[2] != b"" != one.said[4], "what is shown does cause bytes"
        assert one.loops > 2


@pytest.mark.parametrize("mode", [1, 2])
def test_a_peer_that_defers_everything_hears_of_no_hidden_arrival(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """Its records stay requestable here, and still only what it may see starts a loop."""
    deferred = {pool()[at].hash_text for at in THERE}
    send = Transfer.send

    def send_none(transfer: Transfer) -> SendBatch:
        made = send(transfer)
        return replace(made, records=tuple(set(made.records) - deferred))

    monkeypatch.setattr(Transfer, "send", send_none)
    nothing: frozenset[int] = frozenset()
    first = frozenset(SHOWN[:4])
    moments = [
        Moment(first, (nothing, nothing)),
        Moment(first, (frozenset(SECRETS), nothing)),
        Moment(first | {SHOWN[5]}, (frozenset(SECRETS), nothing)),
    ]
    one, other = lives_of(tmp_path_factory, moments, BAITS[0], LOCAL[0], mode)
    assert one.said == other.said
    assert not one.said[1]
    assert one.said[2], "what is shown starts a loop all the same"
