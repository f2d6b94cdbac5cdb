"""Test files are read strictly: what they say, and everything that is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.policytests import model as records
from lace.policytests import reader
from lace.policytests import reader as case_reader
from lace.policytests import reader as rule_texts
from lace.policytests.model import make_test_key
from lace.policytests.reader import find_test_files, read_tests
from lace.policytests.tables import PolicyTestError
from lace.record.model import Plex

if TYPE_CHECKING:
    from lace.policytests.model import PolicyTests

SELECT = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
VERIFIER = "V.N_knahdqciXtwPa2oSKc9ky7HKtILmo61UnxdY_FQg0.H3"
TOP = f'select_text = """\n{SELECT}"""\npeer_select_text = """\n{SELECT}"""\n'
CASE = '[[case]]\nname = "one"\nsend = []\n'


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str) -> PolicyTests:
    Path("a.lacetest.toml").write_text(text, "utf-8")
    return read_tests("a.lacetest.toml")


def wrong(text: str) -> list[str]:
    with pytest.raises(PolicyTestError) as caught:
        read(text)
    return [str(each) for each in caught.value.findings]


def test_a_small_file() -> None:
    tests = read(TOP + CASE)
    assert tests.select is not None
    assert tests.select.name == "a.lacetest.toml"
    assert tests.select.line(2) == "SelectHave(P) :- Have(P)."
    (case,) = tests.cases
    assert (case.name, case.line, case.viewer, case.index) == ("one", 7, None, 0)
    assert case.expected == {"send": ()}
    assert case.peer_select is not None
    assert case.peer_select.measured


def test_rules_in_the_file_keep_their_lines_if_they_can() -> None:
    escaped = SELECT.replace("\n", "\\n")
    tests = read(f'select_text = "{escaped}"\n' + TOP.partition('"""\n')[2].partition('"""\n')[2]
                 + '[[expose]]\ntext = "A(X) :- Have(X)."\n' + CASE)  # fmt: skip
    assert tests.select is not None
    assert tests.select.name == "a.lacetest.toml select_text"
    assert tests.select.line(1) == "SelectHave(P) :- Have(P)."
    inline = f"expose = [{{ text = '', viewer = ['{VERIFIER}'] }}]\n"
    assert read(TOP + inline + CASE).exposures[0].rules.name == "a.lacetest.toml expose 1 text"
    assert read(TOP + inline + CASE).exposures[0].viewers == (VERIFIER,)
    (exposed,) = tests.exposures
    assert (exposed.rules.name, exposed.rules.line(6)) == ("a.lacetest.toml", "A(X) :- Have(X).")
    assert exposed.rules.line(7) == ""


def test_a_case_brings_what_the_file_has_otherwise() -> None:
    Path("theirs.lace").write_text(SELECT, "utf-8")
    tests = read(
        TOP + 'index = 1\nlowering = "encrypted-v1"\nfacts = ["TransportEncrypted()"]\n'
        "limits = { max_work = 5, peer_max_work = 7 }\n"
        + CASE
        + '[[case]]\nname = "two"\nsend = []\nindex = 0\nlowering = "proven-peer-v1"\n'
        'facts = ["Have(\'x\')"]\nlimits = { max_work = 6 }\npeer_select = "theirs.lace"\n'
    )
    one, two = tests.cases
    assert (one.index, one.lowering, one.limits["max_work"]) == (1, "encrypted-v1", 5)
    assert one.facts == ("TransportEncrypted()",)
    assert (two.index, two.lowering) == (0, "proven-peer-v1")
    assert two.limits == {"max_work": 6, "peer_max_work": 7}
    assert two.facts == ("TransportEncrypted()", "Have('x')")
    assert two.peer_select is not None
    assert (two.peer_select.name, two.peer_select.measured) == ("theirs.lace", False)


def test_keys_and_records_are_the_same_each_time() -> None:
    text = (
        TOP + f'[keys]\nalice = "test"\nreal = "{VERIFIER}"\nother = {{ seed = "alice 2" }}\n'
        '[records.note]\ngroup = "u"\napp = "x"\nname = "${alice}"\nsign = "alice"\n'
        'data = "$${kept}"\nheaders = { Tag = ["a", "a"], "+Link" = "of ${photo} ${real}" }\n'
        '[records.photo]\ndata = "bytes"\n'
        '[[case]]\nname = "one"\nviewer = "other"\nsend = []\n'
    )
    first, again = read(text), read(text)
    key = make_test_key("alice")
    plex = Plex(
        group="u",
        app="x",
        name=key.verifier,
        data=b"${kept}",
        tai=records.DEFAULT_TAI,
        headers=[
            ("Tag", "a"),
            ("Tag", "a"),
            ("+Link", f"of {first.records['photo'].id} {VERIFIER}"),
        ],
    )
    assert first.records["note"].id == again.records["note"].id == plex.seal(key).id
    signed = ("Field", plex.seal(key).id, "Signed-By", "0", key.verifier)
    assert signed in first.records["note"].facts
    assert first.keys["other"].verifier == make_test_key("alice 2").verifier
    assert first.cases[0].viewer == first.keys["other"].verifier
    assert first.cases[0].records == ("note", "photo")


def test_a_key_stands_for_another() -> None:
    Path("mine.lace").write_text(
        f"{SELECT}\nSelectHave(P) :- Field(P,'Signed-By',_,'{VERIFIER}').", "utf-8"
    )
    tests = read(
        'select = "mine.lace"\npeer_select = "mine.lace"\n'
        f'[keys]\nadmin = {{ stands_for = "{VERIFIER}" }}\n' + CASE
    )
    assert tests.select is not None
    assert VERIFIER.encode() not in tests.select.raw
    assert VERIFIER in tests.select.line(3)
    assert tests.keys["admin"].verifier.encode() in tests.select.raw


def test_what_is_advertised_is_not_here_unless_the_case_says_so() -> None:
    tests = read(
        TOP + '[records.a]\ndata = "a"\n[records.b]\ndata = "b"\n'
        '[[case]]\nname = "one"\nadvertised = ["b"]\nsend = []\n'
        '[[case]]\nname = "two"\nadvertised = ["b"]\nrecords = ["b"]\nsend = []\n'
    )
    assert [case.records for case in tests.cases] == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.lacetest.toml: select is missing; write select"),
        ("x = \n", "a.lacetest.toml:1:5: this is no TOML: Invalid value"),
        ('x = "', "a.lacetest.toml: this is no TOML: "),
        ("a = " + "[" * 4000, "this is no TOML that can be read"),
        ("a = " + "9" * 5000, "this is no TOML that can be read"),
        (TOP, "a.lacetest.toml: there is no case; begin one with [[case]]"),
        (TOP + "case = 3", "a.lacetest.toml:7: case: this is a whole number, and should be an arr"),
        (TOP + "case = [3]", "a.lacetest.toml:7: case: item 1 is a whole number, and should be a"),
        (TOP + "selct = 1\n" + CASE, ":7: selct: there is no such key; did you mean select?"),
        (
            TOP + "zzz = 1\n" + CASE,
            ":7: zzz: there is no such key; the keys here are allow_undefined,",
        ),
        (TOP + "lowering = 2024-01-01\n" + CASE, ":7: lowering: this is a date or a time, and sh"),
        (TOP + "index = true\n" + CASE, ":7: index: this is true or false, and should be a whole"),
        (
            TOP + "lowering = 'standard'\n" + CASE,
            ":7: lowering: there is no lowering 'standard'; d",
        ),
        (TOP + "[keys]\na = 3\n" + CASE, ":8: keys.a: this is a whole number, and should be text"),
        (TOP + "index = 2\n" + CASE, ":7: index: 2 is neither 0 nor 1; the side that connects"),
        (TOP + "keys = 1.5\n" + CASE, ":7: keys: this is a number, and should be a table"),
        (TOP + 'select = "x"\n' + CASE, ":1: select_text: there is select too; name a file"),
        ('select = "x"\n' + CASE, ":1: select: x: it cannot be read: No such file or directory"),
        ('rules = "x"\nselect = "x"\n' + CASE, ":2: select: this is for a policy, and the file"),
        (f'select_text = """{SELECT}"""\n' + CASE, ": case 1: there is no peer_select, neither"),
        (TOP + '[keys]\na = "V.x"\n' + CASE, ":8: keys.a: 'V.x' is no verifier; write V.….H3"),
        (TOP + '[keys]\npeer = "test"\n' + CASE, ":8: keys.peer: this name means the peer of a"),
        (TOP + "[keys]\na = { stands_for = 'x' }\n" + CASE, ":8: keys.a.stands_for: 'x' is no ver"),
        (TOP + '[keys]\n"1" = "test"\n' + CASE, ":8: keys.1: this is no name; a letter, then"),
        (TOP + '[keys]\na = "test"\n' + CASE, ":8: keys.a: nothing uses it; take it out"),
        (
            TOP + f'[keys]\na = "{VERIFIER}"\nb = "{VERIFIER}"\n' + CASE,
            ":9: keys.b: this is the verifier of the key a too",
        ),
        (TOP + "[limits]\nmax_wrk = 1\n" + CASE, ":8: limits.max_wrk: there is no such key; did y"),
        (TOP + "[limits]\nmax_work = -1\n" + CASE, ":8: limits.max_work: setting max_work=-1 is"),
        (TOP + "[[expose]]\n" + CASE, ":7: expose 1: file is missing; write file"),
        (TOP + "[[expose]]\ntext = ''\nfile = 'x'\n" + CASE, ":8: expose 1, text: there is file"),
        (TOP + "[[expose]]\ntext = ''\nviewer = 'x'\n" + CASE, ":9: expose 1, viewer: 'x' is nei"),
        (TOP + "[[expose]]\ntext = ''\nviewer = []\n" + CASE, ":9: expose 1, viewer: no viewer is"),
        (TOP + "[[expose]]\ntext = '${x}'\n" + CASE, ":8: expose 1, text: nothing is called 'x'"),
        (TOP + "[[expose]]\nfil = ''\n" + CASE, ":8: expose 1, fil: there is no such key; did yo"),
    ],
)
def test_a_wrong_top(text: str, message: str) -> None:
    assert any(message in each for each in wrong(text)), wrong(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("dta = 'x'", ":8: records.r.dta: there is no such key; did you mean data?"),
        ("data = 1", ":8: records.r.data: this is a whole number, and should be text"),
        ("tai = 'x'", ":8: records.r.tai: a Blob has data only; give group, app and name"),
        ("group = 'u'", ":7: records.r: app is missing; a Plex has group, app and name"),
        ("group = '/'\napp = 'x'\nname = 'y'", "records.r: Group '/' begins or ends with a slash"),
        ("group = 'u'\napp = 'x'\nname = 'y'\ntai = 'z'", "'z' is not a TAI instant [010-tai]"),
        ("group = 'u'\napp = 'x'\nname = 'y'\nsign = 'z'", ":11: records.r.sign: there is no key"),
        ("group = 'u'\napp = 'x'\nname = '${z}'", ":10: records.r.name: nothing is called 'z'; t"),
        ("group = 'u'\napp = 'x'\nname = '${r}'", "in a circle: r → r"),
        ("group = 'u'\napp = 'x'\nname = 'y'\nheaders = 3", "records.r.headers: this is a whole"),
        ("group = 'u'\napp = 'x'\nname = 'y'\nheaders = { A = 3 }", ".A: this is a whole number"),
        ("group = 'u'\napp = 'x'\nname = 'y'\nheaders = { A = [\"\\n\"] }", "records.r: "),
        ("data = 'x'\n[records.s]\ndata = 'x'", ":9: records.s: this is the same record as r; g"),
        ("data = 'x'\n[records.'a b']\n", ':9: records."a b": this is no name'),
        ("data = 'x'\n[records.peer]\n", ":9: records.peer: this name means the peer of a case"),
        (f"data = '{'x' * (records.MAX_DATA_BYTES + 1)}'", "65,537 bytes; at most 65,536 are read"),
        ("data = 'x'\n[[case]]\nname = 'c'\nrecords = []\nsend = []", "records.r: no case uses"),
    ],
)
def test_a_wrong_record(body: str, message: str) -> None:
    case = "" if "[[case]]" in body else CASE
    found = wrong(f"{TOP}[records.r]\n{body}\n{case}")
    assert any(message in each for each in found), found


def test_a_verifier_cannot_sign() -> None:
    record = "[records.r]\ngroup = 'u'\napp = 'x'\nname = 'y'\nsign = 'real'\n"
    (found,) = wrong(f"{TOP}[keys]\nreal = '{VERIFIER}'\n{record}{CASE}")
    assert "records.r.sign: the key real is a verifier, which cannot sign; write real = " in found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("send = []", ":7: case 1: name is missing; write name"),
        ("name = ''\nsend = []", ":8: case 1, name: a name is one line of text"),
        ("name = 'x'", ":7: case 1: the case expects nothing; give one of query, not_query"),
        ("name = 'x'\nsned = []\nsend = []", ":9: case 1, sned: there is no such key; did you me"),
        ("name = 'x'\nsend = 'y'", ":9: case 1, send: this is text, and should be an array"),
        ("name = 'x'\nsend = [1]", ":9: case 1, send: item 1 is a whole number, and should be te"),
        ("name = 'x'\nsend = ['y']", ":9: case 1, send: there is no record 'y'; there are no rec"),
        ("name = 'x'\nrecords = ['y']\nsend = []", ":9: case 1, records: there is no record 'y'"),
        ("name = 'x'\nadvertised = ['y']\nsend = []", ":9: case 1, advertised: there is no recor"),
        ("name = 'x'\nviewer = 'Opq_0'\nsend = []", ":9: case 1, viewer: 'Opq_0' is neither a k"),
        (
            "name = 'x'\nfacts = [\n\"Hve('x')\"]\nsend = []",
            ":10: case 1, facts: Hve is no base pr",
        ),
        ("name = 'x'\nfacts = [\"Have()\"]\nsend = []", "facts: the arity of Have is 1, not 0; as"),
        ("name = 'x'\nfacts = [\"Have( 'x')\"]\nsend = []", "is not a fact line; write Name('valu"),
        ("name = 'x'\nfacts = [\"Peer('x')\"]\nsend = []", "facts: Peer follows from viewer; name"),
        (
            "name = 'x'\nfacts = [\"Have('${y}')\"]\nsend = []",
            "facts: nothing is called 'y'; the n",
        ),
        ("name = 'x'\nfacts = [\"Have('y')\"]\nsend = ['y']\nnot_send = ['y']", "y is in send too"),
        ("name = 'x'\nfacts = [\"Have('y')\", \"Have('y')\"]\nsend = ['y']", "is there twice"),
        ("name = 'x'\nerror = 'max_work'\nsend = []", "a case that must fail can expect nothing e"),
        ("name = 'x'\nerror = ' '", ":9: case 1, error: this names no error; a limit, as max_wor"),
        ("name = 'x'\nderived = { A = [] }", "derived.A: this names no predicate; write"),
        ('name = "x"\nderived = { "A/1" = [1] }', "item 1 is neither text nor an array of texts"),
        ('name = "x"\nderived = { "A/1" = [["a", "b"]] }', "item 1: 2 given, and the arity is 1"),
        ('name = "x"\nderived = { "A/1" = ["a", "a"] }', "item 2 is there twice"),
        ('name = "x"\nderived = { "A/1" = [], "mine:A/1" = [] }', "A/1 is there twice"),
        ("name = 'x'\nsend = []\n[[case]]\nname = 'x'\nsend = []", "a case in line 7 has this nam"),
    ],
)
def test_a_wrong_case(body: str, message: str) -> None:
    found = wrong(f"{TOP}[[case]]\n{body}\n")
    assert any(message in each for each in found), found


def test_names_of_records_stand_alone() -> None:
    record = "[records.note]\ndata = 'x'\n"
    (found,) = wrong(TOP + record + "[[case]]\nname = 'x'\nsend = ['${note}']\n")
    assert found.endswith("there is no record '${note}'; here names stand alone: write note")


def test_plain_rules_know_no_policy() -> None:
    found = wrong(
        'rules_text = "A(X) :- Edge(X,_)."\n[[case]]\nname = "x"\nsend = []\nviewer = "y"\n'
        "facts = [\"Edge('${peer}','b')\"]\nderived = { \"theirs:A/1\" = [] }\n"
    )
    assert any("case 1, send: there is no such key" in each for each in found)
    assert any("case 1, viewer: there is no such key" in each for each in found)
    assert any("facts: nothing is called 'peer'; there are no names" in each for each in found)
    assert any('derived."theirs:A/1": this names no predicate' in each for each in found)


def test_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_CASES", 1)
    monkeypatch.setattr(case_reader, "MAX_FACTS", 1)
    monkeypatch.setattr(records, "MAX_RECORDS", 1)
    monkeypatch.setattr(rule_texts, "MAX_RULE_FILE_BYTES", 3)
    Path("long.lace").write_text("    ", "utf-8")
    facts = "facts = [\"Have('a')\", \"Have('b')\"]\n"
    (found,) = wrong(TOP + CASE + CASE)
    assert "case: these are 2 cases; at most 1 are run" in found
    (found,) = wrong(TOP + CASE + facts)
    assert "case 1, facts: these are 2 items, and at most 1 are read" in found
    found = wrong(TOP + "[records.a]\n[records.b]\n" + CASE)[0]
    assert "records: these are 2 records, and at most 1 are made" in found
    (found,) = wrong(TOP + '[[expose]]\nfile = "long.lace"\n' + CASE)
    assert "expose 1, file: long.lace: the file has more than 3 bytes" in found
    monkeypatch.setattr(reader, "MAX_TEST_FILE_BYTES", 9)
    (found,) = wrong(TOP + CASE)
    assert found == "a.lacetest.toml: the file has more than 9 bytes"


def test_a_record_that_only_rules_name_is_used() -> None:
    record = "[records.note]\ndata = 'x'\n"
    rules = "peer_select_text = \"SelectHave('${note}') :- true.\"\n"
    body = f"[[case]]\nname = 'x'\nrecords = []\nsend = []\n{rules}"
    tests = read(TOP + record + body)
    (case,) = tests.cases
    assert case.peer_select is not None
    assert tests.records["note"].id.encode() in case.peer_select.raw
    assert b"${note}" in case.peer_select.written
    (found,) = wrong(TOP + record + body.replace("${note}", "${notes}"))
    assert "nothing is called 'notes'; did you mean note?" in found


def test_bytes_that_are_no_text() -> None:
    Path("a.lacetest.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(PolicyTestError, match="byte 5 is not UTF-8"):
        read_tests("a.lacetest.toml")


def test_folders() -> None:
    for name in ("b/x.lacetest.toml", "b/c/y.lacetest.toml", ".git/z.lacetest.toml", "b/no.toml"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("", "utf-8")
    assert find_test_files(["b/x.lacetest.toml", ".", "b/no.toml"]) == [
        "b/x.lacetest.toml",
        "b/c/y.lacetest.toml",
        "b/no.toml",
    ]
    Path("empty").mkdir()
    with pytest.raises(PolicyTestError, match=r"empty: there is no \*\.lacetest\.toml in this fol"):
        find_test_files(["empty"])
