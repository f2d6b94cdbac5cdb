"""A server whose standard output and standard error nobody reads goes on."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lace.cli import serve as pipe_queue
from lace.cli.link_options import JsonLog
from lace.cli.output import Output
from tests.cli.links import make_parties, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

WAIT_SECONDS = 30
MANY = 3000


def read_until(reader: int, text: bytes) -> bytes:
    """Read to the end of the line that has a text."""
    found = b""
    while not (text in found and found.endswith(b"\n")):
        found += os.read(reader, 65536)
    return found


def read_late(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    queued: Callable[[], AbstractContextManager[None]],
    lines: Callable[[], Iterable[None]],
    last: Callable[[], None],
) -> list[str]:
    """Write lines to a pipe that nobody reads before all are written; returns what was read.

    Args:
        monkeypatch: puts the pipe into the place of a standard stream.
        name: the name of that stream.
        queued: puts the queue before it.
        lines: writes the lines, of which some are dropped.
        last: writes a line with the words "the end" once the count of these was read.
    """
    reader, descriptor = os.pipe()
    stream = os.fdopen(descriptor, "w", encoding="utf-8")
    monkeypatch.setattr(sys, name, stream)
    written, is_told = threading.Event(), threading.Event()

    def write() -> None:
        with queued():
            for _ in lines():
                pass
            written.set()
            assert is_told.wait(WAIT_SECONDS)
            last()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    is_written = written.wait(WAIT_SECONDS)
    found = read_until(reader, b"left") if is_written else b""
    is_told.set()
    found += read_until(reader, b"the end")
    writer.join(WAIT_SECONDS)
    monkeypatch.undo()
    assert not writer.is_alive()
    stream.close()
    os.close(reader)
    assert is_written, "it waits for somebody to read"
    return found.decode().splitlines()


@pytest.mark.parametrize("is_json", [False, True])
def test_nobody_waits_for_a_reader(monkeypatch: pytest.MonkeyPatch, *, is_json: bool) -> None:
    monkeypatch.setattr(pipe_queue, "MAX_STDERR_BYTES", 200_000)
    output = Output()
    if is_json:
        output.log = JsonLog(output)
    lines = read_late(
        monkeypatch,
        "stderr",
        lambda: pipe_queue.stderr_queued(output),
        lambda: map(output.complain, (f"{number} {'x' * 90}" for number in range(MANY))),
        lambda: output.complain("the end"),
    )
    kept = [line for line in lines if "xxx" in line]
    assert 0 < len(kept) < MANY
    assert f"{MANY - len(kept):,} messages are left out" in lines[len(kept)]
    assert "the end" in lines[-1]


def test_nobody_waits_for_a_reader_of_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are dropped and counted; the count takes their place once somebody reads again."""
    monkeypatch.setattr(pipe_queue, "MAX_STDOUT_BYTES", 200_000)
    output = Output()
    output.json = True
    told: list[str] = []
    output.put_aside = told.append
    # What finds nothing waiting is not dropped, however long it is.
    documents = [{"long": "y" * 300_000}, *({"link": at, "x": "x" * 90} for at in range(MANY))]
    found = read_late(
        monkeypatch,
        "stdout",
        lambda: pipe_queue.stdout_queued(output, lambda _: None),
        lambda: map(output.json_line, documents),
        lambda: output.json_line("the end"),
    )
    first, *lines, last = map(json.loads, found)
    assert len(first["long"]) == 300_000
    kept = [line["link"] for line in lines if "link" in line]
    assert kept == list(range(len(kept)))
    assert lines[len(kept) :] == [{"left_out": MANY - len(kept)}]
    assert last == "the end"
    assert f"{MANY - len(kept):,} lines are left out" in "".join(told)


@pytest.mark.parametrize("is_read", [True, False])
def test_the_end_waits_while_somebody_reads(
    monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    monkeypatch.setattr(pipe_queue, "_END_SECONDS", 0.2)
    reader, descriptor = os.pipe()
    queue = pipe_queue.PipeQueue(descriptor, 1 << 24, lambda _: None)
    queue.write(b"x" * 1_000_000)
    left = 1_000_000

    def read() -> None:
        nonlocal left
        while left:
            left -= len(os.read(reader, 65536))
            time.sleep(0.02)

    reading = threading.Thread(target=read)
    if is_read:
        reading.start()
        queue.end()
    else:
        queue.end()
        assert queue._thread.is_alive()
        reading.start()
        queue._thread.join(WAIT_SECONDS)
    assert not queue._thread.is_alive()
    reading.join(WAIT_SECONDS)
    for each in (reader, descriptor):
        os.close(each)


def test_a_server_whose_json_lines_nobody_reads_goes_on(tmp_path: Path) -> None:
    left, right = make_parties(tmp_path)
    links = 8
    with serving(right, left, "tcp:127.0.0.1:0", "--json") as server:
        stdout = server.process.stdout
        assert stdout is not None
        fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, 4096)  # it holds few lines
        for _ in range(links):
            done = left.sync(right, json.loads(server.address)["address"])
            assert done.code == 0, done.err
        server.wait_for("outcome=fixed-point", links)
        found = [json.loads(stdout.readline()) for _ in range(links)]
        assert [each["link"] for each in found] == list(range(1, links + 1))
        stdout.close()
        assert left.sync(right, json.loads(server.address)["address"]).code == 0
        assert server.process.wait(WAIT_SECONDS) == 141


def test_a_reader_that_has_gone_is_no_failure() -> None:
    read, written = os.pipe()
    os.close(read)
    errors: list[OSError] = []
    queue = pipe_queue.PipeQueue(written, 100, lambda _: None, errors.append)
    for _ in range(3):
        queue.write(b"text\n")
    queue.end()
    os.close(written)
    assert not queue._thread.is_alive()
    assert [type(error) for error in errors] == [BrokenPipeError]
