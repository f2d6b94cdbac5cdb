"""`lace remote`: operations on a peer are ordinary exchanges, as processes over real streams."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.exchange.effects import SendBatch
from lace.link.events import Claims
from lace.record.model import Plex, Seal
from lace.record.validate import parse_record
from tests.cli.links import Party, Serving, hashes, make_parties, plex, serving, wait_until
from tests.cli.running import Result, call, on_terminal, process, spawn
from tests.cli.screens import at_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.exchange.effects import Effect
    from lace.exchange.events import Event

RIGHT = "SelectHave(P) :- Have(P), Field(P,'Group',_,'u').\n" + (
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'u').\n"
)


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    """Two laces; the right one takes and gives only what is of the group u."""
    left, right = make_parties(tmp_path)
    select = tmp_path / "right.lace"
    select.write_text(RIGHT)
    with open_lace(right.folder) as lace:
        lace.add(plex("hidden", group="private"))
    return left, Party(right.folder, right.verifier, select, right.view)


@pytest.fixture
def server(parties: tuple[Party, Party]) -> Iterator[Serving]:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0") as started:
        yield started


def remote(left: Party, operation: str, *more: object) -> Result:
    """Run an operation in this process."""
    return call("remote", operation, *more, "--lace", left.folder)


def child_of(left: Party, right: Party) -> list[str]:
    return [sys.executable, "-m", "lace", "serve", "stdio", *right.policy(left)]


# -- each operation ------------------------------------------------------------------------------


@pytest.mark.requirement("050-204")
@pytest.mark.requirement("050-205")
def test_operations_over_tcp(parties: tuple[Party, Party], server: Serving) -> None:
    left, right = parties
    before = hashes(left)
    at = server.address

    listed = process("remote", "list", at, "//u//n//right/", "--lace", left.folder, "--json")
    assert listed.code == 0, listed.err
    rows = listed.json_lines()
    assert [row["coordinate"] for row in rows] == [f"//u//n//right/{n}" for n in range(5)]
    assert {row["data_length"] for row in rows} == {1}
    assert not any(row["here"] for row in rows)
    assert hashes(left) == before, "a listing moves nothing"

    got = process("remote", "get", at, "//u//n//right/3", "--body", "--lace", left.folder)
    assert got.code == 0, got.err
    assert got.raw == b"x"
    assert "1 record came and is stored" in got.err
    assert len(hashes(left)) == 6, "that one and no other"
    assert len(hashes(right)) == 6, "and nothing was sent"

    mine = str(plex("left/2").id)
    stored = process("remote", "store", at, mine, "--lace", left.folder, "--peer", right.verifier)
    assert stored.code == 0, stored.err
    assert stored.lines == [f"{mine}\tconfirmed"]
    assert mine in hashes(right)
    server.wait_for("outcome=fixed-point", 3)
    assert "outcome=failed" not in server.errors, "to the server they are exchanges like any other"


@pytest.mark.requirement("050-204")
def test_operations_over_stdio(parties: tuple[Party, Party]) -> None:
    left, right = parties
    child = ["--", *child_of(left, right)]
    assert len(call("--lace", left.folder, "remote", "list", "stdio", *child).lines) == 5
    record = str(plex("right/0").id)
    got = call("--lace", left.folder, "remote", "get", "stdio", record, *child)
    assert got.code == 0, got.err
    assert parse_record(got.raw).id == record
    mine = str(plex("left/0").id)
    stored = call("--lace", left.folder, "--json", "remote", "store", "stdio", mine, *child)
    assert stored.code == 0, stored.err
    assert stored.json()["records"] == [{"id": mine, "state": "confirmed", "receipt": None}]
    assert mine in hashes(right)


@pytest.mark.requirement("050-204")
def test_a_peer_with_a_name(parties: tuple[Party, Party], server: Serving) -> None:
    left, right = parties
    (left.folder / "lace.toml").write_text(
        f'[peer.office]\naddress = "{server.address}"\nselect = "../all.lace"\n'
        f'expose = ["../view.lace@{right.verifier}"]\npeer = "{right.verifier}"\n'
    )
    assert len(remote(left, "list", "office").lines) == 5
    assert remote(left, "get", "office", "//u//n//right/1", "--body").raw == b"x"
    assert len(hashes(right)) == 6, "what the table exposes is left aside: nothing is sent"
    stored = remote(left, "store", "office", "//u//n//left/1", "//u//n//left/2")
    assert [line.split("\t")[1] for line in stored.lines] == ["confirmed", "confirmed"], stored.err
    assert len(hashes(right)) == 8
    watched = remote(left, "watch", "office", "--limit", 4)
    assert watched.code == 0, watched.err
    assert len(watched.lines) == 4, "what the selector of the table brings"
    log = process("--lace", left.folder, "log", "--json").json_lines()
    commands = [each["command"] for each in log]
    assert commands == ["remote get", "remote store", "remote watch"]
    assert [each["result"]["received"] for each in log] == [1, 0, 4]
    assert {each["result"]["peer"] for each in log} == {right.verifier}
    assert {each["result"]["address"] for each in log} == {"office"}
    assert all(each["result"]["selector"].startswith("R.") for each in log)
    assert [len(each["result"]["exposures"]) for each in log] == [0, 1, 0]
    assert remote(left, "list", "offise").code == 2
    assert "did you mean 'office'?" in remote(left, "list", "offise").err


def test_the_newest_version_that_the_peer_has(
    parties: tuple[Party, Party], server: Serving
) -> None:
    left, right = parties
    versions = [
        Plex(group="u", app="n", name="v", data=str(at).encode(), tai=f"170000000{at}:000000000")
        for at in range(4)
    ]
    with open_lace(right.folder) as lace:
        lace.add_all(versions[:3])
    with open_lace(left.folder) as lace:
        lace.add(versions[3])
    assert remote(left, "get", server.address, "//u//n//v", "--body").raw == b"2"
    assert remote(left, "get", server.address, "//u//n//v", "--body").raw == b"2"
    assert process("--lace", left.folder, "get", "//u//n//v", "--body").raw == b"3"


@pytest.mark.requirement("050-206")
def test_a_record_that_is_gone_when_the_peer_asks_for_it(
    parties: tuple[Party, Party], server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count as sent, and the others do."""
    left, right = parties
    gone, *others = (str(plex(f"left/{number}").id) for number in range(3))
    note = Claims.note

    def remove_before_it_is_sent(self: Claims, effect: Effect, answer: Event | None) -> None:
        note(self, effect, answer)
        if isinstance(effect, SendBatch) and gone in effect.records:
            with open_lace(left.folder) as lace:
                lace.remove(gone)

    monkeypatch.setattr(Claims, "note", remove_before_it_is_sent)
    done = remote(left, "store", server.address, gone, *others, "--json")
    assert done.code == 1, done.err
    states = {each["id"]: each["state"] for each in done.json()["records"]}
    assert states == {gone: "not-sent", **dict.fromkeys(others, "confirmed")}
    assert "the peer asked for it and did not get it" in " ".join(done.err.split())
    assert gone not in hashes(right)
    assert hashes(right) >= set(others)


# -- receipts ------------------------------------------------------------------------------------


@pytest.mark.requirement("050-208")
@pytest.mark.requirement("050-209")
def test_receipts(parties: tuple[Party, Party], server: Serving, tmp_path: Path) -> None:
    left, right = parties
    got = remote(left, "get", server.address, "//u//n//right/1", "--sign-receipts", "--json")
    assert got.code == 0, got.err
    record = got.json()["id"]
    with open_lace(left.folder) as lace:
        receipt = lace.get(f"//lace//receipt//store/{record}")
        assert isinstance(receipt, Seal)
        assert receipt.signed_by == left.verifier
        assert ("Stored-From", right.verifier) in receipt.headers
    # The other way round: what the peer has signed is found with what it says of the record.
    mine = str(plex("left/1").id)
    key = ("--key", right.verifier)
    header = ("--header", f"Stored-Hash: {mine}", "--header", f"Stored-From: {left.verifier}")
    name = ("--group", "lace", "--app", "receipt", "--name", f"store/{mine}")
    made = process("--lace", right.folder, "put", "-", *name, *header, "--sign", *key)
    assert made.code == 0, made.err
    all_of_it = tmp_path / "all.lace"
    file = tmp_path / "stored.json"
    with serving(
        Party(right.folder, right.verifier, all_of_it, right.view), left, "tcp:127.0.0.1:0"
    ) as s:
        done = remote(left, "store", s.address, mine, "--receipt", file)
    assert done.code == 0, done.err
    document = json.loads(file.read_bytes())
    assert document["peer-verifier"] == right.verifier
    assert document["records"] == [
        {"id": mine, "state": "confirmed", "receipt": made.lines[0]},
    ]


# -- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.requirement("050-206")
def test_what_the_peer_does_not_offer(parties: tuple[Party, Party], server: Serving) -> None:
    left, right = parties
    hidden = str(plex("hidden", group="private").id)
    for text in ("//private//n//hidden", hidden, "//u//n//nothing"):
        done = remote(left, "get", server.address, text, "--json")
        assert done.code == 1, text
        assert f"offers nothing under {text}" in done.err
        assert "its selector or exposures leave it out" in done.err
        assert done.raw == b""
    listed = remote(left, "list", server.address, "//private//")
    assert (listed.code, listed.raw) == (1, b"")
    assert "offers nothing under //private//" in listed.err
    assert hidden not in hashes(left)
    with open_lace(left.folder) as lace:
        lace.add(plex("mine", group="private"))
    stored = remote(left, "store", server.address, "//private//n//mine", "//u//n//left/0")
    assert stored.code == 1
    assert sorted(line.split("\t")[1] for line in stored.lines) == ["confirmed", "left-out"]
    assert "did not take 1 record of 2" in stored.err
    assert str(plex("mine", group="private").id) not in hashes(right)


def test_exposures_that_are_named_hold(parties: tuple[Party, Party], server: Serving) -> None:
    left, right = parties
    other = left.folder.parent / "other.lace"
    other.write_text("AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Name',_,'left/1').\n")
    more = ("--expose", f"{other}@{right.verifier}")
    done = remote(left, "store", server.address, "//u//n//left/0", "//u//n//left/1", *more)
    assert done.code == 1
    assert {line.split("\t")[1] for line in done.lines} == {"left-out", "confirmed"}
    assert str(plex("left/0").id) not in hashes(right)
    assert str(plex("left/1").id) in hashes(right)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("get", "tcp:127.0.0.1:1", "//u//n//x"), 4, "nobody listens there"),
        (("list", "tcp:127.0.0.1:1"), 4, "nobody listens there"),
        (("watch", "tcp:127.0.0.1:1"), 4, "nobody listens there"),
        (("store", "tcp:127.0.0.1:1", "//u//n//left/0"), 4, "nobody listens there"),
        (("store", "tcp:127.0.0.1:1", "//u//n//nowhere"), 1, "not in this lace: //u//n//nowhere"),
        (("store", "tcp:127.0.0.1:1", "x"), 2, "'x' names no record"),
        (("get", "tcp:127.0.0.1:1", "//u//n"), 2, "'//u//n' is not a coordinate"),
        (("list", "tcp:127.0.0.1:1", "///u"), 2, "no coordinate begins with '///u'"),
        (("watch", "tcp:127.0.0.1:1", "//u", "--select", "x"), 2, "ask for two things"),
        (("get", "http://example.org", "//u//n//x"), 2, "http"),
        (("get", "nobody", "//u//n//x"), 2, "there is no peer 'nobody'"),
        (("get", "tcp:127.0.0.1:1", "//u//n//x", "--peer", "me"), 2, "me"),
        (("get", "tcp:127.0.0.1:1", "//u//n//x", "-o", "no/such/x"), 2, "there is no folder"),
        (("store", "tcp:127.0.0.1:1", "//u//n//left/0", "--receipt", "no/x"), 2, "no folder"),
        (("get", "tcp:127.0.0.1:1"), 2, "missing argument"),
        (("lst",), 2, "did you mean 'list'?"),
        ((), 2, "lace remote needs a command"),
    ],
)
def test_bad_input(
    parties: tuple[Party, Party], arguments: tuple[str, ...], code: int, says: str
) -> None:
    left, _ = parties
    done = call("--lace", left.folder, "remote", *arguments)
    assert done.code == code, done.err
    assert says in done.err
    assert done.raw == b""
    assert "Traceback" not in done.err


def test_a_peer_that_is_another(parties: tuple[Party, Party], server: Serving) -> None:
    left, _ = parties
    done = remote(left, "list", server.address, "--peer", left.verifier)
    assert done.code == 4
    assert len(hashes(left)) == 5


# -- watching ------------------------------------------------------------------------------------


@pytest.mark.requirement("050-207")
def test_watching_at_a_terminal_keeps_each_record_whole(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with (
        serving(right, left, "tcp:127.0.0.1:0", "--open") as server,
        at_terminal("remote", "watch", server.address, "//u//", "--lace", left.folder) as screen,
    ):
        screen.wait_for("//u//n//right/4")
        screen.wait_for("remote watch with")  # what goes on is shown after a second
        for number in range(3):
            with open_lace(right.folder) as lace:
                lace.add(plex(f"later/{number}"))
            screen.wait_for(f"//u//n//later/{number}")
            screen.wait_for("remote watch with", screen.read().count("remote watch with") + 3)
        assert "remote watch with tcp:" in " ".join(screen.lines()[-4:])
        assert not any("━" in line for line in screen.lines()), "a full bar while nothing comes"
        screen.type(b"\x03")
        assert screen.end() == 130
        shown = [line for line in screen.lines() if "//u//" in line]
    names = [f"right/{number}" for number in range(5)] + [f"later/{number}" for number in range(3)]
    assert sorted(line.split()[1] for line in shown) == sorted(f"//u//n//{name}" for name in names)
    whole = re.compile(r"[PS]\.\S{8}…  \S+  2023-11-14 22:12:43  \d+ bytes")
    assert all(whole.fullmatch(line) for line in shown), shown


@pytest.mark.requirement("050-207")
def test_watching_until_an_interrupt(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--open") as server:
        watch = spawn("remote", "watch", server.address, "//u//", "--lace", left.folder, "--json")
        assert watch.stdout is not None
        first = [json.loads(watch.stdout.readline()) for _ in range(5)]
        assert {each["id"] for each in first} == hashes(left) - {
            str(plex(f"left/{number}").id) for number in range(5)
        }
        with open_lace(right.folder) as lace:
            new = str(lace.add(plex("later", b"later")))
        assert json.loads(watch.stdout.readline())["id"] == new
        assert new in hashes(left), "what is shown is stored"
        watch.send_signal(signal.SIGINT)
        rest, errors = watch.communicate(timeout=60)
        assert watch.returncode == 130
        assert rest == b""
        assert f"6 records came and are stored in {left.folder}" in errors.decode()
        server.wait_for("outcome=fixed-point")
    last = process("--lace", left.folder, "log", "--limit", 1, "--json").json()
    assert (last["command"], last["exit_code"], last["result"]["received"]) == (
        "remote watch",
        130,
        6,
    )


@pytest.mark.requirement("050-207")
@pytest.mark.parametrize("is_kept_open", [True, False])
def test_watching_for_so_many(parties: tuple[Party, Party], is_kept_open: bool) -> None:
    """Records come in groups: those that came with the wanted ones are stored, and not shown."""
    left, right = parties
    before = hashes(left)
    with serving(right, left, "tcp:127.0.0.1:0", *["--open"] * is_kept_open) as server:
        at = ("remote", "watch", server.address, "--lace", left.folder, "--limit", 2)
        watched = process(*at, "--json")
        assert watched.code == 0, watched.err
        shown = {each["id"] for each in watched.json_lines()}
        assert len(watched.lines) == len(shown) == 2
        came = hashes(left) - before
        assert shown <= came
        assert f"{len(came)} records came and are stored in {left.folder}" in watched.err
        server.wait_for("outcome=")
        assert "outcome=failed" not in server.errors
    last = process("--lace", left.folder, "log", "--limit", 1, "--json").json()
    assert (last["exit_code"], last["result"]["received"]) == (0, len(came))


def test_watching_for_a_reader_that_goes(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--open") as server:
        watch = spawn("remote", "watch", server.address, "--lace", left.folder)
        assert watch.stdout is not None
        assert watch.stdout.readline()
        watch.stdout.close()
        wait_until(lambda: len(hashes(left)) == 10)
        with open_lace(right.folder) as lace:  # if it has not noticed before, it does now
            lace.add(plex("later", b"later"))
        assert watch.wait(60) == 141
        assert watch.stderr is not None
        assert b"Traceback" not in watch.stderr.read()
        watch.stderr.close()
    assert len(hashes(left)) >= 10, "what had come stays"


@pytest.mark.requirement("050-207")
@pytest.mark.parametrize("is_kept_open", [True, False])
def test_watching_for_a_reader_that_goes_while_nothing_comes(
    parties: tuple[Party, Party], is_kept_open: bool
) -> None:
    """It ends on an open link and between two links, without a record that would tell it."""
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", *["--open"] * is_kept_open) as server:
        watch = spawn("remote", "watch", server.address, "--lace", left.folder)
        assert watch.stdout is not None
        for _ in range(5):
            assert watch.stdout.readline()
        watch.stdout.close()
        assert watch.wait(60) == 141
        assert watch.stderr is not None
        errors = watch.stderr.read().decode()
        watch.stderr.close()
        assert "Traceback" not in errors
        assert "5 records came and are stored in" in errors
    last = process("--lace", left.folder, "log", "--limit", 1, "--json").json()
    assert (last["command"], last["exit_code"]) == ("remote watch", 141)


def test_watching_in_a_shell_for_one_line(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--open") as server:
        words = [sys.executable, "-m", "lace", "remote", "watch", server.address]
        line = f"{shlex.join([*words, '--lace', str(left.folder)])} | head -1; "
        done = subprocess.run(
            ["bash", "-c", f'{line}echo "${{PIPESTATUS[0]}}"'],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    shown, code = done.stdout.splitlines()
    assert shown.count("\t") == 4
    assert code == "141"


def test_tables_at_a_terminal(parties: tuple[Party, Party], server: Serving) -> None:
    left, right = parties
    shown = on_terminal("remote", "list", server.address, "--lace", left.folder, columns=100)
    assert shown.code == 0
    assert "//u//n//right/4" in shown.out
    assert "5 records" in shown.out
    name = "a name that is long enough for a line of its own/1"
    with open_lace(right.folder) as lace:
        lace.add(plex(name))
    at = ("remote", "watch", server.address, "//u//", "--limit", 6, "--lace", left.folder)
    watched = on_terminal(*at, columns=80, env={"NO_COLOR": "1"})
    # On a busy machine a progress line comes first, and is taken back.
    shown_lines = [line.rpartition("\x1b[2K")[2] for line in watched.lines]
    rows = [line for line in shown_lines if line.startswith("P.")]
    assert len(rows) == 6
    assert max(map(len, rows)) <= 80, "a record is a line"
    assert any("//u//n//a name" in row and "its own/1  2023-11-14" in row for row in rows)
    refused = on_terminal("remote", "get", server.address, "//u//n//right/1", "--lace", left.folder)
    assert refused.code == 1
    assert "record bytes are not for a terminal" in refused.out


def test_a_lace_without_a_key(parties: tuple[Party, Party], tmp_path: Path) -> None:
    _, right = parties
    with open_lace(tmp_path / "anybody"):
        pass
    anybody = ("--lace", tmp_path / "anybody")
    exposing = ("--select", right.select, "--expose", right.view)
    started = spawn("serve", "tcp:127.0.0.1:0", "--lace", right.folder, *exposing)
    try:
        assert started.stdout is not None
        address = started.stdout.readline().decode().strip()
        assert len(call("remote", "list", address, *anybody).lines) == 5
        signed = call("remote", "get", address, "//u//n//right/1", "--sign-receipts", *anybody)
        assert signed.code == 2
        assert "a receipt must be signed, and this lace has no default key" in signed.err
    finally:
        started.kill()
        started.wait(60)
        for pipe in (started.stdout, started.stderr):
            if pipe is not None:
                pipe.close()
