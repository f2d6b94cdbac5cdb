"""How Spark runs in tests, in this process and in others: what takes long there is to compile.

Tables are small, so nothing pays for a second compiler, for code that is generated for one
query, or for plans that are made again while they run. The classes of Spark are read, checked and
laid out once, into an archive that every Java maps; it is kept in `build` for the next run.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.base.digest import digest
from lace.spark.engine.session import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JAVA", "SETTINGS", "java_options", "write_defaults"]

ROOT: Final = Path(__file__).resolve().parents[1]
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The options of every Java that only tests need."""
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_MAKING: Final = """
import sys
from pathlib import Path

from lace.spark.engine.session import open_session

options, folder = sys.argv[1:]
with open_session("local[2]", settings={"spark.driver.extraJavaOptions": options}) as session:
    numbers = session.range(100).selectExpr("id", "id % 7 AS part")
    numbers.write.parquet(folder)
    stored = session.read.parquet(folder)
    counted = stored.groupBy("part").count().join(stored, "part").localCheckpoint()
    assert counted.count() == 100
"""
"""Uses what most jobs use, and ends its Java ends by itself."""


def java_options() -> str:
    """Return the options of a Java that runs Spark: `JAVA`, and where the archive is.

    A Java that cannot use it, since it is another or has other classes, starts without.
    """
    java = find_java(os.environ)
    kind = f"{java} {(java.home / 'release').stat().st_mtime_ns} {version('pyspark')} {JAVA}"
    folder = ROOT / "build" / "spark"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{digest(f'{kind} {sys.prefix}'.encode()).hex()[:16]}.jsa"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers need the same
        if not target.exists():
            _make_archive(target)
    return f'{JAVA} "-XX:SharedArchiveFile={target}" -Xlog:cds*=off' if target.exists() else JAVA


def _make_archive(target: Path) -> None:
    for old in target.parent.glob("*.jsa"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "archive"
        options = f'{JAVA} "-XX:ArchiveClassesAtExit={made}"'
        subprocess.run(
            [sys.executable, "-c", _MAKING, options, str(Path(folder) / "rows")],
            env={name: value for name, value in os.environ.items() if not name.startswith("SPARK")},
            check=True,
        )
        if made.exists():  # not every Java can
            made.replace(target)


def write_defaults(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write settings where processes find them whose SPARK_CONF_DIR names the folder."""
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder
