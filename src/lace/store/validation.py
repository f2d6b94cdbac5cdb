"""Validation of many records, in this process and in others beside it.

Frames go out in batches; verdicts come back in the same order. A batch is one
signature check, so it should be large. Processes start when there is more than one
batch, and end with their pipe: a killed parent leaves none behind, and a killed
worker costs nothing but its speed. While there is nothing but waiting for them, this
process validates as well.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from lace.errors import Place, RecordError
from lace.record.reader import Fault, RawRecord
from lace.record.validate import ValidRecord, restore_valid, validate_many
from lace.store.validation_process import ValidationProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.base.limits import Settings
    from lace.record.seal import RandomBytes

__all__ = [
    "ALONE_BATCHES",
    "SIGNATURE_BATCH",
    "SIGNATURE_BATCH_BYTES",
    "Batch",
    "ValidationPool",
    "Verdicts",
    "batches_alone",
    "helpful_workers",
    "make_batches",
    "validate_batches",
]

SIGNATURE_BATCH: Final = 8000
SIGNATURE_BATCH_BYTES: Final = 8 * 1024 * 1024
"""How much is validated together: more would take memory and save nothing."""
ALONE_BATCHES: Final = 2
"""A process takes as long to start as a batch: only a stream that is longer than this is worth
that, unless processes were asked for."""
_AHEAD: Final = 3
"""Batches that a process has in hand or in its pipe while the parent stores a large one."""
_SPARE: Final = 1
"""Batches beyond those, for this process to validate rather than wait for the others."""
_AHEAD_BYTES: Final = 32 * 1024 * 1024
"""Record bytes of all these together; a batch of one large record may pass it."""
_MOST_WORKERS: Final = 3
"""One process stores, and three can validate as fast as it stores."""
_HEAVY_BYTES: Final = 64 * 1024
"""Records of more bytes than this, on average, take longer to hand over than to validate."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames to validate together, and the faults that were met among them.

    `end` is the offset behind the last of them in `source`, where they come from one; `size` is
    how many bytes the records have, which are not to be changed any more.
    """

    records: list[RawRecord]
    faults: list[Fault]
    end: int = 0
    source: str | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum([len(raw.data) for raw in self.records]))


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of a batch: for each of its records the valid one or the error."""

    batch: Batch
    outcomes: list[ValidRecord | RecordError]

    def valid(self) -> list[ValidRecord]:
        """Return the records that are valid."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, ValidRecord)]

    def errors(self) -> list[RecordError]:
        """Return why the others are not, and the reader's faults, in the order of the stream.

        That is where their frames begin: what is wrong may lie far inside of one, behind others.
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
    """Group what a reader yields into batches of at most this many records and bytes."""
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
    """Return how many batches are validated before processes start to help."""
    return 0 if settings.import_workers else ALONE_BATCHES


def helpful_workers(processors: int) -> int:
    """Return how many validation processes help on a machine with this many processors."""
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
    with closing(ValidationPool(random_bytes, number)) as pool:
        for batch in batches:
            pool.submit(batch)
            while pool.is_full:
                yield pool.collect()
        while pool.batches:
            yield pool.collect()


@dataclass(slots=True)
class _Waiting:
    """A batch whose results are not collected yet: its process, or its results."""

    batch: Batch
    is_apart: bool
    worker: ValidationProcess | None = None
    verdicts: Verdicts | None = None

    @property
    def is_ready(self) -> bool:
        """Whether no process is to be waited for."""
        return self.worker is None or self.worker.has_answer

    @property
    def is_spare(self) -> bool:
        """Whether it is for a process, and none has it."""
        return self.is_apart and self.worker is None and self.verdicts is None


class ValidationPool:
    """Batches that are validated in processes beside this one; their verdicts in order.

    Args:
        random_bytes: randomness for signature checks in this process.
        number: how many processes; without any, this one validates.
        alone: batches to validate here before processes start.
    """

    def __init__(self, random_bytes: RandomBytes, number: int, alone: int = 0) -> None:
        self._random_bytes = random_bytes
        self._number = number
        self._alone = alone
        self._workers: list[ValidationProcess] = []
        self._ahead = 0
        self._waiting: deque[_Waiting] = deque()

    @property
    def batches(self) -> int:
        """How many batches were submitted and not collected."""
        return len(self._waiting)

    @property
    def records(self) -> int:
        """How many records these have."""
        return sum(len(each.batch.records) for each in self._waiting)

    def submit(self, batch: Batch, *, here: bool = False) -> None:
        """Take a batch; `here`: it is too small for another process."""
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
        """Hand over what is spare, in order, to processes that have room for it."""
        for each in waiting:
            if each.is_spare:
                worker = self._free_worker()
                if worker is None:
                    return
                worker.send(each.batch.records)
                each.worker = worker

    def _free_worker(self) -> ValidationProcess | None:
        """Return the process that has least in hand, a new one if there may be more of them."""
        in_hand = Counter(id(each.worker) for each in self._waiting if each.worker is not None)
        if len(self._workers) < self._number and len(in_hand) == len(self._workers):
            self._workers.append(ValidationProcess())
        found = min(self._workers, key=lambda worker: in_hand[id(worker)])
        return found if in_hand[id(found)] < _AHEAD else None

    def expect_many(self) -> None:
        """Start a process now, and others with the batches: there will be enough of them."""
        self._alone = 0
        if self._number and not self._workers:
            self._workers.append(ValidationProcess())

    @property
    def is_full(self) -> bool:
        """Whether verdicts should be collected before more is submitted."""
        most = self._number * _AHEAD + _SPARE if self._number else _AHEAD
        return bool(self._waiting) and (len(self._waiting) >= most or self._ahead > _AHEAD_BYTES)

    @property
    def is_ready(self) -> bool:
        """Whether the next verdicts can be collected without waiting for a process."""
        return bool(self._waiting) and self._waiting[0].is_ready

    @property
    def descriptor(self) -> int | None:
        """What can be read from when `is_ready` comes true; None where nothing is to wait for."""
        worker = self._waiting[0].worker if self._waiting else None
        return None if worker is None else worker.descriptor

    def collect(self) -> Verdicts:
        """Return the verdicts of the batch that was submitted first."""
        first = self._waiting[0]
        while not first.is_ready and self._judge_spare():
            pass
        self._waiting.popleft()
        self._ahead -= first.batch.size
        self._hand_out(self._waiting)
        return first.verdicts or _collect(first.batch, first.worker, self._random_bytes)

    def _judge_spare(self) -> bool:
        """Validate the last batch that no process has; tells whether there was one."""
        for each in reversed(self._waiting):
            if each.is_spare:
                each.verdicts = _judge_here(each.batch, self._random_bytes)
                return True
        return False

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._waiting.clear()
        self._ahead = 0


def _collect(batch: Batch, worker: ValidationProcess | None, random_bytes: RandomBytes) -> Verdicts:
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
