"""Sources that the transport proves: rules read the verifier, the wire keeps its form (G42)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import lace
from lace.errors import ProtocolError, UsageError
from lace.exchange.capabilities import relabelled
from lace.policy.local import prepare_exchange
from lace.policy.operand import operand_of
from tests.link.test_pairing import EVERYTHING, EXPOSE, hashes, plex
from tests.unit.transport.certificates import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.transport.certificates import Certificates

FROM_PEER = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S), Peer(S).\n"
READING = "SelectHave(P) :- Have(P), Here(_).\nSelectAdvertised(P,S) :- Advertised(P,S), Here(_).\n"
MODES = pytest.mark.parametrize("mode", [0, 1, 2])


def verifier(store: lace.Lace) -> str:
    found = store.keys.default()
    assert found is not None
    return str(found)


def proven_policy(peer: lace.Lace, select: str = EVERYTHING) -> lace.Policy:
    return lace.Policy(select, [(EXPOSE, verifier(peer))], lowering="proven-peer-v1")


def fill(left: lace.Lace, right: lace.Lace, *, common: int = 3) -> None:
    for store, name in ((left, "left"), (right, "right")):
        store.add_all([plex(f"{name}/{number}") for number in range(4)])
        store.add_all([plex(f"both/{number}") for number in range(common)])


def with_mode(store: lace.Lace, mode: int) -> lace.Lace:
    return lace.open(store.store.folder, settings={"reconcile_mode": mode})


@pytest.mark.requirement("050-41", "040-87", "060-128")
@MODES
@pytest.mark.parametrize("claims", [(False, False), (True, False), (True, True)])
def test_proven_peers_over_uid_maps(
    sides: tuple[lace.Lace, lace.Lace], tmp_path: Path, mode: int, claims: tuple[bool, bool]
) -> None:
    """Nothing is signed, S is a label or a claim, and `Peer(S)` holds on both sides."""
    left, right = sides
    fill(left, right)
    all_records = hashes(left) | hashes(right)
    who = [verifier(each) if claimed else None for each, claimed in zip(sides, claims, strict=True)]
    with (
        with_mode(right, mode) as there,
        lace.serve(
            f"unix:{tmp_path}/s",
            there,
            proven_policy(left),
            plain=True,
            claim=who[1],
            uid_map={os.getuid(): verifier(left)},
        ) as server,
        lace.connect(
            server.address,
            left,
            proven_policy(right),
            plain=True,
            claim=who[0],
            uid_map={os.getuid(): verifier(right)},
        ) as link,
    ):
        outcome = link.result()
    assert outcome.at_fixed_point
    assert hashes(left) == hashes(right) == all_records
    assert outcome.peer_verifier == verifier(right)
    assert (outcome.link_id is not None) == all(claims)


@pytest.mark.requirement("050-41", "060-137")
def test_proven_peers_over_client_certificates(
    sides: tuple[lace.Lace, lace.Lace], certificates: Certificates, tmp_path: Path
) -> None:
    """The server requests from the client, which has proven itself; the server has not."""
    left, right = sides
    fill(left, right)
    before = hashes(left)
    known = fingerprint(certificates.certificate("client"))
    (tmp_path / "clients").write_text(f"{known} {verifier(left)}\n")
    anyone = lace.Policy(FROM_PEER, [EXPOSE])
    with (
        lace.serve(
            "wss:127.0.0.1:0",
            right,
            anyone,
            plain=True,
            tls_cert=certificates.certificate("server"),
            tls_key=certificates.key("server"),
            tls_client_map=tmp_path / "clients",
            tls_client_ca=certificates.certificate("authority"),
        ) as server,
        lace.connect(
            server.address,
            left,
            anyone,
            plain=True,
            ca=certificates.certificate("authority"),
            tls_cert=certificates.certificate("client"),
            tls_key=certificates.key("client"),
        ) as link,
    ):
        assert link.result().at_fixed_point
    assert hashes(left) == before
    assert hashes(right) >= before


@pytest.mark.requirement("050-33", "060-114")
@pytest.mark.parametrize("claimed", [False, True])
def test_here_is_there_for_a_claim(
    sides: tuple[lace.Lace, lace.Lace], tmp_path: Path, claimed: bool
) -> None:
    left, right = sides
    fill(left, right, common=0)
    reading = lace.Policy(READING, [EXPOSE])
    with (
        lace.serve(
            f"unix:{tmp_path}/s", right, reading, uid_map={os.getuid(): verifier(left)}
        ) as server,
        lace.connect(
            server.address,
            left,
            reading,
            plain=True,
            claim=verifier(left) if claimed else None,
            uid_map={os.getuid(): verifier(right)},
        ) as link,
    ):
        if (
            claimed
        ):  # the server's setup names its key, and without nonces only the transport proves
            assert link.result().at_fixed_point
        else:
            assert not link.result().received
    assert (len(hashes(left)) == 8) == claimed


@pytest.mark.requirement("050-100")
def test_a_claim_of_somebody_else_is_refused(
    sides: tuple[lace.Lace, lace.Lace], tmp_path: Path
) -> None:
    left, right = sides
    left.add(plex("left"))
    users = {os.getuid(): verifier(left)}
    with (
        lace.serve(
            f"unix:{tmp_path}/s", right, proven_policy(left), plain=True, uid_map=users
        ) as server,
        pytest.raises(ProtocolError, match="peer closed early") as caught,
        lace.connect(
            server.address, left, proven_policy(right), plain=True, claim=verifier(right)
        ) as link,
    ):
        link.result()
    assert caught.value.hint is not None
    assert "without a signature" in caught.value.hint
    assert not hashes(right)


def test_bad_claims_and_maps(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    chosen = proven_policy(right)
    key = left.signing_key()
    with pytest.raises(UsageError, match="claim and key do not go together"):
        lace.connect("unix:/tmp/s", left, chosen, key=key, claim=verifier(left))
    with pytest.raises(UsageError, match="claim and key do not go together"):
        lace.serve("unix:/tmp/s", left, chosen, key=key, claim=verifier(left))
    for claim in ("V.x", "Opq_0", ""):
        with pytest.raises(UsageError):
            lace.connect("unix:/tmp/s", left, chosen, claim=claim)
    for users in ({"0": verifier(left)}, {True: verifier(left)}, {-1: verifier(left)}, {0: "V"}, 7):
        with pytest.raises(UsageError):
            lace.connect("unix:/tmp/s", left, chosen, uid_map=users)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tls_client_map and tls_client_ca need tls_cert"):
        lace.serve("wss:127.0.0.1:0", left, chosen, tls_client_map="clients")


@pytest.mark.requirement("050-41")
def test_a_preview_reads_the_label_of_a_proven_viewer_as_its_verifier(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    left, right = sides
    chosen = proven_policy(right)
    peer = operand_of(EVERYTHING, 1)
    proven = prepare_exchange(chosen, peer, verifier(right)).executable
    label = proven.plan.operands[1].origin
    record = str(plex("theirs").id)
    wire = [("Advertised", record, label), ("Transport", label)]
    assert relabelled(wire, proven) == (
        ("Advertised", record, verifier(right)),
        ("Transport", label),
    )
    assert relabelled(wire, prepare_exchange(chosen, peer).executable) == tuple(wire)
    found = left.preview(chosen, EVERYTHING, viewer=verifier(right), public=wire)
    assert found.permissions.may_request == {record}
    assert not left.preview(chosen, EVERYTHING, public=wire).permissions.may_request


@pytest.mark.requirement("050-41")
def test_a_warehouse_is_asked_with_the_verifier_of_a_proven_viewer(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    """What is registered for a viewer reads the same sources as an exchange with it."""
    from lace.spark.pipeline.evaluate import exchange_question

    _, right = sides
    proven = prepare_exchange(proven_policy(right), operand_of(EVERYTHING, 1), verifier(right))
    label = proven.executable.plan.operands[1].origin
    record = str(plex("theirs").id)
    found = exchange_question(proven.executable, [("Advertised", record, label)])
    assert found.public == (("Advertised", record, verifier(right)),)
