"""What is told of a link that has ended: who, what, how much; no names of records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lace.exchange.negotiation import Terms
    from lace.exchange.result import Outcome
    from lace.link.server import Served

__all__ = [
    "agreed_figures",
    "link_figures",
    "log_line",
    "outcome_figures",
    "outcome_name",
    "reason_figures",
    "served_document",
]

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
    """Return all that is told of a link of a server, by name.

    Args:
        served: the link.
        with_detail: say all that is known of a failure, which may name records.
    """
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
