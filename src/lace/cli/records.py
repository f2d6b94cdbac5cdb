"""`lace put`, `get`, `list` and `facts`: the records of a lace; and RECORD arguments."""

from __future__ import annotations

import base64
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.api import Blob, Plex, parse_verifier
from lace.api.records import (
    HEADER,
    LISTED_FIELDS,
    FieldValue,
    facts_by_record,
    find_records,
    list_rows,
    sorted_facts,
)
from lace.base.text import safe_text, shorten
from lace.cli.command import LaceCommand
from lace.cli.command import command as lace_command
from lace.cli.failures import nearest
from lace.cli.files import (
    STANDARD_INPUT,
    check_target,
    name_of,
    opened_input,
    refuse_terminal,
    written,
)
from lace.cli.output import (
    TableColumn,
    plural,
    short_identifiers,
    size_text,
    time_text,
)
from lace.cli.progress import Progress
from lace.errors import LimitExceeded, RecordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.api import Lace, Record
    from lace.api.records import Fact, FactLine, Header, Snapshot, ValidRecord
    from lace.cli.output import Output
    from lace.cli.session import Session


Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
TERMINAL_ROWS: Final = 1000
"""Rows that a terminal shows unless more are asked for."""
_PEER: Final = re.compile(r"(unix|tcp|ws|wss):")


class LocalCommand(LaceCommand):
    """A command about this lace, which has a namesake for the laces of peers."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse the address of a peer, which no record and no coordinate begins with."""
        if args and _PEER.match(args[0]) and not ctx.resilient_parsing:
            raise UsageError(
                f"{shorten(args[0])} is the address of a peer, and this is about your own lace",
                hint=f"did you mean `lace remote {self.name} {shorten(args[0])} …`?",
            )
        return super().parse_args(ctx, args)


# -- `lace put`.


def _too_large(name: str, size: int | None, limit: int) -> LimitExceeded:
    shown = f"{size:,}" if size is not None else f"more than {limit:,}"
    return LimitExceeded(
        f"{name} has {shown} bytes of data",
        limit="max_data_bytes",
        allowed=limit,
        observed=size,
        rule="010-size-limit",
    )


def _read_data(session: Session, argument: str, limit: int) -> bytes:
    name = name_of(argument)
    with opened_input(session, argument) as (file, size):
        if (size or 0) > limit:
            raise _too_large(name, size, limit)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(name, None, limit)
    return data


def _parse_headers(texts: tuple[str, ...]) -> list[Header]:
    found: list[Header] = []
    for text in texts:
        name, separator, value = text.partition(": ")
        if not separator:
            raise UsageError(f"--header {text!r} has no `: `", hint="write 'Name: value'")
        found.append((name, value))
    return found


def _is_plex(coordinate: dict[str, str | None], beyond: dict[str, bool]) -> bool:
    """Tell whether a Plex is wanted; refuse half a coordinate, and what only a Plex has."""
    missing = [f"--{name}" for name, value in coordinate.items() if value is None]
    if not missing:
        return True
    if len(missing) < len(coordinate):
        raise UsageError(
            f"half a coordinate: {' and '.join(missing)} missing",
            hint="give --group, --app and --name, or none of them for a Blob",
        )
    given = [f"--{name}" for name, is_given in beyond.items() if is_given]
    if given:
        need = "needs" if len(given) == 1 else "need"
        raise UsageError(
            f"{' and '.join(given)} {need} a coordinate: a Blob has only data",
            hint="give --group, --app and --name",
        )
    return False


@lace_command(
    "put",
    api="Lace.add",
    piped="The record's hash, on one line.",
    json_keys={
        "id": "the record's hash",
        "type": "B, P or S",
        "bytes": "how many bytes the record has",
        "stored": "false if the lace had it already",
    },
    examples=[
        ("lace put photo.jpg", "store a file as it is, a Blob"),
        ("date | lace put --group u --app notes --name today", "store data with a coordinate"),
        ("lace put a.txt --group u --app notes --name a --sign", "sign it with the default key"),
        (
            "lace put a.txt --group u --app notes --name a --header '+Link: about B.….H3'",
            "link it to another record",
        ),
    ],
)
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--group", metavar="G", help="The group path of the coordinate.")
@click.option("--app", metavar="A", help="The app of the coordinate.")
@click.option("--name", metavar="N", help="The name of the coordinate.")
@click.option("--tai", metavar="T", help="The TAI instant; the clock's, when not given.")
@click.option("--header", "headers", metavar="'Name: value'", multiple=True, help="Repeatable.")
@click.option("--sign", is_flag=True, help="Sign with the default key.")
@click.option("--key", metavar="V", help="Sign with the key of this verifier.")
@click.pass_obj
def put_command(
    session: Session,
    file: str | None,
    group: str | None,
    app: str | None,
    name: str | None,
    tai: str | None,
    headers: tuple[str, ...],
    sign: bool,
    key: str | None,
) -> int:
    """Make one record, store it and print its hash.

    Its data is FILE's, or what comes from standard input.

    Without a coordinate it is a Blob: data and nothing else. With --group, --app and
    --name it is a Plex; signed, a Seal. Headers are sorted by name.
    """
    beyond = {"tai": tai is not None, "header": bool(headers), "sign": sign, "key": key is not None}
    is_plex = _is_plex({"group": group, "app": app, "name": name}, beyond)
    signer = parse_verifier(key) if key is not None else None
    extra = _parse_headers(headers)

    def make(lace: Lace) -> Record:
        data = _read_data(
            session, STANDARD_INPUT if file is None else file, lace.settings.max_data_bytes
        )
        if not is_plex:
            return Blob(data)
        plex = Plex(
            group=group or "", app=app or "", name=name or "", data=data, tai=tai, headers=extra
        )
        return plex.seal(signing_key) if signing_key else plex

    with session.changing("put") as change:
        signing_key = change.lace.keys.load(signer) if sign or signer else None
        try:
            record = make(change.lace)
        except RecordError as error:
            error.place = None  # an offset in a record that does not exist helps nobody
            raise
        (identifier,), admission = change.lace.admit([record])
        result = {
            "id": identifier,
            "type": record.type,
            "bytes": len(record.bytes),
            "stored": bool(admission.stored),
        }
        change.result.update(result)
    session.output.answer(result, identifier)
    if not (admission.stored or session.output.json):
        session.output.note("the lace had this record already")
    return 0


# -- `lace get`: one record, whole, only its data, or as JSON.

RECORD_PIPED: Final = (
    "The record's bytes; with --body its data only. On a terminal, data is shown if it "
    "is plain text, and record bytes are refused."
)
RECORD_KEYS: Final = {
    "id": "the record's hash",
    "type": "B, P or S",
    "group, app, name, tai": "null for a Blob",
    "headers": "the extra headers, a list of [name, value] in record order",
    "signed_by, signature": "null unless it is a Seal",
    "blob": "hash of the embedded Blob, or null",
    "plex": "hash of the embedded Plex, or null",
    "data_length": "how many bytes of data it has",
    "data_base64": "the data, with --body only",
}


def record_options(function: Decorated) -> Decorated:
    """Give a command the options that say how a record is written."""
    body = click.option("--body", is_flag=True, help="Only the record's data.")
    target = click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE.")
    return body(target(function))


def check_record_options(output: Output, target: str | None) -> None:
    """Refuse options that ask for two things, and a file that could not be written."""
    if output.json and target:
        raise UsageError("--json and -o ask for two things", hint="give one of them")
    if target:
        check_target(target)


def _as_json(record: ValidRecord, body: bool) -> dict[str, object]:
    shown: dict[str, object] = {
        "id": record.hash_text,
        "type": record.type,
        "group": record.group,
        "app": record.app,
        "name": record.name,
        "tai": record.tai,
        "headers": [list(header) for header in record.headers],
        "signed_by": record.signed_by,
        "signature": record.signature,
        "blob": record.blob_hash,
        "plex": record.plex_hash,
        "data_length": record.data_length,
    }
    if body:
        shown["data_base64"] = base64.b64encode(record.data).decode("ascii")
    return shown


def _is_plain_text(data: bytes) -> bool:
    """Tell whether data is text that a terminal shows and does not obey."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    lines = text.replace("\t", " ").replace("\r\n", "\n").split("\n")
    return all(safe_text(line) == line for line in lines)


def write_record(output: Output, found: ValidRecord, *, body: bool, target: str | None) -> None:
    """Write a record, or only its data: to a file, as JSON, or to standard output."""
    if output.json:
        output.json_document(_as_json(found, body))
        return
    data = found.data if body else found.bytes
    if target:
        with written(target) as file:
            file.write(data)
        output.note(f"wrote {plural(len(data), 'byte')} to {target}")
        return
    if not body:
        refuse_terminal(
            output, "record bytes", "; --body shows only the data, --json all but the data"
        )
    elif output.terminal and not _is_plain_text(data):
        refuse_terminal(output, "these data")
    output.write(data)
    if output.terminal and data and not data.endswith(b"\n"):
        output.write(b"\n")


@lace_command(
    "get",
    cls=LocalCommand,
    api="Lace.get",
    piped=RECORD_PIPED,
    json_keys=RECORD_KEYS,
    examples=[
        ("lace get //u//notes//today --body", "read a note"),
        ("lace get B.….H3 --body -o photo.jpg", "write the data of a record to a file"),
        ("lace get //u//notes//today --json", "show everything but the data"),
    ],
)
@click.argument("record", metavar="RECORD")
@record_options
@click.pass_obj
def get_command(session: Session, record: str, body: bool, target: str | None) -> int:
    """Write one record, or only its data.

    RECORD is a hash, ////hash or a coordinate, which means its newest version. Exit code 1
    when it is not there; 6 when its bytes are not those that were stored.
    """
    check_record_options(session.output, target)
    with session.reading("get") as lace, lace.snapshot() as snapshot:
        (stored,) = find_records(snapshot, [record])
        found = snapshot.load(stored.id)
    if found is None:
        raise AssertionError("a snapshot has what it finds")
    write_record(session.output, found, body=body, target=target)
    return 0


# -- `lace list`: a table of records. A table is only a view; the facts stay authoritative.

_SHORT_ID: Final = 10
_NUMBERS: Final = frozenset({"stored", "size", "data-length", "Data-Length"})
_GOES: Final = {"signed-by": 2, "size": 1, "data-length": 1}
"""Columns that are left out where room is short, the highest first."""
_DEFAULT: Final = ("id", "coordinate", "tai", "size", "signed-by")


def _cell(name: str, value: FieldValue) -> str:
    """Return a value for a person."""
    match name, value:
        case _, None:
            return ""
        case (("id" | "signed-by"), _):
            return f"{str(value)[:_SHORT_ID]}…" if value else ""
        case "tai", str():
            return time_text(value)
        case "size", int():
            return size_text(value)
        case _, list():
            return ", ".join(value)
    return str(value)


def _column(name: str, key: str, is_chosen: bool) -> TableColumn:
    """Return a column; one that nobody has asked for by its name may go where room is short."""
    return TableColumn(
        "time, UTC" if name == "tai" else name.removeprefix(HEADER),
        "right" if name in _NUMBERS else "left",
        {"id": "cyan", "coordinate": "bold"}.get(name, ""),
        no_wrap=name in ("id", "signed-by", "size"),
        goes=0 if is_chosen else _GOES.get(name, 0),
        is_cut=name == "coordinate" and not is_chosen,
        key=key,
        shown=lambda value: _cell(name, value),
        piped=lambda value: ", ".join(value) if isinstance(value, list) else value,
    )


def show_listing(
    output: Output,
    names: Sequence[str],
    rows: Iterable[Sequence[FieldValue]],
    *,
    keys: Sequence[str] | None = None,
    is_cut: bool,
    total: int | None = None,
    is_chosen: bool = False,
) -> int:
    """Write records by their fields, on a terminal the first of them; returns how many there are.

    Args:
        output: where to.
        names: the names of the fields.
        rows: their values; on a terminal one more than it shows tells that there are more.
        keys: the names of the fields in JSON, if they are others.
        is_cut: whether a terminal shows the first rows only.
        total: how many records there are, if that is known.
        is_chosen: whether a person has named the fields.
    """
    columns = [_column(*pair, is_chosen) for pair in zip(names, keys or names, strict=True)]
    if not output.table_wanted:
        listed = 0

        def counted() -> Iterator[Sequence[FieldValue]]:
            nonlocal listed
            for row in rows:
                listed += 1
                yield row

        output.show(counted(), columns)
        return listed
    found = list(rows)
    shown = found[:TERMINAL_ROWS] if is_cut else found
    less = output.show(shown, columns)
    if less:
        output.note(f"not shown whole: {', '.join(less)}; a pipe and --json have all")
    if len(shown) < len(found):
        of = f" of {total:,}" if total else ""
        output.note(f"these are the first {len(shown):,}{of}; --limit N shows more")
    elif found:
        output.note(plural(len(found), "record"))
    return len(found)


def _split_names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return _DEFAULT
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise click.UsageError("--fields has an empty name", click.get_current_context())
    return names


def _warn_of_typos(session: Session, names: Iterable[str], met: set[str]) -> None:
    for name in dict.fromkeys(names):
        if name in LISTED_FIELDS or name in met:
            continue
        near = nearest(name, LISTED_FIELDS)
        hint = f"; did you mean {near}?" if near else ""
        session.output.warn(f"no record listed has the field {name}{hint}")


@lace_command(
    "list",
    cls=LocalCommand,
    api="Lace.records",
    piped="One line a record, tab-separated, without a heading: id, coordinate, TAI, size in "
    "bytes and signed-by, or the --fields. Repeated headers are joined by ', '; a missing "
    "value is empty; characters that could trick a terminal are written as \\u{…}.",
    json_keys={
        "id, coordinate, tai, size, signed_by": "one line a record; null where it has none",
        "NAME": "with --fields instead: each by the name given; an extra header is a list",
    },
    examples=[
        ("lace list", "everything, by coordinate"),
        ("lace list //u//notes// --sort tai --reverse --limit 20", "the newest notes"),
        ("lace list --fields id,Name,Data-Length --sort size", "chosen columns, by size"),
    ],
)
@click.argument("prefix", metavar="[PREFIX]", required=False, default="")
@click.option(
    "--fields",
    metavar="NAME,…",
    help="Columns: id, coordinate, tai, stored (StoreRecordId), size, signed-by, or fields: "
    "Type, Data-Length, Group, App, Name, TAI, Signed-By, Signature, any header's name "
    "(header:NAME for one that is called like a column).",
)
@click.option(
    "--sort",
    metavar="NAME",
    default="coordinate",
    help="coordinate (default), tai, stored, id, size, signed-by, or any field. "
    "Records without it come last.",
)
@click.option("--reverse", is_flag=True, help="The largest first.")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most N rows.")
@click.pass_obj
def list_command(
    session: Session, prefix: str, fields: str | None, sort: str, reverse: bool, limit: int | None
) -> int:
    """Show a table of records.

    Those whose coordinate starts with PREFIX, or all of them. PREFIX is the beginning of a
    coordinate's text, such as //u//notes//; a leading // may be left out. On a terminal at
    most 1000 rows are shown unless --limit says how many. A narrow terminal leaves out
    signed-by and size, and the middle of long coordinates, unless --fields names the columns.
    """
    names = _split_names(fields)
    if prefix and not prefix.startswith("/"):
        prefix = f"//{prefix}"
    met: set[str] = set()  # the names for which some record had a value

    def rows(snapshot: Snapshot, most: int | None) -> Iterator[list[FieldValue]]:
        for row in list_rows(snapshot, prefix, sort=sort, reverse=reverse, limit=most):
            values = row.values(names)
            met.update(name for name, v in zip(names, values, strict=True) if v is not None)
            if sort not in LISTED_FIELDS and sort not in met and row.value(sort) is not None:
                met.add(sort)
            yield values

    is_cut = limit is None and session.output.table_wanted
    with session.reading("list") as lace, lace.snapshot() as snapshot:
        listed = show_listing(
            session.output,
            names,
            rows(snapshot, TERMINAL_ROWS + 1 if is_cut else limit),
            keys=[name.replace("-", "_") for name in names] if fields is None else names,
            is_cut=is_cut,
            total=snapshot.totals().records if is_cut and not prefix else None,
            is_chosen=fields is not None,
        )
    if listed:
        _warn_of_typos(session, (*names, sort), met)
    elif session.output.table_wanted:
        session.output.note(f"no records start with {prefix}" if prefix else "no records yet")
    return 0


# -- `lace facts`: record facts as fact lines, sorted bytewise over the whole output.


def _show_facts(output: Output, facts: Iterator[Fact]) -> None:
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


def _write_facts(output: Output, lines: Sequence[FactLine]) -> None:
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
    api="Lace.facts",
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
def facts_command(session: Session, records: tuple[str, ...], everything: bool) -> int:
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
            _show_facts(session.output, facts_by_record(snapshot, limit, records))
            return 0
        total = 2 * snapshot.totals().records
        hidden = session.output.terminal
        with Progress(session, "facts", total, "records", hidden=hidden) as progress:
            for lines in sorted_facts(snapshot, limit, records, report=progress.update):
                _write_facts(session.output, lines)
    return 0


# -- Records in tables for people: those that a policy is about, with what is known of them.

MOST_ROWS: Final = 100
"""Rows of one table that a terminal shows."""
SHORT: Final = "hashes are cut short; a pipe and --json have them whole, and all of them"
"""What is said below tables that leave something out."""


def identifier_column(heading: str = "record") -> TableColumn:
    """Return a column of hashes that are cut short."""
    return TableColumn(heading, style="cyan", no_wrap=True)


def remark_cut(output: Output, shown: int, total: int) -> None:
    """Say that a table is cut, if it is."""
    if total > shown:
        output.say(f"these are the first {shown:,} of {total:,}")


def show_records(output: Output, snapshot: Snapshot, records: Sequence[str]) -> None:
    """Write a table of records with what is known of them, cut where it would be long."""
    shown = list(islice(records, MOST_ROWS))
    if not shown:
        return
    short = short_identifiers(shown)
    rows = []
    for record in shown:
        found = snapshot.describe(record)
        tai = found.tai if found is not None else None
        coordinate = found.coordinate if found is not None else "not here"
        rows.append((short.get(record, record), coordinate, time_text(tai) if tai else ""))
    columns = (
        identifier_column(),
        TableColumn("coordinate"),
        TableColumn("time, UTC", no_wrap=True),
    )
    output.line("")
    output.table(columns, rows)
    remark_cut(output, len(shown), len(records))
