"""`lace get`: one record, whole or only its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.record_output import (
    RECORD_KEYS,
    RECORD_PIPED,
    check_record_options,
    record_options,
    write_record,
)
from lace.cli.records import LocalCommand, find_records

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["command"]


@lace_command(
    "get",
    cls=LocalCommand,
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
