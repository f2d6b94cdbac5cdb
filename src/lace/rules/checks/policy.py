"""Policies that rest on what any peer can choose (warnings; 020, 040).

Each check is simple on purpose, and says here what it takes for a fault.

*Labels.* A constant that begins with `Opq_`, wherever it stands. Only asking for the
shape of any label, `TextShape(S,'Opq_','','')`, is not reported.

*Anyone.* A rule for `AllowQueryRecord(V,P)` whose `V` only `_Viewer(V)` binds, directly
or through helpers. Atoms and tests that have `V` besides, and those that ask about the
peer in another way (through `Peer`, `Transport` or another `_Viewer`), make it a policy for
some; `V != …` and `not Blocked(V)` do not, for a peer that proves nothing passes them.

*Unknown viewers.* A constant that `AllowQueryRecord` gives as the viewer, itself or
through the head of a helper, and that is neither a verifier nor a label.

*Nothing of records.* A rule for `SelectHave` that reads, through all its helpers, only
advertisement and runtime facts, or no facts at all.

*Only what is here.* A rule for `SelectAdvertised(P,S)` that asks for record facts about `P`,
itself or through helpers all of whose rules do: a record that is still to come has none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.facts.catalogue import BASE_PREDICATES, FactClass
from lace.record.ids import VERIFIER_PATTERN
from lace.rules.builtins import cardinality_holds
from lace.rules.checks.places import Place, named, spread
from lace.rules.checks.reach import closure, dependents, steps_of
from lace.rules.findings import show
from lace.rules.profiles import ALLOW_QUERY_RECORD, SELECT_ADVERTISED, SELECT_HAVE, VIEWER
from lace.rules.syntax import (
    Anonymous,
    Atom,
    Cardinality,
    Constant,
    IntCompare,
    LexCompare,
    NegatedAtom,
    PredicateKey,
    Rule,
    Term,
    TextShape,
    TrueAtom,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.rules.dependencies import Dependencies
    from lace.rules.findings import Reporter
    from lace.rules.profiles import Profile

__all__ = [
    "check_labels",
    "check_only_here",
    "check_record_free",
    "check_unknown_viewers",
    "check_viewers",
]

_PREFIX: Final = "Opq_"
_LABEL: Final = re.compile(f"{_PREFIX}[{re.escape(b64a.ALPHABET)}]")
_VERIFIER: Final = re.compile(VERIFIER_PATTERN)
_NO_RECORDS: Final = frozenset(
    PredicateKey(found.name, found.arity)
    for found in BASE_PREDICATES.values()
    if found.fact_class is not FactClass.RECORD
)
_HERE: Final = frozenset(
    (PredicateKey(found.name, found.arity), 0)
    for found in BASE_PREDICATES.values()
    if found.fact_class is FactClass.RECORD
)
"""The places that hold records which are stored here."""
_ASKING: Final = frozenset({PredicateKey("Peer", 1), PredicateKey("Transport", 1)})


def check_labels(rules: Iterable[Rule], reporter: Reporter) -> None:
    """Warn of constants that name the origin of a peer, each once in a rule."""
    for rule in rules:
        seen: set[Constant] = set()
        for term in _constants(rule):
            if not term.value.startswith(_PREFIX) or term in seen:
                continue
            seen.add(term)
            if _LABEL.fullmatch(term.value):
                what = (
                    "is a label, not an identity: it changes with the rules of both sides,"
                    " and a peer can try until it gets it"
                )
            else:
                what = "begins like the label of a peer, and no label has this form"
            reporter.warn(
                "X6",
                term.span,
                f"{show(str(term))} {what}",
                "name a verifier: Peer(V) holds for the one that a peer has proven",
            )


def _constants(rule: Rule) -> Iterator[Constant]:
    for item in (rule.head, *rule.body):
        match item:
            case TrueAtom():
                continue
            case NegatedAtom(atom) | Cardinality(atom):
                terms: tuple[Term, ...] = atom.terms
            case TextShape(text, Constant(value), _, end) if value == _PREFIX:
                terms = text, end
            case _:
                terms = item.terms
        yield from (term for term in terms if isinstance(term, Constant))


def check_viewers(
    rules: Sequence[Rule], graph: Dependencies, profile: Profile, reporter: Reporter
) -> None:
    """Warn of exposures to anyone who asks."""
    if ALLOW_QUERY_RECORD not in profile.required:
        return
    asking = dependents(graph, _ASKING | {VIEWER}) | _ASKING

    def places(rule: Rule, known: set[Place]) -> set[Place]:
        return {
            (rule.head.key, at)
            for at, name in named(rule.head)
            if _is_anyone(rule, name, known, asking)
        }

    known = spread(rules, places)
    for rule in rules:
        viewer = rule.head.terms[0] if rule.head.key == ALLOW_QUERY_RECORD else None
        if isinstance(viewer, Variable) and _is_anyone(rule, viewer.name, known, asking):
            reporter.warn(
                "020-52",
                viewer.span,
                f"{viewer} is anyone who asks: in a module for any viewer, this exposes records"
                " to peers that prove nothing",
                f"name the verifier, or ask for Peer({viewer}), which holds for proven ones only,"
                f" or for a record signed by {viewer}",
            )


def _is_anyone(rule: Rule, name: str, known: set[Place], asking: set[PredicateKey]) -> bool:
    """Tell whether only `_Viewer` binds a variable, and nothing else asks about the peer.

    `known` are the places of helpers that hold for any viewer.
    """
    bound = False
    for item in rule.body:
        match item:
            case Atom():
                at = [position for position, other in named(item) if other == name]
                if at:
                    bound = True
                    if item.key != VIEWER and not all((item.key, each) in known for each in at):
                        return False
                elif item.key in asking or (
                    item.key == VIEWER and not isinstance(item.terms[0], Anonymous)
                ):
                    return False
            case NegatedAtom(atom):
                if atom.key in asking:
                    return False
            case Cardinality(atom, operator, number):
                if operator in (">", ">=") and cardinality_holds(0, operator, number):
                    continue  # it holds for every count
                if atom.key in asking or name in {other for _, other in named(atom)}:
                    return False
            case IntCompare() | LexCompare() | TextShape():
                if Variable(name) in item.terms:
                    return False
            case _:
                pass
    return bound


def check_unknown_viewers(rules: Sequence[Rule], profile: Profile, reporter: Reporter) -> None:
    """Warn of viewers that are named and that nobody can be."""
    if ALLOW_QUERY_RECORD not in profile.required:
        return
    steps = steps_of(
        ((rule.head.key, at), (atom.key, position))
        for rule in rules
        for at, name in named(rule.head)
        for atom in rule.positive_atoms()
        for position, other in named(atom)
        if other == name
    )
    places = closure([(ALLOW_QUERY_RECORD, 0)], steps)
    for rule in rules:
        for at, term in enumerate(rule.head.terms):
            if not isinstance(term, Constant) or (rule.head.key, at) not in places:
                continue
            if not term.value.startswith(_PREFIX) and not _VERIFIER.fullmatch(term.value):
                reporter.warn(
                    "G05",
                    term.span,
                    f"no viewer is ever called {show(str(term))}",
                    "a viewer is a verifier: V, a dot, 43 Base64-Ascend characters and .H3",
                )


def check_record_free(
    rules: Sequence[Rule], graph: Dependencies, profile: Profile, reporter: Reporter
) -> None:
    """Warn of rules that select records to offer without reading any record."""
    if SELECT_HAVE not in profile.required:
        return
    leaves = {edge.target for edge in graph.edges() if not graph.is_derived(edge.target)}
    others = leaves - _NO_RECORDS
    sound = dependents(graph, others) | others
    for rule in rules:
        if rule.head.key != SELECT_HAVE or any(atom.key in sound for _, atom in rule.uses()):
            continue
        reporter.warn(
            "040-12",
            rule.head.span,
            f"{SELECT_HAVE} is about records, and this rule reads none:"
            " it selects by claims or constants alone",
            f"add Have({show(str(rule.head.terms[0]))})",
        )


def check_only_here(rules: Sequence[Rule], profile: Profile, reporter: Reporter) -> None:
    """Warn of rules that select, of what a peer advertises, only what is stored here already."""
    if SELECT_ADVERTISED not in profile.required:
        return
    elsewhere = _elsewhere(rules)
    for rule in rules:
        if rule.head.key != SELECT_ADVERTISED or not isinstance(rule.head.terms[0], Variable):
            continue
        name = rule.head.terms[0].name
        for atom in rule.positive_atoms():
            if any(other == name and (atom.key, at) not in elsewhere for at, other in named(atom)):
                reporter.warn(
                    "040-14",
                    atom.span,
                    f"{show(str(atom))} holds only for a record that is here already, so this rule"
                    " never asks for one",
                    f"ask what the peer says of it: AdvertisedField({name},S,…)",
                )
                break


def _elsewhere(rules: Sequence[Rule]) -> _Others:
    """Return the places that can hold other records than those that are stored here.

    A place of a derived predicate holds only these if in every rule for it a variable stands
    there that some positive atom has in such a place. It is looked for from the other side:
    what is not bound so spreads from rule to rule, each place once.
    """
    found: set[Place] = set()
    defined = {rule.head.key for rule in rules}
    left: list[int] = []
    heads: list[Place] = []
    users: dict[Place, list[int]] = {}
    waiting: list[Place] = []
    for rule in rules:
        places: dict[str, set[Place]] = {}
        for atom in rule.positive_atoms():
            for at, name in named(atom):
                places.setdefault(name, set()).add((atom.key, at))
        for at, term in enumerate(rule.head.terms):
            bound = places.get(term.name, set()) if isinstance(term, Variable) else set()
            if not bound.isdisjoint(_HERE):
                continue
            helpers = [place for place in bound if place[0] in defined]
            left.append(len(helpers))
            heads.append((rule.head.key, at))
            for place in helpers:
                users.setdefault(place, []).append(len(left) - 1)
            if not helpers:
                waiting.append((rule.head.key, at))
    while waiting:
        place = waiting.pop()
        if place in found:
            continue
        found.add(place)
        for number in users.get(place, ()):
            left[number] -= 1
            if not left[number]:
                waiting.append(heads[number])
    return _Others(found, defined)


class _Others:
    """Places that can hold records which are not stored here."""

    def __init__(self, found: set[Place], defined: set[PredicateKey]) -> None:
        self._found = found
        self._defined = defined

    def __contains__(self, place: Place) -> bool:
        return place not in _HERE and (place[0] not in self._defined or place in self._found)
