"""`lace pipeline verify`: every file of a warehouse, checked byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.cli.output import plural
from lace.cli.pipeline_session import warehouse_argument
from lace.cli.progress import Progress

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["command"]

_DAMAGED = 6


@lace_command(
    "verify",
    piped="Lines of a name and a number: files, bytes, damaged; then a line that begins with "
    "`damage: ` for each damaged file, the first 1,000 of them.",
    json_keys={
        "files": "how many files were checked",
        "bytes": "their bytes",
        "damaged": "how many are not as they were committed",
        "damage": "a list of {path, reason}",
    },
    examples=[("lace pipeline verify big.wh", "compare every file with the manifest")],
)
@warehouse_argument
@click.pass_obj
def command(session: Session, warehouse: str) -> int:
    """Compare every file of a warehouse with its manifest.

    Size, BLAKE3 digest and rows. Exit code 6 when a file is missing, cut or changed.
    """
    from lace.engines.spark.session import check_installed

    check_installed()
    from lace.pipeline.checking import check_warehouse
    from lace.pipeline.warehouse import Warehouse

    opened = Warehouse.open(Path(warehouse))
    total = sum(file.size for file in opened.manifest.all_files())
    with Progress(session, "verify", total, "bytes") as progress:
        found = check_warehouse(opened, lambda seen: progress.update(seen.bytes))
    output = session.output
    counts = {"files": found.files, "bytes": found.bytes, "damaged": found.damaged}
    if output.json:
        damage = [{"path": path, "reason": reason} for path, reason in found.damage]
        output.json_document({**counts, "damage": damage})
    else:
        output.counts(counts)
        for path, reason in found.damage:
            output.row((f"damage: {path}: {reason}",))
    if found.damaged:
        output.complain(
            f"lace: the warehouse is damaged: {plural(found.damaged, 'file')} found; put them "
            "back from a copy, or make the warehouse anew from its sources"
        )
        return _DAMAGED
    return 0
