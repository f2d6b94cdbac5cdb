"""Streams for the tests: real identifiers, and readers driven to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.iltp.items import (
    NEED_MORE,
    PREFACE,
    PUZZLE_PIECE,
    Blank,
    NeedMore,
    Preface,
    StreamEnd,
    StreamError,
)
from lace.iltp.reader import Reader
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan
from lace.record.model import Blob, Plex
from lace.record.seal import SigningKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.iltp.items import Event

RULES = b"SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S)."
OTHER_RULES = b"SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S), Peer(S)."
R = operand_of(RULES, 0).module_id
OTHER_R = operand_of(OTHER_RULES, 1).module_id
PLAN = make_plan(operand_of(RULES, 0), operand_of(OTHER_RULES, 1))
KEY = SigningKey(b"\x01" * 32, lambda size: b"\x5a" * size)
BLOB = Blob(b"hello world").bytes
PLEX = Plex(group="u", app="a", name="n", tai="1700000037:000000000", data=b"a\n\n\xf0\x9f").bytes
SEAL = Plex(group="u", app="a", name="é", tai="1700000037:000000000", data=BLOB).seal(KEY).bytes


def resource(identifier: str = R, body: bytes = RULES, kind: str = "lacegram") -> bytes:
    return b"%b%b %b\n%b\n\n" % (PUZZLE_PIECE, identifier.encode(), kind.encode(), body)


PLAN_RESOURCE = resource(PLAN.id, PLAN.transcript_bytes, "exchange-plan")
SETUP = f"ExchangeOperand('0','{R}','Opq_0','selector')\n".encode()
HEAD = PREFACE + b"A('x')\n\n"
"""A stream up to the end of its first block; records may follow if a batch is expected."""


def events(
    pieces: Iterable[bytes] | bytes,
    *,
    batches: bool = True,
    reader: Reader | None = None,
    end: bool = True,
) -> list[Event | tuple[object, ...]]:
    """All events of a stream; an error is the last one, as a tuple.

    With `batches`, the first block is a block of facts and all others are batches.
    """
    reader = Reader() if reader is None else reader
    found: list[Event | tuple[object, ...]] = []
    try:
        for piece in [pieces] if isinstance(pieces, bytes) else pieces:
            reader.feed(piece)
            _drain(reader, found, batches=batches)
        if end:
            reader.end()
            _drain(reader, found, batches=batches)
    except StreamError as error:
        found.append((error.fault, error.offset, error.rule, str(error)))
    return found


def _drain(reader: Reader, found: list[Event | tuple[object, ...]], *, batches: bool) -> None:
    while (event := reader.next_event()) is not NEED_MORE:
        assert not isinstance(event, NeedMore)
        found.append(event)
        if isinstance(event, StreamEnd):
            return
        if batches and isinstance(event, Blank):
            reader.expect(batch=True)
        if isinstance(event, Preface):
            assert event.offset == 0


def refusal(raw: bytes, *, batches: bool = True) -> StreamError:
    """The error that a stream ends with."""
    reader = Reader()
    reader.feed(raw)
    reader.end()
    found: list[Event | tuple[object, ...]] = []
    try:
        _drain(reader, found, batches=batches)
    except StreamError as error:
        return error
    raise AssertionError(f"accepted: {found}")
