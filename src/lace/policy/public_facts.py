"""Public facts of an exchange: the peer that a viewer gives, and runtime facts that lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.facts.catalogue import BASE_PREDICATES, FactClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram

__all__ = ["PEER", "missing_facts", "with_peer"]

PEER: Final = "Peer"
"""The predicate of the verifier that a peer has proven."""


def with_peer(public: Iterable[Fact], viewer: str | None) -> tuple[Fact, ...]:
    """Return public facts, each once, with `Peer` of a viewer unless there is a `Peer` fact.

    >>> with_peer([("Here", "V.1")], "V.2")
    (('Here', 'V.1'), ('Peer', 'V.2'))
    >>> with_peer([("Peer", "V.3")], "V.2")
    (('Peer', 'V.3'),)
    """
    facts = dict.fromkeys(public)
    if viewer is not None and not any(fact[0] == PEER for fact in facts):
        facts[PEER, viewer] = None
    return tuple(facts)


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
