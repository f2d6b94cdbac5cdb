"""Profiles: which base predicates exist for a module, and what it may define (030, 040).

`QUERY` is for plain questions, `SELECTOR` for the operand of an exchange, `EXPOSURE`
for the local modules that say what a viewer may query. A caller that brings facts of
its own adds their predicates with `with_base`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.errors import UsageError
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


SELECT_HAVE: Final = PredicateKey("SelectHave", 1)
SELECT_ADVERTISED: Final = PredicateKey("SelectAdvertised", 2)
MAY_SEND: Final = PredicateKey("MaySend", 1)
MAY_REQUEST: Final = PredicateKey("MayRequest", 1)
CAN_QUERY_RECORD: Final = PredicateKey("CanQueryRecord", 2)
ALLOW_QUERY_RECORD: Final = PredicateKey("AllowQueryRecord", 2)
VIEWER: Final = PredicateKey("_Viewer", 1)
LOCAL_TAI: Final = PredicateKey("_LocalTAI", 1)

_CATALOGUE: Final = frozenset(
    PredicateKey(found.name, found.arity) for found in BASE_PREDICATES.values()
)
_RECORD: Final = frozenset(
    PredicateKey(found.name, found.arity)
    for found in BASE_PREDICATES.values()
    if found.fact_class is FactClass.RECORD
)
_SINGLE: Final = frozenset(
    PredicateKey(found.name, found.arity)
    for found in BASE_PREDICATES.values()
    if found.fact_class is FactClass.RUNTIME
)
_LOCAL: Final = frozenset(
    PredicateKey(found.name, found.arity) for found in LOCAL_PREDICATES.values()
)
_GENERATED: Final = ("o0_", "o1_", "MergedSelect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a kind of module may read and define.

    `reserved` predicates and `reserved_prefixes` cannot be defined, and with
    `closed` not even be mentioned; `required` ones must be defined; `single` ones hold
    at most a few facts, so joining with them costs nothing. `decision` is the name
    that findings about these cite.
    """

    name: str
    base: frozenset[PredicateKey]
    decision: str = "030-50"
    required: tuple[PredicateKey, ...] = ()
    reserved: frozenset[PredicateKey] = frozenset()
    reserved_prefixes: tuple[str, ...] = ()
    closed: bool = False
    local_heads: bool = True
    unreadable: frozenset[PredicateKey] = frozenset()
    single: frozenset[PredicateKey] = field(default=_SINGLE | _LOCAL)

    @property
    def undefinable(self) -> frozenset[PredicateKey]:
        """The base predicates that no rule may define: every standard one, and those read."""
        return self.base | _CATALOGUE | _LOCAL

    def is_reserved(self, predicate: PredicateKey) -> bool:
        """Tell whether a module of this kind must leave a predicate alone."""
        return predicate in self.reserved or predicate.name.startswith(self.reserved_prefixes)

    def with_base(self, predicates: Iterable[tuple[str, int]]) -> Profile:
        """Return this profile with more base predicates, given as name and arity.

        >>> QUERY.with_base([("Edge", 2)]).undefinable - QUERY.undefinable
        frozenset({PredicateKey(name='Edge', arity=2)})
        """
        more = frozenset(PredicateKey(name, arity) for name, arity in predicates)
        return replace(self, base=self.base | more, unreadable=self.unreadable - more)


QUERY: Final = Profile(name="query", base=_CATALOGUE)
"""Plain questions: all base predicates, any head that is not one of them."""

SELECTOR: Final = Profile(
    name="selector",
    base=_CATALOGUE,
    decision="G21",
    required=(SELECT_HAVE, SELECT_ADVERTISED),
    reserved=frozenset({MAY_SEND, MAY_REQUEST, CAN_QUERY_RECORD, ALLOW_QUERY_RECORD}),
    reserved_prefixes=(*_GENERATED, "_"),
    closed=True,
    local_heads=False,
)
"""The operand of an exchange: what to offer and what to ask for."""

_EXPOSED: Final = _RECORD | {
    *_LOCAL,
    *(key for key in _SINGLE if key.name not in {"TickTAI", "ClockSkewSeconds"}),
}

EXPOSURE: Final = Profile(
    name="exposure",
    base=_EXPOSED,
    decision="G05b",
    required=(ALLOW_QUERY_RECORD,),
    reserved=frozenset({MAY_SEND, MAY_REQUEST, CAN_QUERY_RECORD, SELECT_HAVE, SELECT_ADVERTISED}),
    reserved_prefixes=_GENERATED,
    unreadable=_CATALOGUE - _EXPOSED,
)
"""A local module that says which records a viewer may query."""

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {profile.name: profile for profile in (QUERY, SELECTOR, EXPOSURE)}
)


def profile_named(name: str) -> Profile:
    """Return the profile of a name."""
    if name not in PROFILES:
        raise UsageError(
            f"there is no profile {name!r}", hint=f"the profiles are {', '.join(PROFILES)}"
        )
    return PROFILES[name]
