"""`lace serve`: accept exchanges on an address, many at once."""

from __future__ import annotations

import asyncio
import json
import os
import select
import stat
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final

import click

from lace.api import Operation, now, parse_verifier
from lace.api.exchanges import serve
from lace.api.links import LinkObserver, keep_one_arena
from lace.cli.command import command as lace_command
from lace.cli.failures import describe_failure
from lace.cli.link_options import (
    UID_MAP_OPTION,
    link_options,
    tell_event,
    tls_options,
    warn_of_links,
)
from lace.cli.link_runs import (
    OUTCOME_KEYS,
    agreed_figures,
    exit_code_of,
    link_figures,
    logged_result,
    logged_rules,
    served_document,
)
from lace.cli.policy_files import read_own_policy, warn_of, warn_of_names
from lace.cli.policy_options import offered
from lace.cli.signals import Signals
from lace.errors import LaceError, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from types import TracebackType

    from lace.api import Lace
    from lace.api.exchanges import Policy
    from lace.api.links import LinkAddress, Proven, Served, Terms
    from lace.cli.output import Output
    from lace.cli.session import Session


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


# -- The log of a lace, as a server writes it.


class ServeLog:
    """Writes entries in a thread of its own: links do not wait for the disk.

    At the end of a `with` block all entries are written.
    """

    def __init__(self, session: Session, lace: Lace) -> None:
        self._session, self._lace = session, lace
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lace-log")
        self._last_rules: dict[str, Any] | None = None

    def __enter__(self) -> None:
        self._thread.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.__exit__(kind, error, trace)

    def add_link(self, served: Served) -> None:
        """Add an entry for a link, if something moved on it or was rejected."""
        outcome = served.outcome
        if outcome is None:
            return
        if not (outcome.received or outcome.rejected or outcome.counters.bytes_sent):
            return  # a link that brings nothing new is not logged
        self._add("serve", logged_result(outcome), exit_code_of(outcome), served.seconds)

    def add_rules(self, policy: Policy) -> None:
        """Add an entry for rules that count from now on, unless they are those of the last one."""
        result = logged_rules(policy)
        if result != self._last_rules:
            self._add("serve rules", result)
        self._last_rules = result

    def add_refused_rules(self, error: LaceError) -> None:
        """Add an entry for rules that were read again and are not legal."""
        self._last_rules = None  # that they are legal again is told
        self._add("serve rules", describe_failure(error).logged(error), error.exit_code)

    def _add(
        self, command: str, result: dict[str, Any], exit_code: int = 0, seconds: float = 0.0
    ) -> None:
        finished = now()
        operation = Operation(
            started=finished.shift(-round(seconds * 1e9)),
            finished=finished,
            command=command,
            exit_code=exit_code,
            result=result,
        )
        self._thread.submit(self._write, operation)

    def _write(self, operation: Operation) -> None:
        try:
            self._lace.log(operation)
        except LaceError as error:
            self._session.output.warn(f"the log of the lace has no entry for this: {error}")


# -- What is told of a link that has ended: who, what, how much; no names of records.

_ABSENT = {"from": "-", "peer": "unproven", "link_id": "-", "plan": "-"}
"""What stands in a line for what is not known."""


def log_line(figures: dict[str, Any]) -> str:
    """Return the line of a link: words of a name, = and a value, JSON where it has a space."""
    return " ".join(f"{name}={_value(name, value)}" for name, value in figures.items())


def _value(name: str, value: object) -> str:
    if value is None:
        return _ABSENT.get(name, "-")
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return json.dumps(text) if not text or " " in text or '"' in text else text


# -- Lines for a pipe that a thread writes: a server does not wait for a reader.

MAX_STDERR_BYTES: Final = 1 << 20
"""What waits to be written to standard error at most; lines beyond are counted and dropped."""
MAX_STDOUT_BYTES: Final = 1 << 26
"""The same for standard output, where one line names all records that a link has brought."""
_PIECE_BYTES: Final = 1 << 16
"""What is written at once: a whole line would not show whether a reader takes some of it."""
_END_SECONDS: Final = 1.0
"""How long the end waits for a reader that takes nothing."""


class PipeQueue:
    """Takes lines without waiting, and writes them in a thread.

    A line is dropped if it would make what waits longer than the limit; one that finds nothing
    waiting is never dropped.
    """

    def __init__(
        self,
        descriptor: int,
        max_bytes: int,
        dropped: Callable[[int], None],
        failed: Callable[[OSError], None] | None = None,
    ) -> None:
        self._descriptor, self._max_bytes = descriptor, max_bytes
        self._dropped_call, self._failed_call = dropped, failed
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._waiting = self._dropped = self._written = 0
        self._is_ending = False
        self._thread = threading.Thread(target=self._write_all, name="lace-pipe", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> int:
        """Take a line to be written, unless too much waits already."""
        with self._changed:
            if self._waiting and self._waiting + len(line) > self._max_bytes:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._waiting += len(line)
                self._changed.notify()
        return len(line)

    def end(self) -> None:
        """Wait until all is written, or until nobody has read for a moment: the rest is dropped."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        before = -1
        while self._thread.is_alive() and self._written != before:
            before = self._written
            self._thread.join(_END_SECONDS)

    def _write_all(self) -> None:
        try:
            while (line := self._next()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[self._write(rest) :]
                with self._changed:
                    self._waiting -= len(line)
        except OSError as error:  # nobody can read it any more: all that follows is dropped
            if self._failed_call is not None:
                self._failed_call(error)

    def _write(self, data: memoryview) -> int:
        """Write some of the data; returns how many bytes."""
        try:
            count = os.write(self._descriptor, data[:_PIECE_BYTES])
        except BlockingIOError:  # who shares the pipe has made it so
            watched = select.poll()
            watched.register(self._descriptor, select.POLLOUT)
            watched.poll()
            return 0
        self._written += count
        return count

    def _next(self) -> bytes | None:
        """Wait for a line; None at the end."""
        with self._changed:
            if not self._lines and self._dropped:
                count, self._dropped = self._dropped, 0
                self._dropped_call(count)
            while not (self._lines or self._is_ending):
                self._changed.wait()
            return self._lines.popleft() if self._lines else None


@contextmanager
def stderr_queued(output: Output) -> Iterator[None]:
    """Write what goes to standard error through a queue, where a reader could keep it waiting."""
    descriptor = _pipe_of(sys.stderr)
    if descriptor is None:
        yield
        return
    queue = PipeQueue(
        descriptor,
        MAX_STDERR_BYTES,
        lambda count: output.warn(f"standard error was not read: {count:,} messages are left out"),
    )
    before = output.put_aside
    output.put_aside = lambda text: _put_text(queue, text)
    try:
        yield
    finally:
        queue.end()
        output.put_aside = before


def _put_text(queue: PipeQueue, text: str) -> None:
    queue.write(text.encode("utf-8", "backslashreplace"))


@contextmanager
def stdout_queued(output: Output, failed: Callable[[OSError], None]) -> Iterator[None]:
    """Write JSON lines through a queue, where a reader could keep them waiting.

    Where lines were dropped, a line `{"left_out": N}` takes their place.
    """
    descriptor = _pipe_of(sys.stdout) if output.json else None
    if descriptor is None:
        yield
        return

    def tell(count: int) -> None:
        output.json_line({"left_out": count})
        output.warn(f"standard output was not read: {count:,} lines are left out")

    queue = PipeQueue(descriptor, MAX_STDOUT_BYTES, tell, failed)
    with output.redirected(queue):
        try:
            yield
        finally:
            queue.end()


def _pipe_of(stream: IO[str] | None) -> int | None:
    """Return the descriptor of a stream if it is a pipe or a socket."""
    try:
        if stream is None:
            return None
        stream.flush()
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # it is no descriptor of the system
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


# -- The server itself.

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


class _Serve(LinkObserver):
    """A server as this command runs it: its rule files, its log, its end."""

    def __init__(self, session: Session, lace: Lace, address: str, given: dict[str, Any]) -> None:
        self._session, self._given = session, given
        self._last: Served | None = None
        self._problem: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log = ServeLog(session, lace)
        self._policy = self._read_policy()
        if given["warehouse"] is None:  # else most records are there, and it takes longer
            warn_of_names(session, lace, self._policy)
        self._renewal = _Repeated(self._renew_warehouse)
        self._name_check = _Repeated(self._check_names)
        named = given["key"]
        self._serving = serve(
            address,
            lace,
            self._policy,
            open=bool(given["is_open"]),
            peer=[str(parse_verifier(text)) for text in given["peer"]],
            key=None if named is None else lace.keys.load(parse_verifier(named)),
            claim=given["claim"],
            plain=bool(given["plain"]),
            uid_map=given["uid_map"],
            receipts=bool(given["receipts"]),
            tls_cert=given["tls_cert"],
            tls_key=given["tls_key"],
            tls_client_map=given["tls_client_map"],
            tls_client_ca=given["tls_client_ca"],
            once=given["once"],
            stdio=True,
            stdio_peer=given["stdio_peer"],
            channel_cert=given["channel_cert"],
            hosts=given["host"],
            origins=given["origin"],
            max_links=given["max_links"],
            max_links_of_address=given["max_links_of_address"],
            inherited=inherited_descriptor(session.environ),
            warehouse=given["warehouse"],
            metrics=given["metrics"],
            observer=self,
        )
        warn_of_links(
            session,
            self._policy,
            self._serving,
            is_plain=bool(given["plain"]),
            claim=given["claim"],
        )

    def _read_policy(self) -> Policy:
        given = self._given
        return read_own_policy(
            self._session,
            given["select"],
            given["expose"],
            given["lowering"],
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
        async with self._serving as serving:
            if serving.generation is not None:
                self._name_check.ask()
            await serving.wait()

    def listening(self, address: LinkAddress) -> None:
        """Write the address as the first line."""
        output, place = self._session.output, self._serving.metrics_address
        if place is not None:
            tell_event(output, "metrics", {"address": place}, f"metrics at {place}")
        if not (output.quiet and address.scheme == "stdio"):  # there it is told in passing
            if output.json:
                output.json_line({"address": str(address)})
            else:
                output.line(str(address))
            output.flush()
        tell_event(output, "listening", {"address": str(address)})
        self._log.add_rules(self._policy)

    def opened(self, number: int, proven: Proven) -> None:
        """Log a connection."""
        figures = {"link": number, "from": proven.place or None}
        tell_event(self._session.output, "link-opened", figures)

    def agreed(self, number: int, terms: Terms) -> None:
        """Log what the sides of a link have agreed on."""
        tell_event(self._session.output, "link-agreed", agreed_figures(number, terms))

    def _stop(self) -> bool:
        self._serving.stop()
        return True

    def _renew(self) -> None:
        """Read the rule files again, and the warehouse if there is one.

        Rules count at once: what they withdraw does not wait for an index, and is withdrawn
        also where the warehouse cannot be read.
        """
        self._take_renewal()
        if self._serving.generation is not None:
            self._renewal.ask()

    async def _renew_warehouse(self) -> None:
        try:
            # Beside the event loop: other links go on while an index is made.
            is_new = await asyncio.to_thread(self._serving.renew_warehouse)
        except LaceError as error:
            self._refuse_renewal("warehouse is", error)
        except (OSError, MemoryError) as error:
            self._refuse_renewal("warehouse is", StoreError(f"it cannot be read: {error!r}"))
        else:
            if is_new:
                self._take_renewal()

    async def _check_names(self) -> None:
        """Warn of the names in the rules that no record has; links go on meanwhile."""
        if self._session.output.quiet:
            return
        try:
            found = await asyncio.to_thread(self._serving.check)
        except (LaceError, OSError) as error:
            self._session.output.warn(f"the names in the rules were not looked up: {error}")
            return
        warn_of(self._session, found)

    def _take_renewal(self) -> None:
        """Go on with the rules of now; while they are not legal, what was read before counts."""
        try:
            policy = self._read_policy()
            self._serving.renew(policy)
        except LaceError as error:
            self._refuse_renewal("rule files are", error)
            return
        self._policy = policy
        self._name_check.ask()
        self._log.add_rules(policy)
        figures: dict[str, Any] = {"selector": policy.select.id}
        text = f"the rule files were read again; the selector is {policy.select.id}"
        generation = self._serving.generation
        if generation is not None:
            figures["generation"] = generation
            text += f", the generation of the warehouse {generation}"
        tell_event(self._session.output, "rules-renewed", figures, text)

    def _refuse_renewal(self, what: str, error: LaceError) -> None:
        why = f"lace: the {what} not taken, what was read before counts: {error}"
        self._serving.metrics.add_renewal(is_taken=False)
        self._log.add_refused_rules(error)
        output = self._session.output
        tell_event(output, "rules-refused", {"why": error.log_line()}, why, level="error")

    def ended(self, served: Served) -> None:
        """Log a link that has ended."""
        self._last = served
        output = self._session.output
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
    if "-" in (given["select"], *given["expose"]) and (address == "stdio" or sys.stdin is None):
        raise UsageError("standard input is the connection", hint="name files")
    session.durable = "what links have brought stays stored"
    with session.open("serve") as lace:
        return _Serve(session, lace, address, given).run()
