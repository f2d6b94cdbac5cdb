"""`--receipts` of `lace sync` and `lace serve`: signed records for what came and is stored."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import lace
from lace.api import open_lace
from lace.record.model import Seal
from tests.cli.links import Party, hashes, make_parties, plex, serving, wait_until
from tests.cli.policies import ALL
from tests.cli.running import call, process
from tests.hostile.kit import Peer, connect_to

if TYPE_CHECKING:
    from pathlib import Path

    from lace.store.sqlite.store import SqliteStore

ADDRESS = "tcp:127.0.0.1:0"
NOWHERE = "tcp:127.0.0.1:1"
PREFIX = "//lace//receipt//store/"


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


def receipts(party: Party) -> dict[str, list[Seal]]:
    """The receipts that a lace holds, by the record they are for."""
    found: dict[str, list[Seal]] = {}
    with open_lace(party.folder, read_only=True) as store:
        for each in store.records("//lace//receipt//"):
            made = store.get(str(each.id))
            assert isinstance(made, Seal)
            assert made.name.startswith("store/")
            assert ("Stored-Hash", made.name.removeprefix("store/")) in made.headers
            found.setdefault(made.name.removeprefix("store/"), []).append(made)
    return found


def signed_by(party: Party, signer: Party) -> dict[str, str]:
    """The records that a lace holds receipts of one signer for, and the senders they name."""
    return {
        record: dict(made.headers)["Stored-From"]
        for record, each in receipts(party).items()
        for made in each
        if made.signed_by == signer.verifier
    }


@pytest.mark.requirement("050-208", "050-209")
def test_both_sides_publish_and_the_receipts_move(parties: tuple[Party, Party]) -> None:
    left, right = parties
    mine, theirs = hashes(left), hashes(right)
    with serving(right, left, ADDRESS, "--receipts") as server:
        done = left.sync(right, server.address, "--receipts", "--json")
        assert done.code == 0, done.err
        assert (done.json()["receipts"], done.json()["receipts-omitted"]) == (5, 0)
        server.wait_for("receipts=5")
        assert signed_by(left, left) == dict.fromkeys(theirs, right.verifier)
        assert signed_by(left, right) == dict.fromkeys(mine, left.verifier), "they have come back"
        assert hashes(left) == hashes(right)
        assert len(hashes(left)) == 20, "there is no receipt for a receipt"
        again = left.sync(right, server.address, "--receipts")
        assert again.code == 0
        assert {"received 0", "receipts 0", "receipts-omitted 0"} <= set(again.lines)
        assert len(hashes(left)) == len(hashes(right)) == 20
    for party in parties:
        assert process("--lace", party.folder, "verify").code == 0


@pytest.mark.requirement("050-208")
def test_without_the_option_there_is_none(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, ADDRESS) as server:
        assert left.sync(right, server.address).code == 0
    assert receipts(left) == receipts(right) == {}


@pytest.mark.requirement("050-209")
def test_a_receipt_goes_nowhere_unless_rules_say_so(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    """A receipt is a record like any other: an exposure that leaves it out keeps it here."""
    left, right = parties
    left.view.write_text("AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Group',_,'u').\n")
    with serving(right, left, ADDRESS) as server:
        assert left.sync(right, server.address, "--receipts").code == 0
    assert len(receipts(left)) == 5
    assert receipts(right) == {}


@pytest.mark.requirement("050-208")
def test_a_record_that_comes_again_gets_no_second_receipt(parties: tuple[Party, Party]) -> None:
    left, right = parties
    theirs = sorted(hashes(right))
    with serving(right, left, ADDRESS) as server:
        assert left.sync(right, server.address, "--receipts").code == 0
        with open_lace(left.folder) as store:
            assert store.remove(*theirs) == 5
        again = left.sync(right, server.address, "--receipts", "--json")
    assert again.code == 0
    assert len(again.json()["received-hashes"]) == 5
    assert (again.json()["receipts"], again.json()["receipts-omitted"]) == (0, 0)
    assert {record: len(made) for record, made in receipts(left).items()} == dict.fromkeys(
        theirs, 1
    )


@pytest.mark.requirement("050-208", "050-225")
def test_what_is_rejected_gets_none(parties: tuple[Party, Party]) -> None:
    left, right = parties
    good, bad = plex("good"), plex("bad")
    key = lace.SigningKey.generate()
    with serving(right, left, ADDRESS, "--receipts") as server:
        peer = Peer(connect_to(server.address))
        source = peer.enter(key=key)
        peer.read_block()
        peer.block([("Advertised", str(each.id), source) for each in (good, bad)])
        asked, _ = peer.read_block()
        assert {fact[1] for fact in asked} == {str(good.id), str(bad.id)}
        peer.block([])
        peer.send(good.bytes + b"\n" + bad.bytes[:-1] + b"?" + b"\n\n")
        wait_until(lambda: str(good.id) in hashes(right))
        peer.connection.close()
        server.wait_for("rejected=1")
    assert signed_by(right, right) == {str(good.id): str(key.verifier)}
    assert str(bad.id) not in hashes(right)


@pytest.mark.requirement("050-208")
def test_a_peer_that_proves_nothing_is_named_in_none(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, right = parties
    with lace.open(tmp_path / "nobody") as store:
        record = store.add(plex("from nobody"))
    open_to_all = ("--expose", left.view)
    nobody = ("--lace", tmp_path / "nobody", "--select", left.select, *open_to_all)
    with serving(right, left, ADDRESS) as server:
        refused = process("sync", server.address, *nobody, "--receipts")
    assert refused.code == 2
    assert "a receipt must be signed, and this lace has no default key" in refused.err
    with serving(right, left, ADDRESS, "--receipts", *open_to_all, "--json") as server:
        address = json.loads(server.address)["address"]
        assert process("sync", address, *nobody).code == 0
        assert server.process.stdout is not None
        told = json.loads(server.process.stdout.readline())
    assert (told["received-hashes"], told["receipts"]) == ([str(record)], 0)
    assert told["receipts-omitted"] == 1
    assert receipts(right) == {}


@pytest.mark.requirement("050-208", "050-228")
def test_their_number_is_limited(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, ADDRESS) as server:
        done = left.sync(right, server.address, "--receipts", "--set", "max_receipts=2", "--json")
    assert done.code == 0
    assert (done.json()["receipts"], done.json()["receipts-omitted"]) == (2, 3)
    assert "3 records came and got no receipt: max_receipts was reached" in done.err
    assert len(receipts(left)) == 2


def test_what_cannot_be_had(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, _ = parties
    with lace.open(tmp_path / "nobody"):
        pass
    for command in ("serve", "sync"):
        done = call(
            command, NOWHERE, "--lace", tmp_path / "nobody", "--select", left.select, "--receipts"
        )
        assert done.code == 2
        assert "this lace has no default key" in done.err
    policy = lace.Policy(select=ALL)
    with (
        lace.open(left.folder) as store,
        lace.open(tmp_path / "nobody") as nobody,
        pytest.raises(lace.UsageError, match="no default key"),
    ):
        lace.interlace(store, nobody, policy, policy, receipts=True)
    with lace.open(tmp_path / "nobody") as store, pytest.raises(lace.UsageError, match="key"):
        lace.connect(ADDRESS, store, policy, plain=True, receipts=True)


@pytest.mark.requirement("050-208", "050-209")
@pytest.mark.parametrize("has_claimed_key", [True, False], ids=["own key", "other key"])
def test_a_side_that_claims_without_a_key_signs_with_a_key_of_its_lace(
    parties: tuple[Party, Party], tmp_path: Path, *, has_claimed_key: bool
) -> None:
    """The transport proves who both are; the key of the claim signs, else the default one."""
    left, right = parties
    other = lace.SigningKey.generate()
    with open_lace(left.folder) as store:
        store.keys.add(other)
        store.keys.set_default(other.verifier)
        if not has_claimed_key:
            store.keys.remove(lace.Verifier(left.verifier))
    for name, party in (("left", left), ("right", right)):
        (tmp_path / f"{name}.users").write_text(f"{os.getuid()} {party.verifier}\n")
    server_options = ("--claim", right.verifier, "--uid-map", tmp_path / "left.users")
    with serving(right, left, f"unix:{tmp_path}/s", *server_options, "--receipts") as server:
        own = ("--claim", left.verifier, "--uid-map", tmp_path / "right.users")
        done = left.sync(right, server.address, *own, "--receipts", "--json")
        assert done.code == 0, done.err
        assert (done.json()["receipts"], done.json()["receipts-omitted"]) == (5, 0)
    signers = {each.signed_by for made in receipts(left).values() for each in made}
    signer = left.verifier if has_claimed_key else str(other.verifier)
    assert signers == {signer, right.verifier}
    with lace.open(left.folder) as store:
        policy = lace.Policy(select=ALL)
        lace.connect(NOWHERE, store, policy, claim=left.verifier, receipts=True)
        lace.connect(NOWHERE, store, policy, plain=True, receipts=True)


@pytest.mark.requirement("050-208")
def test_a_peer_with_a_name_and_remote_store(parties: tuple[Party, Party], tmp_path: Path) -> None:
    """Whoever hands a record over gets the receipt of it in the same exchange."""
    left, right = parties
    mine = str(plex("left/1").id)
    file = tmp_path / "stored.json"
    with serving(right, left, ADDRESS, "--receipts") as server:
        policy = ("--lace", left.folder, "--peer", right.verifier)
        done = process("remote", "store", server.address, mine, *policy, "--receipt", file)
        assert done.code == 0, done.err
        (found,) = json.loads(file.read_bytes())["records"]
        with open_lace(left.folder) as store:
            made = store.get(found["receipt"])
        assert isinstance(made, Seal)
        assert (made.signed_by, made.name) == (right.verifier, f"store/{mine}")
        with (left.folder / "lace.toml").open("a") as settings:
            settings.write(
                f'[peer.right]\naddress = "{server.address}"\nselect = "{left.select}"\n'
                f'expose = ["{left.view}@{right.verifier}"]\nreceipts = true\n'
            )
        named = process("sync", "right", "--lace", left.folder, "--json")
        assert named.code == 0, named.err
        assert named.json()["receipts"] == 5


@pytest.mark.requirement("050-208")
@pytest.mark.parametrize("is_open", [False, True], ids=["bounded", "open"])
def test_a_record_and_its_receipt_are_stored_in_one_transaction(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch, *, is_open: bool
) -> None:
    """A process that is killed leaves both or neither; and two sides that publish come to rest."""
    from lace.store.sqlite.store import SqliteStore

    left, right = sides
    transactions: list[list[str]] = []
    admit = SqliteStore.admit

    def noting(self: SqliteStore, records: object) -> object:
        transactions.append([each.name or "" for each in records])  # type: ignore[attr-defined]
        return admit(self, records)  # type: ignore[arg-type]

    added = [left.add(plex(f"l/{number}")) for number in range(3)]
    added += [right.add(plex(f"r/{number}")) for number in range(3)]
    monkeypatch.setattr(SqliteStore, "admit", noting)
    view = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."
    policies = [
        lace.Policy(select=ALL, exposures=[(view, str(peer.keys.default()))])
        for peer in (right, left)
    ]
    if is_open:
        with lace.interlace(left, right, *policies, open=True, receipts=True) as exchange:
            for ended in exchange.events(30):
                if len(ended.outcome.received) == 6:
                    break
            done = exchange.stop()
    else:
        done = lace.interlace(left, right, *policies, receipts=True)
    assert done
    assert done.left.counters.receipts == done.right.counters.receipts == 3
    assert len(left) == len(right) == 12
    names = {str(record): f"store/{record}" for record in added}
    for names_of_records in transactions:
        came = [each for each in names_of_records if each[:2] in ("l/", "r/")]
        made = [each for each in names_of_records if each.startswith("store/")]
        assert not came or len(made) == len(came), names_of_records
    written = {each for some in transactions for each in some if each.startswith("store/")}
    assert written == set(names.values())


@pytest.mark.requirement("050-208")
def test_servers_and_links_of_a_program(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    mine, theirs = left.add(plex("l")), right.add(plex("r"))
    view = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."
    here, there = (
        lace.Policy(select=ALL, exposures=[(view, str(peer.keys.default()))])
        for peer in (right, left)
    )
    with (
        lace.serve(ADDRESS, right, there, receipts=True) as server,
        lace.connect(server.address, left, here, receipts=True) as link,
    ):
        assert link.result(60).counters.receipts == 1
    for record in (mine, theirs):
        assert len(left.find(f"{PREFIX}{record}")) == 1
        assert len(right.find(f"{PREFIX}{record}")) == 1
