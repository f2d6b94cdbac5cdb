"""Opening a Spark session: in this process's machine by default, or on a cluster.

The session is set up for Lace's work: no web page, nothing open to the network on `local`, and
what the Java process prints goes to a file unless it is asked for. A session that is open in
this process already is used as it is, and left open.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import zipfile
from contextlib import contextmanager, suppress
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lace.engines.spark.ending import end_gateway, held_signals, own_interrupts, stopped
from lace.engines.spark.java import Java, find_java
from lace.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = [
    "LOCAL_MASTER",
    "NoSparkError",
    "SparkStartError",
    "active_context",
    "check_installed",
    "check_master",
    "open_session",
    "shuffle_partitions",
]

LOCAL_MASTER: Final = "local[*]"
_MASTER: Final = re.compile(
    r"local(\[(\*|[1-9][0-9]{0,3})(,[1-9][0-9]?)?\])?|(spark|k8s|yarn)(://.+)?"
)
_LEAST_MEMORY: Final = 1024
_MOST_MEMORY: Final = 8192
"""MiB of the Java heap on `local`: a quarter of the machine's memory, between these."""
_PACKED: Final = frozenset({".py", ".sql"})
_TAIL_BYTES: Final = 4096
_PARTITION_BYTES: Final = 64 * 1024 * 1024
_MOST_PARTITIONS: Final = 4096
_BASE: Final = {
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # Comparing the constraints of deep plans takes longer than running them.
    "spark.sql.constraintPropagation.enabled": "false",
    # Telling Java, at each step of a plan, the line of Python that asks for it doubles the calls.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Nobody looks at the texts of plans, and each job of a deep plan would make one.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "0",
    # Spark's check of its own optimizer behind each rule; answers are compared in the tests.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # A file that is cut or changed is an error, never fewer rows.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class NoSparkError(EngineError):
    """PySpark, or what it needs beside it, is not installed."""


class SparkStartError(EngineError):
    """Spark did not start."""


def check_installed() -> None:
    """Refuse to go on without the packages that Spark needs.

    Raises:
        NoSparkError: one of them is not installed.
    """
    missing = [name for name in ("pyspark", "pyarrow") if util.find_spec(name) is None]
    if missing:
        raise NoSparkError(
            f"{' and '.join(missing)} not installed", hint="pip install 'lace[spark]'"
        )


def active_context() -> Any:  # noqa: ANN401 - PySpark's own
    """Return the Spark context that this process has open; None without one.

    It loads nothing: where PySpark is not loaded, or not wholly yet, nothing is open.
    """
    kind = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(kind, "_active_spark_context", None)


@contextmanager
def open_session(
    master: str = LOCAL_MASTER,
    *,
    settings: Mapping[str, str] | None = None,
    archive: Path | None = None,
    debug: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a Spark session for the `with` block.

    Args:
        master: `local[*]`, `local[N]`, or the URL of a cluster such as `spark://host:7077`.
        settings: Spark settings over those of Lace.
        archive: a packed Python environment for the executors of a cluster; without one they
            need Lace's dependencies installed, and are sent Lace itself.
        debug: let what Java prints through to standard error.
        environ: the environment's variables, where Java is looked for.

    Raises:
        NoSparkError: PySpark is not installed.
        NoJavaError: there is no Java that is new enough.
        SparkStartError: Spark did not start.
        UsageError: the master is invalid, or the archive is missing.
    """
    check_installed()
    check_master(master, archive)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    java = find_java(os.environ if environ is None else environ)
    with tempfile.TemporaryDirectory(prefix="lace-spark-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        wanted = _settings(master, scratch, archive) | dict(settings or {})
        with own_interrupts():
            context = _start(wanted, java, scratch / "java.log", archive, debug)
        with stopped(context):
            context.setLogLevel("WARN" if debug else "ERROR")
            if not master.startswith("local"):
                context.addPyFile(str(_packed_lace(scratch)))
            yield SparkSession(context)


def shuffle_partitions(session: SparkSession, size: int) -> int:
    """Set, and return, how many parts a shuffle of about this many bytes makes."""
    parallel = max(1, int(session.sparkContext.defaultParallelism))
    wanted = max(parallel, min(_MOST_PARTITIONS, -(-size // _PARTITION_BYTES)))
    session.conf.set("spark.sql.shuffle.partitions", str(wanted))
    return wanted


def check_master(master: str, archive: Path | None = None) -> None:
    """Refuse an invalid master or a missing archive before anything starts.

    Raises:
        UsageError: one of them is so.
    """
    if not _MASTER.fullmatch(master):
        raise UsageError(
            f"{master!r} is no Spark master", hint="write local[*], local[4] or spark://HOST:PORT"
        )
    if archive is not None and not archive.is_file():
        raise UsageError(f"there is no file {archive}", hint="name a packed Python environment")


def _settings(master: str, scratch: Path, archive: Path | None) -> dict[str, str]:
    made = {**_BASE, "spark.master": master, "spark.app.name": "lace"}
    if master.startswith("local"):
        made |= _LOCAL
        made["spark.local.dir"] = str(scratch)
        made["spark.driver.memory"] = f"{_heap()}m"
        made["spark.sql.shuffle.partitions"] = str(_cores(master))
        return made
    if archive is not None:
        made["spark.archives"] = f"{archive.resolve()}#env"
    return made


def _heap() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (4 * 1024 * 1024)
    return max(_LEAST_MEMORY, min(_MOST_MEMORY, memory))


def _cores(master: str) -> int:
    found = re.search(r"[0-9]+", master)
    if found:
        return max(2, int(found[0]))
    return max(2, os.cpu_count() or 2) if "*" in master else 2


def _packed_lace(scratch: Path) -> Path:
    """Return an archive of this Lace for the executors: its code, and the files that it reads."""
    package = Path(__file__).resolve().parents[2]
    target = scratch / "lace.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.suffix in _PACKED:
                archive.write(path, path.relative_to(package.parent).as_posix())
    return target


def _start(
    settings: Mapping[str, str], java: Java, log: Path, archive: Path | None, debug: bool
) -> Any:  # noqa: ANN401 - PySpark has no types here
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    launch_gateway: Any = import_module("pyspark.java_gateway").launch_gateway

    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    python = "./env/bin/python" if archive else sys.executable
    gateway = None
    with log.open("wb") as file, _environment(java, python):
        shown: dict[str, object] = {"stdout": file, "stderr": file}
        if debug:
            shown = {"stdout": sys.stderr.fileno()}
        try:
            with held_signals():  # until it is known which process is Java
                gateway = launch_gateway(conf, popen_kwargs=shown)
            context: Any = SparkContext(gateway=gateway, conf=conf)
            if not debug:  # it prints a traceback when Java is ended while it counts
                context._accumulatorServer.handle_error = lambda *_request: None
            return context
        except (PySparkException, Py4JError, OSError) as error:
            if gateway is not None:
                end_gateway(gateway)
            raise SparkStartError(
                f"Spark did not start on {java}: {_reason(log) or str(error).splitlines()[0]}",
                hint="run it again with --debug to see all that Spark says",
            ) from error
        except BaseException:  # a signal: nothing of it is to outlive this process
            if gateway is not None:
                end_gateway(gateway)
            raise


@contextmanager
def _environment(java: Java, python: str) -> Iterator[None]:
    """Set the variables that Spark's launcher reads, and only for as long as it starts."""
    wanted = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": python}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _reason(log: Path) -> str:
    """Return the line of the log that says best why Java or Spark gave up."""
    with suppress(OSError):
        lines = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").splitlines()
        told = [line.strip() for line in lines if re.search("error|exception", line, re.I)]
        return (told or [line.strip() for line in lines if line.strip()] or [""])[0]
    return ""
