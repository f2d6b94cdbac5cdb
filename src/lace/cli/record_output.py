"""One record as a command writes it: whole, only its data, or as JSON."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.base.text import safe_text
from lace.cli.files import check_target, refuse_terminal, written
from lace.cli.output import plural
from lace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.cli.output import Output
    from lace.record.validate import ValidRecord

__all__ = ["RECORD_KEYS", "RECORD_PIPED", "check_record_options", "record_options", "write_record"]

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
    """Refuse options that ask for two things, and a file that could not be written.

    Raises:
        UsageError: they do, or it could not.
    """
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
    """Write a record, or only its data: to a file, as JSON, or to standard output.

    Raises:
        TerminalError: it is not for a terminal.
        OutputError: the file cannot be written.
    """
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
