"""Captures that are shown and replayed: true ones, bent ones, and files that are none."""

from __future__ import annotations

import os
import random
import re
import signal
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from tests.cli.links import Party, hashes, make_parties, plex, serving, wait_until
from tests.cli.running import Result, call, process, spawn
from tests.unit.transport.certificates import Certificates, make_certificates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of five records each way, in the mode whose listings are all in it."""
    folder = tmp_path_factory.mktemp("capture")
    left, right = make_parties(folder)
    path = folder / "talk.trace"
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        options = ("--capture", path, "--set", "reconcile_mode=0")
        assert left.sync(right, server.address, *options).code == 0
    return path


def show(path: Path, *more: object) -> Result:
    return call("trace", "show", path, *more)


def replay(path: Path, *more: object) -> Result:
    return call("trace", "replay", path, *more)


def bend(capture: Path, folder: Path, old: str, new: str, count: int = 1) -> Path:
    """Return a copy in which a pattern is replaced."""
    text, done = re.subn(old, new, capture.read_text("utf-8"), count=count, flags=re.MULTILINE)
    assert done, old
    path = folder / "bent.trace"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.requirement("060-77")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_an_exchange_is_told_and_replayed(
    parties: tuple[Party, Party], tmp_path: Path, mode: int
) -> None:
    left, right = parties
    path = tmp_path / "talk.trace"
    with open_lace(left.folder) as lace:  # larger than a line of a capture, and no text
        lace.add(plex("large", random.Random(1).randbytes(200_000) + b"\n\\"))
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        done = left.sync(
            right, server.address, "--capture", path, "--set", f"reconcile_mode={mode}", "--json"
        )
    assert done.code == 0, done.err
    outcome = done.json()
    found = process("trace", "replay", path, "--json")
    assert found.code == 0, found.err
    (replayed,) = found.json_lines()
    assert replayed["plan"] == outcome["exchange-plan-id"]
    assert replayed["link"] == outcome["link-id"]
    assert replayed["proven"] == {"sent": left.verifier, "came": right.verifier}
    assert replayed["records"] == 11
    assert replayed["settled"]
    lines = show(path, "--json").json_lines()
    records = {line["id"]: line["way"] for line in lines if line["item"] == "record"}
    assert set(records) == hashes(left)
    assert {each for each, way in records.items() if way == "came"} == set(
        outcome["received-hashes"]
    )
    (end,) = (line for line in lines if line["item"] == "end")
    (totals,) = (line for line in lines if line["item"] == "totals")
    for way in ("sent", "came"):
        assert sum(totals[way].values()) == end[way] == replayed[way]
        assert next(line["phase"] for line in lines if line.get("way") == way) == "setup"
    assert end["loop"] == outcome["loops"] + 1
    assert {line["item"] for line in lines}.isdisjoint({"wrong", "broken", "unread"})


def test_the_story_for_people(capture: Path) -> None:
    told = show(capture)
    assert told.code == 0
    assert told.err == ""
    assert told.lines[0] == "connection 1"
    for wanted in ("setup", "hello", "loop 1: advertise, turn 0", "loop 1: request"):
        assert told.lines.count(wanted) == 1
    assert told.out.count(" record    P.") == 10
    assert "  >       1510 request   MayRequest 5\n" in told.out
    assert "end: after loop 2, in which neither side requested anything" in told.lines
    assert re.search(r"^  all bytes +3,885 sent +3,918 came$", told.out, re.MULTILINE)
    assert told.out.count("MayRequest('") == 0
    assert show(capture, "--facts").out.count("MayRequest('") == 10


def test_more_connections_than_one(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.trace"
    path.write_bytes(capture.read_bytes() * 2)
    assert show(path).out.count("end: after loop 2") == 2
    done = replay(path)
    assert done.code == 0
    assert done.out.count("replayed 40 items, 3,885 bytes sent and 3,918 came, identical") == 2


def test_an_open_exchange_with_a_new_epoch(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    path = tmp_path / "talk.trace"
    text = right.select.read_text()
    right.select.write_text(text.replace("Have(P).", "Have(P), Field(P,'Group',_,'first')."))
    with open_lace(right.folder) as lace:
        lace.add(plex("first", group="first"))
    own = left.select.with_name("own.lace")
    own.write_text(text)
    options = [*left.policy(right), "--open", "--capture", path]
    options[options.index("--select") + 1] = str(own)
    with serving(right, left, "tcp:127.0.0.1:0", "--open") as server:
        started = spawn("sync", server.address, *options)
        try:
            wait_until(lambda: len(hashes(left)) == 6)
            right.select.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("were read again")
            wait_until(lambda: len(hashes(left)) == len(hashes(right)) == 11)
            started.send_signal(signal.SIGTERM)
            assert started.wait(60) == 143, started.communicate()
        finally:
            started.kill()
            started.communicate()
    done = replay(path, "--json")
    assert done.code == 0, done.err
    lines = show(path, "--json").json_lines()
    assert {line["item"] for line in lines}.isdisjoint({"wrong", "broken", "unread"})
    assert [line["way"] for line in lines if line.get("epoch") == 2 and "facts" in line].count(
        "came"
    ) == 2
    assert done.json_lines()[0]["records"] == 11


def test_a_dry_run_ends_at_the_request_lists(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    path = tmp_path / "talk.trace"
    with serving(right, left, "tcp:127.0.0.1:0") as server:
        assert left.sync(right, server.address, "--capture", path, "--dry-run").code == 0
    done = replay(path)
    assert done.code == 0, done.err
    assert "ended in loop 1: request" in done.out
    assert "it broke off in loop 1: request" in show(path).out


def test_proofs_over_tls_need_the_certificate(
    parties: tuple[Party, Party], certificates: Certificates, tmp_path: Path
) -> None:
    left, right = parties
    path = tmp_path / "talk.trace"
    certificate = certificates.certificate("server")
    files = ("--tls-cert", certificate, "--tls-key", certificates.key("server"))
    with serving(right, left, "wss:127.0.0.1:0", *files) as server:
        ca = ("--ca", certificates.certificate("authority"))
        assert left.sync(right, server.address, *ca, "--capture", path).code == 0
    (alone,) = replay(path, "--json").json_lines()
    assert alone["proven"] == {}
    assert set(alone["unjudged"]) == {"sent", "came"}  # either side's proof may be first
    assert "--channel-cert" in replay(path).out
    (named,) = replay(path, "--channel-cert", certificate, "--json").json_lines()
    assert named["proven"] == {"sent": left.verifier, "came": right.verifier}
    wrong = replay(path, "--channel-cert", certificates.certificate("elsewhere"))
    assert wrong.code == 1
    assert "is not for this exchange" in wrong.err


@pytest.mark.parametrize(
    ("old", "new", "wanted", "offset"),
    [
        (r"^> x$", "> y", "sent", 1832),  # the data of a record that was sent
        (r"^< Name: r", "< Name: m", "came", None),
        (
            r"^> MayRequest\('P",
            "> MayRequest('B",
            "was not asked for, or was answered before",
            None,
        ),
        (r"^> MayRequest.*\n", "", "was not asked for, or was answered before", None),
        (r"^> MayRequest\(", "> Advertised(", "Advertised does not belong in request", 1510),
        (
            r"^> Advertised\('(P\.[^']*)','[^']*'",
            r"> Advertised('\1','Opq_0'",
            "names the source",
            None,
        ),
        (r"^> HelloTAI.*\n", "", "a hello without HelloTAI", None),
        (r"^> ExchangeNonce.*\n> \n", "> \n> \n", "sent", None),
        (r"iltp/1", "iltp/2", "where the preface of a stream has", 11),
        (r"^> ExchangeOperand\('0'", "> ExchangeOperand('1'", "both are operand 1", None),
        (r"^< ExchangeOperand\('1','R\..{43}", "< ExchangeOperand('1','R." + "0" * 43, "", None),
    ],
)
def test_a_bent_capture(
    capture: Path, tmp_path: Path, old: str, new: str, wanted: str, offset: int | None
) -> None:
    path = bend(capture, tmp_path, old, new)
    done = replay(path)
    assert done.code == 1, done.out
    assert done.err.count("\n") == 1
    assert wanted in done.err
    if offset is not None:
        assert f"byte {offset}" in done.err
    assert show(path).code == 0


def test_a_bent_proof(capture: Path, tmp_path: Path) -> None:
    """Without the transport nobody knows what a proof had to contain."""
    done = replay(bend(capture, tmp_path, r"^< HelloProof\('....", "< HelloProof('0000"))
    assert done.code == 0
    assert "proven there: not by this capture alone" in done.out


def test_what_breaks_is_shown_where_it_stands(capture: Path, tmp_path: Path) -> None:
    path = bend(capture, tmp_path, r"^> MayRequest\(", "> mayRequest(")
    told = show(path)
    assert told.code == 0
    assert (
        "  >       1510 WRONG     malformed fact block: no mayRequest is in request [G36]"
        in told.out
    )
    path = bend(capture, tmp_path, r"^> MayRequest\(", "> May Request(")
    told = show(path)
    assert told.code == 0
    assert "  >       1510 BROKEN    no stream from here: " in told.out
    assert "it broke off in loop 1: request" in told.out
    lines = show(path, "--json").json_lines()
    assert [line["offset"] for line in lines if line["item"] == "broken"] == [1510]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"> x\n",
        b"=\n! x\n",
        b"=\n>x\n",
        b"=\n> \\y\n",
        b"=\n> cut off",
        b"=\n> \xff\n",
        b"=\n> " + b"x" * 300_000 + b"\n",
        b"x" * 300_000,
        b"\x00" * 100,
    ],
    ids=range(11),
)
@pytest.mark.parametrize("command", ["show", "replay"])
def test_a_file_that_is_no_capture(tmp_path: Path, text: bytes, command: str) -> None:
    path = tmp_path / "none.trace"
    path.write_bytes(text)
    done = call("trace", command, path)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert str(path) in done.err


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert show(tmp_path / "none").code == 2
    assert replay(tmp_path / "none").code == 2
    assert show(tmp_path).code == 2
    os.mkfifo(tmp_path / "pipe")
    assert show(tmp_path / "pipe").code == 2
    assert call("trace").code == 2


def test_a_capture_cut_at_any_line(capture: Path, tmp_path: Path) -> None:
    lines = capture.read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.trace"
    for count in range(1, len(lines) + 1, 7):
        path.write_bytes(b"".join(lines[:count]))
        assert show(path).code == 0
        assert replay(path).code in (0, 1)
    path.write_bytes(b"".join(lines))
    assert replay(path).code == 0


def test_a_capture_bent_anyhow(capture: Path, tmp_path: Path) -> None:
    """Whatever is changed, it is told in a line: nothing of it is a fault of ours."""
    chance = random.Random(7)
    lines = capture.read_bytes().splitlines(keepends=True)
    path = tmp_path / "bent.trace"
    codes = set()
    for _ in range(40):
        bent = list(lines)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(1, len(bent))
            match chance.randrange(5):
                case 0:
                    del bent[at]
                case 1:
                    bent.insert(at, chance.choice(lines))
                case 2:
                    bent[at] = (b"<" if bent[at][:1] == b">" else b">") + bent[at][1:]
                case 3:
                    raw = bytearray(bent[at])
                    raw[chance.randrange(len(raw))] = chance.randrange(256)
                    bent[at] = bytes(raw)
                case _:
                    other = chance.randrange(1, len(bent))
                    bent[at], bent[other] = bent[other], bent[at]
        path.write_bytes(b"".join(bent))
        for done in (show(path), replay(path), show(path, "--json", "--facts")):
            assert done.code in (0, 1), done.err
            assert "internal error" not in done.err
            codes.add(done.code)
    assert codes == {0, 1}


def test_records_above_the_limit(capture: Path) -> None:
    limit = ("--set", "max_data_bytes=0")
    assert "above max_data_bytes" in show(capture, *limit).out
    done = replay(capture, *limit)
    assert done.code == 1
    assert "raise it: --set max_data_bytes=N" in done.err


@pytest.mark.requirement("060-128")
def test_a_capture_of_claims_that_only_the_transport_proves(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    """The sources are the claimed verifiers, and nobody is said to be proven by hello."""
    left, right = parties
    for name, party in (("left", left), ("right", right)):
        (tmp_path / f"{name}.users").write_text(f"{os.getuid()} {party.verifier}\n")
    path = tmp_path / "talk.trace"
    known = ("--plain", "--claim", right.verifier, "--uid-map", tmp_path / "left.users")
    with serving(right, left, f"unix:{tmp_path}/s", *known) as server:
        own = ("--plain", "--claim", left.verifier, "--uid-map", tmp_path / "right.users")
        done = left.sync(right, server.address, *own, "--capture", path)
        assert done.code == 0, done.err
    assert hashes(left) == hashes(right)
    found = replay(path, "--json").json()
    assert found["proven"] == {}
    assert found["claimed"] == {"sent": left.verifier, "came": right.verifier}
    assert found["link"] is not None
    shown = replay(path)
    assert f"proven there: {right.verifier}, by a claim that only the transport" in shown.out
