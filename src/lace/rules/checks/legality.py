"""What every lacegram must satisfy: safety, strata, reserved names and limits (030).

The order of atoms does not matter. `true`, tests and Cardinality bind nothing. A rule
that does not stand as it was written is left out: its variables are not the author's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from lace.rules.findings import show
from lace.rules.syntax import (
    BUILTINS,
    Anonymous,
    Atom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    PredicateKey,
    Rule,
    Span,
    Term,
    TextShape,
    TrueAtom,
    Use,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lace.rules.dependencies import Dependencies, Edge
    from lace.rules.findings import Reporter, Suggester
    from lace.rules.limits import RuleLimits
    from lace.rules.profiles import Profile


def check_safety(rules: Iterable[Rule], reporter: Reporter, near: Suggester) -> None:
    """Report every unsafe variable, once for each way it is used, and every misplaced `_`."""
    for rule in rules:
        _RuleSafety(rule, reporter, near).check()


def bound_variables(rule: Rule) -> frozenset[str]:
    """Return the names of the variables that positive atoms bind."""
    return frozenset(
        term.name
        for atom in rule.positive_atoms()
        for term in atom.terms
        if isinstance(term, Variable)
    )


class _RuleSafety:
    """The variables of one rule."""

    def __init__(self, rule: Rule, reporter: Reporter, near: Suggester) -> None:
        self._near = near
        self._rule = rule
        self._report = reporter
        self._bound = bound_variables(rule)
        self._reported: set[tuple[str, str]] = set()
        self._counted: set[str] = set()

    def check(self) -> None:
        rule = self._rule
        self._counted = {
            term.name
            for item in rule.body
            if isinstance(item, Cardinality)
            for term in item.atom.terms
            if isinstance(term, Variable)
        }
        for term in rule.head.terms:
            if isinstance(term, Anonymous):
                self._report.error(
                    "030-39",
                    term.span,
                    "_ stands in the head of a rule",
                    "name the value that the head gives out, and bind it in the body",
                )
            self._check_bound(term, "head variable", "", "030-37")
        for item in rule.body:
            match item:
                case NegatedAtom(atom):
                    for term in atom.terms:
                        self._check_bound(term, "variable", " of a negated atom", "030-38")
                case Inequality():
                    self._check_test(item.terms, "!=")
                case IntCompare() | LexCompare() | TextShape():
                    self._check_test(item.terms, type(item).__name__)
                case _:
                    pass
        self._check_counted()

    def _check_test(self, terms: tuple[Term, ...], test: str) -> None:
        for term in terms:
            if isinstance(term, Anonymous):
                self._report.error(
                    "030-41",
                    term.span,
                    f"_ stands in {test}",
                    "name the value, and bind it with a positive atom",
                )
            self._check_bound(term, "variable", f" of {test}", "030-40")

    def _check_bound(self, term: Term, what: str, where: str, rule: str) -> None:
        if not isinstance(term, Variable) or term.name in self._bound:
            return
        if (term.name, rule) in self._reported:
            return
        self._reported.add((term.name, rule))
        self._report.error(
            rule,
            term.span,
            f"{what} {term.name}{where} is not bound by a positive atom",
            self._hint(term.name, is_negated=rule == "030-38"),
        )

    def _hint(self, name: str, *, is_negated: bool) -> str:
        near = self._near.closest(name, self._bound)
        if near:
            return f"did you mean {near}?"
        if name in self._counted:
            return f"Cardinality binds nothing; add an atom binding {name}"
        if is_negated:
            return f"add an atom binding {name}, or write _ for any value"
        return f"add an atom binding {name}"

    def _check_counted(self) -> None:
        """A variable of two counted atoms joins them, so it has to be bound outside."""
        seen: set[str] = set()
        for item in self._rule.body:
            if not isinstance(item, Cardinality):
                continue
            inside = {term.name: term for term in item.atom.terms if isinstance(term, Variable)}
            for name, term in inside.items():
                if name in seen and name not in self._bound:
                    self._report.error(
                        "030-42",
                        term.span,
                        f"variable {name} of two counted atoms is not bound by a positive atom",
                        f"add an atom binding {name}, or use two names",
                    )
            seen.update(inside)


# -- Strata: no predicate depends on itself through negation or counting (030).
#
# A lacegram that breaks this has a cycle; the finding names every step of it with its
# line, and its excerpt shows the rules.

Strata = tuple[tuple[PredicateKey, ...], ...]
"""The derived predicates by stratum, lowest first."""

_MAX_STEPS: Final = 12
_WORDS: Final = {Use.POSITIVE: "", Use.NEGATIVE: "not ", Use.CARDINALITY: "the number of "}


def number_strata(dependencies: Dependencies) -> Strata:
    """Return the strata of a stratified program: as low as they can be.

    Base predicates lie below all; a predicate that only reads them, negated or
    counted or not, is in the first stratum.
    """
    level: dict[PredicateKey, int] = {}
    for component in dependencies.components():
        lowest = 0
        for predicate in component:
            for edge in dependencies.edges_from(predicate):
                if edge.target in level:
                    above = level[edge.target] + (edge.use is not Use.POSITIVE)
                    lowest = max(lowest, above)
        level.update(dict.fromkeys(component, lowest))
    strata: list[list[PredicateKey]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for predicate in dependencies.derived:
        strata[level[predicate]].append(predicate)
    return tuple(map(tuple, strata))


def check_strata(rules: Sequence[Rule], dependencies: Dependencies, reporter: Reporter) -> None:
    """Report a cycle through negation or counting for each component that has one."""
    for component in dependencies.components():
        members = frozenset(component)
        crossing = [
            edge
            for predicate in component
            for edge in dependencies.edges_from(predicate)
            if edge.target in members and edge.use is not Use.POSITIVE
        ]
        if crossing:
            first = min(crossing, key=lambda edge: edge.rule)
            _report_cycle(_cycle(first, members, dependencies), rules, reporter)


def _cycle(first: Edge, members: frozenset[PredicateKey], graph: Dependencies) -> list[Edge]:
    """Return a shortest way round from an edge back to where it starts."""
    came: dict[PredicateKey, Edge] = {}
    waiting = deque([first.target])
    while first.head != first.target and first.head not in came:
        for edge in graph.edges_from(waiting.popleft()):
            if edge.target in members and edge.target not in came and edge.target != first.target:
                came[edge.target] = edge
                waiting.append(edge.target)
    steps: list[Edge] = []
    at = first.head
    while at != first.target:
        steps.append(came[at])
        at = came[at].head
    return [first, *reversed(steps)]


def _report_cycle(cycle: list[Edge], rules: Sequence[Rule], reporter: Reporter) -> None:
    first = cycle[0]
    by = "negation" if first.use is Use.NEGATIVE else "counting"
    shown = cycle[:_MAX_STEPS]
    steps = [
        f"{edge.head} needs {_WORDS[edge.use]}{edge.target} (line {rules[edge.rule].span.line})"
        for edge in shown
    ]
    if len(cycle) > len(shown):
        steps.append(f"and {len(cycle) - len(shown):,} more steps back to {first.head}")
    reporter.error(
        "030-55" if first.use is Use.NEGATIVE else "030-56",
        first.atom.span,
        f"{first.head} depends on itself through {by}: {', '.join(steps)}",
        "break the cycle: what is negated or counted must be known before",
        also=[edge.atom.span for edge in shown[1:]],
    )


# -- Reserved names: base predicates, built-ins, removed built-ins, and what a profile keeps (030).
#
# Each finding names the predicate as the author wrote it. A predicate that a profile
# forbids is reported once, where it first occurs; a forbidden head at every rule.

REMOVED: Final = PredicateKey("Prefix", 2)
"""A built-in of earlier texts; TextShape replaces it. Other arities are ordinary predicates."""


def check_reserved(rules: Iterable[Rule], profile: Profile, reporter: Reporter) -> None:
    """Report heads and atoms whose names a lacegram of this profile may not use."""
    check = _Reserved(profile, reporter)
    for rule in rules:
        check.head(rule.head)
        for _, atom in rule.uses():
            check.mention(atom)


def check_required(
    defined: Iterable[PredicateKey], profile: Profile, last_line: int, reporter: Reporter
) -> None:
    """Report what a module of this profile must define and does not."""
    known = set(defined)
    for predicate in profile.required:
        if predicate not in known:
            reporter.error(
                profile.decision,
                Span(last_line, 1, 2),
                f"no rule defines {predicate}: every {profile.name} module does",
            )


class _Reserved:
    """What one profile says about names."""

    def __init__(self, profile: Profile, reporter: Reporter) -> None:
        self._profile = profile
        self._report = reporter
        self._mentioned: set[PredicateKey] = set()

    def head(self, atom: Atom) -> None:
        key, profile = atom.key, self._profile
        if atom.name in BUILTINS:
            self._report.error("G16", atom.name_span, f"{atom.name} cannot be a head")
        elif key == REMOVED:
            self._removed(atom)
        elif key in profile.undefinable:
            self._report.error(
                "030-47",
                atom.name_span,
                f"{key} is a base predicate, which no rule defines",
                "choose another name",
            )
        elif atom.name.startswith("_") and not profile.local_heads:
            self._report.error(
                "030-51",
                atom.name_span,
                f"{profile.name} modules cannot define {key}, which begins with _",
                f"call it {atom.name[1:]}",
            )
        elif profile.is_reserved(key):
            self._report.error(
                profile.decision,
                atom.name_span,
                f"{profile.name} modules cannot define {key}, which is reserved",
                "choose another name",
            )

    def mention(self, atom: Atom) -> None:
        key, profile = atom.key, self._profile
        if key == REMOVED:
            self._removed(atom)
            return
        if key in self._mentioned:
            return
        self._mentioned.add(key)
        if key in profile.unreadable:
            self._report.error(
                profile.decision,
                atom.name_span,
                f"{profile.name} modules cannot read {key}",
                f"they read {', '.join(sorted(map(str, profile.base)))}",
            )
        elif profile.closed and key not in profile.base and profile.is_reserved(key):
            self._report.error(
                profile.decision,
                atom.name_span,
                f"{profile.name} modules cannot mention {key}, which is reserved",
                "choose another name",
            )

    def _removed(self, atom: Atom) -> None:
        first, second = atom.terms
        self._report.error(
            "030-145",
            atom.name_span,
            f"{REMOVED} is not part of the language",
            show(f"write TextShape({first},{second},'','')"),
        )


# -- Limits on what rules hold: atoms in a body, the arity of atoms, the bytes of a value (030).
#
# The number of rules and the length of a line are limited while the text is parsed.


def check_limits(rules: Sequence[Rule], limits: RuleLimits, reporter: Reporter) -> None:
    """Report each limit that rules pass, with the limit's name and both values."""
    if len(rules) > limits.max_rules:  # of text, parsing has reported it
        _report(
            reporter,
            "030-115",
            rules[limits.max_rules].span,
            f"the lacegram has {len(rules):,} rules",
            limits.setting("max_rules"),
            limits.max_rules,
        )
    for rule in rules:
        if len(rule.body) > limits.max_atoms:
            _report(
                reporter,
                "G18",
                rule.body[limits.max_atoms].span,
                f"the body of the rule has {len(rule.body):,} atoms",
                limits.setting("max_atoms"),
                limits.max_atoms,
            )
        for atom in (rule.head, *(atom for _, atom in rule.uses())):
            if len(atom.terms) > limits.max_arity:
                _report(
                    reporter,
                    "030-117",
                    atom.name_span,
                    f"{atom.name} has {len(atom.terms):,} arguments",
                    "max_arity",
                    limits.max_arity,
                )
        for constant in _constants(rule):
            size = _size(constant.value)
            if size > limits.max_value_bytes:
                _report(
                    reporter,
                    "030-118",
                    constant.span,
                    f"a constant has {size:,} bytes",
                    "max_value_bytes",
                    limits.max_value_bytes,
                )


def _report(
    reporter: Reporter, rule: str, span: Span, message: str, name: str, allowed: int
) -> None:
    reporter.error(rule, span, message, f"the limit is {name}={allowed}")


def _size(value: str) -> int:
    return len(value) if value.isascii() else len(value.encode("utf-8"))


def _constants(rule: Rule) -> Iterator[Constant]:
    for term in _terms(rule):
        if isinstance(term, Constant):
            yield term


def _terms(rule: Rule) -> Iterator[Term]:
    yield from rule.head.terms
    for item in rule.body:
        match item:
            case NegatedAtom(atom):
                yield from atom.terms
            case Cardinality(atom, _, bound, span):
                yield from atom.terms
                yield Constant(bound, span)
            case TextShape():
                yield from item.terms
                yield item.delimiters
            case TrueAtom():
                pass
            case _:
                yield from item.terms
