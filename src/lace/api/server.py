"""Serving from a program: a server that goes on beside it, with the links that it had."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from lace.base.limits import DEFAULT_SETTINGS
from lace.errors import LaceError, UsageError
from lace.exchange.capabilities import capabilities_of
from lace.link.client import LoopThread
from lace.link.server import Server
from lace.policy.local import check_policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.iltp.address import LinkAddress
    from lace.link.client import LinkOptions
    from lace.link.server import Served
    from lace.link.side import Side
    from lace.policy.local import Policy
    from lace.transport.listening import ListenOptions

__all__ = ["MOST_SERVED", "Serving"]

MOST_SERVED: Final = 1_000
"""Links that have ended and are remembered; of more, the oldest are forgotten."""


class Serving:
    """A server that goes on beside the program, in an `async with` or a `with` block.

    It listens from the beginning of the block on. At the end of it no more connections are
    taken, and links that there are end at a good moment.

    >>> with lace.serve("tcp:127.0.0.1:0", store, policy) as serving:  # doctest: +SKIP
    ...     print(serving.address)

    Args:
        address: where.
        policy: what this side selects and exposes.
        opening: opens this side's lace under a policy, once for each link.
        options: how links run.
        clock: gives the time.
        listening: how to listen.
        report: hears of each link that has ended, in the thread of the server.
        settings: what all links share.
    """

    def __init__(
        self,
        address: LinkAddress,
        policy: Policy,
        opening: Callable[[Policy], AbstractContextManager[Side]],
        options: LinkOptions,
        clock: Callable[[], Tai],
        listening: ListenOptions | None = None,
        report: Callable[[Served], None] | None = None,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> None:
        self._wanted, self._listening, self._settings = address, listening, settings
        self._report = report
        self._served: deque[Served] = deque(maxlen=MOST_SERVED)
        self._server = Server(policy, opening, options, clock, report=self._take, settings=settings)
        self._running: asyncio.Task[None] | None = None
        self._bound: asyncio.Future[LinkAddress] | None = None
        self._loop: LoopThread | None = None

    def __repr__(self) -> str:
        if self._running is None or self._bound is None or not self._bound.done():
            return f"<Serving {self._wanted}: not begun>"
        state = "ended" if self._running.done() else f"{self.links} links"
        return f"<Serving {self._bound.result()}: {state}>"

    def _take(self, served: Served) -> None:
        self._served.append(served)
        if self._report is not None:
            self._report(served)

    @property
    def address(self) -> str:
        """Where it listens, with the port that it got.

        Raises:
            UsageError: it does not listen yet.
        """
        if self._bound is None or not self._bound.done():
            raise UsageError(
                "a server has an address inside of its block",
                hint="as in `with lace.serve(…) as serving`",
            )
        return str(self._bound.result())

    @property
    def served(self) -> tuple[Served, ...]:
        """The links that have ended, the oldest first, up to a limit."""
        return tuple(self._served)

    @property
    def links(self) -> int:
        """How many links there are now."""
        return self._server.links

    def renew(self, policy: Policy) -> None:
        """Go on with another policy: for new links at once, on open ones in a new epoch.

        Raises:
            PolicyError: the selector reads a field that the settings do not offer.
            UsageError: the server has ended, or it is no policy.
        """
        check_policy(policy)
        capabilities_of(self._settings, policy)  # refuses fields that are not offered
        is_over = self._running is not None and self._running.done()
        if not is_over and self._loop is not None:
            is_over = not self._loop.tell(lambda: self._server.renew(policy))
        elif not is_over:
            self._server.renew(policy)
        if is_over:
            raise UsageError(
                "the server has ended, and takes no other policy",
                hint="call `renew` inside of the block, or serve again",
            )

    async def __aenter__(self) -> Self:
        bound = self._bound = asyncio.get_running_loop().create_future()
        running = self._running = asyncio.create_task(
            self._server.run(self._wanted, self._listening, bound=bound.set_result)
        )
        try:
            await asyncio.wait([running, bound], return_when=asyncio.FIRST_COMPLETED)
            if not bound.done():
                await running  # it says why there is no address
        except BaseException:  # no end of the block comes that would end it
            await self._give_up(running, bound)
            raise
        return self

    async def _give_up(
        self, running: asyncio.Task[None], bound: asyncio.Future[LinkAddress]
    ) -> None:
        """End the server, as soon as it has all that its end gives back."""
        either: list[asyncio.Future[Any]] = [running, bound]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running is None:
            return
        self._server.stop()
        if kind is None:
            await self._running
            return
        self._running.cancel()
        with suppress(asyncio.CancelledError, LaceError):
            await self._running

    def __enter__(self) -> Self:
        self._loop = LoopThread("lace-serving")
        try:
            self._loop.call(self.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call(self.__aexit__(kind, error, trace))
        finally:
            self._loop.close()
