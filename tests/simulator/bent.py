"""Exchanges with a peer that does not hold to the rules: its items are bent on the way."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from lace.exchange import events as happened
from lace.exchange.capabilities import Capabilities
from tests.simulator.policies import EXPOSURES, SELECTORS, pool
from tests.simulator.side import Item
from tests.simulator.world import Plan, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lace.exchange.result import Outcome
    from lace.facts.lines import Fact

__all__ = ["Bend", "bent_world", "each_record", "first_block", "outcome_of"]

Bend: TypeAlias = "Callable[[Item], list[Item]]"


class _Bent(deque[Item]):
    """An inbox that bends what is put into it."""

    def __init__(self, bend: Bend) -> None:
        super().__init__()
        self._bend = bend

    def append(self, item: Item) -> None:
        super().extend(self._bend(item))

    def __iadd__(self, items: Iterable[Item]) -> _Bent:
        for item in items:
            self.append(item)
        return self


def first_block(
    name: str, change: Callable[[tuple[Fact, ...]], Iterable[Fact]], *, count: int = 1
) -> Bend:
    """Bend the first blocks that have a fact of a predicate."""
    left = count

    def bend(item: Item) -> list[Item]:
        nonlocal left
        if not isinstance(item, happened.BlockReceived) or not left:
            return [item]
        if not any(fact[0] == name for fact in item.facts):
            return [item]
        left -= 1
        return [replace(item, facts=tuple(change(item.facts)))]

    return bend


def each_record(change: Callable[[bytes], list[Item]]) -> Bend:
    """Bend the bytes of records."""
    return lambda item: change(item) if isinstance(item, bytes) else [item]


def bent_world(
    bend: Bend,
    *,
    mode: int = 2,
    selector: str = "group",
    is_open: bool = False,
    ours: slice = slice(0, 12),
    theirs: slice = slice(8, 28),
    means: Capabilities | None = None,
) -> World:
    """A world whose first side gets what the second sends bent."""
    chosen = next(each for each in SELECTORS if each.name == selector)
    each = replace(means or Capabilities(), mode=mode)
    plan = Plan(
        selectors=(chosen, chosen),
        exposures=(EXPOSURES[0], EXPOSURES[0]),
        capabilities=(each, each),
        has_keys=(True, True),
        is_open=(is_open, is_open),
    )
    world = World(plan, random.Random(5))
    for kept, part in zip(world.kept, (ours, theirs), strict=True):
        kept.store.update({record.hash_text: record for record in pool()[part]})
    world.connect()
    for side in world.sides:
        side.is_strict = False
        side.is_trusting = False
    world.sides[0].inbox = _Bent(bend)
    return world


def outcome_of(bend: Bend, **means: object) -> Outcome:
    """How an exchange ends for the side whose peer is bent."""
    world = bent_world(bend, **means)  # type: ignore[arg-type]
    world.run()
    found = world.sides[0].outcome
    assert found is not None, world.sides[0].machine.state
    return found
