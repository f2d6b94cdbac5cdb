"""Records that rules choose: `export --rules` and `remove --rules`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from tests.cli.running import call, on_terminal

if TYPE_CHECKING:
    from lace.record.model import Blob, Plex, Seal

    Records = list[Blob | Plex | Seal]

NOTES = "Selected(P) :- Have(P), Field(P,'App',_,'notes').\n"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    text = (
        NOTES
        + "Linked(T) :- RecordLink(_,_,_,_,T).\nBlobs(H) :- BlobHash(_,H).\nPair(P,P) :- Have(P).\n"
    )
    (tmp_path / "notes.lace").write_text(text)
    return "notes.lace"


def test_export(filled: Path, records: Records, rules: str) -> None:
    assert filled.is_dir()
    chosen = sorted(records[1:], key=lambda record: record.id)
    done = call("export", "--rules", rules)
    assert (done.code, done.err) == (0, "")
    assert done.raw == b"".join(record.bytes for record in chosen)
    done = call("export", "--rules", "-", "-o", "out", "--json", given=NOTES.encode())
    assert [each["id"] for each in done.json_lines()] == [record.id for record in chosen]
    assert Path("out").read_bytes() == b"".join(record.bytes for record in chosen)


def test_values_that_are_no_record_are_counted(filled: Path, records: Records, rules: str) -> None:
    assert filled.is_dir()
    done = call("export", "--rules", rules, "--predicate", "Linked/1")
    assert (done.code, done.raw, done.err) == (0, records[0].bytes, "")
    done = call("export", "--rules", rules, "--predicate", "Blobs/1")
    assert (done.code, done.raw) == (0, b"")
    assert done.err == "3 values of Blobs/1 are no records of this lace\n"
    done = call("export", "--rules", "-", given=b"Selected('x') :- true.\nSelected('') :- true.")
    assert "2 values of Selected/1 are no records" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--predicate", "Pair/2"], 2, "Pair/2 has 2 arguments"),
        (["--predicate", "Linkd/1"], 2, "did you mean Linked/1?"),
        (["--set", "max_work=1"], 1, "max_work=1"),
        (["--set", "max_rules=1"], 1, "max_rules=1"),
        (["B.x"], 2, "exclude each other"),
    ],
)
@pytest.mark.parametrize("command", [["export", "-o", "never"], ["remove", "--yes"]])
def test_refusals(
    filled: Path, rules: str, command: list[str], arguments: list[str], code: int, words: str
) -> None:
    assert filled.is_dir()
    done = call(*command, "--rules", rules, *arguments)
    assert (done.code, done.raw) == (code, b"")
    assert words in done.err
    assert not Path("never").exists()
    assert len(call("list").lines) == 4


def test_more_refusals(filled: Path) -> None:
    assert filled.is_dir()
    for command in (["export"], ["remove", "--yes"]):
        assert "nothing to" in call(*command).err
        assert "goes with --rules" in call(*command, "B.x", "--predicate", "A/1").err
        assert call(*command, "--rules", "missing").code == 2
        done = call(*command, "--rules", "-", given=b"Other(P) :- Have(P).")
        assert done.code == 2
        assert "no rule defines 'Selected/1'; name the predicate that chooses" in done.err
        done = call(*command, "--rules", "-", given=b"Selected(P) :- ")
        assert done.code == 1
        assert "standard input:1" in done.err
    assert "add --yes" in call("remove", "--rules", "-", given=NOTES.encode()).err


def test_remove(filled: Path, records: Records, rules: str) -> None:
    assert filled.is_dir()
    assert "add --yes" in call("remove", "--rules", rules).err
    done = call("remove", "--rules", rules, "--yes", "--json")
    assert done.json() == {"removed": 3, "ids": sorted(record.id for record in records[1:])}
    assert call("list").lines[0].split("\t")[0] == records[0].id
    assert call("remove", "--rules", rules, "--yes").lines == ["removed 0"]
    with open_lace(filled) as lace:
        assert lace.operations()[-2].result["removed"] == 3


def test_remove_asks(filled: Path, rules: str) -> None:
    arguments = ["--lace", filled, "remove", "--rules", rules]
    no = on_terminal(*arguments, typed=b"n\n")
    assert no.code == 1
    assert "Remove 3 records from" in no.out
    assert len(call("list").lines) == 4
    assert on_terminal(*arguments, typed=b"y\n").code == 0
    assert len(call("list").lines) == 1
    nothing = on_terminal(*arguments)
    assert nothing.code == 0
    assert "Remove" not in nothing.out
