"""`Lace.disclose`: the columns of the engine against the plain facts of the records."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api import Lace, open_lace
from lace.errors import LimitExceeded, PolicyError, RuleError
from lace.facts.catalogue import RECORD_PREDICATES
from lace.facts.source import facts_of
from lace.policy.disclosure import Disclosure, FieldShown, LinksShown
from lace.record.model import Blob, Plex, Record
from lace.store.sqlite.segments import APPEND_RECORDS

if TYPE_CHECKING:
    from pathlib import Path

    from lace.facts.lines import Fact

BOB = "V.C0X9~9NU6Sdv1zz4AitEhpIjZV3lujfVDdBfu~4b34x.H3"
CAROL = "V.vISNhGb54ALSjDPjV~ESSDbZOre1F6igmKXAU9MCeV4.H3"
EVEN = "AllowQueryRecord(V,P) :- Peer(V), _Viewer(V), Field(P,'Even',_,'yes')."
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."


def sample(count: int, first: int = 0) -> list[Record]:
    """Records with repeated headers, links here and elsewhere, some of them signed."""
    chance = random.Random(first)
    key = lace.SigningKey.generate()
    made: list[Record] = [Blob(b"%d" % number) for number in range(first, first + 3)]
    for number in range(first, first + count):
        headers = [("Even", "yes" if number % 2 == 0 else "no")]
        headers += [("Tag", chance.choice("abc")) for _ in range(chance.randrange(3))]
        if chance.random() < 0.5:
            target = chance.choice(made).id if chance.random() < 0.8 else "P.elsewhere.H9"
            headers.append(("+Link", f"cites {target}"))
        if chance.random() < 0.2:
            headers.append(("+Other", f"sees {chance.choice(made).id}"))
        plex = Plex(group="g", app=f"a{number % 3}", name=f"n{number}", data=b"", headers=headers)
        made.append(plex.seal(key) if number % 50 == 0 else plex)
    return made


def expected(facts: list[Fact]) -> Disclosure:
    """What is disclosed, worked out slowly."""
    stored = sorted(fact[1] for fact in facts if fact[0] == "Have")
    seen = {fact[1] for fact in facts if fact[0] == "Field" and fact[2::2] == ("Even", "yes")}
    shown = [fact for fact in facts if fact[1] in seen]
    fields = [fact[1:] for fact in shown if fact[0] == "Field"]
    links = [fact[1:] for fact in shown if fact[0] == "RecordLink"]
    hidden = {link[4] for link in links} - seen
    return Disclosure(
        lace="",
        viewer=BOB,
        exposures=(),
        stored=len(stored),
        records=tuple(sorted(seen)),
        fields=tuple(
            FieldShown(
                name,
                len({p for p, each, _, _ in fields if each == name}),
                len({value for _, each, _, value in fields if each == name}),
                min((p, int(at), value) for p, each, at, value in fields if each == name)[2],
            )
            for name in sorted({name for _, name, _, _ in fields})
        ),
        links=tuple(
            LinksShown(
                name,
                len([p for p, each, *_ in links if each == name]),
                len({p for p, each, *_ in links if each == name}),
                len({target for _, each, _, _, target in links if each == name}),
            )
            for name in sorted({name for _, name, *_ in links})
        ),
        hidden_hashes=tuple(sorted(hidden)),
        hidden_here=len(hidden & set(stored)),
        blobs=len({fact[2] for fact in shown if fact[0] == "BlobHash"}),
        plexes=len({fact[2] for fact in shown if fact[0] == "PlexHash"}),
    )


def check(opened: Lace) -> Disclosure:
    with opened.snapshot() as snapshot:
        wanted = expected(list(facts_of(snapshot, RECORD_PREDICATES)))
    found = opened.disclose([(EVEN, BOB)], BOB)
    for name in ("records", "fields", "links", "hidden_hashes", "hidden_here", "blobs", "plexes"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.stored == wanted.stored
    return found


@pytest.mark.requirement("020-78", "020-79")
@pytest.mark.parametrize("batch", [1, 500, 2_000_000])
def test_the_columns_say_what_the_facts_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("lace.engine.field_histogram._BATCH", batch)
    with open_lace(tmp_path / "a.lace") as opened:
        records = sample(300)
        opened.add_all(records)
        check(opened)  # all in the tail
        opened.add_all(sample(APPEND_RECORDS, 1000))
        check(opened)  # in segments
        later = sample(50, 9000)
        opened.add_all(later)
        opened.remove(*(record.id for record in (*records[::7], *later[::5])))
        found = check(opened)  # in segments, with a tail, and some removed
        assert found.hidden_here
        assert "P.elsewhere.H9" in found.hidden_hashes


def test_with_low_limits(tmp_path: Path) -> None:
    settings = {"max_value_bytes": 200}
    with open_lace(tmp_path / "a.lace", settings=settings) as opened:
        opened.add_all(sample(20))
        check(opened)
    limited = open_lace(tmp_path / "a.lace", settings={"max_derived_facts": 1})
    with limited as opened, pytest.raises(LimitExceeded, match=r"max_derived_facts"):
        opened.disclose([EVEN], BOB)


def test_policies_and_exposures(tmp_path: Path) -> None:
    with open_lace(tmp_path / "a.lace") as opened:
        opened.add_all(sample(20))
        alone = opened.disclose([EVEN], BOB, peer_select=ALL)
        assert alone.sent is not None
        assert (alone.sent.select, alone.sent.records) == (None, alone.records)
        select = ALL.replace("Have(P).", "Have(P), Field(P,'App',_,'a0').")
        policy = lace.Policy(select, [(EVEN, BOB)])
        both = opened.disclose(policy, BOB, peer_select=ALL)
        assert both.sent is not None
        assert both.sent.select == policy.select.id
        assert 0 < len(both.sent.records) < len(both.records)
        assert opened.disclose(policy, CAROL).records == ()
        assert opened.disclose(policy, CAROL).exposures == ()
        assert opened.disclose([], BOB, peer_select=ALL).records == ()
        other = opened.disclose([EVEN], BOB, public=[("Peer", CAROL)])
        assert other.records == ()
        preview = opened.preview(policy, ALL, viewer=BOB)
        assert sorted(preview.permissions.may_send) == list(both.sent.records)
        assert preview.not_here == preview.already_here == frozenset()


def test_an_empty_lace(tmp_path: Path) -> None:
    with open_lace(tmp_path / "a.lace") as opened:
        found = opened.disclose([EVEN], BOB, peer_select=ALL)
        assert (found.stored, found.records, found.fields, found.links) == (0, (), (), ())
        missing = Blob(b"x").id
        rules = f"SelectHave('{missing}') :- true.\nSelectAdvertised(P,S) :- Advertised(P,S)."
        preview = opened.preview(lace.Policy(rules), rules)
        assert preview.not_here == {missing}
        assert preview.already_here == frozenset()


def test_what_is_refused(tmp_path: Path) -> None:
    with open_lace(tmp_path / "a.lace") as opened:
        with pytest.raises(PolicyError, match=r"no viewer"):
            opened.disclose([EVEN], "bob")
        for exposures, viewer in (([EVEN], "Opq_1"), ([(EVEN, "Opq_1")], BOB)):
            with pytest.raises(PolicyError) as caught:
                opened.disclose(exposures, viewer)
            assert caught.value.rule == "X6"
        with pytest.raises(RuleError, match=r"head variable V"):
            opened.disclose(["AllowQueryRecord(V,P) :- Have(P)."], BOB)
        with pytest.raises(RuleError, match=r"SelectAdvertised/2"):
            opened.disclose([EVEN], BOB, peer_select="SelectHave(P) :- Have(P).")


def test_a_preview_and_a_disclosure_agree(tmp_path: Path) -> None:
    """Both take the viewer for the peer unless facts name another, and the policy's lowering."""
    proven = "AllowQueryRecord(V,P) :- Peer(V), Have(P)."
    record = Blob(b"a")
    with open_lace(tmp_path / "a.lace") as opened:
        opened.add(record)
        for lowering in ("standard-v1", "encrypted-v1"):
            policy = lace.Policy(ALL, [(proven, BOB)], lowering=lowering)
            for public, sent in (
                ([], lowering == "standard-v1"),
                ([("Peer", BOB), ("TransportEncrypted",)], True),
                ([("Peer", CAROL), ("TransportEncrypted",)], False),
            ):
                shown = opened.preview(policy, ALL, viewer=BOB, public=public)
                told = opened.disclose(policy, BOB, peer_select=ALL, public=public)
                assert told.sent is not None
                assert told.sent.lowering == lowering
                assert set(told.sent.records) == shown.permissions.may_send
                assert told.sent.records == ((record.id,) if sent else ())
        alone = opened.disclose([(proven, BOB)], BOB, peer_select=ALL, lowering="encrypted-v1")
        assert alone.sent is not None
        assert (alone.sent.records, alone.missing_facts) == ((), ("TransportEncrypted/0",))
        with pytest.raises(PolicyError):
            opened.disclose([(proven, BOB)], BOB, lowering="none")
