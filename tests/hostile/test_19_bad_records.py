"""Case 19: a peer that answers every request with a record that is none.

Records with another hash, or with signatures that do not verify. Expected: each is counted as
rejected, and after a number of them the exchange ends; the server says so in one line, and
stores none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.api import SigningKey
from tests.cli.links import hashes, plex
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lace.record.model import Record

pytestmark = pytest.mark.slow


def other_data(record: Record) -> bytes:
    return record.bytes[:-1] + b"y"


def bad_signature(record: Record) -> bytes:
    at = record.bytes.index(b"Signature: ") + 20
    old = record.bytes[at : at + 1]
    return record.bytes[:at] + (b"A" if old != b"A" else b"B") + record.bytes[at + 1 :]


@pytest.mark.requirement("050-225", "050-228")
@pytest.mark.parametrize("spoil", [other_data, bad_signature])
def test_floods_of_bad_records(tmp_path: Path, spoil: Callable[[Record], bytes]) -> None:
    key = SigningKey.generate()
    made: list[Record] = [plex(f"bad/{n}").seal(key) for n in range(300)]
    spoilt = {str(record.id): spoil(record) for record in made}
    with attacked(tmp_path, "--set", "max_rejected_records=100") as target:
        before = hashes(target.host)
        peer = target.connect()
        source = peer.enter()
        peer.read_block()
        peer.block([("Advertised", record, source) for record in sorted(spoilt)])
        wanted, _ = peer.read_block()
        assert len(wanted) == 300
        peer.block([])
        for fact in wanted:
            peer.send(spoilt[fact[1]] + b"\n")
        peer.send(b"\n")
        target.still_serves()
        peer.outcome()
        target.said("too many rejected records")
        assert before <= hashes(target.host)
        assert not hashes(target.host) & set(spoilt)
        assert len(target.server.errors.split("\n")) < 12, "one line for a link"
        peer.got = b""  # what it advertised itself may be named to it
