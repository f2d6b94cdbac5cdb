"""The unit files in the examples: what they start is a command line that Lace takes."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click

from lace.api.server import Metrics
from lace.cli.link_options import Event
from lace.cli.main import cli
from lace.iltp.address import parse_address
from tests.docs.examples import command_lines, parse_whole, read_blocks

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "examples" / "systemd"


def unit(name: str) -> dict[str, dict[str, str]]:
    """The sections of a unit file; a name that is there twice is refused."""
    text = re.sub(r"\\\n\s*", " ", (UNITS / name).read_text("utf-8"))
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as the parser's documentation does
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


def test_the_service_starts_a_legal_command() -> None:
    service = unit("lace.service")["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "lace"
    serve = cli.get_command(click.Context(cli), arguments[0])
    assert serve is not None
    context = serve.make_context("serve", arguments[1:], resilient_parsing=True)
    assert context.params["metrics"] == 9479
    assert context.params["is_open"]
    address = parse_address(context.params["address"], for_serving=True)
    listened = unit("lace.socket")["Socket"]["ListenStream"]
    assert listened == f"{address.host}:{address.effective_port}"
    assert unit("lace.socket")["Socket"]["Accept"] == "no"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["SuccessExitStatus"] == "143"


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Where it is installed, by its own checks; the tests beside this one read the files."""
    analyze = shutil.which("systemd-analyze")
    for path in UNITS.iterdir():
        text = path.read_text("utf-8").replace("/usr/local/bin/lace ", f"{sys.executable} -m lace ")
        (tmp_path / path.name).write_text(text, "utf-8")
    assert {path.suffix for path in tmp_path.iterdir()} == {".service", ".socket"}
    if analyze is None:
        for path in UNITS.iterdir():
            assert unit(path.name)["Unit"]["Description"]
        return
    names = [f"./{path.name}" for path in sorted(tmp_path.iterdir())]
    command = [analyze, "verify", "--man=no", *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "lace." in line]
    assert told == [], "this is about our units"
    assert done.returncode == 0, done.stderr


def test_the_commands_of_the_page_are_ones_that_lace_takes() -> None:
    page = ROOT / "docs" / "how-to" / "serve-under-systemd.md"
    texts = [block.text for block in read_blocks(page) if block.language == "sh"]
    found = [words for text in texts for words in command_lines(text)]
    assert found
    for words in found:
        parse_whole(words)
    for name in re.findall(r"examples/systemd/([\w.]+)", " ".join(texts)):
        assert (UNITS / name).is_file()


def test_the_page_tells_of_what_is_there() -> None:
    page = (ROOT / "docs" / "how-to" / "serve-under-systemd.md").read_text("utf-8")
    service = unit("lace.service")["Service"]
    for name in re.findall(r"`([A-Z][A-Za-z]+)=[^`]*`", page.partition("| why |")[2]):
        assert name in service, name
    for name in ("SuccessExitStatus", "RestartPreventExitStatus", "TimeoutStopSec"):
        assert f"`{name}={service[name]}`" in page


def test_the_page_tells_of_every_event() -> None:
    page = (ROOT / "docs" / "how-to" / "serve-under-systemd.md").read_text("utf-8")
    table = page.partition("| event |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)} == set(
        get_args(Event)
    )


def test_the_page_tells_of_every_figure() -> None:
    page = (ROOT / "docs" / "how-to" / "serve-under-systemd.md").read_text("utf-8")
    told = re.sub(r"…([a-z]+)…", r"lace_records_\1_total", page)
    told = told.replace("with `record_` in front", "lace_record_received_bytes_total")
    for name in re.findall(r"^# TYPE (\S+)", Metrics().page(None), re.MULTILINE):
        assert name.replace("lace_record_sent", "lace_record_received") in told, name
