"""The figures of a server, in the text form that Prometheus collects.

Counters go over all links, those that have ended and those that are under way. No figure has a
name, a hash, a verifier or anything else of a peer as its label: labels are few and our own.
"""

from __future__ import annotations

import platform
import time
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final

from lace.cli.served_links import outcome_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.link.events import Standing
    from lace.link.server import Served, Server

__all__ = ["OUTCOMES", "PHASE_BUCKETS", "Metrics"]

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


def _figures(standing: Standing) -> dict[str, int]:
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
    """What is counted of a server.

    Args:
        version: the version of Lace.
    """

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
