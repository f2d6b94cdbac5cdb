"""The command as a whole: options in any place, settings, errors, exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lace.api import Lace
from lace.cli.main import cli
from lace.cli.output import Output, size_text
from lace.cli.session import Session
from tests.cli.running import call, on_terminal, process

if TYPE_CHECKING:
    from collections.abc import Callable


def error_object(err: str) -> dict[str, object]:
    found = json.loads(err.strip().split("\n")[-1])["error"]
    assert isinstance(found, dict)
    return found


def test_no_arguments_show_the_help() -> None:
    done = call()
    assert done.code == 0
    assert done.out.startswith("Usage: lace")
    assert "lace completion bash" in done.out
    assert done.out == call("--help").out == call("-h").out


def test_no_arguments_show_the_help_at_a_terminal() -> None:
    done = on_terminal()
    assert done.code == 0
    assert "\\u{a}" not in done.out
    assert done.out == on_terminal("--help").out
    assert "Commands:" in done.lines


def test_version() -> None:
    done = call("list", "--version")
    assert done.code == 0
    assert done.out.startswith("lace ")


def test_click_runner_sees_the_same_tree() -> None:
    done = CliRunner().invoke(cli, ["put", "--help"], obj=Session({}))
    assert done.exit_code == 0
    assert "--group" in done.output


@pytest.mark.parametrize("name", ["--json", "--quiet", "--no-color", "--debug"])
def test_flags_stand_before_or_after(folder: Path, name: str) -> None:
    assert folder.is_dir()
    assert call(name, "status").raw == call("status", name).raw
    assert call(name, "key", "list").raw == call("key", name, "list").raw


def test_lace_option_stands_anywhere(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.move(folder, other)
    assert call("status").code == 2
    for arguments in (
        ["--lace", other, "status"],
        ["status", "--lace", other],
        ["key", "--lace", other, "list"],
    ):
        assert call(*arguments).code == 0, arguments
    assert call("status", env={"LACE_DIR": str(other)}).code == 0
    assert call("--lace", "nowhere", "status", env={"LACE_DIR": str(other)}).code == 2


def test_the_nearest_lace_upward_is_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert call("status", "--json").json()["lace"] == str(folder.resolve())


def test_without_a_lace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    done = call("list")
    assert done.code == 2
    assert done.err.startswith("lace: there is no lace here")
    assert "lace init" in done.err
    assert done.raw == b""


def test_without_the_lace_that_is_named(tmp_path: Path) -> None:
    named = tmp_path / "not there"
    wanted = f"make one: `lace --lace '{named}' init`"
    assert wanted in call("--lace", named, "list").err
    assert wanted in call("put", "-", env={"LACE_DIR": str(named)}).err
    assert wanted.replace("`", "") in call("--lace", named, "doctor").out


def test_settings_are_shown_beside_a_wrong_one(folder: Path) -> None:
    (folder / "lace.toml").write_text("foo = 3\nmax_links = 7\nwait_seconds = 'x'\n")
    done = call("config", "show")
    assert done.code == 2
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in done.lines}
    assert rows["max_links"][0] == "7"
    assert rows["wait_seconds"][2] == "default"
    first, last = done.err.splitlines()
    assert "lace.toml: there is no setting 'foo'" in first
    assert "wait_seconds takes a whole number" in last
    (folder / "lace.toml").write_text("record_formats = ['H9']\n")
    wrong = "setting record_formats: each of the suffixes must be one of H3, got 'H9'"
    for done in (call("config", "show"), call("status")):
        assert done.code == 2
        assert f"lace.toml: {wrong}" in done.err
    (folder / "lace.toml").write_text("")
    assert f"--set: {wrong}" in call("config", "show", "--set", "record_formats=H9").err
    (folder / "lace.toml").write_text("foo = \n")
    done = call("config", "show", "--json")
    assert done.code == 2
    assert len(done.json()["settings"]) == len(rows)
    assert "lace.toml cannot be read" in done.err


def test_peers_are_settings(folder: Path) -> None:
    (folder / "lace.toml").write_text(
        "[peer.office]\naddress = 'tcp:x'\nselect = 'gone.lace'\nexpose = ['../v.lace']\n"
        "plain = true\n[peer.other]\naddres = 'tcp:y'\n[peer.third]\naddress = 'tcp:z'\n"
    )
    (folder.parent / "v.lace").touch()
    done = call("config", "show")
    rows = {line.split("\t")[0]: line.split("\t")[1] for line in done.lines if "peer." in line}
    assert rows == {
        "peer.office.address": "tcp:x",
        "peer.office.select": str(folder / "gone.lace"),
        "peer.office.expose": f'["{folder}/../v.lace"]',
        "peer.office.plain": "true",
        "peer.third.address": "tcp:z",
    }
    assert done.code == 2
    assert "[peer.other]: a peer has no 'addres'; did you mean 'address'?" in done.err
    lost = f"there is no file {folder / 'gone.lace'}; names in it count from the folder of the lace"
    assert lost in done.err
    assert "v.lace" not in done.err
    peers = call("config", "show", "--json").json()["peers"]
    assert [each["name"] for each in peers] == ["office", "third"]
    assert peers[0]["plain"] is True
    refused = call("sync", "office")
    assert refused.code == 2
    assert lost in refused.err
    assert lost in call("remote", "watch", "office").err
    own = call("sync", "office", "--select", folder.parent / "v.lace")
    assert (own.code, "gone.lace" in own.err) == (1, False), "the command line goes over the table"


def test_the_error_of_json_is_as_its_page_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
    (shown,) = [line for line in page.read_text("utf-8").split("\n") if line.startswith('{"error"')]
    told = error_object(call("config", "show", "nonsense", "--json").err)
    assert list(json.loads(shown)["error"]) == list(told)


def setting(name: str, *arguments: object, env: dict[str, str] | None = None) -> tuple[int, str]:
    shown = call("config", "show", "--json", *arguments, env=env).json()
    (found,) = [entry for entry in shown["settings"] if entry["name"] == name]
    return found["value"], found["origin"]


def test_settings_come_in_their_order(folder: Path) -> None:
    assert setting("wait_seconds") == (10, "default")
    (folder / "lace.toml").write_text("wait_seconds = 20\n[peer.x]\naddress = 1\n")
    assert setting("wait_seconds") == (20, str(folder / "lace.toml"))
    env = {"LACE_WAIT_SECONDS": "30"}
    assert setting("wait_seconds", env=env) == (30, "environment LACE_WAIT_SECONDS")
    assert setting("wait_seconds", "--set", "wait_seconds=40", env=env) == (40, "--set")
    assert setting("wait_seconds", "--wait", "50", env=env) == (50, "--set")
    assert setting("max_data_bytes", "--set", "max_data_bytes=1MiB")[0] == 1 << 20


def test_set_stands_before_and_after() -> None:
    done = call("--set", "wait_seconds=1", "config", "show", "--set", "import_workers=2")
    values = {line.split("\t")[0]: line.split("\t")[1] for line in done.lines}
    assert (values["wait_seconds"], values["import_workers"]) == ("1", "2")


@pytest.mark.parametrize(
    ("arguments", "env", "told"),
    [
        (["--set", "wait_secs=1"], {}, "did you mean wait_seconds?"),
        (["--set", "wait_seconds"], {}, "--set NAME=VALUE"),
        (["--set", "wait_seconds=x"], {}, "--set: setting wait_seconds takes a whole number"),
        (["--wait", "-1"], {}, "--wait: setting wait_seconds"),
        ([], {"LACE_WAIT_SECONDS": "soon"}, "environment LACE_WAIT_SECONDS: setting"),
    ],
)
def test_a_wrong_setting_is_refused(
    folder: Path, arguments: list[str], env: dict[str, str], told: str
) -> None:
    assert folder.is_dir()
    done = call("status", *arguments, env=env)
    assert done.code == 2
    assert told in done.err


def test_a_broken_settings_file_is_told(folder: Path) -> None:
    (folder / "lace.toml").write_text("wait_seconds = [")
    done = call("status")
    assert done.code == 2
    assert "lace.toml" in done.err
    (folder / "lace.toml").write_text("wait_seconds = 'long'")
    assert call("status").code == 2


def test_an_unknown_variable_is_a_warning(folder: Path) -> None:
    assert folder.is_dir()
    done = call("status", env={"LACE_WAIT_SECOND": "3", "LACED": "x"})
    assert done.code == 0
    assert done.err == (
        "lace: warning: the environment variable LACE_WAIT_SECOND is no setting; "
        "did you mean LACE_WAIT_SECONDS?\n"
    )


def test_usage_errors() -> None:
    done = call("lst")
    assert done.code == 2
    assert "did you mean 'list'?" in done.err
    assert call("list", "--bogus").code == 2
    assert call("key").code == 2
    assert "new, import, list, default, remove" in call("key").err
    assert call("put", "a", "b").code == 2
    assert "lace put --help" in call("put", "a", "b").err


def test_errors_as_json(filled: Path) -> None:
    assert filled.is_dir()
    done = call("get", "//u//notes//none", "--json")
    assert done.code == 1
    assert done.raw == b""
    assert error_object(done.err) == {
        "message": "not in this lace: //u//notes//none",
        "rule": None,
        "place": None,
        "hint": "`lace list` shows what is there",
        "exit_code": 1,
    }
    assert done.err.startswith("lace: not in this lace: //u//notes//none; ")
    assert error_object(call("list", "--json", "--bogus").err)["exit_code"] == 2


def test_messages_are_safe_to_show(filled: Path) -> None:
    assert filled.is_dir()
    done = call("get", "//u//notes//\x1b[31m\u202e")
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
    assert call("import", "no\x1b[31m.records").err.count("\x1b") == 0


def test_an_unforeseen_error_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.is_dir()
    monkeypatch.setattr(Lace, "status", lambda _lace: 1 / 0)
    done = call("status")
    assert done.code == 1
    assert done.err == (
        "lace: internal error: ZeroDivisionError: division by zero; "
        "run again with --debug and report it\n"
    )
    debugged = call("status", "--debug")
    assert debugged.code == 1
    assert "Traceback (most recent call last)" in debugged.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), 3),
        (OSError(28, "No space left on device", "x"), 3),
        (OSError(2, "No such file or directory", "x"), 2),
        (PermissionError(13, "Permission denied", "x"), 3),
        (BrokenPipeError(32, "Broken pipe"), 141),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes_of_what_the_system_raises(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    assert folder.is_dir()

    def fail(_lace: object) -> None:
        raise error

    monkeypatch.setattr(Lace, "status", fail)
    done = call("status")
    assert done.code == code
    assert "Traceback" not in done.err
    assert (done.err == "") == (code == 141)


def test_closed_and_full_outputs(filled: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lace", "--lace", filled, "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 3
    assert b"No space left" in done.stderr
    closed = process("--lace", filled, "list", prefix=("/bin/sh", "-c", 'exec "$0" "$@" >&-'))
    assert closed.code == 3
    assert "standard output is closed" in closed.err


IN_A_STRING = """
    exec("signal.raise_signal(signal.SIGINT)", {"signal": signal})
"""
IN_A_CALLBACK = """
    gone = type("Gone", (), {})()
    watching = weakref.ref(gone, lambda _: signal.raise_signal(signal.NUMBER))
    del gone
    time.sleep(60)
"""
AT_A_BAD_MOMENT = """
import signal, time, weakref
from lace.api import Lace
from lace.cli import main

def status(_lace):MOMENT

Lace.status = status
main.main()
"""


@pytest.mark.parametrize(
    ("moment", "code", "told"),
    [
        (IN_A_STRING, 130, b"lace: interrupted"),
        (IN_A_CALLBACK.replace("NUMBER", "SIGINT"), 130, b"lace: interrupted"),
        (IN_A_CALLBACK.replace("NUMBER", "SIGTERM"), 143, b"lace: terminated"),
    ],
    ids=["string", "callback", "terminated"],
)
def test_signals_at_bad_moments(
    folder: Path, tmp_path: Path, moment: str, code: int, told: bytes
) -> None:
    """Python takes one as nobody's that leaves the code of a string, and drops it in callbacks."""
    (tmp_path / "moment.py").write_text(AT_A_BAD_MOMENT.replace("MOMENT", moment))
    command = [sys.executable, "-m", "moment", "--lace", str(folder), "status"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.startswith(told)
    assert done.stderr.count(b"\n") == 1, "nothing of what was dropped"


def test_completion_script() -> None:
    done = process(env={"_LACE_COMPLETE": "bash_source"})
    assert done.code == 0
    assert "_LACE_COMPLETE" in done.out


def test_completion_of_command_names() -> None:
    env = {"_LACE_COMPLETE": "bash_complete", "COMP_WORDS": "lace ver", "COMP_CWORD": "1"}
    assert process(env=env).out == "plain,verify\n"


def test_a_piped_listing_loads_no_rich() -> None:
    code = (
        "import sys; from lace.cli.main import run; from lace.cli.session import Session; "
        "run(['init', '-q'], Session({})); run(['list'], Session({})); "
        "print([n for n in ('rich', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


def test_a_value_never_breaks_a_row(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write: Callable[[tuple[str, ...]], None] = Output().row
    write(("a\tb\nc", "=cmd()", "\u2028"))
    assert capsysbinary.readouterr().out == b"a\\u{9}b\\u{a}c\t=cmd()\t\\u{2028}\n"
