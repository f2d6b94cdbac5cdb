"""Blocks: control facts of every phase, up to a reconciliation that a peer's lines lead.

The first byte chooses the phase, the others are lines; a blank line is the end of a turn.
Only `InterlaceFailure` comes out, and every failure has a rule.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fuzz.harness import Target
from lace.base import b64a
from lace.exchange.advertisement import Advertisement
from lace.exchange.advertisement_set import AdvertisementSet
from lace.exchange.blocks import Phase, advertise_phase, format_block, parse_block
from lace.exchange.failures import InterlaceFailure
from lace.exchange.hello import read_hello, read_setup
from lace.exchange.reconcile import Reconciliation
from lace.exchange.summaries import InquiryLimits, children_fact, partition_fact
from lace.policy.schema import Schema

if TYPE_CHECKING:
    from lace.facts.lines import Fact

__all__ = ["TARGET"]

_OURS, _THEIRS = "V." + "A" * 42 + "0.H3", "V." + "B" * 42 + "0.H3"
_LIMITS = InquiryLimits(listed=200, summaries=16_384, depth=12, block_bytes=1 << 20)
_PHASES = list(Phase)
_SCHEMA = Schema(names=frozenset({"Group"}))
_MOST_TURNS = 20


def _records(count: int) -> list[str]:
    chance = random.Random(5)
    return [f"{chance.choice('BPS')}.{b64a.encode(chance.randbytes(32))}.H3" for _ in range(count)]


_CLAIMS = {record: Advertisement(record, (("Group", "0", "u"),)) for record in _records(90)}


def _set_of(source: str, *, most: int | None = None) -> AdvertisementSet:
    chosen = list(_CLAIMS.values())[:most]
    return AdvertisementSet.of(
        [each.record for each in chosen], [each.digest(source) for each in chosen]
    )


_OWN, _SAME, _OTHER = _set_of(_OURS, most=60), _set_of(_THEIRS, most=60), _set_of(_THEIRS)
_PIECES = (
    *(f"{name}(".encode() for name in ("Advertised", "AdvertisedField", "AdvertisementDelta")),
    *(format_block([("ListAdvertisementPartition", prefix)]) for prefix in ("", "A", "AB")),
    *(format_block([("NarrowAdvertisementPartition", prefix)]) for prefix in ("", "A")),
    *(b"')\n", b"','", b"0", b"\n\n", b"9" * 19, _THEIRS.encode(), b"TickReady('1700000000:0')\n"),
)


def _seeds() -> list[bytes]:
    """What an honest peer says, turn by turn, in each mode; and one setup and hello."""
    made = [bytes([0]) + b"ExchangeOperand('0','R." + b"0" * 43 + b"','','selector')\n\n"]
    hello = b"HelloRecordFormat('H3')\nHelloTAI('1700000000:000000000')\n"
    made.append(bytes([1]) + hello + b"HelloTickInterval('1000000000')\n\n")
    for mode in (0, 1, 2):
        ours = _reconciliation(mode, _OWN, (_OURS, _THEIRS))
        theirs = _reconciliation(mode, _OTHER, (_THEIRS, _OURS))
        raw = b""
        for _ in range(_MOST_TURNS):
            here, there = (
                each.block({record: _CLAIMS[record] for record in each.wanted()})
                for each in (ours, theirs)
            )
            raw += format_block(there)
            _receive(ours, there, _SAME)
            _receive(theirs, here, _set_of(_OURS))
            if ours.is_over:
                break
        made.append(bytes([len(_PHASES) + mode]) + raw)
    return made


def _reconciliation(
    mode: int, own: AdvertisementSet, sources: tuple[str, str], *, cursor: bool = False
) -> Reconciliation[AdvertisementSet]:
    known = _SAME if cursor else None
    return Reconciliation(mode, own, sources, _SCHEMA, _LIMITS, cursor=known)


def _receive(
    side: Reconciliation[AdvertisementSet], facts: list[Fact], relabelled: AdvertisementSet
) -> None:
    turn = side.turn
    side.receive(facts)
    if turn == 0 and side.mode:
        side.begin(relabelled if side.needs_relabelled else None)


def check(raw: bytes) -> None:
    """Everything that must hold for any bytes at all."""
    chosen, lines = raw[0] if raw else 0, raw[1:]
    try:
        if chosen < len(_PHASES):
            _read_block(_PHASES[chosen], lines)
        else:
            _reconcile(chosen - len(_PHASES), lines)
    except InterlaceFailure as failure:
        assert failure.rule, failure


def _read_block(phase: Phase, lines: bytes) -> None:
    block = parse_block(lines.split(b"\n"), phase)
    if phase is Phase.SETUP:
        read_setup(block, local_index=1)
    elif phase is Phase.HELLO:
        read_hello(block)


def _reconcile(chosen: int, lines: bytes) -> None:
    mode, cursor = chosen % 3, chosen % 2 == 1
    side = _reconciliation(mode, _OWN, (_OURS, _THEIRS), cursor=cursor)
    for turn, part in enumerate(lines.split(b"\n\n")[:_MOST_TURNS]):
        if side.is_over:
            assert isinstance(side.result, AdvertisementSet)
            return
        side.block({record: _CLAIMS[record] for record in side.wanted()})
        found = [line for line in part.split(b"\n") if line]
        block = parse_block(found, advertise_phase(mode, turn))
        _receive(side, list(block), _SAME)


def _summaries() -> tuple[bytes, ...]:
    return tuple(
        format_block([fact]) for fact in (partition_fact(_OTHER, ""), children_fact(_OTHER, ""))
    )


TARGET = Target(name="blocks", check=check, seeds=_seeds, pieces=(*_PIECES, *_summaries()))
