"""`lace sync` and `lace serve` as processes: two laces converge over every binding."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lace.api import open_lace
from lace.transport.capture import read_capture
from tests.cli.links import Party, hashes, make_parties, plex, serving, wait_until
from tests.cli.running import Result, call, on_terminal, process, spawn
from tests.cli.screens import at_terminal
from tests.unit.transport.certificates import Certificates, fingerprint


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


def here(left: Party, right: Party, address: str, *more: object) -> Result:
    """Run `lace sync` in this process."""
    return call("sync", address, *left.policy(right), *more)


def check_converged(left: Party, right: Party, count: int = 10) -> None:
    assert hashes(left) == hashes(right)
    assert len(hashes(left)) == count


# -- each binding --------------------------------------------------------------------------------


@pytest.mark.requirement("060-132")
@pytest.mark.parametrize("binding", ["unix", "tcp", "ws"])
def test_two_laces_converge(parties: tuple[Party, Party], tmp_path: Path, binding: str) -> None:
    left, right = parties
    address = f"unix:{tmp_path}/s" if binding == "unix" else f"{binding}:127.0.0.1:0"
    with serving(right, left, address, "--peer", left.verifier) as server:
        done = left.sync(right, server.address, "--peer", right.verifier, "--json")
        assert done.code == 0, done.err
        result = done.json()
        assert result["at-fixed-point"]
        assert result["peer-verifier"] == right.verifier
        assert len(result["received-hashes"]) == 5
        check_converged(left, right)
        again = left.sync(right, server.address)
        assert again.code == 0
        assert again.lines[0] == "at-fixed-point yes"
        assert "received 0" in again.lines
        server.wait_for("outcome=fixed-point", 2)
        assert f"peer={left.verifier}" in server.errors
        assert not any(record in server.errors for record in hashes(left))
        assert server.end() == 143
    for party in parties:
        assert process("--lace", party.folder, "verify").code == 0


def test_wss(parties: tuple[Party, Party], certificates: Certificates) -> None:
    left, right = parties
    files = [
        *("--tls-cert", certificates.certificate("server")),
        *("--tls-key", certificates.key("server")),
    ]
    with serving(right, left, "wss:127.0.0.1:0", *files) as server:
        ca = ("--ca", certificates.certificate("authority"))
        done = left.sync(right, server.address, *ca)
        assert done.code == 0, done.err
        assert "warning" not in done.err
        check_converged(left, right)
        assert "warning" not in server.errors
        untrusted = left.sync(right, server.address)
        assert untrusted.code == 4
        assert "--ca FILE" in untrusted.err
    with serving(
        right,
        left,
        "wss:127.0.0.1:0",
        *("--tls-cert", certificates.certificate("elsewhere")),
        *("--tls-key", certificates.key("elsewhere")),
    ) as server:
        wrong = left.sync(right, server.address, *ca)
        assert wrong.code == 4
        assert "the server's certificate is not for 127.0.0.1" in wrong.err
        check_one_line(wrong)


@pytest.mark.requirement("060-137")
def test_a_client_is_known_by_its_certificate(
    parties: tuple[Party, Party], certificates: Certificates, tmp_path: Path
) -> None:
    left, right = parties
    known = fingerprint(certificates.certificate("client"))
    (tmp_path / "clients").write_text(f"{known} {left.verifier}\n")
    files = [
        *("--tls-cert", certificates.certificate("server")),
        *("--tls-key", certificates.key("server")),
        *("--tls-client-map", tmp_path / "clients"),
        *("--tls-client-ca", certificates.certificate("authority")),
    ]
    own = [
        *("--ca", certificates.certificate("authority")),
        *("--tls-cert", certificates.certificate("client")),
        *("--tls-key", certificates.key("client")),
    ]
    with serving(right, left, "wss:127.0.0.1:0", *files, "--plain") as server:
        done = left.sync(right, server.address, *own, "--plain")
        assert done.code == 0, done.err
        assert f"peer={left.verifier}" in server.errors
        assert len(hashes(left)) == 10
        assert len(hashes(right)) == 5, "the server has proven nothing, so nothing is sent to it"


@pytest.mark.requirement("060-128")
def test_a_user_of_a_unix_socket_is_known_by_its_number(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, right = parties
    (tmp_path / "users").write_text(f"{os.getuid()} {left.verifier}\n")
    known = ("--uid-map", tmp_path / "users", "--peer", left.verifier, "--plain")
    with serving(right, left, f"unix:{tmp_path}/s", *known) as server:
        done = left.sync(right, server.address, "--plain")
        assert done.code == 0, done.err
        assert len(hashes(left)) == 10


@pytest.mark.requirement("050-41", "060-128")
@pytest.mark.parametrize("mode", [0, 2])
def test_proven_peers_exchange_without_a_signature(
    parties: tuple[Party, Party], tmp_path: Path, mode: int
) -> None:
    """`Peer(S)` holds of a user that the uid map names, whatever the wire has for S."""
    left, right = parties
    for name, party in (("left", left), ("right", right)):
        (tmp_path / f"{name}.users").write_text(f"{os.getuid()} {party.verifier}\n")
    how = ("--plain", "--lowering", "proven-peer-v1", "--set", f"reconcile_mode={mode}")
    known = ("--uid-map", tmp_path / "left.users")
    with serving(right, left, f"unix:{tmp_path}/s", *how, *known) as server:
        own = ("--uid-map", tmp_path / "right.users", "--peer", right.verifier)
        seen = left.sync(right, server.address, *how, *own, "--dry-run", "--json")
        assert seen.code == 0, seen.err
        assert len(seen.json()["dry-run"]["request"]) == 5
        done = left.sync(right, server.address, *how, *own, "--json")
        assert done.code == 0, done.err
        assert done.json()["peer-verifier"] == right.verifier
        check_converged(left, right)


def test_a_claim_in_the_table_of_a_peer(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    (left.folder / "users").write_text(f"{os.getuid()} {right.verifier}\n")
    (tmp_path / "users").write_text(f"{os.getuid()} {left.verifier}\n")
    known = ("--plain", "--uid-map", tmp_path / "users", "--claim", right.verifier)
    with serving(right, left, f"unix:{tmp_path}/s", *known) as server:
        table = f"""\
[peer.office]
address = "{server.address}"
select = "../all.lace"
expose = ["../view.lace@{right.verifier}"]
claim = "{left.verifier}"
uid-map = "users"
plain = true
"""
        (left.folder / "lace.toml").write_text(table)
        done = process("--lace", left.folder, "sync", "office", "--json")
        assert done.code == 0, done.err
        assert done.json()["link-id"] is not None
        check_converged(left, right)
        # A key on the command line takes the place of the table's claim.
        signed = process("--lace", left.folder, "sync", "office", "--key", left.verifier)
        assert signed.code == 0, signed.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--claim", "V.x"), "verifier"),
        (("--claim", "Opq_0"), "verifier"),
        (("--claim", "{left}", "--key", "{left}"), "claim and key do not go together"),
        (("--uid-map", "nowhere"), "nowhere"),
        (("--claim", ""), "verifier"),
    ],
)
def test_bad_claims(parties: tuple[Party, Party], more: tuple[str, ...], said: str) -> None:
    left, right = parties
    options = [each.format(left=left.verifier) for each in more]
    for command in ("sync", "serve"):
        done = call(command, "unix:/nowhere/s", *left.policy(right), *options)
        assert done.code == 2, done.err
        assert said in done.err
        check_one_line(done)


def test_stdio(parties: tuple[Party, Party]) -> None:
    left, right = parties
    child = [sys.executable, "-m", "lace", "serve", "stdio", *right.policy(left)]
    done = left.sync(right, "stdio", "--", *child)
    assert done.code == 0, done.err
    assert done.lines[0] == "at-fixed-point yes"
    assert "stdio\n" in done.err, "the child's address goes to standard error"
    assert "outcome=fixed-point" in done.err
    check_converged(left, right)


def test_what_a_command_says_stands_beside_the_line_that_moves(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, right = parties
    slow = f"until [ -e '{tmp_path}/go' ]; do sleep 0.05; done; echo said >&2; exec \"$@\""
    child = ("sh", "-c", slow, "sh", sys.executable, "-m", "lace", "serve", "stdio")
    arguments = ("sync", "stdio", *left.policy(right), "--", *child, *right.policy(left))
    with at_terminal(*arguments, columns=200) as screen:
        screen.wait_for("sync with stdio, ", 2)
        (tmp_path / "go").touch()
        assert screen.end() == 0
        lines = screen.lines()
        assert "said" in lines
        assert "stdio" in lines
        assert [line for line in lines if line.startswith("link=1 ")], "whole, on its own line"
        assert not [line for line in lines if "sync with" in line]


def test_what_a_command_asks_is_not_drawn_over(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    """Its line stays as it is until the exchange begins; then the line that moves is below it."""
    left, right = parties
    asking = (
        f"until [ -e '{tmp_path}/ask' ]; do sleep 0.05; done; printf 'which one? ' >&2;"
        f" until [ -e '{tmp_path}/go' ]; do sleep 0.05; done; exec \"$@\""
    )
    child = ("sh", "-c", asking, "sh", sys.executable, "-m", "lace", "serve", "stdio")
    arguments = ("sync", "stdio", *left.policy(right), "--", *child, *right.policy(left))
    with at_terminal(*arguments, columns=200) as screen:
        screen.wait_for("sync with stdio, ", 2)
        (tmp_path / "ask").touch()
        screen.wait_for("which one? ")
        time.sleep(1.0)  # the line would have moved several times
        assert screen.lines()[-1].rstrip() == "which one?"
        (tmp_path / "go").touch()
        assert screen.end() == 0
        lines = [line.rstrip() for line in screen.lines()]
        assert "which one? stdio" in lines, "what it says next goes on in its line"
        assert not [line for line in lines if "sync with" in line]


def test_a_line_that_a_command_leaves_open_is_ended(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, right = parties
    asking = (
        f"until [ -e '{tmp_path}/ask' ]; do sleep 0.05; done; printf 'which one? ' >&2; exec \"$@\""
    )
    child = ("sh", "-c", asking, "sh", sys.executable, "-m", "lace", "serve", "stdio", "-q")
    arguments = ("sync", "stdio", *left.policy(right), "--", *child, *right.policy(left))
    with at_terminal(*arguments, columns=200) as screen:
        screen.wait_for("sync with stdio, ", 2)
        (tmp_path / "ask").touch()
        assert screen.end() == 0
        assert "which one?" in [line.rstrip() for line in screen.lines()]


def test_stdio_in_quiet(parties: tuple[Party, Party]) -> None:
    """The child says nothing: what comes from it is the exchange alone."""
    left, right = parties
    child = [sys.executable, "-m", "lace", "serve", "stdio", "-q", *right.policy(left)]
    done = left.sync(right, "stdio", "-q", "--", *child)
    assert (done.code, done.err) == (0, "")
    assert hashes(left) == hashes(right)
    sink = left.sync(right, "stdio", "-q", "--", *child, "--json")
    assert sink.code == 0
    (told,) = sink.err.splitlines()
    assert json.loads(told)["at-fixed-point"] is True, "what was asked for, and no address"


def test_a_server_for_a_reader_that_goes(parties: tuple[Party, Party]) -> None:
    """Whoever reads the address alone may go; a reader of links that has gone ends it."""
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        assert server.process.stdout is not None
        server.process.stdout.close()
        assert left.sync(right, server.address).code == 0
        assert left.sync(right, server.address).code == 0, "it goes on"
        assert server.process.poll() is None
    started = spawn("serve", "tcp:127.0.0.1:0", *right.policy(left), "--json")
    assert started.stdout is not None
    assert started.stderr is not None
    address = json.loads(started.stdout.readline())["address"]
    started.stdout.close()
    assert left.sync(right, address).code == 0
    assert started.wait(60) == 141
    assert b"rror" not in started.stderr.read()
    started.stderr.close()


def test_stdio_without_a_peer(parties: tuple[Party, Party]) -> None:
    left, right = parties
    alone = process("serve", "stdio", *left.policy(right), given=b"")
    assert alone.code == 4
    no_command = left.sync(right, "stdio")
    assert no_command.code == 2
    assert "there is no command to start" in no_command.err
    missing = left.sync(right, "stdio", "--", "no-such-program-here")
    assert missing.code == 2
    assert "is not found" in missing.err
    ended = left.sync(right, "stdio", "--", "true")
    assert ended.code == 4
    assert "peer closed early" in ended.err or "ended before its preface" in ended.err
    elsewhere = left.sync(right, "tcp:127.0.0.1:1", "--", "true")
    assert elsewhere.code == 2
    assert "a command is for stdio addresses only" in elsewhere.err


# -- what cannot work, in one line ---------------------------------------------------------------


def test_nobody_listens(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = here(left, right, f"tcp:127.0.0.1:{free.getsockname()[1]}")
    assert refused.code == 4
    assert "nobody listens there" in refused.err
    absent = here(left, right, f"unix:{tmp_path}/none")
    assert absent.code == 4
    assert "there is no such socket" in absent.err
    for done in (refused, absent):
        check_one_line(done)


def check_one_line(done: Result) -> None:
    """What went wrong is said once, in one line, perhaps with a hint below it."""
    assert done.out == ""
    assert "Traceback" not in done.err
    said = [line for line in done.err.splitlines() if line.startswith("lace: ")]
    assert len([line for line in said if not line.startswith("lace: warning")]) == 1, done.err


def test_an_address_that_cannot_be_had(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        used = call("serve", f"tcp:127.0.0.1:{port}", *left.policy(right))
    assert used.code == 3
    assert f"port {port} is in use" in used.err
    path = tmp_path / ("x" * 110)
    long = call("serve", f"unix:{path}", *left.policy(right))
    assert long.code == 2
    assert "a socket's has at most 107" in long.err
    bare = call("serve", "wss:127.0.0.1:0", *left.policy(right))
    assert bare.code == 2
    assert "wss needs a certificate and its key" in bare.err
    gone = ("--tls-cert", tmp_path / "no.pem", "--tls-key", tmp_path / "no.key")
    missing = call("serve", "wss:127.0.0.1:0", *left.policy(right), *gone)
    assert missing.code == 2
    assert "no.pem: the file cannot be read" in missing.err
    url = call("serve", "ws://127.0.0.1", *left.policy(right))
    assert url.code == 2
    for done in (used, long, bare, missing, url):
        check_one_line(done)


def test_wrong_usage(parties: tuple[Party, Party]) -> None:
    left, right = parties
    own = ["--lace", left.folder]
    missing = call("sync", "tcp:127.0.0.1:1", *own, "--select", "no-such.lace")
    assert missing.code == 2
    assert "no-such.lace cannot be read" in missing.err
    bare = call("sync", "tcp:127.0.0.1:1", *own)
    assert bare.code == 2
    assert "--select FILE is missing" in bare.err
    Path("bad.lace").write_text("SelectHave(P) :- Nothing(P).\n")
    bad = call("sync", "tcp:127.0.0.1:1", *own, "--select", "bad.lace")
    assert bad.code == 1
    assert "bad.lace:1:" in bad.err
    unknown = call("sync", "office", *own, "--select", left.select)
    assert unknown.code == 2
    assert "there is no peer 'office'" in unknown.err
    nobody = here(left, right, "tcp:127.0.0.1:1", "--peer", "me")
    assert nobody.code == 2
    stranger = here(left, right, "tcp:127.0.0.1:1", "--key", right.verifier)
    assert stranger.code != 0
    assert "Traceback" not in "".join(each.err for each in (missing, bare, bad, nobody, stranger))


def test_a_peer_that_speaks_http(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection = server.accept()[0]
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        done = left.sync(right, f"tcp:127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert done.code == 4
    assert "HTTP" in done.err
    assert done.lines[0] == "at-fixed-point no"


def test_a_bad_peer_harms_nobody_else(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--peer", left.verifier) as server:
        port = int(server.address.rpartition(":")[2])
        for raw in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", b"\xff" * 5000):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        server.wait_for("outcome=failed", 3)
        assert "malformed fact block" in server.errors
        stranger = right.sync(right, server.address)
        assert stranger.code == 4
        server.wait_for("peer verifier mismatch")
        good = left.sync(right, server.address)
        assert good.code == 0, good.err
        check_converged(left, right)
        assert "Traceback" not in server.errors


def test_a_wrong_peer_is_refused(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        done = left.sync(right, server.address, "--peer", left.verifier)
        assert done.code == 4
        assert f"the peer claims to be {right.verifier}" in done.err
        assert len(hashes(left)) == len(hashes(right)) == 5


# -- how a server runs ---------------------------------------------------------------------------


def test_once(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--once", "--json") as server:
        address = json.loads(server.address)["address"]
        assert left.sync(right, address).code == 0
        assert server.process.wait(60) == 0
        assert server.process.stdout is not None
        line = json.loads(server.process.stdout.readline())
        assert line["link"] == 1
        assert len(line["received-hashes"]) == 5
    assert process("--lace", right.folder, "log", "--json").json_lines()[-1]["command"] == "serve"
    result = process("--lace", left.folder, "log", "--json").json_lines()[-1]["result"]
    assert (result["address"], result["received"], result["fixed_point"]) == (address, 5, True)
    assert result["bytes_sent"] > 0
    assert result["bytes_received"] > 0
    assert result["selector"].startswith("R.")
    assert len(result["exposures"]) == 1
    assert "reason" not in result


def test_the_log_says_why_a_link_failed(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    address = f"unix:{tmp_path}/nobody"
    assert left.sync(right, address).code == 4
    entry = process("--lace", left.folder, "log", "--json").json_lines()[-1]
    assert (entry["command"], entry["exit_code"]) == ("sync", 4)
    assert entry["result"]["address"] == address
    assert entry["result"]["error"] == "TransportError"
    assert "nobody" in entry["result"]["message"]


def test_a_named_exposure_over_a_plain_stream_is_warned_of(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        server.wait_for("a proof says who opened the exchange")


def test_many_links_at_once(parties: tuple[Party, Party], tmp_path: Path) -> None:
    _, right = parties
    clients = [make_parties(_made(tmp_path / f"c{number}"))[0] for number in range(3)]
    exposing = [part for each in clients for part in ("--expose", f"{right.view}@{each.verifier}")]
    with serving(right, clients[0], "tcp:127.0.0.1:0", *exposing[2:]) as server:
        started = [spawn("sync", server.address, *each.policy(right), "--json") for each in clients]
        for each in started:
            out, err = each.communicate(timeout=60)
            assert each.returncode == 0, err
            assert json.loads(out)["at-fixed-point"]
        server.wait_for("outcome=fixed-point", 3)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_an_open_link_carries_on_and_ends_cleanly(
    parties: tuple[Party, Party], number: signal.Signals, code: int
) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--open") as server:
        started = spawn("sync", server.address, *left.policy(right), "--open")
        try:
            wait_until(lambda: hashes(left) == hashes(right))
            with open_lace(right.folder) as lace:
                lace.add(plex("later"))
            wait_until(lambda: len(hashes(left)) == 11)
            if number is signal.SIGTERM:
                assert server.end(number) == code
                assert "outcome=fixed-point" in server.errors
            started.send_signal(number)
            out, err = started.communicate(timeout=60)
        finally:
            started.kill()
        assert started.returncode == code, err
        assert b"at-fixed-point yes" in out
        if number is signal.SIGINT:
            assert b"interrupted; 6 records came on the last link and are stored\n" in err


def test_a_server_that_keeps_no_link_open_is_asked_again_and_again(
    parties: tuple[Party, Party],
) -> None:
    """At a steady pace: what is new there does not come later and later. It is said once."""
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        started = spawn("sync", server.address, *left.policy(right), "--open")
        try:
            wait_until(lambda: hashes(left) == hashes(right))
            for number in range(3):
                with open_lace(right.folder) as lace:
                    lace.add(plex(f"later/{number}"))
                wait_until(lambda: hashes(left) == hashes(right))
            started.terminate()
            _, err = started.communicate(timeout=60)
        finally:
            started.kill()
    assert err.count(b"is asked again every 2 s") == 1
    assert b"; again in" not in err


def test_rule_files_are_read_again(parties: tuple[Party, Party]) -> None:
    left, right = parties
    text = right.select.read_text()
    right.select.write_text(text.replace("Have(P).", "Have(P), Field(P,'Group',_,'first')."))
    with open_lace(right.folder) as lace:
        lace.add(plex("first", group="first"))
    own = left.select.with_name("own.lace")
    own.write_text(text)
    with serving(right, left, "tcp:127.0.0.1:0", "--open") as server:
        options = [*left.policy(right)]
        options[options.index("--select") + 1] = str(own)
        started = spawn("sync", server.address, *options, "--open")
        try:
            wait_until(lambda: len(hashes(left)) == 6)
            right.select.write_text("nonsense")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("what was read before counts")
            right.select.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("were read again")
            wait_until(lambda: len(hashes(left)) == len(hashes(right)) == 11)
        finally:
            started.kill()
            started.communicate()
        server.wait_for("link=1")
        assert server.process.poll() is None


def test_a_peer_with_a_name(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        table = f"""\
[peer.office]
address = "{server.address}"
select = "../all.lace"
expose = ["../view.lace@{right.verifier}"]
peer = "{right.verifier}"
"""
        (left.folder / "lace.toml").write_text(table)
        done = process("--lace", left.folder, "sync", "office")
        assert done.code == 0, done.err
        check_converged(left, right)
        wrong = process("--lace", left.folder, "sync", "office", "--peer", left.verifier)
        assert wrong.code == 4, "the command line goes over the table"
    for bad, said in (
        ("adress = 'x'", "did you mean 'address'?"),
        ("select = 1", "select is a text"),
        ("select = 'x'", "a peer has an address"),
        ("expose = 'x'", "expose is a list of texts"),
    ):
        (left.folder / "lace.toml").write_text(f"[peer.office]\n{bad}\n")
        done = call("--lace", left.folder, "sync", "office")
        assert done.code == 2
        assert said in done.err
    near = call("--lace", left.folder, "sync", "ofice")
    assert "did you mean 'office'?" in near.err


@pytest.mark.requirement("060-03", "060-129")
def test_a_socket_whose_path_has_spaces(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    address = f"unix:{tmp_path}/my  socket "
    select = tmp_path / "here.lace"
    select.write_text(
        f"SelectHave(P) :- Have(P), Transport('{address}').\n"
        f"SelectAdvertised(P,S) :- Advertised(P,S), Transport('{address}').\n"
    )
    left, right = (replace(party, select=select) for party in parties)
    with serving(right, left, address) as server:
        assert server.address == address, "the first line is the address"
        table = {
            "address": server.address,
            "select": str(select),
            "expose": [f"{left.view}@{right.verifier}"],
        }
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in table.items()]
        (left.folder / "lace.toml").write_text("[peer.office]\n" + "".join(lines))
        done = process("--lace", left.folder, "sync", "office")
        assert done.code == 0, done.err
        check_converged(left, right)
        server.end()
        assert not (tmp_path / "my  socket ").exists()


# -- a dry run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_dry_run_moves_nothing(parties: tuple[Party, Party], mode: int) -> None:
    left, right = parties
    mine, theirs = hashes(left), hashes(right)
    set_mode = ("--set", f"reconcile_mode={mode}")
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        done = left.sync(right, server.address, "--dry-run", "--json", *set_mode)
        assert done.code == 0, done.err
        assert "nothing has moved" in done.err
        found = done.json()["dry-run"]
        assert set(found["request"]) == theirs
        assert found["request-in-all"] == 5
        assert set(found["send"]) == set(found["named"]) == set(found["may-send"]) == mine
        assert (hashes(left), hashes(right)) == (mine, theirs)
        server.wait_for("peer closed early")
        assert left.sync(right, server.address).code == 0
        with open_lace(left.folder) as lace:
            new = str(lace.add(plex("new")))
        again = left.sync(right, server.address, "--dry-run", *set_mode)
        assert f"send\t{new}" in again.lines
        assert f"named\t{new}" in again.lines
        assert again.code == 0
        shown = on_terminal("sync", server.address, *left.policy(right), "--dry-run", *set_mode)
        assert "would be sent: 1 record\n" in shown.out
        assert "//u//n//new" in shown.out
    assert len(hashes(right)) == 10


def test_a_capture_has_what_was_on_the_wire(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    path = tmp_path / "capture"
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        done = left.sync(right, server.address, "--capture", path)
        assert done.code == 0, done.err
        port = server.address.rpartition(":")[2]
        server.wait_for("link=1")
        counts = dict(word.split("=", 1) for word in server.errors.split() if "=" in word)
    with path.open(encoding="utf-8", newline="\n") as file:
        text = file.read()
    (pieces,) = read_capture(text.split("\n")[:-1], "capture")
    sent = b"".join(piece for direction, piece in pieces if direction == ">")
    came = b"".join(piece for direction, piece in pieces if direction == "<")
    assert len(sent) == int(counts["bytes_in"])
    assert len(came) == int(counts["bytes_out"])
    assert all(record.encode() in sent + came for record in hashes(left))
    assert port not in text
    assert "view.lace" not in text
    assert "AllowQueryRecord" not in text, "exposures stay at home"
    refused = left.sync(right, server.address, "--capture", tmp_path / "none" / "x")
    assert refused.code == 2
