"""Warnings about policies: what is reported, and which good policies are not."""

from __future__ import annotations

import time

import pytest

from lace.rules.limits import PEER_LIMITS
from lace.rules.profiles import EXPOSURE, PROFILES, SELECTOR, Profile
from lace.rules.program import check_source, find_all

ALICE = "V.C0X9~9NU6Sdv1zz4AitEhpIjZV3lujfVDdBfu~4b34x.H3"
OFFER = "SelectHave(P) :- Have(P).\n"
ASK = "SelectAdvertised(P,S) :- Advertised(P,S).\n"


def places(text: str, rule: str, profile: str | Profile) -> list[tuple[int, str]]:
    """The lines of the warnings that cite a rule, each with the marked text."""
    known = PROFILES[profile] if isinstance(profile, str) else profile
    found = []
    for warning in check_source(text, profile=known).warnings:
        if warning.rule == rule:
            source, carets = warning.excerpt.split("\n")
            start = carets.index("^")
            found.append((warning.place.line or 0, source[start : carets.rindex("^") + 1]))
    return found


# Labels


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("label", ["Opq_a", "Opq_0", "Opq_~", "Opq__", "Opq_", "Opq_bob", "Opq_é"])
def test_labels_name_nobody(label: str, profile: str) -> None:
    text = f"{OFFER}{ASK}AllowQueryRecord(V,P) :- Peer(V), Have(P).\nA('{label}') :- true."
    found = find_all(text, profile=PROFILES[profile])
    assert [finding.place.line for finding in found if finding.rule == "X6"] == [4]


@pytest.mark.parametrize(
    "body",
    [
        "Advertised(P,'Opq_a')",
        "Advertised(P,_), not Advertised(P,'Opq_a')",
        "Advertised(P,S), S != 'Opq_a'",
        "Advertised(P,S), LexCompare('Opq_a','<=',S)",
        "Advertised(P,S), TextShape(S,'Opq_a','','')",
        "Advertised(P,S), TextShape(S,'','','Opq_a')",
        "Have(P), Cardinality(Advertised(P,'Opq_a'),'>','0')",
        "Advertised(P,'Opq_a'), AdvertisedField(P,'Opq_a','Name',_,_)",
    ],
)
def test_labels_anywhere_in_a_rule_once_each(body: str) -> None:
    assert places(f"A(P) :- {body}.", "X6", "query") == [(1, "'Opq_a'")]


def test_every_label_of_a_rule() -> None:
    text = "A(P) :- Advertised(P,'Opq_a'), Advertised(P,'Opq_b')."
    assert places(text, "X6", "query") == [(1, "'Opq_a'"), (1, "'Opq_b'")]


@pytest.mark.parametrize(
    "body",
    [
        f"Advertised(P,'{ALICE}')",
        "Advertised(P,S), TextShape(S,'Opq_','','')",
        "Field(P,'Name',_,K), TextShape(K,'a','Opq_','')",
        "Field(P,'Name',_,'opq_a')",
        "Field(P,'Name',_,'my Opq_a')",
        "Field(P,'Name',_,'Opq')",
        "Opq_a(P), true",
    ],
)
def test_no_labels(body: str) -> None:
    assert places(f"A(P) :- {body}.", "X6", "query") == []


# Absence


@pytest.mark.parametrize("profile", ["selector", "query"])
@pytest.mark.parametrize(
    ("rules", "marked"),
    [
        ("Advertised(P,S), not AdvertisedField(P,S,'Draft',_,_)", "not AdvertisedField"),
        ("Advertised(P,S), not Advertised('P.x',S)", "not Advertised"),
        (
            "Advertised(P,S), Cardinality(AdvertisedField(P,S,'Tag',_,_),'<','3')",
            "Cardinality(AdvertisedField",
        ),
        ("Advertised(P,S), Cardinality(Advertised(_,S),'<=','9')", "Cardinality(Advertised"),
        # a helper that reads claims, at any depth, about this record or others
        (
            "Advertised(P,S), not Bad(P,S).\n"
            "Bad(P,S) :- AdvertisedField(P,S,'Signed-By',_,V), Banned(V).\n"
            "Banned(V) :- Field(P,'Signed-By',_,'V.admin.H3'), Field(P,'Name',_,V)",
            "not Bad",
        ),
        (
            "Advertised(P,S), not Bad(P,S).\n"
            "Bad(P,S) :- Worse(P,S).\n"
            "Worse(P,S) :- AdvertisedField(P,S,'App',_,'spam')",
            "not Bad",
        ),
        (
            "Advertised(P,S), not Replaced(P).\n"
            "Replaced(P) :- RecordLink(P,_,_,'next',Q), Advertised(Q,_)",
            "not Replaced",
        ),
        (
            "Advertised(P,S), Cardinality(Vote(P,_),'<','3').\n"
            "Vote(P,Q) :- AdvertisedField(Q,_,'Against',_,P)",
            "Cardinality(Vote",
        ),
        # the claim is asked for, but with another value, or for another record or source
        (
            "AdvertisedField(P,S,'Tag',_,'a'), not Bad(P,S).\n"
            "Bad(P,S) :- AdvertisedField(P,S,'Tag',_,'b')",
            "not Bad",
        ),
        (
            "AdvertisedField(P,S,'Tag',_,_), not Bad(P,S).\n"
            "Bad(P,S) :- AdvertisedField(P,S,'Tag',_,T), TextShape(T,'x','','')",
            "not Bad",
        ),
        (
            "Advertised(P,S), AdvertisedField(Q,S,'Re',_,P), not Bad(Q,P).\n"
            "Bad(Q,P) :- AdvertisedField(P,_,'Re',_,Q)",
            "not Bad",
        ),
        # a comparison with something that is no claim is no ranking
        (
            "Advertised(P,S), not Old(P,S).\n"
            "Old(P,S) :- AdvertisedField(P,S,'TAI',_,T), StartTAI(N), LexCompare(T,'<',N)",
            "not Old",
        ),
        (
            "Advertised(P,S), not Odd(P,S).\n"
            "Odd(P,S) :- AdvertisedField(P,S,_,I,V), IntCompare(I,'<',V)",
            "not Odd",
        ),
        (
            "Advertised(P,S), not Expired(P,S).\n"
            "Expired(P,S) :- AdvertisedField(P,S,'TAI',_,T), AdvertisedField(P,S,'Until',_,U),"
            " LexCompare(T,'>',U)",
            "not Expired",
        ),
        (
            "Cand(P,S,_), not Revoked(P,S).\n"
            "Cand(P,S,T) :- AdvertisedField(P,S,'TAI',_,T).\n"
            "Revoked(P,S) :- Cand(P,S,T), Revoke(_,S,U), LexCompare(U,'>',T).\n"
            "Revoke(P,S,T) :- AdvertisedField(P,S,'Revoked',_,T)",
            "not Revoked",
        ),
        (
            "AdvertisedField(P,S,'TAI',_,_), not Revoked(P,S).\n"
            "Revoked(P,S) :- AdvertisedField(P,S,'TAI',_,T), AdvertisedField(_,S,'Revoke',_,U),"
            " LexCompare(U,'>',T)",
            "not Revoked",
        ),
        (
            "AdvertisedField(P,S,'TAI',_,_), not Old(P,S).\n"
            "Old(P,S) :- AdvertisedField(P,S,'TAI',_,T), AdvertisedField(_,S,'TAI',_,U),"
            " LexCompare(T,'<','TAI'), LexCompare(U,'<','TAI')",
            "not Old",
        ),
        ("Advertised(P,S), not Any().\nAny() :- AdvertisedField(_,_,'Stop',_,_)", "not Any"),
        ("Advertised(P,S), not Any().\nAny() :- Some().\nSome() :- Advertised('P.x',_)", "not Any"),
        # who leaves out the time of a record has it ranked nowhere
        (
            "Advertised(P,S), not Superseded(P,S).\n"
            "Superseded(P,S) :- Named(P,S,N,T), Named(_,S,N,U), LexCompare(T,'<',U).\n"
            "Named(P,S,N,T) :- AdvertisedField(P,S,'Name',_,N), AdvertisedField(P,S,'TAI',_,T)",
            "not Superseded",
        ),
        (
            "Cand(P,S,_), not Worse(P,S).\n"
            "Cand(P,S,T) :- AdvertisedField(P,S,'TAI',_,T).\n"
            "Worse(P,S) :- Cand(P,S,T), Cand(_,S,U), LexCompare(T,'<',U),"
            " AdvertisedField(P,S,'Flag',_,'x')",
            "not Worse",
        ),
        # counting claims in a helper
        (
            "Advertised(P,S), not Busy(P,S).\n"
            "Busy(P,S) :- Advertised(P,S), Cardinality(AdvertisedField(P,S,'Tag',_,_),'>','3')",
            "not Busy",
        ),
    ],
)
def test_absent_claims_prove_nothing(rules: str, marked: str, profile: str) -> None:
    text = f"SelectAdvertised(P,S) :- {rules}.\n{OFFER}"
    ((line, found),) = places(text, "040-14", profile)
    assert line == 1
    assert found.startswith(marked)


def test_absence_in_a_helper_that_adds() -> None:
    text = (
        "SelectAdvertised(P,S) :- Final(P,S).\n"
        "Final(P,S) :- Advertised(P,S), not AdvertisedField(P,S,'Draft',_,_).\n"
    )
    assert [line for line, _ in places(OFFER + text, "040-14", "selector")] == [3]


def test_absence_in_a_helper_that_is_negated_twice() -> None:
    text = (
        "SelectAdvertised(P,S) :- Advertised(P,S), not Fine(P,S).\n"
        "Fine(P,S) :- Advertised(P,S), not Bad(P,S).\n"
        "Bad(P,S) :- Advertised(P,S), not AdvertisedField(P,S,'Tag',_,_).\n"
    )
    assert [line for line, _ in places(OFFER + text, "040-14", "selector")] == [4]


def test_absence_is_reported_once_in_a_rule() -> None:
    text = (
        f"{OFFER}SelectAdvertised(P,S) :- Advertised(P,S), not AdvertisedField(P,S,'Draft',_,_),"
        " not AdvertisedField(P,S,'Old',_,_), Cardinality(Advertised(_,S),'<','9').\n"
    )
    assert len(places(text, "040-14", "selector")) == 1


@pytest.mark.parametrize("profile", ["selector", "query"])
@pytest.mark.parametrize(
    "rules",
    [
        "Advertised(P,S), not Have(P)",
        "AdvertisedField(P,S,'Signed-By',_,V), not Blocked(V).\n"
        "Blocked(V) :- Field(P,'Signed-By',_,'V.admin.H3'), Field(P,'Name',_,V)",
        "Advertised(P,S), not TransportEncrypted()",
        "Advertised(P,S), Cardinality(AdvertisedField(P,S,'Tag',_,_),'>=','3')",
        "Advertised(P,S), Cardinality(Have(_),'<','1000')",
        # the newest, by one and by a hundred; and the latest of a name
        "Cand(P,S,_), Cardinality(Before(P,S,_),'<','100').\n"
        "Cand(P,S,T) :- AdvertisedField(P,S,'TAI',_,T).\n"
        "Before(P,S,Q) :- Cand(P,S,T), Cand(Q,S,T), LexCompare(Q,'>',P).\n"
        "Before(P,S,Q) :- Cand(P,S,T), Cand(Q,S,U), LexCompare(U,'>',T)",
        "Named(P,S,_,_), not Superseded(P,S).\n"
        "Superseded(P,S) :- Named(P,S,N,T), Named(_,S,N,U), LexCompare(T,'<',U).\n"
        "Named(P,S,N,T) :- AdvertisedField(P,S,'Name',_,N), AdvertisedField(P,S,'TAI',_,T)",
        "AdvertisedField(P,S,'App',_,'a'), AdvertisedField(P,S,'Size',_,N), not Larger(P,S,N).\n"
        "Larger(P,S,N) :- AdvertisedField(P,S,'App',_,'a'), AdvertisedField(P,S,'Size',_,N),"
        " AdvertisedField(Q,S,'App',_,'a'), AdvertisedField(Q,S,'Size',_,M), IntCompare(M,'>',N)",
        # helpers that read only what the rule asks for
        "Advertised(P,S), not Blocked(P,S).\n"
        "Blocked(P,S) :- Advertised(P,S), Field(_,'Blocked',_,S)",
        "Wanted(P,S,_), not Blocked(P,S).\n"
        "Wanted(P,S,A) :- AdvertisedField(P,S,'App',_,A).\n"
        "Blocked(P,S) :- Advertised(P,S), Field(_,'Blocked',_,S)",
        "Wanted(P,S,A), not Blocked(P,A).\n"
        "Wanted(P,S,A) :- AdvertisedField(P,S,'App',_,A).\n"
        "Blocked(P,A) :- Advertised(P,_), Field(_,'Blocked',_,A)",
        "AdvertisedField(P,S,'Signed-By',_,V), not Bad(P,S,V).\n"
        "Bad(P,S,V) :- AdvertisedField(P,S,'Signed-By',_,V), Field(_,'Blocked',_,V)",
        # what refuses a record for a missing claim
        "Advertised(P,S), not Untyped(P,S).\n"
        "Untyped(P,S) :- Advertised(P,S), not AdvertisedField(P,S,'Type',_,_)",
    ],
)
def test_good_negations(rules: str, profile: str) -> None:
    assert places(f"SelectAdvertised(P,S) :- {rules}.\n{OFFER}", "040-14", profile) == []


def test_exposures_have_no_claims_to_miss() -> None:
    text = "AllowQueryRecord(V,P) :- Peer(V), Have(P), not Advertised(P,V)."
    assert "040-14" not in {finding.rule for finding in find_all(text, profile=EXPOSURE)}


def test_long_rules_of_a_peer_take_no_longer() -> None:
    asked = ", ".join(f"AdvertisedField(P,S,'f{n}',_,_)" for n in range(1_000))
    denied = ", ".join(f"not Bad(P,S,'{n}')" for n in range(1_000))
    text = f"SelectAdvertised(P,S) :- {asked}, {denied}.\n{OFFER}"
    text += "".join(f"Bad(P,S,'{n}') :- {asked}.\n" for n in range(20))
    ranked = ", ".join(f"AdvertisedField(P{n},S,'f',_,T{n})" for n in range(40))
    ranked += "".join(f", LexCompare(T{n},'<',T{n + 1})" for n in range(39))
    text += "".join(f"Bad(P{n},S,T{n}) :- {ranked}.\n" for n in range(40))
    started = time.process_time()
    found = find_all(text, profile=SELECTOR, limits=PEER_LIMITS)
    assert time.process_time() - started < 20
    assert "040-14" not in {finding.rule for finding in found}


# Viewers


@pytest.mark.requirement("020-52")
@pytest.mark.parametrize(
    "rules",
    [
        "_Viewer(V), Have(P)",
        "Have(P), Field(P,'Group',_,'X'), _Viewer(V)",
        f"_Viewer(V), Field(P,'Signed-By',_,W), _Member(W).\n_Member('{ALICE}') :- true",
        "_Viewer(V), TransportEncrypted(), StartTAI(_), Have(P)",
        f"_Viewer(V), Have(P), V != '{ALICE}'",
        "_Viewer(V), Have(P), not _Blocked(V).\n"
        "_Blocked(V) :- Field(P,'Signed-By',_,'V.admin.H3'), Field(P,'Name',_,V)",
        "_Anyone(V), Have(P).\n_Anyone(V) :- _Viewer(V)",
        "_Open(P,V), _Anyone(V).\n_Open(P,V) :- _Anyone(V), Have(P).\n_Anyone(V) :- _Viewer(V)",
        "_Open(V,P).\n_Open(V,P) :- _Viewer(V), Have(P).\n_Open(V,P) :- Peer(V), Have(P)",
        "_Viewer(V), Have(P), Cardinality(Peer(V),'>','-1')",
        "_Viewer(V), Have(P), Cardinality(Field(_,'Signed-By',_,V),'>=','0')",
    ],
)
def test_exposed_to_anyone(rules: str) -> None:
    assert places(f"AllowQueryRecord(V,P) :- {rules}.", "020-52", "exposure") == [(1, "V")]


@pytest.mark.requirement("020-52")
@pytest.mark.parametrize(
    "rules",
    [
        "_Viewer(V), Peer(V), Have(P)",
        "Peer(V), Have(P)",
        "_Viewer(V), Peer(_), Have(P)",
        "_Viewer(V), _Proven(), Have(P).\n_Proven() :- Peer(_)",
        "_Viewer(V), not _Stranger(V), Have(P).\n_Stranger(V) :- _Viewer(V), not Peer(V)",
        "_Viewer(V), Field(P,'Signed-By',_,V)",
        "_Viewer(V), _Wrote(V,P).\n_Wrote(V,P) :- Field(P,'Signed-By',_,V)",
        "_Viewer(V), _Mine(P).\n_Mine(P) :- _Viewer(W), Field(P,'Signed-By',_,W)",
        "_Viewer(V), _Viewer(W), Field(P,'Signed-By',_,W)",
        f"_Viewer(V), _Viewer('{ALICE}'), Have(P)",
        f"_Viewer(V), _Friend(V), Have(P).\n_Friend('{ALICE}') :- true",
        f"_Friend(V), Have(P).\n_Friend('{ALICE}') :- true",
        "_Viewer(V), Have(P), TextShape(V,'V.','','.H3')",
        "_Viewer(V), Have(P), LexCompare(V,'>','V')",
        "_Viewer(V), Have(P), Cardinality(Field(_,'Signed-By',_,V),'>','0')",
        "_Viewer(V), Transport(A), TextShape(A,'unix:','',''), Have(P)",
        "Here(V), Have(P)",
    ],
)
def test_exposed_to_some(rules: str) -> None:
    assert places(f"AllowQueryRecord(V,P) :- {rules}.", "020-52", "exposure") == []


def test_other_profiles_expose_nothing() -> None:
    text = "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\nAllowQueryRecord('bob',P) :- Have(P)."
    assert check_source(text, profile=PROFILES["query"].with_base([("_Viewer", 1)])).warnings == ()


@pytest.mark.parametrize(
    ("rules", "marked"),
    [
        ("AllowQueryRecord('alice',P) :- Have(P)", "'alice'"),
        ("AllowQueryRecord('',P) :- Have(P)", "''"),
        ("AllowQueryRecord('V.alice.H3',P) :- Have(P)", "'V.alice.H3'"),
        (f"AllowQueryRecord('{ALICE[:-3]}',P) :- Have(P)", f"'{ALICE[:-3]}'"),
        (f"AllowQueryRecord('{ALICE} ',P) :- Have(P)", f"'{ALICE} '"),
        (f"AllowQueryRecord('P{ALICE[1:]}',P) :- Have(P)", f"'P{ALICE[1:]}'"),
        (
            "AllowQueryRecord(V,P) :- _Friend('a',V), Have(P).\n_Friend('a','bob') :- true",
            "'bob'",
        ),
        (
            "AllowQueryRecord(V,P) :- Have(P), _Known(V).\n_Known(W) :- _List(W), Peer(W).\n"
            "_List('bob') :- true",
            "'bob'",
        ),
    ],
)
def test_viewers_that_nobody_can_be(rules: str, marked: str) -> None:
    ((_, found),) = places(f"{rules}.", "G05", "exposure")
    assert found == marked


@pytest.mark.parametrize(
    "rules",
    [
        f"AllowQueryRecord('{ALICE}',P) :- Have(P)",
        "AllowQueryRecord('Opq_a',P) :- Have(P)",
        "AllowQueryRecord(V,P) :- _Friend(V,G), Field(P,'Group',_,G).\n"
        f"_Friend('{ALICE}','X') :- true",
        f"AllowQueryRecord('{ALICE}','P.x') :- true",
        "AllowQueryRecord(V,P) :- Peer(V), _Open(G), Field(P,'Group',_,G).\n_Open('X') :- true",
    ],
)
def test_viewers_that_someone_can_be(rules: str) -> None:
    assert places(f"{rules}.", "G05", "exposure") == []


# Selecting without records


@pytest.mark.parametrize(
    "rules",
    [
        "SelectHave(P) :- Advertised(P,_)",
        "SelectHave(P) :- AdvertisedField(P,_,'App',_,'ding'), TransportEncrypted()",
        "SelectHave('P.x') :- true",
        "SelectHave(P) :- Peer(P)",
        "SelectHave(P) :- Wanted(P).\nWanted(P) :- Advertised(P,S), Peer(S)",
        "SelectHave(P) :- Wanted(P).\nWanted('P.x') :- true",
    ],
)
def test_selecting_by_the_word_of_a_peer(rules: str) -> None:
    ((line, marked),) = places(f"{rules}.\n{OFFER}{ASK}", "040-12", "selector")
    assert line == 1
    assert marked.startswith("SelectHave(")
    assert places(f"{rules}.", "040-12", "query") == []


@pytest.mark.parametrize(
    "rules",
    [
        "SelectHave(P) :- Have(P)",
        "SelectHave(P) :- Field(P,'Group',_,'X')",
        "SelectHave(T) :- RecordLink(_,_,_,_,T)",
        "SelectHave(H) :- BlobHash(_,H)",
        "SelectHave(H) :- PlexHash(_,H)",
        "SelectHave('P.x') :- Have('P.x')",
        "SelectHave(P) :- Have(P), Advertised(Q,_), RecordLink(P,_,_,_,Q)",
        "SelectHave(P) :- Wanted(P).\nWanted(P) :- Kept(P).\nKept(P) :- Have(P)",
        "SelectHave(P) :- Advertised(P,_), not Spam(P).\nSpam(P) :- Field(P,'App',_,'spam')",
        "SelectHave(P) :- Undefined(P)",
    ],
)
def test_selecting_by_records(rules: str) -> None:
    assert places(f"{rules}.\n{ASK}", "040-12", "selector") == []


def test_selecting_by_facts_of_the_caller() -> None:
    profile = SELECTOR.with_base([("Chosen", 1)])
    assert places(f"SelectHave(P) :- Chosen(P).\n{ASK}", "040-12", profile) == []


# Sources with errors


@pytest.mark.parametrize("profile", PROFILES)
def test_a_missing_line_may_hold_what_is_missing(profile: str) -> None:
    text = (
        "SelectHave(P) :- Wanted(P).\nWanted(P) :- Advertised(P,_).\nWanted(P) :- Have(P)\n"
        "AllowQueryRecord(V,P) :- _Viewer(V), Have(P).\n"
    )
    found = {finding.rule for finding in find_all(text, profile=PROFILES[profile])}
    assert not found & {"040-12", "040-14", "020-52", "G05"}


# Only what is here


@pytest.mark.requirement("040-14")
@pytest.mark.parametrize(
    ("rules", "at"),
    [
        ("SelectAdvertised(P,S) :- Advertised(P,S), Have(P).", [(1, "Have(P)")]),
        (
            "SelectAdvertised(P,S) :- Advertised(P,S), Field(P,'Group',_,'x').",
            [(1, "Field(P,'Group',_,'x')")],
        ),
        ("SelectAdvertised(P,S) :- Advertised(P,S), PlexHash(P,_).", [(1, "PlexHash(P,_)")]),
        (
            "SelectAdvertised(P,S) :- Advertised(P,S), Mine(P).\nMine(P) :- Have(P).",
            [(1, "Mine(P)")],
        ),
        (
            "SelectAdvertised(P,S) :- Advertised(P,S), SelectHave(P).",
            [(1, "SelectHave(P)")],
        ),
        (
            "SelectAdvertised(P,S) :- Advertised(P,S), A(S,P).\nA(S,P) :- B(P), Advertised(_,S).\n"
            "B(P) :- Field(P,'App',_,'a').\nB(P) :- B(P), RecordLink(P,_,_,_,Q), B(Q).",
            [(1, "A(S,P)")],
        ),
        (
            "SelectAdvertised(P,S) :- Advertised(P,S), Have(P).\n"
            "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'App',_,'a').",
            [(1, "Have(P)")],
        ),
    ],
)
def test_selecting_only_what_is_here(rules: str, at: list[tuple[int, str]]) -> None:
    assert places(f"{rules}\n{OFFER}", "040-14", "selector") == at


@pytest.mark.parametrize(
    "rules",
    [
        "SelectAdvertised(P,S) :- Advertised(P,S).",
        "SelectAdvertised(P,S) :- Advertised(P,S), not Have(P).",
        "SelectAdvertised(P,S) :- Advertised(P,S), Field(Q,'Wants',_,P), Have(Q).",
        "SelectAdvertised(P,S) :- Advertised(P,S), RecordLink(_,_,_,_,P).",
        "SelectAdvertised(P,S) :- Advertised(P,S), A(P).\nA(P) :- Have(P).\nA('x') :- true.",
        "SelectAdvertised(P,S) :- Advertised(P,S), A(P).\nA(P) :- Have(P).\n"
        "A(P) :- Advertised(P,_).",
        "SelectAdvertised(P,S) :- Advertised(P,S), A(P).\n"
        "A(P) :- Have(P).\nA(P) :- B(P).\nB(P) :- Advertised(P,_), C(P).\nC(P) :- A(P).\n"
        "C(P) :- Advertised(P,_).",
        "SelectAdvertised(P,S) :- Advertised(P,S), Cardinality(Field(P,'A',_,_),'<','1').",
    ],
)
def test_selecting_what_is_elsewhere(rules: str) -> None:
    assert places(f"{rules}\n{OFFER}", "040-14", "selector") == []


def test_a_long_chain_of_helpers_about_what_is_here() -> None:
    rules = [f"H{n}(P) :- H{n + 1}(P)." for n in range(3_000)]
    head = "SelectAdvertised(P,S) :- Advertised(P,S), H0(P)."
    chain = "\n".join([head, *rules])
    assert places(f"{chain}\nH3000(P) :- Have(P).\n{OFFER}", "040-14", "selector")
    assert not places(f"{chain}\nH3000(P) :- Advertised(P,_).\n{OFFER}", "040-14", "selector")


# Verifiers that records name


@pytest.mark.requirement("020-24")
@pytest.mark.parametrize("identity", ["Peer", "Here", "_Viewer"])
def test_who_may_query_is_not_taken_from_a_record_that_anyone_can_write(identity: str) -> None:
    rule = f"AllowQueryRecord(V,P) :- {identity}(V), _Known(V), Have(P).\n"
    known = "_Known(V) :- Have(Q), Field(Q,'Name',_,V)"
    assert places(f"{rule}{known}.", "020-24", "exposure") == [(2, "Field(Q,'Name',_,V)")]
    signed = f"{known}, Field(Q,'Signed-By',_,'{ALICE}')."
    assert places(f"{rule}{signed}", "020-24", "exposure") == []
