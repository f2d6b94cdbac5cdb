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
    stored: list[Any] = []
    party: Any = SimpleNamespace(
        machine=SimpleNamespace(state=SimpleNamespace(phase="setup")), tell_stored=stored.append
    )
    terms: Any = SimpleNamespace(
        plan_id="E.x", peer=SimpleNamespace(verifier="V.x"), link_id="link"
    )
    announcer = Announcer(party)
    heard: list[object] = []
    announcer.agreed = lambda what: heard.append((what, threading.get_ident()))
    announcer.hear = lambda what: heard.append((what, threading.get_ident()))
    party.agreed(terms)  # nobody's loop runs yet, so nobody is told

    async def run() -> None:
        announcer.begin(asyncio.get_running_loop())
        await asyncio.to_thread(announcer.tell_phase)
        await asyncio.to_thread(announcer.tell_phase)  # the same phase: nothing new
        await asyncio.to_thread(party.agreed, terms)
        await asyncio.sleep(0)

    asyncio.run(run())
    here = threading.get_ident()
    agreed = LinkAgreed("E.x", "V.x", "link")
    assert heard == [(PhaseBegan("setup"), here), (terms, here), (agreed, here)]
    assert len(stored) == 1
