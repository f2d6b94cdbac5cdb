"""Public facts of an exchange: the peer that a viewer gives, and runtime facts that lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.arguments import check_many
from lace.base.text import shorten
from lace.errors import EngineError, UsageError
from lace.facts.catalogue import BASE_PREDICATES, FactClass
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram

__all__ = ["PEER", "PUBLIC", "check_public", "missing_facts", "with_peer"]

PEER: Final = "Peer"
"""The predicate of the verifier that a peer has proven."""
PUBLIC: Final = frozenset(
    PredicateKey(found.name, found.arity)
    for found in BASE_PREDICATES.values()
    if found.fact_class is not FactClass.RECORD
)
"""What is advertised, and the runtime predicates: all that are not of records."""
_HINT: Final = "as in [('Advertised','P.….H3','S')]"


def with_peer(public: Iterable[Fact], viewer: str | None) -> tuple[Fact, ...]:
    """Return public facts, each once, with `Peer` of a viewer unless there is a `Peer` fact.

    >>> with_peer([("Here", "V.1")], "V.2")
    (('Here', 'V.1'), ('Peer', 'V.2'))
    >>> with_peer([("Peer", "V.3")], "V.2")
    (('Peer', 'V.3'),)

    Raises:
        UsageError: something among them is no fact.
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
    """Refuse predicates, each a name and an arity, of which no fact is public.

    Raises:
        EngineError: one is so; records are facts only once they are stored.
    """
    for name, arity in predicates:
        if PredicateKey(name, arity) not in PUBLIC:
            raise EngineError(
                f"{shorten(name)!r} with {arity} values is no public fact",
                hint="public are what a peer advertises and the runtime facts",
            )


def missing_facts(programs: Iterable[CheckedProgram], public: Iterable[Fact]) -> tuple[str, ...]:
    """Return the runtime predicates that programs read and of which there is no fact.

    They come as `StartTAI/1`, in the order of the catalogue.
    """
    given = {fact[0] for fact in public}
    read = {key.name for program in programs for key in program.required_base}
    return tuple(
        str(found)
        for found in BASE_PREDICATES.values()
        if found.fact_class is FactClass.RUNTIME and found.name in read - given
    )
