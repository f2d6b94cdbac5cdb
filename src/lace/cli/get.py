"""`lace get`: one record, whole or only its data."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import click

from lace.base.text import safe_text
from lace.cli.command import command as lace_command
from lace.cli.files import refuse_terminal, written
from lace.cli.output import plural
from lace.cli.records import find_records
from lace.errors import UsageError

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.record.validate import ValidRecord

__all__ = ["command"]


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


@lace_command(
    "get",
    piped="The record's bytes; with --body its data only. On a terminal, data is shown if it "
    "is plain text, and record bytes are refused.",
    json_keys={
        "id": "the record's hash",
        "type": "B, P or S",
        "group, app, name, tai": "null for a Blob",
        "headers": "the extra headers, a list of [name, value] in record order",
        "signed_by, signature": "null unless it is a Seal",
        "blob": "hash of the embedded Blob, or null",
        "plex": "hash of the embedded Plex, or null",
        "data_length": "how many bytes of data it has",
        "data_base64": "the data, with --body only",
    },
    examples=[
        ("lace get //u//notes//today --body", "read a note"),
        ("lace get B.….H3 --body -o photo.jpg", "write the data of a record to a file"),
        ("lace get //u//notes//today --json", "show everything but the data"),
    ],
)
@click.argument("record", metavar="RECORD")
@click.option("--body", is_flag=True, help="Only the record's data.")
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE.")
@click.pass_obj
def command(session: Session, record: str, body: bool, target: str | None) -> int:
    """Write one record, or only its data.

    RECORD is a hash, ////hash or a coordinate, which means its newest version. Exit code 1
    when it is not there; 6 when its bytes are not those that were stored.
    """
    output = session.output
    if output.json and target:
        raise UsageError("--json and -o ask for two things", hint="give one of them")
    with session.reading("get") as lace, lace.snapshot() as snapshot:
        (stored,) = find_records(snapshot, [record])
        found = snapshot.load(stored.id)
    if found is None:
        raise AssertionError("a snapshot has what it finds")
    if output.json:
        output.json_document(_as_json(found, body))
        return 0
    data = found.data if body else found.bytes
    if target:
        with written(target) as file:
            file.write(data)
        output.note(f"wrote {plural(len(data), 'byte')} to {target}")
        return 0
    if not body:
        refuse_terminal(output, "record bytes")
    elif output.terminal and not _is_plain_text(data):
        refuse_terminal(output, "these data")
    output.write(data)
    if output.terminal and data and not data.endswith(b"\n"):
        output.write(b"\n")
    return 0
