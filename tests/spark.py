"""How Spark runs in tests, in this process and in others: what takes long there is to compile.

Tables are small, so nothing pays for a second compiler, for code that is generated for one
query, or for plans that are made again while they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["JAVA", "PLAIN", "SETTINGS", "write_defaults"]

JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The options of every Java that only tests need."""
PLAIN: Final = {"spark.driver.extraJavaOptions": JAVA, "spark.executor.extraJavaOptions": JAVA}
"""Queries run as they do outside of tests."""
SETTINGS: Final = {
    **PLAIN,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def write_defaults(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write settings where processes find them whose SPARK_CONF_DIR names the folder."""
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder
