"""Which fields and formats a side offers: by policy, call, setting and default (040-106)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lace
from lace.errors import PolicyError, ProtocolError, SettingError, UsageError
from lace.exchange import events as happened
from lace.exchange.machine import Machine
from tests.link.test_pairing import EVERYTHING, EXPOSE, SELECT, hashes

if TYPE_CHECKING:
    from lace.exchange.effects import Effect

Sides = tuple[lace.Lace, lace.Lace]
TOPIC = (
    "SelectHave(P) :- Have(P).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Topic',_,_).\n"
)
ANY_FIELD = (
    "SelectHave(P) :- Have(P).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,_,_,_).\n"
)


class Said:
    """The names that hellos and advertisements of one side have, by the index of who heard them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hello: dict[int, set[str]] = {0: set(), 1: set()}
        self.advertised: dict[int, set[str]] = {0: set(), 1: set()}
        receive = Machine.receive

        def noting(machine: Machine, event: happened.Event, *now: lace.Tai) -> list[Effect]:
            if isinstance(event, happened.BlockReceived):
                sender = 1 - machine.config.operand.index
                for fact in event.facts:
                    if fact[0] == "HelloAdvertisedField":
                        self.hello[sender].add(fact[1])
                    if fact[0] == "HelloAllAdvertisedFields":
                        self.hello[sender].add("*")
                    if fact[0] == "AdvertisedField":
                        self.advertised[sender].add(fact[3])
            return receive(machine, event, *now)

        monkeypatch.setattr(Machine, "receive", noting)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(monkeypatch)


@pytest.fixture
def filled(sides: Sides) -> Sides:
    for each, name in zip(sides, "lr", strict=True):
        made = lace.Plex(group="u", app="d", name=name, data=b"x", headers=[("Topic", "t")])
        each.add(made)
    return sides


def policy(select: str = EVERYTHING, **offer: object) -> lace.Policy:
    return lace.Policy(select=select, exposures=[EXPOSE], **offer)  # type: ignore[arg-type]


@pytest.mark.requirement("040-106", "050-123", "050-124")
def test_fields_that_a_policy_names_are_offered_and_no_others(filled: Sides, said: Said) -> None:
    left, right = filled
    ours = policy(SELECT, fields=["Group", "Name", "Topic"])
    assert lace.interlace(left, right, ours, policy(SELECT, all_fields=True))
    assert said.hello == {0: {"Group", "Name", "Topic"}, 1: {"*"}}
    assert said.advertised == {0: {"Group", "Name", "Topic"}, 1: {"Group", "Name", "Topic"}}


@pytest.mark.requirement("040-106", "050-130")
@pytest.mark.parametrize("asking", [TOPIC, ANY_FIELD])
def test_a_rule_of_the_peer_does_not_widen_what_is_offered(
    filled: Sides, said: Said, asking: str
) -> None:
    left, right = filled
    with pytest.raises(ProtocolError, match="unsupported advertisement field schema"):
        lace.interlace(left, right, policy(EVERYTHING), policy(asking))
    assert "Topic" not in said.hello[0]
    assert "*" not in said.hello[0]
    assert said.advertised[0] == set()
    assert len(hashes(left)) == len(hashes(right)) == 1


@pytest.mark.requirement("040-106")
@pytest.mark.parametrize("asking", [TOPIC, ANY_FIELD])
def test_what_the_peer_asks_for_can_be_offered(filled: Sides, said: Said, asking: str) -> None:
    left, right = filled
    assert lace.interlace(left, right, policy(all_fields=True), policy(asking))
    assert "Topic" in said.advertised[0]
    assert len(hashes(right)) == 2


@pytest.mark.requirement("050-130")
def test_standard_fields_are_offered_when_the_peer_asks_for_them(filled: Sides, said: Said) -> None:
    left, right = filled
    assert lace.interlace(left, right, policy(EVERYTHING), policy(SELECT))
    assert said.hello == {0: {"Group"}, 1: {"Group"}}
    assert hashes(left) == hashes(right)


@pytest.mark.requirement("050-130")
def test_a_field_of_ones_own_selector_is_offered(filled: Sides, said: Said) -> None:
    left, right = filled
    assert lace.interlace(left, right, policy(TOPIC), policy(TOPIC))
    assert said.hello == {0: {"Topic"}, 1: {"Topic"}}


def test_settings_and_who_counts_before_them(filled: Sides, said: Said) -> None:
    left, right = filled
    some = {"offer_fields": ["Group", "Topic"]}
    with lace.open(left.store.folder, settings=some) as here:
        assert here.settings.offer_fields == ("Group", "Topic")
        assert lace.interlace(here, right, policy(SELECT), policy(SELECT, all_fields=True))
        assert said.hello[0] == {"Group", "Topic"}
        said.hello[0].clear()
        only = policy(SELECT, fields=["Group"])
        assert lace.interlace(here, right, only, policy(SELECT), offer_all=True)
        assert said.hello[0] == {"Group"}, "a policy counts before a call and a setting"
        said.hello[0].clear()
        assert lace.interlace(here, right, policy(SELECT), policy(SELECT), offer_all=True)
        assert said.hello[0] == {"*"}, "a call counts before a setting"


def test_no_field_at_all(filled: Sides, said: Said) -> None:
    left, right = filled
    assert lace.interlace(left, right, policy(fields=[]), policy(all_fields=True))
    assert said.hello[0] == set()
    assert said.advertised == {0: set(), 1: set()}
    with pytest.raises(ProtocolError, match=r"which (the peer|this side) does not offer"):
        lace.interlace(left, right, policy(fields=[]), policy(SELECT))


@pytest.mark.requirement("050-119", "050-122")
def test_formats(filled: Sides) -> None:
    left, right = filled
    assert lace.interlace(left, right, policy(formats=["H3"]), policy())
    for wrong in ([], ["H4"], ["H3", "x"], [3]):
        with pytest.raises(PolicyError):
            policy(formats=wrong)
    with pytest.raises(UsageError):
        policy(formats="H3")
    with lace.open(left.store.folder, settings={"record_formats": "H3"}) as here:
        assert here.settings.record_formats == ("H3",)
        assert lace.interlace(here, right, policy(), policy())
    with pytest.raises(SettingError, match="must be one of H3, got 'H4'"):
        lace.open(left.store.folder, settings={"record_formats": ["H4"]})


@pytest.mark.parametrize(
    ("offer", "error"),
    [
        ({"fields": "Group"}, UsageError),
        ({"fields": ["a b"]}, PolicyError),
        ({"fields": ["a:"]}, PolicyError),
        ({"fields": [""]}, PolicyError),
        ({"fields": [1]}, UsageError),
        ({"fields": ["Group"], "all_fields": True}, UsageError),
        ({"all_fields": 1}, UsageError),
    ],
)
def test_wrong_offers(offer: dict[str, object], error: type[lace.LaceError]) -> None:
    with pytest.raises(error):
        policy(EVERYTHING, **offer)


def test_a_policy_offers_what_its_own_selector_reads() -> None:
    with pytest.raises(PolicyError, match="reads the advertised field Group"):
        policy(SELECT, fields=["App"])
    with pytest.raises(PolicyError, match="all of them must be offered"):
        policy(ANY_FIELD, fields=["App"])
    assert policy(SELECT, fields=["Group"]).schema is not None
    assert policy(SELECT).schema is None


@pytest.mark.requirement("050-130", "050-131")
def test_settings_offer_what_ones_own_selector_reads(filled: Sides) -> None:
    left, right = filled
    viewer, at = str(right.keys.default()), "tcp:127.0.0.1:0"
    with lace.open(left.store.folder, settings={"offer_fields": ["Group"]}) as here:
        for select, told in ((TOPIC, "advertised field Topic"), (ANY_FIELD, "by variables")):
            mine = policy(select)
            for refused in (
                lambda mine=mine: lace.interlace(here, right, mine, policy()),
                lambda mine=mine: lace.interlace(right, here, policy(), mine, open=True),
                lambda mine=mine: lace.connect(at, here, mine),
                lambda mine=mine: lace.serve(at, here, mine),
                lambda mine=mine: lace.serve(at, here, policy()).renew(mine),
                lambda mine=mine: here.preview(mine, EVERYTHING, viewer=viewer),
                lambda mine=mine: here.disclose(mine, viewer),
            ):
                with pytest.raises(PolicyError, match=told):
                    refused()
        named = policy(TOPIC, fields=["Topic"])
        assert here.preview(named, EVERYTHING, viewer=viewer).offer.is_met, "the policy counts"
        assert lace.interlace(here, right, policy(TOPIC), policy(all_fields=True), offer_all=True)


@pytest.mark.parametrize("value", ["a:b", ["a b"], [""], 7, [1]])
def test_settings_that_name_no_fields(filled: Sides, value: object) -> None:
    with pytest.raises(SettingError, match="offer_fields"):
        lace.open(filled[0].store.folder, settings={"offer_fields": value})


def test_previews_and_disclosures_tell_it(filled: Sides) -> None:
    left, right = filled
    viewer = str(right.keys.default())
    for select, peer, offered, unmet in (
        (EVERYTHING, SELECT, ["Group"], []),
        (EVERYTHING, TOPIC, [], ["Topic"]),
        (TOPIC, SELECT, ["Group", "Topic"], []),
    ):
        found = left.preview(policy(select), peer, viewer=viewer).offer
        told = left.disclose(policy(select), viewer, peer_select=peer).offer
        assert found == told
        assert sorted(found.schema.names) == offered
        assert list(found.unmet) == unmet
        assert found.is_met is not bool(unmet)
    asked = left.preview(policy(), ANY_FIELD, viewer=viewer).offer
    assert asked.needs_all
    most = left.disclose(policy(TOPIC), viewer).offer.schema.names
    assert {"Topic", "Group", "Data-Length"} <= most
    assert left.disclose([EXPOSE], viewer, fields=["Topic"]).offer.schema.names == {"Topic"}
    assert left.disclose([EXPOSE], viewer, all_fields=True).offer.schema.all
    before, after = (left.disclose(policy(fields=each), viewer) for each in (["a"], ["a", "b"]))
    change = after.compare(before)
    assert change
    assert change.offered.added == ("b",)
