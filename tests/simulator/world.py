"""A simulated world: two sides and what is between them, all of it out of one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lace.base.tai import Tai
from lace.exchange import events as happened
from lace.exchange.capabilities import SECOND, Capabilities, ExchangeLimits, MachineConfig
from lace.exchange.transitions import State
from lace.policy.schema import ALL_FIELDS, Schema
from tests.simulator.policies import (
    ALICE,
    BOB,
    EXPOSURES,
    SELECTORS,
    START,
    Selector,
    exposure,
    operand,
    pool,
)
from tests.simulator.side import Kept, Side

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_STEPS = 6_000


@dataclass
class Plan:
    """What a seed chose for both sides."""

    selectors: tuple[Selector, Selector]
    exposures: tuple[str, str]
    capabilities: tuple[Capabilities, Capabilities]
    has_keys: tuple[bool, bool]
    is_plain: tuple[bool, bool] = (False, False)
    is_open: tuple[bool, bool] = (False, False)
    skews: tuple[int, int] = (0, 0)
    is_known: tuple[bool, bool] = (False, False)
    """Whether the transport proves each side to the other."""
    is_claiming: tuple[bool, bool] = (False, False)
    """Whether a side without a key claims what the transport proves of it."""
    lowering: str = "standard-v1"
    deferrals: int = 0
    """How many request lists each side may defer whole."""


@dataclass
class World:
    """Two sides; `step` lets one thing happen."""

    plan: Plan
    rnd: random.Random
    kept: tuple[Kept, Kept] = field(default_factory=lambda: (Kept(), Kept()))
    clock: int = START * SECOND
    sides: tuple[Side, Side] = field(init=False)
    is_cut: bool = False
    patience: int = 25
    """How often stores are changed at most: without an end, an exchange need not end."""

    def connect(self) -> None:
        """Begin an exchange with what both sides have kept."""
        self.is_cut = False
        made = []
        for index, key in enumerate((ALICE, BOB)):
            plan = self.plan
            other = (ALICE, BOB)[1 - index].verifier
            config = MachineConfig(
                operand=operand(plan.selectors[index].rules, index),
                exposures=(exposure(plan.exposures[index]),),
                capabilities=plan.capabilities[index],
                random_bytes=random.Random(self.rnd.getrandbits(32)).randbytes,
                lowering=plan.lowering,
                key=key if plan.has_keys[index] else None,
                claim=key.verifier if plan.is_claiming[index] else None,
                transport_peer=other if plan.is_known[1 - index] else None,
                is_open=plan.is_open[index],
                is_plain=plan.is_plain[index],
                cursors=dict(self.kept[index].cursors),
            )
            made.append(Side(config, self.kept[index], self.rnd, "AB"[index]))
            made[-1].deferrals = plan.deferrals
        a, b = made
        a.peer, b.peer = b, a
        self.sides = a, b
        for side in self.sides:
            side.happen(happened.Started(), self.now(side))

    def now(self, side: Side) -> Tai:
        """The time on a side's clock."""
        skew = self.plan.skews[0 if side.name == "A" else 1]
        seconds, rest = divmod(self.clock + skew, SECOND)
        return Tai(f"{seconds:010d}:{rest:09d}")

    @property
    def is_over(self) -> bool:
        """Whether both sides have closed and nothing is left to do."""
        return all(side.machine.is_closed and side.is_quiet for side in self.sides)

    def step(self) -> bool:
        """Let one thing happen, whichever; tells whether anything could."""
        self.clock += self.rnd.randrange(2_000_000)
        choices: list[Callable[[], object]] = []
        for side in self.sides:
            now = self.now(side)
            if not side.is_quiet:
                choices.append(lambda side=side, now=now: side.work(now))  # type: ignore[misc]
            if side.inbox and (side.inbox[0] == "end" or side.machine.takes_input):
                choices.append(lambda side=side, now=now: side.take(now))  # type: ignore[misc]
            if side.alarm is not None and now >= side.alarm:
                choices.append(lambda side=side, now=now: self._wake(side, now))  # type: ignore[misc]
        if not choices:
            return False
        self.rnd.choice(choices)()
        return True

    def _wake(self, side: Side, now: Tai) -> None:
        side.alarm = None
        side.happen(happened.Woken(), now)

    def settle(self, between: Callable[[], None] = lambda: None) -> None:
        """Let things happen until nothing more does."""
        for _ in range(MOST_STEPS):
            between()
            if not self.step():
                return
        raise AssertionError("it does not come to an end")

    def run(self) -> None:
        """Let things happen in a fixed order until nothing more does."""
        for _ in range(MOST_STEPS):
            moved = False
            for side in self.sides:
                while not side.is_quiet:
                    side.work(self.now(side))
                    moved = True
                moved = side.take(self.now(side)) or moved
            if not moved:
                return
        raise AssertionError("it does not come to an end")

    def wait(self, seconds: int) -> None:
        """Let time pass, and everything that comes of it happen."""
        until = self.clock + seconds * SECOND
        while self.clock < until:
            self.clock = min(until, self.clock + SECOND)
            self.settle()

    def cut(self) -> None:
        """Break the link: of what is under way, only a part arrives."""
        self.is_cut = True
        for side in self.sides:
            kept = self.rnd.randrange(len(side.inbox) + 1)
            while len(side.inbox) > kept:
                side.inbox.pop()
            side.inbox.append("end")

    def disturb(self) -> None:
        """Let somebody else store or remove a record on one side."""
        side = self.rnd.choice(self.sides)
        if side.machine.is_closed or not side.may_change or not self.patience:
            return
        self.patience -= 1
        only_here = [each for name, each in side.store.items() if name not in side.peer.store]
        record = self.rnd.choice(only_here if only_here and self.rnd.random() < 0.5 else pool())
        if record.hash_text in side.store:
            del side.store[record.hash_text]
        else:
            side.store[record.hash_text] = record
        side.happen(happened.Changed(), self.now(side))

    def renew(self) -> None:
        """Give one side another operand, or other exposures."""
        if not self.patience:
            return
        self.patience -= 1
        side = self.rnd.choice(self.sides)
        index = 0 if side.name == "A" else 1
        selector = self.rnd.choice(self.plan.selectors)
        shown = self.rnd.choice(EXPOSURES)
        event = happened.Renewed(operand(selector.rules, index), (exposure(shown),))
        side.happen(event, self.now(side))

    # -- what must hold ------------------------------------------------------------------------

    def check_fixed_point(self) -> None:
        """Nothing is requestable, advertised, missing and sendable at once (050-10)."""
        a, b = self.sides
        assert not a.requestable() & b.sendable()
        assert not b.requestable() & a.sendable()

    def check_advertised(self) -> None:
        """What was advertised last is what may be sent now: nothing was left unsaid (G47)."""
        for side in self.sides:
            loops = side.machine._loops
            assert loops is not None
            assert side.sendable() == set(loops.states.own)

    def check_accounts(self) -> None:
        """What was asked for was answered, or deferred; what was stored was asked for."""
        for side in self.sides:
            outcome = side.outcome
            assert outcome is not None
            counters = outcome.counters
            assert counters.requested >= len(side.asked)
            if outcome.is_clean:
                assert counters.requested == len(side.asked)
                assert counters.answered == len(side.answered)
                assert counters.stored + len(outcome.rejected) <= counters.answered
            assert set(outcome.received) <= set(side.asked)
            assert not outcome.rejected, "honest records are taken"


def some_limits(rnd: random.Random, *, is_listing: bool) -> ExchangeLimits:
    """Limits, small and large; a full listing needs room for all."""
    return ExchangeLimits(
        max_fact_block_size=rnd.choice((2**20, 64 * 2**20)),
        max_advertisement_records_listed=rnd.choice((40 if is_listing else 2, 100_000)),
        max_narrowing_depth=rnd.choice((4, 12)),
        max_loop_iterations=rnd.choice((3, 16)),
        service_budget_bytes=rnd.choice((0, 1, 900, 2**27)),
    )


def some_plan(rnd: random.Random, *, is_open: tuple[bool, bool] = (False, False)) -> Plan:
    """Whatever two sides may come with; always such that they can agree."""
    selectors = rnd.choice(SELECTORS), rnd.choice(SELECTORS)
    if rnd.random() < 0.4:
        selectors = selectors[0], selectors[0]
    schemas = [
        rnd.choice(
            (
                Capabilities(),
                Capabilities(offer_all=True),
                Capabilities(
                    schema=Schema(names=frozenset({"Group", "App", "Name", "TAI", "Signed-By"})),
                    offer_all=True,
                ),
            )
        )
        for _ in range(2)
    ]
    if any(each.name == "any value" for each in selectors):
        schemas = [replace(each, schema=ALL_FIELDS) for each in schemas]
    modes = [rnd.choice((0, 1, 2, 2, 2)) for _ in range(2)]
    is_listing = 0 in modes
    # Intervals below a second are accepted, and the longer one counts (X2).
    intervals = [rnd.choice((SECOND // 4, SECOND, 7 * SECOND, 10 * SECOND))]
    intervals.append(rnd.choice((1, 7, 10)) * SECOND)
    zero, one = (
        replace(
            each,
            limits=some_limits(rnd, is_listing=is_listing),
            mode=modes.pop(),
            formats=rnd.choice((frozenset({"H3"}), frozenset({"H3", "H9"}))),
            tick_interval=intervals.pop(),
        )
        for each in schemas
    )
    most_loops = min(each.limits.max_loop_iterations for each in (zero, one))
    has_keys = rnd.random() < 0.8, rnd.random() < 0.8
    is_known = rnd.random() < 0.3, rnd.random() < 0.3
    is_claiming = [
        known and not has_key and rnd.random() < 0.5
        for known, has_key in zip(is_known, has_keys, strict=True)
    ]
    # Without a nonce nothing can be signed, so that the transport has to prove what is claimed.
    can_be_plain = all(
        known or not has_key for known, has_key in zip(is_known, has_keys, strict=True)
    )
    return Plan(
        selectors=selectors,
        exposures=(rnd.choice(EXPOSURES), rnd.choice(EXPOSURES)),
        capabilities=(zero, one),
        has_keys=has_keys,
        is_plain=(can_be_plain and rnd.random() < 0.3, False),
        is_known=is_known,
        deferrals=rnd.choice((0, 0, 2)) if most_loops > 3 else 0,
        is_claiming=(is_claiming[0], is_claiming[1]),
        lowering=rnd.choice(("standard-v1", "standard-v1", "standard-v1", "proven-peer-v1")),
        is_open=is_open,
        skews=(0, rnd.choice((0, -3, 40, 299)) * SECOND),
    )


def some_world(seed: int, *, is_open: tuple[bool, bool] = (False, False)) -> World:
    """A world out of a seed, its stores filled."""
    rnd = random.Random(seed)
    world = World(some_plan(rnd, is_open=is_open), rnd)
    share = rnd.choice((0.0, 0.2, 0.5, 0.9))
    for kept in world.kept:
        chosen = [each for each in pool() if rnd.random() < share]
        kept.store.update({each.hash_text: each for each in chosen})
        share = rnd.choice((share, 0.4))
    return world


def is_waiting(world: World) -> bool:
    """Whether both sides wait for something new."""
    return all(side.machine.state is State.WAITING for side in world.sides)
