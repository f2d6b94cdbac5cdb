"""`lace facts`: record facts as fact lines, sorted bytewise over the whole output.

Identifiers have one length and their text sorts as the store's index does, so the
sorted whole is: the predicates by name, in each the records by identifier, and the
lines of one record sorted. Of the whole, one byte a record is held.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.get import find_records
from lace.cli.list import TERMINAL_ROWS
from lace.cli.output import TableColumn, plural
from lace.cli.progress import Progress
from lace.cli.questions import short_identifiers
from lace.facts.extract import record_facts
from lace.facts.lines import Fact, format_fact
from lace.store.interface import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.record.validate import ValidRecord
    from lace.store.interface import Snapshot


Line = tuple[str, Fact]
"""A fact line, and the fact it shows."""

_BITS: Final = {"PlexHash": 1, "RecordLink": 2}


def _lines(facts: Iterable[Fact]) -> list[Line]:
    return sorted((format_fact(fact), fact) for fact in facts)


def sorted_facts(
    snapshot: Snapshot, max_value_bytes: int, seen: Callable[[int], None] = lambda _count: None
) -> Iterator[list[Line]]:
    """Yield every record fact of a snapshot in the order of the lines, in small lists.

    The first pass reads every record, so that damage shows before anything that a
    listing alone could tell; it notes which records the last two predicates need.
    """
    needed = bytearray()
    count = 0

    def facts_of(record: ValidRecord, predicate: str) -> list[Line]:
        nonlocal count
        count += 1
        seen(count)
        facts = record_facts(record, max_value_bytes=max_value_bytes)
        if predicate == "BlobHash":
            names = {fact[0] for fact in facts}
            needed.append(sum(bit for name, bit in _BITS.items() if name in names))
        return _lines(fact for fact in facts if fact[0] == predicate)

    for predicate in ("BlobHash", "Field"):
        for record in snapshot.records(order=Order.ID):
            yield facts_of(record, predicate)
    for stored in snapshot.listing(order=Order.ID):
        yield _lines([("Have", stored.id)])
    for predicate, bit in _BITS.items():
        for position, stored in enumerate(snapshot.listing(order=Order.ID)):
            found = snapshot.load(stored.id) if needed[position] & bit else None
            if found is not None:
                yield facts_of(found, predicate)


def _chosen_facts(
    snapshot: Snapshot, records: Sequence[str], max_value_bytes: int
) -> Iterator[list[Line]]:
    facts: set[Fact] = set()
    for stored in find_records(snapshot, records):
        record = snapshot.load(stored.id)
        if record is not None:
            facts.update(record_facts(record, max_value_bytes=max_value_bytes))
    yield _lines(facts)


def _facts_by_record(
    snapshot: Snapshot, records: Sequence[str], max_value_bytes: int
) -> Iterator[Fact]:
    """Yield the facts of records, those of one record together: as a person reads them."""
    if records:
        found: Iterable[ValidRecord | None] = (
            snapshot.load(stored.id) for stored in find_records(snapshot, records)
        )
    else:
        found = snapshot.records(order=Order.ID)
    for record in found:
        if record is not None:
            facts = record_facts(record, max_value_bytes=max_value_bytes)
            yield from (fact for _line, fact in _lines(facts))


def _show_table(output: Output, facts: Iterator[Fact]) -> None:
    """Write a table of facts, the first of them where there are many."""
    shown = list(islice(facts, TERMINAL_ROWS))
    if not shown:
        output.note("no facts: there are no records yet")
        return
    shorter = short_identifiers(value for fact in shown for value in fact[1:])
    rows = []
    for predicate, record, *values in shown:
        *place, last = [shorter.get(value, value) for value in values] or [""]
        rows.append((predicate, shorter.get(record, record), " ".join(place), last))
    columns = (
        TableColumn("fact", style="bold", no_wrap=True),
        TableColumn("record", style="cyan", no_wrap=True),
        TableColumn("name and index", is_cut=True),
        TableColumn("value", is_cut=True),
    )
    output.table(columns, rows)
    if next(facts, None) is not None:
        output.note(f"these are the first {len(shown):,} facts; --all and a pipe show every one")
    else:
        output.note(plural(len(shown), "fact"))
    output.note("hashes and long texts are cut short; --all, a pipe and --json have them whole")


def _write(output: Output, lines: Sequence[Line]) -> None:
    if output.json:
        for _line, (predicate, *values) in lines:
            output.json_line({"predicate": predicate, "values": values})
    elif output.terminal:
        for line, _fact in lines:
            output.line(line)
    else:
        output.write("".join(f"{line}\n" for line, _fact in lines).encode("utf-8"))


@lace_command(
    "facts",
    api="Lace.snapshot",
    piped="Fact lines, Name('value','value'), sorted bytewise. On a terminal a table of at most "
    "1000 facts, record by record; with --all the lines, with characters that could trick it "
    "made visible.",
    json_keys={
        "predicate": "the name; one line a fact, in the order of the fact lines",
        "values": "its values, a list of texts",
    },
    examples=[
        ("lace facts", "some facts of this lace, as a table"),
        ("lace facts > facts.txt", "all of them, as lines"),
        ("lace facts //u//notes//today", "the facts of one record"),
        ("lace facts | grep '^RecordLink'", "all links"),
    ],
)
@click.argument("records", metavar="[RECORD]…", nargs=-1)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every fact of every record, as lines also on a terminal.",
)
@click.pass_obj
def command(session: Session, records: tuple[str, ...], everything: bool) -> int:
    """Write record facts, sorted.

    Those of the RECORDs named, or of all. The predicates are Have, Field, RecordLink,
    BlobHash and PlexHash. RECORD is a hash, ////hash or a coordinate, which means its newest
    version.
    """
    if records and everything:
        raise click.UsageError("RECORD and --all exclude each other")
    with session.reading("facts") as lace, lace.snapshot() as snapshot:
        limit = lace.settings.max_value_bytes
        if session.output.table_wanted and not everything:
            _show_table(session.output, _facts_by_record(snapshot, records, limit))
            return 0
        total = 2 * snapshot.totals().records
        hidden = session.output.terminal
        with Progress(session, "facts", total, "records", hidden=hidden) as progress:
            for lines in (
                _chosen_facts(snapshot, records, limit)
                if records
                else sorted_facts(snapshot, limit, progress.update)
            ):
                _write(session.output, lines)
    return 0
