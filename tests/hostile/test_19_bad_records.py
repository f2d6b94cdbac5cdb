"""Case 19: a peer that answers every request with a record that is none.

Records with another hash, or with signatures that do not verify. Expected: each is counted as
rejected, and after a number of them the exchange ends; the server says so in one line, and
stores none of it. A record that is refused for its hash costs no signature.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from lace.api import SigningKey
from lace.errors import RecordError
from lace.record import seal, validate
from lace.record.model import Seal, seal_payload
from tests.cli.links import hashes, plex
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lace.record.model import Record
    from lace.record.seal import RandomBytes

pytestmark = pytest.mark.slow


def other_data(record: Record) -> bytes:
    return record.bytes[:-1] + b"y"


def as_it_is(record: Record) -> bytes:
    return record.bytes


def forged_seal(number: int, key: SigningKey) -> Seal:
    """A Seal with right hashes, and the signature of another."""
    inner, signature = plex(f"forged/{number}"), plex(f"other/{number}").seal(key).signature
    made = Seal.__new__(Seal)  # its constructor refuses the signature
    made._set(plex=inner, signed_by=key.verifier, signature=signature)
    made._identify("S", seal_payload(key.verifier, signature, inner.bytes))
    return made


def true_seal(number: int, key: SigningKey) -> Seal:
    return plex(f"bad/{number}").seal(key)


def no_group(record: Record) -> bytes:
    return record.bytes.replace(b"Group: ", b"Grope: ")


@pytest.mark.requirement("050-225", "050-228")
@pytest.mark.parametrize(
    ("make", "spoil"), [(true_seal, other_data), (forged_seal, as_it_is)], ids=["hash", "signature"]
)
def test_floods_of_bad_records(
    tmp_path: Path, make: Callable[[int, SigningKey], Seal], spoil: Callable[[Record], bytes]
) -> None:
    key = SigningKey.generate()
    made = [make(number, key) for number in range(300)]
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


@pytest.mark.requirement("050-225")
def test_signatures_are_checked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of records whose hash or structure is wrong no signature is verified, of others each is."""
    key = SigningKey.generate()
    made = {make: [make(number, key) for number in range(100)] for make in (true_seal, forged_seal)}
    verified: list[int] = []

    def verify_many(
        items: Sequence[tuple[bytes, bytes, bytes]], random_bytes: RandomBytes
    ) -> list[bool]:
        verified.append(len(items))
        return seal.verify_many(items, random_bytes)

    monkeypatch.setattr(validate, "verify_many", verify_many)
    cases = ((true_seal, other_data, 0), (true_seal, no_group, 0), (forged_seal, as_it_is, 100))
    for make, spoil, count in cases:
        verified.clear()
        raws = [validate.frame_record(spoil(record)) for record in made[make]]
        outcomes = validate.validate_many(raws, secrets.token_bytes)
        assert all(isinstance(each, RecordError) for each in outcomes)
        assert sum(verified) == count, spoil.__name__
