"""Case 12: a peer that says again what somebody else said.

It has captured all that an honest peer sent, and sends it to the same server on a new
connection. Expected: "signer without valid proof", because both sides' nonces are in a proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lace.transport.capture import read_capture
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.mark.requirement("050-98")
def test_a_captured_direction(tmp_path: Path) -> None:
    file = tmp_path / "captured"
    with attacked(tmp_path) as target:
        done = target.honest.sync(target.host, target.server.address, "--capture", file)
        assert done.code == 0, done.err
        (pieces,) = read_capture(file.read_text("utf-8").split("\n")[:-1], "captured")
        said = b"".join(piece for direction, piece in pieces if direction == ">")
        assert b"HelloProof" in said
        peer = target.connect()
        peer.send(said)
        peer.outcome()
        target.said("signer without valid proof")
        assert b"\nAdvertise" not in peer.got, "the server says who it is, and no more"
