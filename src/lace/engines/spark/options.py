"""How the Spark engine goes about its work; none of it changes an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from lace.base.limits import (
    SPARK_BROADCAST_ROWS,
    SPARK_HANDOVER_ROWS,
    SPARK_SMALL_ROWS,
)
from lace.errors import UsageError

if TYPE_CHECKING:
    from lace.base.limits import Settings

__all__ = ["Cuts", "Options", "options_of"]

Cuts: TypeAlias = Literal["local", "reliable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is handed over, what is broadcast, and where intermediate tables are kept.

    Args:
        handover_rows: rows that a recursive fixed point may read, of what it needs, to be
            collected and evaluated in this process; 0 keeps all on the cluster.
        small_rows: base facts up to which the whole program is evaluated in this process.
        broadcast_rows: rows of a table that are sent to every executor for a join.
        cuts: `local` keeps intermediate tables in the memory of executors and loses them with
            these; `reliable` writes them to the checkpoint folder of the Spark context.
    """

    handover_rows: int = SPARK_HANDOVER_ROWS
    small_rows: int = SPARK_SMALL_ROWS
    broadcast_rows: int = SPARK_BROADCAST_ROWS
    cuts: Cuts = "local"

    def __post_init__(self) -> None:
        if self.cuts not in ("local", "reliable"):
            raise UsageError(f"intermediate tables are local or reliable, not {self.cuts!r}")
        if min(self.handover_rows, self.small_rows, self.broadcast_rows) < 0:
            raise UsageError("a number of rows is not below 0")


def options_of(settings: Settings, *, cluster: bool = False) -> Options:
    """Return what settings say; on a cluster an executor may be lost with what it keeps."""
    is_reliable = settings.spark_cuts == 1 or (cluster and settings.spark_cuts == 2)
    return Options(
        handover_rows=settings.spark_handover_rows,
        small_rows=settings.spark_small_rows,
        broadcast_rows=settings.spark_broadcast_rows,
        cuts="reliable" if is_reliable else "local",
    )
