"""Traces of a simulated exchange as text: what happened to a side, when, and what it did.

Saved, read and replayed, such a trace gives every effect again. A line is a JSON list of the
event, the time and the effects; the first one names the seed that the side is made of.
"""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from lace.base.tai import Tai
from lace.exchange import effects as wanted
from lace.exchange import events as happened
from lace.exchange.advertisement import Advertisement
from lace.exchange.blocks import format_block
from lace.exchange.machine import Machine
from lace.record.reader import RawRecord
from lace.record.validate import ValidRecord, frame_record, validate_many
from tests.simulator.world import some_world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulator.side import Side
    from tests.simulator.world import World

__all__ = ["begin", "replay", "save"]


def begin(seed: int) -> World:
    """Begin an open exchange whose sides' randomness a reader of the trace can have again."""
    world = some_world(seed, is_open=(True, True))
    world.connect()
    return world


def _random_of(seed: int, index: int) -> Any:
    """The randomness that a side of such a world begins with."""
    rnd = some_world(seed, is_open=(True, True)).rnd
    for _ in range(index):
        rnd.getrandbits(32)
    return random.Random(rnd.getrandbits(32)).randbytes


def save(path: Path, seed: int, side: Side) -> None:
    """Write what happened to a side so far."""
    lines: list[Any] = [{"seed": seed, "side": side.name}]
    lines += [
        [_encoded(event), str(now), [_told(each) for each in made]]
        for event, now, made in side.trace
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def replay(path: Path) -> int:
    """Give the saved events to a new machine and compare what it does; returns how many."""
    head, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1])
    index = "AB".index(head["side"])
    config = begin(head["seed"]).sides[index].config
    machine = Machine(replace(config, random_bytes=_random_of(head["seed"], index)))
    for number, (event, now, effects) in enumerate(lines):
        made = [_told(each) for each in machine.receive(_decoded(event), Tai(now))]
        assert json.loads(json.dumps(made)) == effects, f"event {number}: {event}"
    return len(lines)


def _encoded(value: Any) -> Any:
    """A value as JSON; those that are more than text and numbers are named."""
    if isinstance(value, Advertisement):
        return {"Advertisement": [value.record, [list(each) for each in value.fields]]}
    if isinstance(value, (RawRecord, ValidRecord)):
        raw = value.data if isinstance(value, RawRecord) else value.bytes
        return {type(value).__name__: bytes(raw).hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return [_encoded(each) for each in value]
    if value is None or isinstance(value, (str, int)):
        return value
    if type(value).__module__ == happened.__name__:
        given = {each.name: getattr(value, each.name) for each in fields(value)}
        return {type(value).__name__: {name: _encoded(each) for name, each in given.items()}}
    return {"map": {name: _encoded(each) for name, each in value.items()}}


def _decoded(value: Any) -> Any:
    """The value that was written so."""
    if isinstance(value, list):
        return tuple(_decoded(each) for each in value)
    if not isinstance(value, dict):
        return value
    [(name, given)] = value.items()
    match name:
        case "Advertisement":
            return Advertisement(given[0], tuple(tuple(each) for each in given[1]))
        case "RawRecord":
            return frame_record(bytes.fromhex(given))
        case "ValidRecord":
            return validate_many([frame_record(bytes.fromhex(given))], random.Random(0).randbytes)[
                0
            ]
        case "bytes":
            return bytes.fromhex(given)
        case "map":
            return {each: _decoded(one) for each, one in given.items()}
        case _:
            kind = getattr(happened, name)
            return kind(**{each: _decoded(one) for each, one in given.items()})


def _told(effect: wanted.Effect) -> Any:
    """All of an effect that anybody outside the machine acts on, as JSON."""
    match effect:
        case wanted.SendBlock():
            return ["send", format_block(effect.facts).decode(), _encoded(effect.modules)]
        case wanted.Agree():
            terms = effect.terms
            return ["agree", terms.plan_id, terms.link_id, terms.source, str(terms.start_tai)]
        case wanted.SaveCursor():
            roots = [effect.cursor.theirs.root("").hex(), effect.cursor.ours.root("").hex()]
            return ["cursor", effect.link_id, roots, effect.is_settled]
        case wanted.Report() | wanted.Close():
            return [type(effect).__name__, effect.outcome.to_json()]
        case _:
            told: list[Any] = [type(effect).__name__]
            for each in fields(effect):
                value = getattr(effect, each.name)
                if isinstance(value, frozenset):
                    value = tuple(sorted(value))
                told.append(str(value) if isinstance(value, Tai) else _encoded(value))
            return told
