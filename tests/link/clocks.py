"""Two laces with an open exchange between them, and clocks that a test moves."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import lace
from lace.exchange import effects as wanted
from lace.link.client import LinkOptions
from lace.link.events import PartyObserver
from lace.link.side import Side, party_of
from tests.link.pairing import OpenPair

if TYPE_CHECKING:
    from collections.abc import Iterator

START = lace.Tai("1640995200:000000000")
SECOND = 1_000_000_000
SOON = 30.0
"""Long enough for whatever has to happen; only a hang takes all of it."""


def after(seconds: float) -> lace.Tai:
    """The instant that many seconds after the start."""
    return START.shift(round(seconds * SECOND))


class Clock:
    """A wall clock that stands still unless it is set."""

    def __init__(self, seconds: float = 0) -> None:
        self.at = after(seconds)

    def __call__(self) -> lace.Tai:
        return self.at

    def set(self, seconds: float) -> None:
        """Show another time, earlier or later."""
        self.at = after(seconds)


class Told(PartyObserver):
    """What one side said and evaluated with, in order."""

    def __init__(self) -> None:
        self.ticks: list[lace.Tai] = []
        """The tick of every evaluation."""
        self.local: list[lace.Tai] = []
        """What exposures could read as the clock."""
        self.ready: list[str] = []
        """The ticks that were announced."""
        self.batches: list[wanted.SendBatch] = []

    def done(self, effect: wanted.Effect, answer: object) -> None:
        """Take note of an effect."""
        match effect:
            case wanted.Evaluate():
                self.ticks.append(effect.tick)
                self.local.append(effect.local)
            case wanted.SendBlock():
                self.ready += [fact[1] for fact in effect.facts if fact[0] == "TickReady"]
            case wanted.SendBatch() if effect not in self.batches:
                self.batches.append(effect)


@contextmanager
def exchanging(
    sides: tuple[lace.Lace, lace.Lace],
    policies: tuple[lace.Policy, lace.Policy],
    clocks: tuple[Clock, Clock],
    *,
    is_open: tuple[bool, bool] = (True, True),
    settings: tuple[dict[str, object], dict[str, object]] = ({}, {}),
) -> Iterator[tuple[OpenPair, tuple[Told, Told]]]:
    """Run the exchange, through handles of its own, until the end of the block."""
    with ExitStack() as stack:
        here = [
            stack.enter_context(lace.open(each.store.folder, settings=given))
            for each, given in zip(sides, settings, strict=True)
        ]
        told = Told(), Told()
        left, right = (
            party_of(
                Side(each.store, each.settings, policies[at], each.signing_key()),
                at,
                clocks[at],
                LinkOptions(is_open=is_open[at]),
                observer=told[at],
            )
            for at, each in enumerate(here)
        )
        made = OpenPair(left, right)
        try:
            yield made, told
        finally:
            made.stop(SOON)
        assert made.error is None
