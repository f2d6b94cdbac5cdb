"""What was rejected when files were ingested, and why: the rows of the table `quarantine`.

They are read without Spark. Making them is `lace.pipeline.ingest`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lace.engines.arrow import load_pyarrow
from lace.pipeline.failures import damage_told
from lace.pipeline.tables import QUARANTINE, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.pipeline.warehouse import Warehouse

__all__ = ["Rejected", "rejected_of"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Bytes of a file that are no valid record: where they begin, the rule broken, and why."""

    path: str
    offset: int
    rule: str | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "path": self.path,
            "offset": self.offset,
            "rule": self.rule,
            "reason": self.reason,
        }


def rejected_of(warehouse: Warehouse) -> Iterator[Rejected]:
    """Yield what was rejected: commit by commit, in each by file and offset.

    Of one commit all are in memory.

    Raises:
        EngineError: pyarrow is not installed.
        WarehouseDamagedError: a file is damaged.
    """
    paths = warehouse.files(QUARANTINE)
    if not paths:
        return
    load_pyarrow()
    from pyarrow import parquet

    names = [name for name, _kind in columns_of(QUARANTINE)]
    for path in paths:
        with damage_told(path), parquet.ParquetFile(path, page_checksum_verification=True) as file:
            rows = file.read(names).to_pylist()
        for row in sorted(rows, key=lambda row: (row["source"], row["source_offset"])):
            yield Rejected(row["path"], row["source_offset"], row["rule"], row["reason"])
