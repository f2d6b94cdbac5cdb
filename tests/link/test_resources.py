"""Resources of the shipped code: modules go over the wire and are used; so are plans (G58)."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange.blocks import format_block
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.hello import make_setup
from lace.iltp.items import PREFACE
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from tests.hostile.kit import Peer, connect_to
from tests.link.test_pairing import EVERYTHING, SELECT, hashes, plex, policy

if TYPE_CHECKING:
    from lace.policy.plan import ExchangePlan

ADDRESS = "tcp:127.0.0.1:0"
ONLY_V = SELECT.replace("'u'", "'v'")
U_OR_V = SELECT + SELECT.replace("'u'", "'v'")


@pytest.mark.requirement("050-88", "060-94", "060-96")
@pytest.mark.parametrize("swapped", [False, True])
def test_two_selectors_that_differ_meet_in_what_both_choose(
    sides: tuple[lace.Lace, lace.Lace], *, swapped: bool
) -> None:
    """Neither side has the other's module: what moves shows that it came and was evaluated."""
    left, right = sides
    for store, name in ((left, "l"), (right, "r")):
        store.add_all([plex(f"{name}/{group}", group=group) for group in ("u", "v", "w")])
    selectors = (ONLY_V, U_OR_V) if swapped else (U_OR_V, ONLY_V)
    here, there = policy(right, selectors[0]), policy(left, selectors[1])
    with (
        lace.serve(ADDRESS, right, there) as server,
        lace.connect(server.address, left, here) as link,
    ):
        result = link.result(60)
    assert result.at_fixed_point
    assert result.received == (plex("r/v", group="v").id,)
    assert hashes(right) - {plex(f"r/{group}", group=group).id for group in "uvw"} == {
        plex("l/v", group="v").id
    }


@pytest.mark.requirement("060-93", "060-96")
def test_a_server_sends_its_module_before_it_names_it(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    module = operand_of(U_OR_V, 1)
    with lace.serve(ADDRESS, right, policy(left, U_OR_V)) as server:
        peer = Peer(connect_to(server.address))
        facts, modules = peer.read_block()
        peer.connection.close()
    assert modules == {module.module_id: module.canonical_bytes.decode()}
    assert any(fact[:3] == ("ExchangeOperand", "1", module.module_id) for fact in facts)
    marker = f"🧩: {module.module_id} lacegram\n".encode()
    assert peer.got.startswith(PREFACE + marker + module.canonical_bytes + b"\n\nExchangeOperand(")
    assert peer.got.count(marker) == 1


@pytest.mark.requirement("050-89", "060-96", "060-97")
def test_a_client_sends_its_module_and_needs_the_servers(
    sides: tuple[lace.Lace, lace.Lace],
) -> None:
    """A scripted server that names a module and never sends it gets a setup and no hello."""
    left, right = sides
    module = operand_of(SELECT, 0)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                setup = make_setup(operand_of(ONLY_V, 1))
                connection.sendall(PREFACE + format_block(setup.facts))
                while piece := connection.recv(65536):
                    heard.append(piece)

        serving = threading.Thread(target=answer)
        serving.start()
        address = f"tcp:127.0.0.1:{listening.getsockname()[1]}"
        with (
            pytest.raises(InterlaceFailure, match="no bytes for an announced module") as caught,
            lace.connect(address, left, policy(right)) as link,
        ):
            link.result(60)
        serving.join(60)
    assert caught.value.failure is Failure.MISSING_MODULE
    raw = b"".join(heard)
    marker = f"🧩: {module.module_id} lacegram\n".encode()
    assert raw.startswith(PREFACE + marker + module.canonical_bytes + b"\n\nExchangeOperand(")
    assert b"HelloExchangePlan" not in raw


# -- the plan --------------------------------------------------------------------------------------


def plan_resource(plan: ExchangePlan, body: bytes | None = None) -> bytes:
    lines = plan.transcript_bytes if body is None else body
    return f"🧩: {plan.id} exchange-plan\n".encode() + lines + b"\n\n"


PLAN = make_plan(operand_of(SELECT, 0), operand_of(EVERYTHING, 1))
OTHER = make_plan(operand_of(ONLY_V, 0), operand_of(EVERYTHING, 1), "encrypted-v1")


@pytest.mark.requirement("060-49", "060-92")
def test_a_plan_that_comes_is_taken(sides: tuple[lace.Lace, lace.Lace]) -> None:
    """A peer may send the transcript before the hello that names it; the exchange goes on."""
    left, right = sides
    right.add(plex("a"))
    key = left.signing_key()
    assert key is not None
    with lace.serve(ADDRESS, right, policy(left, EVERYTHING)) as server:
        peer = Peer(connect_to(server.address))
        hello = peer.meet(SELECT, key=key)
        peer.send(plan_resource(PLAN))
        peer.block([each for each in hello.facts if each[:2] != ("HelloLimit", "reconcile")])
        listing, _ = peer.read_block()
        assert ("Advertised", plex("a").id) in [fact[:2] for fact in listing]
        peer.connection.close()


@pytest.mark.requirement("050-102", "060-49")
@pytest.mark.parametrize(
    ("sent", "named", "failure", "words"),
    [
        (plan_resource(OTHER), OTHER.id, Failure.PLAN_MISMATCH, "differ in lowering, operand 0"),
        (b"", OTHER.id, Failure.PLAN_MISMATCH, f"plans differ: {PLAN.id} here"),
        (plan_resource(OTHER), PLAN.id, None, ""),
        (plan_resource(PLAN, OTHER.transcript_bytes), PLAN.id, Failure.MALFORMED_BLOCK, PLAN.id),
        (plan_resource(PLAN, b"x"), PLAN.id, Failure.MALFORMED_BLOCK, ""),
    ],
    ids=["another", "another, unsent", "unused", "not its own", "no plan"],
)
def test_a_plan_that_is_another(
    sides: tuple[lace.Lace, lace.Lace],
    sent: bytes,
    named: str,
    failure: Failure | None,
    words: str,
) -> None:
    """With its transcript this side can say in what the plans differ, and to nobody but itself."""
    left, right = sides
    key = left.signing_key()
    assert key is not None
    with lace.serve(ADDRESS, right, policy(left, EVERYTHING)) as server:
        peer = Peer(connect_to(server.address))
        hello = peer.meet(SELECT, key=key)
        facts = [each for each in hello.facts if each[0] != "HelloExchangePlan"]
        peer.send(sent)
        peer.block([*facts, ("HelloExchangePlan", named)])
        if failure is None:
            peer.read_block()
        else:
            assert peer.outcome() == b""
        peer.connection.close()
    (served,) = server.served
    assert served.outcome is not None
    found = served.outcome.failure
    if failure is not None:
        assert found is not None
        assert found.failure is failure
        assert words in str(found)
