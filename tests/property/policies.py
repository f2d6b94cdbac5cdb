"""Strategies for exchange policies: stores, peers' selectors, exposures, public facts, changes.

Programs are nested tuples as in `tests.property.lacegrams`. Every argument has a kind
(record, name, index, value, source), and variables and constants are drawn by kind, so
that joins find something. Predicates stand in layers as in `tests.property.evaluations`:
a rule may use its own layer, so there is recursion, and negates or counts what lies below.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from lace.base import b64a
from lace.base.digest import digest
from lace.facts.catalogue import RECORD_PREDICATES
from lace.policy.compile import Executable, compile_policy
from lace.policy.exposure import Exposure, active_exposures, exposure_of
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.record.ids import Verifier
from lace.record.model import Blob, Plex, Record
from lace.record.seal import SigningKey
from lace.record.validate import ValidRecord, frame_record, validate_many
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.profiles import ALLOW_QUERY_RECORD
from tests.oracle.naive_engine import evaluate_naively
from tests.property.lacegrams import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.property.lacegrams import Item, Program, Rule, Term

Fact = tuple[str, ...]
Store = dict[str, frozenset[Fact]]
"""The facts of each record, by its hash."""
Signature = tuple[str, str]
"""The name of a predicate and the kinds of its arguments, one letter each."""

VIEWER = str(Verifier.from_public_key(b"\x01" * 32))
OTHER = str(Verifier.from_public_key(b"\x02" * 32))


def record_hash(number: int, letter: str = "P") -> str:
    """Return a text that could be the hash of a record."""
    return f"{letter}.{b64a.encode(digest(f'record {number}'.encode()))}.H3"


RECORDS = tuple(record_hash(number, "PPSB"[number % 4]) for number in range(8))
"""Records that stores hold and rules may name."""
SECRETS = tuple(record_hash(number, "PPSB"[number % 4]) for number in range(100, 106))
"""Records that neither rules nor other records name."""

NAMES = ("Group", "App", "Name", "Tag")
VALUES = ("X", "Y", "a", "b", "links/a", "2", "10")
CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "r": RECORDS,
    "n": (*NAMES, "Signed-By", "Link"),
    "i": ("0", "1", "2"),
    "v": VALUES,
    "s": (VIEWER, OTHER),
}
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "r": ("P", "Q", "R"),
    "n": ("N",),
    "i": ("I", "J"),
    "v": ("V", "W"),
    "s": ("S", "T"),
}
RECORD_FACTS: tuple[Signature, ...] = (
    ("Have", "r"),
    ("Field", "rniv"),
    ("RecordLink", "rnivr"),
    ("BlobHash", "rr"),
    ("PlexHash", "rr"),
)
PUBLIC_FACTS: tuple[Signature, ...] = (
    ("Advertised", "rs"),
    ("AdvertisedField", "rsniv"),
    ("Here", "s"),
    ("Peer", "s"),
    ("Transport", "v"),
    ("TransportEncrypted", ""),
    ("StartTAI", "v"),
    ("TickTAI", "v"),
    ("ClockSkewSeconds", "i"),
)
EXPOSED_FACTS: tuple[Signature, ...] = (
    *RECORD_FACTS,
    ("_Viewer", "s"),
    ("Here", "s"),
    ("Peer", "s"),
    ("TransportEncrypted", ""),
)
# What is looked at most often comes more than once.
SELECTOR_BASE = (*RECORD_FACTS, *RECORD_FACTS[:3] * 2, *PUBLIC_FACTS, *PUBLIC_FACTS[:2])
EXPOSURE_BASE = (*EXPOSED_FACTS, *RECORD_FACTS[:2] * 3)
HELPERS: tuple[tuple[Signature, ...], ...] = (
    (("A", "rr"), ("B", "r"), ("Member", "v")),
    (("C", "rv"), ("D", "r"), ("Flag", "")),
)
SELECT: tuple[Signature, ...] = (("SelectHave", "r"), ("SelectAdvertised", "rs"))
ALLOW: Signature = ("AllowQueryRecord", "sr")
OPERATORS = st.sampled_from(["<", "<=", ">", ">="])


# -- stores --------------------------------------------------------------------------------------


@st.composite
def records(draw: st.DrawFn, record: str, known: tuple[str, ...] = RECORDS) -> frozenset[Fact]:
    """Return the facts of one record; those it names are among the known ones."""
    made: set[Fact] = {("Have", record)}
    group = draw(st.sampled_from(["X", "X", "Y", ""]))
    if group:
        made.add(("Field", record, "Group", "0", group))
    for name in draw(st.sets(st.sampled_from(["App", "Name"]))):
        made.add(("Field", record, name, "0", draw(st.sampled_from(VALUES))))
    for index, value in enumerate(draw(st.lists(st.sampled_from(VALUES), max_size=3))):
        made.add(("Field", record, "Tag", str(index), value))
    for index, target in enumerate(draw(st.lists(st.sampled_from(known), max_size=2))):
        made.add(("RecordLink", record, "Link", str(index), draw(st.sampled_from("ab")), target))
        made.add(("Field", record, "Link", str(index), target))
    if draw(st.booleans()):
        made.add(("BlobHash", record, draw(st.sampled_from(known))))
    if record.startswith("S"):
        made.add(("PlexHash", record, draw(st.sampled_from(known))))
        made.add(("Field", record, "Signed-By", "0", draw(st.sampled_from([VIEWER, OTHER]))))
    return frozenset(made)


@st.composite
def stores(draw: st.DrawFn, of: tuple[str, ...] = RECORDS) -> Store:
    held = draw(st.lists(st.sampled_from(of), unique=True, min_size=draw(st.sampled_from([0, 4]))))
    return {record: draw(records(record)) for record in held}


def facts_of(store: Store) -> list[Fact]:
    """Return all facts of a store, record by record in the order it has them."""
    return [fact for record in store.values() for fact in sorted(record)]


@st.composite
def publics(draw: st.DrawFn, of: tuple[str, ...] = RECORDS) -> list[Fact]:
    """Return what a peer advertises, with runtime facts."""
    made: list[Fact] = []
    source = draw(st.sampled_from([VIEWER, VIEWER, OTHER]))
    for record in draw(st.lists(st.sampled_from(of), unique=True, min_size=1, max_size=5)):
        made.append(("Advertised", record, source))
        for name in draw(st.sets(st.sampled_from(NAMES), max_size=2)):
            value = draw(st.sampled_from(VALUES))
            made.append(("AdvertisedField", record, source, name, "0", value))
    if draw(st.booleans()):
        made.append(("Peer", VIEWER))
    if draw(st.booleans()):
        made.append(("TransportEncrypted",))
    if draw(st.booleans()):
        made += [("Here", OTHER), ("Transport", "a"), ("StartTAI", "2")]
        made += [("TickTAI", draw(st.sampled_from(["2", "10"]))), ("ClockSkewSeconds", "0")]
    return made


# -- rules ---------------------------------------------------------------------------------------


def _variable(kind: str, own: bool) -> st.SearchStrategy[Term]:
    names = VARIABLES[kind][1:] if own and kind == "r" else VARIABLES[kind]
    return st.sampled_from(names).map(lambda name: ("var", name))


def _constant(kind: str) -> st.SearchStrategy[Term]:
    return st.sampled_from(CONSTANTS[kind]).map(lambda value: ("const", value))


ANYTHING: st.SearchStrategy[Term] = st.just(("any", ""))


@st.composite
def _atom(draw: st.DrawFn, signature: Signature, own: bool) -> tuple[str, tuple[Term, ...]]:
    """Return a positive atom; one of its own record has that one first."""
    name, kinds = signature
    terms: list[Term] = []
    for at, kind in enumerate(kinds):
        if own and at == 0 and kind == "r":
            terms.append(("var", "P"))
        elif own and kind == "r":
            terms.append(draw(st.one_of(_variable(kind, own), ANYTHING)))
        else:
            some = st.one_of(_variable(kind, own), _variable(kind, own), _constant(kind), ANYTHING)
            terms.append(draw(some))
    return name, tuple(terms)


def _known(bound: dict[str, str], kind: str) -> list[Term]:
    return [("var", name) for name, each in sorted(bound.items()) if each == kind]


@st.composite
def _rule(
    draw: st.DrawFn, head: Signature, below: list[Signature], level: list[Signature], own: bool
) -> Rule:
    items: list[Item] = []
    bound: dict[str, str] = {}

    def add(signature: Signature) -> None:
        atom = draw(_atom(signature, own))
        items.append(("pos", atom))
        for (kind, text), sort in zip(atom[1], signature[1], strict=True):
            if kind == "var":
                bound[text] = sort

    if head[0] == "SelectAdvertised" and draw(st.integers(0, 3)):
        add(("Advertised", "rs"))
    elif head[0] in {"SelectHave", "AllowQueryRecord"} and (own or draw(st.integers(0, 3))):
        add(("Have", "r"))
    for _ in range(draw(st.integers(0 if items else 1, 2))):
        add(draw(st.sampled_from(level)))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        kind = draw(st.sampled_from(["not", "not", "card", "card", "ne", "int", "lex", "shape"]))
        if kind in {"not", "card"}:
            name, kinds = draw(st.sampled_from(below))
            terms: list[Term] = []
            free = iter((("var", "F0"), ("var", "F1"), ("var", "F2"), ("any", ""), ("any", "")))
            for at, sort in enumerate(kinds):
                if own and at == 0 and sort == "r":
                    terms.append(("var", "P"))
                    continue
                some = [*_known(bound, sort), ("any", ""), draw(_constant(sort))]
                if own and sort == "r":
                    some.pop()
                term = draw(st.sampled_from(some))
                if kind == "card" and term == ("any", "") and draw(st.booleans()):
                    term = next(free)
                terms.append(term)
            if kind == "card":
                if any(item[0] == "card" for item in items):
                    continue  # a free variable in two counted atoms is not safe
                limit = draw(st.sampled_from(["0", "1", "2", "3"]))
                items.append(("card", (name, tuple(terms)), draw(OPERATORS), limit))
            else:
                items.append(("not", (name, tuple(terms))))
            continue
        variables = [("var", name) for name in sorted(bound)]
        if not variables:
            continue
        left = draw(st.sampled_from(variables))
        sort = bound[left[1]]
        right = draw(st.sampled_from([*_known(bound, sort), draw(_constant(sort))]))
        if kind == "ne":
            items.append(("ne", left, right))
        elif kind == "int":
            number = draw(st.sampled_from([*_known(bound, sort), ("const", "2")]))
            items.append(("int", left, draw(OPERATORS), number))
        elif kind == "lex":
            items.append(("lex", left, draw(OPERATORS), right))
        else:
            start = draw(st.sampled_from([("const", "links"), ("const", "P."), right]))
            delimiters = draw(st.sampled_from(["", "/", "./"]))
            items.append(("shape", left, start, delimiters, draw(_constant("v"))))
    terms_of_head: list[Term] = []
    for at, sort in enumerate(head[1]):
        if head == ALLOW and at == 0:
            terms_of_head.append(draw(st.sampled_from([("const", VIEWER), ("var", "S")])))
            if terms_of_head[0] == ("var", "S") and bound.get("S") != "s":
                items.append(("pos", ("_Viewer", (("var", "S"),))))
            continue
        if own and sort == "r":
            terms_of_head.append(("var", "P"))
            if "P" not in bound:
                items.append(("pos", ("Have", (("var", "P"),))))
            continue
        known = _known(bound, sort)
        fixed = draw(_constant(sort))
        terms_of_head.append(draw(st.sampled_from(known)) if known else fixed)
    if own and "P" not in bound and terms_of_head.count(("var", "P")) == 0:
        items.append(("pos", ("Have", (("var", "P"),))))
    return (head[0], tuple(terms_of_head)), tuple(draw(st.permutations(items)))


OWN_HELPERS: tuple[tuple[Signature, ...], ...] = ((("B", "r"),), (("C", "rv"), ("D", "r")))


@st.composite
def _programs(
    draw: st.DrawFn,
    base: tuple[Signature, ...],
    last: tuple[Signature, ...],
    own: bool = False,
    rules: int = 2,
) -> Program:
    made: list[Rule] = []
    below = list(base)
    for layer in OWN_HELPERS if own else HELPERS:
        level = [*below, *layer]
        heads = draw(st.lists(st.sampled_from(layer), max_size=rules))
        made += [draw(_rule(head, below, level, own)) for head in heads]
        below = level
    level = below if own else [*below, *last]
    for head in last:
        count = draw(st.integers(1, rules))
        made += [draw(_rule(head, below, level, own)) for _ in range(count)]
    return tuple(draw(st.permutations(made)))


def selectors(rules: int = 2) -> st.SearchStrategy[str]:
    """Return modules as a peer may send them: of all that a selector may say."""
    return _programs(SELECTOR_BASE, SELECT, rules=rules).map(canonical)


@st.composite
def exposures(draw: st.DrawFn, own: bool = True) -> Exposure:
    """Return an exposure; with `own` it looks at each record by itself."""
    text = canonical(draw(_programs(EXPOSURE_BASE, (ALLOW,), own=own, rules=1)))
    who = draw(st.sampled_from([(), (VIEWER,), (VIEWER, OTHER), (OTHER,)]))
    return exposure_of(text, *who, anyone=not who)


PLAIN_EXPOSURES = (
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Field(P,'Group',_,'X').",
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Field(P,'Group',_,'Y').",
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Cardinality(Field(P,'Tag',_,_),'>=','1').",
    "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Signed-By',_,V).\n"
    "AllowQueryRecord(V,P) :- _Viewer(V), Have(P), not Field(P,'Signed-By',_,_).",
)
plain_exposures = st.builds(
    exposure_of, st.sampled_from(PLAIN_EXPOSURES), st.sampled_from([VIEWER])
)


def _some(
    first: st.SearchStrategy[Exposure], more: st.SearchStrategy[Exposure], least: int
) -> st.SearchStrategy[list[Exposure]]:
    """Return mostly one exposure, so that mostly something is seen."""
    sizes = [least, 1, 1, 1, 2, 3]
    return st.sampled_from(sizes).flatmap(
        lambda size: st.tuples(*[first, more, more][:size]).map(list)
    )


own_exposures = _some(plain_exposures, st.one_of(plain_exposures, exposures()), 1)
"""Exposures that look at each record by itself."""
all_exposures = st.one_of(
    _some(exposures(own=False), exposures(own=False), 0),
    _some(plain_exposures, exposures(own=False), 0),
    own_exposures,
)
"""Any exposures, or none."""

SELECT_RECORDS = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
SELECT_X = (
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'X').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'X')."
)


# -- policies ------------------------------------------------------------------------------------


def compiled(
    ours: str,
    theirs: str,
    exposed: Iterable[Exposure],
    *,
    index: int = 0,
    lowering: str = "standard-v1",
    limits: RuleLimits = OWN_LIMITS,
    viewer: str = VIEWER,
) -> Executable:
    """Return a policy for the side with an index; the limits are those of the peer's rules."""
    pair = [operand_of(ours, index), operand_of(theirs, 1 - index, limits=limits)]
    if index:
        pair.reverse()
    plan = make_plan(pair[0], pair[1], lowering)
    return compile_policy(plan, pair, index=index, exposures=exposed, viewer=viewer)


def visible_in(
    exposed: Iterable[Exposure], facts: Iterable[Fact], viewer: str = VIEWER
) -> frozenset[str]:
    """Return the records that every module registered for a viewer allows; plainly read."""
    active = active_exposures(exposed, viewer)
    known = [*facts, ("_Viewer", viewer)]
    allowed = [
        {
            record
            for who, record in evaluate_naively(each.module, known)[ALLOW_QUERY_RECORD]
            if who == viewer
        }
        for each in active
    ]
    return frozenset(set.intersection(*allowed)) if allowed else frozenset()


def seen(facts: Iterable[Fact], visible: Iterable[str]) -> frozenset[Fact]:
    """Return the record facts of visible records."""
    shown = set(visible)
    return frozenset(fact for fact in facts if fact[0] in RECORD_PREDICATES and fact[1] in shown)


# -- changes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One step of a life: the whole store after it, what is public, and whether it is asked."""

    store: Store
    public: list[Fact]
    asked: bool


@st.composite
def lives(draw: st.DrawFn, most: int = 4) -> list[Step]:
    """Return what becomes of a store: records come, go, and are asked about now and then."""
    store = draw(stores())
    public = draw(publics())
    made = [Step(store, public, True)]
    for _ in range(draw(st.integers(1, most))):
        store = dict(store)
        for record in draw(st.lists(st.sampled_from(RECORDS), max_size=3)):
            if record in store:
                del store[record]
            else:
                store[record] = draw(records(record))
        if draw(st.booleans()):
            public = draw(publics())
        made.append(Step(store, public, draw(st.integers(0, 3)) > 0))
    return made


def difference(before: Iterable[Fact], after: Iterable[Fact]) -> tuple[list[Fact], list[Fact]]:
    """Return what comes and what goes."""
    old, new = set(before), set(after)
    return sorted(new - old), sorted(old - new)


BAITS = (
    "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S), Field(_,'Group',_,'Y').",
    "SelectHave(P) :- Have(P), not Field(P,'Group',_,'X').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), not Have(P).",
    "SelectHave(P) :- Have(P), Cardinality(Field(Q,'Group',_,'Y'),'<','1').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), Cardinality(Have(_),'>=','3').",
    "Reach(P) :- Have(P), Field(P,'Group',_,'X').\n"
    "Reach(Q) :- Reach(P), RecordLink(P,_,_,_,Q).\n"
    "SelectHave(P) :- Reach(P).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), not Reach(P).",
    "Odd(P) :- Field(P,'Tag','0',_).\n"
    "Even(Q) :- Odd(P), RecordLink(P,_,_,_,Q).\n"
    "Odd(Q) :- Even(P), RecordLink(P,_,_,_,Q), Have(Q).\n"
    "SelectHave(P) :- Odd(P), Have(P).\n"
    "SelectHave(P) :- Even(P), BlobHash(P,_).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), Even(P).",
    "Pair(P,Q) :- Have(P), Have(Q), P != Q.\n"
    "Seen(V) :- Field(_,'Tag',_,V).\n"
    "SelectHave(P) :- Have(P), Cardinality(Pair(P,_),'>','1').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,N,_,V), Seen(V).",
    "Newer(P,Q) :- Field(P,'Name',_,A), Field(Q,'Name',_,B), LexCompare(B,'>',A).\n"
    "SelectHave(P) :- Have(P), Cardinality(Newer(P,Q),'<','2').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), Peer(S), Cardinality(PlexHash(_,P),'<','1').",
)
"""Rules that try to find out what is behind the gate, in the ways that there are."""
modules = st.one_of(st.sampled_from(BAITS), selectors(), selectors())
"""What a peer may send."""


def _valid(records: Iterable[Record]) -> tuple[ValidRecord, ...]:
    outcomes = validate_many([frame_record(record.bytes) for record in records], os.urandom)
    return tuple(each for each in outcomes if isinstance(each, ValidRecord))


@cache
def real_secrets() -> tuple[ValidRecord, ...]:
    """Return records that no other record names."""
    return _valid(
        Plex(
            group="YXZ"[number % 3],
            app="b",
            name=VALUES[number % 7],
            tai=f"{number + 50:010d}:000000000",
            data=f"secret {number}".encode(),
            headers=(("Tag", VALUES[number % 5]),) * (number % 3),
        )
        for number in range(12)
    )


@cache
def real_records() -> tuple[ValidRecord, ...]:
    """Return records as a store takes them: with groups, tags, links, seals, and inner ones."""
    blob = Blob(b"data")
    made: list[Record] = [blob, Blob(b"other")]
    for number in range(10):
        before = made[number // 2].id
        headers = [("Tag", "ab"[number % 2]), ("Tag", VALUES[number % 4])][: number % 3]
        headers += [("see+Link", f"a {before}")] if number % 2 else []
        plex = Plex(
            group="XYX"[number % 3],
            app="ab"[number % 2],
            name=VALUES[number % 7],
            tai=f"{number + 1:010d}:000000000",
            data=b"data",
            headers=tuple(headers),
        )
        made.append(plex)
        if number % 3 == 0:
            key = SigningKey(bytes([1 + number % 2]) * 32, lambda count: b"\x05" * count)
            made.append(plex.seal(key))
    return _valid(made)
