"""Validation of many records, in this process and in worker processes.

Frames go out in batches; results come back in the same order. A batch is one signature check, so
it should be large. Workers start when there is more than one batch, and end with their pipe: a
killed parent leaves none running, and the work of a killed worker is done in this process. While
this process would only wait for them, it validates as well.

The workers are plain subprocesses, not those of `concurrent.futures`: these would import the main
module of the program again, outlive a killed parent, and all be lost with the first killed one.
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
from collections import Counter, deque
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, Final

from lace.errors import Place, RecordError
from lace.record.reader import Fault, RawRecord
from lace.record.validate import ValidRecord, restore_valid, validate_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.base.limits import Settings
    from lace.record.seal import RandomBytes


# -- A worker process and the pipes to it.

_COLLECT_AFTER: Final = 64
"""Batches between two garbage collections in a worker."""
_PIPE_BYTES: Final = 1 << 20
_LENGTH: Final = struct.Struct("<Q")
_WORKER: Final = """
import json, sys, types
sys.path[:] = json.loads(sys.argv[1])
# The package without its public API, which a worker does not need.
package = sys.modules["lace"] = types.ModuleType("lace")
package.__path__ = json.loads(sys.argv[2])
from lace.store.validation import serve
serve()
"""

Result = list[tuple[object, ...] | list[object]]
"""For each record its verdict as a tuple, or its error as a list."""


class ValidationProcess:
    """A worker process and the pipes to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module in our own Python
            # Isolated: nothing in the current folder or the environment runs in it.
            [sys.executable, "-I", "-c", _WORKER, *_import_paths()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # so that polling the pipe sees all of it
            process_group=0,  # the parent handles an interrupt at the terminal
        )
        for pipe in (self._process.stdin, self._process.stdout):
            # A batch in few large pieces: each piece costs the worker a change of threads.
            with suppress(OSError, AttributeError):  # a system without such pipes, or at its limit
                if pipe is not None:
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, records: Sequence[RawRecord]) -> None:
        """Send a batch; a worker that has died is noticed by `receive`."""
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
        """The descriptor on which results arrive."""
        return None if self._process.stdout is None else self._process.stdout.fileno()

    @property
    def has_answer(self) -> bool:
        """Whether a result has begun to arrive, or the worker has died."""
        if self._process.stdout is None:
            return True
        poll = select.poll()  # `select.select` takes no descriptor above 1023
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(0))

    def receive(self) -> Result | None:
        """Return the next result; None when the worker has died."""
        if self._process.stdout is None:
            return None
        message = _read_message(self._process.stdout)
        return None if message is None else marshal.loads(message)  # noqa: S302 - our own process

    def close(self) -> None:
        """End the worker."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()


def _import_paths() -> tuple[str, str]:
    return json.dumps(sys.path), json.dumps(list(sys.modules["lace"].__path__))


def _write_message(pipe: IO[bytes], message: bytes) -> None:
    # In one piece, which a pipe with room takes at once: a reader of a part finds all of it.
    left = memoryview(_LENGTH.pack(len(message)) + message)
    while left:
        left = left[pipe.write(left) :]
    pipe.flush()


def _read_message(pipe: IO[bytes]) -> bytes | None:
    head = _read_exactly(pipe, _LENGTH.size)
    return None if head is None else _read_exactly(pipe, *_LENGTH.unpack(head))


def _read_exactly(pipe: IO[bytes], length: int) -> bytes | None:
    """Return this many bytes; None when the pipe ends before that."""
    pieces: list[bytes] = []
    while length:
        piece = pipe.read(min(length, _PIPE_BYTES))
        if not piece:
            return None
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def serve() -> None:
    """Validate batches from standard input, and write the results to standard output."""
    pipe_in, pipe_out = sys.stdin.buffer, sys.stdout.buffer
    # A batch is thousands of small values without cycles: to scan them for garbage takes a tenth
    # of the time and finds nothing.
    gc.disable()
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def receive() -> None:
        # Always reading: parent and worker must not wait for each other to read.
        message: bytes | None = b""
        while message is not None:
            message = _read_message(pipe_in)
            inbox.put(message)

    def answer() -> None:
        # A pipe holds about one result, and the parent may be storing records for a while.
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


SIGNATURE_BATCH: Final = 8000
SIGNATURE_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Records and bytes of a batch: larger ones would take memory and save nothing."""
ALONE_BATCHES: Final = 2
"""Batches that are validated in this process before workers start, which takes as long as one."""
_AHEAD: Final = 3
"""Batches that a worker has, in its pipe as well, while the parent stores a large one."""
_SPARE: Final = 1
"""Batches beyond those, for this process to validate rather than wait."""
_AHEAD_BYTES: Final = 32 * 1024 * 1024
"""Record bytes of all these together; a batch of one large record may exceed it."""
_MAX_WORKERS: Final = 3
"""Three workers validate as fast as one process stores."""
_HEAVY_BYTES: Final = 64 * 1024
"""Average record size above which sending a record takes longer than validating it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames to validate together, and the reader's faults among them.

    `end` is the offset after the last of them in `source`, if they have one; `size` is the number
    of record bytes. The records must not change.
    """

    records: list[RawRecord]
    faults: list[Fault]
    end: int = 0
    source: str | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum([len(raw.data) for raw in self.records]))


@dataclass(frozen=True, slots=True)
class ValidationResults:
    """The results of a batch: for each record the valid one or the error."""

    batch: Batch
    outcomes: list[ValidRecord | RecordError]

    def valid(self) -> list[ValidRecord]:
        """Return the records that are valid."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, ValidRecord)]

    def errors(self) -> list[RecordError]:
        """Return the errors of the other records and the reader's faults, in stream order.

        The order is that of the frames: the error within a frame may come after later frames.
        """
        found = [
            (raw.offset, outcome)
            for raw, outcome in zip(self.batch.records, self.outcomes, strict=True)
            if isinstance(outcome, RecordError)
        ]
        found += [(fault.offset, fault.error) for fault in self.batch.faults]
        return [error for _offset, error in sorted(found, key=itemgetter(0))]


def make_batches(
    outcomes: Iterable[RawRecord | Fault],
    *,
    max_records: int,
    max_bytes: int,
    source: str | None = None,
) -> Iterator[Batch]:
    """Group the frames and faults of a reader into batches of limited size."""
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


def batches_alone(settings: Settings) -> int:
    """Return the number of batches that are validated before workers start."""
    return 0 if settings.import_workers else ALONE_BATCHES


def helpful_workers(processors: int) -> int:
    """Return the number of workers that help on a machine with this many processors."""
    return max(0, min(processors - 1, _MAX_WORKERS))


def validate_batches(
    batches: Iterable[Batch], random_bytes: RandomBytes, workers: int, alone: int = 0
) -> Iterator[ValidationResults]:
    """Yield the results of each batch, in order.

    The first `alone` batches are validated in this process, and so is one that nothing follows.
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
    """Yield all batches without keeping any: they may be large."""
    while ahead:
        yield ahead.popleft()
    yield from rest


def _judge_beside(
    batches: Iterator[Batch], random_bytes: RandomBytes, number: int
) -> Iterator[ValidationResults]:
    with closing(ValidationPool(random_bytes, number)) as pool:
        for batch in batches:
            pool.submit(batch)
            while pool.is_full:
                yield pool.collect()
        while pool.batches:
            yield pool.collect()


@dataclass(slots=True)
class _Waiting:
    """A batch whose results are not collected yet: its worker, or its results."""

    batch: Batch
    is_apart: bool
    worker: ValidationProcess | None = None
    verdicts: ValidationResults | None = None

    @property
    def is_ready(self) -> bool:
        """Whether its results can be had without waiting for a worker."""
        return self.worker is None or self.worker.has_answer

    @property
    def is_spare(self) -> bool:
        """Whether it is meant for a worker, and none has it."""
        return self.is_apart and self.worker is None and self.verdicts is None


class ValidationPool:
    """Validates batches in workers, and returns the results in order."""

    def __init__(self, random_bytes: RandomBytes, number: int, alone: int = 0) -> None:
        self._random_bytes = random_bytes
        self._number = number
        self._alone = alone
        self._workers: list[ValidationProcess] = []
        self._ahead = 0
        self._waiting: deque[_Waiting] = deque()

    @property
    def batches(self) -> int:
        """The number of batches that were submitted and not collected."""
        return len(self._waiting)

    @property
    def records(self) -> int:
        """The number of records of these batches."""
        return sum(len(each.batch.records) for each in self._waiting)

    def submit(self, batch: Batch, *, here: bool = False) -> None:
        """Take a batch; `here`: it is too small for a worker."""
        is_apart = False
        if here:
            pass
        elif self._alone > 0:
            self._alone -= 1
        else:
            is_apart = bool(self._number) and batch.size <= _HEAVY_BYTES * len(batch.records)
        taken = _Waiting(batch, is_apart)
        self._hand_out((*self._waiting, taken))
        self._waiting.append(taken)
        self._ahead += batch.size

    def _hand_out(self, waiting: Iterable[_Waiting]) -> None:
        """Send spare batches, in order, to workers that have room."""
        for each in waiting:
            if each.is_spare:
                worker = self._free_worker()
                if worker is None:
                    return
                worker.send(each.batch.records)
                each.worker = worker

    def _free_worker(self) -> ValidationProcess | None:
        """Return the least busy worker, a new one if allowed; None when all are full."""
        in_hand = Counter(id(each.worker) for each in self._waiting if each.worker is not None)
        if len(self._workers) < self._number and len(in_hand) == len(self._workers):
            self._workers.append(ValidationProcess())
        found = min(self._workers, key=lambda worker: in_hand[id(worker)])
        return found if in_hand[id(found)] < _AHEAD else None

    def expect_many(self) -> None:
        """Start a worker now, because many batches will follow."""
        self._alone = 0
        if self._number and not self._workers:
            self._workers.append(ValidationProcess())

    @property
    def is_full(self) -> bool:
        """Whether results should be collected before more is submitted."""
        most = self._number * _AHEAD + _SPARE if self._number else _AHEAD
        return bool(self._waiting) and (len(self._waiting) >= most or self._ahead > _AHEAD_BYTES)

    @property
    def is_ready(self) -> bool:
        """Whether the next results can be collected without waiting for a worker."""
        return bool(self._waiting) and self._waiting[0].is_ready

    @property
    def descriptor(self) -> int | None:
        """A descriptor that is readable once `is_ready` is true; None without a worker."""
        worker = self._waiting[0].worker if self._waiting else None
        return None if worker is None else worker.descriptor

    def collect(self) -> ValidationResults:
        """Return the results of the oldest batch."""
        first = self._waiting[0]
        while not first.is_ready and self._judge_spare():
            pass
        self._waiting.popleft()
        self._ahead -= first.batch.size
        self._hand_out(self._waiting)
        return first.verdicts or _collect(first.batch, first.worker, self._random_bytes)

    def _judge_spare(self) -> bool:
        """Validate the last batch that no worker has, and return whether there was one."""
        for each in reversed(self._waiting):
            if each.is_spare:
                each.verdicts = _judge_here(each.batch, self._random_bytes)
                return True
        return False

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._waiting.clear()
        self._ahead = 0


def _collect(
    batch: Batch, worker: ValidationProcess | None, random_bytes: RandomBytes
) -> ValidationResults:
    result = worker.receive() if worker else None
    if result is None:
        return _judge_here(batch, random_bytes)
    return ValidationResults(
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


def _judge_here(batch: Batch, random_bytes: RandomBytes) -> ValidationResults:
    return ValidationResults(batch, validate_many(batch.records, random_bytes, batch.source))
