"""Serving from a program: a server that goes on beside it, with the links that it had."""

from __future__ import annotations

import asyncio
import platform
import time
from bisect import bisect_left
from collections import Counter, deque
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from lace.api.links import LinkObserver, outcome_name
from lace.api.system import processors
from lace.engine.budget import Cancellation, EvaluationCancelled
from lace.errors import LaceError, UsageError
from lace.exchange.capabilities import capabilities_of
from lace.link.client import LoopThread
from lace.link.server import Server
from lace.policy.local import check_policy, modules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from lace.api.lace import Lace
    from lace.base.tai import Tai
    from lace.errors import Finding
    from lace.facts.lines import Fact
    from lace.iltp.address import LinkAddress
    from lace.link.client import LinkOptions
    from lace.link.events import LinkStatus
    from lace.link.server import Served
    from lace.link.side import Side
    from lace.policy.local import Policy
    from lace.record.ids import Verifier
    from lace.record.seal import SigningKey
    from lace.spark.served import ServedWarehouse
    from lace.transport.listening import ListenOptions

__all__ = ["MOST_SERVED", "Metrics", "Serving"]

MOST_SERVED: Final = 1_000
"""Links that have ended and are remembered; of more, the oldest are forgotten."""
_LINKS: Final = "warehouse"
"""Cursors of links that send from a warehouse are kept apart from those of the lace."""


# -- The records that a server sends: those of its lace, or of a warehouse.


class ServedRecords:
    """The lace of a server, and the warehouse whose records are sent instead of the lace's.

    Args:
        lace: an open lace.
        key: who this side is; None for nobody.
        receipt_key: signs a receipt for each record that comes; None: no receipts.
        warehouse: the folder of a warehouse, which is only read.
    """

    def __init__(
        self,
        lace: Lace,
        key: SigningKey | None,
        receipt_key: SigningKey | None = None,
        warehouse: Path | None = None,
    ) -> None:
        self.settings = lace.settings
        self._lace, self._key, self._receipt_key = lace, key, receipt_key
        self._folder = warehouse
        self._served: ServedWarehouse | None = None
        self.renew()

    @property
    def generation(self) -> int | None:
        """The generation of the warehouse that new links get; None without a warehouse."""
        return None if self._served is None else self._served.generation

    def renew(self) -> None:
        """Read the newest state of the warehouse; links keep the one that they have."""
        if self._folder is None:
            return
        from lace.spark.served import open_served  # what it needs takes long to load

        most = self.settings.warehouse_served_records
        self._served = open_served(self._folder, self._served, most=most)

    def side(self, policy: Policy, links: int) -> AbstractContextManager[Side]:
        """Open this side for one more link; `links` is how many there are then."""
        # Processes for validation are of use to few links: more than processors help nobody.
        is_alone = links <= processors() and self._served is None
        opened = self._lace.side(
            policy,
            self._key,
            receipt_key=self._receipt_key,
            workers=None if is_alone else 0,
            purpose="lace serve",
        )
        return opened if self._served is None else self._warehouse_side(opened)

    @contextmanager
    def _warehouse_side(self, opened: AbstractContextManager[Side]) -> Iterator[Side]:
        from lace.spark.served import WarehouseEvaluating, WarehouseStore
        from lace.store.links import LinkFiles

        with opened as own:
            store = WarehouseStore(self._newest)
            most = own.settings.warehouse_embedded_records
            folder, may_write = self._lace.store.folder, not self._lace.store.read_only
            yield replace(
                own,
                store=store,
                evaluating=WarehouseEvaluating(store, most),
                links=LinkFiles(folder, within=_LINKS, may_write=may_write),
            )

    def _newest(self) -> ServedWarehouse:
        if self._served is None:
            raise AssertionError("there is a warehouse")
        return self._served

    def strange_names(self, policy: Policy, cancellation: Cancellation) -> tuple[Finding, ...]:
        """Return a warning for each field name, group and app of rules that no record has.

        All records of a warehouse are read, in constant memory. One of more than the setting
        `warehouse_embedded_records` is not looked at.
        """
        served = self._served
        if served is None:
            with self._lace.again("lace serve") as own:
                return own.check(policy)
        if len(served.index) > self.settings.warehouse_embedded_records:
            return ()
        from lace.query.store_query import find_strange_names_among

        return find_strange_names_among(_watched(served.facts(), cancellation), modules_of(policy))


def _watched(facts: Iterator[Fact], cancellation: Cancellation) -> Iterator[Fact]:
    for fact in facts:
        cancellation.check()
        yield fact


# -- The figures of a server, in the text form that Prometheus collects.
#
# Counters go over all links, those that have ended and those that are under way. No label holds a
# name, a hash, a verifier or anything else of a peer.

OUTCOMES: Final = ("fixed-point", "unfinished", "failed", "error")
"""How a link can end."""
PHASE_BUCKETS: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
"""Upper bounds of the histogram of phases, in seconds."""
_PHASES: Final = ("setup", "hello", "advertise", "request", "transfer", "waiting")
_COUNTED: Final = (
    ("lace_received_bytes_total", "Bytes that came, of all kinds."),
    ("lace_sent_bytes_total", "Bytes that were sent, of all kinds."),
    ("lace_record_received_bytes_total", "Bytes of records that came."),
    ("lace_record_sent_bytes_total", "Bytes of records that were sent."),
    ("lace_records_received_total", "Records that came, valid or not."),
    ("lace_records_sent_total", "Records that were sent."),
    ("lace_records_requested_total", "Records that were asked for."),
    ("lace_records_stored_total", "Records that came and are stored."),
    ("lace_records_rejected_total", "Records that came and were refused, by finished rounds."),
    ("lace_loops_total", "Loops of advertise, request and transfer."),
    ("lace_turns_total", "Blocks that each side sent in loops."),
)


def _figures(standing: LinkStatus) -> dict[str, int]:
    counters = standing.counters
    values = (
        standing.received,
        standing.sent,
        counters.bytes_received,
        counters.bytes_sent,
        standing.records_received,
        standing.records_sent,
        counters.requested,
        counters.stored,
        standing.rejected,
        counters.loops,
        counters.turns,
    )
    return {name: value for (name, _), value in zip(_COUNTED, values, strict=True)}


class _Histogram:
    """How often something took how long."""

    def __init__(self) -> None:
        self._counts = [0] * (len(PHASE_BUCKETS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(PHASE_BUCKETS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, label: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*PHASE_BUCKETS, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{label},le="{bound}"}} {total}'
        yield f"{name}_sum{{{label}}} {self._sum:.6f}"
        yield f"{name}_count{{{label}}} {total}"


class Metrics:
    """What is counted of a server, for `GET /metrics`."""

    def __init__(self) -> None:
        self._began, self._since = round(time.time(), 3), time.monotonic()
        self._ended: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._renewals: Counter[str] = Counter()
        self._phases = {phase: _Histogram() for phase in _PHASES}

    def add_link(self, served: Served) -> None:
        """Count a link that has ended."""
        self._outcomes["error" if served.outcome is None else outcome_name(served.outcome)] += 1
        if served.standing is not None:
            self._ended.update(_figures(served.standing))
        for phase, seconds in served.outcome.seconds if served.outcome is not None else ():
            self._phases[phase].add(seconds)

    def add_renewal(self, *, is_taken: bool) -> None:
        """Count rule files that were read again."""
        self._renewals["taken" if is_taken else "refused"] += 1

    def page(self, server: Server | None) -> str:
        """Return the page."""
        return "".join(f"{line}\n" for line in self._lines(server))

    def _lines(self, server: Server | None) -> Iterator[str]:
        from importlib.metadata import version  # only a collector needs it

        standings = [] if server is None else server.statuses
        build = f'version="{version("lace")}",python="{platform.python_version()}"'
        yield from _family("lace_build_info", "gauge", "What runs.", [(build, 1)])
        yield from _single("lace_start_time_seconds", "gauge", "When it began.", self._began)
        uptime = round(time.monotonic() - self._since, 3)
        yield from _single("lace_uptime_seconds", "gauge", "For how long it runs.", uptime)
        links = 0 if server is None else server.links
        yield from _single("lace_links_open", "gauge", "Links that there are.", links)
        yield from _family(
            "lace_links_total",
            "counter",
            "Links that have ended, by outcome.",
            [(f'outcome="{each}"', self._outcomes[each]) for each in OUTCOMES],
        )
        refused = 0 if server is None else server.refused
        yield from _single(
            "lace_connections_refused_total", "counter", "Connections too many.", refused
        )
        displaced = 0 if server is None else server.displaced
        yield from _single(
            "lace_connections_displaced_total",
            "counter",
            "Connections closed for others.",
            displaced,
        )
        totals = self._ended.copy()
        for standing in standings:
            totals.update(_figures(standing))
        for name, meaning in _COUNTED:
            yield from _single(name, "counter", meaning, totals[name])
        waiting = sum(standing.validating for standing in standings)
        yield from _single(
            "lace_validation_groups_waiting", "gauge", "Groups of records to validate.", waiting
        )
        yield from _family(
            "lace_rule_renewals_total",
            "counter",
            "Rule files that were read again.",
            [(f'result="{each}"', self._renewals[each]) for each in ("taken", "refused")],
        )
        yield from _head("lace_phase_seconds", "histogram", "Time of a link in each phase.")
        for phase, histogram in self._phases.items():
            yield from histogram.lines("lace_phase_seconds", f'phase="{phase}"')


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _family(name: str, kind: str, meaning: str, values: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield from _head(name, kind, meaning)
    for label, value in values:
        yield f"{name}{{{label}}} {value}"


def _single(name: str, kind: str, meaning: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, meaning)
    yield f"{name} {value}"


class Serving:
    """A server that goes on beside the program, in an `async with` or a `with` block.

    It listens from the beginning of the block on. At the end of it no more connections are
    taken, and links that there are end at a good moment.

    >>> with lace.serve("tcp:127.0.0.1:0", store, policy) as serving:  # doctest: +SKIP
    ...     print(serving.address)

    Args:
        address: where.
        policy: what this side selects and exposes.
        records: the records that are served.
        options: how links run.
        clock: gives the time.
        listening: how to listen.
        verifier: the verifier that this side claims; None for nobody.
        once: end after the first link.
        metrics: a port of this machine that shows metrics; None: no port.
        report: hears of each link that has ended, in the thread of the server.
        observer: observes it and its links.
    """

    def __init__(
        self,
        address: LinkAddress,
        policy: Policy,
        records: ServedRecords,
        options: LinkOptions,
        clock: Callable[[], Tai],
        listening: ListenOptions | None = None,
        *,
        verifier: Verifier | None = None,
        once: bool = False,
        metrics: int | None = None,
        report: Callable[[Served], None] | None = None,
        observer: LinkObserver | None = None,
    ) -> None:
        self.verifier = verifier
        """The verifier that this side claims; None for nobody."""
        self.metrics = Metrics()
        """What is counted."""
        self.metrics_address: str | None = None
        """Where it shows them, inside of its block."""
        self._wanted, self._listening, self._records = address, listening, records
        self._report, self._observer = report, observer or LinkObserver()
        self._served: deque[Served] = deque(maxlen=MOST_SERVED)
        self._server = Server(
            policy,
            lambda chosen: records.side(chosen, self.links),
            options,
            clock,
            report=self._take,
            opened=self._observer.opened,
            agreed=self._observer.agreed,
            once=once,
            settings=records.settings,
        )
        self._metrics_port = metrics
        self._open = AsyncExitStack()
        self._ending = Cancellation()
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
        self.metrics.add_link(served)
        if self._report is not None:
            self._report(served)
        self._observer.ended(served)

    @property
    def scheme(self) -> str:
        """The scheme of its address, as `tcp`."""
        return self._wanted.scheme

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
        capabilities_of(self._records.settings, policy)  # refuses fields that are not offered
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
        self.metrics.add_renewal(is_taken=True)

    @property
    def generation(self) -> int | None:
        """The generation of the warehouse that is served; None without a warehouse."""
        return self._records.generation

    def renew_warehouse(self) -> bool:
        """Read the newest state of the warehouse; returns whether there is a new one.

        New links get it. Open ones get it with the next `renew`. It may take long, and any thread
        may call it.

        Raises:
            StoreError: it cannot be read; the state before is served on.
        """
        before = self._records.generation
        self._records.renew()
        return self._records.generation != before

    def check(self) -> tuple[Finding, ...]:
        """Return a warning for each name in the rules in force that no record has.

        It may take long, and any thread may call it. When the server ends, so does this.
        """
        try:
            return self._records.strange_names(self._server.policy, self._ending)
        except EvaluationCancelled:
            return ()

    def stop(self) -> None:
        """Take no more connections, and end the links that there are, each at a good moment."""
        self._ending.cancel()
        if self._loop is None or not self._loop.tell(self._server.stop):
            self._server.stop()

    async def wait(self) -> None:
        """Wait until the server has ended: after `stop` or, with `once` and on stdio, its link."""
        if self._running is not None:
            await self._running

    async def __aenter__(self) -> Self:
        bound = self._bound = asyncio.get_running_loop().create_future()
        if self._metrics_port is not None:
            from lace.transport.metrics import SCRAPE_PATH, scraping

            page = scraping(self._metrics_port, lambda: self.metrics.page(self._server))
            port = await self._open.enter_async_context(page)
            self.metrics_address = f"http://127.0.0.1:{port}{SCRAPE_PATH}"

        def listens(address: LinkAddress) -> None:
            self._observer.listening(address)
            bound.set_result(address)

        running = self._running = asyncio.create_task(
            self._server.run(self._wanted, self._listening, bound=listens)
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
            await self._open.aclose()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running is None:
            return
        self._ending.cancel()
        self._server.stop()
        try:
            if kind is None:
                await self._running
                return
            self._running.cancel()
            with suppress(asyncio.CancelledError, LaceError):
                await self._running
        finally:
            await self._open.aclose()

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
