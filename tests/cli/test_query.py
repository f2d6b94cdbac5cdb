"""`lace query`: where rules and facts come from, how answers look, what is refused."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.running import call, call_at_terminal, on_terminal, process, spawn

if TYPE_CHECKING:
    from lace.record.model import Blob, Plex, Seal

    Records = list[Blob | Plex | Seal]

PATHS = "Path(X,Y) :- Edge(X,Y).\nPath(X,Z) :- Path(X,Y), Edge(Y,Z).\n"
EDGES = b"Edge('a','b')\nEdge('b','c')\n"
REACH = ("-e", "Reach(X) :- Next('0',X).", "-e", "Reach(Y) :- Reach(X), Next(X,Y).")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "paths.lace"
    path.write_text(PATHS)
    return path


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.facts"
    path.write_bytes(EDGES)
    return path


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.facts"
    path.write_text("".join(f"Next('{at}','{at + 1}')\n" for at in range(300)))
    return path


# -- where rules and facts come from -----------------------------------------------------------


def test_rules_from_everywhere(rules: Path, edges: Path) -> None:
    expected = ["Path('a','b')", "Path('a','c')", "Path('b','c')"]
    texts = [part for line in PATHS.splitlines() for part in ("-e", line)]
    for arguments, given in (
        (["--rules", rules], b""),
        (["--rules", "-"], PATHS.encode()),
        (["-"], PATHS.encode()),
        (texts, b""),
    ):
        done = call("query", *arguments, "--facts", edges, given=given)
        assert (done.code, done.lines, done.err) == (0, expected, "")
    done = call("query", "--rules", rules, "--facts", "-", given=EDGES)
    assert done.lines == expected


def test_over_a_lace(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    done = call("query", "-e", "Note(P) :- Field(P,'App',_,'notes').")
    assert done.lines == sorted(f"Note('{record.id}')" for record in records[1:])
    assert call("query", "-e", "None(P) :- Field(P,'App',_,'none').").code == 0


def test_facts_only_come_from_the_files(filled: Path, edges: Path) -> None:
    assert filled.is_dir()
    assert call("query", "-e", "All(P) :- Have(P).", "--facts", edges).lines == []
    everything = call("facts").raw
    rule = "Note(P) :- Field(P,'App',_,'notes')."
    piped = call("query", "-e", rule, "--facts", "-", given=everything)
    assert piped.raw == call("query", "-e", rule).raw
    twice = call("query", "-e", rule, "--facts", "-", "--facts", edges, given=everything)
    assert twice.raw == piped.raw


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "there are no rules; give --rules FILE"),
        (["-e", "A(P) :- Have(P).", "-"], 2, "rules come from one place"),
        (["paths.lace"], 2, "did you mean --rules paths.lace?"),
        (["A(P) :- Have(P)."], 2, "did you mean -e 'RULE'?"),
        (["--rules", "missing"], 2, "missing cannot be read: No such file"),
        (["--rules", "paths.lace", "--facts", "missing"], 2, "missing cannot be read"),
        (["--rules", "paths.lace", "--facts", "."], 2, ". cannot be read: Is a directory"),
        (["--rules", "paths.lace", "--facts", "a\0b"], 2, "cannot be read"),
        (["--rules", "-", "--facts", "-"], 2, "standard input cannot be rules and facts at once"),
        (["--rules", "paths.lace", "--facts", "-", "--facts", "-"], 2, "can be read once"),
        (["--rules", "paths.lace"], 2, "there is no lace here"),
        (["--rules", "paths.lace", "--predicate", "Pth/2"], 2, "did you mean Path/2?"),
        (["--rules", "paths.lace", "--predicate", "Path"], 2, "did you mean Path/2?"),
        (["--rules", "paths.lace", "--predicate", "Have/1"], 2, "`lace facts` shows its facts"),
        (["--rules", "paths.lace", "--predicate", "?"], 2, "'?' names no predicate"),
        (["--rules", "paths.lace", "--predicate", "Zoo/9"], 2, "the rules define Path/2"),
        (["--rules", "paths.lace", "--engine", "fast"], 2, "'fast'"),
        (["--rules", "paths.lace", "--format", "parquet"], 2, "name a file with -o FILE"),
        (["--rules", "paths.lace", "--format", "csv", "--json"], 2, "exclude each other"),
        (["-e", "A() :- true.", "--format", "csv"], 2, "A/0 has no columns for csv"),
        (["--rules", "paths.lace", "--set", "max_wrk=1"], 2, "did you mean max_work?"),
    ],
)
def test_wrong_usage(rules: Path, arguments: list[str], code: int, words: str) -> None:
    assert rules.exists()
    done = call("query", *arguments)
    assert (done.code, done.raw) == (code, b"")
    assert words in done.err
    assert done.err.count("\n") == (2 if "--json" in arguments else 1)


def test_spark_is_not_installed(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules.exists()
    monkeypatch.setattr("lace.spark.engine.session.util.find_spec", lambda _name: None)
    done = call("query", "--rules", "paths.lace", "--engine", "spark")
    assert (done.code, done.raw) == (3, b"")
    assert "pyspark and pyarrow not installed; pip install 'lace[spark]'" in done.err


# -- how answers look --------------------------------------------------------------------------


def test_lines_are_sorted_bytewise_over_all_predicates(tmp_path: Path) -> None:
    values = ["a", "b'c", "b\\c", "b", "é", "z", "\U0001f600", "\uffee", ""]
    facts = tmp_path / "facts"
    quoted = [value.replace("\\", "\\\\").replace("'", "\\'") for value in values]
    facts.write_text("".join(f"V('{value}')\n" for value in quoted))
    rules = [f"{name} :- V(X)." for name in ("A(X)", "A(X,X)", "A-b(X)", "A1(X)", "a(X)", "_A(X)")]
    arguments = [part for rule in rules for part in ("-e", rule)]
    done = call("query", *arguments, "--facts", facts)
    assert len(done.lines) == len(values) * len(rules)
    raw = done.raw.split(b"\n")[:-1]
    assert raw == sorted(raw)
    found = call("query", *arguments, "--facts", facts, "--json").json_lines()
    assert {value for fact in found for value in fact["values"]} == set(values)


def test_predicates_are_chosen(rules: Path, edges: Path) -> None:
    texts = ["-e", "A(X) :- Edge(X,_).", "-e", "B(X) :- Edge(_,X).", "-e", "C(X) :- Edge(X,X)."]
    chosen = ["--predicate", "C/1", "--predicate", "B/1", "--predicate", "B/1"]
    done = call("query", *texts, "--facts", edges, *chosen)
    assert done.lines == ["B('b')", "B('c')"]
    assert rules.exists()


def test_json(rules: Path, edges: Path) -> None:
    for arguments in (["--json"], ["--format", "json"], ["--json", "--format", "json"]):
        done = call("query", "--rules", rules, "--facts", edges, *arguments)
        assert done.json_lines()[0] == {"predicate": "Path", "values": ["a", "b"]}
        assert len(done.json_lines()) == 3


def test_csv(tmp_path: Path, edges: Path) -> None:
    edges.write_text("Edge('a,b','\"c\"')\nEdge('=1','')\n")
    texts = ["-e", "Pair(X,Y) :- Edge(X,Y).", "-e", "One(X) :- Edge(X,_)."]
    done = call("query", *texts, "--facts", edges, "--format", "csv")
    assert done.code == 2
    assert "csv holds the facts of one predicate, and here are 2: Pair/2, One/1" in done.err
    arguments = ["--facts", edges, "--format", "csv", "--predicate", "Pair/2"]
    done = call("query", *texts, *arguments)
    assert list(csv.reader(io.StringIO(done.out))) == [["0", "1"], ["=1", ""], ["a,b", '"c"']]
    assert call("query", *texts, *arguments, "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_bytes() == done.raw


@pytest.mark.requirement("030-25", "030-23")
def test_values_with_control_characters(tmp_path: Path, edges: Path) -> None:
    """Every format gives them as they are; a terminal gets none of them."""
    value = "a\tb\x00\x1b[31m\x85\u2028"
    edges.write_text(f"Edge('{value}','x')\n", "utf-8")
    (tmp_path / "rules").write_text(f"Both(X,Y) :- Edge(X,Y), X != 'a\t'.\nC('{value}') :- true.")
    asked = ("query", "--rules", tmp_path / "rules", "--facts", edges, "--predicate", "Both/2")
    done = call(*asked)
    assert done.raw == f"Both('{value}','x')\n".encode()
    assert call(*asked, "--json").json_lines() == [{"predicate": "Both", "values": [value, "x"]}]
    rows = csv.reader(io.StringIO(call(*asked, "--format", "csv").out, newline=""))
    assert list(rows) == [["0", "1"], [value, "x"]]
    (tmp_path / "again").write_bytes(done.raw)
    same = ("-e", "Edge(X,Y) :- Both(X,Y), X != 'b\t'.", "--facts", tmp_path / "again")
    assert call("query", *same).raw == edges.read_bytes()
    for form in ("facts", "table", "csv"):
        shown = call_at_terminal(*asked, "--format", form, columns=200)
        assert shown.code == 0
        assert "a\\u{9}b\\u{0}\\u{1b}[31m\\u{85}\\u{2028}" in shown.raw.decode(), form
        assert not set(shown.raw.decode()) & set("\t\0\x1b\x85\u2028"), form
    text = call("rules", "canonical", tmp_path / "rules")
    assert text.raw == (tmp_path / "rules").read_bytes()
    assert call("rules", "fmt", "--stdout", tmp_path / "rules").raw == text.raw + b"\n"
    assert "\\u{9}" in call_at_terminal("rules", "canonical", tmp_path / "rules", columns=200).out


def test_parquet_needs_pyarrow(
    tmp_path: Path, rules: Path, edges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--rules", rules, "--facts", edges, "--format", "parquet", "-o", "out"]
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    done = call("query", *arguments)
    assert done.code == 3
    assert "pip install 'lace[spark]'" in done.err
    assert not (tmp_path / "out").exists()


def test_parquet(tmp_path: Path, rules: Path, edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for pyarrow, which need not be installed."""

    class Table:
        def __init__(self, arrays: list[list[str]]) -> None:
            self.rows = list(zip(*arrays, strict=True))

        def sort_by(self, _order: Any) -> Table:
            self.rows.sort()
            return self

    fake, parquet = ModuleType("pyarrow"), ModuleType("pyarrow.parquet")
    fake.__dict__.update(
        parquet=parquet,
        string=lambda: None,
        array=lambda column, _kind: list(column),
        table=lambda arrays, names: Table(arrays) if names == ["0", "1"] else None,
    )
    parquet.__dict__["write_table"] = lambda table, file: file.write(repr(table.rows).encode())
    monkeypatch.setitem(sys.modules, "pyarrow", fake)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    arguments = ["--rules", rules, "--facts", edges, "--format", "parquet", "-o", "out"]
    assert call("query", *arguments).code == 0
    assert (tmp_path / "out").read_bytes() == b"[('a', 'b'), ('a', 'c'), ('b', 'c')]"


def test_a_file_is_written_whole(tmp_path: Path, rules: Path, edges: Path) -> None:
    done = call("query", "--rules", rules, "--facts", edges, "-o", "out")
    assert (done.code, done.raw) == (0, b"")
    assert done.err == "wrote 3 facts to out\n"
    assert len((tmp_path / "out").read_text().splitlines()) == 3
    bad = call("query", "--rules", rules, "--facts", edges, "-o", "out", "--set", "max_work=1")
    assert bad.code == 1
    assert len((tmp_path / "out").read_text().splitlines()) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.facts", "out", "paths.lace"]


def test_tables_on_a_terminal(filled: Path, records: Records, edges: Path) -> None:
    rule = "Named(P,Name) :- Field(P,'Name',_,Name)."
    empty, flag = "Empty(X) :- Have(X), X != X.", "Flag() :- true."
    done = on_terminal("--lace", filled, "query", "-e", rule, "-e", empty, "-e", flag, "--no-color")
    assert done.code == 0
    assert "Named/2: 3 facts" in done.out
    assert f"{records[1].id[:10]}…   b" in done.out
    assert records[1].id not in done.out
    assert "Empty/1: no facts" in done.out
    assert "Flag() holds" in done.out
    assert "--format facts shows them whole" in done.out
    whole = on_terminal("--lace", filled, "query", "-e", rule, "--format", "facts")
    assert f"Named('{records[1].id}','b')" in whole.out
    assert edges.exists()


def test_a_long_table_is_cut_and_text_is_safe(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    lines = [f"V('{number:04}')\n" for number in range(1500)] + ["V('\u202eevil')\n"]
    facts.write_text("".join(lines))
    arguments = ["query", "-e", "A(X) :- V(X).", "--facts", facts, "--no-color"]
    shown = on_terminal(*arguments).out
    assert "these are the first 1,000 of 1,501" in shown
    assert "0999" in shown
    assert "1000\n" not in shown
    shown = on_terminal(*arguments, "--format", "facts").out
    assert "1499" in shown
    assert "A('\\u{202e}evil')" in shown
    assert "\u202e" not in shown


def test_a_narrow_terminal(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.write_text(f"V('{'x' * 300}','y')\n")
    shown = on_terminal("query", "-e", "A(X,Y) :- V(X,Y).", "--facts", facts, columns=40).out
    assert shown.count("x") >= 300
    assert all(len(line) < 60 for line in shown.split("\n") if "x" in line)


@pytest.mark.slow
def test_someone_who_waits_is_told(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.write_text("".join(f"N('{number}')\n" for number in range(12_000)))
    rule = (
        "A(X) :- N(X), N(Y), N(Z), LexCompare(X,'<',Y), LexCompare(Y,'<',X), LexCompare(Z,'<',X)."
    )
    arguments = ["query", "-e", rule, "--facts", facts, "--set", "max_work=300000000"]
    shown = on_terminal(*arguments, "-o", tmp_path / "out").out
    assert "evaluating" in shown
    assert "rows visited" in shown
    assert "evaluating" not in on_terminal(*arguments, "--quiet").out


def test_the_reader_of_the_output_may_go(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.write_text("".join(f"N('{number}')\n" for number in range(50_000)))
    started = spawn("query", "-e", "A(X) :- N(X).", "--facts", facts)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.read(10)
    started.stdout.close()
    assert started.wait(60) == 141
    assert started.stderr.read() == b""
    started.stderr.close()


# -- statistics --------------------------------------------------------------------------------


def test_statistics(rules: Path, edges: Path) -> None:
    done = call("query", "--rules", rules, "--facts", edges, "--stats")
    assert len(done.lines) == 3
    head, *rows = done.err.splitlines()
    assert head.split("  ")[0] == "rule"
    cells = [row.split() for row in rows]
    assert [cell[:4] for cell in cells[:-1]] == [
        ["1", "1", "Path/2", "1"],
        ["2", "2", "Path/2", "2"],
        ["2", "2", "Path/2", "3"],
    ]
    assert cells[-1][0] == "all"
    assert cells[-1][4] == "3"  # new facts


def test_statistics_of_many_iterations_are_sums(chain: Path) -> None:
    done = call("query", *REACH, "--facts", chain, "--stats")
    assert len(done.err.splitlines()) == 5
    assert "sums of 301 applications of 2 rules" in done.err
    found = call("query", *REACH, "--facts", chain, "--stats", "--json")
    (line,) = found.err.splitlines()
    made = json.loads(line)["statistics"]
    assert [rule["iterations"] for rule in made["rules"]] == [1, 301]
    assert sum(rule["new"] for rule in made["rules"]) == 300
    assert made["runs_total"] == len(made["runs"]) == 301
    assert made["work"] == sum(rule["visited"] for rule in made["rules"])


def test_statistics_of_many_rules_are_the_costly_ones(edges: Path) -> None:
    texts = [part for at in range(60) for part in ("-e", f"A{at}(X) :- Edge(X,_).")]
    done = call("query", *texts, "--facts", edges, "--stats")
    assert "the 40 that visited the most rows" in done.err
    assert len(done.err.splitlines()) == 43


def test_statistics_come_before_the_error(chain: Path) -> None:
    done = call("query", *REACH, "--facts", chain, "--stats", "--set", "max_iterations=100")
    assert (done.code, done.raw) == (1, b"")
    *table, error = done.err.splitlines()
    assert "99" in table[2]
    assert "max_iterations=100" in error
    assert "rule 2" in error


# -- bad input ---------------------------------------------------------------------------------


def refused(*arguments: object, given: bytes = b"") -> str:
    """What is said of an evaluation that is refused; it leaves nothing behind."""
    done = call("query", *arguments, "-o", "never", given=given)
    assert (done.code, done.raw) == (1, b"")
    assert not [path for path in Path().iterdir() if "never" in path.name]
    return done.err


@pytest.mark.requirement("030-47")
def test_a_predicate_that_rules_define_too(rules: Path, edges: Path) -> None:
    edges.write_bytes(EDGES + b"Path('x','y')\n")
    shown = refused("--rules", rules, "--facts", edges)
    assert f"{rules}:1:1: Path/2 is defined by this rule, and there are facts of it too" in shown
    assert f"2 errors in {rules}" in shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Edge('a', 'b')", "is not a fact line [050-23]"),
        ("", "'' is not a fact line"),
        ("Edge('a','b').", "is not a fact line"),
        ("Edge(X)", "is not a fact line"),
        ("# comment", "is not a fact line"),
        ("Edge('e\u0301','b')", "is not in NFC [020-14]"),
        (f"Edge('{'x' * 1025}','b')", "a fact value has 1025 bytes [020-15]"),
        (f"Edge('{'x' * 2_000_000}')", "the line has more than 1,048,576 bytes"),
        ("Edge('a',\t'b')", "is not a fact line"),
    ],
    ids=range(9),
)
def test_a_bad_fact_line(rules: Path, edges: Path, line: str, words: str) -> None:
    edges.write_bytes(EDGES + line.encode() + b"\n" + EDGES)
    shown = refused("--rules", rules, "--facts", edges)
    assert shown.startswith(f"lace: {edges}:3: ")
    assert words in shown
    assert len(shown) < 1000


def test_bytes_that_are_no_text(rules: Path) -> None:
    shown = refused("--rules", rules, "--facts", "-", given=b"Edge('\xff')")
    assert "standard input:1: byte 0xff is not UTF-8 [020-13]" in shown


@pytest.mark.requirement("030-111", "030-119")
def test_too_many_facts(rules: Path, edges: Path) -> None:
    edges.write_bytes(EDGES * 50)
    few = ["--set", "max_base_facts=1", "--set", "max_runtime_facts=1"]
    done = call("query", "--rules", rules, "--facts", edges, *few[:2])
    assert "there are 2 base facts" in done.err
    edges.write_text("".join(f"Edge('{at}','x')\n" for at in range(50)))
    assert f"{edges}:3: these are more than 2 facts" in refused(
        "--rules", rules, "--facts", edges, *few
    )
    edges.write_bytes(EDGES * 50)  # what is there twice counts once
    enough = ["--set", "max_base_facts=2", "--set", "max_runtime_facts=0"]
    assert call("query", "--rules", rules, "--facts", edges, *enough).code == 0


def test_a_rule_line_of_a_megabyte(edges: Path) -> None:
    long = b"A(X) :- " + b"Edge(X,_), " * 100_000 + b"Edge(X,_)."
    shown = refused("--rules", "-", "--facts", edges, given=long)
    assert "max_rule_line_bytes=65536" in shown
    assert len(shown) < 2000
    given = b"A(X) :- Edge(X,_), Edge(_,X).\n"
    shown = refused("-", "--facts", edges, "--set", "max_rule_line_bytes=20", given=given)
    assert "max_rule_line_bytes=20" in shown


@pytest.mark.requirement("030-111", "030-119")
def test_more_rules_than_a_lower_limit(rules: Path, edges: Path) -> None:
    shown = refused("--rules", rules, "--facts", edges, "--set", "max_rules=1")
    assert f"{rules}:2:1: the lacegram has 2 rules [030-115]; the limit is max_rules=1" in shown
    assert call("rules", "check", rules, "--set", "max_rules=1").code == 1


@pytest.mark.slow
@pytest.mark.requirement("030-111", "030-119")
def test_more_rules_than_the_limit(edges: Path) -> None:
    many = b"".join(b"A%d(X) :- Edge(X,_).\n" % at for at in range(4097))
    assert "max_rules=4096" in refused("--rules", "-", "--facts", edges, given=many)
    more = ["--set", "max_rules=5000"]
    assert call("query", "-", "--facts", edges, *more, given=many).code == 0
    assert call("rules", "check", "-", given=many).code == 1
    done = call("rules", "check", "-", "--set", "max_rules=5000", given=many)
    assert "error" not in done.out


def test_ten_thousand_findings(edges: Path) -> None:
    bad = b"A(X) :- Edge(Y,_).\n" * 4000 + b"nonsense\n" * 6000
    shown = refused("--rules", "-", "--facts", edges, "--set", "max_rules=20000", given=bad)
    lines = shown.splitlines()
    assert len(lines) == 102
    assert "more findings" in lines[100]
    assert "10,000 errors" in lines[101]


@pytest.mark.requirement("030-111", "030-119")
def test_recursion_past_the_limit(chain: Path) -> None:
    shown = refused(*REACH, "--facts", chain, "--set", "max_iterations=10")
    assert "still makes new Reach/1 facts after 10 passes" in shown
    assert "-e:2:1: rule 2 (U." in shown


@pytest.mark.requirement("030-111", "030-119")
def test_more_derived_facts_than_the_limit(chain: Path) -> None:
    shown = refused(*REACH, "--facts", chain, "--set", "max_derived_facts=10")
    assert "max_derived_facts=10" in shown


def test_warnings_are_shown_and_can_be_silenced(edges: Path) -> None:
    done = call("query", "-e", "A(X) :- Egde(X,_).", "--facts", edges)
    assert (done.code, done.raw) == (0, b"")
    assert "nobody defines Egde/2" in done.err
    assert "did you mean Edge?" in done.err
    assert call("query", "-e", "A(X) :- Egde(X,_).", "--facts", edges, "-q").err == ""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_product_of_a_million_millions(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.write_text("".join(f"N('{number}')\n" for number in range(1_000_000)))
    rule = "A(X,Y) :- N(X), N(Y), LexCompare(X,'<',Y), LexCompare(Y,'<',X)."
    done = process("query", "-e", rule, "--facts", facts, "-o", tmp_path / "never", "--stats")
    assert done.code == 1
    assert "rule 1" in done.err
    assert "max_work=68719476736" in done.err
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_closure_of_a_large_clique(tmp_path: Path) -> None:
    """The engine sees the product before it makes it; the rule is named."""
    facts = tmp_path / "facts"
    facts.write_text("".join(f"N('{number}')\n" for number in range(5_000)))
    rules = ["Edge(X,Y) :- N(X), N(Y).", "Path(X,Y) :- Edge(X,Y).",
             "Path(X,Z) :- Path(X,Y), Edge(Y,Z)."]  # fmt: skip
    texts = [part for rule in rules for part in ("-e", rule)]
    done = process("query", *texts, "--facts", facts, "-o", tmp_path / "never")
    assert done.code == 1
    assert "-e:3:1: rule 3" in done.err
    assert "max_work" in done.err
    assert not (tmp_path / "never").exists()
