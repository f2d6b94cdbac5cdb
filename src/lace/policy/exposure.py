"""Exposures: local modules that say which records a viewer may query (020, 040).

A module is registered for named verifiers or for anyone. Of those registered for a
viewer every one has to allow a record; where none is registered, nothing is exposed.
A wider view is made by a rule: a module may allow a record for several reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lace.base.arguments import kind_of
from lace.base.text import shorten
from lace.errors import PolicyError, RecordError
from lace.record.ids import Verifier
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.profiles import EXPOSURE, LOCAL_TAI
from lace.rules.program import CheckedProgram, Lacegram, check_source
from lace.rules.syntax import Atom, Cardinality, NegatedAtom, PredicateKey, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lace.rules.syntax import BodyAtom


def check_viewer(text: str) -> str:
    """Return a verifier for which something may be exposed."""
    if not isinstance(text, str):
        raise PolicyError(
            f"a viewer is a verifier's text, not {kind_of(text)}",
            rule="G05",
            hint="as in str(key.verifier)",
        )
    if text.startswith("Opq_"):
        raise PolicyError(
            f"nothing can be exposed to {shorten(text)!r}, a label of one exchange",
            rule="X6",
            hint="name the peer's verifier (V.….H3), or expose to anyone",
        )
    try:
        return str(Verifier(text))
    except RecordError as error:
        raise PolicyError(
            f"{shorten(text)!r} is no viewer: {error.message}",
            rule="G05",
            hint="a viewer is a verifier, V.….H3, as `lace key list` prints it",
        ) from error


@dataclass(frozen=True, slots=True)
class Exposure:
    """A module that says what may be queried, and for whom; `viewers` None is for anyone."""

    module: CheckedProgram
    viewers: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.module.profile != EXPOSURE:
            raise PolicyError(
                f"a module of profile {self.module.profile.name} cannot expose anything",
                rule="040-19",
                hint="check it with the profile exposure",
            )
        for viewer in self.viewers or ():
            check_viewer(viewer)

    def is_for(self, viewer: str) -> bool:
        """Tell whether the module is registered for a viewer."""
        return self.viewers is None or viewer in self.viewers


def exposure_of(
    rules: Lacegram | CheckedProgram | str | bytes,
    *viewers: str,
    anyone: bool = False,
    limits: RuleLimits = OWN_LIMITS,
    name: str | None = None,
) -> Exposure:
    """Return an exposure for some viewers, or for anyone; which of both has to be said."""
    if anyone is bool(viewers):
        raise PolicyError(
            "an exposure is for viewers that it names, or for anyone",
            rule="G05b",
            hint="name verifiers, or say anyone=True",
        )
    match rules:
        case Lacegram(program):
            checked = program
        case CheckedProgram():
            checked = rules
        case _:
            checked = check_source(rules, profile=EXPOSURE, limits=limits, name=name)
    if checked.profile != EXPOSURE:
        checked = check_source(
            checked.canonical, profile=EXPOSURE, limits=checked.limits, name=checked.source
        )
    return Exposure(checked, frozenset(viewers) or None)


def active_exposures(exposures: Iterable[Exposure], viewer: str) -> tuple[Exposure, ...]:
    """Return the exposures that are registered for a viewer, in their order."""
    return tuple(exposure for exposure in exposures if exposure.is_for(viewer))


def read_clock(exposures: Iterable[Exposure]) -> bool:
    """Tell whether one of some exposures reads this side's clock, `_LocalTAI`."""
    return any(LOCAL_TAI in exposure.module.required_base for exposure in exposures)


# -- Scopes: the predicates of a module get names that no other module has (040).
#
# A scope is lexical hygiene and nothing else: it grants nothing and names nobody. Base
# predicates keep their names; whatever a module defines, or reads though nobody defines
# it, gets the prefix of its scope.


def scope_name(prefix: str, predicate: PredicateKey) -> PredicateKey:
    """Return a predicate's name in a scope.

    >>> str(scope_name("o1_", PredicateKey("Member", 1)))
    'o1_Member/1'
    """
    return PredicateKey(prefix + predicate.name, predicate.arity)


def scope_rules(module: CheckedProgram, prefix: str) -> tuple[Rule, ...]:
    """Return the rules of a module in a scope of their own."""
    base = module.profile.base

    def scoped(atom: Atom) -> Atom:
        return atom if atom.key in base else Atom(prefix + atom.name, atom.terms, atom.span)

    return tuple(
        Rule(
            Atom(prefix + rule.head.name, rule.head.terms, rule.head.span),
            map_atoms(rule, scoped).body,
            rule.span,
        )
        for rule in module.rules
    )


def map_atoms(rule: Rule, change: Callable[[Atom], Atom]) -> Rule:
    """Return a rule with every predicate atom of its body changed, however it is used."""

    def changed(item: BodyAtom) -> BodyAtom:
        match item:
            case Atom():
                return change(item)
            case NegatedAtom():
                return NegatedAtom(change(item.atom), item.span)
            case Cardinality():
                return replace(item, atom=change(item.atom))
            case _:
                return item

    return Rule(rule.head, tuple(map(changed, rule.body)), rule.span)
