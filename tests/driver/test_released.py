"""Links that have ended hold nothing: no search for garbage is needed to free what they had."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest

import lace
from lace.driver.party import Party
from lace.engines.embedded.factbase import FactBase
from lace.interlacing.loops import Loops
from tests.cli.links import EXPOSE_ALL, plex
from tests.cli.policies import ALL
from tests.cli.running import process
from tests.hostile.kit import Peer, connect_to

if TYPE_CHECKING:
    from pathlib import Path

KINDS = (Party, Loops, FactBase)


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
                found = [each for each in gc.get_objects() if isinstance(each, KINDS)]
                while found and time.monotonic() < deadline:  # a thread is just ending
                    time.sleep(0.05)
                    found = [each for each in gc.get_objects() if isinstance(each, KINDS)]
                assert not found
        finally:
            gc.enable()
