"""What is told of a link arrives in the event loop, in order."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lace.link.events import Announcer, LinkAgreed, PhaseBegan


@pytest.mark.requirement("050-207")
def test_what_another_thread_tells_is_heard_in_the_loop() -> None:
    terms: Any = SimpleNamespace(
        plan_id="E.x", peer=SimpleNamespace(verifier="V.x"), link_id="link"
    )
    heard: list[object] = []

    def hear(what: object) -> None:
        heard.append((what, threading.get_ident()))

    async def run() -> None:
        announcer = Announcer(hear, hear)
        await asyncio.to_thread(announcer.tell_phase, "setup")
        await asyncio.to_thread(announcer.tell_phase, "setup")  # the same phase: nothing new
        await asyncio.to_thread(announcer.agreed, terms)
        await asyncio.sleep(0)

    asyncio.run(run())
    here = threading.get_ident()
    agreed = LinkAgreed("E.x", "V.x", "link")
    assert heard == [(PhaseBegan("setup"), here), (terms, here), (agreed, here)]
