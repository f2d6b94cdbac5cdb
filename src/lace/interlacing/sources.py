"""Sources: who advertises, on the wire and for rules (050-41, G42).

On the wire S is a name that both sides know: the verifier of the sender's HelloSigner, or the
verifier that it claimed as origin and its transport proves, else its opaque label. Digests and
roots are over that form. For rules S is the verifier that the peer has proven by any means: the
receiver replaces the source before it evaluates, so that `Peer(S)` holds for a proven peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.policy.origin import Origin
    from lace.record.ids import Verifier

__all__ = ["relabelled", "rule_source", "wire_source", "wire_verifier"]

_CLAIMS = ("Advertised", "AdvertisedField")


def wire_verifier(signer: Verifier | None, claimed: Verifier | None) -> Verifier | None:
    """Return the verifier that a side is known by to both sides, or None.

    Args:
        signer: the verifier of its HelloSigner.
        claimed: the verifier that its setup claims; negotiation has it proven, or aborts.
    """
    return signer or claimed


def wire_source(verifier: Verifier | None, origin: Origin) -> str:
    """Return the S of a side's advertisements on the wire.

    Args:
        verifier: what `wire_verifier` returns for that side.
        origin: its origin in the plan.
    """
    return verifier or origin.label


def rule_source(peer: Origin) -> str:
    """Return the S that rules read in the peer's advertisements: its proven verifier, if any.

    >>> from lace.policy.origin import Origin
    >>> rule_source(Origin("Opq_a"))
    'Opq_a'
    """
    return peer.viewer


def relabelled(facts: Iterable[Fact], executable: Executable) -> tuple[Fact, ...]:
    """Return public facts as rules read them: the peer's label is replaced by the proven viewer.

    For facts that are given as they are on the wire, without an exchange.
    """
    label, source = executable.plan.operands[1 - executable.index].origin, executable.viewer
    return tuple(
        (*fact[:2], source, *fact[3:]) if fact[0] in _CLAIMS and fact[2:3] == (label,) else fact
        for fact in facts
    )
