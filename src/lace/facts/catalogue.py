"""Every base predicate: name, arity, class and what its arguments are (020, 030).

No rule may define one of these. Record facts come from validated records only;
advertisement facts are a peer's claims; runtime facts come with an evaluation. Local facts
are for exposures alone: no peer's rules read them, and no rule defines them either.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class FactClass(Enum):
    """Where the facts of a predicate come from."""

    RECORD = "record"
    ADVERTISEMENT = "advertisement"
    RUNTIME = "runtime"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A base predicate; `arguments` names its positions.

    No two record facts of it agree in the `identifying` positions.
    """

    name: str
    arguments: tuple[str, ...]
    fact_class: FactClass
    meaning: str

    @property
    def arity(self) -> int:
        """How many arguments its facts have."""
        return len(self.arguments)

    @property
    def identifying(self) -> tuple[int, ...]:
        """The positions up to `Index`, where there is one, else the first."""
        if "Index" in self.arguments:
            return tuple(range(self.arguments.index("Index") + 1))
        return (0,)

    def __str__(self) -> str:
        return f"{self.name}/{self.arity}"


def _predicate(text: str, fact_class: FactClass, meaning: str) -> Predicate:
    name, _, rest = text.rstrip(")").partition("(")
    return Predicate(name, tuple(part for part in rest.split(",") if part), fact_class, meaning)


_R, _A, _T, _L = FactClass.RECORD, FactClass.ADVERTISEMENT, FactClass.RUNTIME, FactClass.LOCAL

_ALL: Final = (
    _predicate("Have(P)", _R, "validated bytes of P are stored here"),
    _predicate("Field(P,Name,Index,Value)", _R, "one field occurrence of P"),
    _predicate("RecordLink(P,Name,Index,Data,Target)", _R, "one well-formed record link of P"),
    _predicate("BlobHash(P,H)", _R, "the Blob record that P embeds"),
    _predicate("PlexHash(P,H)", _R, "the Plex record that the Seal P embeds"),
    _predicate("Advertised(P,S)", _A, "S claims to have P"),
    _predicate("AdvertisedField(P,S,Name,Index,Value)", _A, "S claims this field of P"),
    _predicate("Here(V)", _T, "the verifier of this side"),
    _predicate("Peer(V)", _T, "the proven verifier of the peer"),
    _predicate("Transport(A)", _T, "the address string of the transport"),
    _predicate("TransportEncrypted()", _T, "the transport ends its encryption here"),
    _predicate("StartTAI(T)", _T, "when the exchange began"),
    _predicate("TickTAI(T)", _T, "the tick that both sides have reached"),
    _predicate("ClockSkewSeconds(N)", _T, "how far the two clocks are apart"),
)

BASE_PREDICATES: Final[Mapping[str, Predicate]] = MappingProxyType(
    {predicate.name: predicate for predicate in _ALL}
)
RECORD_PREDICATES: Final[Mapping[str, Predicate]] = MappingProxyType(
    {name: found for name, found in BASE_PREDICATES.items() if found.fact_class is _R}
)

LOCAL_PREDICATES: Final[Mapping[str, Predicate]] = MappingProxyType(
    {
        predicate.name: predicate
        for predicate in (
            _predicate("_Viewer(V)", _L, "the peer that asks, as exposures know it"),
            _predicate("_LocalTAI(T)", _L, "the clock of this side, floored to its tick interval"),
        )
    }
)
"""What only exposures read (G05b)."""
