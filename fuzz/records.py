"""Throw changed and random bytes at everything that reads records.

    python -m fuzz.records --seconds 60 --seed 7

Only documented errors may come out, a record may never be accepted under an id that its
bytes do not have, and any split of a stream gives the same outcomes. What breaks this is
written to build/fuzz and named; the seed and the round reproduce it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from lace.errors import LaceError, RecordError
from lace.facts.extract import record_facts
from lace.facts.lines import format_fact, parse_fact
from lace.record.faults import RECORD_RULES
from lace.record.reader import Fault, RawRecord, read_records
from lace.record.validate import ValidRecord, embedded_records, parse_record, validate_many
from lace.record.writer import MARKER, write_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.record.model import Record

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "tests" / "vectors" / "records"
PIECES = [
    MARKER,
    b"\n",
    b"\n" + MARKER,
    b": ",
    b" ",
    b"Data-Length: ",
    b"Group: ",
    b"x+Link: ",
    b"\xe2\x8b\xaf",
    b"\xff",
    b"e\xcc\x81",
    b"\0",
    b"9" * 12,
]


def load_seeds() -> list[bytes]:
    """All vectors, good and bad."""
    return [path.read_bytes() for path in sorted(VECTORS.glob("*/*.record"))]


def mutate(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Join, cut and change a few seeds; sometimes mend the outer hash afterwards."""
    raw = bytearray(b"".join(chance.choices(seeds, k=chance.choice((1, 1, 1, 2, 3)))))
    for _ in range(chance.choice((0, 1, 1, 2, 4, 8))):
        at = chance.randrange(len(raw) + 1)
        match chance.randrange(6):
            case 0 if at < len(raw):
                raw[at] = chance.randrange(256)
            case 1 if at < len(raw):
                raw[at] ^= 1 << chance.randrange(8)
            case 2:
                del raw[at : at + chance.choice((1, 2, 60))]
            case 3:
                raw[at:at] = chance.choice(PIECES)
            case 4:
                source = chance.choice(seeds)
                start = chance.randrange(len(source) + 1)
                raw[at:at] = source[start : start + chance.randrange(200)]
            case _:
                raw[at:at] = raw[at : at + chance.randrange(80)]
    if chance.random() < 0.5 and len(raw) > 55:
        letter = chr(raw[6]) if raw[6] in b"BPS" else "P"
        return write_record(letter, bytes(raw[55:]))[1]
    return bytes(raw)


def parse(raw: bytes) -> Record | RecordError:
    """The record that the bytes are, or why they are none; every other error passes."""
    try:
        return parse_record(raw)
    except RecordError as error:
        return error


def check(raw: bytes, chance: random.Random) -> None:
    """Everything that must hold for any bytes at all."""
    found = parse(raw)
    if isinstance(found, RecordError):
        assert found.rule in RECORD_RULES, found
        assert found.place is not None
        assert found.place.offset is not None
        assert 0 <= found.place.offset <= len(raw)
    else:
        assert found.bytes == raw, "accepted, but not as these bytes"
    for recover in (False, True):
        whole = [show(outcome) for outcome in read_records([raw], recover=recover)]
        size = chance.choice((1, 3, 64, 1000))
        parts = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert [show(o) for o in read_records(parts, recover=recover)] == whole, "split"
    framed = [o for o in read_records([raw], recover=True) if isinstance(o, RawRecord)]
    for frame, verdict in zip(framed, validate_many(framed, os.urandom), strict=True):
        if isinstance(verdict, ValidRecord):
            check_valid(verdict, frame)
        else:
            assert verdict.rule in RECORD_RULES, verdict


def check_valid(record: ValidRecord, frame: RawRecord) -> None:
    """What must hold for a record that was found valid."""
    assert record.bytes == frame.data
    assert parse_record(record.bytes).id == record.id
    for fact in record_facts(record):
        assert parse_fact(format_fact(fact).encode()) == fact
    embedded_records(record)


def show(outcome: RawRecord | Fault) -> tuple[object, ...]:
    if isinstance(outcome, Fault):
        return outcome.offset, outcome.lost, str(outcome.error)
    return tuple(outcome)


def run(seconds: float, seed: int, crashes: Path, seeds: Sequence[bytes]) -> tuple[int, int]:
    """Fuzz for so long; returns how many rounds there were and how many of them failed."""
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    rounds = failed = 0
    while time.monotonic() < end:
        raw = mutate(chance, seeds)
        rounds += 1
        try:
            check(raw, chance)
        except (Exception, RecursionError) as error:  # noqa: BLE001  any of them is a finding
            failed += 1
            kind = "documented" if isinstance(error, LaceError) else "undocumented"
            crashes.mkdir(parents=True, exist_ok=True)
            path = crashes / f"records-{seed}-{rounds}.bin"
            path.write_bytes(raw)
            print(f"round {rounds}: {kind} {error!r}; the input is in {path}", file=sys.stderr)
            traceback.print_exception(error, file=sys.stderr)
    return rounds, failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.records", description="Fuzz records.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--crashes", type=Path, default=ROOT / "build" / "fuzz")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    rounds, failed = run(given.seconds, seed, given.crashes, load_seeds())
    print(f"seed {seed}: {rounds} inputs, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
