"""The server: runs a link for every connection until it is stopped.

A failure ends only the link that it happens on. A new policy applies to new links at once, and
begins a new epoch on open ones (050).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from lace.base.limits import DEFAULT_SETTINGS
from lace.errors import LaceError, StoreError
from lace.link.client import ACCEPTING, LinkOptions, run_link
from lace.transport.duplex import CloseReason
from lace.transport.listening import ListenOptions, listen

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lace.base.limits import Settings
    from lace.base.tai import Tai
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Outcome
    from lace.iltp.address import LinkAddress
    from lace.link.events import LinkStatus
    from lace.link.resources import Resources
    from lace.link.session import LinkSession
    from lace.link.side import Side
    from lace.policy.local import Policy
    from lace.transport.connections import ConnectionSlot
    from lace.transport.duplex import ByteStream, Proven
    from lace.transport.listening import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A connection that has ended.

    Attributes:
        number: its number, from 1.
        proven: what the transport proves about it.
        outcome: the outcome of the exchange; None if it never began.
        error: the local error that ended it or kept it from beginning.
        standing: its last status; None when there was no exchange.
        seconds: how long it took.
        displaced: whether it was closed because the peer was idle and another link came.
    """

    number: int
    proven: Proven
    outcome: Outcome | None
    error: LaceError | None
    standing: LinkStatus | None
    seconds: float
    displaced: bool = False

    @property
    def received(self) -> int:
        """Bytes received."""
        return 0 if self.standing is None else self.standing.received

    @property
    def sent(self) -> int:
        """Bytes sent."""
        return 0 if self.standing is None else self.standing.sent


@dataclass(slots=True)
class _Running:
    """A running link."""

    number: int
    since: float = field(default_factory=time.monotonic)
    session: LinkSession | None = None
    admission: ConnectionSlot | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether this side works for the link, rather than waits for the peer."""
        return self.session is None or self.session.is_at_work


class Server:
    """Accepts connections and runs a link for each, `once` only for the first.

    `opening` opens this side's lace under a policy, once for each link. `opened` gets the number of
    each connection, `agreed` the terms of each epoch, `report` each connection that has ended.
    """

    def __init__(
        self,
        policy: Policy,
        opening: Callable[[Policy], AbstractContextManager[Side]],
        options: LinkOptions,
        clock: Callable[[], Tai],
        *,
        report: Callable[[Served], None],
        opened: Callable[[int, Proven], None] = lambda _number, _proven: None,
        agreed: Callable[[int, Terms], None] = lambda _number, _terms: None,
        once: bool = False,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> None:
        self.policy = policy
        self._opening, self._options, self._clock = opening, options, clock
        self._report, self._opened, self._agreed = report, opened, agreed
        self._once, self._settings = once, settings
        self._count = 0
        self._links: dict[int, _Running] = {}
        self._ending = asyncio.Event()
        self._is_stopping = False
        self._listener: Listener | None = None
        self._resources: Resources | None = None

    @property
    def links(self) -> int:
        """The number of running links."""
        return len(self._links)

    @property
    def statuses(self) -> list[LinkStatus]:
        """The status of each running link."""
        return [link.session.status for link in self._links.values() if link.session is not None]

    @property
    def refused(self) -> int:
        """The number of connections that were refused because there were too many."""
        return 0 if self._listener is None else self._listener.refused

    @property
    def displaced(self) -> int:
        """The number of idle connections that were closed for new ones."""
        return 0 if self._listener is None else self._listener.displaced

    async def run(
        self,
        address: LinkAddress,
        listening: ListenOptions | None = None,
        *,
        bound: Callable[[LinkAddress], None],
    ) -> None:
        """Serve until stopped; with `once`, and on `stdio`, until the one link has ended.

        `bound` gets the address as soon as connections are accepted.
        """
        chosen = listening or ListenOptions()
        limits = replace(chosen.limits, reserved=self._options.expected)
        chosen = replace(chosen, limits=limits)
        async with await listen(address, self._serve, chosen) as listener:
            self._listener = listener
            bound(listener.address)
            await asyncio.to_thread(import_module, "lace.link.side")  # before someone waits for it
            if address.scheme != "stdio":
                await self._ending.wait()
                await listener.stop_listening()
            await self._finish(listener)

    async def _finish(self, listener: Listener) -> None:
        if self._is_stopping:
            self._stop_links()
        await listener.finish()

    def stop(self) -> None:
        """Accept no more connections, and end each running link after its round."""
        self._is_stopping = True
        self._ending.set()
        self._stop_links()

    def _stop_links(self) -> None:
        for link in self._links.values():
            if link.session is not None:
                link.session.stop()

    def renew(self, policy: Policy) -> None:
        """Use another policy from now on."""
        self.policy = policy
        for link in self._links.values():
            if link.session is not None:
                link.session.renew(policy.operand(ACCEPTING), policy.exposures)

    async def _serve(self, stream: ByteStream) -> None:
        if self._once and self._count:
            return  # accepted just before listening ended
        self._count += 1
        link = self._links[self._count] = _Running(self._count)
        if self._listener is not None:
            link.admission = self._listener.admission_of(stream)
        if link.admission is not None:
            link.admission.user = link
        if self._once:
            self._ending.set()
        self._opened(link.number, stream.proven)
        try:
            await self._run(stream, link)
        finally:
            del self._links[link.number]
            link.session = None  # frees what the exchange held without a garbage collection
            if link.admission is not None:
                link.admission.user = None

    def _note_agreed(self, link: _Running, terms: Terms) -> None:
        """Give a link the slot that is reserved for its peer's verifier."""
        verifier = terms.peer.verifier
        if link.admission is not None and self._listener is not None:
            link.admission.has_agreed = True
            if verifier is not None:
                self._listener.reserve(link.admission, verifier)
        self._agreed(link.number, terms)

    def _shared(self) -> Resources:
        """Return the resources that all links share; they are loaded late."""
        if self._resources is None:
            from lace.link.resources import Resources

            self._resources = Resources(self._settings)
        return self._resources

    async def _run(self, stream: ByteStream, link: _Running) -> None:
        policy = self.policy
        outcome: Outcome | None = None
        problem: LaceError | None = None

        def begin(session: LinkSession) -> None:
            link.session = session
            if self.policy is not policy:
                session.renew(self.policy.operand(ACCEPTING), self.policy.exposures)
            if self._is_stopping:
                session.stop()

        try:
            outcome = await run_link(
                stream,
                lambda: self._opening(policy),
                ACCEPTING,
                self._options,
                self._clock,
                began=begin,
                agreed=partial(self._note_agreed, link),
                resources=self._shared(),
            )
        except LaceError as error:
            problem = error
            outcome = _outcome_before(error)
            await stream.close(CloseReason.ABORT)
        session = link.session
        self._report(
            Served(
                number=link.number,
                proven=stream.proven,
                outcome=outcome,
                error=problem,
                standing=None if session is None else session.status,
                seconds=time.monotonic() - link.since,
                displaced=link.admission is not None and link.admission.is_displaced,
            )
        )


def _outcome_before(error: LaceError) -> Outcome | None:
    """Return the outcome so far of an exchange that a local error has ended."""
    from lace.exchange.result import Outcome  # loaded by then, if there was an exchange

    result = error.result if isinstance(error, StoreError) else None
    return result if isinstance(result, Outcome) else None
