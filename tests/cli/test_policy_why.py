"""`lace why` of an exchange: the decision and its gate first, then the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.api.policy import ask_again
from lace.query.result import AnswerLostError
from lace.record.model import Blob
from lace.store.sqlite.segments import APPEND_RECORDS
from tests.cli.policies import (
    ALL,
    BOB,
    NOTES,
    PRIVATE,
    SHARED,
    TEAM,
    advertise,
    make_lace,
    write,
)
from tests.cli.running import Result, call, on_terminal
from tests.store.samples import flip, mixed
from tests.store.segment_samples import generation

if TYPE_CHECKING:
    from pathlib import Path

SELECT = ("--select", "team.lace", "--peer-select", "all.lace")
TO_BOB = (*SELECT, "--expose", f"expose.lace@{BOB}", "--viewer", BOB)
NEW = Blob(b"new")


@pytest.fixture(autouse=True)
def lace(tmp_path: Path) -> Path:
    return make_lace(tmp_path / ".lace")


def why(*arguments: object) -> Result:
    return call("why", *arguments)


def test_a_record_that_would_be_sent() -> None:
    done = why(*TO_BOB, f"MaySend('{SHARED.id}')")
    assert (done.code, done.lines[0], done.err) == (0, "it would be sent", "")
    assert done.lines[1] == f"MaySend('{SHARED.id}')"
    for part in (
        "operand 0, ours",
        "team.lace:1",
        "operand 1, theirs",
        "all.lace:1",
        "exposure 1, expose.lace",
        "the lowering standard-v1",
    ):
        assert part in done.out, part
    assert on_terminal("why", *TO_BOB, f"MaySend('{SHARED.id}')", columns=300).out == done.out


@pytest.mark.requirement("040-110")
def test_every_gate_that_stops_sending() -> None:
    def first(*arguments: str) -> str:
        done = why(*arguments)
        assert done.code == 1
        return done.lines[0].removeprefix("it would not be sent: ")

    mine, all_of_it = ("--select", "all.lace", "--peer-select", "all.lace"), NOTES[3].id
    to_bob = ("--expose", f"expose.lace@{BOB}", "--viewer", BOB)
    assert first(*TO_BOB, f"MaySend('{NEW.id}')") == "not here"
    assert first(*TO_BOB, f"MaySend('{PRIVATE.id}')") == "not in my selector"
    assert first(*mine, *to_bob, f"MaySend('{all_of_it}')") == "not exposed to this viewer"
    assert first(*mine, f"MaySend('{all_of_it}')") == "nothing is exposed to this peer"
    write("none.lace", ALL.replace("Have(P).", "Have(P), Field(P,'Name',_,'none')."))
    theirs = ("--select", "team.lace", "--peer-select", "none.lace", *to_bob)
    assert first(*theirs, f"MaySend('{SHARED.id}')") == "not in theirs"
    encrypted = (*TO_BOB, "--lowering", "encrypted-v1")
    assert first(*encrypted, f"MaySend('{SHARED.id}')") == "transport not encrypted"


def test_the_gates_of_requests() -> None:
    write("advertised.facts", advertise(SHARED, NEW) + advertise(PRIVATE, source=BOB))
    told = (*TO_BOB, "--advertised", "advertised.facts")
    nowhere = why(*TO_BOB, f"MayRequest('{NEW.id}')")
    assert (nowhere.code, nowhere.lines[0]) == (1, "it would not be requested: not advertised")
    here = why(*told, f"MayRequest('{SHARED.id}')")
    assert (here.code, here.lines[0]) == (1, "it would not be requested: already here")
    field = why(*told, f"MayRequest('{NEW.id}')")
    assert field.lines[0] == "it would not be requested: field not advertised: Group"
    other = why(*told, f"MayRequest('{PRIVATE.id}')")
    assert other.lines[0] == "it would not be requested: not in my selector"
    write("team.lace", ALL)
    done = why(*told, f"MayRequest('{NEW.id}')")
    assert (done.code, done.lines[0]) == (0, "it would be requested")


def test_what_nothing_exposed_means_is_said() -> None:
    done = why(*SELECT, f"MaySend('{SHARED.id}')")
    assert done.code == 1
    assert "nothing is exposed to this peer; name a module with --expose" in done.err
    assert why(*SELECT, f"MaySend('{SHARED.id}')", "--quiet").err == ""


def test_an_empty_view_is_told() -> None:
    write("expose.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'none').\n")
    done = why(*TO_BOB, f"MaySend('{SHARED.id}')")
    assert (done.code, done.lines[0]) == (1, "it would not be sent: not exposed to this viewer")
    assert done.err == (
        "expose.lace:1:54: warning: no record here has the app 'none' [020-08]\n"
        "the exposures for this viewer allow no record that is here\n"
    )
    assert why(*TO_BOB, f"MaySend('{SHARED.id}')", "--quiet").err == ""


def test_other_predicates_of_the_policy() -> None:
    write("team.lace", f"{TEAM}Team(P) :- Field(P,'Group',_,'team').\n")
    for fact, code, begins in (
        (f"SelectHave('{SHARED.id}')", 0, "o0_SelectHave("),
        (f"SelectHave('{PRIVATE.id}')", 1, "o0_SelectHave("),
        (f"Team('{SHARED.id}')", 0, "o0_Team("),
        (f"o1_SelectHave('{SHARED.id}')", 0, "o1_SelectHave("),
        (f"o1_SelectHave('{PRIVATE.id}')", 1, "o1_SelectHave("),
        (f"CanQueryRecord('{BOB}','{SHARED.id}')", 0, "CanQueryRecord("),
        (f"AllowQueryRecord('{BOB}','{PRIVATE.id}')", 1, "CanQueryRecord("),
        (f"m1_AllowQueryRecord('{BOB}','{SHARED.id}')", 0, "m1_AllowQueryRecord("),
        (f"Have('{PRIVATE.id}')", 0, "Have("),
        (f"Peer('{BOB}')", 0, "Peer("),
        ("MaySend('a','b')", 1, "MaySend("),
        ("Nothing('x')", 1, "Nothing("),
    ):
        done = why(*TO_BOB, fact)
        assert done.code == code, fact
        assert done.out.startswith(begins), fact
    second = why(*TO_BOB, "--index", "1", f"SelectHave('{SHARED.id}')")
    assert second.out.startswith("o1_SelectHave(")


def test_json() -> None:
    told = why(*TO_BOB, f"MaySend('{PRIVATE.id}')", "--json")
    assert told.code == 1
    document = told.json()
    assert document["fact"] == {
        "predicate": "MaySend",
        "values": [PRIVATE.id],
        "text": f"MaySend('{PRIVATE.id}')",
    }
    assert (document["allowed"], document["moves"]) == (False, False)
    assert (document["gate"], document["message"]) == (
        "not in my selector",
        "it would not be sent: not in my selector",
    )
    assert document["explanation"]["holds"] is False
    other = why(*TO_BOB, f"SelectHave('{SHARED.id}')", "--json").json()
    assert other["holds"] is True


def test_damaged_segments_are_made_anew(lace: Path, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"".join(record.bytes for record in mixed(APPEND_RECORDS + 4)))
    assert call("import", file).code == 0
    questions = (("why", *TO_BOB, f"MaySend('{SHARED.id}')"), ("preview", *TO_BOB))
    for question in questions:
        before = call(*question)
        assert before.code == 0
        for name in ("field.3", "field.0"):
            path = generation(lace) / name
            path.write_bytes(flip(path.read_bytes(), 99))
            assert call(*question) == before


def test_damage_that_shows_late_is_met_by_asking_again(lace: Path) -> None:
    asked: list[int] = []

    def question() -> str:
        asked.append(1)
        if len(asked) == 1:
            raise AnswerLostError("the segments are damaged")
        return "answer"

    with open_lace(lace) as opened:
        assert ask_again(opened, question) == "answer"
    assert len(asked) == 2


def test_wrong_usage() -> None:
    fact = f"MaySend('{SHARED.id}')"
    for arguments, words in (
        ((fact,), "there are no rules; give --rules FILE, or --select and --peer-select"),
        ((*SELECT[:2], fact), "--peer-select FILE is missing"),
        ((*SELECT[2:], fact), "--select FILE is missing"),
        (("--viewer", BOB, fact), "--select FILE is missing"),
        ((*TO_BOB, "--rules", "all.lace", fact), "are not for an exchange"),
        ((*TO_BOB, "--facts", "some.facts", fact), "are not for an exchange"),
        (("--rules", "all.lace", "--index", "1", fact), "are not for an exchange"),
        (("--rules", "all.lace", "--lowering", "standard-v1", fact), "are not for an exchange"),
        (TO_BOB, "FACT"),
    ):
        done = why(*arguments)
        assert (done.code, done.raw) == (2, b""), arguments
        assert words in done.err, arguments
    bad = why(*TO_BOB, "MaySend(x)")
    assert (bad.code, "is not a fact line" in bad.err) == (1, True)
    write("team.lace", "SelectHave(P) :- Have(P).")
    refused = why(*TO_BOB, fact)
    assert (refused.code, refused.raw) == (1, b"")
    assert "no rule defines SelectAdvertised/2" in refused.err
