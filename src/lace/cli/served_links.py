"""One line for each link that a server has ended: who, what, how much; no names of records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lace.serving import Served

__all__ = ["log_line", "served_document"]


def served_document(served: Served) -> dict[str, Any]:
    """Return the JSON object of a link that has come to an exchange."""
    result = served.outcome.to_json() if served.outcome is not None else {}
    return {"link": served.number, "from": served.proven.place, **result}


def log_line(served: Served, *, with_detail: bool = False) -> str:
    """Return the line of a link: words of a name, = and a value, JSON where it has a space.

    Args:
        served: the link.
        with_detail: say all that is known of a failure, which may name records.
    """
    outcome, error = served.outcome, served.error
    words: dict[str, object] = {"link": served.number, "from": served.proven.place or "-"}
    if outcome is not None:
        counters = outcome.counters
        words |= {
            "peer": outcome.peer_verifier or "unproven",
            "link_id": outcome.link_id or "-",
            "plan": outcome.plan_id or "-",
            "outcome": _outcome(served),
            "received": len(outcome.received),
            "rejected": len(outcome.rejected),
            "not_available": len(outcome.not_available),
            "loops": counters.loops,
        }
    else:
        words["outcome"] = "error"
    words |= {
        "bytes_in": served.received,
        "bytes_out": served.sent,
        "seconds": f"{served.seconds:.3f}",
    }
    failure = outcome.failure if outcome is not None else None
    if error is not None:
        words["why"] = str(error)
    elif failure is not None:
        words["why"] = str(failure) if with_detail else failure.failure.condition
        words["rule"] = failure.rule
    elif outcome is not None and not outcome.at_fixed_point:
        words["why"] = outcome.reason
    return " ".join(f"{name}={_value(value)}" for name, value in words.items())


def _outcome(served: Served) -> str:
    outcome = served.outcome
    if outcome is None or outcome.failure is not None:
        return "failed"
    return "fixed-point" if outcome.at_fixed_point else "unfinished"


def _value(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or " " in text or '"' in text else text
