"""Typing errors in one's own rules: refused where they would open something, else warned of."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.record.model import Plex
from tests.cli.links import Party, hashes, make_parties, plex, serving
from tests.cli.policies import ALL, BOB, TEAM, make_lace, write
from tests.cli.running import call, process

if TYPE_CHECKING:
    from pathlib import Path

BLOCKED = "Blocked(P) :- Field(P,'Group',_,'private').\n"
OPEN = f"{BLOCKED}AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Blokced(P).\n"
SELECT = f"{BLOCKED}{ALL}".replace("SelectHave(P) :- Have(P).", "SelectHave(P) :- A(P).") + (
    "A(P) :- Have(P), not Blokced(P).\n"
)
SAID = "nobody defines Blokced/1, so it is empty, and not Blokced(P) always holds [030-36]; did you"
ALLOWED = ("--allow-undefined", "Blokced/1")


@pytest.fixture
def lace(tmp_path: Path) -> Path:
    write("open.lace", OPEN)
    write("select.lace", SELECT)
    return make_lace(tmp_path / ".lace")


@pytest.mark.requirement("030-36")
@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("rules", "check", "open.lace", "--profile", "exposure"), "open.lace"),
        (("rules", "check", "select.lace", "--profile", "selector"), "select.lace"),
        (("preview", "--select", "select.lace", "--peer-select", "all.lace"), "select.lace"),
        (
            (
                *("preview", "--select", "all.lace", "--peer-select", "all.lace"),
                *("--expose", f"open.lace@{BOB}", "--viewer", BOB),
            ),
            "open.lace",
        ),
        (("disclose", "--expose", f"open.lace@{BOB}", "--viewer", BOB), "open.lace"),
        (
            (
                *("disclose", "--expose", f"all-view.lace@{BOB}", "--viewer", BOB),
                *("--select", "select.lace", "--peer-select", "all.lace"),
            ),
            "select.lace",
        ),
        (
            ("why", "--select", "select.lace", "--peer-select", "all.lace", "MaySend('P.x')"),
            "select.lace",
        ),
        (("export", "--rules", "chosen.lace", "-o", "out.records"), "chosen.lace"),
        (("remove", "--rules", "chosen.lace", "--yes"), "chosen.lace"),
    ],
)
def test_own_rules_are_refused_before_anything_happens(
    lace: Path, command: tuple[str, ...], file: str
) -> None:
    write("all.lace", ALL)
    write("all-view.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n")
    write("chosen.lace", f"{BLOCKED}Selected(P) :- Have(P), not Blokced(P).\n")
    before = call("list").raw
    done = call(*command)
    assert done.code == 1, done.err
    said = done.out + done.err
    assert f"{file}:" in said
    assert SAID in said
    assert "allow Blokced/1 with --allow-undefined" in said
    assert call("list").raw == before
    assert not (lace.parent / "out.records").exists()
    allowed = call(*command, *ALLOWED)
    expected = 1 if command[0] == "why" else 0  # there is no such record
    assert allowed.code == expected, allowed.err
    assert "Blokced" not in allowed.err.replace("not Blokced(P)", "")
    wrong = call(*command, "--allow-undefined", "Blokced")
    assert (wrong.code, "'Blokced' names no predicate" in wrong.err) == (2, True)


@pytest.mark.requirement("030-36")
def test_questions_and_peers_are_warned_of_only(lace: Path) -> None:
    assert lace.is_dir()
    done = call("query", "-e", "A(P) :- Have(P), not Blokced(P).")
    assert done.code == 0
    assert "warning: nobody defines Blokced/1" in done.err
    write("all.lace", ALL)
    done = call("preview", "--select", "all.lace", "--peer-select", "select.lace")
    assert done.code == 0, done.err
    assert "warning: nobody defines Blokced/1" in done.err
    done = call("plan", "--operand0", "all.lace", "--operand1", "select.lace")
    assert done.code == 0, "either may be a peer's"
    assert call("rules", "check", "select.lace").code == 0, "as a question"


def test_a_baseline_may_have_what_is_mended_now(lace: Path) -> None:
    assert lace.is_dir()
    write("mended.lace", OPEN.replace("Blokced", "Blocked"))
    more = ("--viewer", BOB, "--baseline", f"open.lace@{BOB}")
    done = call("disclose", "--expose", f"mended.lace@{BOB}", *more)
    assert done.code == 1, "it discloses less than before"
    assert [line.split("\t")[:2] for line in done.lines][:1] == [["-", "record"]]
    assert call("disclose", "--expose", f"open.lace@{BOB}", *more).code == 1
    assert "Blokced/1" in call("disclose", "--expose", f"open.lace@{BOB}", *more).err


def test_policy_tests_are_refused_alike(lace: Path) -> None:
    assert lace.is_dir()
    text = (
        'select = "select.lace"\npeer_select = "select.lace"\n{}\n[[case]]\nname = "nothing"\n'
        "send = []\n"
    )
    write("a.lacetest.toml", text.format(""))
    done = call("test", "a.lacetest.toml")
    assert done.code == 1
    assert "nobody defines Blokced/1" in done.out + done.err
    write("a.lacetest.toml", text.format('allow_undefined = ["Blokced/1"]'))
    done = call("test", "a.lacetest.toml")
    assert done.code == 0, done.out + done.err
    write("a.lacetest.toml", text.format('allow_undefined = ["Blokced"]'))
    done = call("test", "a.lacetest.toml")
    assert "names no predicate" in done.out + done.err


# -- real exchanges -------------------------------------------------------------------------------


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    return make_parties(tmp_path)


@pytest.mark.requirement("030-36")
def test_serve_sync_and_remote_refuse_them(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    good = right.view.read_text()
    (tmp_path / "bad.lace").write_text(OPEN)
    bad = ["--expose", f"{tmp_path / 'bad.lace'}@{left.verifier}"]
    served = process("serve", "tcp:127.0.0.1:0", *right.policy(left), *bad)
    assert served.code == 1
    assert not served.raw, "no address was bound"
    assert SAID in served.err
    with serving(right, left, "tcp:127.0.0.1:0", *bad, *ALLOWED) as server:
        to = ["--expose", f"{tmp_path / 'bad.lace'}@{right.verifier}"]
        done = left.sync(right, server.address, *to)
        assert (done.code, SAID in done.err) == (1, True)
        assert len(hashes(left)) == len(hashes(right)) == 5, "nothing moved"
        listed = process("--lace", left.folder, "remote", "list", server.address, *to)
        assert (listed.code, SAID in listed.err) == (1, True)
        left.select.write_text(SELECT)
        done = left.sync(right, server.address)
        assert (done.code, SAID in done.err) == (1, True)
        watched = process(
            *("--lace", left.folder, "remote", "watch", server.address, "--limit", 1),
            *("--select", left.select),
        )
        assert (watched.code, SAID in watched.err) == (1, True)
        left.select.write_text(ALL)
        table = f'[peer.office]\naddress = "{server.address}"\nselect = "../all.lace"\n'
        table += f'expose = ["../bad.lace@{right.verifier}"]\n'
        (left.folder / "lace.toml").write_text(table)
        done = process("--lace", left.folder, "sync", "office")
        assert (done.code, SAID in done.err) == (1, True)
        (left.folder / "lace.toml").write_text(table + 'allow-undefined = ["Blokced/1"]\n')
        done = process("--lace", left.folder, "sync", "office")
        assert done.code == 0, done.err
        assert hashes(left) == hashes(right)
    assert right.view.read_text() == good


# -- names that no record has ---------------------------------------------------------------------


def test_rules_are_checked_against_a_lace(lace: Path) -> None:
    write(
        "typo.lace",
        "SelectHave(P) :- Have(P), Field(P,'Group',_,'taem'), not Field(P,'Tgas',_,_).\n"
        "SelectAdvertised(P,S) :- Advertised(P,S), Have(P).\n",
    )
    check = ("rules", "check", "typo.lace", "--profile", "selector")
    here = "typo.lace:2:43: warning: Have(P) holds only for a record that is here already, so this"
    done = call(*check)
    assert done.code == 0
    assert [line[: len(here)] for line in done.lines] == [here]
    done = call(*check, "--against", lace)
    assert done.code == 0
    assert done.lines[:2] == [
        "typo.lace:1:45: warning: no record here has the group 'taem' [020-08]; did you mean "
        "'team'?",
        "typo.lace:1:66: warning: no record here has the field 'Tgas' [020-08]",
    ]
    assert done.lines[2].startswith(here)
    assert call(*check, "--against", lace, "--strict").code == 1
    found = call(*check, "--against", lace, "--json").json_lines()
    assert [each["severity"] for each in found] == ["warning"] * 3
    assert found[0]["hint"] == "did you mean 'team'?"
    lost = call(*check, "--against", "nowhere")
    assert lost.code == 2


def test_commands_that_have_both_warn(lace: Path) -> None:
    assert lace.is_dir()
    write("all.lace", ALL)
    write("typo.lace", TEAM.replace("team", "taem"))
    write("view.lace", "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'note').\n")
    group, app = "no record here has the group 'taem'", "no record here has the app 'note'"
    both = ("--expose", f"view.lace@{BOB}", "--viewer", BOB, "--peer-select", "all.lace")
    for command, said in (
        (("preview", "--select", "typo.lace", *both), (group, app)),
        (("why", "MaySend('P.x')", "--select", "typo.lace", *both), (group, app)),
        (("disclose", "--select", "typo.lace", *both), (group, app)),
        (("query", "-e", "A(P) :- Field(P,'Group',_,'taem')."), (group,)),
        (("why", "--rules", "chosen.lace", "Selected('x')"), (group,)),
        (("remove", "--yes", "--rules", "chosen.lace"), (group,)),
        (("export", "-o", "out", "--rules", "chosen.lace"), (group,)),
    ):
        write("chosen.lace", "Selected(P) :- Field(P,'Group',_,'taem').\n")
        done = call(*command)
        assert done.code == (1 if command[0] == "why" else 0), done.err
        for each in said:
            assert f"warning: {each}" in done.err, command
        assert "warning" not in call(*command, "--quiet").err
    given = write("some.facts", "Field('P.x','Group','0','x')\n")
    done = call("query", "-e", "A(P) :- Field(P,'Group',_,'taem').", "--facts", given)
    assert "no record here" not in done.err, "these are no records of the lace"


def test_links_warn_of_names(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    assert str(plex("left/0").id) in hashes(left)
    (tmp_path / "view2.lace").write_text(
        "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'nn').\n"
    )
    said = "warning: no record here has the app 'nn' [020-08]"
    with serving(
        right, left, "tcp:127.0.0.1:0", "--expose", f"{tmp_path / 'view2.lace'}@{left.verifier}"
    ) as server:
        server.wait_for(said)
        done = left.sync(
            right, server.address, "--expose", f"{tmp_path / 'view2.lace'}@{right.verifier}"
        )
        assert done.code == 0, done.err
        assert said in done.err


def test_a_server_looks_names_up_again_at_sighup(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    """It looks at the new rules, and at the records that there are by then."""
    left, right = parties
    view = tmp_path / "view2.lace"
    view.write_text("AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n")
    rule = "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'{}').\n"
    said = "warning: no record here has the app '{}' [020-08]"
    exposing = ("--expose", f"{view}@{left.verifier}")
    with serving(right, left, "tcp:127.0.0.1:0", *exposing) as server:
        view.write_text(rule.format("later"))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(said.format("later"))
        with open_lace(right.folder) as store:
            store.add(Plex(group="u", app="later", name="x", data=b""))
        view.write_text(rule.format("later") + rule.format("never"))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(said.format("never"))
        assert server.errors.count("the app 'later'") == 1
