"""What came of an exchange, as a person, a script or a log reads it."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lace.cli.failures import logged_text
from lace.cli.output import TableColumn, plural, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.cli.output import Output
    from lace.exchange.result import Counters, Outcome
    from lace.link.session import LinkSession
    from lace.policy.local import Policy


OUTCOME_KEYS: Final = {
    "link-id": "the identifier of this link, or null",
    "exchange-plan-id": "the E. identifier of the agreed plan, or null",
    "peer-verifier": "the peer's proven verifier, or null",
    "received-hashes": "hashes of the records that came and are stored",
    "rejected-hashes": "a list of {hash, reason} of records that came and are not",
    "not-available-hashes": "hashes that the peer could not send any more",
    "bytes-received": "bytes of records that came",
    "bytes-sent": "bytes of records that were sent",
    "reconciliation-bytes-received": "bytes that came to say what the peer advertises",
    "reconciliation-bytes-sent": "bytes that were sent to say what this side advertises",
    "control-bytes-received": "all other bytes that came",
    "control-bytes-sent": "all other bytes that were sent",
    "cursor-updated": "whether something is kept that makes the next exchange shorter",
    "at-fixed-point": "whether nothing more was to be had",
    "ticks-missed": "whether ticks were to be waited for, and did not come",
    "reason": "why it ended, in words",
    "noted": "how often each failure came up that did not end it, by name",
    "failure": "the name of the failure, or null",
    "loops": "how often both sides advertised, requested and transferred",
    "turns": "how many blocks each side sent for that",
    "requested": "records that were asked for",
    "stored": "records that were stored",
    "receipts": "receipts that were published for them",
    "receipts-omitted": "receipts that were not, because of max_receipts or an unproven peer",
    "pending-here": "records that could still be asked for",
    "pending-there": "records that the peer asked for and did not get",
    "seconds": "how long each phase took",
}
"""The keys of the result, named as 050 names them."""
_MOST_REJECTED: Final = 10
_COUNTS: Final = (
    "bytes-received",
    "bytes-sent",
    "reconciliation-bytes-received",
    "reconciliation-bytes-sent",
    "control-bytes-received",
    "control-bytes-sent",
    "loops",
    "turns",
    "receipts",
    "receipts-omitted",
    "pending-here",
    "pending-there",
)
_SAMPLES: Final = 40
"""Lines over which the rate of answers is taken: about ten seconds."""


def exit_code_of(outcome: Outcome) -> int:
    """Return what a command exits with after an exchange: 0 at a fixed point.

    Where ticks were to be waited for, they have to have come as well.
    """
    if outcome.failure is not None:
        return outcome.failure.exit_code
    return 0 if outcome.at_fixed_point and not outcome.ticks_missed else 1


def count_rows(outcome: Outcome) -> Iterator[tuple[str, object]]:
    """Yield what a script cuts: names as in JSON, lists by how many they have."""
    document = outcome.to_json()
    yield "at-fixed-point", "yes" if outcome.at_fixed_point else "no"
    yield "reason", outcome.reason
    for name in ("exchange-plan-id", "link-id", "peer-verifier"):
        yield name, document[name] or "-"
    yield "received", len(outcome.received)
    yield "rejected", len(outcome.rejected)
    yield "not-available", len(outcome.not_available)
    for name in _COUNTS:
        yield name, document[name]
    for phase, seconds in outcome.seconds:
        yield f"seconds-{phase}", f"{seconds:.3f}"


def show_outcome(output: Output, outcome: Outcome) -> None:
    """Write the result: a page, lines of a name and a value, or JSON."""
    if output.json:
        output.json_document(outcome.to_json())
    elif output.terminal:
        output.table(
            (TableColumn("", style="bold"), TableColumn("")), _page(outcome), heading=False
        )
    else:
        for name, value in count_rows(outcome):
            output.line(f"{name} {value}")
    output.flush()


def _page(outcome: Outcome) -> list[tuple[str, str]]:
    counters = outcome.counters
    received = plural(len(outcome.received), "record")
    rows = [
        ("result", outcome.reason),
        ("the peer is", outcome.peer_verifier or "unproven"),
        ("plan", outcome.plan_id or "none was agreed"),
        ("received", f"{received}, {size_text(counters.bytes_received)}"),
        ("sent", size_text(counters.bytes_sent)),
        ("to compare", _both(counters.reconciliation_received, counters.reconciliation_sent)),
        ("for the rest", _both(counters.control_received, counters.control_sent)),
    ]
    if outcome.rejected:
        rows.append(("rejected", plural(len(outcome.rejected), "record")))
    if counters.receipts or counters.receipts_omitted:
        rows.append(
            ("receipts", f"{counters.receipts:,} published, {counters.receipts_omitted:,} omitted")
        )
    if outcome.not_available:
        rows.append(("not available", plural(len(outcome.not_available), "record")))
    if counters.pending_here or counters.pending_there:
        rows.append(
            ("pending", f"{counters.pending_here:,} here, {counters.pending_there:,} there")
        )
    rows.append(("loops", f"{counters.loops:,}, in {plural(counters.turns, 'turn')}"))
    times = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in outcome.seconds)
    rows.append(("time", times))
    return rows


def _both(received: int, sent: int) -> str:
    return f"{size_text(received)} in, {size_text(sent)} out"


def note_rejected(output: Output, outcome: Outcome) -> None:
    """Tell which records came and are not stored, and why."""
    for record, reason in outcome.rejected[:_MOST_REJECTED]:
        output.note(f"{record} was rejected: {reason}")
    if len(outcome.rejected) > _MOST_REJECTED:
        output.note(f"and {len(outcome.rejected) - _MOST_REJECTED:,} more")


def note_receipts(output: Output, outcome: Outcome) -> None:
    """Tell why records that came have no receipt, where receipts were wanted."""
    omitted = outcome.counters.receipts_omitted
    if omitted:
        why = "max_receipts was reached" if outcome.peer_verifier else "the peer has proven nothing"
        output.note(f"{plural(omitted, 'record')} came and got no receipt: {why} [050-208]")


def logged_rules(policy: Policy) -> dict[str, Any]:
    """Return what the log of a lace keeps of the rules of an exchange."""
    exposures = sorted(each.module.id for each in policy.exposures)
    return {"selector": policy.select.id, "exposures": exposures}


def logged_link(address: str | None, policy: Policy) -> dict[str, Any]:
    """Return what the log keeps of an exchange that begins: with whom, as called, and the rules."""
    return {"address": logged_text(address or ""), **logged_rules(policy)}


def logged_result(outcome: Outcome) -> dict[str, Any]:
    """Return what the log of a lace keeps: counts and identifiers, and why it went no further."""
    made: dict[str, Any] = {
        "plan": outcome.plan_id,
        "link": outcome.link_id,
        "peer": outcome.peer_verifier,
        "fixed_point": outcome.at_fixed_point,
        "received": len(outcome.received),
        "rejected": len(outcome.rejected),
        "receipts": outcome.counters.receipts or None,
        "bytes_received": outcome.counters.bytes_received,
        "bytes_sent": outcome.counters.bytes_sent,
        "reason": None if outcome.at_fixed_point else logged_text(outcome.reason),
    }
    return {name: value for name, value in made.items() if value is not None}


def seconds_text(seconds: float) -> str:
    """Return a time that is known about.

    >>> seconds_text(200)
    '3 min'
    """
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


class LinkLine:
    """What a link is at, in one line: phase, records, bytes, rate, time left, pending both ways."""

    def __init__(self) -> None:
        self.link: LinkSession | None = None
        self._before: tuple[float, int] | None = None
        self._answers: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def __call__(self) -> str:
        """Return the line for this moment."""
        if self.link is None:
            return ""
        standing = self.link.standing
        counters = standing.counters
        what = standing.state.value
        if standing.waited is not None and what.startswith("waiting for "):
            rest = what.removeprefix("waiting for ")
            what = f"waiting {standing.waited:.0f} s of {standing.timeout} s for {rest}"
        parts = [what]
        if counters.requested:
            parts.append(f"{counters.stored:,} of {plural(counters.requested, 'record')} stored")
        parts.append(f"{size_text(standing.received)} in, {size_text(standing.sent)} out")
        parts.append(f"{size_text(self._rate(standing.received + standing.sent))}/s")
        left = self._time_left(counters)
        if left is not None:
            parts.append(f"about {seconds_text(left)} left")
        if counters.pending_here or counters.pending_there:
            parts.append(
                f"pending {counters.pending_here:,} here, {counters.pending_there:,} there"
            )
        return ", ".join(parts)

    def share(self) -> tuple[int, int]:
        """Return how many of the records were answered that have been asked for, and how many."""
        if self.link is None:
            return 0, 0
        counters = self.link.standing.counters
        return counters.answered, counters.requested

    def _time_left(self, counters: Counters) -> float | None:
        """Return how long what was requested takes at the rate of the last seconds, if known."""
        samples, now = self._answers, time.monotonic()
        left = counters.requested - counters.answered
        if not left or (samples and samples[-1][1] > counters.answered):  # another link
            samples.clear()
            return None
        samples.append((now, counters.answered))
        since, before = samples[0]
        come = counters.answered - before
        return left * (now - since) / come if come > 0 else None

    def _rate(self, moved: int) -> int:
        """Return the bytes a second since the line before."""
        now = time.monotonic()
        since, before = self._before or (now - 1.0, moved)
        self._before = now, moved
        # A new link counts from zero.
        return round(max(moved - before, 0) / max(now - since, 0.001))
