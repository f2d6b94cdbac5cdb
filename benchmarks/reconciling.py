"""Reconciliation against its targets: bytes and turns beside Negentropy's, and the sets' own time.

Bytes are those of all blocks of the advertise phase, of both sides together, as they are on
the wire; turns are counted until both sides know what the other has. Negentropy's figures
were measured once, with the same numbers of records.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.measure import cpu_of
from benchmarks.reconciling_sides import (
    Side,
    World,
    bare_world,
    records,
    run_sides,
    world_of_fields,
)
from benchmarks.results import Row
from lace.exchange.advertisement import digests_of_bare
from lace.exchange.advertisement_set import AdvertisementSet

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["benchmark_reconciling", "benchmark_reconciling_fields", "benchmark_reconciling_sets"]

NEGENTROPY: Final = {
    (100_000, 0): 338,
    (100_000, 10): 14_600,
    (100_000, 1_000): 801_000,
    (1_000_000, 10): 19_500,
    (1_000_000, 1_000): 1_370_000,
}
MOST_SAME: Final = 500
ROUND_TRIP: Final = 2
"""Turns of a round trip: in each, both sides send one block."""
RECORD_BYTES: Final = 600
FULL_SIZE: Final = 1_000_000
FEW: Final = 100


@dataclass(frozen=True)
class _Case:
    """How two sets differ: so many records on each side alone."""

    name: str
    ours: int
    theirs: int


@dataclass(frozen=True)
class _Way:
    """How two sides reconcile: the mode, whether they know each other, and the target."""

    name: str
    mode: int
    has_cursors: bool = False
    most: float | None = None
    most_turns: float = math.inf


FIRST: Final = _Way("first contact, mode 2", 2, most=1.1)
CURSORS: Final = _Way("with cursors", 2, has_cursors=True, most=0.2, most_turns=ROUND_TRIP)
PLAIN: Final = _Way("first contact, mode 1", 1)


def _cases(differing: int) -> list[_Case]:
    if not differing:
        return [_Case("none differs", 0, 0)]
    half = differing // 2
    return [
        _Case(f"{differing:,} differ, half on each side", half, differing - half),
        _Case(f"{differing:,} differ, all on the connecting side", differing, 0),
        _Case(f"{differing:,} differ, all on the accepting side", 0, differing),
    ]


def _differing(size: int) -> list[int]:
    return sorted({0, 10, 1_000, size // 10})


def benchmark_reconciling(sizes: tuple[int, ...]) -> list[Row]:
    """Show bytes and turns without fields."""
    rows: list[Row] = []
    for size in sizes:
        world = bare_world(size)
        for differing in _differing(size):
            known = NEGENTROPY.get((size, differing))
            told = f", Negentropy {_size(known)}" if known else ""
            for case in _cases(differing):
                name = f"{size:,} records, {case.name}{told}"
                for way in _ways(size, differing, case):
                    turns, sent = run_sides(*_sides(world, case, way))
                    rows.append(_row(f"{name}: {way.name}", way, turns, sent, known))
    return rows


def _ways(size: int, differing: int, case: _Case) -> Iterator[_Way]:
    """Yield what to try: all, but for large and one-sided cases, which take long."""
    if case.ours != case.theirs:
        if (size, differing) in NEGENTROPY and size < FULL_SIZE:
            yield FIRST
        return
    yield CURSORS
    yield FIRST
    if size < FULL_SIZE:
        yield PLAIN


def _row(name: str, way: _Way, turns: int, sent: int, known: int | None) -> Row:
    measured = f"{_size(sent)}, {_turns(turns)}"
    if way.most is None:
        return Row(name, measured)
    if turns == 1:
        return Row(name, measured, f"< {MOST_SAME} B", sent < MOST_SAME)
    if known is None:
        return Row(name, measured)
    measured += f", {sent / known:.2f} ×"
    met = sent <= way.most * known and turns <= way.most_turns
    target = f"≤ {way.most:g} ×"
    return Row(name, measured, f"{target}, {ROUND_TRIP} turns" if way is CURSORS else target, met)


def _sides(world: World, case: _Case, way: _Way) -> tuple[Side, Side]:
    source = random.Random(case.ours + 7 * case.theirs)
    more = records(source, case.ours), records(source, case.theirs)
    first, second = (
        Side(world, index, more[index], mode=way.mode, has_cursor=way.has_cursors)
        for index in (0, 1)
    )
    return first, second


def benchmark_reconciling_fields(sizes: tuple[int, ...]) -> list[Row]:
    """Show the same with four fields, where advertisements outweigh the records."""
    rows: list[Row] = []
    for size in sizes:
        world = world_of_fields(size)
        if not rows:
            told = f"{world.advertisement_bytes} B, {RECORD_BYTES} B"
            rows.append(Row("an advertisement, a record", told))
        rows += _rows_of_fields(size, world)
    return rows


def _rows_of_fields(size: int, world: World) -> list[Row]:
    rows: list[Row] = []
    for differing in _differing(size):
        case = _cases(differing)[0]
        for way in (FIRST, CURSORS):
            turns, sent = run_sides(*_sides(world, case, way))
            measured = f"{_size(sent)}, {_turns(turns)}"
            if differing:
                measured += f", {sent / differing / RECORD_BYTES:.1f} × the records"
            rows.append(Row(f"{size:,} records, {case.name}: {way.name}", measured))
    return rows


def benchmark_reconciling_sets(size: int) -> list[Row]:
    """Show what a set costs: to build, to summarise, and to keep up to date."""
    source = random.Random(1)
    names = records(source, size)
    digests = digests_of_bare(names, "S")
    made: list[AdvertisementSet] = []
    building = cpu_of(lambda: made.append(AdvertisementSet.of(names, digests)))
    whole = made[0]
    first = cpu_of(lambda: whole.root(""))
    children = cpu_of(lambda: whole.children(""))
    below = cpu_of(lambda: whole.children("a"))
    more = records(source, FEW)
    further = digests_of_bare(more, "S")
    changing = cpu_of(lambda: made.append(whole.changed(more, further, names[:FEW])))
    again = cpu_of(lambda: made[1].root(""))
    children_again = cpu_of(lambda: made[1].children("a"))
    difference = cpu_of(lambda: made[1].difference(whole))
    return [
        Row("memory of a set", f"{whole.held_bytes / size:.0f} bytes a record"),
        Row("building it from hashes and digests", f"{building:.2f} s"),
        Row("its root, with the leaves", f"{first:.2f} s"),
        Row("the roots of its 64 partitions", f"{children:.2f} s"),
        Row("the roots of the 64 partitions of one of them", f"{below * 1e3:.1f} ms"),
        Row(f"{FEW} records come and {FEW} go", f"{changing * 1e3:.1f} ms"),
        Row("the root after that", f"{again:.2f} s"),
        Row("the roots of the 64 partitions of one of them", f"{children_again * 1e3:.1f} ms"),
        Row("the difference of both sets", f"{difference:.2f} s"),
    ]


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} B"
    if count < 1_000_000:
        return f"{count / 1e3:.1f} kB"
    return f"{count / 1e6:.2f} MB"
