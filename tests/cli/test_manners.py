"""How every command behaves: for a reader that goes, a narrow terminal, a signal, a slip."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.links import Party, hashes, make_parties, serving, wait_until
from tests.cli.running import call, on_terminal, process, spawn
from tests.cli.screens import at_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Blob, Plex, Seal

    Records = list[Blob | Plex | Seal]


# -- a reader that goes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("export", "--all"),
        ("get", "//u//notes//a", "--body"),
        ("list", "--help"),
        (),
    ],
    ids=" ".join,
)
def test_a_pipe_that_is_closed_early(filled: Path, arguments: tuple[str, ...]) -> None:
    """As processes; test_every_command.py has all commands."""
    reading, writing = os.pipe()
    os.close(reading)
    started = spawn("--lace", filled, *arguments, stdout=writing)
    os.close(writing)
    _out, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (141, b"")


# -- a narrow terminal ---------------------------------------------------------------------------


def test_forty_columns_lose_nothing(filled: Path, records: Records) -> None:
    shown = on_terminal("--lace", filled, "list", columns=40, env={"NO_COLOR": "1"})
    assert shown.code == 0
    assert "\x1b" not in shown.out
    for record in records:
        assert f"id          {record.id[:10]}…" in shown.out
    for part in ("coordinate  //u//notes//b", "2023-11-14 22:12:43", " bytes", "signed-by   V."):
        assert part in shown.out
    assert max(map(len, shown.out.splitlines())) <= 40
    settings = on_terminal("config", "show", columns=40, env={"NO_COLOR": "1"}).out
    assert "value    33,554,432" in settings
    assert "peer_max_derived_facts" in settings
    log = on_terminal("--lace", filled, "log", columns=40).out
    assert "Traceback" not in log


def test_a_wide_terminal_has_rows(filled: Path) -> None:
    shown = on_terminal("--lace", filled, "list", columns=100, env={"NO_COLOR": "1"}).out
    assert "id            coordinate" in shown.splitlines()[0]


# -- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_only_reads(folder: Path, number: int, code: int) -> None:
    started = spawn("--lace", folder, "query", "-", stdin=subprocess.PIPE)
    time.sleep(2)  # by then it waits for rules
    started.send_signal(number)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out) == (code, b"")
    assert err.endswith(b"; nothing was changed\n")
    assert b"Traceback" not in err


def test_a_command_that_waits_for_input(folder: Path) -> None:
    started = spawn("--lace", folder, "put", "-", "--json", stdin=subprocess.PIPE)
    time.sleep(1)
    started.send_signal(signal.SIGINT)
    _out, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert b"lace: interrupted; " in err
    assert len(call("list").lines) == 0


def test_a_server_tells_what_stays(tmp_path: Path) -> None:
    left, right = make_parties(tmp_path)
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        assert left.sync(right, server.address).code == 0
        server.wait_for("outcome=fixed-point")
        assert server.end(signal.SIGINT) == 130
        assert "interrupted; what links have brought stays stored" in server.errors
    assert len(hashes(right)) == 10


# -- the log -------------------------------------------------------------------------------------


def test_a_server_leaves_entries(tmp_path: Path) -> None:
    left, right = make_parties(tmp_path)

    def entries(*more: str) -> list[dict[str, object]]:
        return process("--lace", right.folder, "log", "--json", *more).json_lines()

    own = Party(right.folder, right.verifier, tmp_path / "own.lace", right.view)
    own.select.write_text(right.select.read_text())
    with serving(own, left, "tcp:127.0.0.1:0") as server:
        assert left.sync(right, server.address).code == 0
        assert left.sync(right, server.address).code == 0  # nothing moves: no entry
        server.wait_for("outcome=fixed-point", 2)
        server.process.send_signal(signal.SIGHUP)  # the same rules count: no entry
        server.wait_for("were read again")
        own.select.write_text("SelectHave(P) :- Nonsense(Q).\n")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("are not taken")
        own.select.write_text(
            "SelectHave(P) :- Have(P), Field(P,'Group',_,'u').\n"
            "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u').\n"
        )
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("were read again", 2)
        wait_until(lambda: len(entries()) == 4)
    begun, link, refused, renewed = entries()
    assert [each["command"] for each in (begun, link, refused, renewed)] == [
        *("serve rules", "serve", "serve rules", "serve rules"),
    ]
    result = link["result"]
    assert isinstance(result, dict)
    assert (result["received"], result["fixed_point"], result["peer"]) == (5, True, left.verifier)
    assert result["bytes_sent"] > 0
    assert isinstance(begun["result"], dict)
    assert isinstance(renewed["result"], dict)
    assert str(begun["result"]["selector"]).startswith("R.")
    assert begun["result"]["selector"] != renewed["result"]["selector"]
    assert len(begun["result"]["exposures"]) == 1
    assert refused["exit_code"] == 1
    assert isinstance(refused["result"], dict)
    assert str(own.select) in refused["result"]["message"], "why they were refused"
    assert len(entries("--command", "serve rules", "--limit", "1")) == 1
    assert len(entries("--command", "serve")) == 4
    assert entries("--command", "sync") == []


def test_settings_by_name(folder: Path) -> None:
    done = call("config", "show", "max_links", "wait_seconds", "--set", "max_links=7")
    assert [line.split("\t")[:2] for line in done.lines] == [
        ["wait_seconds", "10"],
        ["max_links", "7"],
    ]
    wrong = call("config", "show", "max_link")
    assert wrong.code == 2
    assert "there is no setting 'max_link'; did you mean max_links?" in wrong.err


# -- slips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("lst",), "list"),
        (("rules", "chek", "x"), "check"),
        (("key", "nw"), "new"),
        (("remote", "wach", "x"), "watch"),
        (("pipeline", "ingst", "a", "b"), "ingest"),
        (("ingest", "a", "b"), "lace pipeline ingest"),
        (("ingst", "a", "b"), "lace pipeline ingest"),
        (("watch", "x"), "lace remote watch"),
        (("store", "x"), "lace remote store"),
        (("remote", "sync"), "lace sync"),
        (("pipeline", "fmt", "x"), "lace rules fmt"),
        (("query", "-e", "A() :- Have(P).", "--engine", "sparc"), "spark"),
        (("query", "-e", "A() :- Have(P).", "--format", "jsn"), "json"),
        (("rules", "check", "x", "--profile", "selektor"), "selector"),
        (("sync", "tcp:x", "--lowering", "standard-v2"), "standard-v1"),
        (("completion", "fsh"), "fish"),
        (("version",), "--version"),
        (("key", "help"), "--help"),
        (("list", "--limt", "3"), "--limit"),
        (("remote", "list", "x", "--limt", "3"), "--limit"),
        (("--jsn", "list"), "--json"),
        (("rules", "check", "--profil", "x"), "--profile"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_a_slip_is_met_with_what_was_meant(arguments: tuple[str, ...], meant: str) -> None:
    done = call(*arguments)
    assert done.code == 2
    assert f"; did you mean {meant!r}? See `lace" in done.err
    assert len(done.err.splitlines()) == 1


def test_what_is_like_nothing() -> None:
    assert "did you mean" not in call("list", "--zzzzz").err
    assert "did you mean" not in call("zzzzz").err
    assert "did you mean" not in call("query", "--engine", "zzzzz").err


@pytest.mark.parametrize("name", ["get", "list"])
def test_the_address_of_a_peer_where_a_record_stands(filled: Path, name: str) -> None:
    assert filled.is_dir()
    done = call(name, "tcp:example.org", "//u//n//x")
    assert (done.code, done.raw) == (2, b"")
    assert f"did you mean `lace remote {name} tcp:example.org …`?" in done.err


def test_a_command_that_the_log_cannot_have(folder: Path) -> None:
    assert call("verify").code == 0
    slip = call("log", "--command", "snyc", "--command", "verify")
    assert slip.code == 0
    assert len(slip.lines) == 1
    assert slip.err == "lace: warning: no command is called 'snyc'; did you mean 'sync'?\n"
    assert "did you mean 'key new'?" in call("log", "--command", "key nwe").err
    assert call("log", "--command", "zzzzz").err == (
        "lace: warning: no command is called 'zzzzz'\n"
    )
    for known in ("sync", "key", "serve rules", "remote watch"):
        assert call("log", "--command", known).err == "", "there is none yet, and that is all"
    assert folder.is_dir()


def test_an_exchange_is_a_few_words_of_the_log(tmp_path: Path) -> None:
    left, right = make_parties(tmp_path)
    with serving(right, left, "tcp:127.0.0.1:0", "--open") as server:
        assert left.sync(right, server.address).code == 0
        with at_terminal("sync", server.address, *left.policy(right), "--open") as screen:
            screen.wait_for("sync with")
            screen.type(b"\x03")
            assert screen.end() == 130
    assert left.sync(right, server.address).code == 4, "nobody serves any more"
    at = "--lace", left.folder, "log"
    whole = process(*at, "--json").json_lines()
    assert len(whole[0]["result"]["link"]) == 43
    assert whole[1]["result"]["error"] == "interrupted"
    shown = on_terminal(*at, columns=80, env={"NO_COLOR": "1"}).lines
    assert len(shown) <= 2 + 3 * 5
    told = " ".join(line[shown[0].index("result") :] for line in shown[2:])
    told = " ".join(told.split())
    peer = f"with {server.address} ({right.verifier[:10]}…), "
    assert f"{peer}5 records came (" in told
    assert "sent; complete" in told
    assert f"{peer}0 records came (0 bytes), 0 bytes sent; interrupted" in told
    assert "KeyboardInterrupt" not in told
    assert "nobody listens there" in told
