"""Every command of the register: no lace, a wrong path, a reader that goes, and Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from lace.cli.failures import Choice
from lace.cli.main import run
from lace.cli.session import Session
from tests.cli.interrupting import interrupted
from tests.cli.links import hashes
from tests.cli.running import call, call_at_terminal
from tests.cli.samples import MORE, SAMPLES, Sample, make_place, sample, words_in, words_of
from tests.cli.test_help import COMMANDS

if TYPE_CHECKING:
    from tests.cli.links import Party
    from tests.cli.running import Result

WITHOUT_LACE = frozenset(
    {
        *("init", "rules check", "rules fmt", "rules canonical", "rules id", "rules graph"),
        *("plan", "test", "trace show", "trace replay", "pipeline status", "config show"),
        *("completion", "doctor", "explain"),
    }
)
"""They say what they have to say wherever they are called."""
MISSING = "nowhere/missing"


@pytest.fixture
def left(tmp_path: Path) -> Party:
    return make_place(tmp_path)


# -- colours -------------------------------------------------------------------------------------

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_no_colour_where_none_is_wanted(left: Party) -> None:
    coloured = set()
    for name in sorted(WITHOUT_LACE | {"status", "list", "log", "query", "disclose", "preview"}):
        if name.startswith("trace"):
            continue
        words = words_of(name, left)
        plain = call_at_terminal(*words, columns=80)
        assert "\x1b" not in plain.out, name
        assert "\x1b" not in call_at_terminal(*words, "--no-color", columns=80, env={"A": ""}).out
        if COLOUR.search(call_at_terminal(*words, columns=80, env={"A": ""}).out):
            coloured.add(name)
    assert {"status", "list", "test"} <= coloured, "else this would hold of anything"


# -- no lace here --------------------------------------------------------------------------------


def test_where_no_lace_is(left: Party) -> None:
    assert call(*words_of("sync", left)).code == 0  # makes the capture
    shutil.rmtree(left.folder)
    found = set()
    for name, each in SAMPLES.items():
        words = [left.verifier if word == "KEY" else word for word in each.arguments]
        done = call(*words, given=each.given)
        assert "Traceback" not in done.err
        if "there is no lace here, nor" in done.err:
            found.add(name)
            assert (done.code, done.raw) == (2, b""), name
            assert done.err.splitlines()[-1] == (
                "lace: there is no lace here, nor in any folder above; "
                "make one with `lace init`, or name one with --lace DIR"
            )
            named = call("--lace", MISSING, *words, given=each.given)
            assert named.code == 2, name
            assert f"make one: `lace --lace {MISSING} init`" in named.err, name
        else:
            assert done.code in each.codes, (name, done.err)
    assert found == SAMPLES.keys() - WITHOUT_LACE


# -- wrong paths ---------------------------------------------------------------------------------

FILES = re.compile(r"FILE|DIR|CERT|PATH")
ALREADY_TRIED = frozenset({"--lace", "--tls-key"})
"""Above, and with its pair."""


WHY = next(each for name, each in MORE if name == "why" and "--select" in each.arguments)
EXCHANGE = ("--select", "--peer-select", "--expose", "--advertised", "--runtime")
INSTEAD: dict[str, Sample] = {
    **{f"why {option}": WHY for option in EXCHANGE},
    "disclose --select": sample("disclose", "--viewer", "KEY", "--peer-select", "team.lace"),
    "export --rules": sample("export", "--rules", "rules.lace", "-o", "out.records"),
    "remove --rules": sample("remove", "--rules", "rules.lace", "--yes"),
}
"""Samples that have room for an option where the usual one has not."""


def path_options(name: str) -> list[str]:
    """The options of a command that take the path of a file or folder."""
    found = []
    for param in COMMANDS[f"lace {name}"].params:
        if isinstance(param, click.Option) and not param.is_flag:
            option = max(param.opts, key=len)
            if FILES.search(param.metavar or "") and option not in ALREADY_TRIED:
                found.append(option)
    return found


PAIRS = {"--tls-cert": "--tls-key"}
"""One is refused without the other."""


def with_path(words: list[str], option: str) -> list[str]:
    """A command line with that option naming what is not there, instead of what it named."""
    words = list(words)
    if option in PAIRS:
        words = with_path(words, PAIRS[option])
    behind = words.index("--") if "--" in words else len(words)
    if option in words[:behind]:
        words[words.index(option) + 1] = MISSING
        return words
    return [*words[:behind], option, MISSING, *words[behind:]]


def test_options_with_a_path_that_leads_nowhere(left: Party) -> None:
    tried, faults = [], []
    assert call(*words_of("sync", left)).code == 0  # makes the capture
    for name, each in SAMPLES.items():
        for option in path_options(name):
            words = words_in(INSTEAD.get(f"{name} {option}", each), left)
            done = call(*with_path(words, option), given=each.given)
            tried.append(f"{name} {option}")
            faults += refusal_faults(tried[-1], done)
    assert faults == []
    assert {"query --rules", "sync --select", "sync --ca", "export --output"} <= set(tried)
    assert len(tried) > 40


def test_arguments_with_a_path_that_leads_nowhere(left: Party) -> None:
    tried, faults = set(), []
    files = {each.name for each in Path().iterdir()} | {"talk.trace"}
    for name, each in SAMPLES.items():
        words = words_in(each, left)
        behind = words.index("--") if "--" in words else len(words)
        for at in range(2, behind):
            if words[at] in files and words[at - 1] != "--lace" and words[at] != "new":
                done = call(*words[:at], MISSING, *words[at + 1 :], given=each.given)
                tried.add(name)
                faults += refusal_faults(f"{name}, not {words[at]}", done)
    for line in OTHERS:
        done = call("--lace", left.folder, *line.split())
        faults += refusal_faults(line, done)
    assert faults == []
    arguments = {"import", "test", "trace show", "trace replay", "pipeline status"}
    assert arguments | {f"rules {name}" for name in ("check", "fmt", "canonical", "id")} <= tried


OTHERS = (
    f"put {MISSING}",
    f"pipeline ingest wh {MISSING}",
    f"pipeline run wh {MISSING} --rules rules.lace",
    f"pipeline run wh some.records --rules {MISSING}",
    f"pipeline evaluate wh --rules {MISSING}",
    f"pipeline evaluate {MISSING} --rules rules.lace",
    f"pipeline export wh --rules {MISSING} -o out",
    *(f"pipeline {name} {MISSING}" for name in ("facts", "status", "verify")),
    f"pipeline export {MISSING} --all -o out",
    f"pipeline advertise {MISSING} --source V.x.H3",
    f"pipeline diff {MISSING} a b",
    f"pipeline diff wh {MISSING}.facts {MISSING}.facts",
    f"serve tcp:127.0.0.1:0 --select {MISSING}",
    *(
        f"serve tcp:127.0.0.1:0 --select all.lace --plain {option} {MISSING}"
        for option in ("--expose", "--uid-map", "--channel-cert", "--warehouse")
    ),
    f"serve wss:127.0.0.1:0 --select all.lace --tls-cert {MISSING} --tls-key {MISSING}",
)
"""Command lines that are refused before Spark is started, or anybody listened to."""


def refusal_faults(what: str, done: Result) -> list[str]:
    """Say what is wrong with how a path was refused: not one line with the path, or the code."""
    lines = [line for line in done.err.splitlines() if line.startswith("lace: ")]
    is_told = len(lines) == 1 and "nowhere" in lines[0] and "Traceback" not in done.err
    return [] if done.code == 2 and is_told else [f"{what}: {done.code}, {done.err}"]


# -- slips ---------------------------------------------------------------------------------------


def test_every_choice_says_what_was_perhaps_meant() -> None:
    found = 0
    for path, command in COMMANDS.items():
        for param in command.params:
            if isinstance(param.type, click.Choice):
                assert isinstance(param.type, Choice), (path, param.name)
                meant = max(param.type.choices, key=len)
                slip = f"{meant}x"
                with pytest.raises(click.BadParameter, match=rf"did you mean '{meant}'\?"):
                    param.type.convert(slip, param, click.Context(command))
                found += 1
    assert found > 8


# -- a reader that goes --------------------------------------------------------------------------


def call_for_nobody(words: list[str], given: bytes) -> tuple[int, str]:
    """Run a command in this process whose standard output nobody reads any more."""
    before = sys.stdin, sys.stdout, sys.stderr
    reading, writing = os.pipe()
    os.close(reading)
    errors = io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(given))
    sys.stdout, sys.stderr = os.fdopen(writing, "w", encoding="utf-8"), errors
    try:
        return run(words, Session({})), errors.getvalue()
    finally:
        sys.stdout.close()
        sys.stdin, sys.stdout, sys.stderr = before


def test_a_reader_that_has_gone(left: Party) -> None:
    silent = set()
    for name, each in SAMPLES.items():
        code, told = call_for_nobody(words_of(name, left), each.given)
        assert "Traceback" not in told, name
        assert "Broken pipe" not in told, name
        if code in each.codes and code != 141:
            silent.add(name)
        else:
            assert code == 141, (name, code, told)
    assert silent == {"rules fmt", "export", "preview"}, "they have nothing to write there"


# -- Ctrl-C --------------------------------------------------------------------------------------


LONG = frozenset(
    {
        *("list", "facts", "rules check", "query", "why", "preview", "disclose", "test"),
        *("remote get", "remote list", "remote store", "sync", "trace show"),
        *("trace replay", "export", "verify", "pipeline status"),
    }
)
"""`remote watch`, `serve`, the demonstration and stages of the pipeline have tests of their own."""


def test_ctrl_c_in_the_middle(left: Party) -> None:
    """What stays is said, and run again the command does what it is there for."""
    for name in (name for name in SAMPLES if name in LONG):
        each, words = SAMPLES[name], words_of(name, left)
        whole, calls = interrupted(words, each.given, None)
        assert whole.code in each.codes, (name, whole.err)
        done, _counted = interrupted(words, each.given, calls // 2)
        assert done.code == 130, (name, done.err)
        assert re.match(r"lace: interrupted; \w+ ", done.err.splitlines()[-1]), name
        assert "Traceback" not in done.err
        assert call(*words, given=each.given).code in each.codes, name
    assert call("--lace", left.folder, "verify").code == 0


@pytest.mark.parametrize("name", ["put", "import", "remove", "key new"])
def test_ctrl_c_at_any_moment_of_a_change(left: Party, name: str) -> None:
    """It says that nothing was changed where that is true, and else what was."""
    each, words = SAMPLES[name], words_of(name, left)
    place = left.folder
    kept = Path("kept")
    shutil.copytree(place, kept)
    done, calls = interrupted(words, each.given, None)
    assert done.code == 0
    after, changed = state(left), 0
    for part in range(1, 16):
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        before = state(left)
        done, _counted = interrupted(words, each.given, calls * part // 16)
        assert done.code in (0, 130), done.err
        told = done.err.splitlines()[-1] if done.code else ""
        found = state(left)
        if name != "key new":  # another key each time
            assert found in (before, after), "all of it, or nothing"
        if found != before:
            changed += 1
            assert "nothing was changed" not in told
    assert 0 < changed < 15, "an interrupt came before, and one behind the change"
    assert call("--lace", place, "verify").code == 0


def state(left: Party) -> tuple[set[str], int]:
    """The records of a lace, and how many keys it has."""
    return hashes(left), len(call("--lace", left.folder, "key", "list").lines)
