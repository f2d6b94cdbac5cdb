"""A server whose standard error nobody reads goes on."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from lace.cli import stderr_queue
from lace.cli.link_log import JsonLog
from lace.cli.output import Output

WAIT_SECONDS = 30
MANY = 3000


def read_until(reader: int, text: bytes) -> bytes:
    """Read to the end of the line that has a text."""
    found = b""
    while not (text in found and found.endswith(b"\n")):
        found += os.read(reader, 65536)
    return found


@pytest.mark.parametrize("is_json", [False, True])
def test_nobody_waits_for_a_reader(monkeypatch: pytest.MonkeyPatch, *, is_json: bool) -> None:
    monkeypatch.setattr(stderr_queue, "MOST_BYTES", 200_000)
    reader, descriptor = os.pipe()
    stream = os.fdopen(descriptor, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    output = Output()
    if is_json:
        output.log = JsonLog(output)
    written, is_told = threading.Event(), threading.Event()

    def write() -> None:
        with stderr_queue.stderr_queued(output):
            for number in range(MANY):
                output.complain(f"{number} {'x' * 90}")
            written.set()
            assert is_told.wait(WAIT_SECONDS)
            output.complain("the end")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    is_written = written.wait(WAIT_SECONDS)
    found = read_until(reader, b"left out") if is_written else b""
    is_told.set()
    found += read_until(reader, b"the end")
    writer.join(WAIT_SECONDS)
    monkeypatch.undo()
    assert not writer.is_alive()
    stream.close()
    os.close(reader)
    assert is_written, "it waits for somebody to read"
    lines = found.decode().splitlines()
    kept = [line for line in lines if "xxx" in line]
    assert 0 < len(kept) < MANY
    assert f"{MANY - len(kept):,} messages are left out" in lines[len(kept)]
    assert "the end" in lines[-1]


def test_a_reader_that_has_gone_is_no_failure() -> None:
    output = Output()
    read, written = os.pipe()
    os.close(read)
    queue = stderr_queue.StderrQueue(written, output)
    for _ in range(3):
        queue.put("text\n")
    queue.end()
    os.close(written)
    assert not queue._thread.is_alive()
