"""`lace pipeline export`: record bytes out of a warehouse."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from lace.base.text import shorten
from lace.cli.command import command as lace_command
from lace.cli.export import Target, check_output
from lace.cli.files import written
from lace.cli.output import plural
from lace.cli.pipeline_session import warehouse_argument
from lace.cli.progress import Progress
from lace.cli.records import NotFoundError
from lace.errors import UsageError
from lace.record.paths import parse_address

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lace.cli.session import Session
    from lace.pipeline.warehouse import Warehouse

__all__ = ["command"]


def _wanted(warehouse: Warehouse, texts: tuple[str, ...]) -> frozenset[str]:
    from lace.pipeline.records import find_hashes

    found = find_hashes(warehouse, [parse_address(text) for text in texts])
    missing = [text for text, each in zip(texts, found, strict=True) if each is None]
    if missing:
        names = ", ".join(shorten(text, 100) for text in missing)
        raise NotFoundError(f"not in this warehouse: {names}")
    return frozenset(each for each in found if each is not None)


@lace_command(
    "export",
    piped="The bytes of the records, one after another; nothing with -o.",
    json_keys={
        "id": "the record's hash; one line a record; wants -o",
        "offset": "where it begins in the file",
        "bytes": "how many bytes it has",
    },
    examples=[
        ("lace pipeline export big.wh --all -o all.records", "write every record to a file"),
        ("lace pipeline export big.wh //u//notes//today | lace import -", "copy one to a lace"),
    ],
)
@warehouse_argument
@click.argument("records", metavar="[RECORD]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every record.")
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, whole or not.")
@click.pass_obj
def command(
    session: Session, warehouse: str, records: tuple[str, ...], everything: bool, target: str | None
) -> int:
    """Write the bytes of records of a warehouse.

    Of the RECORDs named, or of all, in the order of the warehouse. Each is checked against its
    hash. When one is not there, nothing is written and the exit code is 1. `lace import` reads
    the result.
    """
    if bool(records) == everything:
        raise UsageError("name what to export", hint="give RECORDs, or --all")
    check_output(session.output, target)
    from lace.engines.spark.session import check_installed

    check_installed()
    from lace.pipeline.records import iterate_records
    from lace.pipeline.tables import RECORDS
    from lace.pipeline.warehouse import Warehouse

    opened = Warehouse.open(Path(warehouse))
    wanted = None if everything else _wanted(opened, records)
    total = opened.manifest.rows(RECORDS) if wanted is None else len(wanted)
    place: AbstractContextManager[IO[bytes] | None] = written(target) if target else nullcontext()
    with place as file, Progress(session, "export", total, "records") as progress:
        goal = Target(session.output, file)
        for record in iterate_records(opened, wanted):
            goal.write(record)
            progress.update(goal.records)
    if target:
        size = plural(goal.bytes, "byte")
        session.output.note(f"wrote {plural(goal.records, 'record')}, {size}, to {target}")
    return 0
