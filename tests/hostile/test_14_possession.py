"""Case 14: a peer that wants to know whether this side has a record.

It requests a record that was not advertised to it: one that is here and hidden, and one that
is nowhere. Expected: both end the exchange in the same way, with the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.links import hashes, plex
from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_hidden_and_absent_are_alike(tmp_path: Path) -> None:
    with attacked(tmp_path) as target:
        hidden = sorted(hashes(target.host))[0]
        absent = str(plex("nowhere").id)
        answers = []
        for count, record in enumerate((hidden, absent), 1):
            peer = target.connect()
            peer.enter()
            listing, _ = peer.read_block()
            assert listing == []
            peer.block([])
            requests, _ = peer.read_block()
            peer.block([("MayRequest", record)])
            answers.append((requests, peer.outcome()))
            target.said("request outside the send set", count)
        assert answers[0] == answers[1] == ([], b"")
        lines = [line for line in target.server.errors.split("\n") if "send set" in line]
        assert not any(hidden in line or absent in line for line in lines)
