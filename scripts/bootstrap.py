"""Make or refresh `.venv` from the lock files, and say in one line what is done and why.

Plain standard library, run by `scripts/bootstrap`. A level is a lock file; each level contains
the ones before it. A stamp inside `.venv` tells what was installed, so that a second run does
nothing; a run that was cut off leaves its stamp unfinished and is done again from the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - the one file that may meet an older Python
    sys.exit("lace: Python 3.11 or newer is needed")

import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "lace-bootstrap.json"
GUARD = ROOT / ".venv.lock"

# Lowest first. A level's lock file holds everything that the levels before it hold.
LEVELS = {
    "run": "requirements.lock",
    "dev": "requirements-dev.lock",
    "spark": "requirements-spark.lock",
}

ENVIRONMENT_FAULT = 3
INTERRUPTED = 130


class BootstrapError(Exception):
    """Something that the person at the keyboard can put right."""


def say(text: str) -> None:
    """Tell what happens, on standard error, so that it never mixes with a command's output."""
    print(f"lace: {text}", file=sys.stderr, flush=True)


def covers(installed: str, wanted: str) -> bool:
    """Whether an environment of level `installed` serves where `wanted` is asked for."""
    order = list(LEVELS)
    return installed in order and order.index(installed) >= order.index(wanted)


def lock_digest(level: str) -> str:
    """Digest of all lock files up to and including `level`."""
    digest = hashlib.sha256()
    for name, file in LEVELS.items():
        digest.update((ROOT / file).read_bytes())
        if name == level:
            break
    return digest.hexdigest()


def project_digest() -> str:
    """Digest of what decides how the project is installed: tool settings do not matter."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)
    parts = [settings["build-system"], settings["project"], settings.get("tool", {}).get("hatch")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_stamp() -> dict[str, Any]:
    """Read the stamp; empty when there is none or it cannot be read."""
    try:
        stamp = json.loads(STAMP.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(stamp: dict[str, Any]) -> None:
    """Replace the stamp in one step."""
    fresh = STAMP.with_suffix(".new")
    fresh.write_text(json.dumps(stamp, indent=1) + "\n", "utf-8")
    fresh.replace(STAMP)


def describe_python(program: str) -> tuple[str, str]:
    """Version and installation prefix of a Python, whichever environment it belongs to."""
    code = "import platform, sys; print(platform.python_version()); print(sys.base_prefix)"
    done = subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 2:
        return "", ""
    return lines[0], lines[1]


def venv_fault(stamp: dict[str, Any]) -> str:
    """Why `.venv` cannot be used as it stands; empty when it can."""
    if stamp.get("state") == "unfinished":
        return "the last set-up was cut off"
    if stamp.get("root", str(ROOT)) != str(ROOT):
        return "the folder has moved"
    version, prefix = describe_python(str(VENV_PYTHON)) if VENV_PYTHON.exists() else ("", "")
    if not version:
        return "its Python no longer runs"
    if tuple(int(part) for part in version.split(".")[:2]) < (3, 11):
        return f"it has Python {version}"
    if "python" in stamp and stamp["python"] != version:
        return f"its Python changed to {version}"
    chosen = os.environ.get("PYTHON")
    if chosen and describe_python(chosen) != (version, prefix):
        return f"PYTHON={chosen} was asked for"
    return ""


def is_current(stamp: dict[str, Any], wanted: str) -> bool:
    """Whether everything that `wanted` needs is installed and unchanged."""
    level = stamp.get("level", "")
    return (
        stamp.get("state") == "ready"
        and covers(level, wanted)
        and stamp.get("root") == str(ROOT)
        and stamp.get("locks") == lock_digest(level)
        and stamp.get("project") == project_digest()
    )


def check(wanted: str) -> int:
    """Answer quickly, from inside `.venv`: 0 when nothing needs doing."""
    stamp = read_stamp()
    if not is_current(stamp, wanted) or stamp.get("python") != sys.version.split()[0]:
        return 1
    chosen = os.environ.get("PYTHON")
    if chosen and describe_python(chosen) != (stamp["python"], sys.base_prefix):
        return 1
    return 0


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Let one bootstrap of this folder run at a time; the others wait."""
    import fcntl

    with GUARD.open("w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another set-up of .venv to finish")
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def make_venv(reason: str) -> None:
    """Make `.venv` anew with the Python that runs this."""
    version = sys.version.split()[0]
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        major, minor = sys.version_info[:2]
        raise BootstrapError(
            f"Python {version} ({sys.executable}) lacks {' and '.join(missing)};"
            f" on Debian or Ubuntu: apt install python{major}.{minor}-venv;"
            " or name another Python: make PYTHON=/path/to/python3 …"
        )
    if VENV.exists() and not (VENV / "pyvenv.cfg").exists() and any(VENV.iterdir()):
        raise BootstrapError(".venv exists and is not a virtual environment; move it away first")
    say(f"making .venv with Python {version}" + (f", because {reason}" if reason else ""))
    command = [sys.executable, "-I", "-m", "venv", "--clear", str(VENV)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise BootstrapError("could not make .venv (see above); is the disk full?")


def pip(*arguments: str) -> None:
    """Run the environment's own pip, quietly; on failure show what it said."""
    ignored = (
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_REQUIREMENT",
    )
    environment = {name: value for name, value in os.environ.items() if name not in ignored}
    environment |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    command = [str(VENV_PYTHON), "-I", "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise BootstrapError(explain(done.stdout + done.stderr))


def explain(output: str) -> str:
    """Turn pip's failure into what to try."""
    if "hashes" in output.lower() and "match" in output.lower():
        return (
            "a package differs from its locked hash; nothing was installed: ask why before going on"
        )
    if "No space left" in output:
        return "the disk is full; make room and run this again"
    if "No matching distribution" in output or "Could not find a version" in output:
        return (
            "a locked package has no build for this machine's Python, or the package index cannot"
            " be reached; try Python 3.11, 3.12 or 3.13 (make PYTHON=python3.13 …) and check the"
            " network"
        )
    return "pip failed (see above); check the network and the package index, then run this again"


def install_lock(level: str) -> None:
    """Install exactly what a lock file says: wheels only, so that nothing unpinned is fetched."""
    file = LEVELS[level]
    count = len(
        re.findall(r"^[A-Za-z0-9][^\s=]*==", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    )
    say(f"installing {count} packages from {file}")
    # The lock file is whole. Without looking at what packages ask for: a newer version of one that
    # is asked for with an extra, as `coverage[toml]`, would be taken for one without a hash.
    options = ["--require-hashes", "--only-binary=:all:", "--no-deps"]
    if level == "spark":
        # pyspark comes as source only; it builds with the setuptools that the dev lock pins.
        pip(*options, "-r", LEVELS["dev"])
        options += ["--no-binary=pyspark", "--no-build-isolation"]
    pip(*options, "-r", file)


def prepare(wanted: str) -> None:
    """Bring `.venv` to the wanted level."""
    stamp = read_stamp()
    fault = venv_fault(stamp) if VENV.exists() else ""
    if is_current(stamp, wanted) and not fault:
        return  # another set-up finished it while this one waited
    started = time.monotonic()
    fresh = bool(fault) or not VENV.exists()
    level = wanted if not covers(stamp.get("level", ""), wanted) else stamp["level"]
    if fresh:
        make_venv(fault)
    before = {} if fresh else stamp
    try:
        write_stamp({"state": "unfinished", "level": level, "root": str(ROOT)})
        if before.get("level") != level or before.get("locks") != lock_digest(level):
            install_lock(level)
        pip("--no-deps", "--no-build-isolation", "--no-index", "--editable", ".")
    except BootstrapError:
        # pip undoes its own failures, so what was there before still stands.
        if before.get("state") == "ready":
            write_stamp(before)
        else:
            STAMP.unlink(missing_ok=True)
        raise
    version, _ = describe_python(str(VENV_PYTHON))
    write_stamp(
        {
            "state": "ready",
            "level": level,
            "python": version,
            "root": str(ROOT),
            "locks": lock_digest(level),
            "project": project_digest(),
        }
    )
    say(f"ready after {time.monotonic() - started:.0f} s")


def main(arguments: list[str]) -> int:
    """Run from the command line: `bootstrap.py [--check] LEVEL`."""
    quick = arguments[:1] == ["--check"]
    wanted = arguments[-1] if arguments[quick:] else "run"
    if wanted not in LEVELS:
        say(f"unknown level {wanted!r}; choose {', '.join(LEVELS)}")
        return 2
    if quick:
        return check(wanted)
    try:
        with exclusive():
            prepare(wanted)
    except BootstrapError as error:
        say(str(error))
        return ENVIRONMENT_FAULT
    except OSError as error:
        say(f"{error.strerror}: {error.filename}")
        return ENVIRONMENT_FAULT
    except KeyboardInterrupt:
        say("interrupted; the next run starts over")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
