"""`lace why`: the tree of a fact, or what failed; with a stand-in, and with explanations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lace.query.result import Result
from tests.cli.running import call

if TYPE_CHECKING:
    from lace.record.model import Blob, Plex, Seal

    Records = list[Blob | Plex | Seal]

PATHS = "Path(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z).\n"


@dataclass(frozen=True)
class Told:
    """What an explanation is to the command."""

    predicate: str
    values: tuple[str, ...]
    holds: bool

    def __str__(self) -> str:
        return f"{self.predicate} {'holds' if self.holds else 'fails'}\n  because\x1b[31m"

    def to_json(self) -> dict[str, Any]:
        return {"fact": [self.predicate, *self.values], "holds": self.holds}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "paths.lace").write_text(PATHS)
    (tmp_path / "edges.facts").write_text("Edge('a','b')\nEdge('b','it\\'s')\n")
    return ("--rules", "paths.lace", "--facts", "edges.facts")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    def why(result: Result, predicate: str, *values: str) -> Told:
        known = result[f"{predicate}/{len(values)}"] if predicate == "Path" else frozenset()
        return Told(predicate, values, values in known)

    monkeypatch.setattr(Result, "why", why)


@pytest.mark.usefixtures("told")
def test_what_the_command_makes_of_an_explanation(files: tuple[str, ...]) -> None:
    done = call("why", *files, "Path('a','it\\'s')")
    assert (done.code, done.out.split("\n")[0], done.err) == (0, "Path holds", "")
    done = call("why", "Path('a','a')", *files)
    assert (done.code, done.out.split("\n")[0]) == (1, "Path fails")
    done = call("why", *files, "Path('a','b')", "--json")
    assert done.json() == {"fact": ["Path", "a", "b"], "holds": True}
    done = call("why", *files, "Path('b','a')", "--json")
    assert (done.code, done.json()["holds"]) == (1, False)
    assert call("why", *files, " Path('a','b'). ").code == 0


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (
            "Path(a,b)",
            "'Path(a,b)' is not a fact line [050-23]; write it like a line of `lace query`",
        ),
        ("Path", "is not a fact line"),
        ("", "is not a fact line"),
        ("Path('e\u0301','b')", "is not in NFC [020-14]"),
        (f"Path('{'x' * 1025}','b')", "max_value_bytes=1024"),
    ],
)
def test_what_is_no_question(files: tuple[str, ...], fact: str, words: str) -> None:
    done = call("why", *files, fact)
    assert (done.code, done.raw) == (1, b"")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_wrong_usage(files: tuple[str, ...]) -> None:
    assert call("why", *files).code == 2
    assert call("why", "Path('a','b')").code == 2
    assert call("why", "--rules", "missing", "Path('a','b')").code == 2
    assert call("why", *files[:2], "Path('a','b')").code == 2  # no lace
    bad = call("why", "--rules", "-", *files[2:], "Path('a','b')", given=b"Path(X,Y) :- Edge(X).")
    assert bad.code == 1
    assert "standard input:1:8: head variable Y" in bad.err
    limited = call("why", *files, "Path('a','b')", "--set", "max_work=1")
    assert limited.code == 1
    assert "max_work=1" in limited.err


# -- with the explanations themselves ------------------------------------------------------------


def test_the_tree_of_a_fact(files: tuple[str, ...]) -> None:
    done = call("why", *files, "Path('a','it\\'s')")
    assert done.code == 0
    for part in ("Path('a','it\\'s')", "Path('a','b')", "Edge('a','b')", "Edge('b','it\\'s')"):
        assert part in done.out
    assert call("why", *files, "Edge('a','b')").code == 0


def test_why_not(files: tuple[str, ...]) -> None:
    done = call("why", *files, "Path('b','a')")
    assert done.code == 1
    assert "Edge(" in done.out
    assert call("why", *files, "Edge('b','a')").code == 1
    assert call("why", *files, "Path('b','a')", "--json").json()["holds"] is False
    unknown = call("why", *files, "Pahth('a','b')")
    assert unknown.code == 1
    assert "Path" in unknown.out


def test_over_a_lace(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    Path("notes.lace").write_text("Selected(P) :- Have(P), Field(P,'App',_,'notes').\n")
    done = call("why", "--rules", "notes.lace", f"Selected('{records[1].id}')")
    assert done.code == 0
    assert f"Have('{records[1].id}')" in done.out
    assert call("why", "--rules", "notes.lace", f"Selected('{records[0].id}')").code == 1
