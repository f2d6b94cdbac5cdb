"""One kind of hostile peers, eight connections at once, as a process of its own.

`python -m benchmarks.hostile_side KIND ADDRESS SECONDS` makes ready, writes a line, waits for
one, and then attacks until its time is over or its input ends. All that is sent is made before,
so that the attackers themselves take little of the processor.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from lace.api import SigningKey
from lace.base import b64a
from lace.exchange.blocks import format_block
from tests.hostile.kit import Gone, Peer, connect_to, operand_at

__all__ = ["CONNECTIONS", "KINDS"]

CONNECTIONS: Final = 8
KINDS: Final = ("product", "leaving", "bodies")
"""A product of invented hashes; long evaluations whose peer leaves; bodies of many atoms."""
PAUSE_SECONDS: Final = 0.2
"""Between two connections of one attacker."""
STAY_SECONDS: Final = 1.0
"""How long one that leaves lets its evaluation begin."""
MOST_CONNECTIONS: Final = 300
"""Connections of one attacker in all."""
_HASHES: Final = 60_000
_HAVE: Final = "SelectHave(P) :- Have(P).\n"
_PRODUCT: Final = (
    _HAVE + "SelectAdvertised(P,S) :- Advertised(P,S), Advertised(Q,S), TextShape(P,Q,'','x')."
)
_LONG: Final = (
    _HAVE + "SelectAdvertised(P,S) :- Advertised(P,S), Advertised(Q,S), Advertised(R,S), "
    "LexCompare(P,'<',Q), LexCompare(Q,'<',R), LexCompare(R,'<',P)."
)


def _bodies(rules: int, atoms: int) -> str:
    body = ", ".join(f"Have(X{number})" for number in range(atoms))
    made = "\n".join(f"Helper{rule}(X0) :- {body}." for rule in range(rules))
    return f"{_HAVE}SelectAdvertised(P,S) :- Advertised(P,S).\n{made}"


_SELECTORS: Final = {
    "product": (_PRODUCT,),
    "leaving": (_LONG,),
    "bodies": (_bodies(1, 5_000), _bodies(40, 1_000)),
}


class _Attacker:
    """One who connects again and again."""

    def __init__(self, kind: str, address: str, number: int) -> None:
        selectors = _SELECTORS[kind]
        self._kind, self._address = kind, address
        self._select = selectors[number % len(selectors)]
        operand_at(self._select, 0)
        self._key = SigningKey.generate()
        count = _HASHES if kind == "product" else _HASHES // 20
        source = str(self._key.verifier)
        invented = sorted(f"P.{b64a.encode(secrets.token_bytes(32))}.H3" for _ in range(count))
        self._claims = format_block([("Advertised", each, source) for each in invented])

    def attack(self, until: float) -> None:
        for _ in range(MOST_CONNECTIONS):
            if time.monotonic() >= until:
                return
            with suppress(OSError, Gone):
                self._attack_once(until)
            time.sleep(PAUSE_SECONDS)

    def _attack_once(self, until: float) -> None:
        peer = Peer(connect_to(self._address))
        try:
            peer.enter(self._select, key=self._key)
            peer.read_block()
            peer.send(self._claims)
            if self._kind == "leaving":
                time.sleep(STAY_SECONDS)
                return
            peer.connection.settimeout(max(0.1, until - time.monotonic()))
            peer.outcome()
        finally:
            peer.connection.close()


def main() -> None:
    """Attack, as the arguments say."""
    kind, address, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    attackers = [_Attacker(kind, address, number) for number in range(CONNECTIONS)]
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + seconds
    for attacker in attackers:
        threading.Thread(target=attacker.attack, args=(until,), daemon=True).start()
    sys.stdin.readline()  # its end: the measurement is over


if __name__ == "__main__":
    main()
