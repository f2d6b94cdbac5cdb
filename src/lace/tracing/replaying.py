"""Replay: a capture is read, written again and compared byte by byte, and judged on the way.

Both directions go through the reader and back through the writer. Every record is validated; the
sequence of blocks, the requests and their answers, plan and proofs are judged as far as the two
streams tell. What depends on a store is not: whether a side had to advertise, ask or send more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lace.errors import LaceError, Place, RecordError
from lace.iltp.faults import WriteError
from lace.iltp.items import Blank, Comment, OversizedRecord, Preface, StoredRecord
from lace.iltp.leading import differs_at
from lace.iltp.writer import Writer
from lace.record.validate import validate_many
from lace.tracing.agreeing import Agreement
from lace.tracing.walking import Broken, End, Seen, Step, Unread, Wrong, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.base.limits import Settings
    from lace.record.reader import RawRecord
    from lace.record.seal import RandomBytes
    from lace.tracing.agreeing import Agreed
    from lace.tracing.files import CaptureFile
    from lace.tracing.walking import Told
    from lace.transport.captured import Direction

__all__ = ["WAY_NAMES", "ReplayError", "Replayed", "replay"]

WAY_NAMES: Final[dict[Direction, str]] = {">": "sent", "<": "came"}
"""What the directions of a capture are called."""
_GROUP_RECORDS: Final = 500
_GROUP_BYTES: Final = 8 * 2**20
"""Records are validated together, up to this number and size."""


class ReplayError(LaceError):
    """The first thing of a capture that is not as it should be."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """One connection that was replayed.

    Attributes:
        number: which one, from 1.
        items: items that were read and written again.
        records: records among them, all valid.
        sizes: bytes each way.
        agreed: what the sides agreed on last; None if they did not come to it.
        end: where it ended.
    """

    number: int
    items: int = 0
    records: int = 0
    sizes: dict[Direction, int] = field(default_factory=dict)
    agreed: Agreed | None = None
    end: End | None = None


class _Rewriting:
    """One direction: the bytes as they were captured, and as they are written again."""

    def __init__(self, settings: Settings) -> None:
        self._writer = Writer(max_block_bytes=settings.max_fact_block_size)
        self._captured = bytearray()
        self._offset = 0
        self._is_start = True
        self._after_record = False

    def capture(self, piece: bytes) -> None:
        """Take bytes of the capture."""
        self._captured += piece

    def write(self, seen: Seen) -> None:
        """Write an item again and compare.

        Raises:
            WriteError: the writer refuses it.
            ReplayError: other bytes come out.
        """
        item = seen.item
        if self._is_start:
            self._writer.expect(batch=seen.stage.is_batch)
        self._is_start = isinstance(item, Blank | Preface) or (
            self._is_start and isinstance(item, Comment)
        )
        for piece in self._writer.write(item):
            self._compare(piece)
        self._after_record = isinstance(item, StoredRecord)

    def _compare(self, piece: bytes) -> None:
        if not self._captured.startswith(piece):
            found = self._captured[: len(piece)]
            at = differs_at(bytes(found), piece)
            raise ReplayError(
                "what is written again differs from what was captured",
                place=Place(offset=self._offset + (len(found) if at < 0 else at)),
            )
        del self._captured[: len(piece)]
        self._offset += len(piece)

    def finish(self) -> None:
        """Check that nothing is left.

        Raises:
            ReplayError: something is.
        """
        # The LF behind a last record is written with what follows.
        left = self._captured.removeprefix(b"\n") if self._after_record else self._captured
        if left:
            raise ReplayError(
                f"{len(left):,} bytes are not written again", place=Place(offset=self._offset)
            )


class _Replay:
    """The replay of one connection."""

    def __init__(
        self, number: int, settings: Settings, random_bytes: RandomBytes, channel: str | None
    ) -> None:
        self._settings, self._random_bytes = settings, random_bytes
        self._ways: dict[Direction, _Rewriting] = {
            ">": _Rewriting(settings),
            "<": _Rewriting(settings),
        }
        self._agreement = Agreement(settings, channel)
        self._group: list[RawRecord] = []
        self._group_bytes = 0
        self._group_way: Direction = ">"
        self.result = Replayed(number=number)

    def capture(self, direction: Direction, piece: bytes) -> None:
        """Take bytes of the capture."""
        self._ways[direction].capture(piece)

    def take(self, told: Told) -> None:
        """Judge what the walk tells."""
        match told:
            case Seen():
                self._item(told)
            case Step():
                self._step(told)
            case Wrong(direction, stage, offset, failure):
                raise _at(failure, direction, offset, f", in {stage}")
            case Broken(direction, stage, error):
                raise _at(error, direction, error.offset, f", in {stage}")
            case Unread(direction, stage, offset, size):
                raise ReplayError(
                    f"{size:,} bytes follow behind the other side's end, in {stage}",
                    place=_place(direction, offset),
                )
            case End():
                self._validate()
                for direction, way in self._ways.items():
                    _in_way(direction, way.finish)
                self.result.sizes, self.result.end = dict(told.offsets), told

    def _item(self, seen: Seen) -> None:
        item, direction = seen.item, seen.direction
        if isinstance(item, OversizedRecord):
            raise ReplayError(
                f"a record of {item.size:,} bytes is above max_data_bytes",
                place=_place(direction, item.offset),
                rule="010-size-limit",
                hint="raise it: --set max_data_bytes=N",
            )
        _in_way(direction, lambda: self._ways[direction].write(seen), item.offset)
        self.result.items += 1
        if isinstance(item, StoredRecord):
            self._add(direction, item.raw)

    def _add(self, direction: Direction, raw: RawRecord) -> None:
        if direction != self._group_way:
            self._validate()
            self._group_way = direction
        self._group.append(raw)
        self._group_bytes += len(raw.data)
        if len(self._group) >= _GROUP_RECORDS or self._group_bytes >= _GROUP_BYTES:
            self._validate()

    def _validate(self) -> None:
        group, self._group, self._group_bytes = self._group, [], 0
        for raw, outcome in zip(group, validate_many(group, self._random_bytes), strict=True):
            if isinstance(outcome, RecordError):
                offset = outcome.place.offset if outcome.place else None
                raise _at(outcome, self._group_way, raw.offset if offset is None else offset)
            if outcome.hash_text != raw.claimed:
                raise ReplayError(
                    "the record is not the one that its markline names",
                    place=_place(self._group_way, raw.offset),
                )
        self.result.records += len(group)

    def _step(self, step: Step) -> None:
        turns = step.turns
        try:
            if step.stage.phase == "setup":
                self._agreement.take_setups(turns)
            elif step.stage.phase == "hello":
                self.result.agreed = self._agreement.take_hellos(turns)
            elif step.stage.phase == "advertise" and self.result.agreed is not None:
                self._agreement.check_sources(turns, self.result.agreed)
        except LaceError as error:
            at = self._agreement.at
            raise _at(error, at, turns[at].offset, f", in {step.stage}") from None


def _place(direction: Direction, offset: int | None) -> Place:
    return Place(WAY_NAMES[direction], offset=offset)


def _at(error: LaceError, direction: Direction, offset: int, where: str = "") -> ReplayError:
    """Return an error as that of a replay."""
    return ReplayError(
        f"{error.message}{where}",
        rule=error.rule,
        place=_place(direction, offset),
        hint=error.hint,
    )


def _in_way(direction: Direction, work: Callable[[], None], offset: int | None = None) -> None:
    try:
        work()
    except WriteError as error:
        raise _at(error, direction, offset or 0) from None
    except ReplayError as error:
        error.place = _place(direction, error.place.offset if error.place else offset)
        raise


def replay(
    capture: CaptureFile,
    settings: Settings,
    random_bytes: RandomBytes,
    *,
    channel: str | None = None,
) -> Iterator[Replayed]:
    """Yield each connection of a capture when it is replayed.

    Args:
        capture: the capture, at its beginning.
        settings: the limits of blocks, records and rules.
        random_bytes: randomness for checking signatures together.
        channel: the digest of the server's certificate, for proofs over TLS.

    Raises:
        ReplayError: the first thing that is not as it should be.
        CaptureError: the file is no capture.
    """
    number = 0
    while capture.begin():
        number += 1
        made = _Replay(number, settings, random_bytes, channel)
        try:
            for told in walk(capture, settings, made.capture):
                made.take(told)
        except ReplayError as error:
            place = error.place
            source = place.source if place else None
            error.place = Place(
                f"connection {number}, {source}", offset=place.offset if place else None
            )
            raise
        yield made.result
