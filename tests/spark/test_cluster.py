"""The pipeline on a cluster of processes: a master, workers, and a driver that is a command."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lace.base.digest import digest
from lace.record.model import Plex
from lace.rules.profiles import QUERY
from lace.rules.program import check_source
from lace.spark.engine.session import find_java
from lace.spark.pipeline.derived import read_derived, read_evaluated
from lace.spark.pipeline.evaluate import Question, evaluate
from lace.spark.pipeline.facts import make_facts
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import call, spawn
from tests.spark.samples import hook_workers, ingest_files, records_digest
from tests.spark_session import JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.record.model import Blob, Seal

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@contextmanager
def started(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """Run a part of a cluster in a process group of its own; yields its log."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(_java_home())}
    environment.pop("PYTHONPATH", None)  # so that workers have only what is sent to them
    log = folder / f"{name.rpartition('.')[2]}.log"
    with log.open("wb") as file:
        running = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=environment,
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield log
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def _java_home() -> Path:
    return find_java(os.environ).home


def wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text("utf-8", "replace")):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text("utf-8", "replace"))


class Cluster:
    """A master and workers, each of one core and with an address of its own.

    Spark runs no copy of a task where the first one runs, and tells that by the address.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._log = stack.enter_context(started(folder, "master.Master", *_LOCAL))
        self.url = wait_for(self._log, r"spark://127\.0\.0\.1:[0-9]+")
        self._workers = 0

    def add_worker(self) -> ExitStack:
        """Start a worker and wait until it is known; closing what is returned kills it."""
        self._workers += 1
        own = self.folder / f"worker{self._workers}"
        own.mkdir()
        place = ("--host", f"127.0.0.{self._workers}", *_LOCAL[2:])
        worker = ("worker.Worker", self.url, *place, "-c", "1", "-m", "1g", "-d", str(own))
        running = self._stack.enter_context(ExitStack())
        running.enter_context(started(own, *worker))
        wait_for(self._log, f"(?s)(Registering worker.*){{{self._workers}}}")
        return running

    def options(self, *more: str) -> list[str]:
        """Return the options that send a command here."""
        settings = (
            "spark.executor.memory=512m",
            "spark.executor.cores=1",
            f"spark.executor.extraJavaOptions={JAVA}",
            *more,
        )
        return ["--master", self.url, *(part for each in settings for part in ("--spark", each))]


_LOCAL = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


PACKED = ("apsw", "blake3", "coincurve", "numpy", "numpy.libs", "pyarrow", "unicodedata2")
"""What workers need beside Lace: the names of its packages."""
LEFT_OUT = re.compile(r"/(include|tests|__pycache__)/")
TELLING = """\
import importlib.util
with open({place!r}, "a") as file:
    file.write(importlib.util.find_spec("pyarrow").origin + "\\n")
"""
"""Run by every Python that starts in the environment: says where it takes pyarrow from."""


def pack_environment(target: Path, place: Path) -> Path:
    """Pack a Python environment as `tar` would, with the standard library alone."""
    import sysconfig

    site = Path(sysconfig.get_paths()["platlib"])
    inside = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    base = Path(sys._base_executable)  # type: ignore[attr-defined] # venv uses it as well
    texts = {
        "pyvenv.cfg": f"home = {base.parent}\ninclude-system-site-packages = false\n",
        f"{inside}/sitecustomize.py": TELLING.format(place=str(place)),
    }
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        python = tarfile.TarInfo("bin/python")
        python.type, python.linkname = tarfile.SYMTYPE, str(base)
        archive.addfile(python)
        for path in sorted(site.iterdir()):
            if path.name.split(".cpython")[0] in PACKED:
                archive.add(path, f"{inside}/{path.name}", filter=_wanted)
    return target


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT.search(member.name) else member


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers that nobody ends."""
    with ExitStack() as stack:
        made = Cluster(tmp_path_factory.mktemp("cluster"), stack)
        made.add_worker()
        made.add_worker()
        yield made


def run_on(cluster: Cluster, *arguments: object, more: tuple[str, ...]) -> bytes:
    """Run a command on a cluster; returns what it prints."""
    with spawn(*arguments, *cluster.options(*more)) as running:
        out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err.decode()
    return out


def test_workers_get_lace_and_a_packed_environment(
    cluster: Cluster, tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    """Two workers validate with what was sent to them, and with nothing of this environment."""
    told = tmp_path / "told"
    packed = pack_environment(tmp_path / "env.tar.gz", told)
    command = ("pipeline", "ingest", tmp_path / "wh", file, "--python-env", packed)
    out = run_on(cluster, *command, more=("spark.default.parallelism=4",))
    assert f"stored {len(records)}\n".encode() in out
    assert WarehouseFolder.open(tmp_path / "wh").manifest.rows("records") == len(records)
    found = {Path(line) for line in told.read_text().splitlines()}
    assert found
    for path in found:  # each worker unpacks it into a folder of its own
        assert path.relative_to(cluster.folder).parts[0] in ("worker1", "worker2")
        assert "/env/lib/" in str(path)


BOTH_WRITE = """
whole = validating._File.__exit__

def leave(self, *error):
    from pyspark import TaskContext

    whole(self, *error)
    task, marks = TaskContext.get(), Path({marks!r})
    (marks / f"{{task.partitionId()}}-{{task.attemptNumber()}}").touch()
    deadline = time.monotonic() + 120
    while task.partitionId() == 0 and not all((marks / name).exists() for name in ("0-0", "0-1")):
        if time.monotonic() > deadline:
            raise TimeoutError("there is no copy of this task")
        time.sleep(0.02)

validating._File.__exit__ = leave
"""
"""The first task ends when a copy of it has written the same rows once more."""
SPECULATIVE = (
    "spark.speculation=true",
    "spark.speculation.interval=50ms",
    "spark.speculation.quantile=0.5",
    "spark.speculation.multiplier=1.1",
)


@pytest.mark.exhaustive
def test_a_copy_of_a_slow_task_of_an_ingest_adds_nothing(
    spark: Any, cluster: Cluster, tmp_path: Path, records: list[Blob | Plex | Seal]
) -> None:
    marks, events = tmp_path / "marks", tmp_path / "events"
    parts = [tmp_path / "1.records", tmp_path / "2.records"]
    for number, part in enumerate(parts):
        part.write_bytes(b"".join(record.bytes for record in records[number::2]))
    undisturbed = WarehouseFolder.create(tmp_path / "undisturbed")
    ingest_files(spark, undisturbed, *parts)
    for folder in (marks, events):
        folder.mkdir()
    path = hook_workers(tmp_path / "hook", BOTH_WRITE.format(marks=str(marks)))
    more = (
        *SPECULATIVE,
        f"spark.executorEnv.PYTHONPATH={path}",
        "spark.eventLog.enabled=true",
        f"spark.eventLog.dir={events.as_uri()}",
        "spark.eventLog.rolling.enabled=false",
        "spark.eventLog.compress=false",
    )
    out = run_on(cluster, "pipeline", "ingest", tmp_path / "wh", *parts, more=more)
    assert f"stored {len(records)}\nknown 0\n".encode() in out
    assert {each.name for each in marks.iterdir()} >= {"0-0", "0-1", "1-0"}
    (log,) = events.iterdir()
    told = [json.loads(line) for line in log.read_text().splitlines()]
    started = [each["Task Info"] for each in told if each["Event"] == "SparkListenerTaskStart"]
    copies = [(each["Index"], each["Attempt"]) for each in started if each["Speculative"]]
    assert (0, 1) in copies
    assert records_digest(WarehouseFolder.open(tmp_path / "wh")) == records_digest(undisturbed)


# A chain of links makes as many rounds as there are records, so there is time to kill something.
CHAIN = """\
Linked(P,Q) :- RecordLink(P,_,_,_,Q).
Reach(P,Q) :- Linked(P,Q).
Reach(P,R) :- Reach(P,Q), Linked(Q,R).
"""
ON_SPARK = ("--set", "spark_small_rows=0", "--set", "spark_handover_rows=0")
LENGTH = 14


@pytest.fixture
def chain(spark: Any, tmp_path: Path) -> Path:
    """A folder with the facts of a chain of records, and rules that follow it."""
    made: list[Plex] = []
    for number in range(LENGTH):
        headers = [("+Link", f"next {made[-1].id}")] if made else []
        made.append(Plex(group="u", app="c", name=f"n/{number}", headers=headers, data=b""))
    (tmp_path / "chain").write_bytes(b"".join(plex.bytes for plex in made))
    (tmp_path / "rules").write_text(CHAIN)
    warehouse = WarehouseFolder.create(tmp_path / "wh")
    ingest_files(spark, warehouse, tmp_path / "chain")
    with warehouse.writing("a test") as job:
        make_facts(spark, job)
    return tmp_path


def answer_digest(folder: Path, name: str = "result") -> tuple[str, int]:
    """Return a digest of the set of facts of an answer, and how many rows its tables have."""
    warehouse = WarehouseFolder.open(folder / "wh")
    found = read_evaluated(warehouse, name)
    assert found is not None
    rows = [(str(key), *row) for key in found.counts for row in read_derived(warehouse, name, key)]
    assert len(rows) == len(set(rows)) == sum(found.counts.values())
    return digest(repr(sorted(rows)).encode()).hex(), len(rows)


def expected_digest(spark: Any, folder: Path) -> tuple[str, int]:
    """Return the same of an evaluation that nothing disturbs."""
    checked = check_source(CHAIN, profile=QUERY)
    with WarehouseFolder.open(folder / "wh").writing("a test") as job:
        evaluate(spark, job, "expected", Question((checked,), checked.derived))
    found = answer_digest(folder, "expected")
    assert found[1] == LENGTH - 1 + LENGTH * (LENGTH - 1) // 2
    return found


def wait_until(running: subprocess.Popen[bytes], folder: Path, pattern: str, count: int) -> None:
    """Wait until files of a job that runs are there."""
    deadline = time.monotonic() + 240
    while len(list(folder.glob(pattern))) < count:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


ROUNDS = "data/*/scratch-checkpoints/*/rdd-*"
"""The intermediate tables of an evaluation on a cluster."""


@pytest.mark.exhaustive
def test_a_worker_dies_in_the_middle(spark: Any, chain: Path) -> None:
    """With speculative execution on, the answer is the same set, and no fact is there twice."""
    expected = expected_digest(spark, chain)
    with ExitStack() as stack:
        cluster = Cluster(chain, stack)
        first = cluster.add_worker()
        cluster.add_worker()
        more = ("spark.task.maxFailures=8", *SPECULATIVE)
        arguments = ("pipeline", "evaluate", chain / "wh", "--rules", chain / "rules", *ON_SPARK)
        with spawn(*arguments, *cluster.options(*more)) as running:
            wait_until(running, chain / "wh", ROUNDS, 6)
            first.close()
            out, err = running.communicate(timeout=400)
    assert running.returncode == 0, err.decode()
    assert b"Reach/2" in out
    assert answer_digest(chain) == expected
    assert not list((chain / "wh" / "data").glob("*/scratch-*"))


@pytest.mark.exhaustive
def test_a_killed_driver_and_a_second_job(spark: Any, chain: Path) -> None:
    """While one evaluates another is refused; killed, it leaves nothing, and the next completes."""
    before = (chain / "wh" / "manifest.json").read_bytes()
    rules = ("--rules", chain / "rules", *ON_SPARK, "--set", "spark_cuts=1")
    arguments = ("pipeline", "evaluate", chain / "wh", *rules)
    with spawn(*arguments, "--master", "local[2]") as running:
        wait_until(running, chain / "wh", ROUNDS, 4)
        second = call(*arguments, "--wait", 0)
        assert running.poll() is None
        running.kill()
        running.communicate(timeout=60)
    assert second.code == 5
    assert "lace pipeline evaluate" in second.err
    assert (chain / "wh" / "manifest.json").read_bytes() == before
    assert list((chain / "wh" / "data").glob("*/scratch-checkpoints"))
    expected = expected_digest(spark, chain)
    assert call(*arguments).code == 0
    assert answer_digest(chain) == expected
    assert not list((chain / "wh" / "data").glob("*/scratch-*"))
