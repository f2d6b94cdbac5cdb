"""What a dry run shows: what would move, and what the peer has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.cli.output import plural
from lace.cli.record_tables import SHORT, show_records

if TYPE_CHECKING:
    from lace.cli.output import Output
    from lace.exchange.result import Outcome
    from lace.link.dry_run import DryRun
    from lace.store.interface import Snapshot

__all__ = ["DRY_RUN_KEYS", "show_dry_run"]

DRY_RUN_KEYS: Final = {
    "dry-run": "with --dry-run: {request, request-in-all, send, may-send, named}: hashes that "
    "would be requested first and how many in all, hashes that the peer requests first, hashes "
    "of all records that the peer's digests are about, and hashes that were named to it",
}


def show_dry_run(output: Output, snapshot: Snapshot, dry: DryRun, outcome: Outcome) -> None:
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


def _show_page(output: Output, snapshot: Snapshot, dry: DryRun) -> None:
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
