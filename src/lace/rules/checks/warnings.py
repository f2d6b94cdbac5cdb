"""Warnings: legal rules that hardly mean what they say (030).

A product of unrelated atoms, a variable used once, a field name close to a known one, a
rule that stands twice, a helper that nothing uses. Predicates that nobody defines are in
`undefined`, rules that can never fire in `emptiness`, authority without a signature is in
`authority`, what else a policy should not rest on in `policy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.rules.findings import FIELD_NAMES, closest, show
from lace.rules.syntax import (
    Atom,
    Cardinality,
    Constant,
    NegatedAtom,
    PredicateKey,
    Rule,
    TrueAtom,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.rules.dependencies import Dependencies
    from lace.rules.findings import Reporter
    from lace.rules.profiles import Profile
    from lace.rules.syntax import BodyAtom


FIELD_POSITIONS: Final = {
    PredicateKey("Field", 4): 1,
    PredicateKey("AdvertisedField", 5): 2,
}
"""Where the predicates that carry fields have the field's name."""


def check_products(rules: Sequence[Rule], profile: Profile, reporter: Reporter) -> None:
    """Warn of bodies whose atoms fall into groups that share no variable.

    Tests join groups, for they compare their variables. Atoms without variables, those of
    predicates with at most a few facts, and those with only variables that these bind,
    multiply nothing.
    """
    for rule in rules:
        groups = _groups(rule, profile)
        if len(groups) > 1:
            first, second = groups[0], groups[1]
            reporter.warn(
                "030-34",
                second.span,
                f"{show(str(first))} and {show(str(second))} share no variable:"
                " every fact of one is combined with every fact of the other",
                "add an atom or a test that relates them",
            )


def _groups(rule: Rule, profile: Profile) -> list[Atom]:
    """Return the first atom of each group of atoms that variables connect."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    few = {
        name
        for atom in rule.positive_atoms()
        if atom.key in profile.single
        for name in _variables(atom)
    }
    atoms = []
    for item in rule.body:
        names = _variables(item)
        for name in names[1:]:
            parent[root(name)] = root(names[0])
        if isinstance(item, Atom) and not few.issuperset(names):
            atoms.append((item, names[0]))
    found: dict[str, Atom] = {}
    for atom, name in atoms:
        found.setdefault(root(name), atom)
    return list(found.values())


def _variables(item: BodyAtom) -> list[str]:
    """Return the names of the variables of an atom that binds or tests; counting does neither."""
    match item:
        case TrueAtom() | Cardinality():
            return []
        case NegatedAtom(atom):
            terms = atom.terms
        case _:
            terms = item.terms
    return [term.name for term in terms if isinstance(term, Variable)]


def check_once(rules: Sequence[Rule], reporter: Reporter) -> None:
    """Warn of variables that occur once in a rule, in a positive atom: `_` says the same."""
    for rule in rules:
        count: dict[str, int] = {}
        for name in _occurrences(rule):
            count[name] = count.get(name, 0) + 1
        for atom in rule.positive_atoms():
            for term in atom.terms:
                if isinstance(term, Variable) and count[term.name] == 1:
                    reporter.warn(
                        "030-21",
                        term.span,
                        f"variable {term.name} occurs only once",
                        "write _ if any value will do",
                    )


def _occurrences(rule: Rule) -> Iterator[str]:
    terms = list(rule.head.terms)
    for item in rule.body:
        if isinstance(item, Cardinality):
            terms += item.atom.terms
        else:
            yield from _variables(item)
    yield from (term.name for term in terms if isinstance(term, Variable))


def check_field_names(rules: Sequence[Rule], reporter: Reporter) -> None:
    """Warn of field names that look like a known one mistyped."""
    seen: set[str] = set()
    for rule in rules:
        for _, atom in rule.uses():
            position = FIELD_POSITIONS.get(atom.key)
            term = atom.terms[position] if position is not None else None
            if not isinstance(term, Constant) or term.value in FIELD_NAMES or term.value in seen:
                continue
            seen.add(term.value)
            near = closest(term.value, FIELD_NAMES)
            if near:
                reporter.warn(
                    "020-08",
                    term.span,
                    f"{show(str(term))} is not a field that records have by themselves",
                    f"did you mean '{near}'?",
                )


def check_duplicates(rules: Sequence[Rule], reporter: Reporter) -> None:
    """Warn of rules that stand more than once."""
    seen: dict[Rule, int] = {}
    for rule in rules:
        first = seen.setdefault(rule, rule.span.line)
        if first != rule.span.line:
            reporter.warn("G11", rule.span, f"this rule repeats line {first}")


def check_unused(
    rules: Sequence[Rule], graph: Dependencies, profile: Profile, reporter: Reporter
) -> None:
    """Warn of predicates that a module's results do not depend on, where a profile names those."""
    if not profile.required or not all(map(graph.is_derived, profile.required)):
        return
    used = {*profile.required, *graph.reach(*profile.required)}
    results = ", ".join(map(str, profile.required))
    for predicate in graph.derived:
        if predicate not in used and not profile.is_reserved(predicate):
            head = rules[graph.rules_for(predicate)[0]].head
            reporter.warn(
                profile.decision,
                head.name_span,
                f"{predicate} is defined, and no result depends on it",
                f"the results of {profile.name} modules are {results}",
            )
