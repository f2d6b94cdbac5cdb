"""Intersection and lowering: from two selections to what may be sent and requested (040).

A record is in the shared set when both operands select it. What 050 observes follows
from that: `MaySend/1`, `MayRequest/1`, and nothing else. A lowering may ask for more
than the shared set; it never asks for less.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.policy.plan_lines import check_lowering
from lace.rules.profiles import SELECT_ADVERTISED, SELECT_HAVE
from lace.rules.source import parse_source
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.rules.syntax import Rule

__all__ = ["LOWERING_RULES", "MERGED", "lowering_rules"]

_INTERSECTION: Final = """\
MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P).
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


@lru_cache(maxsize=len(LOWERING_RULES))
def lowering_rules(name: str) -> tuple[Rule, ...]:
    """Return the rules of the intersection and of a lowering."""
    check_lowering(name)
    return parse_source(f"{_INTERSECTION}\n{LOWERING_RULES[name]}").rules
