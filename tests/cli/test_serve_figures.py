"""What a server tells of itself: figures for a collector, and a log for programs."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from lace.iltp.items import PREFACE
from lace.transport.metrics import MAX_SCRAPE_BYTES, MAX_SCRAPE_CONNECTIONS
from tests.cli.links import Party, Serving, hashes, make_parties, serving, wait_until
from tests.cli.running import call, process, spawn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60.0
HOST = b"Host: localhost\r\n"


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of the figures of a server that nobody connects to."""
    left, right = make_parties(tmp_path_factory.mktemp("still"))
    with serving(right, left, "tcp:127.0.0.1:0", "--metrics", 0) as server:
        yield port_of(server)


def port_of(server: Serving) -> int:
    server.wait_for("/metrics")
    found = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", server.errors)
    assert found
    return int(found[1])


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode("ascii"))


def figures(port: int) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in page(port).splitlines() if line[0] != "#"]
    return {name: float(value) for name, _, value in lines}


def ask(port: int, request: bytes) -> bytes:
    """Send bytes, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as opened:
        opened.sendall(request)
        answer = b""
        try:
            while piece := opened.recv(65536):
                answer += piece
        except ConnectionResetError:  # closed with bytes that it has not read
            pass
        return answer


def test_figures_of_links(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--metrics", 0, "--open") as server:
        port = port_of(server)
        before = figures(port)
        assert before["lace_links_open"] == 0
        assert left.sync(right, server.address).code == 0
        server.wait_for("outcome=fixed-point")
        after = figures(port)
        assert after['lace_links_total{outcome="fixed-point"}'] == 1
        for name in ("received", "sent", "requested", "stored"):
            assert after[f"lace_records_{name}_total"] == 5
        assert after["lace_records_rejected_total"] == 0
        counts = dict(word.split("=", 1) for word in server.errors.split() if "=" in word)
        assert after["lace_received_bytes_total"] == int(counts["bytes_in"])
        assert after["lace_sent_bytes_total"] == int(counts["bytes_out"])
        assert after["lace_loops_total"] == int(counts["loops"])
        for phase in ("setup", "hello", "advertise", "request", "transfer"):
            assert after[f'lace_phase_seconds_bucket{{phase="{phase}",le="+Inf"}}'] == 1
            assert after[f'lace_phase_seconds_count{{phase="{phase}"}}'] == 1
        started = spawn("sync", server.address, *left.policy(right), "--open")
        try:
            wait_until(lambda: figures(port)["lace_links_open"] == 1)
            wait_until(lambda: figures(port)["lace_loops_total"] > after["lace_loops_total"])
        finally:
            started.kill()
            started.communicate()
        wait_until(lambda: figures(port)["lace_links_open"] == 0)
        with socket.create_connection(("127.0.0.1", int(server.address.split(":")[2]))) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        wait_until(lambda: figures(port)['lace_links_total{outcome="failed"}'] == 1)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: figures(port)['lace_rule_renewals_total{result="taken"}'] == 1)
        text = page(port)
        for secret in (left.verifier, right.verifier, *hashes(left), "left/", str(left.folder)):
            assert secret not in text
        assert server.end() == 143


def test_the_page_is_well_formed(still: int) -> None:
    families = set()
    name = ""
    for line in page(still).splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in families
            families.add(name)
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == name
        else:
            labels = r'(?:\{[a-z]+="[^"\\]*"(?:,[a-z]+="[^"\\]*")*\})?'
            assert re.fullmatch(rf"{name}(?:_bucket|_sum|_count)?{labels} [0-9.]+", line), line
    assert {"lace_build_info", "lace_uptime_seconds", "lace_links_open"} <= families


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n", 200),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nhi", 405),
        (b"HEAD /metrics HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET /metrics HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 403),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_SCRAPE_BYTES + b"\r\n\r\n", 431),
    ],
)
def test_requests(still: int, request_bytes: bytes, status: int) -> None:
    answer = ask(still, request_bytes)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"lace_links_open 0" in answer) == (status == 200)


def test_silent_collectors_are_few(still: int) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_SCRAPE_CONNECTIONS):
            opened = socket.create_connection(("127.0.0.1", still), SECONDS)
            stack.enter_context(opened).sendall(b"GET /met")
        assert ask(still, b"") == b""
    wait_until(lambda: ask(still, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200"))


def test_a_request_without_end_is_ended(still: int) -> None:
    assert ask(still, b"GET /metrics HTTP/1.1\r\n") == b""


def test_only_this_machine(still: int) -> None:
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", still), SECONDS)


def test_a_port_that_is_in_use(parties: tuple[Party, Party], still: int) -> None:
    left, right = parties
    done = process("serve", "tcp:127.0.0.1:0", *right.policy(left), "--quiet", "--metrics", still)
    assert done.code == 3
    assert f"tcp:127.0.0.1:{still}: port {still} is in use" in done.err
    assert done.raw == b""


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_log_for_programs(parties: tuple[Party, Party]) -> None:
    left, right = parties
    with serving(right, left, "tcp:127.0.0.1:0", "--log-format", "json") as server:
        done = left.sync(right, server.address, "--log-format", "json", "--json")
        assert done.code == 0, done.err
        outcome = done.json()
        server.wait_for("link-ended")
        text = right.select.read_text()
        right.select.write_text("nonsense")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("rules-refused")
        right.select.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("rules-renewed")
        assert server.end() == 143
        told = events(server.errors)
    assert [each["event"] for each in told] == [
        *("message", "listening", "link-opened", "link-agreed", "link-ended"),
        *("message", "rules-refused", "rules-renewed", "message"),
    ]
    assert [each["level"] for each in told] == [
        *("warning", "info", "info", "info", "info", "error", "error", "info", "error"),
    ]
    for each in told:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", each["time"])
    mine = events(done.err)
    assert [each["event"] for each in mine] == [
        *("message", "link-opened", "link-agreed", "link-ended"),
    ]
    for agreed, peer in ((told[3], left), (mine[2], right)):
        assert (agreed["link"], agreed["peer"]) == (1, peer.verifier)
        assert agreed["plan"] == outcome["exchange-plan-id"]
    for ended, peer in ((told[4], left), (mine[3], right)):
        assert ended["link"] == 1
        assert ended["link_id"] == outcome["link-id"]
        assert ended["plan"] == outcome["exchange-plan-id"]
        assert ended["peer"] == peer.verifier
        assert (ended["outcome"], ended["received"], ended["rejected"]) == ("fixed-point", 5, 0)
        assert ended["bytes_in"] > ended["received"]
    for record in hashes(left):
        assert record not in json.dumps(told) + done.err


def test_a_log_of_failures_and_quiet(parties: tuple[Party, Party]) -> None:
    left, right = parties
    done = left.sync(right, "tcp:127.0.0.1:1", "--log-format", "json", "--quiet")
    assert done.code == 4
    assert [(each["level"], each["event"]) for each in events(done.err)] == [
        ("warning", "message"),
        ("error", "message"),
    ]
    assert "nobody listens there" in done.err
    with serving(right, left, "tcp:127.0.0.1:0", "--log-format", "json", "--quiet") as server:
        assert left.sync(right, server.address).code == 0
        assert server.end() == 143
        assert {each["level"] for each in events(server.errors)} == {"warning", "error"}
    wrong = left.sync(right, "tcp:127.0.0.1:1", "--log-format", "xml")
    assert wrong.code == 2


@pytest.mark.parametrize("given", ["--set", "lace.toml", "option"])
def test_how_many_links_there_may_be(parties: tuple[Party, Party], given: str) -> None:
    left, right = parties
    more = {"--set": ["--set", "max_links_of_address=1"], "lace.toml": [], "option": []}[given]
    if given == "lace.toml":
        with (right.folder / "lace.toml").open("a") as file:
            file.write("max_links = 1\n")
    elif given == "option":
        more = ["--set", "max_links=9", "--max-links", "1"]
    with serving(right, left, "tcp:127.0.0.1:0", *more) as server:
        place = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        with socket.create_connection(place, SECONDS) as first:
            assert first.recv(4) == "\N{KNOT}".encode()
            with socket.create_connection(place, SECONDS) as second:
                said = second.makefile("rb").read()
                assert said == PREFACE + b"# server full\n"
    shown = call("--lace", right.folder, "config", "show")
    assert "max_links_of_address\t16\t" in shown.out
    assert (
        process("serve", "tcp:127.0.0.1:0", *right.policy(left), "--set", "max_links=0").code == 2
    )
