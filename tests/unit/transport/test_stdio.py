"""Standard input and output: of a command that is started, and of this process."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lace.iltp.address import parse_address
from lace.transport.duplex import CloseReason, Ending
from lace.transport.faults import CommandError, StreamClosedError
from lace.transport.listening import ConnectOptions, connect
from lace.transport.stdio import ChildStream
from tests.unit.transport.bindings import read_all, run

STDIO = parse_address("stdio")

ECHO = """
import asyncio, sys
from lace.iltp.address import parse_address
from lace.errors import LaceError
from lace.transport.listening import listen

async def handle(stream):
    print("stray output")
    while data := await stream.read(70_000):
        await stream.write(data)
    sys.stderr.write(repr((stream.proven.transport, stream.ending.name)) + "\\n")

async def main():
    async with await listen(parse_address("stdio"), handle) as listener:
        await listener.finish()

try:
    asyncio.run(main())
except LaceError as error:
    sys.exit(f"{error}")
sys.exit(5)
"""


def open_descriptors() -> int:
    """How many there are; 0 where the system does not say."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


async def start(*command: str) -> ChildStream:
    stream = await connect(STDIO, ConnectOptions(command=command))
    assert isinstance(stream, ChildStream)
    return stream


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.mark.requirement("060-127")
def test_a_server_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """Only bytes of the stream come out of it, whatever the process prints."""
    data = random.Random(1).randbytes(5 << 20)

    async def exchange() -> int | None:
        stream = await start(*python(ECHO))
        assert stream.proven.transport == "stdio"
        assert not stream.proven.encrypted
        assert stream.exit_status is None
        writing = asyncio.create_task(stream.write(data))
        got = bytearray()
        while len(got) < len(data):
            got += await stream.read(100_000)
        await writing
        assert got == data
        await stream.end_writing()
        assert await stream.read(1) == b""
        assert stream.ending is Ending.CLEAN
        await stream.close()
        return stream.exit_status

    assert run(exchange()) == 5
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "stray output" in printed.err
    assert "('stdio', 'CLEAN')" in printed.err


@pytest.mark.parametrize("kind", ["null", "file", "closed"])
def test_no_peer_is_there(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ECHO]
    if kind == "file":
        with (tmp_path / "file").open("wb") as file:
            done = subprocess.run(
                command, stdin=subprocess.PIPE, input=None, stdout=file, stderr=-1, check=False
            )
        expected = "standard output is not a pipe, so no peer is there; start it as the command"
    elif kind == "null":
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        expected = "stdio: standard input is not a pipe"
    else:
        closing = ["sh", "-c", 'exec "$0" "$@" <&-', *command]
        done = subprocess.run(closing, capture_output=True, check=False)
        expected = "stdio: standard input is"
    assert done.returncode == 1
    assert expected in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_terminal_is_no_peer() -> None:
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", ECHO], stdin=theirs, stdout=-1, stderr=-1, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert "standard input is a terminal, so no peer is there" in done.stderr.decode()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("no-such-command-of-lace", "x"), "'no-such-command-of-lace' is not found; check"),
        (("/",), "'/' may not be run"),
        ((), "there is no command to start; write it behind `--`"),
        (("a\0b",), "has a character that no command has"),
    ],
)
def test_commands_that_cannot_be_started(command: tuple[str, ...], message: str) -> None:
    async def refusal() -> None:
        before = open_descriptors()
        with pytest.raises(CommandError) as caught:
            await start(*command)
        assert message in str(caught.value)
        assert caught.value.exit_code == 2
        assert open_descriptors() == before

    run(refusal())


def test_a_command_that_ends_at_once() -> None:
    async def exchange() -> None:
        stream = await start(*python("import sys; sys.stdout.write('bye'); sys.exit(7)"))
        assert await read_all(stream) == b"bye"
        assert stream.ending is Ending.CLEAN
        with pytest.raises(StreamClosedError):
            await stream.write(bytes(1 << 20))
        await stream.close()
        assert stream.exit_status == 7
        await stream.close()

    run(exchange())


def test_a_stubborn_command_is_ended() -> None:
    """It ignores the end of its input and SIGTERM, and is reaped all the same."""
    code = (
        "import signal, time, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sys.stdout.write('ready'); sys.stdout.flush()\n"
        "time.sleep(60)"
    )

    async def exchange() -> None:
        stream = await start(*python(code))
        assert await stream.read(5) == b"ready"
        async with asyncio.timeout(10):
            await stream.close(CloseReason.ABORT)
        assert stream.exit_status == -signal.SIGKILL

    run(exchange())


def test_closing_that_is_cancelled_leaves_no_process() -> None:
    async def exchange() -> None:
        stream = await start(*python("import time; time.sleep(60)"))
        closing = asyncio.create_task(stream.close())
        await asyncio.wait({closing}, timeout=0.2)
        closing.cancel()
        await asyncio.wait({closing})
        assert stream.exit_status == -signal.SIGKILL

    run(exchange())
