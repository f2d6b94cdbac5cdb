"""What a person at a terminal sees: tables, colours, refusals, questions, progress."""

from __future__ import annotations

import io
import re
import sys
import time
from typing import TYPE_CHECKING, Literal

import pytest

from lace.api import open_lace
from lace.cli.link_runs import LinkLine
from lace.cli.progress import Progress, Waiting
from lace.cli.session import Session
from lace.exchange.result import Counters
from lace.exchange.transitions import State
from lace.link.events import LinkStatus
from lace.record.model import Blob, Plex
from tests.cli.links import wait_until
from tests.cli.running import call, on_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from lace.record.model import Seal

    Records = list[Blob | Plex | Seal]


def test_a_table_with_short_ids_and_times(filled: Path, records: Records) -> None:
    shown = on_terminal("--lace", filled, "list", "--no-color")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    (row,) = [line for line in shown.out.split("\n") if records[1].id[:10] in line]
    assert f"{records[1].id[:10]}…" in row
    assert records[1].id not in row
    assert "//u//notes//b" in row
    assert "2023-11-14 22:12:43" in row
    whole = on_terminal("--lace", filled, "list", "--fields", "id,TAI", "--no-color").out
    assert "1700000000:000000002" in whole
    assert "4 records" in shown.out


def test_colours_and_how_to_be_without(filled: Path) -> None:
    assert "\x1b[" in on_terminal("--lace", filled, "list").out
    assert "\x1b[" not in on_terminal("--lace", filled, "list", env={"NO_COLOR": "1"}).out
    assert "\x1b[" not in on_terminal("list", "--no-color", "--lace", filled).out
    assert "\x1b[" in on_terminal("--lace", filled, "list", env={"NO_COLOR": ""}).out


def test_repeated_headers_are_joined(filled: Path) -> None:
    shown = on_terminal("--lace", filled, "list", "--fields", "Name,Tag", "--no-color").out
    assert "x, y" in shown


def test_a_narrow_terminal_says_what_it_leaves_out(filled: Path) -> None:
    shown = on_terminal("--lace", filled, "list", "--no-color", columns=60)
    assert shown.code == 0
    for part in ("22:12:43", "//u//notes//b", "not shown whole: signed-by, size;"):
        assert part in shown.out


def test_an_empty_lace(folder: Path) -> None:
    assert "no records yet" in on_terminal("--lace", folder, "list").out
    assert "no records start with //x" in on_terminal("--lace", folder, "list", "x").out


def test_a_long_listing_is_cut_and_says_so(folder: Path) -> None:
    with open_lace(folder) as lace:
        lace.add_all([Blob(b"%d" % number) for number in range(1001)])
    shown = on_terminal("--lace", folder, "list", "--no-color").out
    assert "these are the first 1,000 of 1,001" in shown
    assert shown.count("B.") == 1000
    assert on_terminal("--lace", folder, "list", "--limit", 1001).out.count("B.") == 1001
    assert len(call("list").lines) == 1001


@pytest.mark.parametrize("command", ["get", "export"])
def test_record_bytes_are_refused(filled: Path, command: str) -> None:
    shown = on_terminal("--lace", filled, command, "//u//notes//a")
    assert shown.code == 1
    assert "-o FILE" in shown.out
    assert ("--body shows only the data" in shown.out) == (command == "get")
    assert "newer" not in shown.out


def test_data_is_shown_when_it_is_plain_text(filled: Path) -> None:
    assert on_terminal("--lace", filled, "get", "//u//notes//a", "--body").out == "newer\n"
    texts = {
        "grüße\tzwei\nzeilen\n".encode(): 0,
        b"a\r\nb": 0,
        b"\x1b[31mred": 1,
        "\u202eevil".encode(): 1,
        b"\xff": 1,
    }
    for data, code in texts.items():
        identifier = call("put", given=data).lines[0]
        shown = on_terminal("--lace", filled, "get", identifier, "--body")
        assert shown.code == code, data
        if code:
            assert "these data are not for a terminal" in shown.out


def test_everything_but_the_data_is_shown_as_json(filled: Path) -> None:
    shown = on_terminal("--lace", filled, "get", "//u//notes//a", "--json")
    assert '\n  "data_length": 5\n' in shown.out


def test_remove_asks(filled: Path) -> None:
    no = on_terminal("--lace", filled, "remove", "//u//notes//a", typed=b"n\n")
    assert no.code == 1
    assert "Remove 1 record from" in no.out
    assert "nothing was done" in no.out
    assert on_terminal("--lace", filled, "remove", "//u//notes//a", typed=b"\x04").code == 1
    assert on_terminal("--lace", filled, "remove", "//u//notes//a", typed=b"\x03").code == 130
    assert len(call("list").lines) == 4
    assert on_terminal("--lace", filled, "remove", "//u//notes//a", typed=b"y\n").code == 0
    assert len(call("list").lines) == 3
    assert on_terminal("--lace", filled, "remove", "//u//notes//a", "--yes").code == 0
    assert [e["exit_code"] for e in call("log", "--json").json_lines()] == [130, 0, 0]


def test_put_from_the_keyboard(folder: Path) -> None:
    shown = on_terminal("--lace", folder, "put", typed=b"typed\n\x04")
    assert "end with Ctrl-D" in shown.out
    assert Blob(b"typed\n").id in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["log"],
        ["key", "list"],
        ["config", "show"],
        ["doctor"],
        ["verify"],
        ["init"],
        ["facts"],
    ],
)
def test_other_answers_for_people(filled: Path, arguments: list[str]) -> None:
    call("key", "new")
    shown = on_terminal("--lace", filled, *arguments, "--no-color")
    assert shown.code == 0
    assert shown.out
    assert "\x1b" not in shown.out
    assert "\t" not in shown.out


def test_import_table(folder: Path, file: Path) -> None:
    shown = on_terminal("--lace", folder, "import", file, "--no-color")
    assert [line.split() for line in shown.out.split("\n") if line.strip()] == [
        ["stored", "4"],
        ["known", "0"],
        ["rejected", "0"],
    ]


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def bar(monkeypatch: pytest.MonkeyPatch, seconds: float, quiet: bool = False) -> str:
    """What a progress bar writes when the work takes that long."""
    screen = _Screen()
    clock = [time.monotonic()]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("lace.cli.progress.time.monotonic", lambda: clock[0])
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    session = Session({})
    session.output.quiet = quiet
    with Progress(session, "import", 2000, "bytes") as progress:
        progress.update(1, "1 stored")
        clock[0] += seconds
        progress.update(1000, "10 stored")
        progress.update(1500, "15 stored")
    return screen.getvalue()


def test_progress_comes_after_a_second_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bar(monkeypatch, 0.9) == ""
    assert bar(monkeypatch, 1.5, quiet=True) == ""
    shown = bar(monkeypatch, 1.5)
    assert "import" in shown
    assert "15 stored" in shown


@pytest.mark.parametrize("unit", ["bytes", "records"])
def test_a_bar_tells_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, unit: Literal["bytes", "records"]
) -> None:
    """Of 10,000 in all, a thousand comes every ten seconds."""
    screen, now = _Screen(), 0.0
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("lace.cli.progress.time.monotonic", lambda: now)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress(Session({"NO_COLOR": "1"}), "import", 10_000, unit) as progress:
        progress.update(500)
        assert screen.getvalue() == "", "nothing is shown in the first second"
        for done in (1000, 2000, 3000):
            now += 10
            progress.update(done)
    shown = [each for each in screen.getvalue().split("\n") if "30%" in each][-1]
    assert "0:01:10" in shown
    assert ("100 bytes/s" if unit == "bytes" else "100 records/s") in shown


def test_a_bar_tells_no_rate_before_it_knows_one(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("lace.cli.progress._AFTER_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress(Session({"NO_COLOR": "1"}), "import", 2000, "bytes") as progress:
        progress.update(2000, "all stored")
    assert "all stored" in screen.getvalue()
    assert "?" not in screen.getvalue().replace("\x1b[?25", "")


@pytest.mark.parametrize(
    ("command", "value", "said"),
    [
        (("list",), "x", "'x' is not a whole number"),
        (("log",), "-1", "-1 is less than 0"),
        (("serve", "stdio", "--select", "a"), "0", "0 is less than 1"),
    ],
)
def test_a_number_that_is_none(command: tuple[str, ...], value: str, said: str) -> None:
    option = "--max-links" if command[0] == "serve" else "--limit"
    shown = on_terminal(*command, option, value)
    assert shown.code == 2
    assert f"invalid value for '{option}': {said}; see `lace" in shown.out.lower().replace(
        "\n", " "
    )


def test_no_progress_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Screen, "isatty", lambda _self: False)
    assert bar(monkeypatch, 5) == ""


def waiting_bar(monkeypatch: pytest.MonkeyPatch, columns: int, share: tuple[int, int]) -> str:
    """What is shown of work that counts records, once its detail was told."""
    screen = _Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("lace.cli.progress._AFTER_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    title = "sync with tcp:127.0.0.1:4790"
    with Waiting(Session({"NO_COLOR": "1"}), title, lambda: "transferring", lambda: share):
        wait_until(lambda: "transferring" in screen.getvalue())
    return screen.getvalue()


def test_an_exchange_has_a_bar_of_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = waiting_bar(monkeypatch, 80, (15_000, 20_000))
    line = [line for line in shown.split("\n") if "15,000 of 20,000 records" in line][-1]
    assert "sync with tcp:127.0.0.1:4790 " in line
    bar = line.partition("4790 ")[2].partition(" 15,000")[0]
    assert bar.startswith("━" * 14), "three quarters of twenty"
    assert len(bar.rstrip()) < 20
    idle = waiting_bar(monkeypatch, 80, (0, 0))
    assert "━" not in idle, "nothing was asked for yet"
    assert " sync with tcp:127.0.0.1:4790, " in idle
    narrow = waiting_bar(monkeypatch, 40, (15_000, 20_000))
    assert "━━━━━━━ 15,000 of 20,000 records" in re.sub(r"[ ╸╺]+", " ", narrow), (
        "the title gives way"
    )
    assert "sync with tcp:127.0.0.1:4790, " in narrow
    lines = narrow.split("\n")
    assert any(line.startswith("━") for line in lines), "no column for a title that is not there"
    assert "lsync with tcp:127.0.0.1:4790, " in lines[0], "the title comes first"
    full = waiting_bar(monkeypatch, 80, (7, 7))
    assert "━" not in full, "what has come is not under way"


def test_a_link_line_tells_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    status: LinkStatus | None = None
    line = LinkLine(lambda: status)
    seconds = 100.0
    monkeypatch.setattr("lace.cli.link_runs.time.monotonic", lambda: seconds)

    def told(requested: int, answered: int, received: int = 0) -> str:
        nonlocal status
        counters = Counters(requested=requested, answered=answered, stored=answered)
        status = LinkStatus(
            state=State.TRANSFERRING,
            waited=None,
            timeout=30,
            received=received,
            sent=0,
            counters=counters,
            records_received=0,
            records_sent=0,
            rejected=0,
            validating=0,
        )
        return line()

    assert "left" not in told(0, 0)
    assert "left" not in told(1000, 0), "nothing has come, so no rate is known"
    seconds = 102.0
    assert "about 18 s left" in told(1000, 100)
    seconds = 104.0
    assert "about 2 min left" in told(10_000, 300)
    seconds = 105.0
    assert "left" not in told(10_000, 10_000)
    assert "left" not in told(1000, 0), "another exchange"
    told(1000, 0, received=1000)
    seconds = 105.5
    assert " 0 bytes/s" in told(1000, 0, received=10), "another link counts from zero"
    seconds = 106.0
    assert "100 of 1,000 records stored" in told(1000, 100)
    assert "about 9 s left" in told(1000, 100)
