"""Two sides up to the end of hello, for the tests of an exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lace.base.tai import Tai
from lace.exchange.blocks import Phase, check_block
from lace.exchange.capabilities import Capabilities
from lace.exchange.hello import (
    Hello,
    Setup,
    make_hello,
    make_setup,
    proof_context,
    read_hello,
    read_setup,
)
from lace.exchange.negotiation import Terms, negotiate
from lace.policy.operand import advertised_fields, operand_of
from lace.policy.plan import ExchangePlan, make_plan
from lace.record.seal import SigningKey

if TYPE_CHECKING:
    from lace.exchange.hello import ProofContext

PLAIN = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
FIELDS = (
    "SelectHave(P) :- Have(P).\n"
    "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'u'), AdvertisedField(P,S,'App',_,_)."
)
ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- AdvertisedField(P,S,_,_,'u')."
START = Tai("1640995200:000000000")
AUX = b"\x07" * 32
ALICE, BOB, EVE = (
    SigningKey(bytes([number]) * 32, lambda size: b"\x5a" * size) for number in (1, 2, 3)
)


@dataclass
class Side:
    """One side of an exchange, as far as its hello."""

    index: int
    key: SigningKey | None
    setup: Setup
    hello: Hello
    capabilities: Capabilities


@dataclass
class Pair:
    """Both sides, and what is between them."""

    plan: ExchangePlan
    context: ProofContext | None
    sides: tuple[Side, Side]

    def terms(self, index: int, **changes: Any) -> Terms:
        """What the side with this index gets, after reading the other's blocks."""
        own, other = self.sides[index], self.sides[1 - index]
        setup = read_setup(check_block(other.setup.facts, Phase.SETUP), local_index=index)
        hello = read_hello(check_block(other.hello.facts, Phase.HELLO))
        values: dict[str, Any] = {
            "setup": own.setup,
            "peer_setup": setup,
            "capabilities": own.capabilities,
            "context": self.context,
        }
        return negotiate(self.plan, own.hello, hello, **{**values, **changes})

    def change(self, index: int, **changes: Any) -> Pair:
        """The same pair, but one side's hello says something else."""
        side = self.sides[index]
        changed = replace(side, hello=replace(side.hello, **changes))
        sides = (changed, self.sides[1]) if index == 0 else (self.sides[0], changed)
        return replace(self, sides=sides)


def pair_of(
    *,
    rules: tuple[str, str] = (FIELDS, PLAIN),
    keys: tuple[SigningKey | None, SigningKey | None] = (ALICE, BOB),
    nonces: tuple[bytes | None, bytes | None] = (b"\x0a" * 32, b"\x0b" * 32),
    capabilities: tuple[Capabilities, Capabilities] = (Capabilities(), Capabilities()),
    tais: tuple[Tai, Tai] = (START, START),
    channel: str | None = None,
    claim: bool = True,
    lowering: str = "standard-v1",
) -> Pair:
    """Both sides, each with its setup and its hello."""
    operands = [operand_of(text, index) for index, text in enumerate(rules)]
    plan = make_plan(operands[0], operands[1], lowering)
    setups = [
        make_setup(operand, verifier=key.verifier if key and claim else None, nonce=nonce)
        for operand, key, nonce in zip(operands, keys, nonces, strict=True)
    ]
    context = proof_context(setups[0], setups[1], plan.id, channel=channel)
    zero, one = (
        Side(
            index,
            keys[index],
            setups[index],
            make_hello(
                plan,
                capabilities[index],
                tai=tais[index],
                index=index,
                key=keys[index],
                context=context,
                aux=AUX,
                own=advertised_fields(operands[index].module),
            ),
            capabilities[index],
        )
        for index in (0, 1)
    )
    return Pair(plan, context, (zero, one))
