"""`lace get`: one record, whole or only its data; and RECORD arguments."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.base.text import safe_text, shorten
from lace.cli.command import LaceCommand
from lace.cli.command import command as lace_command
from lace.cli.files import check_target, refuse_terminal, written
from lace.cli.output import plural
from lace.errors import LaceError, UsageError
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.record.validate import ValidRecord
    from lace.store.interface import Snapshot, StoredRecord


# -- One record as a command writes it: whole, only its data, or as JSON.

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
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


# -- RECORD arguments: a hash, `////hash` or a coordinate.

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


class NotFoundError(LaceError):
    """A record that is not in the lace."""


def find_records(snapshot: Snapshot, texts: Sequence[str]) -> list[StoredRecord]:
    """Return the record that each text names, the tip of a coordinate, each record once."""
    addresses = [parse_address(text) for text in texts]
    found: dict[str, StoredRecord] = {}
    missing: list[str] = []
    for text, address in zip(texts, addresses, strict=True):
        records = snapshot.find(address, limit=1)
        if records:
            found[records[0].id] = records[0]
        else:
            missing.append(text)
    if missing:
        names = ", ".join(shorten(text, 100) for text in missing)
        raise NotFoundError(f"not in this lace: {names}", hint="`lace list` shows what is there")
    return list(found.values())


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
def command(session: Session, record: str, body: bool, target: str | None) -> int:
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
