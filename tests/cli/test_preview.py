"""`lace preview`: what would move, for pipes, programs and people; and every bad input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lace.record.model import Blob, Plex
from tests.cli.policies import (
    ALL,
    BOB,
    CAROL,
    EXPOSE_TEAM,
    NOTES,
    PRIVATE,
    SHARED,
    TEAM,
    advertise,
    make_lace,
    write,
)
from tests.cli.running import call, on_terminal

if TYPE_CHECKING:
    from pathlib import Path

SELECT = ("preview", "--select", "all.lace", "--peer-select", "all.lace")
TO_BOB = (*SELECT, "--expose", f"expose.lace@{BOB}", "--viewer", BOB)
OF_TEAM = sorted(
    record.id for record in NOTES if isinstance(record, Plex) and record is not PRIVATE
)


@pytest.fixture(autouse=True)
def lace(tmp_path: Path) -> Path:
    return make_lace(tmp_path / ".lace")


# -- what is told --------------------------------------------------------------------------------


@pytest.mark.requirement("040-72", "020-59")
def test_lines_for_a_pipe() -> None:
    done = call(*TO_BOB)
    assert done.code == 0
    assert done.lines == [f"MaySend('{record}')" for record in OF_TEAM]
    assert "the peer advertises nothing, so nothing would be requested" in done.err
    assert call(*TO_BOB, "--quiet").err == ""


@pytest.mark.requirement("040-69", "040-70")
def test_lines_are_sorted_over_the_whole() -> None:
    new = Blob(b"new")
    write("advertised.facts", advertise(new, SHARED))
    done = call(*TO_BOB, "--advertised", "advertised.facts")
    assert done.code == 0
    requests = sorted(f"MayRequest('{record.id}')" for record in (new, SHARED))
    assert done.lines == requests + [f"MaySend('{record}')" for record in OF_TEAM]
    assert done.lines == sorted(done.lines)
    assert "1 of the records that may be requested is here already" in done.err
    assert "advertises nothing" not in done.err


def test_the_document() -> None:
    new = Blob(b"new")
    write("advertised.facts", advertise(new, SHARED))
    told = call(*TO_BOB, "--advertised", "advertised.facts", "--json", "--index", "1").json()
    assert told["plan"].startswith("E.")
    assert (told["lowering"], told["index"], told["viewer"]) == ("standard-v1", 1, BOB)
    assert len(told["exposures"]) == 1
    assert told["may_send"] == OF_TEAM
    assert told["not_here"] == []
    assert told["may_request"] == sorted([new.id, SHARED.id])
    assert told["already_here"] == [SHARED.id]
    assert told["peer_work"] > 0


def test_both_indexes_send_the_same() -> None:
    assert call(*TO_BOB, "--index", "0").raw == call(*TO_BOB, "--index", "1").raw
    assert call(*TO_BOB, "--index", "2").code == 2


def test_a_record_that_may_be_sent_and_is_not_here() -> None:
    missing = Blob(b"missing").id
    text = f"SelectHave('{missing}') :- true.\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
    write("gone.lace", text)
    files = ("preview", "--select", "gone.lace", "--peer-select", "gone.lace")
    done = call(*files)
    assert done.lines == [f"MaySend('{missing}')"]
    assert "1 of the records that may be sent is not here" in done.err
    assert call(*files, "--json").json()["not_here"] == [missing]
    assert "not here" in on_terminal(*files, "--no-color").out


@pytest.mark.requirement("040-114")
def test_bait_of_a_peer_sees_nothing() -> None:
    """Alice's rule asks Bob for what is shared if he has something private: it never is."""
    write(
        "bait.lace",
        "SelectHave(P) :- Have(P), Field(Q,'Group',_,'private').\n"
        "SelectAdvertised(P,S) :- Advertised(P,S), Field(Q,'Group',_,'private').\n",
    )
    write("advertised.facts", advertise(Blob(b"new")))
    bait = ("preview", "--select", "all.lace", "--peer-select", "bait.lace")
    to_bob = ("--expose", f"expose.lace@{BOB}", "--viewer", BOB)
    done = call(*bait, *to_bob, "--advertised", "advertised.facts")
    assert (done.code, done.lines) == (0, [])
    write("expose.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n")
    assert len(call(*bait, *to_bob, "--advertised", "advertised.facts").lines) == len(NOTES) + 1


def test_on_a_terminal() -> None:
    write("advertised.facts", advertise(SHARED))
    shown = on_terminal(*TO_BOB, "--advertised", "advertised.facts", "--no-color")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    for part in (
        "operand 0, which connects",
        BOB,
        "1 module",
        "would be sent: 2 records",
        "//team//notes//minutes",
        "would be requested: 1 record",
        "here already",
        "hashes are cut short",
    ):
        assert part in shown.out, part
    assert SHARED.id not in shown.out
    assert f"{SHARED.id[:10]}…" in shown.out
    claimed = call(*TO_BOB, "--advertised", "advertised.facts").out
    assert claimed.count("MaySend") == 2


def test_a_claimed_coordinate_and_strange_text_on_a_terminal() -> None:
    new = Blob(b"new").id
    names = {"Group": "team", "App": "x\u202ey", "Name": "n"}
    fields = "".join(
        f"AdvertisedField('{new}','{BOB}','{name}','0','{value}')\n"
        for name, value in names.items()
    )
    write("advertised.facts", f"Advertised('{new}','{BOB}')\n{fields}")
    shown = on_terminal(*TO_BOB, "--advertised", "advertised.facts", "--no-color")
    assert "//team//x\\u{202e}y//n" in shown.out


def test_nothing_on_a_terminal() -> None:
    shown = on_terminal(*SELECT, "--no-color").out
    for part in ("unproven, seen as Opq_", "would be sent: nothing", "would be requested: nothing"):
        assert part in shown, part


def test_a_long_table_is_cut_and_says_so(tmp_path: Path) -> None:
    lines = "".join(advertise(Blob(b"%d" % number)) for number in range(101))
    write("advertised.facts", lines)
    shown = on_terminal(*TO_BOB, "--advertised", "advertised.facts", "--no-color")
    assert "these are the first 100 of 101" in shown.out


# -- who sees what -------------------------------------------------------------------------------


@pytest.mark.requirement("020-62", "040-32")
def test_nothing_is_exposed() -> None:
    done = call(*SELECT)
    assert (done.code, done.raw) == (0, b"")
    assert "nothing is exposed to this peer, so nothing would be sent" in done.err
    assert "--expose FILE@" in done.err
    assert call(*SELECT, "--quiet").err == ""
    unproven = call(*SELECT, "--expose", f"expose.lace@{BOB}")
    assert (unproven.code, unproven.raw) == (0, b"")
    assert "say who the peer is with --viewer V" in unproven.err
    other = call(*SELECT, "--expose", f"expose.lace@{BOB}", "--viewer", CAROL)
    assert (other.code, other.raw) == (0, b"")
    assert f"of 1 exposure none is for {CAROL}" in other.err


@pytest.mark.parametrize(
    "rule",
    [
        "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'none').\n",
        f"AllowQueryRecord('{BOB}','{Blob(b'gone').id}') :- true.\n",
    ],
)
def test_an_empty_view_is_told(rule: str) -> None:
    words = "the exposures for this viewer allow no record that is here, so nothing would be sent"
    write("expose.lace", rule)
    done = call(*TO_BOB)
    assert (done.code, done.raw) == (0, b"")
    assert words in done.err
    assert words in call(*TO_BOB, "--json").err
    assert words in " ".join(on_terminal(*TO_BOB, "--no-color").out.split())
    assert call(*TO_BOB, "--quiet").err == ""
    anyone = call(*SELECT, "--expose", "expose.lace")
    assert words in anyone.err
    write("expose.lace", EXPOSE_TEAM)
    assert "allow no record" not in call(*TO_BOB).err
    assert "allow no record" not in call(*SELECT).err


def test_an_exposure_for_anyone() -> None:
    done = call(*SELECT, "--expose", "expose.lace")
    assert len(done.lines) == 2
    assert "warning: V is anyone who asks" in done.err
    assert done.err.count("[020-52]") == 1
    write("proven.lace", "AllowQueryRecord(V,P) :- Peer(V), Have(P).\n")
    proven = call(*SELECT, "--expose", "proven.lace", "--viewer", BOB)
    assert "proven.lace: warning: this exposure is for anyone" in proven.err
    named = call(*TO_BOB)
    assert "warning" not in named.err
    assert call(*SELECT, "--expose", "expose.lace", "--quiet").err == ""


def test_one_file_for_several_viewers_is_one_module_for_each() -> None:
    both = ("--expose", f"expose.lace@{BOB}", "--expose", f"expose.lace@{CAROL}")
    for viewer in (BOB, CAROL):
        told = call(*SELECT, *both, "--viewer", viewer, "--json").json()
        assert len(told["exposures"]) == 1
        assert told["may_send"] == OF_TEAM
    anyone = ("--expose", "expose.lace", "--expose", f"expose.lace@{CAROL}")
    assert len(call(*SELECT, *anyone, "--viewer", BOB, "--json").json()["exposures"]) == 1


@pytest.mark.requirement("020-60")
def test_modules_for_one_viewer_intersect() -> None:
    write("plans.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Name',_,'plan').\n")
    done = call(*TO_BOB, "--expose", f"plans.lace@{BOB}")
    assert done.lines == [f"MaySend('{NOTES[2].id}')"]


def test_the_viewer_gives_the_peer_fact() -> None:
    write("expose.lace", "AllowQueryRecord(V,P) :- Peer(V), Have(P).\n")
    assert len(call(*TO_BOB).lines) == len(NOTES)
    write("runtime.facts", f"Peer('{CAROL}')\n")
    other = call(*TO_BOB, "--runtime", "runtime.facts")
    assert other.lines == []
    assert f"the runtime facts have Peer('{CAROL}'), and the viewer is {BOB}" in other.err
    unproven = call(*SELECT, "--expose", "expose.lace", "--runtime", "runtime.facts")
    assert "there is no --viewer" in unproven.err


def test_runtime_facts_and_lowerings() -> None:
    encrypted = (*TO_BOB, "--lowering", "encrypted-v1")
    done = call(*encrypted)
    assert done.lines == []
    assert "the rules read TransportEncrypted/0, and there is no such fact; see --runtime" in (
        done.err
    )
    write("runtime.facts", "TransportEncrypted()\n")
    assert len(call(*encrypted, "--runtime", "runtime.facts").lines) == 2
    write("advertised.facts", advertise(Blob(b"a")) + advertise(Blob(b"b"), source=CAROL))
    proven = (*TO_BOB, "--lowering", "proven-peer-v1", "--advertised", "advertised.facts")
    assert [line for line in call(*proven).lines if "Request" in line] == [
        f"MayRequest('{Blob(b'a').id}')"
    ]


def test_files_from_standard_input() -> None:
    files = ("preview", "--select", "-", "--peer-select", "all.lace")
    to_bob = ("--expose", f"expose.lace@{BOB}", "--viewer", BOB)
    assert len(call(*files, *to_bob, given=TEAM.encode()).lines) == 2
    exposed = (*SELECT, "--expose", f"-@{BOB}", "--expose", f"-@{CAROL}", "--viewer", BOB)
    assert len(call(*exposed, given=EXPOSE_TEAM.encode()).lines) == 2
    given = advertise(Blob(b"new")).encode()
    assert len(call(*TO_BOB, "--advertised", "-", given=given).lines) == 3
    for twice in (
        ("--expose", f"-@{BOB}", "--advertised", "-"),
        ("--runtime", "-", "--advertised", "-"),
        ("--select", "-", "--runtime", "-"),
    ):
        done = call(*SELECT, *twice)
        assert (done.code, done.raw) == (2, b"")
        assert "standard input can be read once" in done.err


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SelectHave(P) :- Have(P).\n", "no rule defines SelectAdvertised/2"),
        (f"{ALL}MaySend(P) :- Have(P).\n", "cannot define MaySend/1"),
        (f"{ALL}o1_A(P) :- Have(P).\n", "cannot define o1_A/1"),
        (f"{ALL}_A(P) :- Have(P).\n", "_A/1"),
        (f"{ALL}A(P) :- Have(P), CanQueryRecord(_,P).\n", "CanQueryRecord/2"),
        ("", "no rule defines SelectHave/1"),
    ],
)
def test_selectors_that_are_refused(text: str, words: str) -> None:
    write("bad.lace", text)
    for option in ("--select", "--peer-select"):
        done = call(*TO_BOB, option, "bad.lace")
        assert (done.code, done.raw) == (1, b"")
        assert words in done.err
        assert "bad.lace:" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("AllowQueryRecord(V,P) :- Have(P).\n", "head variable V"),
        ("AllowQueryRecord(V,P) :- _Viewer(V), Advertised(P,_).\n", "Advertised/2"),
        ("Other(P) :- Have(P).\n", "no rule defines AllowQueryRecord/2"),
        ("CanQueryRecord(V,P) :- _Viewer(V), Have(P).\n", "cannot define CanQueryRecord/2"),
        ("", "no rule defines AllowQueryRecord/2"),
    ],
)
def test_exposures_that_are_refused(text: str, words: str) -> None:
    write("bad.lace", text)
    done = call(*SELECT, "--expose", f"bad.lace@{BOB}", "--viewer", BOB)
    assert (done.code, done.raw) == (1, b"")
    assert words in done.err
    assert "bad.lace:" in done.err


def test_findings_of_all_files_are_shown_at_once() -> None:
    write("bad.lace", "SelectHave(P) :- Have(P).\n")
    write("worse.lace", "AllowQueryRecord(V,P) :- Have(P).\n")
    done = call("preview", "--select", "bad.lace", "--peer-select", "bad.lace",
                "--expose", "worse.lace")  # fmt: skip
    assert done.code == 1
    assert "bad.lace:1:1: no rule defines SelectAdvertised/2" in done.err
    assert "worse.lace:1:" in done.err
    assert done.err.split("\n")[-2] == "lace: 1 error in bad.lace; 1 error in worse.lace"


def test_the_peers_rules_have_limits_of_their_own() -> None:
    done = call(*TO_BOB, "--set", "peer_max_rules=1")
    assert (done.code, done.raw) == (1, b"")
    assert "peer_max_rules" in done.err
    work = call(*TO_BOB, "--set", "peer_max_work=1")
    assert (work.code, work.raw) == (1, b"")
    assert "peer_max_work" in work.err


@pytest.mark.parametrize(
    ("viewer", "code", "words"),
    [
        ("Opq_1", 1, "--viewer: nothing can be exposed to 'Opq_1', a label of one exchange;"),
        ("V.abc", 2, "--viewer: 'V.abc' is no viewer"),
        ("bob", 2, "--viewer: 'bob' is no viewer"),
        ("", 2, "'' is no viewer"),
    ],
)
def test_viewers_that_are_refused(viewer: str, code: int, words: str) -> None:
    done = call(*SELECT, "--expose", "expose.lace", "--viewer", viewer)
    assert (done.code, done.raw) == (code, b"")
    if viewer:  # the same cause has the same exit code
        assert call(*SELECT, "--expose", f"expose.lace@{viewer}").code == code
    assert words in done.err
    assert done.err.count("\n") == 1


def test_what_follows_the_at_sign() -> None:
    label = call(*SELECT, "--expose", "expose.lace@Opq_1")
    assert (label.code, label.raw) == (1, b"")
    assert "--expose expose.lace@Opq_1: nothing can be exposed to 'Opq_1'" in label.err
    short = call(*SELECT, "--expose", "expose.lace@V.abc")
    assert short.code == 2
    assert "there is no such file, and 'V.abc' is no viewer; " in short.err
    name = call(*SELECT, "--expose", "expose.lace@bob")
    assert (name.code, "'bob' is no viewer" in name.err) == (2, True)
    nobody = call(*SELECT, "--expose", "nothing@bob")
    assert (nobody.code, "nothing@bob cannot be read" in nobody.err) == (2, True)
    strange = call(*SELECT, "--expose", "a\0@V.x")
    assert (strange.code, "is no viewer" in strange.err) == (2, True)
    no_file = call(*SELECT, "--expose", f"@{BOB}")
    assert (no_file.code, "names a viewer and no file" in no_file.err) == (2, True)
    # A file may have such a name; a verifier is a viewer all the same.
    write("expose@Opq_1", EXPOSE_TEAM)
    write("expose@home", EXPOSE_TEAM)
    write(f"expose.lace@{CAROL}", "nonsense")
    for argument in ("expose@Opq_1", "expose@home", f"expose@home@{BOB}"):
        assert len(call(*SELECT, "--expose", argument, "--viewer", BOB).lines) == 2
    assert call(*SELECT, "--expose", f"expose.lace@{CAROL}", "--viewer", CAROL).code == 0


@pytest.mark.parametrize(
    ("option", "line", "words"),
    [
        ("--advertised", f"Peer('{BOB}')", "Peer/1 is no advertisement fact [040-13]; it belongs"),
        ("--advertised", "Have('B.x')", "Have/1 is no advertisement fact"),
        ("--advertised", "Edge('a','b')", "--advertised takes Advertised/2, AdvertisedField/5"),
        ("--advertised", "Advertised('B.x')", "Advertised has 2 values, and here 1"),
        ("--runtime", "Advertised('B.x','V')", "it belongs into --advertised"),
        ("--runtime", "Field('P','Name','0','x')", "record facts come from the lace"),
        ("--runtime", "Here('a','b')", "Here has 1 value, and here 2 [040-89]; write Here(V)"),
        ("--runtime", "TransportEncrypted('yes')", "TransportEncrypted has 0 values"),
        ("--runtime", "_Viewer('V')", "_Viewer/1 is no runtime fact"),
        ("--runtime", "hello", "'hello' is not a fact line [050-23]"),
        ("--runtime", "", "'' is not a fact line"),
        ("--runtime", f"StartTAI('{'9' * 1025}')", "max_value_bytes=1024"),
        ("--advertised", f"Advertised('B.x','{BOB}')", "'B.x' is not a record hash [050-39]"),
        (
            "--advertised",
            f"AdvertisedField('B.x','{BOB}','Group','0','g')",
            "'B.x' is not a record hash [050-40]; as in AdvertisedField(P,S,Name,Index,Value)",
        ),
        (
            "--advertised",
            f"AdvertisedField('{NOTES[3].id}','{BOB}','Group','01','g')",
            "'01' is not a decimal number [050-40]",
        ),
        ("--runtime", "StartTAI('now')", "'now' is not a TAI instant [050-29]"),
        ("--runtime", "TickTAI('1')", "'1' is not a TAI instant [050-30]"),
        ("--runtime", "ClockSkewSeconds('-1')", "'-1' is not a decimal number [050-31]"),
        ("--runtime", "Peer('bob')", "'bob' is not a verifier [050-26]"),
        ("--runtime", "Here('x')", "'x' is not a verifier [050-25]; as in Here(V)"),
    ],
)
def test_facts_that_do_not_belong(option: str, line: str, words: str) -> None:
    fits = f"Here('{BOB}')" if option == "--runtime" else f"Advertised('{NOTES[3].id}','{BOB}')"
    write("some.facts", f"{fits}\n{line}\n")
    done = call(*TO_BOB, option, "some.facts")
    assert (done.code, done.raw) == (1, b"")
    assert done.err.startswith("lace: some.facts:2: ")
    assert words in done.err
    assert done.err.count("\n") == 1


@pytest.mark.requirement("050-39", "050-40", "050-42")
def test_advertisements_that_no_exchange_would_take() -> None:
    one, two = NOTES[3].id, Blob(b"new").id
    field = f"AdvertisedField('{one}','{BOB}','Group','0','g')"
    lines = [
        f"Advertised('{two}','{BOB}')",
        field,
        field,
        field.replace("'g'", "'h'"),
        f"Advertised('{two}','{CAROL}')",
        f"Advertised('{one}','{CAROL}')",
    ]
    write("odd.facts", "".join(f"{line}\n" for line in lines))
    done = call(*TO_BOB, "--advertised", "odd.facts")
    assert done.code == 0
    assert [line for line in done.err.split("\n") if line.startswith("odd.facts")] == [
        "odd.facts:2: warning: this field has no Advertised line of its record and source, and "
        "2 others like it",
        "odd.facts:4: warning: field Group has another value at index 0",
        "odd.facts:5: warning: a peer is one source, and line 1 has another: "
        f"{BOB}, and 1 other like it",
    ]
    given = "".join(f"{line}\n" for line in lines).encode()
    assert "standard input:2: warning" in call(*TO_BOB, "--advertised", "-", given=given).err
    assert call(*TO_BOB, "--advertised", "odd.facts", "--quiet").err == ""
    # The order of lines means nothing, nor does repetition.
    write("fits.facts", f"{field}\n{field}\nAdvertised('{one}','{BOB}')\n")
    assert "warning" not in call(*TO_BOB, "--advertised", "fits.facts").err


@pytest.mark.parametrize(
    ("name", "one", "two", "rule"),
    [
        ("StartTAI", "1700000000:000000000", "1700000001:000000000", "050-29"),
        ("TickTAI", "1700000000:000000000", "1700000001:000000000", "050-30"),
        ("ClockSkewSeconds", "0", "1", "050-31"),
        ("Transport", "a", "b", "050-27"),
        ("Here", BOB, CAROL, "050-25"),
    ],
)
def test_runtime_facts_that_are_there_twice(name: str, one: str, two: str, rule: str) -> None:
    write("runtime.facts", f"TransportEncrypted()\n{name}('{one}')\n{name}('{one}')\n")
    assert "warning" not in call(*TO_BOB, "--runtime", "runtime.facts").err
    write("runtime.facts", f"{name}('{one}')\n{name}('{one}')\n{name}('{two}')\n")
    done = call(*TO_BOB, "--runtime", "runtime.facts")
    assert done.code == 0
    words = f"an exchange has one {name}, and line 1 has another [{rule}]"
    assert f"runtime.facts:3: warning: {words}\n" in done.err


def test_wrong_usage(tmp_path: Path) -> None:
    for arguments in (
        ("preview",),
        ("preview", "--select", "all.lace"),
        ("preview", "--peer-select", "all.lace"),
        (*TO_BOB, "--select", "missing.lace"),
        (*TO_BOB, "--expose", "missing.lace"),
        (*TO_BOB, "--advertised", "missing.facts"),
        (*TO_BOB, "--lowering", "none"),
        (*TO_BOB, "--select", ""),
        (*TO_BOB, "--expose", ""),
        (*TO_BOB, "--runtime", ""),
        (*TO_BOB, "--lace", tmp_path / "none"),
    ):
        done = call(*arguments)
        assert (done.code, done.raw) == (2, b""), arguments
        assert "Traceback" not in done.err
        assert "lace:  " not in done.err


UNTIL = (
    "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Group',_,'team'), _LocalTAI(T), "
    "LexCompare(T,'<','1763683237:000000000').\n"
)


@pytest.mark.parametrize(
    ("at", "count"),
    [
        ("1763683236:999999999", 2),
        ("1763683237:000000000", 0),
        ("2025-11-20T23:59:59Z", 2),
        ("2025-11-21T00:00:00+00:00", 0),
        ("2025-11-21T00:59:59+01:00", 2),
    ],
)
def test_the_clock_that_exposures_read(at: str, count: int) -> None:
    write("until.lace", UNTIL)
    to_bob = (*SELECT, "--expose", f"until.lace@{BOB}", "--viewer", BOB)
    done = call(*to_bob, "--at", at)
    assert done.code == 0
    assert len(done.lines) == count
    assert "_LocalTAI" not in done.err
    found = json.loads(call(*to_bob, "--at", at, "--json").raw)
    assert len(found["may_send"]) == count
    assert found["local_tai"] <= "1763683237:000000000"
    write("runtime.facts", f"_LocalTAI('{found['local_tai']}')\n")
    assert len(call(*to_bob, "--runtime", "runtime.facts").lines) == count
    fact = f"MaySend('{SHARED.id}')"
    why = call("why", *to_bob[1:], "--at", at, fact)
    assert why.code == (0 if count else 1)
    told = call("disclose", *to_bob[-4:], "--at", at)
    assert len([line for line in told.lines if line.startswith("record")]) == count


def test_without_a_time_it_is_the_clock_of_now() -> None:
    write("until.lace", UNTIL.replace("1763683237", "9999999999"))
    to_bob = (*SELECT, "--expose", f"until.lace@{BOB}", "--viewer", BOB)
    found = json.loads(call(*to_bob, "--json").raw)
    assert len(found["may_send"]) == 2
    assert found["local_tai"].endswith("0:000000000"), "floored to the tick interval"
    told = json.loads(call("disclose", *to_bob[-4:], "--json").raw)
    assert told["count"] == 2
    assert told["local_tai"].endswith("0:000000000")
    assert json.loads(call(*TO_BOB, "--json").raw)["local_tai"] is None
    page = on_terminal(*to_bob, "--at", "2025-11-20T23:59:59Z", "--no-color").out
    assert "2025-11-20 23:59:59 UTC" in page


@pytest.mark.parametrize("at", ["friday", "2025-11-21", "2025-11-21T00:00:00", "1763683237", ""])
def test_a_time_that_is_none(at: str) -> None:
    done = call(*TO_BOB, "--at", at)
    assert (done.code, done.raw) == (2, b"")
    assert "--at must be an instant" in done.err
    write("runtime.facts", "_LocalTAI('1763683237:000000000')\n")
    twice = call(*TO_BOB, "--at", "1763683237:000000000", "--runtime", "runtime.facts")
    assert twice.code == 2
    assert "both give _LocalTAI" in twice.err
