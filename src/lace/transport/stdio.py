"""Standard input and output: this process's own, or those of a command it starts (060).

A server on standard output shares it with everything in the process that prints.
So both are moved to descriptors of their own first: what is printed afterwards goes to
standard error, and standard output carries bytes of the exchange only.

Pipes say nothing about who is at their other end. The process that starts a command controls both
of its pipes and its arguments, and may vouch for that: for the command it starts, and to the
command for itself (060-126).

Apart from `listening`: one module for each transport.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from lace.errors import Place
from lace.iltp.address import LinkAddress
from lace.transport.connections import Bound
from lace.transport.duplex import (
    ABORT_SECONDS,
    CLOSE_SECONDS,
    CloseReason,
    DuplexStream,
    Ending,
    InputProtocol,
    OutputProtocol,
    Proven,
)
from lace.transport.faults import CommandError, TransportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.record.ids import Verifier
    from lace.transport.connections import Acceptor
    from lace.transport.duplex import ByteStream


_ADDRESS: Final = LinkAddress(scheme="stdio")
_INPUT: Final = 0
_OUTPUT: Final = 1
_ERRORS: Final = 2


async def open_pipes(
    readable: IO[bytes], writable: IO[bytes], peer: Verifier | None = None
) -> DuplexStream:
    """Return the stream of two ends of pipes or sockets, which belong to it from now on.

    `peer` is who is at the other end, if the caller vouches for that.
    """
    loop = asyncio.get_running_loop()
    try:
        source, reading = await loop.connect_read_pipe(InputProtocol, readable)
    except BaseException:
        readable.close()
        writable.close()
        raise
    try:
        sink, writing = await loop.connect_write_pipe(OutputProtocol, writable)
    except BaseException:
        source.close()
        writable.close()
        raise

    def shut() -> None:
        source.close()
        sink.close()

    def cut() -> None:
        source.close()
        if not sink.is_closing() or sink.get_write_buffer_size():  # asyncio closes pipes twice
            sink.abort()

    return DuplexStream(
        Proven(transport=_ADDRESS.transport_text, peer=peer),
        reading.inbox,
        writing.outlet,
        shut=shut,
        cut=cut,
        lost=(reading.lost, writing.lost),
    )


async def open_own_stdio(peer: Verifier | None = None) -> ByteStream:
    """Return the stream of this process's standard input and output, taken over.

    From now on standard output is standard error for the rest of the process, and
    standard input is empty.
    """
    for descriptor, name in ((_INPUT, "input"), (_OUTPUT, "output")):
        _check_descriptor(descriptor, name)
    for printed in (sys.stdout, sys.stderr):
        if printed is not None:
            printed.flush()
    readable = os.fdopen(os.dup(_INPUT), "rb", buffering=0)
    writable = os.fdopen(os.dup(_OUTPUT), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(_ERRORS, _OUTPUT)
    except OSError:  # standard error is closed
        os.dup2(nothing, _OUTPUT)
    os.dup2(nothing, _INPUT)
    os.close(nothing)
    return await open_pipes(readable, writable, peer)


def _check_descriptor(descriptor: int, name: str) -> None:
    hint = "start it as the command of another process, as `lace sync stdio -- COMMAND` does"
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        raise TransportError(
            f"standard {name} is closed", place=Place("stdio"), hint=hint
        ) from None
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        kind = "a terminal" if os.isatty(descriptor) else "not a pipe"
        raise TransportError(
            f"standard {name} is {kind}, so no peer is there", place=Place("stdio"), hint=hint
        )


async def listen_stdio(acceptor: Acceptor, peer: Verifier | None = None) -> Bound:
    """Take standard input and output as the one connection of a server.

    `peer` is who is at the other end, on the word of the starter of this process.
    """
    stream = await open_own_stdio(peer)
    admission = acceptor.admit("stdio")
    if admission is None or admission.is_refused:
        raise AssertionError("standard input and output are the only connection")
    acceptor.start(stream).add_done_callback(lambda _: acceptor.release(admission))

    async def finish() -> None:
        pass

    return Bound(_ADDRESS, lambda: None, finish)


async def connect_command(
    command: Sequence[str], errors: int | None = None, peer: Verifier | None = None
) -> ChildStream:
    """Start a command and return the stream of its standard input and output.

    What it writes to standard error goes to the descriptor `errors`, else where this process's
    goes. `peer` is who the command is, if the caller vouches for that.
    """
    if not command:
        raise CommandError(
            "there is no command to start",
            place=Place("stdio"),
            hint="write it behind `--`, as in `lace sync stdio … -- ssh host lace serve stdio …`",
        )
    child_input, writable = os.pipe()
    readable, child_output = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=child_input, stdout=child_output, stderr=errors
        )
    except BaseException as error:
        os.close(writable)
        os.close(readable)
        if isinstance(error, (OSError, ValueError)):
            raise _not_started(command[0], error) from error
        raise
    finally:
        os.close(child_input)
        os.close(child_output)
    try:
        stream = await open_pipes(
            os.fdopen(readable, "rb", buffering=0), os.fdopen(writable, "wb", buffering=0), peer
        )
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return ChildStream(stream, process)


def _not_started(program: str, error: OSError | ValueError) -> CommandError:
    match error:
        case FileNotFoundError():
            what, hint = "is not found", "check its spelling, or write its whole path"
        case PermissionError():
            what, hint = "may not be run", "check its permissions"
        case OSError():
            what, hint = f"cannot be started: {error.strerror}", "check that it is a program"
        case _:
            what, hint = "has a character that no command has", "write it without NUL"
    return CommandError(f"the command {program!r} {what}", place=Place("stdio"), hint=hint)


class ChildStream:
    """The stream of a command that was started; closing it ends the command as well."""

    def __init__(self, stream: DuplexStream, process: asyncio.subprocess.Process) -> None:
        self._stream = stream
        self._process = process

    @property
    def exit_status(self) -> int | None:
        """What the command ended with, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def proven(self) -> Proven:
        """What the transport proves: its name, and whom the caller vouches for."""
        return self._stream.proven

    @property
    def ending(self) -> Ending | None:
        """How the command's bytes ended; None while more may come."""
        return self._stream.ending

    @property
    def peer_has_left(self) -> bool:
        """Whether the command sends nothing more, though what it sent may not be read yet."""
        return self._stream.peer_has_left

    async def read(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        return await self._stream.read(most)

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the command does not take them."""
        await self._stream.write(data)

    async def end_writing(self) -> None:
        """Say that nothing more comes from this side."""
        await self._stream.end_writing()

    async def close(self, reason: CloseReason = CloseReason.DONE) -> None:
        """End the stream and wait for the command, which is made to end where it does not."""
        try:
            await self._stream.close(reason)
            await self._ends_within(CLOSE_SECONDS if reason is CloseReason.DONE else ABORT_SECONDS)
            if self.exit_status is None:
                with suppress(ProcessLookupError):
                    self._process.terminate()
                await self._ends_within(ABORT_SECONDS)
        finally:
            if self.exit_status is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
            await self._process.wait()

    async def _ends_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
