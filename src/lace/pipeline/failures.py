"""What a failure inside Spark means: damage, a disk without room, or something else."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lace.base.text import shorten
from lace.errors import EngineError, LaceError, Place, RecordError
from lace.pipeline.manifest import WarehouseDamagedError
from lace.record.ids import IdError
from lace.store.interface import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SparkJobError", "damage_told", "translated"]

_FULL: Final = re.compile("No space left on device|File too large|Disk quota exceeded")
_DAMAGE: Final = re.compile(
    "could not verify page integrity|CRC checksum|FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|"
    "is not a Parquet file|expected magic number|Could not read footer|Failed to decompress|"
    "can not read class|ZstdException|PARQUET_CONVERSION_FAILURE|Corrupt"
)
_FILE: Final = re.compile(r"(?:file:)?(/[^\s'\"]+?\.parquet)")
_PYTHON: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_MOST_REASON: Final = 300


class SparkJobError(EngineError):
    """A job of Spark failed."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what Spark raises into errors of Lace.

    Raises:
        WarehouseDamagedError: a file is damaged.
        StoreUnavailableError: a disk is full.
        SparkJobError: anything else went wrong in a job.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except LaceError:
        raise
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise _meaning(what, error) from error


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Translate an error of a file of the warehouse that cannot be read to damage.

    Raises:
        WarehouseDamagedError: Arrow, or a check of what it read, refuses the file.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, RecordError, IdError, OSError) as error:
        raise WarehouseDamagedError(
            f"a file of the warehouse is damaged: {str(error).splitlines()[0]}",
            place=Place(str(path)),
            hint="`lace pipeline verify WAREHOUSE` names every damaged file",
        ) from error


def _meaning(what: str, error: Exception) -> LaceError:
    text = _whole_text(error)
    if _FULL.search(text):
        return StoreUnavailableError(
            f"{what}: a disk is full", hint="nothing was committed; make room and run it again"
        )
    file = _FILE.search(text)
    if _DAMAGE.search(text):
        named = f" {file[1]}" if file else ""
        return WarehouseDamagedError(
            f"{what}: a file of the warehouse is damaged:{named or ' see `lace pipeline verify`'}",
            hint="`lace pipeline verify WAREHOUSE` names every damaged file",
        )
    return SparkJobError(
        f"{what}: the Spark job failed: {_reason(text)}",
        hint="nothing was committed; run it again, with --debug to see all that Spark says",
    )


def _whole_text(error: BaseException) -> str:
    """Return the texts of an error and its causes, on both sides."""
    parts: list[str] = []
    found: BaseException | None = error
    while found is not None and len(parts) < 8:
        parts.append(str(found))
        trace = getattr(found, "_stackTrace", None) or getattr(found, "java_exception", None)
        if trace is not None:
            parts.append(str(trace))
        found = found.__cause__ or found.__context__
    return "\n".join(parts)


def _reason(text: str) -> str:
    told = _PYTHON.findall(text)
    line = f"{told[-1][0]}: {told[-1][1]}" if told else (text.strip().splitlines() or ["?"])[0]
    return shorten(line, _MOST_REASON)
