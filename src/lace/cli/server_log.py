"""What `lace serve` reports: its log, the links that ended, and metrics."""

from __future__ import annotations

import json
import os
import platform
import select
import stat
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from lace.api import now
from lace.cli.failures import describe_failure
from lace.cli.outcomes import exit_code_of, logged_result, logged_rules
from lace.errors import LaceError
from lace.store.sqlite.store import Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from lace.api import Lace
    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Outcome
    from lace.link.events import LinkStatus
    from lace.link.server import Served, Server
    from lace.policy.local import Policy


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


def served_document(served: Served) -> dict[str, Any]:
    """Return the JSON object of a link that has come to an exchange."""
    result = served.outcome.to_json() if served.outcome is not None else {}
    return {"link": served.number, "from": served.proven.place, **result}


def outcome_name(served: Served) -> str:
    """Return how a link ended, in a word."""
    return "error" if served.outcome is None else _name(served.outcome)


def _name(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return "failed"
    return "fixed-point" if outcome.at_fixed_point else "unfinished"


def agreed_figures(number: int, terms: Terms) -> dict[str, Any]:
    """Return what the sides of a link have agreed on."""
    return {
        "link": number,
        "peer": terms.peer.verifier,
        "link_id": terms.link_id,
        "plan": terms.plan_id,
        "mode": terms.mode,
    }


def outcome_figures(outcome: Outcome) -> dict[str, Any]:
    """Return identifiers and counts of an exchange; None for what is not known."""
    receipts = outcome.counters.receipts
    return {
        "peer": outcome.peer_verifier,
        "link_id": outcome.link_id,
        "plan": outcome.plan_id,
        "outcome": _name(outcome),
        "received": len(outcome.received),
        "rejected": len(outcome.rejected),
        "not_available": len(outcome.not_available),
        "loops": outcome.counters.loops,
        **({"receipts": receipts} if receipts else {}),
    }


def reason_figures(outcome: Outcome, *, with_detail: bool) -> dict[str, Any]:
    """Return why an exchange ended before a fixed point; nothing for one that did not."""
    failure = outcome.failure
    if failure is not None:
        why = str(failure) if with_detail else failure.failure.condition
        return {"why": why, "rule": failure.rule}
    return {} if outcome.at_fixed_point else {"why": outcome.reason}


def link_figures(served: Served, *, with_detail: bool = False) -> dict[str, Any]:
    """Return all that is told of a link of a server, by name."""
    outcome = served.outcome
    figures: dict[str, Any] = {"link": served.number, "from": served.proven.place or None}
    figures |= {"outcome": "error"} if outcome is None else outcome_figures(outcome)
    figures |= {
        "bytes_in": served.received,
        "bytes_out": served.sent,
        "seconds": round(served.seconds, 3),
    }
    if served.displaced:
        figures["why"] = "idle, and closed for a new link: the server was full"
    elif served.error is not None:
        figures["why"] = str(served.error)
    elif outcome is not None:
        figures |= reason_figures(outcome, with_detail=with_detail)
    return figures


def log_line(figures: dict[str, Any]) -> str:
    """Return the line of a link: words of a name, = and a value, JSON where it has a space."""
    return " ".join(f"{name}={_value(name, value)}" for name, value in figures.items())


def _value(name: str, value: object) -> str:
    if value is None:
        return _ABSENT.get(name, "-")
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return json.dumps(text) if not text or " " in text or '"' in text else text


# -- The figures of a server, in the text form that Prometheus collects.
#
# Counters go over all links, those that have ended and those that are under way. No figure has a
# name, a hash, a verifier or anything else of a peer as its label: labels are few and our own.

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
    """What is counted of a server."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._began, self._since = round(time.time(), 3), time.monotonic()
        self._ended: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._renewals: Counter[str] = Counter()
        self._phases = {phase: _Histogram() for phase in _PHASES}

    def add_link(self, served: Served) -> None:
        """Count a link that has ended."""
        self._outcomes[outcome_name(served)] += 1
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
        standings = [] if server is None else server.standings
        build = f'version="{self._version}",python="{platform.python_version()}"'
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
