"""Limits on what rules hold: atoms in a body, the arity of atoms, the bytes of a value (030).

The number of rules and the length of a line are limited while the text is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.rules.syntax import (
    Cardinality,
    Constant,
    NegatedAtom,
    Rule,
    Term,
    TextShape,
    TrueAtom,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.rules.findings import Reporter
    from lace.rules.limits import RuleLimits
    from lace.rules.syntax import Span

__all__ = ["check_limits"]


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
