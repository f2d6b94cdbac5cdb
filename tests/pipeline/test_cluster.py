"""The pipeline on a cluster of processes: a master, a worker, and a driver that is a command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.engines.spark.java import find_java
from lace.pipeline.warehouse import Warehouse
from tests.cli.running import spawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.record.model import Blob, Plex, Seal

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


def test_workers_get_lace_and_validate(
    tmp_path: Path, file: Path, records: list[Blob | Plex | Seal]
) -> None:
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with started(tmp_path, "master.Master", *local) as log:
        url = wait_for(log, r"spark://127\.0\.0\.1:[0-9]+")
        worker = ("worker.Worker", url, *local, "-c", "1", "-m", "1g", "-d", str(tmp_path))
        with started(tmp_path, *worker):
            wait_for(log, "Registering worker")
            arguments = ("pipeline", "ingest", tmp_path / "wh", file, "--master", url)
            with spawn(*arguments, "--spark", "spark.executor.memory=512m") as running:
                out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err.decode()
    assert f"stored {len(records)}\n".encode() in out
    assert Warehouse.open(tmp_path / "wh").manifest.rows("records") == len(records)
