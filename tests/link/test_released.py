"""Links that have ended hold nothing: no search for garbage is needed to free what they had."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest

import lace
from lace.engine.factbase import FactBase
from lace.exchange.machine import Loops
from lace.link.party import Party
from tests.cli.links import EXPOSE_ALL, plex
from tests.cli.policies import ALL
from tests.cli.running import process
from tests.hostile.kit import Peer, connect_to

if TYPE_CHECKING:
    from pathlib import Path

KINDS = (Party, Loops, FactBase)


def held(*, but: list[object]) -> list[object]:
    """What is in memory of these kinds, and not held by other tests of this process."""
    known = {id(each) for each in but}
    # Not by isinstance: it asks a weak reference for its object, which may be gone.
    found = [each for each in gc.get_objects() if issubclass(type(each), KINDS)]
    return [each for each in found if id(each) not in known]


@pytest.mark.parametrize("ending", ["done", "left"])
def test_what_a_link_had_is_free_at_its_end(tmp_path: Path, ending: str) -> None:
    policy = lace.Policy(select=ALL, exposures=[EXPOSE_ALL])
    (tmp_path / "all.lace").write_text(ALL)
    with lace.open(tmp_path / "b"):
        pass
    with lace.open(tmp_path / "a") as here:
        here.keys.add(lace.SigningKey.generate())
        here.add_all([plex(f"{number}") for number in range(20)])
        gc.collect()
        before = held(but=[])
        gc.disable()
        try:
            with lace.serve("tcp:127.0.0.1:0", here, policy) as serving:
                if ending == "done":
                    rules = ("--select", tmp_path / "all.lace", "--lace", tmp_path / "b")
                    done = process("sync", serving.address, *rules)
                    assert done.code == 0, done.err
                else:
                    peer = Peer(connect_to(serving.address))
                    peer.enter()
                    peer.read_block()
                    peer.connection.close()
                deadline = time.monotonic() + 30
                while len(serving.served) < 1 or serving.links:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                while held(but=before) and time.monotonic() < deadline:  # a thread is just ending
                    time.sleep(0.05)
                assert not held(but=before)
        finally:
            gc.enable()
