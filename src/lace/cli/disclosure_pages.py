"""Disclosures and their changes as `lace disclose` writes them, for people and for pipes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from lace.base.text import shorten
from lace.cli.answers import short_identifiers
from lace.cli.output import Column, plural
from lace.cli.policy_files import offer_text
from lace.cli.record_tables import MOST_ROWS, remark_cut, show_records
from lace.cli.times import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.cli.output import Output
    from lace.policy.disclosure import Disclosure, DisclosureChange, SetChange
    from lace.store.interface import Snapshot

__all__ = ["write_change_lines", "write_change_page", "write_lines", "write_page"]

_EXAMPLE: Final = 40
"""Characters of an example, so that a field has one line of a usual terminal."""
_SUMMARIES: Final = (
    "an exchange also tells the number and digests of those that may be sent, by partition"
)
"""What partition summaries disclose (050-244)."""


def write_lines(output: Output, told: Disclosure) -> None:
    """Write a line for each thing that is disclosed, tab-separated, its kind first."""
    output.lines(f"record\t{record}" for record in told.records)
    for shown in told.fields:
        output.row(("field", shown.name, shown.records, shown.values, shown.example))
    for link in told.links:
        output.row(("link", link.name, link.links, link.records, link.targets))
    for kind, count in (("blobs", told.blobs), ("plexes", told.plexes)):
        if count:
            output.row((kind, count))
    output.lines(f"hash\t{target}" for target in told.hidden_hashes)
    if told.sent is not None:
        output.lines(f"sent\t{record}" for record in told.sent.records)
    names = ["*"] if told.offer.schema.all else sorted(told.offer.schema.names)
    for name in names if told.records else ():
        output.row(("offer", name))


def write_page(output: Output, told: Disclosure, snapshot: Snapshot) -> None:
    """Write what is disclosed for a person."""
    count = len(told.records)
    modules = plural(len(told.exposures), "module") if told.exposures else "nothing"
    rows = [
        ("viewer", told.viewer),
        ("exposed by", modules),
        ("may query", f"{count:,} of {plural(told.stored, 'record')}" if count else "no record"),
    ]
    if told.local_tai is not None:
        rows.append(("at", f"{time_text(told.local_tai)} UTC, {told.local_tai}"))
    rows.append(("advertised", ("" if told.sent else "at most ") + offer_text(told.offer)))
    output.table((Column("", style="bold"), Column("")), rows, heading=False)
    show_records(output, snapshot, told.records)
    _write_fields(output, told)
    _write_hashes(output, told)
    if told.sent is not None:
        agreed = "" if told.sent.select is not None else ", if your selector agrees"
        number = plural(len(told.sent.records), "record") if told.sent.records else "nothing"
        output.line("")
        output.say(f"would be sent: {number}{agreed}")
        show_records(output, snapshot, told.sent.records)
    if count:
        output.line("")
        output.say(_SUMMARIES)


def _write_fields(output: Output, told: Disclosure) -> None:
    if not told.fields:
        return
    columns = (
        Column("field", style="bold"),
        Column("records", "right"),
        Column("values", "right"),
        Column("for example"),
    )
    shown = told.fields[:MOST_ROWS]
    short = short_identifiers(each.example for each in shown)
    output.line("")
    output.say("which shows these fields:")
    output.line("")
    output.table(
        columns,
        [
            (
                each.name,
                f"{each.records:,}",
                f"{each.values:,}",
                short.get(each.example) or shorten(each.example, _EXAMPLE),
            )
            for each in shown
        ],
    )
    remark_cut(output, len(shown), len(told.fields))


def _write_hashes(output: Output, told: Disclosure) -> None:
    """Write the hashes that the view holds besides those of its records (020-79)."""
    if told.links:
        output.line("")
        output.say("and these links:")
        output.line("")
        columns = (
            Column("link", style="bold"),
            Column("links", "right"),
            Column("records", "right"),
            Column("targets", "right"),
        )
        shown = told.links[:MOST_ROWS]
        rows = [
            (each.name, f"{each.links:,}", f"{each.records:,}", f"{each.targets:,}")
            for each in shown
        ]
        output.table(columns, rows)
        remark_cut(output, len(shown), len(told.links))
    embedded = [
        plural(count, noun)
        for count, noun in ((told.blobs, "embedded Blob"), (told.plexes, "embedded Plex"))
        if count
    ]
    if embedded:
        output.line("")
        output.say(f"and the hashes of {' and '.join(embedded)}".replace("Plexs", "Plexes"))
    if told.hidden_hashes:
        count = len(told.hidden_hashes)
        told_of = "the hash of 1 record" if count == 1 else f"the hashes of {count:,} records"
        here = f", {told.hidden_here:,} of them stored here" if told.hidden_here else ""
        output.line("")
        output.say(f"links also tell {told_of} outside the view{here}:")
        output.line("")
        shown_hashes = list(islice(told.hidden_hashes, MOST_ROWS))
        for each in shown_hashes:
            output.say(f"  {each}")
        remark_cut(output, len(shown_hashes), count)


def _hashes(count: int) -> str:
    return "1 hash" if count == 1 else f"{count:,} hashes"


# -- changes -------------------------------------------------------------------------------------


def _parts(change: DisclosureChange) -> Iterator[tuple[str, SetChange]]:
    yield "record", change.records
    yield "field", change.fields
    yield "hash", change.hidden_hashes
    if change.sent is not None:
        yield "sent", change.sent
    yield "offer", change.offered


def write_change_lines(output: Output, change: DisclosureChange) -> None:
    """Write a line for each thing that came or went, tab-separated: sign, kind, name."""
    for kind, part in _parts(change):
        for sign, names in (("+", part.added), ("-", part.removed)):
            for name in names:
                output.row((sign, kind, name))


def write_change_page(output: Output, change: DisclosureChange, snapshot: Snapshot) -> None:
    """Write what came and what went for a person, like a plan before it is applied."""
    if not change:
        output.say(f"nothing changes for {change.viewer}")
        return
    output.say(f"for {change.viewer}")
    for sign, title, style in (
        ("+", "would be newly revealed", "green"),
        ("-", "would no longer be revealed", "red"),
    ):
        found = [
            (kind, part.added if sign == "+" else part.removed) for kind, part in _parts(change)
        ]
        output.line("")
        output.say(f"{title}: {_summary(found)}")
        rows: list[Sequence[str]] = []
        total = 0
        for kind, names in found:
            total += len(names)
            few = names[: max(0, MOST_ROWS - len(rows))]
            short = short_identifiers(few)
            rows += [
                (f"{sign} {kind}", short.get(name, name), _coordinate(snapshot, kind, name))
                for name in few
            ]
        if rows:
            output.line("")
            columns = (Column("", style=style, no_wrap=True), Column("", style=style), Column(""))
            output.table(columns, rows, heading=False)
            remark_cut(output, len(rows), total)


def _summary(found: Sequence[tuple[str, Sequence[str]]]) -> str:
    parts = []
    for kind, names in found:
        count = len(names)
        if kind == "hash" and count:
            parts.append(_hashes(count))
        elif kind == "sent" and count:
            parts.append(f"{plural(count, 'record')} to be sent")
        elif count:
            parts.append(plural(count, kind))
    return ", ".join(parts) or "nothing"


def _coordinate(snapshot: Snapshot, kind: str, name: str) -> str:
    found = None if kind in ("field", "offer") else snapshot.describe(name)
    return found.coordinate if found is not None else ""
