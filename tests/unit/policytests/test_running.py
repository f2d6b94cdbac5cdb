"""Cases are run by the same code as exchanges, and each difference says what decided it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lace.base.limits import DEFAULT_SETTINGS
from lace.policytests.reader import read_tests
from lace.policytests.run import CaseOutcome, Coverage, Runner

ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
TOP = f'select_text = """\n{ALL}"""\npeer_select_text = """\n{ALL}"""\n'
ANYONE = '[[expose]]\ntext = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."\n'
RECORDS = """
[keys]
alice = "test"
bob = "test"
[records.a]
group = "u"
app = "x"
name = "a"
sign = "alice"
[records.b]
group = "v"
app = "x"
name = "b"
sign = "bob"
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(text: str) -> tuple[list[CaseOutcome], Coverage]:
    Path("a.lacetest.toml").write_text(text, "utf-8")
    tests = read_tests("a.lacetest.toml")
    coverage = Coverage()
    runner = Runner(tests, DEFAULT_SETTINGS, coverage)
    return [runner.run(case) for case in tests.cases], coverage


def told(text: str) -> list[str]:
    """What the only case of a text says, hashes left out."""
    ((outcome,), _coverage) = run(text)
    lines = [str(each) for each in outcome.differences]
    assert outcome.is_ok is (not lines and outcome.failure is None)
    if outcome.failure is not None:
        lines.append(outcome.failure)
    return [" ".join(word for word in line.split(" ") if ".H3)" not in word) for line in lines]


def case(body: str) -> str:
    return f'[[case]]\nname = "one"\n{body}\n'


def test_nothing_is_exposed() -> None:
    body = 'viewer = "alice"\nquery = ["a"]\nsend = ["b"]'
    assert told(TOP + RECORDS + case(body)) == [
        "query: missing a nothing is exposed to this peer",
        "send: missing b it would not be sent: nothing is exposed to this peer",
    ]
    assert told(TOP + RECORDS + case('viewer = "alice"\nquery = []\nsend = []')) == []


def test_exposed_to_anyone() -> None:
    assert told(TOP + ANYONE + RECORDS + case('query = ["a", "b"]\nsend = ["a", "b"]')) == []
    body = 'query = ["a"]\nsend = []\nnot_query = ["b"]\nnot_send = ["a"]\nrequest = []'
    assert told(TOP + ANYONE + RECORDS + case(body)) == [
        "query: unexpected b it can be queried, by a.lacetest.toml:8 (exposure 1)",
        "not_query: unexpected b it can be queried, by a.lacetest.toml:8 (exposure 1)",
        *(
            f"{about}: unexpected {name} it would be sent, by a.lacetest.toml:2 (ours), "
            "a.lacetest.toml:5 (theirs), a.lacetest.toml:8 (exposure 1)"
            for about, name in (("send", "a"), ("send", "b"), ("not_send", "a"))
        ),
    ]


def test_exposed_to_a_viewer() -> None:
    exposure = (
        "[[expose]]\ntext = \"AllowQueryRecord('${alice}',P) :- Field(P,'Group',_,'u').\"\n"
        'viewer = "alice"\n'
    )
    top = TOP + exposure + RECORDS
    assert told(top + case('viewer = "alice"\nquery = ["a"]\nsend = ["a"]')) == []
    assert told(top + case('viewer = "bob"\nquery = []\nsend = []')) == []
    assert told(top + case("query = []\nsend = []")) == []
    assert told(top + case('viewer = "alice"\nsend = ["a", "b"]')) == [
        "send: missing b it would not be sent: not exposed to this viewer"
    ]
    assert told(top + case('viewer = "alice"\nquery = ["a", "b"]')) == [
        "query: missing b not exposed to this viewer"
    ]
    assert told(top + case('viewer = "alice"\nrecords = ["a"]\nquery = ["a", "b"]')) == [
        "query: missing b not here"
    ]
    both = exposure.replace('viewer = "alice"', 'viewer = ["alice", "bob"]')
    assert told(TOP + both + RECORDS + case('viewer = "bob"\nquery = []')) == []


def test_a_case_gives_the_clock_that_exposures_read() -> None:
    until = (
        '[[expose]]\ntext = """AllowQueryRecord(V,P) :- _Viewer(V), Have(P), _LocalTAI(T), '
        "LexCompare(T,'<','1763683237:000000000').\"\"\"\n"
    )
    top = TOP + until + RECORDS

    def at(time: str, expected: str) -> list[str]:
        return told(top + case(f"facts = [\"_LocalTAI('{time}')\"]\nquery = {expected}"))

    assert at("1763683236:999999999", '["a", "b"]') == []
    assert at("1763683237:000000000", "[]") == []
    (problem,) = told(top + case("query = []"))
    assert "an exposure reads _LocalTAI, and the case gives no time" in problem


def test_bait_is_not_taken() -> None:
    """040's bait: a peer's rules cannot tell whether a record is there that they may not see."""
    peer = (
        'peer_select_text = """\n'
        "Bait() :- Field(P,'Group',_,'v').\nSelectHave(P) :- Have(P), Bait().\n"
        "SelectHave(P) :- Have(P), not Bait(), Cardinality(Have(_),'>=','2').\n"
        'SelectAdvertised(P,S) :- Advertised(P,S)."""\n'
    )
    exposure = (
        "[[expose]]\ntext = \"AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Group',_,'u').\"\n"
    )
    for records in ('["a"]', '["a", "b"]'):
        body = f'records = {records}\nsend = []\nderived = {{ "theirs:Bait/0" = [] }}\n{peer}'
        outcomes, coverage = run(TOP + exposure + RECORDS + case(body) + case_uses_all())
        assert outcomes[0].is_ok, outcomes[0]
        (file,) = coverage.files
        assert sorted(file.rules, key=lambda line: line or 0) == [2, 3, 5, 6, 8]


def test_rules_can_name_a_record() -> None:
    """A peer that knows the hash of a hidden record gets nothing for it."""
    names = (
        'peer_select_text = """\nSelectHave(\'${b}\') :- true.\n'
        'SelectAdvertised(P,S) :- Advertised(P,S)."""\n'
    )
    exposure = "[[expose]]\ntext = \"AllowQueryRecord(V,'${a}') :- _Viewer(V).\"\n"
    chosen = 'derived = { "theirs:SelectHave/1" = ["${b}"] }\n'
    for records in ('["a"]', '["a", "b"]'):
        body = f'records = {records}\nnot_send = ["b"]\n{chosen}{names}'
        outcomes, _ = run(TOP + exposure + RECORDS + case(body) + case_uses_all())
        assert outcomes[0].is_ok, outcomes[0]
    top = f'select_text = """\n{ALL}"""\n{names}'
    assert told(top + ANYONE + RECORDS + case('send = ["b"]')) == []
    mine = names.replace("peer_select_text", "select_text").replace("${b}", "${a}")
    theirs = f'peer_select_text = """\n{ALL}"""\n'
    assert told(mine + theirs + ANYONE + RECORDS + case('send = ["a"]')) == []
    plain = "rules_text = \"Known('${a}') :- Have('${b}').\"\n"
    assert told(plain + RECORDS + case('derived = { "Known/1" = ["${a}"] }')) == []


def case_uses_all() -> str:
    return '[[case]]\nname = "all"\nquery = ["a"]\n'


def test_what_is_advertised() -> None:
    top = TOP + RECORDS
    assert told(top + case('advertised = ["b"]\nrequest = ["b"]')) == []
    assert told(top + case('viewer = "bob"\nadvertised = ["b"]\nrequest = ["b"]')) == []
    assert told(top + case('advertised = ["b"]\nrecords = ["a", "b"]\nrequest = ["b"]')) == [
        "request: missing b it would not be requested: already here"
    ]
    assert told(top + case('records = ["a"]\nrequest = ["b"]')) == [
        "request: missing b it would not be requested: not advertised"
    ]
    body = "facts = [\"Advertised('${b}','${peer}')\"]\nrecords = ['a']\nrequest = []"
    (line,) = told(top + case(body))
    assert line.startswith("request: unexpected b it would be requested, by ")


def test_fields_that_are_not_advertised() -> None:
    select = ALL.replace("Advertised(P,S).", "AdvertisedField(P,S,'App',_,'x').")
    top = f'select_text = """\n{select}"""\npeer_select_text = """\n{ALL}"""\n' + RECORDS
    assert told(top + case('advertised = ["b"]\nrequest = ["b"]')) == []
    body = "facts = [\"Advertised('${b}','${peer}')\"]\nrecords = ['a']\nrequest = ['b']"
    assert told(top + case(body)) == [
        "request: missing b it would not be requested: field not advertised: App"
    ]


def test_facts_alone() -> None:
    body = (
        "facts = [\"Have('p1')\", \"Advertised('p2','${peer}')\"]\n"
        'query = ["p1"]\nsend = ["p1"]\nrequest = ["p2"]\n'
        'derived = { "mine:SelectHave/1" = ["p1"], "theirs:SelectAdvertised/2" = '
        '[["p2", "${peer}"]], "MayRequest/1" = ["p2"], "CanQueryRecord/2" = [["${peer}", "p1"]] }'
    )
    assert told(TOP + ANYONE + case(body)) == []


def test_lowerings_and_index() -> None:
    encrypted = TOP + 'lowering = "encrypted-v1"\nindex = 1\n' + ANYONE + RECORDS
    assert told(encrypted + case('send = ["a", "b"]\nfacts = ["TransportEncrypted()"]')) == []
    assert told(encrypted + case('send = ["a"]')) == [
        "send: missing a it would not be sent: transport not encrypted"
    ]
    proven = TOP + 'lowering = "proven-peer-v1"\nindex = 1\n' + RECORDS
    assert told(proven + case('viewer = "bob"\nadvertised = ["b"]\nrequest = ["b"]')) == []
    assert told(proven + case('advertised = ["b"]\nrequest = ["b"]')) == [
        "request: missing b it would not be requested: peer not proven"
    ]


def test_derived() -> None:
    body = 'derived = { "SelectHave/1" = ["a", "${b}"], "CanQueryRecord/2" = [] }'
    first, second = told(TOP + RECORDS + case(body))
    assert first.startswith("SelectHave/1: unexpected ('${a}'): by a.lacetest.toml:2 (ours)")
    assert second == "SelectHave/1: missing ('a'): did you mean ${a}?"
    (line,) = told(TOP + RECORDS + case('derived = { "theirs:SelectHave/1" = ["x"] }'))
    assert line == (
        "theirs:SelectHave/1: missing ('x'): a.lacetest.toml:5 (theirs) fails at o1_Have(P)"
    )
    (line,) = told(TOP + RECORDS + case('derived = { "CanQueryRecord/2" = [["x", "y"]] }'))
    assert line == "CanQueryRecord/2: missing ('x','y')"
    (line,) = told(TOP + RECORDS + case('derived = { "SelectHav/1" = [] }'))
    assert line == "no rule of my selector defines SelectHav/1; did you mean SelectHave/1?"
    (line,) = told(TOP + RECORDS + case('derived = { "theirs:X/9" = [] }'))
    assert line.startswith("no rule of the peer's selector defines X/9; the predicates are ")


def test_limits() -> None:
    top = TOP + ANYONE + RECORDS
    assert told(top + case("limits = { max_work = 0 }\nerror = 'max_work'")) == []
    assert told(top + case("limits = { peer_max_work = 0 }\nerror = 'peer_max_work'")) == []
    assert told(top + case("limits = { peer_max_work = 0 }\nerror = 'X3'")) == []
    assert told(top + case("error = 'max_work'")) == ["it should fail with max_work, and does not"]
    (line,) = told(top + case("limits = { max_work = 0 }\nerror = 'max_rules'"))
    assert line.startswith("it should fail with max_rules, and fails otherwise: ")
    (line,) = told(top + case("limits = { max_work = 0 }\nsend = []"))
    assert "the limit is max_work=0" in line


def test_differences_within_tight_limits_are_still_shown() -> None:
    """Explaining costs more than deciding; a limit under test may leave no room for it."""
    rows = [told(TOP + ANYONE + RECORDS + case(f"limits = {{ max_work = {n} }}\nsend = []"))
            for n in range(40)]  # fmt: skip
    assert any("cannot be explained" in line for lines in rows for line in lines)
    assert all("unexpected" in line or "max_work" in line for lines in rows for line in lines)


def test_rules_that_are_not_legal() -> None:
    bad = 'peer_select_text = """\nSelectHave(P) :- Have(P).\nAllowX(P) :- Have(Q)."""\n'
    assert told(TOP + RECORDS + case(f'{bad}error = "G21"')) == []
    ((outcome,), coverage) = run(TOP + RECORDS + case(f"{bad}send = []"))
    assert outcome.failure is not None
    assert "a.lacetest.toml:25:" in outcome.failure
    assert outcome.failure.endswith("more)")
    assert outcome.cause is not None
    assert coverage.total == 2
    assert coverage.fired == 0


def test_one_finding_is_told_in_full() -> None:
    bad = 'peer_select_text = "SelectHave(P) :- Have(P)."\n'
    (line,) = told(TOP + RECORDS + case(f"{bad}error = 'max_work'"))
    assert line.startswith("it should fail with max_work, and fails otherwise: a.lacetest.toml:23:")
    assert "SelectAdvertised/2" in line


def test_plain_rules() -> None:
    top = (
        'rules_text = """\nPath(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z).\n'
        "Big() :- Cardinality(Twice(_),'>=','1').\n"
        'Twice(X) :- Edge(X,Y), Edge(X,Z), Y != Z."""\n'
        "facts = [\"Edge('a','b')\"]\n"
    )
    ((first, second, third), coverage) = run(
        top + case('derived = { "Path/2" = [["a", "b"]] }') + '[[case]]\nname = "two"\n'
        'facts = ["Edge(\'b\',\'c\')"]\nderived = { "Path/2" = [], "Twice/1" = [] }\n'
        '[[case]]\nname = "three"\nderived = { "Pth/2" = [] }\n'
    )
    assert first.is_ok
    assert [str(each) for each in second.differences] == [
        "Path/2: unexpected ('a','b'): by a.lacetest.toml:2",
        "Path/2: unexpected ('a','c'): by a.lacetest.toml:3",
        "Path/2: unexpected ('b','c'): by a.lacetest.toml:2",
    ]
    assert third.failure == "no rule defines 'Pth/2'; did you mean Path/2?"
    (file,) = coverage.files
    assert (file.total, sorted(file.fired, key=str)) == (4, [2, 3])
    assert [(each.line, each.text[:3]) for each in file.idle()] == [(4, "Big"), (5, "Twi")]
    assert (coverage.total, coverage.fired, coverage.percent) == (4, 2, 50.0)


def test_rules_that_are_only_counted_are_measured() -> None:
    _outcomes, coverage = run(
        "rules_text = \"\"\"\nBig() :- Cardinality(Twice(_),'>=','1').\n"
        'Twice(X) :- Edge(X,Y), Edge(X,Z), Y != Z."""\n'
        + case("facts = [\"Edge('a','b')\", \"Edge('a','c')\"]\nderived = { \"Big/0\" = [[]] }")
    )
    assert coverage.percent == 100.0


def test_a_rule_that_makes_what_another_made_has_fired() -> None:
    _outcomes, coverage = run(
        'rules_text = """\nA(X) :- Edge(X,_).\nA(X) :- Edge(X,Y), X != Y.\nA(X) :- Edge(X,_)."""\n'
        + case('facts = ["Edge(\'a\',\'b\')"]\nderived = { "A/1" = ["a"] }')
    )
    assert coverage.percent == 100.0


def test_plain_rules_that_define_what_is_given() -> None:
    text = 'rules_text = "A(X) :- Edge(X,_)."\n' + case('facts = ["A(\'x\')"]\nerror = "030-47"')
    assert told(text) == []


def test_coverage_of_an_exposure_for_another_viewer() -> None:
    text = (
        TOP + '[[expose]]\nviewer = "bob"\n'
        'text = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P)."\n' + RECORDS
    )
    ((outcome,), coverage) = run(text + case('viewer = "alice"\nsend = []'))
    assert outcome.is_ok
    (file,) = coverage.files
    assert (file.total, file.fired) == (5, {2})


def test_outcomes_as_plain_values() -> None:
    ((outcome,), _coverage) = run(TOP + ANYONE + RECORDS + case('send = ["a"]\nrequest = ["b"]'))
    value = outcome.to_json()
    assert (value["name"], value["ok"], value["failure"]) == ("one", False, None)
    first, second = value["differences"]
    assert (first["about"], first["problem"], first["name"]) == ("send", "unexpected", "b")
    assert first["gate"] is None
    assert first["explanation"]["holds"]
    assert (second["about"], second["problem"], second["gate"]) == (
        "request",
        "missing",
        "not advertised",
    )
