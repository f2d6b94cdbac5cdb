"""Arguments of another type: each public function names the argument, and what was given."""

from __future__ import annotations

import asyncio
import io
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import lace
from lace.errors import LaceError
from lace.facts.lines import FactLineError
from tests.store.samples import blob, key, plex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SELECT = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
EXPOSE = "AllowQueryRecord(V,P) :- Peer(V), _Viewer(V), Have(P)."
POLICY = lace.Policy(select=SELECT, exposures=[EXPOSE])
KEY = key()
VIEWER = str(KEY.verifier)
API: Any = lace  # as a program has it that no checker looks at
ANY_KEY: Any = KEY
USAGE, RECORD = lace.UsageError, lace.RecordError
POLICIES, ENGINE = lace.PolicyError, lace.EngineError
Case: TypeAlias = "tuple[str, Callable[[Any], object], type[LaceError]]"
"""What is said, of which call, by which error."""


def saids(cases: list[Case]) -> list[str]:
    return [said for said, _, _ in cases]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lace.Lace]:
    with lace.open(tmp_path / "notes.lace") as opened:
        yield opened


def refused(call: Callable[[], object], *words: str, kind: type[LaceError]) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


WITHOUT_A_LACE: list[Case] = [
    ("path is the path of a folder, not int", lambda a: a.open(5), USAGE),
    ("path is the path of a folder, not bytes", lambda a: a.open(b"x"), USAGE),
    ("path is the path of a folder, not None", lambda a: a.open(None), USAGE),
    ("settings are a mapping", lambda a: a.open("x", settings=["a"]), USAGE),
    ("purpose is text, not int", lambda a: a.open("x", purpose=5), USAGE),
    ("path is the path of a folder, not int", lambda a: a.open_warehouse(5), USAGE),
    ("settings are a mapping", lambda a: a.open_warehouse("x", settings="a"), USAGE),
    ("store is an open store, not str; open a lace", lambda a: a.Lace("x", {}), USAGE),
    ("rules are a Lacegram or its text, not int", lambda a: a.evaluate(5, []), USAGE),
    (
        "not the class Lacegram",
        lambda a: a.evaluate(a.Lacegram, []),
        USAGE,
    ),
    ("facts are an iterable of tuples, not int", lambda a: a.evaluate("", 5), ENGINE),
    ("no engine 'sparc'; did you mean spark?", lambda a: a.evaluate("", [], "sparc"), USAGE),
    ("no engine 5", lambda a: a.evaluate("", [], 5), USAGE),
    ("rules are a Lacegram or its text, not int", lambda a: a.Lacegram.parse(5), USAGE),
    ("limits are a mapping", lambda a: a.Lacegram.parse("", limits=5), USAGE),
    ("limits are a mapping", lambda a: a.evaluate("", [], limits=5), USAGE),
    ("no setting 'max_wrk'", lambda a: a.evaluate("", [], limits={"max_wrk": 5}), USAGE),
    ("wait_seconds is no limit", lambda a: a.evaluate("", [], limits={"wait_seconds": 5}), USAGE),
    ("takes a whole number", lambda a: a.evaluate("", [], limits={"max_work": "x"}), USAGE),
    ("outside", lambda a: a.evaluate("", [], limits={"max_arity": 256}), USAGE),
    ("profile is a Profile", lambda a: a.Lacegram.parse("", profile=5), USAGE),
    ("no profile 'quary'", lambda a: a.Lacegram.parse("", profile="quary"), USAGE),
    ("not str; use Lacegram.parse", lambda a: a.Lacegram(SELECT), USAGE),
    ("select is a Lacegram or its text, not int", lambda a: a.Policy(select=5), USAGE),
    (
        "exposures are several exposures, not str; put it into a list",
        lambda a: a.Policy(SELECT, EXPOSE),
        USAGE,
    ),
    ("exposures are several exposures", lambda a: a.Policy(SELECT, 5), USAGE),
    (
        "an exposure is a Lacegram or its text, alone or in a pair with a viewer, not int",
        lambda a: a.Policy(SELECT, [5]),
        USAGE,
    ),
    ("an exposure is", lambda a: a.Policy(SELECT, [(None, VIEWER)]), USAGE),
    ("a viewer is a verifier's text, not int", lambda a: a.Policy(SELECT, [(EXPOSE, 5)]), POLICIES),
    ("no lowering '5'", lambda a: a.Policy(SELECT, lowering=5), POLICIES),
    ("limits are a mapping", lambda a: a.Policy(SELECT, limits=5), USAGE),
    ("raw is the bytes of one record, not str", lambda a: a.parse_record("x"), RECORD),
    ("not Blob", lambda a: a.parse_record(blob("x")), RECORD),
    ("max_data_bytes", lambda a: a.parse_record(b"x", max_data_bytes=None), USAGE),
    ("a record hash is text, not int", lambda a: a.RecordId(5), RECORD),
    ("a record hash is text, not bytes", lambda a: a.RecordId(b"B."), RECORD),
    ("a verifier is text, not SigningKey", lambda a: a.Verifier(KEY), RECORD),
    ("a public key is 32 bytes", lambda a: a.Verifier.from_public_key("x"), RECORD),
    ("a TAI instant is text, not int", lambda a: a.Tai(5), RECORD),
    ("whole number, not float", lambda a: a.Tai.from_nanoseconds(1.5), RECORD),
    ("whole number, not str", lambda a: a.Tai.from_unix_nanoseconds("1"), RECORD),
    ("whole number, not str", lambda a: a.Tai("1700000000:000000000").shift("1"), RECORD),
    ("App is text, not int", lambda a: a.Coordinate("g", 5, "n"), RECORD),
    ("material is 32 secret bytes, not str", lambda a: a.SigningKey("x" * 32, os.urandom), RECORD),
    ("random_bytes is a function", lambda a: a.SigningKey(bytes(32), 5), RECORD),
    (
        "read from text, not from bytes",
        lambda a: a.SigningKey.parse_secret(b"&.", os.urandom),
        RECORD,
    ),
    ("message is a digest of 32 bytes, not str", lambda a: ANY_KEY.sign("x" * 32), RECORD),
    ("key is a SigningKey, not Verifier", lambda a: plex("x").seal(ANY_KEY.verifier), RECORD),
    ("a record is named by text, not by int", lambda a: a.select_record(5), USAGE),
    ("prefix is the beginning", lambda a: a.select_prefix(5), USAGE),
    ("hashes of several records, not RecordId", lambda a: a.select_records(blob("x").id), USAGE),
    ("hashes of several records, not int", lambda a: a.expose_records(5), USAGE),
    ("a record hash is text, not int", lambda a: a.select_records([5]), RECORD),
]


@pytest.mark.parametrize(("said", "call", "kind"), WITHOUT_A_LACE, ids=saids(WITHOUT_A_LACE))
def test_without_a_lace(
    said: str,
    call: Callable[[Any], object],
    kind: type[LaceError],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(lambda: call(lace), said, kind=kind)
    assert list(tmp_path.iterdir()) == []  # refused before anything is made


WITH_A_LACE: list[Case] = [
    ("a Blob, a Plex, a Seal or its bytes, not str", lambda s: s.add("text"), RECORD),
    ("records are several records, not int", lambda s: s.add_all(5), USAGE),
    ("records are several records, not bytes", lambda s: s.add_all(blob("x").bytes), USAGE),
    ("records are several records, not Blob", lambda s: s.add_all(blob("x")), USAGE),
    ("a record is named by text, not by int", lambda s: s.get(5), USAGE),
    ("a record is named by text, not by Blob", lambda s: s.find(blob("x")), USAGE),
    ("a record hash is text, not int", lambda s: s.remove(5), RECORD),
    ("prefix is the beginning of a coordinate", lambda s: s.records(5), USAGE),
    ("not sorted by 5", lambda s: s.records(sort=5), USAGE),
    ("limit is a number from 0 on, not str", lambda s: s.records(limit="5"), USAGE),
    ("limit is a number from 0 on, not -1", lambda s: s.records(limit=-1), USAGE),
    ("limit is a number from 0 on, not bool", lambda s: s.coordinates(limit=True), USAGE),
    ("prefix is the beginning", lambda s: s.coordinates(None), USAGE),
    ("rules are a Lacegram or its text, not int", lambda s: s.query(5), USAGE),
    ("no engine 'sparc'", lambda s: s.query("", engine="sparc"), USAGE),
    ("predicates are names with arities", lambda s: s.query("", predicates=5), USAGE),
    ("named by text, not by int", lambda s: s.query("", predicates=[5]), USAGE),
    ("statistics are a Statistics", lambda s: s.query("", statistics={}), USAGE),
    ("snapshot is a state of the lace", lambda s: s.query("", snapshot=s), USAGE),
    ("policy is a Policy, not str; make one", lambda s: s.preview(SELECT, SELECT), USAGE),
    ("peer_select is a Lacegram", lambda s: s.preview(POLICY, 5), USAGE),
    ("index 0 or 1, not '0'", lambda s: s.preview(POLICY, SELECT, index="0"), POLICIES),
    ("a viewer is a verifier's text", lambda s: s.preview(POLICY, SELECT, viewer=5), POLICIES),
    ("public are facts, not str", lambda s: s.preview(POLICY, SELECT, public="A('x')"), USAGE),
    (
        "tuple of texts, not ('Peer', 5)",
        lambda s: s.preview(POLICY, SELECT, public=[("Peer", 5)]),
        USAGE,
    ),
    ("tuple of texts, not ()", lambda s: s.preview(POLICY, SELECT, public=[()]), USAGE),
    ("tuple of texts, not ['Peer']", lambda s: s.preview(POLICY, SELECT, public=[["Peer"]]), USAGE),
    (
        "policy is a Policy or a list of exposures, not str",
        lambda s: s.disclose(EXPOSE, VIEWER),
        USAGE,
    ),
    ("a viewer is a verifier's text, not None", lambda s: s.disclose(POLICY, None), POLICIES),
    ("peer_select is a Lacegram", lambda s: s.disclose(POLICY, VIEWER, peer_select=5), USAGE),
    ("source is a path, or a file", lambda s: s.import_file(5), USAGE),
    ("not bytes; open it with mode 'rb'", lambda s: s.import_file(b"x"), USAGE),
    ("not StringIO", lambda s: s.import_file(io.StringIO("x")), USAGE),
    ("report hears of progress, not int", lambda s: s.import_file(io.BytesIO(), report=5), USAGE),
    ("report hears of progress, not int", lambda s: s.verify(report=5), USAGE),
    ("operation is an Operation, not str", lambda s: s.log("x"), USAGE),
    ("limit is a number from 0 on, not str", lambda s: s.operations("5"), USAGE),
    ("key is a SigningKey, not Verifier", lambda s: s.keys.add(KEY.verifier), USAGE),
    ("left is an open lace, not str", lambda s: API.interlace("a", s, POLICY, POLICY), USAGE),
    ("right is an open lace", lambda s: API.interlace(s, 5, POLICY, POLICY), USAGE),
    ("left_policy is a Policy, not str", lambda s: API.interlace(s, s, SELECT, POLICY), USAGE),
    ("right_policy is a Policy", lambda s: API.interlace(s, s, POLICY, None), USAGE),
]


@pytest.mark.parametrize(("said", "call", "kind"), WITH_A_LACE, ids=saids(WITH_A_LACE))
def test_with_a_lace(
    said: str, call: Callable[[Any], object], kind: type[LaceError], store: lace.Lace
) -> None:
    refused(lambda: call(store), said, kind=kind)
    assert len(store) == 0


LINKS: list[tuple[str, dict[str, Any]]] = [
    ("address is text, not int", {"address": 5}),
    ("store is an open lace, not str; open it", {"store": "notes.lace"}),
    ("policy is a Policy, not str", {"policy": SELECT}),
    ("key is a SigningKey, not Verifier", {"key": KEY.verifier}),
    ("peer is a verifier, or several, not int", {"peer": 5}),
    ("a verifier is text, not SigningKey", {"peer": [KEY]}),
    ("tls_cert is the path of a file, not int", {"tls_cert": 5, "tls_key": "x"}),
    ("tls_key is the path of a file, not bytes", {"tls_cert": "x", "tls_key": b"x"}),
]


@pytest.mark.parametrize("opens", [lace.connect, lace.serve])
@pytest.mark.parametrize(("said", "given"), LINKS, ids=[said for said, _ in LINKS])
def test_links(said: str, given: dict[str, Any], opens: Any, store: lace.Lace) -> None:
    arguments = {"address": "tcp:127.0.0.1:1", "store": store, "policy": POLICY, **given}
    refused(lambda: opens(**arguments), said, kind=LaceError)


def test_links_have_arguments_of_their_own(store: lace.Lace) -> None:
    def connect(**given: Any) -> Callable[[], object]:
        return lambda: lace.connect("stdio", store, POLICY, **given)

    said = "command is a program and its arguments, not str"
    refused(connect(command="ssh host lace"), said, kind=lace.UsageError)
    refused(connect(ca=5), "ca is the path of a file, not int", kind=lace.UsageError)
    serving = lace.serve("tcp:127.0.0.1:0", store, POLICY)
    wrong: Any = SELECT
    refused(lambda: serving.renew(wrong), "policy is a Policy, not str", kind=lace.UsageError)
    refused(
        lambda: lace.serve("tcp:127.0.0.1:0", store, POLICY, report=wrong),
        "report hears of links that have ended, not str",
        kind=lace.UsageError,
    )


def test_links_that_have_not_begun(store: lace.Lace) -> None:
    link = lace.connect("tcp:127.0.0.1:1", store, POLICY)
    serving = lace.serve("tcp:127.0.0.1:0", store, POLICY)
    refused(lambda: serving.address, "inside of its block", kind=lace.UsageError)
    refused(lambda: asyncio.run(link.result()), "inside of its block", kind=lace.UsageError)


def test_a_secret_is_in_no_message() -> None:
    secret = KEY.secret_text()
    wrong: list[Callable[[Any], object]] = [
        lambda a: a.SigningKey(secret, os.urandom),
        lambda a: a.SigningKey.parse_secret(secret.encode(), os.urandom),
        lambda a: a.SigningKey.parse_secret(secret + "x", os.urandom),
        lambda a: a.Verifier(secret.encode()),
        lambda a: a.open(secret.encode()),
    ]
    for call in wrong:
        with pytest.raises(LaceError) as caught:
            call(lace)
        assert secret[2:12] not in f"{caught.value!r} {caught.value}"


def test_a_warehouse(tmp_path: Path) -> None:
    warehouse: Any = lace.open_warehouse(tmp_path / "big.wh", create=True)
    refused(lambda: warehouse.ingest(5), "a source is a path", kind=lace.UsageError)
    refused(lambda: warehouse.ingest("x", master=5), "master is", kind=lace.UsageError)
    refused(lambda: warehouse.make_facts(master=5), "master is", kind=lace.UsageError)
    refused(lambda: warehouse.evaluate("", master=5), "master is", kind=lace.UsageError)
    refused(lambda: warehouse.evaluate(5), "rules are a Lacegram", kind=lace.UsageError)
    refused(lambda: warehouse.to_arrow(5), "there is no table 5", kind=lace.UsageError)


def test_what_was_taken_is_still_taken(store: lace.Lace, tmp_path: Path) -> None:
    record = blob("x")
    for raw in (record.bytes, bytearray(record.bytes), memoryview(record.bytes)):
        assert API.parse_record(raw) == record
    assert store.add_all(iter([record])) == [record.id]
    rules = "A(P) :- Have(P).\nB(P) :- A(P)."
    assert store.query(rules, predicates="A/1").count("A/1") == 1
    path = tmp_path / "in"
    path.write_bytes(blob("y").bytes)
    with path.open("rb") as file:
        assert store.import_file(file).stored == 1
    assert API.SigningKey(bytearray(b"k" * 32), os.urandom).verifier


# -- a fact as text --------------------------------------------------------------------------


def test_why_takes_the_fact_as_text() -> None:
    result = lace.evaluate("Path(X,Y) :- Edge(X,Y).\nNone() :- Edge(_,_).", [("Edge", "it's", "b")])
    expected = result.why("Path", "it's", "b")
    assert expected.holds
    for text in (r"Path('it\'s','b')", r" Path('it\'s','b'). "):
        assert result.why(text) == expected
    assert result.why("Path/2", "it's", "b") == expected
    assert result.why(r"Edge('it\'s','b')").holds
    assert not result.why("Path('b','b')").holds
    shown = str(expected).splitlines()[0]
    assert result.why(shown).fact == expected.fact  # as the tree itself shows it


def test_why_refuses_what_is_no_fact() -> None:
    result: Any = lace.evaluate("Path(X,Y) :- Edge(X,Y).", [("Edge", "a", "b")])
    for text in ("Path(a,b)", "Path('a', 'b')", "Path('a'", "Path(X)", "Path('\ud800')"):
        refused(lambda text=text: result.why(text), "[", kind=FactLineError)  # type: ignore[misc]
    refused(lambda: result.why(5), "predicate is a name, or a fact as text", kind=lace.UsageError)
    refused(lambda: result.why("Path", 5, "b"), "a value of a fact is text", kind=lace.UsageError)


def test_why_as_text_keeps_to_the_limit_of_values(tmp_path: Path) -> None:
    with lace.open(tmp_path / "notes.lace", settings={"max_value_bytes": 100}) as store:
        result = store.query("A(P) :- Have(P).")
        with pytest.raises(lace.LimitExceeded):
            result.why(f"A('{'x' * 101}')")


# -- how values show themselves ----------------------------------------------------------------


def test_values_show_themselves_in_a_few_words(store: lace.Lace, tmp_path: Path) -> None:
    rules = lace.Lacegram.parse(SELECT)
    names = "SelectHave/1, SelectAdvertised/2"
    assert repr(rules) == f"<Lacegram {rules.id}: 2 rules for {names}>"
    assert repr(rules.program) == f"<CheckedProgram {rules.id}: 2 rules for {names}>"
    many = lace.Lacegram.parse("\n".join(f"A{number}(P) :- Have(P)." for number in range(9)))
    assert repr(many).endswith(": 9 rules for A0/1, A1/1, A2/1, A3/1, A4/1, …>")
    empty = lace.Lacegram.parse("")
    assert repr(empty) == f"<Lacegram {empty.id}: 0 rules>"
    assert repr(POLICY) == f"<Policy: select {POLICY.select.id}, 1 exposure, standard-v1>"
    assert "no exposures" in repr(lace.Policy(SELECT))
    store.keys.add(KEY)
    store.add(blob("x"))
    folder = tmp_path / "notes.lace"
    assert repr(store) == f"<Lace {str(folder)!r}>"
    assert repr(store.preview(POLICY, SELECT)) == "<Preview: may send 0, may request 0>"
    seen = store.preview(POLICY, SELECT, viewer=VIEWER)
    assert repr(seen) == "<Preview: may send 1, may request 0>"
    told = store.disclose(POLICY, VIEWER, peer_select=SELECT)
    assert repr(told) == f"<Disclosure to {VIEWER}: 1 of 1 records, 1 would be sent>"
    why = store.query("A(P) :- Have(P).").why("A", blob("x").id)
    assert repr(why) == f"<Explanation: A('{blob('x').id}') holds, height 1>"
    assert repr(store.query("A(P) :- Have(P).").why("A('x')")) == (
        "<Explanation: A('x') does not hold>"
    )
    with lace.open(folder, read_only=True) as looking:
        assert repr(looking) == f"<Lace {str(folder)!r}, read only>"
    assert repr(looking) == f"<Lace {str(folder)!r}, closed>"
    secret = KEY.secret_text()[2:45]
    for shown in (repr(store.keys), repr(KEY), repr(store), repr(vars(store))):
        assert secret not in shown


def test_exchanges_show_themselves_in_a_few_words(store: lace.Lace, tmp_path: Path) -> None:
    store.keys.add(KEY)
    store.add_all([plex(f"n/{number}") for number in range(3)])
    with lace.open(tmp_path / "other.lace") as other:
        other.keys.add(key(2))
        serving = lace.serve("tcp:127.0.0.1:0", store, POLICY)
        assert repr(serving) == "<Serving tcp:127.0.0.1:0: not begun>"
        with serving:
            address = serving.address
            assert repr(serving).startswith(f"<Serving {address}: ")
            link = lace.connect(address, other, POLICY, open=True)
            assert repr(link) == f"<Link {address}: not begun>"
            with link as blocking:
                for event in blocking.events():
                    if isinstance(event, lace.RoundEnded):
                        break
                assert repr(link) == f"<Link {address}: running>"
        ended = f"{address}: {blocking.result().reason}"
        assert (repr(link), repr(blocking)) == (f"<Link {ended}>", f"<BlockingLink {ended}>")
        assert repr(serving) == f"<Serving {address}: ended>"
        done = lace.interlace(other, store, POLICY, POLICY)
    assert repr(blocking.result()) == f"<Outcome: {blocking.result().reason}, 3 received>"
    assert repr(done.left) == "<Outcome: at a fixed point, 0 received>"
    assert repr(done) == f"Interlaced(left={done.left!r}, right={done.right!r})"


def test_the_version() -> None:
    from importlib.metadata import version

    assert lace.__version__ == version("lace")
