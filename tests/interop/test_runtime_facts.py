"""The runtime facts of 060, seen from outside: by what a lace does with rules that read them.

A probe is an operand of the peer in which each rule selects one record of the lace, if a runtime
fact holds there. What the lace advertises then tells which facts it has (060-114).
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import SECONDS, Serving
from tests.cli.running import call, spawn
from tests.interop.laces import Lace, make_lace, talk
from tests.interop.peer.keys import Key
from tests.interop.peer.plan import Selector, Written
from tests.interop.peer.records import plex, seal
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import PipeStream, connect
from tests.interop.peer.text import Fact, PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.peer.streams import Stream
    from tests.unit.transport.certificates import Certificates

pytestmark = pytest.mark.slow

KEY, MEMBER, STRANGER = Key.generate(), Key.generate(), Key.generate()
LOCAL = "127.0.0.1"
SKEW = 100

PROBES = {
    "peer": "Peer(V)",
    "this peer": f"Peer('{KEY.verifier}')",
    "here": "Here(V)",
    "encrypted": "TransportEncrypted()",
    "stdio": "Transport('stdio')",
    "unix": "Transport(T), TextShape(T,'unix:','','')",
    "tcp": f"Transport(T), TextShape(T,'tcp:{LOCAL}:','','')",
    "ws": f"Transport(T), TextShape(T,'ws:{LOCAL}:','/','interlace')",
    "wss": f"Transport(T), TextShape(T,'wss:{LOCAL}:','/','interlace')",
    "time": "StartTAI(T), TickTAI(T)",
    "skew": f"ClockSkewSeconds(N), IntCompare(N,'>=','{SKEW - 30}')",
}
PROBE = "\n".join(
    [f"SelectHave(P) :- Field(P,'Name',_,'{name}'), {body}." for name, body in PROBES.items()]
    + ["SelectAdvertised(P,S) :- Advertised(P,S)."]
)
PROBED = {plex("probe", name).id: name for name in PROBES}


class Early(Session):
    """Its clock goes wrong by so many seconds."""

    def hello_block(self, setups: tuple[list[Fact], list[Fact]]) -> list[Fact]:
        hello = super().hello_block(setups)
        seconds, _, rest = hello[1][1].partition(":")
        return [hello[0], ("HelloTAI", f"{int(seconds) - SKEW}:{rest}"), *hello[2:]]


@contextmanager
def on_stdio(lace: Lace) -> Iterator[Stream]:
    """Start a `lace serve stdio`."""
    pipe = subprocess.PIPE
    started = spawn("serve", "stdio", *lace.options, stdin=pipe, stdout=pipe, bufsize=0)
    assert started.stdin is not None
    assert started.stdout is not None
    with started:
        yield PipeStream(started.stdout, started.stdin)
        assert started.wait(SECONDS) == 0


@contextmanager
def on_address(lace: Lace, address: str, certificates: Certificates) -> Iterator[Serving]:
    """Start a `lace serve`."""
    files: list[object] = []
    if address.startswith("wss:"):
        files = ["--tls-cert", certificates.certificate("server")]
        files += ["--tls-key", certificates.key("server")]
    with lace.serving(address, *files) as server:
        yield server


def run(kind: type[Session], peer: Peer, server: Serving, certificates: Certificates) -> Session:
    """Connect to a server and run an exchange."""
    stream = connect(server.address, authority=certificates.certificate("authority"))
    try:
        session = kind(peer, stream, 0)
        session.run()
        return session
    finally:
        stream.close()


@pytest.fixture
def probed(tmp_path: Path) -> Lace:
    made = make_lace(tmp_path / "there", [plex("probe", name) for name in PROBES])
    made.new_key()
    return made


@pytest.mark.requirement("060-114", "060-115", "060-116", "060-117", "060-118", "060-119")
@pytest.mark.requirement("060-120", "060-123", "060-129", "060-130")
@pytest.mark.requirement("060-131", "060-134", "060-135", "060-136", "060-137")
@pytest.mark.parametrize("scheme", ["unix", "tcp", "ws", "wss"])
def test_the_facts_of_each_address(
    probed: Lace, tmp_path: Path, certificates: Certificates, scheme: str
) -> None:
    address = f"unix:{tmp_path}/s" if scheme == "unix" else f"{scheme}:{LOCAL}:0"
    with on_address(probed, address, certificates) as server:
        for key in (KEY, None):
            check_facts(run(Early, probing(key), server, certificates), scheme, key)


@pytest.mark.requirement("060-114", "060-119", "060-120", "060-126", "060-127")
@pytest.mark.parametrize("key", [KEY, None], ids=["proven", "nameless"])
def test_the_facts_of_stdio(probed: Lace, key: Key | None) -> None:
    with on_stdio(probed) as stream:
        session = Early(probing(key), stream, 0)
        session.run()
    check_facts(session, "stdio", key)


def probing(key: Key | None) -> Peer:
    return Peer(selector=Written(rules=PROBE), key=key, mode=0)


def check_facts(session: Session, scheme: str, key: Key | None) -> None:
    """Already the first advertisements depend on them: they are there before any evaluation."""
    expected = {scheme, "here", "time", "skew"}
    expected |= {"peer", "this peer"} if key else set()
    expected |= {"encrypted"} if scheme == "wss" else set()
    first = {PROBED[fact[1]] for fact in session.wire.received[2] if fact[0] == "Advertised"}
    assert first == expected
    assert {PROBED[name] for name in session.result.received} == expected


@pytest.mark.requirement("060-125")
@pytest.mark.parametrize("body", ["_Viewer(V)", "CanQueryRecord(V,P)", "MaySend(P)"])
def test_a_peers_rules_reach_nothing_private(probed: Lace, body: str) -> None:
    rules = f"SelectHave(P) :- Have(P), {body}.\nSelectAdvertised(P,S) :- Advertised(P,S)."
    with probed.serving("tcp:127.0.0.1:0") as server:
        with pytest.raises(PeerError, match="the stream ends"):
            talk(Peer(selector=Written(rules=rules)), server.address)
        server.wait_for("outcome=failed")
        assert "malformed exchange module" in server.errors


# -- the examples of 060 -------------------------------------------------------------------------


MINE, MEMBERS, STRANGERS = (
    seal(plex("u", name), key)
    for name, key in (("mine", KEY), ("member", MEMBER), ("stranger", STRANGER))
)
SIGNED = "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Signed-By',_,V)"
IS_MEMBER = (
    "Member(V) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'member'), Field(P,'Name',_,V)."
)


class Trusting(Session):
    """It takes the other operand for one that selects everything that it has."""

    def follow(self, text: str) -> Selector:
        return Written(rules=text)


def accepted(
    tmp_path: Path,
    certificates: Certificates,
    *rules: str,
    key: Key | None = KEY,
    scheme: str = "tcp",
    members: tuple[Key, ...] = (),
) -> set[str]:
    """Run an exchange with a lace that has such rules; returns what it took, by name."""
    selector = Written(rules="\n".join(["SelectHave(P) :- Have(P).", *rules]))
    known = [plex("u", member.verifier, app="member") for member in members]
    folder = tmp_path / f"{scheme}-{key is not None}-{len(members)}"
    lace = make_lace(folder, known, selector=selector)
    peer = Peer(key=key)
    peer.add([MINE, MEMBERS, STRANGERS])
    address = f"unix:{folder}.s" if scheme == "unix" else f"{scheme}:{LOCAL}:0"
    with on_address(lace, address, certificates) as server:
        run(Trusting, peer, server, certificates)
    here = {MINE.id: "mine", MEMBERS.id: "member", STRANGERS.id: "stranger"}
    return {here[name] for name in lace.records() - {record.id for record in known}}


@pytest.mark.requirement("060-121", "060-122", "060-138")
def test_only_from_a_proven_peer(tmp_path: Path, certificates: Certificates) -> None:
    rule = f"{SIGNED}, Peer(V)."
    assert accepted(tmp_path, certificates, rule) == {"mine"}
    assert accepted(tmp_path, certificates, rule, key=None) == set()


@pytest.mark.requirement("060-139")
def test_from_a_known_member(tmp_path: Path, certificates: Certificates) -> None:
    rules = f"{SIGNED}, Member(V).", IS_MEMBER
    assert accepted(tmp_path, certificates, *rules, members=(MEMBER,)) == {"member"}
    assert accepted(tmp_path, certificates, *rules) == set()


@pytest.mark.requirement("060-140")
def test_only_over_a_unix_socket(tmp_path: Path, certificates: Certificates) -> None:
    rule = f"{SIGNED}, Transport(T), TextShape(T,'unix:','','')."
    everything = {"mine", "member", "stranger"}
    assert accepted(tmp_path, certificates, rule, scheme="unix") == everything
    assert accepted(tmp_path, certificates, rule) == set()


@pytest.mark.requirement("060-124", "060-141")
def test_only_over_an_encrypted_transport(tmp_path: Path, certificates: Certificates) -> None:
    rule = f"{SIGNED}, TransportEncrypted()."
    everything = {"mine", "member", "stranger"}
    assert accepted(tmp_path, certificates, rule, scheme="wss", key=None) == everything
    assert accepted(tmp_path, certificates, rule, scheme="ws") == set()


@pytest.mark.requirement("060-142")
def test_only_from_a_proven_member(tmp_path: Path, certificates: Certificates) -> None:
    rules = f"{SIGNED}, Peer(V), Member(V).", IS_MEMBER
    both = (KEY, MEMBER)
    assert accepted(tmp_path, certificates, *rules, members=both) == {"mine"}
    assert accepted(tmp_path, certificates, *rules, members=both, key=None) == set()
    assert accepted(tmp_path, certificates, *rules, members=(MEMBER,)) == set()


@pytest.mark.requirement("060-143")
def test_nobody_writes_or_says_what_is_generated(tmp_path: Path, probed: Lace) -> None:
    """A module does not define MaySend or MayRequest, and a peer does not command."""
    rules = f"SelectHave(P) :- Have(P).\n{SIGNED}.\nMayRequest(P) :- Advertised(P,S)."
    file = tmp_path / "handmade.lace"
    file.write_text(f"{rules}\n")
    refused = call("rules", "check", "--profile", "selector", file)
    assert refused.code == 1
    assert "MayRequest" in refused.out + refused.err
    with probed.serving("tcp:127.0.0.1:0") as server:
        with pytest.raises(PeerError, match="the stream ends"):
            talk(Peer(selector=Written(rules=rules)), server.address)
        for count, command in enumerate([("Get", "note"), ("MaySend", MINE.id)], 2):
            stream = connect(server.address)
            with pytest.raises(PeerError, match="the stream ends"):
                commanding(command)(Peer(mode=0), stream, 0).run()
            stream.close()
            server.wait_for("outcome=failed", count)


def commanding(command: Fact) -> type[Session]:
    """A peer that puts a command of its own into its first block after the hello."""

    class Commanding(Session):
        def turn(self, block: list[Fact]) -> list[Fact]:
            return super().turn([*block, command])

    return Commanding
