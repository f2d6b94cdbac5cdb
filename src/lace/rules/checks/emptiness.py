"""Rules that can never fire: an empty predicate or a test that cannot hold (030).

A predicate is certainly empty when no rule for it can fire, whatever the base facts
are. What is found is certain; many rules that never fire are not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.rules.builtins import cardinality_holds, int_compare, lex_compare, text_shape, unequal
from lace.rules.findings import show
from lace.rules.syntax import (
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
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.rules.dependencies import Dependencies
    from lace.rules.findings import Reporter
    from lace.rules.profiles import Profile

__all__ = ["certainly_empty", "check_never_fires", "contradiction"]


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
