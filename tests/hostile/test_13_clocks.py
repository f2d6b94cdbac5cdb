"""Case 13: a peer whose clock would open a policy that is gated by time.

It says that it is some minutes later, or wants ticks that never come. Expected: an abort before
anything is evaluated, because StartTAI would be the larger of two claims. Ticks faster than any
clock harm nobody: the longer interval of the two counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.hostile.kit import attacked

if TYPE_CHECKING:
    from pathlib import Path

    from lace.exchange.hello import Hello

pytestmark = pytest.mark.slow


def far_ahead(hello: Hello) -> Hello:
    return replace(hello, tai=hello.tai.shift(301_000_000_000))


def far_behind(hello: Hello) -> Hello:
    return replace(hello, tai=hello.tai.shift(-301_000_000_000))


def no_interval(hello: Hello) -> Hello:
    return replace(hello, tick_interval=0)


def short_interval(hello: Hello) -> Hello:
    return replace(hello, tick_interval=1)


def endless_interval(hello: Hello) -> Hello:
    return replace(hello, tick_interval=2**63 - 1)


@pytest.mark.requirement("050-108", "050-109")
def test_clocks(tmp_path: Path) -> None:
    with attacked(tmp_path) as target:
        for count, lie in enumerate((far_ahead, far_behind), 1):
            peer = target.connect()
            peer.block(lie(peer.meet()).facts)
            assert peer.outcome() == b""
            target.said("clocks too far apart", count)
        for count, lie in enumerate((no_interval, endless_interval), 1):
            peer = target.connect()
            peer.block(lie(peer.meet()).facts)
            assert peer.outcome() == b""
            target.said("tick interval outside the supported range", count)
        assert "advertise" not in target.server.errors
        peer = target.connect()
        peer.block(short_interval(peer.meet()).facts)
        assert peer.read_block() == ([], {}), "it goes on, with an empty listing"
