"""`lace serve`: accept exchanges on an address, many at once."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api import now, processors
from lace.cli.command import command as lace_command
from lace.cli.link_options import (
    UID_MAP_OPTION,
    claimed_verifier,
    link_options,
    parse_peers,
    path_of,
    signing_key,
    tell_event,
    tls_options,
    vouched_peer,
    warn_of_links,
)
from lace.cli.outcomes import OUTCOME_KEYS, exit_code_of
from lace.cli.policy_files import read_own_policy, warn_of, warn_of_names
from lace.cli.policy_options import offered
from lace.cli.server_log import (
    Metrics,
    ServeLog,
    agreed_figures,
    link_figures,
    log_line,
    served_document,
    stderr_queued,
    stdout_queued,
)
from lace.cli.signals import Signals
from lace.engine.budget import Cancellation, EvaluationCancelled
from lace.errors import LaceError, StoreError, UsageError
from lace.iltp.address import parse_address
from lace.link.client import LinkOptions
from lace.link.intake import choose_receipt_key
from lace.link.resources import keep_one_arena
from lace.link.server import Server
from lace.policy.plan import LOWERINGS
from lace.transport.connections import ConnectionLimits
from lace.transport.listening import ListenOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from lace.api import Lace
    from lace.cli.session import Session
    from lace.errors import Finding
    from lace.exchange.negotiation import Terms
    from lace.facts.lines import Fact
    from lace.iltp.address import LinkAddress
    from lace.link.server import Served
    from lace.link.side import Side
    from lace.policy.local import Policy
    from lace.record.seal import SigningKey
    from lace.spark.served.warehouse import ServedWarehouse
    from lace.transport.duplex import Proven


# -- The listening socket that a service manager hands over, as systemd does.

FIRST_DESCRIPTOR: Final = 3
"""The descriptor of the first socket that is handed over."""


def inherited_descriptor(environ: Mapping[str, str]) -> int | None:
    """Return the descriptor of the socket that was handed over to this process, if one was."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return None  # none, or for another process: the parent process keeps the variables
    count = environ.get("LISTEN_FDS", "")
    if count == "1":
        return FIRST_DESCRIPTOR
    raise UsageError(
        f"one socket is taken over, and LISTEN_FDS is {count!r}",
        hint="let the socket unit have one ListenStream=",
    )


# -- How `lace serve` listens: certificates, maps of who peers are, limits, an inherited socket.


def read_listen_options(session: Session, lace: Lace, given: dict[str, Any]) -> ListenOptions:
    """Return how a server listens, as its command line says."""
    from lace.transport.maps import read_fingerprint_map, read_uid_map
    from lace.transport.tls import load_certificate, load_server_tls

    tls = None
    certificate, key = path_of(given["tls_cert"]), path_of(given["tls_key"])
    client_map, client_ca = path_of(given["tls_client_map"]), path_of(given["tls_client_ca"])
    if certificate is not None and key is not None:
        tls = load_server_tls(
            certificate,
            key,
            clients=None if client_map is None else read_fingerprint_map(client_map),
            client_authorities=client_ca,
        )
    elif certificate is not None or key is not None:
        raise UsageError("--tls-cert and --tls-key belong together", hint="name both")
    elif client_map is not None or client_ca is not None:
        raise UsageError(
            "certificates of clients are asked for by a server that has one",
            hint="name it: --tls-cert FILE --tls-key FILE",
        )
    users, channel = path_of(given["uid_map"]), path_of(given["channel_cert"])
    return ListenOptions(
        stdio_peer=vouched_peer(given["stdio_peer"]),
        verifiers={} if users is None else read_uid_map(users),
        tls=tls,
        channel_certificate=None if channel is None else load_certificate(channel),
        hosts=frozenset(name.lower() for name in given["host"]),
        origins=frozenset(given["origin"]),
        limits=ConnectionLimits(
            in_all=given["max_links"] or lace.settings.max_links,
            of_address=given["max_links_of_address"] or lace.settings.max_links_of_address,
            idle_seconds=lace.settings.idle_link_seconds,
        ),
        inherited=inherited_descriptor(session.environ),
    )


# -- The warehouse behind `lace serve`: opened once, read again when that is wanted.

_LINKS: Final = "warehouse"
"""Cursors of these links are kept apart from those of the lace: they hold less."""


class WarehouseBehind:
    """A warehouse whose records are sent instead of the lace's."""

    def __init__(self, lace: Lace, folder: Path) -> None:
        self._lace, self._folder = lace, folder
        self._served = self._open(None)

    def _open(self, before: ServedWarehouse | None) -> ServedWarehouse:
        from lace.spark.served.warehouse import open_served  # what it needs takes long to load

        most = self._lace.settings.warehouse_served_records
        return open_served(self._folder, before, most=most)

    @property
    def generation(self) -> int:
        """The generation that new links get."""
        return self._served.generation

    def renew(self) -> None:
        """Go on with the newest state; the one before stays while links use it."""
        self._served = self._open(self._served)

    def strange_names(self, policy: Policy, cancellation: Cancellation) -> tuple[Finding, ...]:
        """Return a warning for each field name, group and app of rules that no record has.

        All records are read, in constant memory. A warehouse of more than the setting
        `warehouse_embedded_records` is not looked at.
        """
        from lace.policy.local import modules_of
        from lace.query.store_query import find_strange_names_among

        served = self._served
        if len(served.index) > self._lace.settings.warehouse_embedded_records:
            return ()
        return find_strange_names_among(_watched(served.facts(), cancellation), modules_of(policy))

    @contextmanager
    def side(self, opened: AbstractContextManager[Side]) -> Iterator[Side]:
        """Open a side of the lace as one of the warehouse."""
        from lace.spark.served.evaluator import WarehouseEvaluating
        from lace.spark.served.warehouse import WarehouseStore
        from lace.store.links import LinkFiles

        with opened as own:
            store = WarehouseStore(lambda: self._served)
            most = own.settings.warehouse_embedded_records
            yield replace(
                own,
                store=store,
                evaluating=WarehouseEvaluating(store, most),
                links=LinkFiles(
                    self._lace.store.folder,
                    within=_LINKS,
                    may_write=not self._lace.store.read_only,
                ),
            )


def _watched(facts: Iterator[Fact], cancellation: Cancellation) -> Iterator[Fact]:
    for fact in facts:
        cancellation.check()
        yield fact


SWITCH_SECONDS: Final = 0.001
"""How long a thread computes while others wait for the interpreter: short work of many links."""


class _Repeated:
    """Work that runs once at a time, and once more if it is asked for meanwhile."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._is_asked = False

    def ask(self) -> None:
        """Start the work, or let it run once more."""
        self._is_asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._is_asked:
            self._is_asked = False
            try:
                await self._work()
            except Exception as error:  # noqa: BLE001 - else nobody would see it
                context = {"message": "what a signal asked for has failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


class _Serve:
    """A server as this command runs it: its rule files, its log, its end."""

    def __init__(
        self, session: Session, lace: Lace, address: LinkAddress, given: dict[str, Any]
    ) -> None:
        self._session, self._lace, self._address, self._given = session, lace, address, given
        claim = claimed_verifier(given["claim"], given["key"])
        self._key: SigningKey | None = signing_key(
            lace, given["key"], is_plain=bool(given["plain"]), claim=claim
        )
        self._last: Served | None = None
        self._problem: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log = ServeLog(session, lace)
        self._server: Server | None = None
        self._policy = self._read_policy()
        folder = given["warehouse"]
        self._warehouse = WarehouseBehind(lace, Path(folder)) if folder is not None else None
        if self._warehouse is None:  # else most records are there, and it takes longer
            warn_of_names(session, lace, self._policy)
        self._renewal = _Repeated(self._renew_warehouse)
        self._name_check = _Repeated(self._check_names)
        self._ending = Cancellation()
        self._options = LinkOptions(
            is_open=bool(given["is_open"]),
            is_plain=bool(given["plain"]),
            claim=claim,
            expected=parse_peers(given["peer"]),
        )
        self._receipt_key: SigningKey | None = None
        if given["receipts"]:
            self._receipt_key = choose_receipt_key(lace.keys, self._key, claim)
            if self._warehouse is not None:
                raise UsageError(
                    "a receipt is stored in the lace that is served, and a warehouse is only read",
                    hint="leave --receipts out",
                )
        self._listening = read_listen_options(session, lace, given)
        self._metrics = Metrics(version("lace"))
        warn_of_links(
            session,
            self._policy,
            address,
            self._key,
            is_plain=self._options.is_plain,
            claim=claim,
        )

    def _read_policy(self) -> Policy:
        given = self._given
        lowering = given["lowering"] or LOWERINGS[0]
        return read_own_policy(
            self._session,
            given["select"],
            given["expose"],
            lowering,
            given["allow_undefined"],
            offered(given["field"], given["all_fields"]),
        )

    def run(self) -> int:
        """Serve to the end; returns the exit code."""
        keep_one_arena()
        sys.setswitchinterval(SWITCH_SECONDS)
        signals = Signals(self._stop, self._renew)
        output = self._session.output
        with stderr_queued(output), stdout_queued(output, self._lose_reader), self._log:
            signals.run(self._run())
        signals.check()
        if self._problem is not None:
            raise self._problem
        last = self._last
        if last is None:
            return 0
        if last.error is not None:
            raise last.error
        return 1 if last.outcome is None else exit_code_of(last.outcome)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._tell_fault)
        self._server = Server(
            self._policy,
            self._open,
            self._options,
            now,
            report=self._report,
            opened=self._opened,
            agreed=self._agreed,
            once=self._given["once"],
            settings=self._lace.settings,
        )
        if self._warehouse is not None:
            self._name_check.ask()
        async with self._measured():
            await self._server.run(self._address, self._listening, bound=self._bound)

    @asynccontextmanager
    async def _measured(self) -> AsyncIterator[None]:
        """Show figures to a collector meanwhile, if that is wanted."""
        port = self._given["metrics"]
        if port is None:
            yield
            return
        from lace.transport.metrics import SCRAPE_PATH, scraping

        async with scraping(port, lambda: self._metrics.page(self._server)) as found:
            place = f"http://127.0.0.1:{found}{SCRAPE_PATH}"
            tell_event(self._session.output, "metrics", {"address": place}, f"metrics at {place}")
            yield

    def _open(self, policy: Policy) -> AbstractContextManager[Side]:
        # Processes for validation are of use to few links: more than processors help nobody.
        is_busy = self._server is not None and self._server.links > processors()
        workers = 0 if is_busy or self._warehouse is not None else None
        opened = self._lace.side(
            policy,
            self._key,
            receipt_key=self._receipt_key,
            workers=workers,
            purpose="lace serve",
        )
        return opened if self._warehouse is None else self._warehouse.side(opened)

    def _bound(self, address: LinkAddress) -> None:
        output = self._session.output
        if not (output.quiet and address.scheme == "stdio"):  # there it is told in passing
            if output.json:
                output.json_line({"address": str(address)})
            else:
                output.line(str(address))
            output.flush()
        tell_event(output, "listening", {"address": str(address)})
        self._log.add_rules(self._policy)

    def _agreed(self, number: int, terms: Terms) -> None:
        tell_event(self._session.output, "link-agreed", agreed_figures(number, terms))

    def _opened(self, number: int, proven: Proven) -> None:
        figures = {"link": number, "from": proven.place or None}
        tell_event(self._session.output, "link-opened", figures)

    def _stop(self) -> bool:
        self._ending.cancel()
        if self._server is None:
            return False
        self._server.stop()
        return True

    def _renew(self) -> None:
        """Read the rule files again, and the warehouse if there is one.

        Rules count at once: what they withdraw does not wait for an index, and is withdrawn
        also where the warehouse cannot be read.
        """
        self._take_renewal()
        if self._warehouse is not None:
            self._renewal.ask()

    async def _renew_warehouse(self) -> None:
        warehouse = self._warehouse
        if warehouse is None:
            return
        before = warehouse.generation
        try:
            # Beside the event loop: other links go on while an index is made.
            await asyncio.to_thread(warehouse.renew)
        except LaceError as error:
            self._refuse_renewal("warehouse is", error)
        except (OSError, MemoryError) as error:
            self._refuse_renewal("warehouse is", StoreError(f"it cannot be read: {error!r}"))
        else:
            if warehouse.generation != before and self._server is not None:
                self._take_renewal()

    async def _check_names(self) -> None:
        """Warn of the names in the rules that no record has; links go on meanwhile."""
        if self._session.output.quiet:
            return
        try:
            found = await asyncio.to_thread(self._strange_names, self._policy)
        except EvaluationCancelled:
            return
        except (LaceError, OSError) as error:
            self._session.output.warn(f"the names in the rules were not looked up: {error}")
            return
        warn_of(self._session, found)

    def _strange_names(self, policy: Policy) -> tuple[Finding, ...]:
        if self._warehouse is not None:
            return self._warehouse.strange_names(policy, self._ending)
        with self._lace.again("lace serve") as own:
            return own.check(policy)

    def _take_renewal(self) -> None:
        """Go on with the rules of now; while they are not legal, what was read before counts."""
        if self._server is None:
            return
        try:
            policy = self._read_policy()
        except LaceError as error:
            self._refuse_renewal("rule files are", error)
            return
        self._policy = policy
        self._name_check.ask()
        self._server.renew(policy)
        self._metrics.add_renewal(is_taken=True)
        self._log.add_rules(policy)
        figures: dict[str, Any] = {"selector": policy.select.id}
        text = f"the rule files were read again; the selector is {policy.select.id}"
        if self._warehouse is not None:
            figures["generation"] = self._warehouse.generation
            text += f", the generation of the warehouse {self._warehouse.generation}"
        tell_event(self._session.output, "rules-renewed", figures, text)

    def _refuse_renewal(self, what: str, error: LaceError) -> None:
        why = f"lace: the {what} not taken, what was read before counts: {error}"
        self._metrics.add_renewal(is_taken=False)
        self._log.add_refused_rules(error)
        output = self._session.output
        tell_event(output, "rules-refused", {"why": str(error)}, why, level="error")

    def _report(self, served: Served) -> None:
        self._last = served
        output = self._session.output
        self._metrics.add_link(served)
        figures = link_figures(served, with_detail=self._session.debug)
        tell_event(output, "link-ended", figures, log_line(figures))
        self._log.add_link(served)
        if served.outcome is not None and output.json:
            try:
                output.json_line(served_document(served))
                output.flush()
            except OSError as error:  # the disk is full, or the terminal has gone
                self._problem = self._problem or error
                self._stop()

    def _lose_reader(self, error: OSError) -> None:
        """End because the reader of a pipe has gone; called in the thread that writes to it."""
        self._problem = self._problem or error
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._stop)

    def _tell_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report a fault of ours that has ended a link; the others go on."""
        error = context.get("exception")
        self._session.output.complain(
            f"lace: internal error: {context['message']}: {type(error).__name__}: {error}"
        )
        if self._session.debug:
            loop.default_exception_handler(context)


@lace_command(
    "serve",
    api="serve",
    piped="The address, with its true port, on the first line; nothing else. On stdio it goes "
    "to standard error, unless --quiet is given. Standard error has a line for each link that "
    "has ended.",
    json_keys={
        "address": "the address, with its true port; on a line of its own, the first",
        "link": "the number of a link; one line for each that has ended, with the keys below",
        "from": "where the peer is",
        "left_out": "how many lines are missing here, because nobody read standard output; on a "
        "line of its own",
        **OUTCOME_KEYS,
    },
    examples=[
        (
            "lace serve tcp:127.0.0.1:4790 --select team.lace --expose team-view.lace@V.….H3",
            "let anyone who proves to hold that key converge with you",
        ),
        (
            "lace serve wss:0.0.0.0:443 --select team.lace --expose view.lace@V.….H3 "
            "--tls-cert server.pem --tls-key server.key",
            "the same, encrypted",
        ),
        (
            "lace serve unix:/run/lace/s --select all.lace --expose view.lace --uid-map users",
            "for users of this machine",
        ),
        ("lace serve tcp:127.0.0.1:0 --select all.lace --once", "one exchange on any free port"),
        (
            "lace serve tcp:127.0.0.1:4790 --warehouse big.wh --select all.lace --expose v.lace",
            "the records of a warehouse",
        ),
    ],
)
@click.argument("address", metavar="ADDRESS")
@link_options(select_required=True)
@click.option(
    "--peer",
    metavar="V",
    multiple=True,
    help="A verifier that a peer has to prove; without any, everyone is taken. Each has a link "
    "beyond --max-links, once it has proven who it is. Repeatable.",
)
@UID_MAP_OPTION
@tls_options("The certificate of a wss server, PEM.", "The key of that certificate, PEM.")
@click.option(
    "--tls-client-map",
    metavar="FILE",
    help="Ask clients for certificates; who they are: `SHA256-fingerprint V` lines.",
)
@click.option(
    "--tls-client-ca",
    metavar="FILE",
    help="Whose client certificates are taken, PEM; else the system's authorities.",
)
@click.option(
    "--channel-cert",
    metavar="FILE",
    help="For ws behind a proxy that ends TLS: that proxy's certificate, PEM.",
)
@click.option(
    "--host",
    metavar="NAME",
    multiple=True,
    help="A further name of a ws or wss server. Repeatable.",
)
@click.option(
    "--origin", metavar="URL", multiple=True, help="A web page that may connect. Repeatable."
)
@click.option(
    "--max-links",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many links there may be at once; else the setting max_links. A full server closes "
    "the longest idle one for a new one.",
)
@click.option(
    "--max-links-of-address",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many of them from one address or user; else max_links_of_address.",
)
@click.option(
    "--warehouse",
    metavar="DIR",
    type=click.Path(),
    help="Send the records of a warehouse, which is only read; of the lace come keys, cursors and "
    "settings. Plans that are registered there are answered at once, others are evaluated up to "
    "the setting warehouse_embedded_records.",
)
@click.option(
    "--metrics",
    metavar="PORT",
    type=click.IntRange(0, 65_535),
    help="Show figures for Prometheus at http://127.0.0.1:PORT/metrics, to this machine alone; "
    "port 0 picks a free one, which is told on standard error.",
)
@click.option("--once", is_flag=True, help="End after the first link, with its exit code.")
@click.pass_obj
def command(session: Session, /, address: str, **given: Any) -> int:  # noqa: ANN401 - the options
    """Accept exchanges.

    ADDRESS is `stdio`, `unix:/path`, `tcp:host:port`, `ws:host` or `wss:host`; port 0 picks a
    free one. Many links run at once, each by itself: what goes wrong with one is told on
    standard error, and the others go on. With --json standard output has a line for each link that
    has ended. A server waits for no reader of a pipe: beyond 64 MiB that nobody has read, lines
    are left out and counted.

    A service manager may hand over the listening socket (LISTEN_PID and LISTEN_FDS=1, as systemd
    does); then ADDRESS says which one is expected.

    SIGHUP reads the rule files again, and the newest state of a warehouse: new links get them,
    and open ones begin a new epoch. Names of fields, groups and apps in the rules that no record
    has are shown as warnings, at the start and at SIGHUP. A
    first SIGTERM or Ctrl-C takes no more links and ends those that there are, each at a good
    moment, and evaluations that take long at once; a second ends the process at once. Whatever
    was said to be stored is.
    """
    place = parse_address(address, for_serving=True)
    if "-" in (given["select"], *given["expose"]) and (
        place.scheme == "stdio" or sys.stdin is None
    ):
        raise UsageError("standard input is the connection", hint="name files")
    session.durable = "what links have brought stays stored"
    with session.open("serve") as lace:
        return _Serve(session, lace, place, given).run()
