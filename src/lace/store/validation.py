"""Validation of many records, in this process and in others beside it.

Frames go out in batches; verdicts come back in the same order. A batch is one
signature check, so it should be large. Processes start when there is more than one
batch, and end with their pipe: a killed parent leaves none behind, and a killed
worker costs nothing but its speed.
"""

from __future__ import annotations

import fcntl
import gc
import json
import marshal
import os
import queue
import struct
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, cycle, islice
from typing import IO, TYPE_CHECKING, Any, Final

from lace.errors import Place, RecordError
from lace.record.reader import Fault, RawRecord
from lace.record.validate import ValidRecord, restore_valid, validate_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.record.seal import RandomBytes

__all__ = [
    "ALONE_BATCHES",
    "SIGNATURE_BATCH",
    "SIGNATURE_BATCH_BYTES",
    "Batch",
    "Verdicts",
    "helpful_workers",
    "make_batches",
    "serve",
    "validate_batches",
]

SIGNATURE_BATCH: Final = 8000
SIGNATURE_BATCH_BYTES: Final = 8 * 1024 * 1024
"""How much is validated together: more would take memory and save nothing."""
ALONE_BATCHES: Final = 2
"""A process takes as long to start as a batch: only a stream that is longer than this is worth
that, unless processes were asked for."""
_AHEAD: Final = 4
"""Batches that a process has in hand or in its pipe while the parent stores a large one."""
_AHEAD_BYTES: Final = 32 * 1024 * 1024
"""Record bytes that all processes together have so; a batch of one large record may pass it."""
_MOST_WORKERS: Final = 3
"""One process stores, and three can validate as fast as it stores."""
_COLLECT_AFTER: Final = 64
"""Batches between two collections of garbage in a validation process."""
_HEAVY_BYTES: Final = 64 * 1024
"""Records of more bytes than this, on average, take longer to hand over than to validate."""
_PIPE_BYTES: Final = 1 << 20
_LENGTH: Final = struct.Struct("<Q")
_WORKER: Final = """
import json, sys, types
sys.path[:] = json.loads(sys.argv[1])
# The package without its front door, which a validation process does not need.
package = sys.modules["lace"] = types.ModuleType("lace")
package.__path__ = json.loads(sys.argv[2])
from lace.store.validation import serve
serve()
"""

_Result = list[tuple[object, ...] | list[object]]
"""For each record its verdict as a tuple, or its error as a list."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames to validate together, and the faults that were met among them.

    `end` is the offset behind the last of them, `source` what they come from.
    """

    records: list[RawRecord]
    faults: list[Fault]
    end: int
    source: str | None = None

    @property
    def size(self) -> int:
        """How many bytes its records have."""
        return sum(len(raw.data) for raw in self.records)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of a batch: for each of its records the valid one or the error."""

    batch: Batch
    outcomes: list[ValidRecord | RecordError]

    def valid(self) -> list[ValidRecord]:
        """Return the records that are valid."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, ValidRecord)]

    def errors(self) -> list[RecordError]:
        """Return why the others are not, and the reader's faults, by offset."""
        found = [outcome for outcome in self.outcomes if isinstance(outcome, RecordError)]
        found += [fault.error for fault in self.batch.faults]
        return sorted(found, key=lambda error: (error.place and error.place.offset) or 0)


def make_batches(
    outcomes: Iterable[RawRecord | Fault],
    *,
    max_records: int,
    max_bytes: int,
    source: str | None = None,
) -> Iterator[Batch]:
    """Group what a reader yields into batches of at most so many records and bytes."""
    records: list[RawRecord] = []
    faults: list[Fault] = []
    size, left = 0, max_records
    for outcome in outcomes:
        if isinstance(outcome, RawRecord):
            records.append(outcome)
            size += len(outcome.data)
        else:
            faults.append(outcome)
        left -= 1
        if left == 0 or size >= max_bytes:
            yield _batch(records, faults, source)
            records, faults = [], []
            size, left = 0, max_records
    if records or faults:
        yield _batch(records, faults, source)


def _batch(records: list[RawRecord], faults: list[Fault], source: str | None) -> Batch:
    ends = [raw.offset + len(raw.data) for raw in records[-1:]]
    ends += [fault.offset for fault in faults[-1:]]
    return Batch(records, faults, max(ends), source)


def helpful_workers(processors: int) -> int:
    """Return how many validation processes help on a machine with so many processors."""
    return max(0, min(processors - 1, _MOST_WORKERS))


def validate_batches(
    batches: Iterable[Batch], random_bytes: RandomBytes, workers: int, alone: int = 0
) -> Iterator[Verdicts]:
    """Yield the verdicts of each batch, in order.

    The first `alone` ones are validated here, and so is one that nothing follows.
    """
    stream = iter(batches)
    first = islice(stream, alone) if workers else stream
    yield from (_judge_here(batch, random_bytes) for batch in first)
    ahead = deque(islice(stream, 2))
    if len(ahead) < 2:
        yield from (_judge_here(batch, random_bytes) for batch in ahead)
    else:
        yield from _judge_beside(_chain(ahead, stream), random_bytes, workers)


def _chain(ahead: deque[Batch], rest: Iterator[Batch]) -> Iterator[Batch]:
    """Yield all batches, and keep none of them: they may be large."""
    while ahead:
        yield ahead.popleft()
    yield from rest


def _judge_beside(
    batches: Iterator[Batch], random_bytes: RandomBytes, number: int
) -> Iterator[Verdicts]:
    workers: list[_Worker] = []
    turns = cycle(range(number))
    waiting: deque[tuple[Batch, _Worker | None]] = deque()
    ahead = 0
    try:
        for batch in batches:
            worker = None
            if batch.size <= _HEAVY_BYTES * len(batch.records):
                turn = next(turns)
                if turn == len(workers):
                    workers.append(_Worker())
                worker = workers[turn]
                worker.send(batch)
            waiting.append((batch, worker))
            ahead += batch.size
            while len(waiting) >= number * _AHEAD or ahead > _AHEAD_BYTES:
                ahead -= waiting[0][0].size
                yield _collect(*waiting.popleft(), random_bytes)
        while waiting:
            yield _collect(*waiting.popleft(), random_bytes)
    finally:
        for worker in workers:
            worker.close()


def _collect(batch: Batch, worker: _Worker | None, random_bytes: RandomBytes) -> Verdicts:
    result = worker.receive() if worker else None
    if result is None:
        return _judge_here(batch, random_bytes)
    return Verdicts(
        batch,
        [
            restore_valid(raw.data, verdict)
            if isinstance(verdict, tuple)
            else _restore_error(verdict, batch.source)
            for raw, verdict in zip(batch.records, result, strict=True)
        ],
    )


def _restore_error(parts: list[Any], source: str | None) -> RecordError:
    message, rule, offset, hint = parts
    return RecordError(message, rule=rule, place=Place(source, offset=offset), hint=hint)


def _judge_here(batch: Batch, random_bytes: RandomBytes) -> Verdicts:
    return Verdicts(batch, validate_many(batch.records, random_bytes, batch.source))


class _Worker:
    """A validation process and the pipes to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module in our own Python
            # Isolated: nothing in the current folder or the environment is run in there.
            [sys.executable, "-I", "-c", _WORKER, *_import_paths()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,  # an interrupt at the terminal is for the parent to handle
        )
        for pipe in (self._process.stdin, self._process.stdout):
            # A batch in few large pieces: each piece costs a change of threads over there.
            with suppress(OSError, AttributeError):  # a system without such pipes, or at its limit
                if pipe is not None:
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, batch: Batch) -> None:
        """Hand over a batch; a process that has died is noticed when it does not answer."""
        records = batch.records
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

    def receive(self) -> _Result | None:
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
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _read_message(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = pipe.read(length)
    return message if len(message) == length else None


def serve() -> None:
    """Be a validation process: batches on standard input, results on standard output."""
    pipe_in, pipe_out = sys.stdin.buffer, sys.stdout.buffer
    # Batches are made of thousands of small values without cycles: looking for some takes
    # a tenth of the time and finds nothing.
    gc.disable()
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def receive() -> None:
        # Always reading, so that the parent never waits to send while this process does too.
        message: bytes | None = b""
        while message is not None:
            message = _read_message(pipe_in)
            inbox.put(message)

    threading.Thread(target=receive, daemon=True).start()
    batches = count(1)
    with suppress(BrokenPipeError):
        while (message := inbox.get()) is not None:
            _write_message(pipe_out, marshal.dumps(_serve_batch(message)))
            if next(batches) % _COLLECT_AFTER == 0:
                gc.collect()


def _serve_batch(message: bytes) -> _Result:
    columns = marshal.loads(message)  # noqa: S302 - from the process that started this one
    records = list(map(RawRecord._make, zip(*columns, strict=True)))
    result: _Result = []
    for outcome in validate_many(records, os.urandom):
        if isinstance(outcome, ValidRecord):
            result.append(outcome.verdict())
        else:
            offset = outcome.place.offset if outcome.place else None
            result.append([outcome.message, outcome.rule, offset, outcome.hint])
    return result
