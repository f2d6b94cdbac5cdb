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
from lace.rules.checks.warnings import closure, dependents, steps_of
from lace.rules.findings import show
from lace.rules.profiles import ALLOW_QUERY_RECORD, SELECT_ADVERTISED, SELECT_HAVE, VIEWER
from lace.rules.syntax import (
    Anonymous,
    Atom,
    BodyAtom,
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
    Use,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lace.rules.dependencies import Dependencies
    from lace.rules.findings import Reporter
    from lace.rules.profiles import Profile


# -- Places: the positions of predicates, and how a property of them spreads over rules.

Place = tuple[PredicateKey, int]
"""A predicate and one of its positions, from 0."""


def named(atom: Atom) -> Iterator[tuple[int, str]]:
    """Yield the variables of an atom, each with its position."""
    for at, term in enumerate(atom.terms):
        if isinstance(term, Variable):
            yield at, term.name


def spread(rules: Sequence[Rule], places: Callable[[Rule, set[Place]], set[Place]]) -> set[Place]:
    """Return all places that rules give, each rule looked at again when a place of it is new."""
    users: dict[PredicateKey, list[int]] = {}
    for position, rule in enumerate(rules):
        for key in {rule.head.key, *(atom.key for _, atom in rule.uses())}:
            users.setdefault(key, []).append(position)
    found: set[Place] = set()
    waiting = dict.fromkeys(range(len(rules)))
    while waiting:
        position = next(iter(waiting))
        del waiting[position]
        new = places(rules[position], found) - found
        found |= new
        for key, _ in new:
            waiting.update(dict.fromkeys(users.get(key, ())))
    return found


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


# -- Authority taken from records that nobody vouches for (a warning).
#
# Anyone can write a record that says "V is a member". Rules that decide by verifiers
# should take them from records whose signer they look at. The check is simple on
# purpose, and it is this:
#
# 1. A variable is a *verifier* when it is the value of `Field(_,'Signed-By',_,V)` or the
#    argument of `Peer`, `Here` or `_Viewer`. A place of a derived predicate holds
#    verifiers when a verifier stands there in any rule, in the head, in a positive or in
#    a negated atom; and a variable that stands in such a place is a verifier as well.
# 2. A rule whose head gives out a verifier that it takes from a field or link of a
#    record `P`, other than `Signed-By`, is reported, unless its body also has
#    `Field(P,'Signed-By',_,…)`, or gives `P` to a derived predicate that has it.

_FIELD: Final = PredicateKey("Field", 4)
_VALUES: Final = {_FIELD: 3, PredicateKey("RecordLink", 5): 4}
_IDENTITIES: Final = frozenset(
    {PredicateKey("Peer", 1), PredicateKey("Here", 1), PredicateKey("_Viewer", 1)}
)
_SIGNED_BY: Final = Constant("Signed-By")


def check_authority(rules: Sequence[Rule], reporter: Reporter) -> None:
    """Warn of rules that take verifiers from records without looking at the signer."""
    suspects = [(rule, *found) for rule in rules for found in _taken(rule)]
    if not suspects or not any(True for rule in rules for _ in _verifiers(rule)):
        return
    verifiers = spread(rules, _verifier_places)
    signed = spread(rules, _signed_places)
    for rule, atom, name, record in suspects:
        places = {(rule.head.key, at) for at, each in named(rule.head) if each == name}
        if places & verifiers and record not in _signed_records(rule, signed):
            reporter.warn(
                "020-24",
                atom.span,
                f"{rule.head.key} decides about verifiers, and takes {name} from record {record},"
                " which anyone can write",
                f"look at who signed it: Field({record},'Signed-By',_,…)",
            )


def _taken(rule: Rule) -> Iterator[tuple[Atom, str, str]]:
    """Yield atom, value and record where a head variable comes from a field or link."""
    given = {name for _, name in named(rule.head)}
    for atom in rule.positive_atoms():
        value = _VALUES.get(atom.key)
        if value is None or _is_signer(atom):
            continue
        taken, record = atom.terms[value], atom.terms[0]
        if isinstance(taken, Variable) and isinstance(record, Variable) and taken.name in given:
            yield atom, taken.name, record.name


def _verifier_places(rule: Rule, known: set[Place]) -> set[Place]:
    atoms = [rule.head, *(atom for use, atom in rule.uses() if use is not Use.CARDINALITY)]
    verifiers = set(_verifiers(rule))
    verifiers.update(name for atom in atoms for at, name in named(atom) if (atom.key, at) in known)
    return {
        (atom.key, at)
        for atom in atoms
        if atom.key not in _VALUES
        for at, name in named(atom)
        if name in verifiers
    }


def _verifiers(rule: Rule) -> Iterator[str]:
    """Yield the variables of a rule that are verifiers by where they stand."""
    for atom in rule.positive_atoms():
        if _is_signer(atom) or atom.key in _IDENTITIES:
            term = atom.terms[-1]
            if isinstance(term, Variable):
                yield term.name


def _signed_places(rule: Rule, known: set[Place]) -> set[Place]:
    """Return the places of the head whose records the body looks at the signer of."""
    records = _signed_records(rule, known)
    return {(rule.head.key, at) for at, name in named(rule.head) if name in records}


def _signed_records(rule: Rule, signed: set[Place]) -> set[str]:
    return {
        name
        for atom in rule.positive_atoms()
        for at, name in named(atom)
        if (at == 0 and _is_signer(atom)) or (atom.key, at) in signed
    }


def _is_signer(atom: Atom) -> bool:
    return atom.key == _FIELD and atom.terms[1] == _SIGNED_BY


# -- Policies that rest on what a peer does not claim (warnings; 040).
#
# A rule that gives more when a peer leaves out a claim: one with `not` or a
# "fewer than" over `Advertised`, `AdvertisedField`, or a predicate that is made from them
# (one that negates them is reported itself). It is reported once, unless
#
# 1. what its head gives only ever takes away from the results. Where a profile names no
#    results, they are the predicates that are nowhere negated or counted as "fewer than";
# 2. the predicate's rules read only claims that the rule asks for as well, so that it gives
#    nothing without them: the same atom, or `Advertised` about a record and a source that
#    it has from claims;
# 3. they rank such claims: LexCompare or IntCompare compares them with the same claims about
#    another record, as "the newest hundred" does. A record is its atoms' first term. Who
#    leaves out a claim has another record ranked higher, and no more of them selected.

_ADVERTISED: Final = PredicateKey("Advertised", 2)
_CLAIMS: Final = frozenset({_ADVERTISED, PredicateKey("AdvertisedField", 5)})
_FEWER_THAN: Final = frozenset({"<", "<="})
_MAX_WORK: Final = 200_000
"""About how many comparisons of atoms one lacegram may take."""

_Edge = tuple[PredicateKey, PredicateKey, bool]


def check_absence(
    rules: Sequence[Rule], graph: Dependencies, profile: Profile, reporter: Reporter
) -> None:
    """Warn of rules that take it for a fact that a peer did not claim something."""
    edges = [
        (rule.head.key, atom.key, absent) for rule in rules for _, atom, absent in _readings(rule)
    ]
    denied = {target for _, target, absent in edges if absent}
    if not denied or not _CLAIMS & profile.base & {target for _, target, _ in edges}:
        return
    claims = _Claims(rules, graph, edges)
    growing = _growing(edges, profile.required or set(graph.derived) - denied)
    for rule in rules:
        if rule.head.key not in growing:
            continue
        item = claims.missing(rule)
        if item is not None:
            reporter.warn(
                "040-14",
                item.span,
                f"{show(str(item))} holds when claims are missing,"
                " and a peer can leave out any claim",
                "ask for a claim and test its value, or negate what records say",
            )


def _readings(rule: Rule) -> Iterator[tuple[BodyAtom, Atom, bool]]:
    """Yield each item that reads facts, its atom, and whether fewer facts make it hold."""
    for item in rule.body:
        match item:
            case Atom():
                yield item, item, False
            case NegatedAtom(atom):
                yield item, atom, True
            case Cardinality(atom, operator):
                yield item, atom, operator in _FEWER_THAN
            case _:
                pass


def _growing(edges: Sequence[_Edge], results: Iterable[PredicateKey]) -> set[PredicateKey]:
    """Return the predicates that add to the results when they have more."""
    steps = steps_of(
        ((head, more), (target, more != absent))
        for head, target, absent in edges
        for more in (True, False)
    )
    return {key for key, more in closure(((key, True) for key in results), steps) if more}


class _Claims:
    """What is made from claims: the predicates that may have less when claims are left out.

    `edges` are a head, a predicate of its rules, and whether the head has more when that
    predicate has less.
    """

    def __init__(self, rules: Sequence[Rule], graph: Dependencies, edges: Iterable[_Edge]) -> None:
        self._rules = rules
        self._graph = graph
        self._left = _MAX_WORK
        steps = steps_of((target, head) for head, target, absent in edges if not absent)
        self._made = closure(_CLAIMS, steps)

    def missing(self, rule: Rule) -> BodyAtom | None:
        """Return the first item of a rule that leaving claims out can make hold, or None."""
        asked = [atom for atom in rule.positive_atoms() if atom.key in self._made]
        for item, atom, absent in _readings(rule):
            if absent and atom.key in self._made and not self._is_harmless(asked, atom):
                return item
        return None

    def _is_harmless(self, asked: Sequence[Atom], denied: Atom) -> bool:
        """Tell whether the rules for a denied atom need only claims that are asked for."""
        if denied.key in _CLAIMS:
            return False
        for position in self._graph.rules_for(denied.key):
            helper = self._rules[position]
            self._left -= len(helper.body) * (len(helper.body) ** 2 + len(asked))
            if self._left < 0:
                return True  # the budget is spent, and no more is found
            needed: list[Atom] = []
            for item, atom, absent in _readings(helper):
                if absent or atom.key not in self._made:
                    continue
                if not isinstance(item, Atom):
                    return False
                needed.append(atom)
            given = {name: denied.terms[at] for at, name in named(helper.head)}
            if not _are_asked(helper, needed, _Asked(asked, given)):
                return False
        return True


class _Asked:
    """The claims that a rule asks for; `given` are its terms for the variables of a helper."""

    def __init__(self, atoms: Sequence[Atom], given: Mapping[str, Term]) -> None:
        self._atoms = atoms
        self._given = {
            name: term for name, term in given.items() if not isinstance(term, Anonymous)
        }

    def holds(self, needed: Atom, *, loosely: bool = False) -> bool:
        """Tell whether a needed atom is asked for; loosely, with any values for local variables."""
        unknown = Anonymous() if loosely else None
        wanted = [
            self._given.get(term.name, unknown) if isinstance(term, Variable) else term
            for term in needed.terms
        ]
        return any(_fits(atom, needed.key, wanted) for atom in self._atoms)


def _fits(atom: Atom, key: PredicateKey, wanted: Sequence[Term | None]) -> bool:
    if key == _ADVERTISED:  # every claim about a record comes with this one
        return all(isinstance(term, Anonymous) or term in atom.terms for term in wanted)
    return atom.key == key and all(
        isinstance(term, Anonymous) or term == other
        for term, other in zip(wanted, atom.terms, strict=True)
    )


def _are_asked(helper: Rule, needed: Sequence[Atom], asked: _Asked) -> bool:
    """Tell whether the claims that a helper needs are asked for, or ranked with such claims."""
    rest = [atom for atom in needed if not asked.holds(atom)]
    if not rest:
        return True
    base = [atom for atom in needed if atom.terms and asked.holds(atom, loosely=True)]
    return any(
        all(
            any(atom is one or (atom.terms[:1] == (other,) and _twins(one, atom)) for one in mine)
            for atom in rest
        )
        for record, other in set(_ranked(helper, needed))
        for mine in [[atom for atom in base if atom.terms[0] == record]]
    )


def _ranked(helper: Rule, needed: Sequence[Atom]) -> Iterator[tuple[Term, Term]]:
    """Yield the pairs of records that a rule ranks: it compares the same claims about both."""
    for test in helper.body:
        if not isinstance(test, IntCompare | LexCompare):
            continue
        if any(isinstance(term, Constant) for term in test.terms):
            continue
        for one in needed:
            for other in needed:
                if test.left in one.terms and test.right in other.terms and _twins(one, other):
                    yield one.terms[0], other.terms[0]
                    yield other.terms[0], one.terms[0]


def _twins(one: Atom, other: Atom) -> bool:
    """Tell whether two atoms ask for the same claim about two records."""
    return (
        one is not other
        and one.key == other.key
        and (one.terms[0] != other.terms[0] or isinstance(one.terms[0], Anonymous))
        and all(
            first == second
            for first, second in zip(one.terms[1:], other.terms[1:], strict=True)
            if isinstance(first, Constant) or isinstance(second, Constant)
        )
    )
