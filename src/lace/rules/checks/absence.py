"""Policies that rest on what a peer does not claim (warnings; 040).

A rule that gives more when a peer leaves out a claim: one with `not` or a
"fewer than" over `Advertised`, `AdvertisedField`, or a predicate that is made from them
(one that negates them is reported itself). It is reported once, unless

1. what its head gives only ever takes away from the results. Where a profile names no
   results, they are the predicates that are nowhere negated or counted as "fewer than";
2. the predicate's rules read only claims that the rule asks for as well, so that it gives
   nothing without them: the same atom, or `Advertised` about a record and a source that
   it has from claims;
3. they rank such claims: LexCompare or IntCompare compares them with the same claims about
   another record, as "the newest hundred" does. A record is its atoms' first term. Who
   leaves out a claim has another record ranked higher, and no more of them selected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.rules.checks.places import named
from lace.rules.checks.reach import closure, steps_of
from lace.rules.findings import show
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
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.rules.dependencies import Dependencies
    from lace.rules.findings import Reporter
    from lace.rules.profiles import Profile

__all__ = ["check_absence"]

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
