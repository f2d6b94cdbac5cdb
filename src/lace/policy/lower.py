"""Intersection and lowering: from two selections to what may be sent and requested (040).

A record is in the shared set when both operands select it. A peer's operand selects in the
view that it has: that it names a record which is here and hidden from it, by a constant or
by a link, selects nothing. What 050 observes follows from the shared set: `MaySend/1`,
`MayRequest/1`, and nothing else. A lowering may ask for more than the shared set; it never
asks for less.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.policy.plan_lines import check_lowering
from lace.rules.profiles import SELECT_ADVERTISED, SELECT_HAVE
from lace.rules.source import parse_source
from lace.rules.syntax import PredicateKey, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.rules.syntax import Rule

__all__ = ["LOWERING_RULES", "MERGED", "lowering_rules"]

_INTERSECTION: Final = """\
MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P), CanQueryRecord({viewer},P).
MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P), not Have(P).
MergedSelectAdvertised(P,S) :- o0_SelectAdvertised(P,S), o1_SelectAdvertised(P,S)."""

LOWERING_RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "standard-v1": """\
MaySend(P) :- MergedSelectHave(P).
MayRequest(P) :- MergedSelectAdvertised(P,S).""",
        "encrypted-v1": """\
MaySend(P) :- MergedSelectHave(P), TransportEncrypted().
MayRequest(P) :- MergedSelectAdvertised(P,S), TransportEncrypted().""",
        "proven-peer-v1": """\
MaySend(P) :- MergedSelectHave(P).
MayRequest(P) :- MergedSelectAdvertised(P,S), Peer(S).""",
    }
)
"""The rules of each lowering, by name."""

MERGED: Final = (
    PredicateKey("MergedSelectHave", SELECT_HAVE.arity),
    PredicateKey("MergedSelectAdvertised", SELECT_ADVERTISED.arity),
)
"""The predicates of the shared set."""


@lru_cache(maxsize=64)
def lowering_rules(name: str, viewer: str) -> tuple[Rule, ...]:
    """Return the rules of the intersection for a viewer, and of a lowering."""
    check_lowering(name)
    intersection = _INTERSECTION.format(viewer=quote(viewer))
    return parse_source(f"{intersection}\n{LOWERING_RULES[name]}").rules
