"""Checking a warehouse without Spark: every file, byte by byte, and some of its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from lace.pipeline.lookup import rows_at
from lace.pipeline.manifest import WarehouseDamagedError
from lace.pipeline.proof import report as report_to
from lace.pipeline.rechecking import ROW_COLUMNS, reasons_of
from lace.pipeline.tables import (
    RECORDS,
)
from lace.pipeline.warehouse import check_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from lace.pipeline.manifest import DataFile
    from lace.pipeline.proof import Proof, Reports
    from lace.pipeline.warehouse import Warehouse

__all__ = ["Checked", "check_warehouse", "validate_some"]

_SOME_RECORDS: Final = 1000
"""Records that are validated again, where nobody says how many."""


@dataclass(slots=True)
class Checked:
    """What a check found; `damage` has path and reason, the first of them.

    `validated` are records that were, `wrong` those of them that are not valid. `proof` tells
    the comparison of the tables with the records, where requested.
    """

    files: int = 0
    bytes: int = 0
    validated: int = 0
    wrong: int = 0
    damaged: int = 0
    damage: Reports = field(default_factory=list)
    proof: Proof | None = None

    @property
    def is_sound(self) -> bool:
        """Whether all that was looked at is as it should be."""
        return not (self.damaged or self.wrong or (self.proof is not None and self.proof.wrong))


def check_warehouse(
    warehouse: Warehouse, report: Callable[[Checked], None] | None = None
) -> Checked:
    """Read every file of the manifest and compare its digest, and its rows with its footer."""
    checked = Checked()
    for file in warehouse.manifest.all_files():
        try:
            check_file(warehouse.folder, file, whole=True)
            _check_footer(warehouse, file)
        except WarehouseDamagedError as error:
            checked.damaged += 1
            report_to(checked.damage, file.path, error.message.rpartition("damaged: ")[2])
        checked.files += 1
        checked.bytes += file.size
        if report:
            report(checked)
    return checked


def validate_some(warehouse: Warehouse, checked: Checked) -> None:
    """Validate up to 1,000 records again, chosen by chance, and note those that are not valid.

    Raises:
        WarehouseDamagedError: a file is damaged.
    """
    files = warehouse.manifest.files(RECORDS)
    total = sum(file.rows for file in files)
    chosen = sorted(SystemRandom().sample(range(total), min(total, _SOME_RECORDS)))
    first = 0
    for file, path in zip(files, warehouse.files(RECORDS), strict=True):
        mine = [place - first for place in chosen if first <= place < first + file.rows]
        first += file.rows
        for batch in rows_at(path, file.rows, mine, ROW_COLUMNS):
            rows = list(zip(*(batch.column(name).to_pylist() for name in ROW_COLUMNS), strict=True))
            for row, reason in zip(rows, reasons_of(rows), strict=True):
                checked.validated += 1
                if reason is not None:
                    checked.wrong += 1
                    report_to(checked.damage, f"the record {row[0]}", reason)


def _check_footer(warehouse: Warehouse, file: DataFile) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_metadata(warehouse.folder / file.path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise WarehouseDamagedError(f"damaged: {error}") from error
    if rows != file.rows:
        raise WarehouseDamagedError(f"damaged: it has {rows} rows instead of {file.rows}")
