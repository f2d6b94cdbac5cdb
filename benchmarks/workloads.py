"""The workloads of the engine: the programs, and one seeded description of the records.

A `Description` says in columns of small numbers what each record holds and links to. From it
come facts as columns or texts (`workload_facts`) and signed records (`workload_records`).
Nothing here knows an engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "APPS",
    "ENDINGS",
    "FURTHER",
    "GOALS",
    "GROUPS",
    "LABELS",
    "MEMBER",
    "NO",
    "PROGRAMS",
    "ROOTS",
    "TAGS",
    "TC",
    "W1",
    "W2",
    "W3",
    "W4",
    "W5",
    "VERSION",
    "WORDS",
    "Description",
    "describe",
    "describe_further",
    "name_of",
]

W1: Final = (
    "Selected(P) :- Have(P), Field(P,'Group',_,'u'), Field(P,'App',_,'ding'), "
    "Field(P,'Name',_,K), TextShape(K,'links/','','').\n"
)
W2: Final = (
    W1
    + """\
Support(T) :- Selected(P), RecordLink(P,'+Link',_,'evidence',T).
Support(T) :- Support(P), RecordLink(P,'+Link',_,'evidence',T).
"""
)
_KEYS: Final = """\
Blocked(V) :- Have(P), Field(P,'Group',_,'keys'), Field(P,'App',_,'blocked'), Field(P,'Name',_,V).
Member(V) :- Have(P), Field(P,'Group',_,'keys'), Field(P,'App',_,'member'), Field(P,'Name',_,V).
"""
W3: Final = _KEYS + "Selected(P) :- Have(P), Field(P,'Signed-By',_,V), Member(V), not Blocked(V).\n"
TC: Final = """\
Reach(P,T) :- Edge(P,T).
Reach(P,T) :- Reach(P,Q), Edge(Q,T).
"""
W4: Final = """\
Before(P,Q) :- Candidate(P,T), Candidate(Q,T), LexCompare(Q,'>',P).
Before(P,Q) :- Candidate(P,TP), Candidate(Q,TQ), LexCompare(TQ,'>',TP).
Selected(P) :- Candidate(P,T), Cardinality(Before(P,Q),'<','100').
"""
W5: Final = (
    _KEYS
    + """\
Good(V) :- Member(V), not Blocked(V).
Signed(P,V) :- Have(P), Field(P,'Signed-By',_,V).
Admitted(P) :- Signed(P,V), Good(V).
Rejected(P) :- Signed(P,V), not Good(V).
Sel1(P) :- Admitted(P), Field(P,'Group',_,'u'), Field(P,'App',_,'ding'), Field(P,'Name',_,K), \
TextShape(K,'links/','','').
Sel2(P) :- Admitted(P), Field(P,'Group',_,'pub'), Field(P,'Name',_,K), TextShape(K,'','','.json').
Sel3(P) :- Admitted(P), Field(P,'Name',_,K), TextShape(K,'links/','./','msg').
Selected(P) :- Sel1(P).
Selected(P) :- Sel2(P).
Selected(P) :- Sel3(P).
Support(T) :- Selected(P), RecordLink(P,'+Link',_,'evidence',T).
Support(T) :- Support(P), RecordLink(P,'+Link',_,'evidence',T).
Missing(T) :- Support(T), not Have(T).
Wanted(P) :- Selected(P), not Rejected(P).
Wanted(P) :- Support(P), Have(P).
Busy(V) :- Member(V), Cardinality(Signed(P,V),'>','8').
HiSeq(P) :- Wanted(P), Field(P,'Seq',_,S), IntCompare(S,'>=','500').
Send(P) :- Wanted(P), Signed(P,V), not Busy(V), not HiSeq(P).
"""
)
GOALS: Final = {
    "W1": "Selected/1",
    "W2": "Support/1",
    "W3": "Selected/1",
    "W4": "Selected/1",
    "W5": "Send/1",
    "TC": "Reach/2",
}
"""The predicate that each workload asks for in the end."""
PROGRAMS: Final = {"W1": W1, "W2": W2, "W3": W3, "W4": W4, "W5": W5, "TC": TC}

GROUPS: Final = ("u", "pub", "team", "home", "work", "misc", "archive", "keys")
APPS: Final = ("ding", "chat", "mail", "wiki", "photo", "task", "member", "blocked")
ROOTS: Final = ("links/", "posts/", "notes/")
WORDS: Final = ("bob", "alice", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy")
ENDINGS: Final = ("/msg", ".json")
LABELS: Final = ("evidence", "reply")
TAGS: Final = 20
KEYS, MEMBER, BLOCKED = GROUPS.index("keys"), APPS.index("member"), APPS.index("blocked")

VERSION: Final = 1
NO: Final = -1
FURTHER: Final = 100
_CHAIN: Final = 200
_LEAST_VERIFIERS: Final = 20
_NUMBERS: Final = 10_000
_SKEW: Final = 2.25  # the higher, the more records the low-numbered verifiers sign

Ints: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Description:
    """What each of a number of records holds; `first` is the number of the first one.

    A name is a root, a word, an ending and perhaps a number (else NO); that of a `keys`
    record is the text of the verifier `named` (else NO). `tags` has two columns, NO for
    none. Links are sorted by source; sources and targets are numbers of records.
    """

    first: int
    verifiers: int
    group: Ints
    app: Ints
    root: Ints
    word: Ints
    ending: Ints
    number: Ints
    named: Ints
    tai: Ints
    signer: Ints
    seq: Ints
    tags: Ints
    link_source: Ints
    link_target: Ints
    link_label: Ints

    @property
    def records(self) -> int:
        """How many records are described."""
        return len(self.group)

    @property
    def name_codes(self) -> Ints:
        """One number for each name that is not a verifier's."""
        words = (self.root * len(WORDS) + self.word) * len(ENDINGS) + self.ending
        return words * (_NUMBERS + 1) + self.number + 1


def name_of(code: int) -> str:
    """Return the name that a code of `name_codes` stands for."""
    words, number = divmod(code, _NUMBERS + 1)
    rest, ending = divmod(words, len(ENDINGS))
    root, word = divmod(rest, len(WORDS))
    name = f"{ROOTS[root]}{WORDS[word]}{ENDINGS[ending]}"
    return name if number == 0 else f"{name}/{number - 1}"


def describe(records: int) -> Description:
    """Return the description of that many records: the same one every time."""
    source = np.random.default_rng([VERSION, records])
    verifiers = max(records // 50, _LEAST_VERIFIERS)
    members, blocked = int(verifiers * 0.6), max(int(verifiers * 0.05), 1)
    order = source.permutation(records)
    keys, others = order[: members + blocked], order[members + blocked :]
    chains = others[: records // 4000 * _CHAIN].reshape(-1, _CHAIN)
    chains = -np.sort(-chains, axis=1)  # the newest first: a record links to earlier ones
    links = _links(source, chains, np.sort(others[chains.size :]))
    found = _describe(source, 0, records, records, verifiers, links)
    found.named[keys[:members]] = np.arange(members)
    found.named[keys[members:]] = source.choice(verifiers, blocked, replace=False)
    found.group[keys] = KEYS
    found.app[keys] = np.where(np.arange(len(keys)) < members, MEMBER, BLOCKED)
    starts = chains[:, 0]
    found.group[starts] = found.app[starts] = found.root[starts] = 0
    return found


def describe_further(before: Description, batch: int = 0) -> Description:
    """Return the description of a batch of records that come later.

    Each batch has one new member and blocks one verifier; batches follow one another.
    """
    total = before.records + batch * FURTHER
    source = np.random.default_rng([VERSION, before.records, FURTHER, batch])
    numbers = np.arange(total, total + FURTHER)
    links = _links(source, np.empty((0, _CHAIN), np.int64), numbers)
    found = _describe(source, total, FURTHER, before.records, before.verifiers, links)
    found.group[:2] = KEYS
    found.app[:2] = MEMBER, BLOCKED
    found.named[:2] = before.verifiers - 1 - batch, before.verifiers // 4 + batch
    return found


def _describe(
    source: np.random.Generator,
    first: int,
    count: int,
    scale: int,
    verifiers: int,
    links: tuple[Ints, Ints, Ints],
) -> Description:
    numbered = source.random(count) < 0.5
    tags = source.integers(0, TAGS, (count, 2))
    tags[np.arange(2) >= source.integers(0, 3, count)[:, None]] = NO
    return Description(
        first=first,
        verifiers=verifiers,
        group=np.where(source.random(count) < 0.2, 0, source.integers(1, KEYS, count)),
        app=np.where(source.random(count) < 0.25, 0, source.integers(1, MEMBER, count)),
        root=source.integers(0, len(ROOTS), count),
        word=source.integers(0, len(WORDS), count),
        ending=source.integers(0, len(ENDINGS), count),
        number=np.where(numbered, source.integers(0, _NUMBERS, count), NO),
        named=np.full(count, NO),
        tai=source.integers(0, max(scale // 3, 1), count),
        signer=(verifiers * source.random(count) ** _SKEW).astype(np.int64),
        seq=source.integers(0, 1000, count),
        tags=tags,
        link_source=links[0],
        link_target=links[1],
        link_label=links[2],
    )


def _links(source: np.random.Generator, chains: Ints, others: Ints) -> tuple[Ints, Ints, Ints]:
    """Return sources, targets and labels: of chains, of their side branches, and of the rest."""
    links = chains[:, :-1].ravel()
    chained = chains.ravel()
    branching = np.repeat(chained[source.random(len(chained)) < 0.1], 10)
    linking = others[source.random(len(others)) < 0.25]
    linking = np.repeat(linking, source.integers(1, 5, len(linking)))
    label = np.where(source.random(len(linking)) < 0.6, 0, 1)
    sources = np.concatenate([links, branching, linking])
    loose = sources[len(links) :]
    earlier = (source.random(len(loose)) * loose).astype(np.int64)
    targets = np.concatenate([chains[:, 1:].ravel(), earlier])
    labels = np.concatenate([np.zeros(len(sources) - len(linking), np.int64), label])
    possible = targets < sources  # the first record has none before it
    order = np.argsort(sources[possible], kind="stable")
    return sources[possible][order], targets[possible][order], labels[possible][order]
