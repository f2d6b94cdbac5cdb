"""Safety: every variable that a rule tests or gives out is bound by a positive atom (030).

The order of atoms does not matter. `true`, tests and Cardinality bind nothing. A rule
that does not stand as it was written is left out: its variables are not the author's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.rules.syntax import (
    Anonymous,
    Cardinality,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    Rule,
    Term,
    TextShape,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.rules.findings import Reporter
    from lace.rules.suggest import Suggester

__all__ = ["bound_variables", "check_safety"]


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
