"""A party by itself: what it tells its rules, gives out in pieces, and how it ends early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import lace
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.failures import Failure
from lace.link.client import LinkOptions
from lace.link.evaluator import StoreEvaluator
from lace.link.messages import Records
from lace.link.resources import CancelReason
from lace.link.side import Side, party_of
from lace.transport.duplex import Proven
from lace.transport.memory import MEMORY
from tests.link.clocks import Clock
from tests.link.pairing import Pairing
from tests.link.test_pairing import EVERYTHING, EXPOSE, SELECT, hashes, plex

if TYPE_CHECKING:
    from lace.link.party import Party

Sides = tuple[lace.Lace, lace.Lace]
KIB = 2**10


def parties_of(
    sides: Sides,
    *,
    select: str = EVERYTHING,
    lowering: str = "standard-v1",
    proven: Proven = MEMORY,
    signs: bool = True,
    is_open: bool = False,
) -> tuple[Party, Party]:
    """Two parties that expose everything to anybody."""
    policy = lace.Policy(select, [EXPOSE], lowering=lowering)
    left, right = (
        party_of(
            Side(each.store, each.settings, policy, each.signing_key() if signs else None),
            index,
            Clock(),
            LinkOptions(is_open=is_open),
            proven=proven,
        )
        for index, each in enumerate(sides)
    )
    return left, right


def run(parties: tuple[Party, Party]) -> None:
    link = Pairing(*parties)
    link.start()
    link.run()


@pytest.mark.requirement("050-28", "050-34", "060-117", "060-124", "060-135")
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("signs", [False, True])
def test_a_transport_is_encrypted_if_it_proves_that_or_a_pinned_key_is_proven(
    sides: Sides, encrypted: bool, pinned: bool, signs: bool
) -> None:
    """A pinned certificate says nothing until the peer has signed over the channel."""
    left, right = sides
    record = left.add(plex("one"))
    proven = Proven(transport="wss:host:1", encrypted=encrypted, is_pinned=pinned)
    parties = parties_of(sides, lowering="encrypted-v1", proven=proven, signs=signs)
    run(parties)
    for party in parties:
        assert party.machine.outcome is not None
        assert party.machine.outcome.failure is None
        party.close()
    assert hashes(right) == ({record} if encrypted or (pinned and signs) else set())


def test_what_cannot_be_stored_ends_it_and_is_something_done(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for work looks again at what there is to say: that it is over."""
    left, right = parties_of(sides)
    left.take(happened.Started())

    def fail(**_: bool) -> list[object]:
        raise OSError("no room")

    monkeypatch.setattr(left._intake, "work", fail)
    assert left.work()
    assert left.machine.outcome is not None
    assert left.machine.outcome.failure is not None
    assert left.machine.outcome.failure.failure is Failure.STORE_FAILED
    left.close()
    right.close()


@pytest.mark.parametrize("reason", list(CancelReason))
def test_a_cancelled_evaluation_ends_it_as_what_cancelled_it_says(
    sides: Sides, reason: CancelReason
) -> None:
    sides[0].add(plex("one"))
    parties = parties_of(sides)
    parties[0].supervisor.cancel(reason)
    run(parties)
    found, other = (party.machine.outcome for party in parties)
    assert found is not None
    assert other is not None
    assert other.failure is not None
    assert other.failure.failure is Failure.PEER_CLOSED
    if reason is CancelReason.STOPPED:
        assert found.failure is None
        assert found.reason == "stopped before a fixed point"
    else:
        assert found.failure is not None
        assert found.failure.failure is Failure.PEER_CLOSED
    assert parties[0].error is None
    for party in parties:
        party.close()
    assert not hashes(sides[1])


def test_records_are_given_out_in_pieces_of_256_kib(sides: Sides) -> None:
    """So that a link holds no more of a batch at once, and a slow peer does not stretch it."""
    raws = {f"P.{number}.H3": bytes(16 * KIB) for number in range(40)}

    class Snapshot:
        def __enter__(self) -> Snapshot:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def bytes_of(self, records: tuple[str, ...]) -> object:
            return ((record, raws[record]) for record in records)

    party, other = parties_of(sides)
    party._store = cast("Any", SimpleNamespace(snapshot=Snapshot))
    heard: list[object] = []
    party.take = heard.append  # type: ignore[method-assign, assignment]
    party._do(wanted.SendBatch(tuple(raws), (), 2**40, 1000))
    sent = [len(each.records) for each in party.messages() if isinstance(each, Records)]
    assert sent == [16, 16, 8]
    assert heard == [happened.BatchSent(tuple(raws), (), 640 * KIB)]
    for each in (party, other):
        each.close()


def test_a_field_is_left_out_where_its_line_is_too_long_under_that_source(sides: Sides) -> None:
    """A label may hold what is escaped on a line (G27)."""
    record = sides[0].add(plex("one"))
    parties = parties_of(sides, select=SELECT, is_open=True)
    run(parties)
    evaluator = parties[0]._evaluator
    assert isinstance(evaluator, StoreEvaluator)
    source = "it's"
    line = f"AdvertisedField('{record}','it\\'s','Group','0','u')"
    for most, fields in ((len(line), (("Group", "0", "u"),)), (len(line) - 1, ())):
        evaluator._max_line_bytes = most
        (described,) = evaluator.describe(wanted.Describe((record,), source)).advertisements
        assert described.record == record
        assert described.fields == fields
    for party in parties:
        party.close()
