"""A party on a stream: the one loop that moves bytes, keeps time and ends cleanly (060, G47b).

Reading and writing do not wait for each other, so two sides that send at once never block. All
work of a party, above all evaluations and the database, happens step by step in the thread of the
party; the event loop only waits. A side that cannot take more does not read: the peer's bytes
then wait in the transport.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from lace.errors import LaceError
from lace.exchange import events as happened
from lace.exchange.failures import Failure, InterlaceFailure
from lace.exchange.transitions import State
from lace.link.events import LinkControl, LinkEnded, LinkStatus
from lace.link.messages import EndMessage, Inbound, Outbound
from lace.link.party import BYTES_AT_ONCE, GatherTimer, comes_first
from lace.link.resources import CancelReason, collecting_rarely
from lace.store.cpu_slots import at_work
from lace.transport.duplex import CloseReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lace.exchange.events import Event
    from lace.exchange.result import Outcome
    from lace.link.events import Announcer, DryRun
    from lace.link.party import Party
    from lace.policy.exposure import Exposure
    from lace.policy.operand import Operand
    from lace.store.cpu_slots import Worker
    from lace.transport.duplex import ByteStream


# -- The thread of a party.
#
# A process has one for each of its links; few of them compute at the same time.

_Made = TypeVar("_Made")

STEP_LOOK_SECONDS: Final = 0.1
"""How often a long step is checked for whether it is still wanted."""


def _nothing() -> None:
    """Do nothing."""


class PartyThread:
    """A thread for evaluations and the database; the event loop only waits for it."""

    def __init__(
        self,
        after: Callable[[], None],
        during: Callable[[], None],
        abandon: Callable[[], None],
        worker: Worker,
    ) -> None:
        self._after, self._during, self._abandon = after, during, abandon
        self._worker = worker
        self._jobs = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lace-session")

    async def do(self, work: Callable[[], _Made], *, is_long: bool = False) -> _Made:
        """Run a function in the thread, and return its result."""
        loop = asyncio.get_running_loop()
        self._jobs += 1
        try:
            doing = loop.run_in_executor(self._thread, self._at_work, work, is_long)
            try:
                while not (await asyncio.wait((doing,), timeout=STEP_LOOK_SECONDS))[0]:
                    self._during()
            except asyncio.CancelledError:
                doing.cancel()  # if it has not begun
                self._abandon()
                raise
            return doing.result()
        finally:
            self._jobs -= 1
            self._after()

    @property
    def is_busy(self) -> bool:
        """Whether work is running or queued."""
        return self._jobs > 0

    def _at_work(self, work: Callable[[], _Made], is_long: bool) -> _Made:
        with at_work(self._worker, is_long=is_long):
            return work()

    def close(self) -> None:
        """Take no more work, and do not wait for the running step."""
        self._thread.shutdown(wait=False)
        self._after = self._during = self._abandon = _nothing


# -- Writing: bytes are made in the party's thread, and written by the event loop.
#
# A peer that takes nothing for too long ends the exchange.


async def _ignore(_error: LaceError) -> None:
    """Ignore an error after the end."""


class PartyWriter:
    """Writes the messages of a party to its stream."""

    def __init__(
        self,
        party: Party,
        stream: ByteStream,
        outbound: Outbound,
        thread: PartyThread,
        *,
        at_once: int,
        patience: int | None,
        fail: Callable[[LaceError], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self._party, self._stream, self._outbound = party, stream, outbound
        self._thread, self._at_once, self._patience = thread, at_once, patience
        self._fail, self._wake = fail, wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pieces = self._outgoing()
        self._has_said_all = False
        self._to_write = asyncio.Event()
        self.sent = 0
        """The bytes sent."""

    def begin_soon(self) -> None:
        """Look for messages to write; called in the event loop."""
        self._to_write.set()

    async def run(self) -> None:
        """Write until the party has ended its stream, or the peer takes nothing any more."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._write_all()
        except LaceError as error:  # a message cannot be written
            await self._fail(error)
            self._wake()

    def release(self) -> None:
        """Abandon the pending write: the exchange is over."""
        self._pieces = iter(())
        self._fail, self._wake = _ignore, _nothing

    async def _write_all(self) -> None:
        while True:
            self._to_write.clear()
            pieces, is_end = await self._thread.do(self._gather)
            if pieces:
                try:
                    async with asyncio.timeout(self._patience):
                        await self._stream.write(pieces)
                except TimeoutError:
                    await self._give_up()
                    return
                except LaceError:
                    await self._drop_all()
                    return
                self.sent += len(pieces)
            if is_end:
                return
            if not pieces:
                await self._to_write.wait()

    async def _drop_all(self) -> None:
        """Go on without sending: the peer's end, once read, says what it is.

        Only a batch that is being sent would wait for its end forever.
        """
        while not self._party.machine.is_closed:
            self._to_write.clear()
            await self._thread.do(self._party.cut_off)
            self._wake()
            if not self._party.machine.is_closed:
                await self._to_write.wait()

    async def _give_up(self) -> None:
        """End because the peer takes nothing, though it may stay connected."""
        failure = InterlaceFailure(
            Failure.PHASE_TIMEOUT,
            f"the peer took less than {self._at_once // 1024} KiB in {self._patience} s",
            hint="raise phase_timeout_seconds if the peer is only slow",
        )
        await self._fail(failure)
        self._wake()

    def _gather(self) -> tuple[bytes, bool]:
        """Return the next bytes to send, and whether they are the last."""
        pieces: list[bytes] = []
        size = 0
        while size < self._at_once:
            piece = next(self._pieces, None)
            if piece is None:
                if self._has_said_all:
                    self._wake_soon()  # the reader may wait for bytes that will not come
                    return b"".join(pieces), True
                self._pieces = self._outgoing()
                break
            pieces.append(piece)
            size += len(piece)
        self._wake_soon()
        return b"".join(pieces), False

    def _outgoing(self) -> Iterator[bytes]:
        """Yield the bytes of the messages to send now, as they are made."""
        for message in self._party.messages():
            if isinstance(message, EndMessage):
                self._has_said_all = True
                return
            size = 0
            for piece in self._outbound.pieces(message):
                size += len(piece)
                yield piece
            self._party.count_sent(message, size)

    def _wake_soon(self) -> None:
        """Wake the reader: sending may have made room for what came."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)


READ_BYTES: Final = 256 * 1024
"""The most bytes that are read at once."""
LOOK_SECONDS: Final = 1.0
"""How often an open exchange looks for records that other processes have stored."""
GRACE_SECONDS: Final = 0.25
"""How long an evaluation that nobody waits for may go on; most end by themselves before."""


class LinkSession:
    """One side of an exchange over a stream."""

    def __init__(
        self,
        party: Party,
        stream: ByteStream,
        announcer: Announcer | None = None,
        *,
        dry_run: DryRun | None = None,
    ) -> None:
        self._party, self._stream = party, stream
        self._announcer, self._dry_run = announcer, dry_run
        limits, settings = party.machine.config.capabilities.limits, party.settings
        self._inbound = Inbound(
            max_block_bytes=limits.max_fact_block_size,
            max_data_bytes=settings.max_data_bytes,
            max_early_bytes=settings.max_setup_block_size,
            max_resource_bytes=settings.max_resource_bytes,
            limits=party.machine.config.peer_limits,
        )
        self._outbound = Outbound(max_block_bytes=limits.max_fact_block_size)
        self._gathering = GatherTimer()
        self._control = LinkControl()
        self._to_look = asyncio.Event()
        self._timeout = limits.phase_timeout_seconds
        self._thread = PartyThread(
            self._tell_phase,
            self._watch_evaluation,
            lambda: party.supervisor.cancel(CancelReason.STOPPED),
            party.supervisor.worker,
        )
        self._writing = PartyWriter(
            party,
            stream,
            self._outbound,
            self._thread,
            at_once=BYTES_AT_ONCE,
            patience=party.patience,
            fail=self._fail,
            wake=self._to_look.set,
        )

    @property
    def received(self) -> int:
        """The bytes received."""
        return self._inbound.received

    @property
    def sent(self) -> int:
        """The bytes sent."""
        return self._writing.sent

    @property
    def error(self) -> LaceError | None:
        """The local error that has ended it."""
        return self._party.error

    @property
    def was_turned_away(self) -> bool:
        """Whether the peer has refused the link because it is full."""
        return self._inbound.says_full and self._inbound.has_ended and not self._party.has_agreed

    @property
    def is_at_work(self) -> bool:
        """Whether this side works, rather than waits for the peer."""
        return self._thread.is_busy

    @property
    def status(self) -> LinkStatus:
        """The status now; any thread may ask."""
        machine, left = self._party.machine, self._party.seconds_to_alarm
        state, waited = machine.state, None
        if left is not None and state is not State.WAITING:
            waited = max(0.0, self._timeout - left)
        return LinkStatus(
            state=state,
            waited=waited,
            timeout=self._timeout,
            received=self.received,
            sent=self.sent,
            counters=machine.counters,
            records_received=self._inbound.records,
            records_sent=self._outbound.records,
            rejected=self._party.rejected,
            validating=self._party.validating,
        )

    async def run(self) -> Outcome:
        """Run the exchange to its end."""
        party = self._party
        writing: asyncio.Task[None] | None = None
        try:
            with collecting_rarely():
                await self._take(happened.Started())
                writing = asyncio.create_task(self._writing.run())
                writing.add_done_callback(lambda _: self._to_look.set())
                await self._read_all(writing)
                if party.outcome is not None and party.outcome.failure is None:
                    await asyncio.wait([writing], timeout=party.patience)
        finally:
            if writing is not None and not writing.done():
                writing.cancel()
                with suppress(asyncio.CancelledError):
                    await writing
            outcome = party.outcome
            # A link that was stopped before there was a plan has nothing to wait for.
            is_clean = outcome is not None and outcome.failure is None and bool(outcome.plan_id)
            await self._stream.close(CloseReason.DONE if is_clean else CloseReason.ABORT)
            await self._thread.do(self._party.close)
            self._inbound.release()
            self._writing.release()
            self._thread.close()
        if outcome is None:
            raise AssertionError("a session ends with its machine")
        if self._announcer is not None:
            self._announcer.tell(LinkEnded(outcome))
        return outcome

    def stop(self) -> None:
        """End after the running round or, if that takes long, after a phase."""
        self._control.stop()
        self._to_look.set()

    def renew(self, operand: Operand, exposures: tuple[Exposure, ...]) -> None:
        """Use another policy: an open exchange begins a new epoch when it waits."""
        self._control.renew(operand, exposures)
        self._to_look.set()

    def look(self) -> None:
        """Look for new records in the store."""
        self._to_look.set()

    async def is_settled(self) -> bool:
        """Return whether an open exchange waits, with no work running and no new records."""
        party = self._party
        if self._thread.is_busy or party.machine.state is not State.WAITING:
            return False
        return not await self._thread.do(party.has_news)

    def _tell_phase(self) -> None:
        if self._announcer is not None:
            self._announcer.tell_phase(self._party.machine.state.phase)

    # -- the party's own thread ----------------------------------------------------------------

    def _watch_evaluation(self) -> None:
        """Cancel a long evaluation that nobody waits for any more."""
        supervisor = self._party.supervisor
        seconds = supervisor.seconds
        if seconds is None or seconds < GRACE_SECONDS:
            return
        if self._stream.peer_has_left:
            supervisor.cancel(CancelReason.PEER_LEFT)
        elif self._control.is_stopping:
            supervisor.cancel(CancelReason.STOPPED)

    async def _take(self, event: Event) -> None:
        await self._thread.do(lambda: self._take_here(event))
        self._writing.begin_soon()

    def _take_here(self, event: Event) -> None:
        if self._dry_run is None:
            self._party.take(event)
        else:
            self._dry_run.take(self._party, event)

    async def _take_held(self) -> None:
        """Take received records that wait for more of their batch, which may never come."""
        party, machine = self._party, self._party.machine
        while party.can_take and machine.state is State.TRANSFERRING:
            event = await self._thread.do(self._inbound.hand_on)
            if event is None:
                return
            await self._take(event)

    async def _fail(self, error: LaceError) -> None:
        await self._take_held()
        await self._thread.do(lambda: self._party.fail(error))
        self._writing.begin_soon()

    # -- reading -------------------------------------------------------------------------------

    async def _read_all(self, writing: asyncio.Task[None]) -> None:
        party, machine = self._party, self._party.machine
        reading: asyncio.Task[bytes] | None = None
        try:
            while not machine.is_closed:
                if writing.done():
                    writing.result()  # raises its error: without a writer nothing ends
                if await self._heed() or await self._step():
                    continue
                if reading is None and party.can_take and not self._inbound.has_ended:
                    reading = asyncio.create_task(self._stream.read(READ_BYTES))
                await self._wait(reading)
                if reading is not None and reading.done():
                    await self._feed(reading)
                    reading = None
        finally:
            if reading is not None:
                reading.cancel()
                with suppress(asyncio.CancelledError, LaceError):
                    await reading

    async def _feed(self, reading: asyncio.Task[bytes]) -> None:
        try:
            data = reading.result()
        except LaceError as error:
            await self._fail(InterlaceFailure(Failure.MALFORMED_BLOCK, error.message))
            return
        self._inbound.feed(data)

    async def _heed(self) -> bool:
        """Act on a stop or a new policy; returns whether there was one."""
        event = self._control.take(self._party.machine.state.phase)
        if event is None:
            return False
        await self._take(event)
        return True

    async def _step(self) -> bool:
        """Do one step of work, and return whether there was any."""
        state = self._party.machine.state
        is_early = state in (State.SETUP, State.HELLO)
        is_large = state is not State.TRANSFERRING and self._inbound.is_large(is_early=is_early)
        if is_large and is_early and self._stream.peer_has_left:
            await self._fail(InterlaceFailure(Failure.PEER_CLOSED, CancelReason.PEER_LEFT.value))
            return True
        done = await self._thread.do(self._step_here, is_long=is_large)
        if isinstance(done, InterlaceFailure):
            await self._fail(done)
        elif done:
            self._writing.begin_soon()
        return bool(done)

    def _step_here(self) -> bool | InterlaceFailure:
        """Take the next event or do other work; returns the failure of an invalid stream.

        Bytes are not parsed in the event loop: other links would wait while a peer's selector is
        checked, or a large block is split.
        """
        party, state = self._party, self._party.machine.state
        if party.can_take:
            is_early = state in (State.SETUP, State.HELLO)
            try:
                event = self._inbound.next_event(
                    is_batch=state is State.TRANSFERRING, is_early=is_early
                )
            except InterlaceFailure as failure:
                return failure
            if event is not None:
                self._take_here(event)
                return True
        return party.work()

    async def _wait(self, reading: asyncio.Task[bytes] | None) -> None:
        """Wait for bytes, an alarm, a validation, new records, or a request of the caller."""
        party = self._party
        if party.is_busy:
            await self._wait_busily(reading)
            return
        self._gathering.end()
        looking = asyncio.create_task(self._to_look.wait())
        waited = [looking] if reading is None else [looking, reading]
        try:
            await asyncio.wait(
                waited, timeout=self._seconds_to_wait(), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            looking.cancel()
        self._to_look.clear()
        await self._look()

    async def _wait_busily(self, reading: asyncio.Task[bytes] | None) -> None:
        """Wait for bytes or a validation, or store valid records when neither comes soon."""
        party = self._party
        if reading is not None:
            # In the party's thread, which may end the process at any time.
            descriptor = await self._thread.do(party.watch_validation)
            if descriptor is not None:
                self._gathering.end()
            seconds = self._seconds_to_wait()
            left = seconds if descriptor is not None else self._gathering.seconds_left
            looking = asyncio.create_task(self._to_look.wait())
            try:
                is_done = await comes_first((reading, looking), descriptor, min(left, seconds))
            finally:
                looking.cancel()
            if self._to_look.is_set() or seconds <= left:
                self._to_look.clear()
                await self._look()
            if not is_done and (descriptor is not None or self._gathering.seconds_left):
                return
        self._gathering.end()
        await self._thread.do(lambda: party.work(wait=True))
        self._writing.begin_soon()

    async def _look(self) -> None:
        """Give the machine an alarm that is due, or new records."""
        party, machine = self._party, self._party.machine
        if party.take_alarm():
            await self._take_held()
            await self._take(happened.Woken())
        is_waiting = machine.config.is_open and machine.state is State.WAITING
        if is_waiting and await self._thread.do(party.has_news):
            await self._take(happened.Changed())

    def _seconds_to_wait(self) -> float:
        left = self._party.seconds_to_alarm
        return LOOK_SECONDS if left is None else min(left, LOOK_SECONDS)
