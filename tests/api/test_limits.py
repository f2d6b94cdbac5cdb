"""Limits of values and arity, raised and lowered, wherever rules and facts come in."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import lace
from lace.base.limits import DEFAULT_SETTINGS
from lace.errors import LimitExceeded, RuleError, SettingError, UsageError
from lace.exchange.failures import Failure, InterlaceFailure
from lace.iltp.items import PREFACE, PUZZLE_PIECE
from lace.link.messages import Inbound
from lace.rules.canonical import lacegram_id
from lace.rules.limits import OWN_LIMITS, RuleLimits, read_limits
from tests.cli.links import hashes, make_parties, serving
from tests.cli.running import call
from tests.store.samples import plex

if TYPE_CHECKING:
    from pathlib import Path

WIDE = [str(number) for number in range(40)]
VARIABLES = ",".join(f"X{number}" for number in range(40))
TURNED = ",".join(f"X{number}" for number in reversed(range(40)))
RULES = f"Turned({TURNED}) :- Wide({VARIABLES})."
LONG = "é" * 3000


@pytest.mark.requirement("030-111", "030-117")
def test_wide_facts() -> None:
    facts = [("Wide", *WIDE), ("Wide", *WIDE), ("Wide", *WIDE[1:], "x")]
    result = lace.evaluate(RULES, facts, limits={"max_arity": 40})
    assert result["Turned/40"] == {tuple(WIDE[::-1]), ("x", *WIDE[:0:-1])}
    with pytest.raises(RuleError, match="max_arity=39"):
        lace.evaluate(RULES, facts, limits={"max_arity": 39})
    with pytest.raises(RuleError, match="max_arity=8"):
        lace.evaluate(RULES, facts)


@pytest.mark.requirement("030-119", "030-117")
def test_a_fact_that_no_rule_reads_is_within_the_limits() -> None:
    with pytest.raises(LimitExceeded) as caught:
        lace.evaluate("A(X) :- B(X).", [("B", "x"), ("C", *WIDE[:9])])
    assert (caught.value.limit, caught.value.allowed, caught.value.observed) == ("max_arity", 8, 9)
    done = lace.evaluate("A(X) :- B(X).", [("B", "x"), ("C", *WIDE[:9])], limits={"max_arity": 9})
    assert done["A/1"] == {("x",)}


@pytest.mark.requirement("030-111", "030-118")
def test_long_values() -> None:
    rules = f"A(X,'{LONG}') :- B(X), X != '{LONG}', TextShape(X,'{LONG}','','')."
    allowed = {"max_value_bytes": "8KiB"}
    result = lace.evaluate(rules, [("B", LONG), ("B", LONG + "x")], limits=allowed)
    assert result["A/2"] == {(LONG + "x", LONG)}
    assert result.why("A", LONG + "x", LONG)
    with pytest.raises(RuleError, match="max_value_bytes=1024"):
        lace.evaluate(rules, [])
    with pytest.raises(LimitExceeded, match="6001 bytes"):
        lace.evaluate("A(X) :- B(X).", [("B", LONG + "x")], limits={"max_value_bytes": 6000})


@pytest.mark.requirement("030-119")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_work", 3),
        ("max_base_facts", 2),
        ("max_derived_facts", 2),
        ("max_derived_bytes", 1),
        ("max_iterations", 1),
        ("max_value_bytes", 0.5),
    ],
)
def test_each_limit_of_an_evaluation(name: str, value: object) -> None:
    rules = "P(X,Y) :- E(X,Y).\nP(X,Z) :- P(X,Y), E(Y,Z)."
    facts = [("E", "aa", "bb"), ("E", "bb", "cc"), ("E", "cc", "dd")]
    if name == "max_value_bytes":
        value = 1
    for given in (rules, lace.Lacegram.parse(rules)):
        with pytest.raises(LimitExceeded) as caught:
            lace.evaluate(given, facts, limits={name: value})
        assert caught.value.limit == name
    assert len(lace.evaluate(rules, facts, limits={})["P/2"]) == 6


def test_checked_rules_get_the_limits_that_are_given() -> None:
    wide = lace.Lacegram.parse(RULES, limits={"max_arity": 40})
    facts = [("Wide", *WIDE)]
    assert len(lace.evaluate(wide, facts)["Turned/40"]) == 1, "it keeps those it was parsed with"
    with pytest.raises(RuleError) as caught:
        lace.evaluate(wide, facts, limits={"max_arity": 20})
    assert [found.rule for found in caught.value.findings] == ["030-117", "030-117"]
    with pytest.raises(RuleError, match="max_rules=1"):
        lace.evaluate(
            lace.Lacegram.parse("A() :- true.\nB() :- true."), [], limits={"max_rules": 1}
        )
    assert wide.program.limits.max_arity == 40


def test_limits_are_read_as_settings_are() -> None:
    tight = RuleLimits(max_rules=7)
    assert read_limits(tight) is tight
    assert read_limits({"max_work": "12"}, tight) == RuleLimits(max_rules=7, max_work=12)
    assert read_limits({}) == OWN_LIMITS
    with pytest.raises(SettingError, match="did you mean max_arity"):
        read_limits({"max_aritty": 3})
    with pytest.raises(SettingError, match="the limits are max_arity"):
        read_limits({"wait_seconds": 3})
    with pytest.raises(UsageError, match="a mapping"):
        read_limits([("max_work", 3)])  # type: ignore[arg-type]  # on purpose


def test_a_policy_of_wide_rules() -> None:
    select = (
        "SelectHave(P) :- Have(P), W(P,P,P,P,P,P,P,P,P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
    )
    with pytest.raises(RuleError, match="max_arity=8"):
        lace.Policy(select)
    text = lace.Policy(select, limits={"max_arity": 9})
    assert text.select.limits.max_arity == 9
    as_query = lace.Lacegram.parse(select, limits={"max_arity": 9})
    assert lace.Policy(as_query).select == text.select, "rules that are checked again keep theirs"
    assert (
        lace.plan(as_query, select, limits={"max_arity": 9}).id == lace.plan(as_query, as_query).id
    )


@pytest.mark.requirement("030-111")
def test_a_lace(tmp_path: Path) -> None:
    rules = f"A(P,P,P,P,P,P,P,P,P,'{LONG}') :- Have(P)."
    name = "n" * 200
    raised = {"max_arity": 10, "max_value_bytes": 8192}
    with lace.open(tmp_path / "some.lace") as store:
        record = store.add(plex(name))
        with pytest.raises(RuleError, match="max_arity=8"):
            store.query(rules)
        for _ in range(2):  # over the present state, and again
            assert store.query(rules, limits=raised)["A/10"] == {(*[str(record)] * 9, LONG)}
        with store.snapshot() as snapshot:
            assert store.query(rules, limits=raised, snapshot=snapshot).count("A/10") == 1
        names = "N(X) :- Field(_,'Name',_,X)."
        for given in (names, lace.Lacegram.parse(names)):
            assert store.query(given)["N/1"] == {(name,)}
            with pytest.raises(LimitExceeded, match="max_value_bytes"):
                store.query(given, limits={"max_value_bytes": 150})
    with lace.open(tmp_path / "some.lace", settings=raised) as store:
        assert store.query(rules).count("A/10") == 1


@pytest.mark.requirement("030-111")
def test_commands(tmp_path: Path) -> None:
    value = "v" * (2**20 + 5)
    (tmp_path / "facts").write_text(f"E('{value}','2','3','4','5','6','7','8','9')\n")
    (tmp_path / "rules").write_text("A(X) :- E(X,_,_,_,_,_,_,_,_), X != 'x'.\n")
    asked = ("query", "--rules", tmp_path / "rules", "--facts", tmp_path / "facts")
    raised = ("--set", "max_value_bytes=2MiB", "--set", "max_arity=9")
    assert call(*asked, *raised).raw == f"A('{value}')\n".encode()
    refused = call(*asked, *raised[:2])
    assert (refused.code, "max_arity=8" in refused.err) == (1, True)
    refused = call("query", "-e", "A() :- true.", *asked[3:], *raised[:2])
    assert (refused.code, "max_arity" in refused.err) == (1, True)
    assert "facts:1: " in refused.err
    (tmp_path / "long").write_text(f"A('{value}') :- true.\n")
    more = (*raised, "--set", "max_rule_line_bytes=2MiB")
    for words in (("canonical",), ("id",), ("fmt", "--check"), ("check",)):
        assert call("rules", *words, tmp_path / "long").code == 1, words
        assert call("rules", *words, tmp_path / "long", *more).code == 0, words


@pytest.mark.slow
@pytest.mark.requirement("030-111", "060-144")
def test_an_exchange_of_wide_rules(tmp_path: Path) -> None:
    """Over a stream: the operand is written, read, checked and evaluated under raised limits."""
    left, right = make_parties(tmp_path)
    left.select.write_text(
        f"SelectHave(P) :- Have(P), not W(P,P,P,P,P,P,P,P,P), P != '{LONG}'.\n"
        "SelectAdvertised(P,S) :- Advertised(P,S).\n"
        "W(P,P,P,P,P,P,P,P,'x') :- Have(P).\n"
    )
    raised = ("--set", "max_arity=9", "--set", "max_value_bytes=8KiB")
    with serving(right, left, "tcp:127.0.0.1:0", *raised) as server:
        capture = tmp_path / "capture"
        done = left.sync(right, server.address, *raised, "--capture", capture)
        assert done.code == 0, done.err
        assert hashes(left) == hashes(right)
        assert len(hashes(left)) == 10
    shown = call("trace", "show", capture, *raised)
    assert shown.code == 0, shown.err
    with serving(right, left, "tcp:127.0.0.1:0", *raised) as server:
        (tmp_path / "all").write_text(
            "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
        )
        refused = left.sync(right, server.address, "--select", tmp_path / "all")
        assert refused.code in (1, 2, 4), "without them the operand of the peer is refused"


@pytest.mark.requirement("020-15")
def test_a_claim_that_is_too_long_is_a_malformed_block(tmp_path: Path) -> None:
    """Also where this side allows less than the peer may send (G03)."""
    select = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- AdvertisedField(P,S,_,_,_)."
    expose = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."
    tight = {"max_value_bytes": 90}
    with lace.open(tmp_path / "l") as left, lace.open(tmp_path / "r", settings=tight) as right:
        for store in (left, right):
            key = lace.SigningKey.generate()
            store.keys.add(key)
            store.keys.set_default(key.verifier)
        policies = [
            lace.Policy(select, [(expose, str(peer.keys.default()))]) for peer in (right, left)
        ]
        left.add(plex("n" * 90))
        assert lace.interlace(left, right, *policies, offer_all=True)
        left.add(plex("n" * 91))
        with pytest.raises(InterlaceFailure) as caught:
            lace.interlace(left, right, *policies, offer_all=True)
        assert caught.value.failure is Failure.MALFORMED_BLOCK
        assert "91 bytes" in str(caught.value)
        assert len(right) == 1


def _resource(number: int) -> bytes:
    """Return a resource of 60,000 bytes."""
    atoms = [f"B('{number}','{'x' * 1000}')"] * 59
    body = f"A() :- {', '.join(atoms)}."
    return PUZZLE_PIECE + f"{lacegram_id(body)} lacegram\n{body}\n\n".encode()


@pytest.mark.requirement("060-147")
def test_all_resources_together() -> None:
    pieces = [PREFACE, *(_resource(number) for number in range(20))]

    def read(allowed: int) -> None:
        inbound = Inbound(max_block_bytes=2**20, max_data_bytes=2**20, max_resource_bytes=allowed)
        for piece in pieces:
            inbound.feed(piece)
            inbound.next_event(is_batch=False)

    read(DEFAULT_SETTINGS.max_resource_bytes)
    with pytest.raises(InterlaceFailure, match="more than 1048576 bytes") as caught:
        read(2**20)
    assert caught.value.hint == "the limit is max_resource_bytes=1048576"
    assert DEFAULT_SETTINGS.max_resource_bytes == 4 * 2**20


@pytest.mark.slow
@pytest.mark.requirement("060-147")
def test_a_server_limits_resources(tmp_path: Path) -> None:
    left, right = make_parties(tmp_path)
    pieces = [PREFACE, *(_resource(number) for number in range(20))]
    with serving(right, left, "tcp:127.0.0.1:0", "--set", "max_resource_bytes=1MiB") as server:
        port = int(server.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as peer, suppress(ConnectionError):
            peer.sendall(b"".join(pieces))
            while peer.recv(65536):
                pass
        server.wait_for("rule=060-147")
