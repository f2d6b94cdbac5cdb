"""`lace plan`: the transcript of two selectors, its identifier, and received transcripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lace
from lace.facts.lines import parse_fact
from lace.policy.compile import compile_policy, flat_program
from lace.policy.plan import parse_transcript
from tests.cli.policies import ALL, TEAM, write
from tests.cli.running import call, on_terminal

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "plans.json").read_text("utf-8")
)
OPERANDS = ("--operand0", "team.lace", "--operand1", "all.lace")


@pytest.fixture(autouse=True)
def _files() -> None:
    write("team.lace", TEAM)
    write("all.lace", ALL)


@pytest.mark.requirement("040-86")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"][:8])
def test_vectors(vector: dict[str, Any]) -> None:
    write("0.lace", vector["operand0"])
    write("1.lace", vector["operand1"])
    files = ("--operand0", "0.lace", "--operand1", "1.lace")
    done = call("plan", *files, "--quiet")
    assert (done.code, done.out, done.err) == (0, vector["transcript"], "")
    assert call("plan", *files, "--id").out == f"{vector['id']}\n"
    told = call("plan", *files, "--json").json()
    assert (told["id"], told["transcript"]) == (vector["id"], vector["transcript"])
    assert [each["origin"] for each in told["operands"]] == vector["origins"]


def test_there_is_no_final_line_feed() -> None:
    done = call("plan", *OPERANDS)
    assert done.code == 0
    assert done.raw
    assert not done.raw.endswith(b"\n")
    assert parse_transcript(done.raw).id == call("plan", *OPERANDS, "--id").lines[0]


def test_authoring_text_is_canonicalised() -> None:
    write("untidy.lace", f"# a comment\n{TEAM.replace('Have(P), ', 'Have( P ),   ')}\n\n")
    untidy = ("--operand0", "untidy.lace", "--operand1", "all.lace")
    assert call("plan", *untidy).raw == call("plan", *OPERANDS).raw
    given = TEAM.encode()
    from_input = call("plan", "--operand0", "-", "--operand1", "all.lace", given=given)
    assert from_input.raw == call("plan", *OPERANDS).raw


def test_lowerings_and_json() -> None:
    standard = call("plan", *OPERANDS, "--json").json()
    assert standard["lowering"] == "standard-v1"
    assert standard["required_fields"] == {"all": False, "names": ["Group"]}
    assert [(each["index"], each["facet"]) for each in standard["operands"]] == [
        (0, "selector"),
        (1, "selector"),
    ]
    assert all(each["module"].startswith("R.") for each in standard["operands"])
    encrypted = call("plan", *OPERANDS, "--lowering", "encrypted-v1", "--json").json()
    assert (encrypted["lowering"], encrypted["id"] != standard["id"]) == ("encrypted-v1", True)
    assert call("plan", *OPERANDS, "--lowering", "no-such").code == 2


@pytest.mark.requirement("040-110", "040-111", "040-112")
def test_a_sidecar_leads_every_generated_rule_back(tmp_path: Path) -> None:
    """The rules that each side runs are in it, with the module, rule and label they come from."""
    target = tmp_path / "plan.sources"
    done = call("plan", *OPERANDS, "--provenance", target)
    assert (done.code, done.raw) == (0, call("plan", *OPERANDS).raw), "the plan stays as it is"
    raw = target.read_bytes()
    assert raw.endswith(b"\n")
    lines = raw.split(b"\n")[:-1]
    assert lines == sorted(set(lines))
    facts = {parse_fact(line) for line in lines}
    made = lace.plan(TEAM, ALL)
    assert made.provenance.text.encode() == raw
    assert (made.id, made.transcript) == (call("plan", *OPERANDS, "--id").lines[0], done.out)
    for index in (0, 1):
        label = made.agreed.operands[1 - index].origin
        side = compile_policy(made.agreed, made.operands, index=index, exposures=(), viewer=label)
        assert set(flat_program(side).rule_ids) <= {fact[1] for fact in facts}
        assert set(side.provenance.facts()) <= facts
    written = {
        (operand.module_id, rule) for operand in made.operands for rule in operand.module.rule_ids
    }
    assert {fact[2:] for fact in facts if fact[0] == "RuleSource"} == written
    origins = {operand.origin for operand in made.agreed.operands}
    assert {fact[2] for fact in facts if fact[0] == "RuleOrigin"} == origins
    steps = {fact[2:] for fact in facts if fact[0] == "RuleGeneratedBy"}
    assert {
        ("040-operand-scope", "O0"),
        ("040-operand-scope", "O1"),
        ("040-intersection", "SelectHave/1"),
        ("040-lowering", "MaySend/1"),
    } <= steps


def test_a_sidecar_needs_rules_and_a_place(tmp_path: Path) -> None:
    write("received.plan", call("plan", *OPERANDS).out)
    target = tmp_path / "plan.sources"
    alone = call("plan", "--check", "received.plan", "--provenance", target)
    assert (alone.code, target.exists()) == (2, False)
    assert "--operand0 FILE --operand1 FILE" in alone.err
    both = call("plan", *OPERANDS, "--check", "received.plan", "--provenance", target)
    assert (both.code, both.lines) == (0, [lace.plan(TEAM, ALL).id])
    assert target.read_text("utf-8") == lace.plan(TEAM, ALL).provenance.text
    lost = call("plan", *OPERANDS, "--provenance", tmp_path / "no" / "such")
    assert (lost.code, lost.raw) == (2, b"")
    other = call(
        "plan",
        "--operand0",
        "all.lace",
        "--operand1",
        "all.lace",
        "--check",
        "received.plan",
        "--provenance",
        tmp_path / "other",
    )
    assert (other.code, (tmp_path / "other").exists()) == (1, False)


def test_on_a_terminal_the_last_line_ends() -> None:
    shown = on_terminal("plan", *OPERANDS)
    assert shown.code == 0
    assert shown.out == call("plan", *OPERANDS).out + "\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SelectHave(P) :- Have(P).", "no rule defines SelectAdvertised/2"),
        ("SelectAdvertised(P,S) :- Advertised(P,S).", "no rule defines SelectHave/1"),
        (f"{ALL}MaySend(P) :- Have(P).", "cannot define MaySend/1, which is reserved;"),
        (f"{ALL}MayRequest(P) :- Have(P).", "cannot define MayRequest/1"),
        (f"{ALL}AllowQueryRecord(V,P) :- Peer(V), Have(P).", "AllowQueryRecord/2"),
        (f"{ALL}o0_Helper(P) :- Have(P).", "cannot define o0_Helper/1"),
        (f"{ALL}o1_Helper(P) :- Have(P).", "cannot define o1_Helper/1"),
        (f"{ALL}_Helper(P) :- Have(P).", "_Helper/1"),
        (f"{ALL}A(P) :- Have(P), CanQueryRecord(_,P).", "CanQueryRecord/2"),
        (f"{ALL}A(P) :- Have(P), o1_SelectHave(P).", "o1_SelectHave/1"),
        (f"{ALL}A(P) :- Have(P), _Viewer(P).", "_Viewer/1"),
        (f"{ALL}A(P,Q) :- Have(P).", "head variable Q"),
        ("", "no rule defines SelectHave/1"),
        ("Select", "untrue.lace:1:"),
    ],
)
def test_operands_that_are_refused(text: str, words: str) -> None:
    write("untrue.lace", text)
    for files in (("untrue.lace", "all.lace"), ("all.lace", "untrue.lace")):
        done = call("plan", "--operand0", files[0], "--operand1", files[1])
        assert (done.code, done.raw) == (1, b"")
        assert "untrue.lace:" in done.err
        assert words in done.err
        assert "Traceback" not in done.err


def test_all_findings_of_both_files_are_shown() -> None:
    write("one.lace", "SelectHave(P) :- Have(P).\nMaySend(P) :- Have(P).\n")
    write("two.lace", "SelectHave(P,Q) :- Have(P).\n")
    done = call("plan", "--operand0", "one.lace", "--operand1", "two.lace")
    assert done.code == 1
    for part in ("one.lace:2:1: ", "two.lace:1:", "SelectAdvertised/2", "head variable Q"):
        assert part in done.err
    last = done.err.split("\n")[-2]
    assert last.startswith("lace: 2 errors in one.lace; ")
    assert "in two.lace" in last


def test_warnings_go_to_standard_error() -> None:
    write("odd.lace", f"{ALL}Odd(P) :- Have(P), Unknown(P).\n")
    done = call("plan", "--operand0", "odd.lace", "--operand1", "all.lace")
    assert done.code == 0
    assert "warning: " in done.err
    quiet = call("plan", "--operand0", "odd.lace", "--operand1", "all.lace", "--quiet")
    assert (quiet.raw, quiet.err) == (done.raw, "")


def test_wrong_usage() -> None:
    for arguments in (
        (),
        ("--operand0", "all.lace"),
        ("--operand1", "all.lace"),
        ("--operand0", "missing.lace", "--operand1", "all.lace"),
        ("--operand0", "-", "--operand1", "-"),
        ("--check", "missing.plan"),
    ):
        done = call("plan", *arguments)
        assert (done.code, done.raw) == (2, b"")
        assert done.err.count("\n") == 1
    assert "--operand1 FILE is missing" in call("plan", "--operand0", "all.lace").err


# -- received transcripts ------------------------------------------------------------------------


def test_a_received_transcript() -> None:
    Path("received").write_bytes(call("plan", *OPERANDS).raw)
    identifier = call("plan", *OPERANDS, "--id").out
    assert call("plan", "--check", "received").out == identifier
    assert call("plan", "--check", "-", given=Path("received").read_bytes()).out == identifier
    assert call("plan", "--check", "received", *OPERANDS).out == identifier
    told = call("plan", "--check", "received", "--json").json()
    assert told == call("plan", *OPERANDS, "--json").json()
    other = call("plan", "--check", "received", "--operand0", "all.lace", "--operand1", "all.lace")
    assert (other.code, other.raw) == (1, b"")
    assert "plans differ in operand 0" in other.err
    lowered = call("plan", "--check", "received", *OPERANDS, "--lowering", "encrypted-v1")
    assert "plans differ in lowering" in lowered.err


@pytest.mark.requirement("040-86")
def test_a_transcript_that_is_not_canonical_is_refused() -> None:
    raw = call("plan", *OPERANDS).raw
    lines = raw.split(b"\n")
    bad = {
        "a final LF": raw + b"\n",
        "another order": b"\n".join([lines[0], *reversed(lines[1:])]),
        "a line twice": b"\n".join([*lines, lines[-1]]),
        "a line missing": b"\n".join(lines[:-1]),
        "CR LF": raw.replace(b"\n", b"\r\n"),
        "another profile": raw.replace(b"plan-v1", b"plan-v2"),
        "nothing": b"",
        "no text": b"\xff",
        "other text": b"hello",
    }
    for what, given in bad.items():
        done = call("plan", "--check", "-", given=given)
        assert (done.code, done.raw) == (1, b""), what
        assert done.err.startswith("lace: standard input"), what
        assert done.err.count("\n") == 1, what
