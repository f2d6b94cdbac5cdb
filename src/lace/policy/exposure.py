"""Exposures: local modules that say which records a viewer may query (020, 040).

A module is registered for named verifiers or for anyone. Of those registered for a
viewer every one has to allow a record; where none is registered, nothing is exposed.
A wider view is made by a rule: a module may allow a record for several reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lace.base.arguments import check_many, kind_of
from lace.base.text import shorten
from lace.errors import EngineError, PolicyError, RecordError, UsageError
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.record.ids import Verifier
from lace.rules.limits import OWN_LIMITS, RuleLimits
from lace.rules.profiles import EXPOSURE, LOCAL_TAI
from lace.rules.program import CheckedProgram, Lacegram, check_source
from lace.rules.syntax import Atom, Cardinality, NegatedAtom, PredicateKey, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lace.base.tai import Tai
    from lace.facts.lines import Fact
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


PEER: Final = "Peer"
"""The predicate of the verifier that a peer has proven."""
PUBLIC: Final = frozenset(
    PredicateKey(found.name, found.arity)
    for found in BASE_PREDICATES.values()
    if found.fact_class is not FactClass.RECORD
)
"""What is advertised, and the runtime predicates: all that are not of records."""
_GIVEN: Final = frozenset({FactClass.RUNTIME, FactClass.LOCAL})
"""The classes of facts that come with an evaluation."""
_HINT: Final = "as in [('Advertised','P.….H3','S')]"


def with_peer(public: Iterable[Fact], viewer: str | None) -> tuple[Fact, ...]:
    """Return public facts, each once, with `Peer` of a viewer unless there is a `Peer` fact.

    >>> with_peer([("Here", "V.1")], "V.2")
    (('Here', 'V.1'), ('Peer', 'V.2'))
    >>> with_peer([("Peer", "V.3")], "V.2")
    (('Peer', 'V.3'),)
    """
    check_many(public, "public are facts", _HINT)
    facts: dict[Fact, None] = {}
    for fact in public:
        if not _is_fact(fact):
            shown = shorten(repr(fact))
            raise UsageError(f"a public fact is a tuple of texts, not {shown}", hint=_HINT)
        facts[fact] = None
    if viewer is not None and not any(fact[0] == PEER for fact in facts):
        facts[PEER, viewer] = None
    return tuple(facts)


def _is_fact(fact: object) -> bool:
    return isinstance(fact, tuple) and bool(fact) and all(isinstance(each, str) for each in fact)


def check_public(predicates: Iterable[tuple[str, int]]) -> None:
    """Refuse predicates, each a name and an arity, of which no fact is public."""
    for name, arity in predicates:
        if PredicateKey(name, arity) not in PUBLIC:
            raise EngineError(
                f"{shorten(name)!r} with {arity} values is no public fact",
                hint="public are what a peer advertises and the runtime facts",
            )


def local_time(now: Tai, interval: int) -> Tai:
    """Return a clock's reading as exposures see it: floored to an interval in nanoseconds.

    >>> from lace.base.tai import Tai
    >>> local_time(Tai("1640995237:500000000"), 10_000_000_000)
    Tai('1640995230:000000000')
    """
    return now.shift(-(now.nanoseconds % interval))


def with_local_time(facts: Iterable[Fact], tai: str) -> tuple[Fact, ...]:
    """Return facts with this instant as `_LocalTAI`, unless there is one among them.

    >>> with_local_time([("Here", "V.1")], "1640995230:000000000")
    (('Here', 'V.1'), ('_LocalTAI', '1640995230:000000000'))
    """
    given = tuple(facts)
    is_told = any(fact[0] == LOCAL_TAI.name for fact in given)
    return given if is_told else (*given, (LOCAL_TAI.name, str(tai)))


def split_local(facts: Iterable[Fact]) -> tuple[list[Fact], list[Fact]]:
    """Return the public ones of facts, and the local ones."""
    public: list[Fact] = []
    local: list[Fact] = []
    for fact in facts:
        (local if _key(fact) == LOCAL_TAI else public).append(fact)
    return public, local


def _key(fact: Fact) -> PredicateKey:
    return PredicateKey(fact[0], len(fact) - 1)


def missing_facts(programs: Iterable[CheckedProgram], public: Iterable[Fact]) -> tuple[str, ...]:
    """Return the runtime predicates that programs read and of which there is no fact.

    They come as `StartTAI/1`, in the order of the catalogue.
    """
    given = {fact[0] for fact in public}
    read = {key.name for program in programs for key in program.required_base}
    known = (*BASE_PREDICATES.values(), *LOCAL_PREDICATES.values())
    return tuple(
        str(found) for found in known if found.fact_class in _GIVEN and found.name in read - given
    )
