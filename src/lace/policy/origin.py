"""Origins: the labels that setup gives to the two operands, and the claims that peers make (040).

Both sides compute the same two labels from what both have seen, so no label is taken
from a peer. A peer's claim to be a verifier is provisional until hello or the
transport has proven it. A label lives as long as one exchange plan: it says which of the two
an operand is, never who.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES, digest
from lace.errors import PolicyError
from lace.facts.lines import format_fact
from lace.policy.operand import SELECTOR_FACET, check_index, check_module_id
from lace.record.ids import IdError, Verifier
from lace.rules.findings import show

__all__ = [
    "OPAQUE_LABEL",
    "Origin",
    "check_claim",
    "check_label",
    "claim_of",
    "is_opaque_label",
    "opaque_digest",
    "opaque_labels",
    "prove_claim",
]

OPAQUE_LABEL: Final = b"lace-opaque-origin/v1"
"""What the hashed bytes of an opaque digest begin with."""

_PREFIX: Final = "Opq_"
_VERIFIER_PREFIX: Final = "V."
_LABEL: Final = re.compile(f"{_PREFIX}[{b64a.ALPHABET}]")


def is_opaque_label(text: str) -> bool:
    """Tell whether a text is an opaque origin label.

    >>> is_opaque_label("Opq_~"), is_opaque_label("Opq_00")
    (True, False)
    """
    return _LABEL.fullmatch(text) is not None


def check_label(text: str) -> None:
    """Refuse what is no opaque origin label.

    Raises:
        PolicyError: another form.
    """
    if not is_opaque_label(text):
        raise PolicyError(
            f"'{show(text)}' is not the label of an origin",
            rule="040-45",
            hint=f"a label is {_PREFIX} and one Base64-Ascend character",
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an operand comes from: its label, and the verifier that was proven for it.

    The verifier is metadata of the label and never a label itself.

    Raises:
        PolicyError: no opaque label, or no verifier.
    """

    label: str
    verifier: Verifier | None = None

    def __post_init__(self) -> None:
        check_label(self.label)
        if self.verifier is not None:
            object.__setattr__(self, "verifier", _verifier(self.verifier))

    @property
    def viewer(self) -> str:
        """Whose query view its rules read: the proven verifier, else the label (G05)."""
        return self.label if self.verifier is None else self.verifier


def _verifier(text: str) -> Verifier:
    try:
        return Verifier(text)
    except IdError as error:
        raise PolicyError(
            f"'{show(text)}' is not a verifier", rule="040-42", hint=error.hint
        ) from None


def opaque_digest(
    index: int, module_id: str, *, nonce: str | None = None, verifier: str | None = None
) -> bytes:
    """Return the 32 bytes from which the label of an operand's origin is taken (G26).

    `nonce` and `verifier` are for a binding that gives them to both sides beforehand;
    over ILTP there are none.

    Raises:
        PolicyError: an invalid index, identifier, nonce or verifier.
    """
    check_index(index)
    check_module_id(module_id)
    facts = [("OpaqueOriginRole", str(index))]
    if nonce is not None:
        _check_nonce(nonce)
        facts.append(("OpaqueOriginNonce", nonce))
    if verifier is not None:
        facts.append(("OpaqueOriginVerifier", _verifier(verifier)))
    lines = [format_fact(fact) for fact in facts]
    # The digest of a module is what its identifier holds behind `R.`.
    lines.append(
        format_fact(
            ("OpaqueOriginOperand", SELECTOR_FACET, module_id, module_id.removeprefix("R."))
        )
    )
    text = "".join(f"{line}\n" for line in lines)
    return digest(OPAQUE_LABEL + text.encode("utf-8"))


def _check_nonce(nonce: str) -> None:
    try:
        empty = not b64a.decode(nonce)
        problem = "it is empty" if empty else ""
    except b64a.B64AError as error:
        problem = error.message
    if problem:
        raise PolicyError(
            f"'{show(nonce)}' is not a setup nonce: {problem}",
            rule="040-46",
            hint="a nonce is Base64-Ascend text",
        )


def opaque_labels(digest0: bytes, digest1: bytes) -> tuple[str, str]:
    """Return the labels of the two origins: the first character in which the digests differ.

    Raises:
        PolicyError: they do not differ, or are no digests.
    """
    if not len(digest0) == len(digest1) == DIGEST_BYTES:
        raise PolicyError(f"an opaque digest has {DIGEST_BYTES} bytes", rule="040-46")
    for one, other in zip(b64a.encode(digest0), b64a.encode(digest1), strict=True):
        if one != other:
            return f"{_PREFIX}{one}", f"{_PREFIX}{other}"
    raise PolicyError(
        "both operands have the same opaque digest, so nothing tells their origins apart",
        rule="040-48",
        hint="give the two sides different indexes",
    )


def claim_of(index: int, verifier: str | None) -> str:
    """Return what a side claims as its origin on the wire: its verifier, else its index.

    >>> claim_of(1, None)
    'Opq_1'

    Raises:
        PolicyError: an invalid index or verifier.
    """
    check_index(index)
    return f"{_PREFIX}{index}" if verifier is None else _verifier(verifier)


def check_claim(claim: str, *, index: int) -> Verifier | None:
    """Return the verifier that the peer with this index claims to be, or None for no claim.

    A claimed verifier is provisional: `prove_claim` decides. It may be that of this side,
    which two devices of one person can share; nothing is taken to be local for it. A claim of
    another form is not a claim: the peer gets the label that setup computes (G27).

    >>> check_claim("peer-17", index=0)

    Raises:
        PolicyError: the claim is the label of this side, or a malformed verifier.
    """
    check_index(index)
    if claim == f"{_PREFIX}{1 - index}":
        raise PolicyError(
            f"the peer claims '{show(claim)}', the origin of this side",
            rule="040-41",
            hint=f"the peer claims its own verifier, or {_PREFIX}{index} if it has none",
        )
    if not claim.startswith(_VERIFIER_PREFIX):
        return None
    try:
        return Verifier(claim)
    except IdError:
        raise PolicyError(
            f"the peer claims '{show(claim)}' as its origin, which is a malformed verifier",
            rule="040-42",
            hint=f"a peer claims its verifier, or {_PREFIX}{index} if it has none",
        ) from None


def prove_claim(claimed: str | None, proven: str | None) -> Verifier | None:
    """Return the verifier to bind to a peer's label, once hello and transport have spoken.

    A peer that claims none and is proven by its transport is bound to what was proven.

    Raises:
        PolicyError: the claimed verifier was not proven, or another one was.
    """
    found = None if proven is None else _verifier(proven)
    if claimed is None or claimed == found:
        return found
    if found is None:
        raise PolicyError(
            f"the peer claims to be '{show(claimed)}' and has not proven it",
            rule="040-42",
            hint="the peer must sign its hello, or its transport must prove it",
        )
    raise PolicyError(
        f"the peer claims to be '{show(claimed)}' and has proven to be {found}",
        rule="040-44",
        hint="the peer must claim the verifier of the key that it signs with",
    )
