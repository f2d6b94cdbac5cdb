"""Links as commands run them: with progress and signals, and what is written of their outcome."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lace.api.exchanges import connect
from lace.api.links import POLL_SECONDS, LinkObserver, keep_one_arena, outcome_name
from lace.cli.failures import logged_text
from lace.cli.link_options import tell_event, warn_of_links
from lace.cli.output import TableColumn, plural, size_text
from lace.cli.progress import Waiting, end_line, relayed_errors
from lace.cli.records import SHORT, show_records
from lace.cli.signals import Signals
from lace.errors import LaceError, Place, hide_decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lace.api import Lace, SigningKey
    from lace.api.exchanges import Policy
    from lace.api.links import (
        Counters,
        DryRun,
        Link,
        LinkEvent,
        LinkStatus,
        Outcome,
        Proven,
        Served,
        Terms,
    )
    from lace.api.records import SqliteSnapshot
    from lace.cli.output import Output
    from lace.cli.peers import SyncArguments
    from lace.cli.session import Session


# -- The outcome of an exchange, as a person, a script or a log reads it.

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
        ("result", hide_decisions(outcome.reason)),
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


def served_document(served: Served) -> dict[str, Any]:
    """Return the JSON object of a link that has come to an exchange."""
    result = served.outcome.to_json() if served.outcome is not None else {}
    return {"link": served.number, "from": served.proven.place, **result}


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
        "outcome": outcome_name(outcome),
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
        why = failure.log_line() if with_detail else failure.failure.condition
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
        figures["why"] = served.error.log_line()
    elif outcome is not None:
        figures |= reason_figures(outcome, with_detail=with_detail)
    return figures


# -- What a dry run shows: what would move, and what the peer has learned.

DRY_RUN_KEYS: Final = {
    "dry-run": "with --dry-run: {request, request-in-all, send, may-send, named}: hashes that "
    "would be requested first and how many in all, hashes that the peer requests first, hashes "
    "of all records that the peer's digests are about, and hashes that were named to it",
}


def show_dry_run(output: Output, snapshot: SqliteSnapshot, dry: DryRun, outcome: Outcome) -> None:
    """Write what would move, and what the peer has learned."""
    if output.json:
        made = {
            "request": dry.would_request,
            "request-in-all": dry.pending,
            "send": dry.would_send,
            "may-send": dry.may_send,
            "named": dry.named,
        }
        output.json_document({**outcome.to_json(), "dry-run": made})
    elif output.terminal:
        _show_page(output, snapshot, dry)
    else:
        for word, records in (
            ("request", dry.would_request),
            ("send", dry.would_send),
            ("named", dry.named),
        ):
            for record in records:
                output.row((word, record))
    output.flush()
    output.note("a dry run: nothing has moved")


def _show_page(output: Output, snapshot: SqliteSnapshot, dry: DryRun) -> None:
    """Write what would move and what was said, for a person."""
    output.say(f"would be requested: {plural(dry.pending, 'record')}")
    output.say(f"would be sent: {plural(len(dry.would_send), 'record')}")
    show_records(output, snapshot, dry.would_send)
    output.line("")
    known = len(dry.may_send) - len(dry.named)
    rest = f", and a digest over {plural(known, 'other')}" if known > 0 else ""
    output.say(f"the peer was told of {plural(len(dry.named), 'record')}{rest}")
    show_records(output, snapshot, dry.named)
    if dry.would_send or dry.named:
        output.note(SHORT)


class LinkLine:
    """What a link is at, in one line: phase, records, bytes, rate, time left, pending both ways."""

    def __init__(self, now: Callable[[], LinkStatus | None]) -> None:
        self._now = now
        self._before: tuple[float, int] | None = None
        self._answers: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def __call__(self) -> str:
        """Return the line for this moment."""
        status = self._now()
        if status is None:
            return ""
        counters = status.counters
        what = status.state.value
        if status.waited is not None and what.startswith("waiting for "):
            rest = what.removeprefix("waiting for ")
            what = f"waiting {status.waited:.0f} s of {status.timeout} s for {rest}"
        parts = [what]
        if counters.requested:
            parts.append(f"{counters.stored:,} of {plural(counters.requested, 'record')} stored")
        parts.append(f"{size_text(status.received)} in, {size_text(status.sent)} out")
        parts.append(f"{size_text(self._rate(status.received + status.sent))}/s")
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
        status = self._now()
        if status is None:
            return 0, 0
        return status.counters.answered, status.counters.requested

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


# -- A link while a command runs it.

_NOT_KEPT: Final = (
    f"the server keeps no link open, and is asked again every {POLL_SECONDS} s; "
    "`lace serve --open` would report what is new at once"
)


class LinkRun(LinkObserver):
    """An exchange with a server; an open one reconnects when the connection is lost.

    Args:
        session: the run of the command.
        lace: the lace, which the link uses alone.
        known: the peer, and how it is reached.
        policy: what this side selects and exposes.
        key: the key that `--key` names.
        title: what the progress line calls it.
        hear: gets all that happens on the link.
        is_sending: whether the command means to send records.
        options: further options of `lace.connect`.
    """

    def __init__(
        self,
        session: Session,
        lace: Lace,
        known: SyncArguments,
        policy: Policy,
        key: SigningKey | None,
        *,
        title: str = "sync",
        hear: Callable[[LinkEvent], None] | None = None,
        is_sending: bool = True,
        **options: Any,  # noqa: ANN401 - those of `connect`
    ) -> None:
        self._session, self._lace, self._known = session, lace, known
        self._policy, self._key, self._options = policy, key, options
        self._title, self._hear, self._is_sending = title, hear, is_sending
        self._is_told = False
        self.link: Link | None = None
        self.line = LinkLine(lambda: None if self.link is None else self.link.status)
        self.signals = Signals(self._stop)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, also where a signal or an error has ended the exchange."""
        return None if self.link is None else self.link.outcome

    def run(self) -> None:
        """Run the exchange; `outcome` is set even if a signal has ended it."""
        keep_one_arena()
        output, known = self._session.output, self._known
        title = f"{self._title} with {known.address}"
        with (
            Waiting(self._session, title, self.line, self.line.share),
            relayed_errors(output, known.command or ()) as errors,
        ):
            self.link = self._connect(errors)
            try:
                self.signals.run(self._run(self.link))
            finally:
                if self.link.capture_problem is not None:
                    output.warn(f"the capture is not whole: {self.link.capture_problem}")

    def _connect(self, errors: int | None) -> Link:
        known, is_plain = self._known, bool(self._known.plain)
        is_open = self._options.get("open", False)
        link = connect(
            known.address or "",
            self._lace,
            self._policy,
            reconnect=is_open,
            key=self._key,
            claim=known.claim,
            peer=known.expected,
            plain=is_plain,
            uid_map=known.uid_map,
            stdio_peer=known.stdio_peer,
            command=known.command or (),
            ca=known.ca,
            tls_cert=known.tls_cert,
            tls_key=known.tls_key,
            tls_pin=bool(known.tls_pin),
            observer=self,
            errors=errors,
            own_handle=False,
            **self._options,
        )
        warn_of_links(
            self._session,
            self._policy,
            link,
            is_plain=is_plain,
            claim=known.claim,
            is_sending=self._is_sending,
        )
        return link

    async def _run(self, link: Link) -> None:
        try:
            async with link:
                await link.result()
        except LaceError as error:
            if link.outcome is None or link.outcome.failure is not error:
                raise

    def show(self) -> None:
        """Show the outcome, or that of a dry run."""
        output, outcome = self._session.output, self.outcome
        if outcome is None or self.link is None:
            return
        dry = self.link.dry_run
        if dry is not None and dry.is_complete:
            with self._lace.snapshot() as snapshot:
                show_dry_run(output, snapshot, dry, outcome)
            return
        show_outcome(output, outcome)
        note_rejected(output, outcome)
        note_receipts(output, outcome)

    def finish(self, place: str | None) -> Outcome:
        """Return the outcome, or raise the signal or the failure that ended the exchange."""
        self.signals.check()
        outcome = self.outcome
        if outcome is None:
            raise AssertionError("an exchange that nobody stops has an outcome")
        if outcome.failure is not None:
            at = outcome.failure.place
            outcome.failure.place = Place(place, offset=at.offset if at else None)
            raise outcome.failure
        return outcome

    @property
    def exit_code(self) -> int:
        """What the command exits with, if there was no failure."""
        outcome = self.outcome
        dry = None if self.link is None else self.link.dry_run
        if outcome is None or (dry is not None and dry.is_complete):
            return 0
        return exit_code_of(outcome)

    def stop(self) -> None:
        """End it at a good moment, and do not begin it again."""
        self._stop()

    def _stop(self) -> bool:
        """Ask the link to end by itself; returns whether it will."""
        if self.link is None:
            return False
        self.link.stop()
        return self.link.status is not None

    # What the link reports.

    def opened(self, number: int, _proven: Proven) -> None:
        """Log that a link has begun."""
        tell_event(self._session.output, "link-opened", {"link": number})

    def agreed(self, number: int, terms: Terms) -> None:
        """Log what both sides have agreed on."""
        end_line(self._session.output)  # whatever a command has asked is answered by now
        tell_event(self._session.output, "link-agreed", agreed_figures(number, terms))

    def heard(self, event: LinkEvent) -> None:
        """Pass an event on."""
        if self._hear is not None:
            self._hear(event)

    def ended(self, served: Served) -> None:
        """Log the end of a link."""
        figures = link_figures(served, with_detail=self._session.debug)
        del figures["from"]
        tell_event(self._session.output, "link-ended", figures)

    def lost(self, number: int, reason: str, pause: int, *, failed: bool) -> None:
        """Say that a link has ended and begins again; of a server that keeps none open, once."""
        shown = hide_decisions(reason)
        text = f"the link has ended ({shown}); again in {pause} s" if failed else None
        if not failed and not self._is_told:
            text, self._is_told = _NOT_KEPT, True
        figures = {"link": number, "why": reason, "pause": pause}
        tell_event(self._session.output, "link-lost", figures, text)
