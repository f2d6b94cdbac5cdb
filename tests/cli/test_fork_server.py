"""A forked command is what a fresh one is, as far as tests can see."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.running import clean_environment, on_terminal, process, spawn
from tests.fork_server import Forked, can_fork

if TYPE_CHECKING:
    from pathlib import Path

PROBE = """\
import json, os, signal, sys, threading
streams = [(s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty())
           for s in (sys.stdin, sys.stdout, sys.stderr)]
json.dump({
    "arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ),
    "streams": streams, "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
    "leads": os.getsid(0) == os.getpid(), "path": sys.path, "threads": threading.active_count(),
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
}, sys.stdout)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def probe(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "probe.py").write_text(PROBE)
    return (sys.executable, "-m", "probe")


def look(probe: tuple[str, ...], **rest: Any) -> tuple[int, dict[str, Any]]:
    with spawn(3, "a b", program=probe, **rest) as started:
        out, err = started.communicate(timeout=60)
    assert not err
    assert isinstance(started, Forked) == (not rest.get("fresh"))
    return started.returncode, json.loads(out)


def test_it_starts_as_a_fresh_one(probe: tuple[str, ...], tmp_path: Path) -> None:
    rest = {"cwd": tmp_path, "env": clean_environment(TZ="UTC", PYTHONPATH="/a"), "terminal": False}
    forked, fresh = (look(probe, fresh=fresh, **rest) for fresh in (False, True))
    assert forked == fresh
    assert forked[0] == 3


def test_it_starts_at_a_terminal_as_a_fresh_one(probe: tuple[str, ...]) -> None:
    shown = [on_terminal(0, program=probe, env=env) for env in ({}, {"PYTHONHASHSEED": "1"})]
    forked, fresh = (json.loads(each.out) for each in shown)
    assert fresh["environment"].pop("PYTHONHASHSEED") == "1"
    assert forked == fresh
    assert forked["leads"]


def test_it_ends_by_a_signal(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time; print('!', flush=True); time.sleep(60)")
    with spawn(program=(sys.executable, "-m", "waits")) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"!\n"
        assert started.poll() is None
        started.send_signal(signal.SIGKILL)
        assert started.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [("raise SystemExit('no')", 1, "no\n"), ("1 / 0", 1, "ZeroDivisionError"), ("pass", 0, "")],
)
def test_how_a_program_ends(tmp_path: Path, code: str, status: int, said: str) -> None:
    (tmp_path / "ends.py").write_text(f"import atexit; atexit.register(print, 'last')\n{code}\n")
    with spawn(program=(sys.executable, "-m", "ends")) as started:
        out, err = started.communicate(timeout=60)
    assert (started.returncode, out) == (status, b"last\n")
    assert said in err.decode()


def test_what_python_reads_when_it_starts_needs_a_fresh_one(tmp_path: Path) -> None:
    assert can_fork(clean_environment(LACE_ANY="1", TERM="dumb"))
    assert not can_fork(clean_environment(LC_ALL="C"))
    assert not can_fork(clean_environment(PYTHONUTF8="0"))
    assert can_fork(clean_environment(PYTHONPATH=str(tmp_path)))
    (tmp_path / "sitecustomize.py").touch()
    assert not can_fork(clean_environment(PYTHONPATH=str(tmp_path)))


def test_a_command(folder: Path) -> None:
    assert folder.is_dir()
    assert process("status").raw == process("status", env={"PYTHONHASHSEED": "1"}).raw
    assert os.getpid() != os.getppid()
