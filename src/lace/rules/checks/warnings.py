"""Warnings: legal rules that hardly mean what they say (030).

A product of unrelated atoms, a variable used once, a field name close to a known one, a
rule that is there twice, a helper that nothing uses, a predicate that nobody defines, a rule
that can never fire. What a policy should not rest on is in `policy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from lace.base.arguments import check_argument, check_many
from lace.facts.catalogue import BASE_PREDICATES
from lace.rules.builtins import cardinality_holds, int_compare, lex_compare, text_shape, unequal
from lace.rules.checks.legality import REMOVED
from lace.rules.findings import FIELD_NAMES, closest, show
from lace.rules.profiles import LOCAL_TAI, VIEWER
from lace.rules.syntax import (
    Atom,
    BodyAtom,
    Cardinality,
    Constant,
    Inequality,
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
    parse_predicate,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lace.rules.dependencies import Dependencies, Edge
    from lace.rules.findings import Reporter, Suggester
    from lace.rules.profiles import Profile


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


def check_never_fires(
    rules: Sequence[Rule], graph: Dependencies, profile: Profile, reporter: Reporter
) -> None:
    """Warn of rules that no facts can make fire.

    A predicate that nobody defines has its own warning, which says the same.
    """
    empty = certainly_empty(rules, graph, profile)
    for rule in rules:
        never = contradiction(rule)
        if never is not None:
            reporter.warn(
                "030-34",
                never.span,
                f"{show(str(never))} never holds here, so this rule never fires",
            )
            continue
        atom = next((atom for atom in rule.positive_atoms() if atom.key in empty), None)
        if atom is not None:
            reporter.warn(
                "030-36",
                atom.name_span,
                f"no rule for {atom.key} can ever fire, so this rule never fires",
                "give it a rule that begins with base facts",
            )


def certainly_empty(
    rules: Sequence[Rule], graph: Dependencies, profile: Profile
) -> frozenset[PredicateKey]:
    """Return the derived predicates that hold nothing, whatever the base facts are.

    Predicates that nobody defines count as holding something: they are reported apart.
    """
    users: dict[PredicateKey, list[int]] = {}
    missing: list[int] = []
    full: set[PredicateKey] = set()
    ready: list[int] = []
    for position, rule in enumerate(rules):
        needs = {atom.key for atom in rule.positive_atoms() if graph.is_derived(atom.key)}
        needs -= profile.base
        missing.append(len(needs))
        for key in needs:
            users.setdefault(key, []).append(position)
        if not needs:
            ready.append(position)
    while ready:
        rule = rules[ready.pop()]
        if rule.head.key in full or contradiction(rule) is not None:
            continue
        full.add(rule.head.key)
        for position in users.get(rule.head.key, ()):
            missing[position] -= 1
            if not missing[position]:
                ready.append(position)
    return frozenset(graph.derived) - full


def contradiction(rule: Rule) -> BodyAtom | None:
    """Return the first body atom that cannot hold in its rule, or None."""
    positive = set(rule.positive_atoms())
    for item in rule.body:
        match item:
            case NegatedAtom(atom) if atom in positive:
                return item
            case Inequality() | IntCompare() | LexCompare() | TextShape() | Cardinality():
                if not _may_hold(item):
                    return item
            case _:
                pass
    return None


def _may_hold(
    test: Inequality | IntCompare | LexCompare | TextShape | Cardinality,
) -> bool:
    match test:
        case Inequality(left, right):
            known = _same(left, right) or _texts(left, right)
            return known is None or unequal(*known)
        case IntCompare(left, operator, right):
            known = _same(left, right) or _texts(left, right)
            return known is None or int_compare(known[0], operator, known[1])
        case LexCompare(left, operator, right):
            known = _same(left, right) or _texts(left, right)
            return known is None or lex_compare(known[0], operator, known[1])
        case TextShape(Constant(text), Constant(start), Constant(delimiters), Constant(end)):
            return text_shape(text, start, delimiters, end)
        case Cardinality(_, ("<" | "<=") as operator, bound):
            return cardinality_holds(0, operator, bound)
        case _:
            return True


def _same(left: Term, right: Term) -> tuple[str, str] | None:
    """Stand in for any value of one variable on both sides; `0` is an integer too."""
    same = isinstance(left, Variable) and left == right
    return ("0", "0") if same else None


def _texts(left: Term, right: Term) -> tuple[str, str] | None:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return left.value, right.value
    return None


# -- Predicates that nobody defines (030): a warning, or in one's own modules a refusal.
#
# A predicate that is neither a base predicate nor defined by a rule is empty. Where only
# positive atoms lead to it, a mistyped name gives too little, and a warning says so. Where an
# atom that is negated or counted depends on it, itself or through helpers, it may give too much:
# `not Blokced(P)` holds for every record. In modules that act for their owner such a name is
# refused, unless it is named as empty on purpose; in the rules of a peer and in plain questions
# it stays a warning.


def parse_allowed(texts: Iterable[str]) -> frozenset[PredicateKey]:
    """Return the predicates that are empty on purpose, by their names with arity."""
    said = "allow_undefined has predicates by name and arity"
    check_many(texts, said, "as in ['Blocked/1']")
    found = set()
    for text in texts:
        check_argument(text, str, said, "as in ['Blocked/1']")
        found.add(parse_predicate(text))
    return frozenset(found)


def check_undefined(
    rules: Sequence[Rule],
    graph: Dependencies,
    profile: Profile,
    reporter: Reporter,
    suggester: Suggester,
    allowed: Collection[PredicateKey] | None = None,
) -> None:
    """Report predicates that are neither base predicates nor defined, once for each."""
    known = {*graph.derived, *profile.base}
    arities: dict[str, list[PredicateKey]] = {}
    for key in sorted(known):
        arities.setdefault(key.name, []).append(key)
    denied = {} if allowed is None else _denied(graph)
    seen = set[PredicateKey](allowed or ())
    for rule in rules:
        for use, atom in rule.uses():
            key = atom.key
            if key in known or key in seen or not _is_open(key, profile):
                continue
            seen.add(key)
            hint = _hint(key, arities, suggester)
            if key in denied:
                edge, absent = denied[key]
                reporter.error(
                    "030-36",
                    edge.atom.name_span,
                    f"nobody defines {key}, so it is empty, and {_why(rules, edge, absent)}",
                    _remedy(hint, key),
                )
                continue
            never = ", so this rule never fires" if use is Use.POSITIVE else ""
            reporter.warn(
                "030-36", atom.name_span, f"nobody defines {key}: it is empty{never}", hint
            )


def _remedy(hint: str | None, key: PredicateKey) -> str:
    otherwise = f"f it is empty on purpose, allow {key} with --allow-undefined (allow_undefined)"
    if hint is None:
        return f"i{otherwise}"
    return f"{hint} I{otherwise}" if hint.endswith("?") else f"{hint}; i{otherwise}"


def _is_open(key: PredicateKey, profile: Profile) -> bool:
    """Tell whether a predicate is one that a module could define, and no other finding has."""
    if key in profile.unreadable or key == REMOVED:
        return False
    return not (profile.closed and profile.is_reserved(key))


def _denied(graph: Dependencies) -> dict[PredicateKey, tuple[Edge, Edge]]:
    """Return what negated and counted atoms depend on, through helpers too.

    Each predicate comes with the first use of it that was met, and the use as a negated or
    counted atom that leads there.
    """
    found: dict[PredicateKey, tuple[Edge, Edge]] = {}
    absent = [edge for edge in graph.edges() if edge.use is not Use.POSITIVE]
    waiting = [(edge, edge) for edge in reversed(absent)]
    while waiting:
        edge, origin = waiting.pop()
        if edge.target not in found:
            found[edge.target] = edge, origin
            waiting += [(each, origin) for each in graph.edges_from(edge.target)]
    return found


def _why(rules: Sequence[Rule], edge: Edge, absent: Edge) -> str:
    item = show(str(_item(rules[absent.rule], absent)))
    if edge is absent:
        return f"{item} always holds" if absent.use is Use.NEGATIVE else f"{item} counts nothing"
    line = rules[absent.rule].span.line
    where = f" in line {line}" if line and line != rules[edge.rule].span.line else ""
    return f"{item}{where} depends on it"


def _item(rule: Rule, edge: Edge) -> BodyAtom:
    """Return the negated or counted atom of an edge as it is written."""
    for item in rule.body:
        if isinstance(item, (NegatedAtom, Cardinality)) and item.atom is edge.atom:
            return item
    raise AssertionError("an edge is made of an atom of its rule")


def _hint(
    key: PredicateKey, arities: Mapping[str, list[PredicateKey]], near: Suggester
) -> str | None:
    others = arities.get(key.name)
    if others and key.name in BASE_PREDICATES:
        return f"its form is {key.name}({','.join(BASE_PREDICATES[key.name].arguments)})"
    if others:
        return f"there is {', '.join(map(str, others))}"
    if key in (VIEWER, LOCAL_TAI):
        return "an exposure has it: check this as one with --profile exposure"
    name = near.closest(key.name, arities)
    return f"did you mean {name}?" if name else None


# -- Where steps lead to: from predicate to predicate, or from place to place.

_Node = TypeVar("_Node")


def dependents(graph: Dependencies, targets: Iterable[PredicateKey]) -> set[PredicateKey]:
    """Return the derived predicates that depend on any of the targets."""
    users = steps_of((edge.target, edge.head) for edge in graph.edges())
    return {key for key in closure(targets, users) if graph.is_derived(key)}


def steps_of(pairs: Iterable[tuple[_Node, _Node]]) -> dict[_Node, set[_Node]]:
    """Return where one step leads to, from each place."""
    steps: dict[_Node, set[_Node]] = {}
    for source, target in pairs:
        steps.setdefault(source, set()).add(target)
    return steps


def closure(start: Iterable[_Node], steps: Mapping[_Node, Iterable[_Node]]) -> set[_Node]:
    """Return where steps lead to, the start with it."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = set(steps.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found
