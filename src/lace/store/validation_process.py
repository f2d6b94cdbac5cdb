"""A process beside this one that validates records, and the pipes to it.

It ends with its pipe: a killed parent leaves none behind, and one that is killed costs
nothing but its speed.
"""

from __future__ import annotations

import fcntl
import gc
import json
import marshal
import os
import queue
import select
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count
from typing import IO, TYPE_CHECKING, Final

from lace.record.reader import RawRecord
from lace.record.validate import ValidRecord, validate_many

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Result", "ValidationProcess", "serve"]

_COLLECT_AFTER: Final = 64
"""Batches between two collections of garbage in a validation process."""
_PIPE_BYTES: Final = 1 << 20
_LENGTH: Final = struct.Struct("<Q")
_WORKER: Final = """
import json, sys, types
sys.path[:] = json.loads(sys.argv[1])
# The package without its front door, which a validation process does not need.
package = sys.modules["lace"] = types.ModuleType("lace")
package.__path__ = json.loads(sys.argv[2])
from lace.store.validation_process import serve
serve()
"""

Result = list[tuple[object, ...] | list[object]]
"""For each record its verdict as a tuple, or its error as a list."""


class ValidationProcess:
    """A validation process and the pipes to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module in our own Python
            # Isolated: nothing in the current folder or the environment is run in there.
            [sys.executable, "-I", "-c", _WORKER, *_import_paths()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # what is in a pipe can be asked of the system
            process_group=0,  # an interrupt at the terminal is for the parent to handle
        )
        for pipe in (self._process.stdin, self._process.stdout):
            # A batch in few large pieces: each piece costs a change of threads over there.
            with suppress(OSError, AttributeError):  # a system without such pipes, or at its limit
                if pipe is not None:
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, records: Sequence[RawRecord]) -> None:
        """Hand over a batch; a process that has died is noticed when it does not answer."""
        message = marshal.dumps(
            (
                [raw.offset for raw in records],
                [raw.data for raw in records],
                [raw.plex_at for raw in records],
                [raw.blob_at for raw in records],
                [raw.data_at for raw in records],
            )
        )
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                _write_message(self._process.stdin, message)

    @property
    def descriptor(self) -> int | None:
        """The descriptor that results arrive at."""
        return None if self._process.stdout is None else self._process.stdout.fileno()

    @property
    def has_answer(self) -> bool:
        """Whether a result has begun to arrive, or the process has died."""
        if self._process.stdout is None:
            return True
        poll = select.poll()  # `select.select` takes no descriptor above 1023
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(0))

    def receive(self) -> Result | None:
        """Return the next result; None when the process has died."""
        if self._process.stdout is None:
            return None
        message = _read_message(self._process.stdout)
        return None if message is None else marshal.loads(message)  # noqa: S302 - our own process

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()


def _import_paths() -> tuple[str, str]:
    return json.dumps(sys.path), json.dumps(list(sys.modules["lace"].__path__))


def _write_message(pipe: IO[bytes], message: bytes) -> None:
    # In one piece, which a pipe takes at once if it has room: a reader of a part sees all.
    left = memoryview(_LENGTH.pack(len(message)) + message)
    while left:
        left = left[pipe.write(left) :]
    pipe.flush()


def _read_message(pipe: IO[bytes]) -> bytes | None:
    head = _read_exactly(pipe, _LENGTH.size)
    return None if head is None else _read_exactly(pipe, *_LENGTH.unpack(head))


def _read_exactly(pipe: IO[bytes], length: int) -> bytes | None:
    """Return this many bytes; None when the pipe ends before."""
    pieces: list[bytes] = []
    while length:
        piece = pipe.read(min(length, _PIPE_BYTES))
        if not piece:
            return None
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def serve() -> None:
    """Be a validation process: batches on standard input, results on standard output."""
    pipe_in, pipe_out = sys.stdin.buffer, sys.stdout.buffer
    # Batches are made of thousands of small values without cycles: looking for some takes
    # a tenth of the time and finds nothing.
    gc.disable()
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def receive() -> None:
        # Always reading, so that the parent never waits to send while this process does too.
        message: bytes | None = b""
        while message is not None:
            message = _read_message(pipe_in)
            inbox.put(message)

    def answer() -> None:
        # A pipe holds about one result: the process that stores records reads the next one later.
        with suppress(BrokenPipeError):
            while (message := outbox.get()) is not None:
                _write_message(pipe_out, message)

    threading.Thread(target=receive, daemon=True).start()
    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    for number in count(1):
        message = inbox.get()
        if message is None:
            break
        outbox.put(marshal.dumps(_serve_batch(message)))
        if number % _COLLECT_AFTER == 0:
            gc.collect()
    outbox.put(None)
    answering.join()


def _serve_batch(message: bytes) -> Result:
    columns = marshal.loads(message)  # noqa: S302 - from the process that started this one
    records = list(map(RawRecord._make, zip(*columns, strict=True)))
    result: Result = []
    for outcome in validate_many(records, os.urandom):
        if isinstance(outcome, ValidRecord):
            result.append(outcome.verdict())
        else:
            offset = outcome.place.offset if outcome.place else None
            result.append([outcome.message, outcome.rule, offset, outcome.hint])
    return result
