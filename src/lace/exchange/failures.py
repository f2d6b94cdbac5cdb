"""The failures of an exchange: what each is, what is done about it, in one table (050).

Nothing of a failure is sent to the peer. An abort is a bare close; the message of an
`InterlaceFailure` is for this side alone and may name what the peer must not learn.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from lace.errors import ProtocolError, StoreError

if TYPE_CHECKING:
    from lace.errors import LaceError, Place


class Action(Enum):
    """What a failure does to the round it happens in; records already stored always stay."""

    ABORT = "abort"
    """Close without a word."""
    ABORT_PARTIAL = "abort with partial result"
    """Close without a word, and report what was received as a partial result."""
    REJECT = "reject record and continue"
    """The record gives no facts and is counted as rejected; the round goes on."""
    CONTINUE = "continue"
    """Note it; the round goes on."""
    CLOSE = "close"
    """Not an abort: both sides end here by the same rule; an open exchange waits instead."""

    @property
    def is_abort(self) -> bool:
        """Whether the stream is closed."""
        return self in (Action.ABORT, Action.ABORT_PARTIAL)


_PEER = 4
"""A peer or the network failed."""
_HERE = 3
"""Something that an exchange needs failed here; what it was may have a code of its own."""
_REFUSED = 1
"""Something was refused here, or the exchange is not at a fixed point."""
_DONE = 0
"""Not a failure of the exchange as a whole."""


class Failure(Enum):
    """What can go wrong in an exchange: condition, action, requirement and exit code."""

    # The table of 050, in its order.
    PEER_MISMATCH = ("peer verifier mismatch", Action.ABORT, "050-211", _PEER)
    PLAN_MISMATCH = ("exchange plan identifier mismatch", Action.ABORT, "050-212", _PEER)
    NO_COMMON_FORMAT = ("unsupported record format", Action.ABORT, "050-213", _PEER)
    SCHEMA_UNMET = ("unsupported advertisement field schema", Action.ABORT, "050-214", _PEER)
    MALFORMED_BLOCK = ("malformed fact block", Action.ABORT, "050-215", _PEER)
    MALFORMED_MODULE = ("malformed exchange module", Action.ABORT, "050-216", _PEER)
    PLAN_FAILED = ("exchange-plan compilation failure", Action.ABORT, "050-217", _PEER)
    MALFORMED_POLICY = ("malformed prepared policy", Action.ABORT, "050-218", _REFUSED)
    MALFORMED_SUMMARY = ("malformed partition summary", Action.ABORT, "050-219", _PEER)
    ROOT_MISMATCH = ("advertisement list root mismatch", Action.ABORT, "050-220", _PEER)
    PHASE_TIMEOUT = ("phase timeout", Action.ABORT, "050-221", _PEER)
    OVERSIZED_BLOCK = ("oversized fact block", Action.ABORT, "050-222", _PEER)
    TRANSFER_LIMIT = ("transfer limit exceeded", Action.ABORT_PARTIAL, "050-223", _REFUSED)
    UNREQUESTED_RECORD = (
        "record response with no current outstanding requested hash",
        Action.ABORT,
        "050-224",
        _PEER,
    )
    INVALID_RECORD = (
        "record validation failure for a requested hash",
        Action.REJECT,
        "050-225",
        _REFUSED,
    )
    NOT_AVAILABLE = ("requested hash no longer sendable", Action.CONTINUE, "050-226", _DONE)

    # Setup and hello.
    EQUAL_INDEXES = ("both sides have the same operand index", Action.ABORT, "050-51", _PEER)
    BAD_CLAIM = ("origin claim that is not the peer's to make", Action.ABORT, "050-100", _PEER)
    MISSING_MODULE = ("no bytes for an announced module", Action.ABORT, "050-89", _PEER)
    UNPROVEN_SIGNER = ("signer without valid proof", Action.ABORT, "050-98", _PEER)
    MALFORMED_LIMIT = (
        "limit malformed or outside the supported range",
        Action.ABORT,
        "050-114",
        _PEER,
    )
    TICK_INTERVAL = ("tick interval outside the supported range", Action.ABORT, "050-109", _PEER)
    CLOCK_SKEW = ("clocks too far apart", Action.ABORT, "X2", _PEER)

    # Advertisement and reconciliation.
    COUNT_MISMATCH = ("advertisement count mismatch", Action.ABORT, "050-169", _PEER)
    LISTING_LIMIT = ("too many advertisement records listed", Action.ABORT, "050-230", _REFUSED)
    SUMMARY_LIMIT = ("too many partition summaries", Action.ABORT, "050-231", _REFUSED)
    DEPTH_LIMIT = ("narrowing depth exceeded", Action.ABORT, "050-232", _PEER)
    ADVERTISEMENT_LIMIT = (
        "more advertised records than one exchange may bring",
        Action.ABORT,
        "050-228",
        _REFUSED,
    )
    ADVERTISEMENT_BYTES = (
        "longer advertisements than one exchange may bring",
        Action.ABORT,
        "050-228",
        _REFUSED,
    )

    # Evaluation and requests.
    EVALUATION_ERROR = ("evaluation error", Action.ABORT, "050-173", _REFUSED)
    STORE_FAILED = ("this side's lace failed", Action.ABORT_PARTIAL, "050-227", _HERE)
    UNADVERTISED_REQUEST = ("request outside the send set", Action.CONTINUE, "G54", _DONE)
    UNANSWERED_REQUEST = ("request list deferred whole", Action.CONTINUE, "G47", _DONE)

    # Transfer and validation.
    SERVICE_BUDGET = ("service budget reached, the rest deferred", Action.CONTINUE, "G44", _DONE)
    FRAMING_LOST = ("record framing lost", Action.ABORT, "G54", _PEER)
    OVERSIZED_RECORD = ("record above the local size limit", Action.REJECT, "G54", _REFUSED)
    UNSUPPORTED_RECORD = (
        "record format that the store does not support",
        Action.REJECT,
        "050-122",
        _REFUSED,
    )
    CLAIMS_DIFFER = ("advertised claims differ", Action.REJECT, "X1", _REFUSED)
    REJECT_BUDGET = ("too many rejected records", Action.ABORT_PARTIAL, "050-228", _PEER)

    # The end.
    LOOP_LIMIT = ("loop limit reached, not at a fixed point", Action.CLOSE, "G47", _REFUSED)
    PEER_CLOSED = ("peer closed early", Action.ABORT_PARTIAL, "G47b", _PEER)

    def __init__(self, condition: str, action: Action, rule: str, exit_code: int) -> None:
        self.condition = condition
        self.action = action
        self.rule = rule
        self.exit_code = exit_code


class InterlaceFailure(ProtocolError):
    """A failure of an exchange, with what this side knows about it."""

    def __init__(
        self,
        failure: Failure,
        detail: str = "",
        *,
        rule: str | None = None,
        place: Place | None = None,
        hint: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        message = f"{failure.condition}: {detail}" if detail else failure.condition
        super().__init__(message, rule=rule or failure.rule, place=place, hint=hint)
        self.failure = failure
        self.detail = detail
        self.exit_code = failure.exit_code if exit_code is None else exit_code
        self.result: object | None = None
        """What had come of the exchange by then, where the driver says so."""


def local_failure(error: LaceError) -> InterlaceFailure:
    """Return what something that could not be done here is to an exchange.

    A lace that cannot be read or written is named as that; all else is an evaluation that
    did not come to its end. Rule, place, hint and exit code stay those of the error.

    >>> local_failure(StoreError("no space is left")).message
    "this side's lace failed: no space is left"
    """
    if isinstance(error, InterlaceFailure):
        return error
    row = Failure.STORE_FAILED if isinstance(error, StoreError) else Failure.EVALUATION_ERROR
    made = InterlaceFailure(
        row,
        error.message,
        rule=error.rule,
        place=error.place,
        hint=error.hint,
        exit_code=error.exit_code,
    )
    made.__cause__ = error
    return made


def limit_failure(
    failure: Failure, detail: str, *, limit: str, allowed: int, agreed: bool = False
) -> InterlaceFailure:
    """Return a failure that names the limit that was reached; `agreed`: the peer may have set it.

    >>> limit_failure(Failure.LISTING_LIMIT, "9 listed", limit="max_x", allowed=8).hint
    'the limit is max_x=8; raise it with --set max_x=N'
    """
    where = " on both sides" if agreed else ""
    hint = f"the limit is {limit}={allowed}; raise it{where} with --set {limit}=N"
    return InterlaceFailure(failure, detail, hint=hint)
