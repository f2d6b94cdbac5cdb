"""Facts of an exchange beside those of records: public ones, and this side's own time.

Public are what a peer advertises and the runtime facts. `_LocalTAI` is local: exposures
read it, and a peer's rules never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.base.arguments import check_many
from lace.base.text import shorten
from lace.errors import EngineError, UsageError
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.rules.profiles import LOCAL_TAI
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.base.tai import Tai
    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram


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
