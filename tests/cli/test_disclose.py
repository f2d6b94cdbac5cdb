"""`lace disclose`: what a viewer may see, and what an edit of a policy would reveal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lace.api import open_lace
from lace.record.model import Blob, Plex
from lace.store.sqlite.segments import APPEND_RECORDS
from tests.cli.policies import (
    ALL,
    BOB,
    CAROL,
    EXPOSE_TEAM,
    NOTES,
    PRIVATE,
    SHARED,
    make_lace,
    write,
)
from tests.cli.running import call, on_terminal
from tests.store.samples import flip, mixed
from tests.store.segment_samples import generation

TO_BOB = ("disclose", "--expose", f"expose.lace@{BOB}", "--viewer", BOB)
VISIBLE = sorted([SHARED.id, NOTES[2].id])
EVERYTHING = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"


@pytest.fixture(autouse=True)
def lace(tmp_path: Path) -> Path:
    return make_lace(tmp_path / ".lace")


def save(*arguments: object) -> str:
    done = call(*arguments, "--json")
    assert done.code == 0
    Path("saved.json").write_bytes(done.raw)
    return "saved.json"


# -- one disclosure ------------------------------------------------------------------------------


@pytest.mark.requirement("020-78", "020-79")
def test_the_document() -> None:
    told = call(*TO_BOB, "--json").json()
    assert told["format"] == "lace-disclosure/v1"
    assert (told["viewer"], told["lace"]) == (BOB, str(Path(".lace").resolve()))
    assert (told["stored"], told["count"], told["records"]) == (4, 2, VISIBLE)
    assert len(told["exposures"]) == 1
    fields = {each.pop("name"): each for each in told["fields"]}
    assert list(fields) == sorted(fields)
    assert fields["Group"] == {"records": 2, "values": 1, "example": "team"}
    assert fields["Tag"] == {"records": 1, "values": 2, "example": "b"}
    least = "minutes" if VISIBLE[0] == SHARED.id else "plan"
    assert fields["Name"] == {"records": 2, "values": 2, "example": least}
    assert told["links"] == [{"name": "+Link", "links": 1, "records": 1, "targets": 1}]
    assert told["hidden_hashes"] == [PRIVATE.id]
    assert told["hidden_here"] == 1
    assert told["embedded"] == {"blobs": 2, "plexes": 0}
    assert told["sent"] is None
    assert call(*TO_BOB, "--json").raw == call(*TO_BOB, "--json").raw


def test_lines_for_a_pipe() -> None:
    write("tags.lace", ALL.replace("Have(P).", "Have(P), Field(P,'Tag',_,_)."))
    done = call(*TO_BOB, "--peer-select", "tags.lace")
    assert done.code == 0
    rows = [line.split("\t") for line in done.lines]
    assert [row[1] for row in rows if row[0] == "record"] == VISIBLE
    assert ["field", "Tag", "1", "2", "b"] in rows
    assert ["link", "+Link", "1", "1", "1"] in rows
    assert ["blobs", "2"] in rows
    assert ["hash", PRIVATE.id] in rows
    assert rows[-1] == ["sent", SHARED.id]


def test_what_would_be_sent() -> None:
    told = call(*TO_BOB, "--peer-select", "all.lace", "--json").json()["sent"]
    assert told["records"] == VISIBLE
    assert (told["select"], told["peer_select"][:2]) == (None, "R.")
    write("plans.lace", ALL.replace("Have(P).", "Have(P), Field(P,'Name',_,'plan')."))
    both = ("--peer-select", "all.lace", "--select", "plans.lace")
    told = call(*TO_BOB, *both, "--json").json()["sent"]
    assert told["records"] == [NOTES[2].id]
    assert told["select"].startswith("R.")
    alone = call(*TO_BOB, "--select", "plans.lace")
    assert (alone.code, alone.raw) == (2, b"")
    assert "--peer-select FILE" in alone.err


def test_the_peers_selector_sees_the_view_only() -> None:
    write("bait.lace", ALL.replace("Have(P).", "Have(P), Field(Q,'Group',_,'private')."))
    assert call(*TO_BOB, "--peer-select", "bait.lace", "--json").json()["sent"]["records"] == []
    write("probe.lace", f"SelectHave('{PRIVATE.id}') :- true.\n{ALL.split(chr(10))[1]}\n")
    told = call(*TO_BOB, "--peer-select", "probe.lace", "--select", "all.lace", "--json")
    assert told.json()["sent"]["records"] == []  # who knows a hash does not see more for it


@pytest.mark.requirement("050-244")
def test_on_a_terminal() -> None:
    shown = on_terminal(*TO_BOB, "--peer-select", "all.lace", "--no-color")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    for part in (
        BOB,
        "1 module",
        "2 of 4 records",
        "//team//notes//minutes",
        "which shows these fields:",
        "and these links:",
        "and the hashes of 2 embedded Blobs",
        "links also tell the hash of 1 record outside the view, 1 of them stored here:",
        PRIVATE.id,
        "would be sent: 2 records, if your selector agrees",
        "hashes are cut short",
        "an exchange also tells the number and digests of those that may be sent, by partition",
    ):
        assert part in shown.out, part
    fields = shown.out.partition("which shows these fields:")[2].partition("and these links:")[0]
    assert "+Link" in fields
    assert not [line for line in fields.splitlines() if line.startswith(" ")], "none is folded"
    agreed = on_terminal(*TO_BOB, "--peer-select", "all.lace", "--select", "team.lace")
    assert "if your selector agrees" not in agreed.out


def test_strange_values_are_made_safe(lace: Path) -> None:
    write("expose.lace", EVERYTHING)
    with open_lace(lace) as opened:
        opened.add(Plex(group="g", app="a", name="n", data=b"", headers=[("Odd", "\u202e=cmd()")]))
    assert "\u202e" not in call(*TO_BOB).out
    shown = on_terminal(*TO_BOB, "--no-color").out
    assert "\u202e" not in shown
    assert "\\u{202e}=cmd()" in shown
    fields = call(*TO_BOB, "--json").json()["fields"]
    assert {"name": "Odd", "records": 1, "values": 1, "example": "\u202e=cmd()"} in fields


@pytest.mark.requirement("020-62")
def test_nothing_is_exposed() -> None:
    done = call("disclose", "--viewer", BOB)
    assert (done.code, done.raw) == (0, b"")
    assert f"nothing is exposed to this peer; name a module with --expose FILE@{BOB}" in (done.err)
    told = call("disclose", "--viewer", BOB, "--json").json()
    assert (told["count"], told["records"], told["fields"], told["exposures"]) == (0, [], [], [])
    other = call("disclose", "--viewer", CAROL, "--expose", f"expose.lace@{BOB}")
    assert (other.code, other.raw) == (0, b"")
    assert f"of 1 exposure none is for {CAROL}" in other.err
    shown = on_terminal("disclose", "--viewer", BOB, "--no-color")
    assert "no record" in shown.out
    assert "nothing is exposed to this peer" in shown.out
    write("expose.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'none').\n")
    empty = call(*TO_BOB)
    assert (empty.code, empty.raw) == (0, b"")
    assert "the exposures for this viewer allow no record that is here" in empty.err


def test_a_record_that_is_allowed_and_not_here_is_not_disclosed() -> None:
    write("expose.lace", f"AllowQueryRecord('{BOB}','{Blob(b'gone').id}') :- true.\n")
    assert call(*TO_BOB, "--json").json()["records"] == []


def test_facts_that_exposures_read() -> None:
    write("expose.lace", f"AllowQueryRecord(V,P) :- Peer(V), Here('{CAROL}'), Have(P).\n")
    assert call(*TO_BOB, "--json").json()["count"] == 0
    write("runtime.facts", f"Here('{CAROL}')\n")
    assert call(*TO_BOB, "--runtime", "runtime.facts", "--json").json()["count"] == 4
    write("lacking.lace", ALL.replace("Have(P).", "Have(P), not Advertised(P,_)."))
    write("advertised.facts", f"Advertised('{SHARED.id}','{BOB}')\n")
    write("expose.lace", EXPOSE_TEAM)
    given = ("--peer-select", "lacking.lace", "--advertised", "advertised.facts")
    assert call(*TO_BOB, *given, "--json").json()["sent"]["records"] == [NOTES[2].id]


@pytest.mark.parametrize(
    ("condition", "missing", "fact"),
    [
        ("StartTAI(_)", "StartTAI/1", "StartTAI('1800000000:000000000')"),
        (f"Here('{CAROL}')", "Here/1", f"Here('{CAROL}')"),
        ("Transport('a')", "Transport/1", "Transport('a')"),
        ("TransportEncrypted()", "TransportEncrypted/0", "TransportEncrypted()"),
    ],
)
def test_runtime_facts_that_lack_are_told(condition: str, missing: str, fact: str) -> None:
    write("expose.lace", f"AllowQueryRecord(V,P) :- Peer(V), {condition}, Have(P).\n")
    words = (
        f"the rules read {missing}, and there is no such fact, so more may be told in an exchange "
        "than is shown; see --runtime"
    )
    done = call(*TO_BOB)
    assert (done.code, done.raw) == (0, b"")
    assert words in done.err
    assert words in " ".join(on_terminal(*TO_BOB, "--no-color").out.split())
    assert words in call(*TO_BOB, "--json").err
    assert call(*TO_BOB, "--json").json()["missing_facts"] == [missing]
    assert call(*TO_BOB, "--quiet").err == ""
    write("runtime.facts", f"{fact}\n")
    given = call(*TO_BOB, "--runtime", "runtime.facts", "--json")
    assert (given.json()["missing_facts"], given.json()["count"]) == ([], 4)
    assert "there is no such fact" not in given.err


def test_runtime_facts_that_a_baseline_lacks_are_told() -> None:
    write("old.lace", "AllowQueryRecord(V,P) :- _Viewer(V), StartTAI(_), Have(P).\n")
    done = call(*TO_BOB, "--baseline", f"old.lace@{BOB}", "--json")
    assert done.code == 1
    assert done.json()["missing_facts"] == ["StartTAI/1"]
    assert "the rules of the baseline read StartTAI/1, and there is no such fact" in done.err
    both = call("disclose", "--expose", "old.lace", "--viewer", BOB, "--baseline", "old.lace")
    assert both.err.count("read StartTAI/1") == 1
    saved = save("disclose", "--expose", f"old.lace@{BOB}", "--viewer", BOB)
    later = call(*TO_BOB, "--baseline", saved)
    assert "the rules of the baseline read StartTAI/1" in later.err


def test_a_lowering_decides_what_would_be_sent() -> None:
    encrypted = (*TO_BOB, "--peer-select", "all.lace", "--lowering", "encrypted-v1")
    done = call(*encrypted, "--json")
    told = done.json()
    assert (told["sent"]["records"], told["sent"]["lowering"]) == ([], "encrypted-v1")
    assert told["missing_facts"] == ["TransportEncrypted/0"]
    assert told["count"] == 2
    write("runtime.facts", "TransportEncrypted()\n")
    given = ("--runtime", "runtime.facts")
    assert call(*encrypted, *given, "--json").json()["sent"]["records"] == VISIBLE
    mine = (*encrypted, "--select", "all.lace", "--json")
    assert call(*mine).json()["sent"]["records"] == []
    saved = save(*TO_BOB, "--peer-select", "all.lace")
    other = call(*encrypted, "--baseline", saved)
    assert "the baseline was made with the lowering standard-v1" in other.err
    alone = call(*TO_BOB, "--lowering", "encrypted-v1")
    assert (alone.code, alone.raw) == (2, b"")
    assert "--lowering is about what would be sent" in alone.err
    assert call(*TO_BOB, "--lowering", "none").code == 2


def test_damaged_segments_are_made_anew(lace: Path, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"".join(record.bytes for record in mixed(APPEND_RECORDS + 4)))
    assert call("import", file).code == 0
    before = call(*TO_BOB)
    for name in ("field.3", "field.0"):
        path = generation(lace) / name
        path.write_bytes(flip(path.read_bytes(), 99))
        assert call(*TO_BOB) == before


# -- comparing -----------------------------------------------------------------------------------


def test_nothing_has_changed() -> None:
    saved = save(*TO_BOB, "--peer-select", "all.lace")
    for baseline in (saved, f"expose.lace@{BOB}", "expose.lace"):
        done = call(*TO_BOB, "--peer-select", "all.lace", "--baseline", baseline)
        assert (done.code, done.raw) == (0, b""), baseline
        told = call(*TO_BOB, "--peer-select", "all.lace", "--baseline", baseline, "--json").json()
        assert told["changed"] is False
    shown = on_terminal(*TO_BOB, "--baseline", "expose.lace")
    assert (shown.code, shown.out) == (0, f"nothing changes for {BOB}\n")


@pytest.mark.parametrize("kind", ["saved", "module"])
def test_what_an_edit_would_reveal(kind: str) -> None:
    baseline = f"expose.lace@{BOB}"
    if kind == "saved":
        baseline = save(*TO_BOB, "--peer-select", "all.lace")
    write("edited.lace", EVERYTHING)
    edited = ("disclose", "--expose", f"edited.lace@{BOB}", "--viewer", BOB,
              "--peer-select", "all.lace", "--baseline", baseline)  # fmt: skip
    done = call(*edited)
    assert done.code == 1
    new = sorted({record.id for record in NOTES} - set(VISIBLE))
    assert [line.split("\t") for line in done.lines] == [
        *(["+", "record", record] for record in new),
        *(["+", "sent", record] for record in new),
    ]  # the hash of the diary was told before
    told = call(*edited, "--json")
    assert told.code == 1
    document = told.json()
    assert document["format"] == "lace-disclosure-change/v1"
    assert (document["viewer"], document["changed"]) == (BOB, True)
    assert document["records"] == {"added": new, "removed": []}
    assert document["sent"] == {"added": new, "removed": []}
    assert document["hidden_hashes"] == {"added": [], "removed": []}


def test_what_an_edit_would_no_longer_reveal() -> None:
    write("less.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Name',_,'plan').\n")
    less = ("disclose", "--expose", f"less.lace@{BOB}", "--viewer", BOB)
    done = call(*less, "--baseline", f"expose.lace@{BOB}")
    assert done.code == 1
    assert [line.split("\t") for line in done.lines] == [
        ["-", "record", SHARED.id],
        ["-", "field", "+Link"],
        ["-", "field", "Tag"],
        ["-", "hash", PRIVATE.id],
    ]
    shown = on_terminal(*less, "--baseline", f"expose.lace@{BOB}", "--no-color")
    assert shown.code == 1
    for part in (
        f"for {BOB}",
        "would be newly revealed: nothing",
        "would no longer be revealed: 1 record, 2 fields, 1 hash",
        "- record",
        "//team//notes//minutes",
        "- field",
        "Tag",
    ):
        assert part in shown.out, part
    assert "\x1b[3" in on_terminal(*less, "--baseline", f"expose.lace@{BOB}").out
    nothing = call("disclose", "--viewer", BOB, "--baseline", "expose.lace")
    assert nothing.code == 1
    assert "nothing is exposed to this peer" in nothing.err


def test_modules_of_a_baseline_are_registered_like_others() -> None:
    other = call(*TO_BOB, "--baseline", f"expose.lace@{CAROL}")
    assert other.code == 1
    assert f"of 1 module of the baseline none is for {BOB}, so this compares with nothing" in (
        other.err
    )
    two = ("--baseline", f"expose.lace@{CAROL}", "--baseline", f"expose.lace@{BOB}")
    assert (call(*TO_BOB, *two).code, call(*TO_BOB, *two).err) == (0, "")
    write("plans.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Name',_,'plan').\n")
    both = ("--baseline", "expose.lace", "--baseline", "plans.lace")
    assert call(*TO_BOB, *both).lines[0] == f"+\trecord\t{SHARED.id}"
    given = call(*TO_BOB, "--baseline", "-", given=EXPOSE_TEAM.encode())
    assert (given.code, given.raw) == (0, b"")
    saved = Path(save(*TO_BOB)).read_bytes()
    assert call(*TO_BOB, "--baseline", "-", given=saved).code == 0


def test_what_would_be_sent_is_compared_where_both_say_it() -> None:
    saved = save(*TO_BOB)
    done = call(*TO_BOB, "--peer-select", "all.lace", "--baseline", saved)
    assert (done.code, done.raw) == (0, b"")
    assert "the baseline does not say what would be sent, so that is not compared" in done.err
    saved = save(*TO_BOB, "--peer-select", "all.lace")
    done = call(*TO_BOB, "--baseline", saved)
    assert (done.code, done.raw) == (0, b"")
    assert "there is no --peer-select to say what would be sent" in done.err
    write("plans.lace", ALL.replace("Have(P).", "Have(P), Field(P,'Name',_,'plan')."))
    done = call(*TO_BOB, "--peer-select", "plans.lace", "--baseline", saved)
    assert (done.code, done.lines) == (1, [f"-\tsent\t{SHARED.id}"])
    assert "the baseline was made with other selectors" in done.err


# -- bad input -----------------------------------------------------------------------------------


def changed(saved: str, **values: Any) -> str:
    document = json.loads(Path(saved).read_text("utf-8"))
    document.update(values)
    Path("changed.json").write_text(json.dumps(document), "utf-8")
    return "changed.json"


def test_saved_disclosures_that_are_refused(tmp_path: Path) -> None:
    saved = save(*TO_BOB, "--peer-select", "all.lace")
    for values, words in (
        ({"viewer": CAROL}, f"the baseline is of another viewer: {CAROL}, not {BOB}"),
        ({"lace": str(tmp_path / "other")}, "the baseline is of another lace"),
        ({"format": "lace-disclosure/v9"}, "its format is 'lace-disclosure/v9'"),
        ({"format": None}, "it has no format"),
        ({"format": "lace-disclosure-change/v1"}, "a comparison of two disclosures"),
        ({"records": "all"}, "records is not a list of texts"),
        ({"records": [1]}, "records is not a list of texts"),
        ({"stored": -1}, "stored is not a count"),
        ({"stored": True}, "stored is not a count"),
        ({"fields": [1]}, "fields is not a list of objects"),
        ({"fields": [{"name": 1}]}, "fields.name is not a text"),
        ({"embedded": None}, "embedded is not an object"),
        ({"sent": {"records": []}}, "sent.select is not there"),
        ({"sent": []}, "sent is not an object"),
    ):
        done = call(*TO_BOB, "--baseline", changed(saved, **values))
        assert (done.code, done.raw) == (1, b""), words
        assert done.err.startswith("lace: changed.json: "), words
        assert words in done.err
        assert done.err.count("\n") == 1
    for text in ("{", "[]", "[" * 100_000, '{"a": 1}'):
        write("broken.json", text)
        done = call(*TO_BOB, "--baseline", "broken.json")
        assert (done.code, done.raw) == (1, b"")
        assert "lace: broken.json: this is no" in done.err
        assert "lace disclose --json" in done.err


def test_wrong_usage(tmp_path: Path) -> None:
    saved = save(*TO_BOB)
    for arguments, words in (
        (("disclose", "--expose", "expose.lace"), "--viewer"),
        ((*TO_BOB, "--expose", "missing.lace"), "missing.lace cannot be read"),
        ((*TO_BOB, "--baseline", "missing.json"), "missing.json cannot be read"),
        ((*TO_BOB, "--baseline", "a\0b"), "cannot be read"),
        ((*TO_BOB, "--viewer", "bob"), "--viewer: 'bob' is no viewer"),
        ((*TO_BOB, "--baseline", "expose.lace@bob"), "'bob' is no viewer"),
        ((*TO_BOB, "--baseline", ""), "lace: --baseline names no file; write --baseline FILE"),
        ((*TO_BOB, "--expose", ""), "lace: --expose names no file"),
        ((*TO_BOB, "--baseline", saved, "--baseline", "expose.lace"), "other baselines"),
        ((*TO_BOB, "--baseline", f"{saved}@{BOB}"), "has its viewer"),
        ((*TO_BOB, "--baseline", "-", "--runtime", "-"), "standard input can be read once"),
        ((*TO_BOB, "--lace", tmp_path / "none"), "no lace"),
    ):
        done = call(*arguments)
        assert (done.code, done.raw) == (2, b""), words
        assert words in done.err


def test_rules_and_viewers_that_are_refused() -> None:
    write("bad.lace", "AllowQueryRecord(V,P) :- Have(P).\n")
    for arguments, words in (
        (("--expose", "bad.lace"), "head variable V"),
        (("--baseline", "bad.lace"), "head variable V"),
        (("--peer-select", "bad.lace"), "no rule defines SelectHave/1"),
        (("--expose", "expose.lace@Opq_1"), "a label of one exchange"),
        (("--baseline", "expose.lace@Opq_1"), "--baseline expose.lace@Opq_1: nothing can be"),
        (("--viewer", "Opq_1"), "a label of one exchange"),
        (("--peer-select", "all.lace", "--set", "peer_max_rules=1"), "peer_max_rules"),
    ):
        done = call(*TO_BOB, *arguments)
        assert (done.code, done.raw) == (1, b""), words
        assert words in done.err
    write("empty.lace", "")
    assert "AllowQueryRecord/2" in call(*TO_BOB, "--expose", "empty.lace").err
    assert "AllowQueryRecord/2" in call(*TO_BOB, "--baseline", "empty.lace").err
