"""Questions to a store while its records come and go: always what the records say now."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import lace
from lace.engine.engine import EvaluationSession
from lace.facts.extract import record_facts
from lace.policy.compile import compile_policy
from lace.policy.enforcement import Enforcement
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.store import store_view as following
from lace.store.interface import StoreUnavailableError
from lace.store.sqlite import segments as segments_module
from lace.store.sqlite.insert import Transaction
from lace.store.sqlite.snapshot import SqliteSnapshot
from tests.link.test_pairing import EVERYTHING
from tests.oracle.naive_engine import evaluate_naively
from tests.oracle.store_policy import StorePolicy
from tests.store.samples import blob, plex, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.record.model import Record
    from lace.record.validate import ValidRecord

VIEWER = lace.SigningKey.generate().verifier
NARROW = """\
Chosen(P) :- Have(P), Field(P,'Group',_,'u'), not Field(P,'Signed-By',_,_).
Linked(T) :- Chosen(P), RecordLink(P,'+Link',_,_,T).
"""
RULES = """\
Chosen(P) :- Have(P), Field(P,'Group',_,'u'), Field(P,'Name',_,K), TextShape(K,'n','','').
Support(T) :- Chosen(P), RecordLink(P,'+Link',_,'evidence',T).
Support(T) :- Support(P), RecordLink(P,'+Link',_,'evidence',T).
Missing(T) :- Support(T), not Have(T).
Signed(P,V) :- Field(P,'Signed-By',_,V).
Loose(P) :- Have(P), not Signed(P,_).
Busy(V) :- Signed(_,V), Cardinality(Signed(P,V),'>','2').
Named(P,N) :- Field(P,N,_,_).
Inside(P,H) :- BlobHash(P,H), Have(H).
Before(P,Q) :- Item(P,T), Item(Q,T), LexCompare(Q,'>',P).
Before(P,Q) :- Item(P,TP), Item(Q,TQ), LexCompare(TQ,'>',TP).
Item(P,T) :- Field(P,'TAI',_,T).
Newest(P) :- Item(P,_), Cardinality(Before(P,_),'<','3').
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[lace.Lace]:
    """A lace that appends to its segments after a few records already."""
    monkeypatch.setattr(segments_module, "APPEND_RECORDS", 5)
    with lace.open(tmp_path / "asked.lace") as opened:
        yield opened


def made(source: random.Random, known: list[str], number: int) -> Record:
    links = [("+Link", f"evidence {source.choice(known)}")] if known else []
    kind = source.randrange(4)
    if kind == 0:
        return blob(f"data {number}")
    group, name = source.choice(["u", "keys"]), source.choice(["n", "m"]) + str(number % 7)
    value = plex(name, group=group, at=source.randrange(9), data=f"d{number}", headers=links)
    return value if kind == 1 else seal(value, source.choice([1, 2]))


def spoil(path: Path) -> None:
    """Change a byte of a file in its place, as a failing disk would."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def expected(store: lace.Lace, rules: lace.Lacegram) -> dict[str, frozenset[tuple[str, ...]]]:
    with store.snapshot() as snapshot:
        facts = [fact for record in snapshot.records() for fact in record_facts(record)]
    return {str(key): rows for key, rows in evaluate_naively(rules.program, facts).items()}


@pytest.mark.slow
@pytest.mark.requirement("030-125", "030-126", "030-127")
@pytest.mark.parametrize("seed", range(12))
def test_answers_follow_the_records(
    store: lace.Lace, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(following, "_MANY", (512, 0, 2)[seed % 3])
    source = random.Random(seed)
    wide, narrow = lace.Lacegram.parse(RULES), lace.Lacegram.parse(NARROW)
    known: list[str] = []
    kept: list[tuple[lace.api.Result, dict[str, frozenset[tuple[str, ...]]]]] = []
    for step in range(18):
        if known and source.random() < 0.35:
            store.remove(*source.sample(known, min(len(known), source.randrange(1, 4))))
        else:
            known += store.add_all(
                [made(source, known, source.randrange(40)) for _ in range(source.randrange(1, 6))]
            )
        if source.random() < 0.1:
            store._asking()._session = None  # a process that comes later
        if source.random() < 0.8:
            rules = narrow if source.random() < 0.5 or step < 4 else wide
            result, wanted = store.query(rules), expected(store, rules)
            assert {key: result[key] for key in result if key != "Before/2"} == {
                key: rows for key, rows in wanted.items() if key != "Before/2"
            }, f"step {step}"
            kept.append((store.query(rules), wanted))
    for result, wanted in kept:  # what was answered is of its moment
        assert dict(result) == wanted


@pytest.mark.parametrize("file", ["field.3", "heap.texts", "locate", "have.0", "journal"])
def test_damage_while_a_session_is_open(store: lace.Lace, file: str) -> None:
    rules = lace.Lacegram.parse("All(P) :- Have(P).\nNames(N) :- Field(_,'Name',_,N).")
    store.add_all([plex(f"n{number}") for number in range(30)])
    wanted = expected(store, rules)
    for path in (store.store.folder / "segments").glob(f"*/{file}"):
        spoil(path)
    assert dict(store.query(rules)) == wanted
    store.add(plex("one more"))
    assert dict(store.query(rules)) == expected(store, rules)


def test_many_records_are_followed_by_their_stored_facts(
    store: lace.Lace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are they read, nor are all facts numbered anew; also none is there twice."""
    rules = lace.Lacegram.parse(NARROW + "Names(P,N) :- Have(P), Field(P,'Name',_,N).")
    store.add_all([plex(f"a{number}", group="u") for number in range(20)])
    assert dict(store.query(rules)) == expected(store, rules)
    monkeypatch.setattr(following, "_MANY", 10)

    def forbidden(*_: object) -> None:
        raise AssertionError("nothing of this is needed")

    for round_number in range(4):
        store.add(plex(f"one {round_number}", group="u"))  # read by itself, stored facts later
        assert dict(store.query(rules)) == expected(store, rules)
        many = [plex(f"{round_number}/{number}", group="u") for number in range(40)]
        store.add_all([*many, seal(many[0], 1), blob(f"{round_number}")])
        wanted = expected(store, rules)
        with monkeypatch.context() as patch:
            patch.setattr(following.StoreFollower, "_open", forbidden)
            patch.setattr(following.StoreFollower, "_follow", forbidden)
            assert dict(store.query(rules)) == wanted
    store.remove(*next(iter(store.query(rules)["Chosen/1"])))
    assert dict(store.query(rules)) == expected(store, rules)
    store.add_all([plex(f"last {number}", group="u") for number in range(40)])
    assert dict(store.query(rules)) == expected(store, rules)


def test_few_records_of_many_bytes_are_followed_by_their_stored_facts(
    store: lace.Lace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not read again: what is remembered of records has no room for them."""
    rules = lace.Lacegram.parse(NARROW + "Names(P,N) :- Have(P), Field(P,'Name',_,N).")
    store.add_all([plex(f"a{number}", group="u") for number in range(60)])
    assert dict(store.query(rules)) == expected(store, rules)
    read: list[int] = []
    original = SqliteSnapshot.records

    def noting(self: SqliteSnapshot, **given: Any) -> Iterator[ValidRecord]:
        for record in original(self, **given):
            read.append(len(record.bytes))
            yield record

    for number in range(4):
        store.add(plex(f"few {number}", group="u"))
        assert dict(store.query(rules)) == expected(store, rules)
        store.add(plex(f"large {number}", group="u", data=str(number) * 5_000_000))
        wanted = expected(store, rules)
        with monkeypatch.context() as patch:
            patch.setattr(SqliteSnapshot, "records", noting)
            assert dict(store.query(rules)) == wanted
        assert sum(read) < 10_000


def test_removals_that_the_store_has_forgotten(tmp_path: Path) -> None:
    """Segments cover a removal, so its log entry goes; a session that missed it starts anew."""
    rules = lace.Lacegram.parse("All(P) :- Have(P).")
    with lace.open(tmp_path / "forgetful.lace") as store:
        first = store.add_all([plex(f"a{number}") for number in range(300)])
        store.query(rules)
        store.remove(first[0])
        store.add_all([plex(f"b{number}") for number in range(300)])
        store.remove(first[1])
        assert store.query(rules)["All/1"] == expected(store, rules)["All/1"]
        assert len(store.query(rules)["All/1"]) == len(store) == 598


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_two_handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(segments_module, "APPEND_RECORDS", 5)
    monkeypatch.setattr(following, "_MANY", (512, 0, 2)[seed % 3])
    source = random.Random(seed)
    rules = lace.Lacegram.parse(NARROW + "All(P) :- Have(P).")
    known: list[str] = []
    with lace.open(tmp_path / "l") as one, lace.open(tmp_path / "l") as two:
        for _ in range(40):
            store = source.choice([one, two])
            if known and source.random() < 0.45:
                store.remove(*source.sample(known, min(len(known), source.randrange(1, 5))))
            else:
                more = [made(source, known, source.randrange(30)) for _ in range(4)]
                known += store.add_all(more)
            if source.random() < 0.3:
                asked = source.choice([one, two])
                assert dict(asked.query(rules)) == expected(asked, rules)


def test_a_file_that_is_cut_while_it_is_mapped(store: lace.Lace) -> None:
    rules = lace.Lacegram.parse("All(P) :- Have(P).\nNames(N) :- Field(_,'Name',_,N).")
    store.add_all([plex(f"n{number}") for number in range(30)])
    wanted = expected(store, rules)
    assert dict(store.query(rules)) == wanted
    for path in (store.store.folder / "segments").glob("*/*"):
        os.truncate(path, 0)
    assert dict(store.query("All(P) :- Have(P).")) == {"All/1": wanted["All/1"]}
    assert dict(store.query(rules)) == wanted


@pytest.mark.parametrize("error", [IndexError, KeyError, ValueError])
def test_an_error_of_the_engine_is_no_damage(
    store: lace.Lace, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """It is raised once, and what is stored beside the records stays."""
    rules = lace.Lacegram.parse("All(P) :- Have(P).")
    store.add_all([plex(f"n{number}") for number in range(30)])
    assert len(store.query(rules)["All/1"]) == 30
    kept = {path: path.stat().st_mtime_ns for path in store.store.folder.rglob("segments/*/*")}
    assert kept
    calls: list[None] = []

    def fail(*_arguments: object) -> NoReturn:
        calls.append(None)
        raise error("of any bug")

    monkeypatch.setattr(EvaluationSession, "evaluate", fail)
    monkeypatch.setattr(Enforcement, "evaluate", fail)
    with pytest.raises(error, match="of any bug"):
        store.query(rules)
    both = operand_of(EVERYTHING, 0), operand_of(EVERYTHING, 1)
    compiled = compile_policy(make_plan(*both), both, index=0, exposures=(), viewer=str(VIEWER))
    policed = StorePolicy(compiled, store.store, max_value_bytes=1024)
    with pytest.raises(error, match="of any bug"):
        policed.evaluate([])
    assert len(calls) == 2
    assert kept == {path: path.stat().st_mtime_ns for path in kept if path.exists()}


def test_a_commit_that_fails_is_no_failure_of_the_segments(
    store: lace.Lace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts beside the store are written while records are committed."""
    store.add_all([plex(f"n{number}") for number in range(30)])

    def fail(_self: Transaction) -> NoReturn:
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "wait", fail)
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            store.add_all([plex(f"m{number}") for number in range(30)])
    assert store.store.segments.warning is None


def test_damage_that_shows_in_an_explanation(store: lace.Lace) -> None:
    ids = store.add_all([plex(f"n{number}") for number in range(30)])
    result = store.query("All(P) :- Have(P).")
    for path in (store.store.folder / "segments").glob("*/heap.hashes"):
        spoil(path)
    with pytest.raises(lace.EngineError, match="ask again"):
        result.why("All", ids[0])
    assert store.query("All(P) :- Have(P).").why("All", ids[0]).holds


def test_damage_that_shows_while_a_result_is_read(store: lace.Lace) -> None:
    """The error says to ask again, and then the answer is right."""
    ids = store.add_all([plex(f"n{number}") for number in range(30)])
    result = store.query("All(P) :- Have(P).")
    assert result.count("All/1") == 30
    for path in (store.store.folder / "segments").glob("*/heap.hashes"):
        spoil(path)
    with pytest.raises(lace.EngineError, match="ask again"):
        result["All/1"]
    again = store.query("All(P) :- Have(P).")
    assert again["All/1"] == {(each,) for each in ids}
    with lace.open(store.store.folder) as later:
        assert later.query("All(P) :- Have(P).") == again
