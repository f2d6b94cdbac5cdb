"""Predicates that nobody defines (030): a warning, or in one's own modules a refusal.

A predicate that is neither a base predicate nor defined by a rule is empty. Where only
positive atoms lead to it, a mistyped name gives too little, and a warning says so. Where an
atom that is negated or counted depends on it, itself or through helpers, it may give too much:
`not Blokced(P)` holds for every record. In modules that act for their owner such a name is
refused, unless it is named as empty on purpose; in the rules of a peer and in plain questions
it stays a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.arguments import check_argument, check_many
from lace.facts.catalogue import BASE_PREDICATES
from lace.rules.checks.reserved import REMOVED
from lace.rules.findings import show
from lace.rules.profiles import LOCAL_TAI, VIEWER
from lace.rules.syntax import (
    Cardinality,
    NegatedAtom,
    PredicateKey,
    Rule,
    Use,
    parse_predicate,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lace.rules.dependencies import Dependencies, Edge
    from lace.rules.findings import Reporter
    from lace.rules.profiles import Profile
    from lace.rules.suggest import Suggester
    from lace.rules.syntax import BodyAtom

__all__ = ["check_undefined", "parse_allowed"]


def parse_allowed(texts: Iterable[str]) -> frozenset[PredicateKey]:
    """Return the predicates that are empty on purpose, by their names with arity.

    Raises:
        UsageError: one is no name with an arity, or it is one text instead of several.
    """
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
    """Report predicates that are neither base predicates nor defined, once for each.

    Args:
        rules: the rules.
        graph: their dependencies.
        profile: which base predicates there are.
        reporter: takes what is found.
        suggester: looks for names that may be meant.
        allowed: the predicates that may be undefined though something depends on their being
            empty; None where nothing is refused for that.
    """
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
