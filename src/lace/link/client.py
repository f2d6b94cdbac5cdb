"""One link on a stream, of a client or of a server; and an event loop for callers that wait.

A link is one exchange over one connection. The side that connects is operand 0 (G37). Each
link has its own handle of the lace, which only the thread of the link uses.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from lace.base.arguments import check_argument
from lace.base.limits import MAX_WAIT_TICKS
from lace.errors import Place, StoreError, UsageError
from lace.store.interface import watching
from lace.transport.faults import ServerFullError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from lace.base.tai import Tai
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Outcome
    from lace.link.events import Claims, DryRun, LinkEvent
    from lace.link.resources import Resources
    from lace.link.session import LinkSession
    from lace.link.side import Side
    from lace.record.ids import Verifier
    from lace.transport.duplex import ByteStream


CONNECTING: Final = 0
"""The operand of the side that connects."""
ACCEPTING: Final = 1
"""The operand of the side that accepts."""


# -- An event loop in a thread, for programs that do not have one.

_Made = TypeVar("_Made")


class LoopThread:
    """An event loop in a thread, for callers that wait for asynchronous work."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, _Made]) -> Future[_Made]:
        """Start work in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, _Made], seconds: float | None = None) -> _Made:
        """Run work in the loop, and wait for its end.

        Raises:
            TimeoutError: it takes longer; it is cancelled then.
        """
        running = self.start(work)
        try:
            return running.result(seconds)
        except BaseException:  # a Ctrl-C while waiting, as well
            running.cancel()
            raise

    def tell(self, what: Callable[[], object]) -> bool:
        """Call a function in the loop soon; returns False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # it is closed
            return False
        return True

    def close(self) -> None:
        """End the loop and its thread; what still runs in it is cancelled."""
        if self._loop.is_closed():
            return
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        if not task.cancelling():  # a second time would break off what it does at its end
            task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


# -- One link.

Opening: TypeAlias = "Callable[[], AbstractContextManager[Side]]"
"""Opens the side of a link; called, entered and left outside of the event loop."""


def check_wait_ticks(count: int, *, is_open: bool) -> None:
    """Check the number of ticks that a bounded link waits for."""
    check_argument(count, int, "wait_ticks is a number of ticks")
    if not 0 <= count <= MAX_WAIT_TICKS:
        raise UsageError(
            f"wait_ticks must be from 0 to {MAX_WAIT_TICKS:,}, got {count:,}",
            hint="an open exchange goes on until it is stopped",
        )
    if count and is_open:
        raise UsageError(
            "an open exchange waits for every tick until it is stopped",
            rule="G54d",
            hint="leave one of the two out: --open or --wait-ticks",
        )


def check_pinned(expected: frozenset[str], *, is_plain: bool) -> None:
    """Check that a pinned certificate comes with a pinned key that can be proven."""
    if not expected or is_plain:
        raise UsageError(
            "a server whose certificate no authority is asked about has to prove a key",
            rule="G39b",
            hint="name its verifier with --peer V, and leave --plain out",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """How a link runs.

    Attributes:
        is_open: go on after a fixed point.
        wait_ticks: of a bounded link, ticks to wait for before it closes.
        is_plain: leave the nonce out, for a peer that knows only 050; nothing is proven.
        claim: the verifier that a side without a key claims, because its transport proves it.
        expected: the verifiers that the peer may have; empty: any.
        dry_run: collects what would move; the link stops before anything does.
        claims: collects what the peer claims; no cursor is saved.
        offer_all: negotiate all fields for advertisements, not only those that the plan
            reads; more is told, and rules may read what no constant names.
        store_differing: store a record also if its advertisement said something else (X1).
    """

    is_open: bool = False
    wait_ticks: int = 0
    is_plain: bool = False
    claim: Verifier | None = None
    expected: frozenset[str] = frozenset()
    dry_run: DryRun | None = None
    claims: Claims | None = None
    offer_all: bool = False
    store_differing: bool = False


async def run_link(
    stream: ByteStream,
    opening: Opening,
    index: int,
    options: LinkOptions,
    clock: Callable[[], Tai],
    *,
    began: Callable[[LinkSession], None] | None = None,
    hear: Callable[[LinkEvent], None] | None = None,
    agreed: Callable[[Terms], None] | None = None,
    resources: Resources | None = None,
) -> Outcome:
    """Run one exchange over a stream and close the stream; a failure is in the outcome.

    `began` gets the session before it runs, `hear` all events and `agreed` the terms of each
    epoch; all three are called in the event loop.
    """
    # Loaded late: these take as long as everything else, and a server listens before.
    from lace.link.events import Announcer
    from lace.link.session import LinkSession
    from lace.link.side import named, party_of

    if stream.proven.is_pinned:
        check_pinned(options.expected, is_plain=options.is_plain)
    noting = [each.note for each in (options.dry_run, options.claims) if each is not None]
    announcer = Announcer(hear, agreed, noting)
    async with _opened(opening) as side:
        party = party_of(
            side,
            index,
            clock,
            options,
            proven=stream.proven,
            resources=resources,
            observer=announcer,
        )
        session = LinkSession(party, stream, announcer, dry_run=options.dry_run)
        with watching(side.store.folder, looker(session)):
            if began is not None:
                began(session)
            outcome = await session.run()
        if session.was_turned_away:
            raise ServerFullError(Place(stream.proven.transport))
        if isinstance(session.error, StoreError):
            raise named(session.error, "this side's", outcome)
        return outcome


@asynccontextmanager
async def _opened(opening: Opening) -> AsyncIterator[Side]:
    """Open and close a side in other threads, because both may wait for the disk."""
    opened = opening()
    entering = asyncio.create_task(asyncio.to_thread(opened.__enter__))
    try:
        yield await asyncio.shield(entering)
    finally:
        await asyncio.wait([entering])  # a cancelled task leaves nothing open
        if entering.exception() is None:
            await asyncio.to_thread(opened.__exit__, None, None, None)


def looker(session: LinkSession) -> Callable[[], None]:
    """Return a function that lets a session look for new records, from any thread."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(session.look)

    return tell
