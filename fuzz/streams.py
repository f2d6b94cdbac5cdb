"""Throw changed and random bytes at the reader of streams.

    python -m fuzz.streams --seconds 60 --seed 7
    python -m fuzz.streams --engine atheris CORPUS

Only `StreamError` may come out, at a place inside the bytes; any split gives the same events;
what was read is written again byte for byte. Where atheris is installed it can steer by
coverage; without it, seeds are changed at random. What breaks this is written to build/fuzz and
named; the seed and the round reproduce it.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lace.iltp.faults import StreamError
from lace.iltp.items import (
    KNOT,
    NEED_MORE,
    OPEN_RECORD,
    PREFACE,
    PUZZLE_PIECE,
    RECORD,
    Blank,
    NeedMore,
    StreamEnd,
)
from lace.iltp.reader import Reader
from lace.iltp.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.iltp.items import Item

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "tests" / "vectors" / "iltp"
PIECES = [
    *(KNOT, OPEN_RECORD, PREFACE, PUZZLE_PIECE, RECORD),
    *(b"\n", b"\n\n", b"#", b"#\n", b"A('b')\n", b"A('", b"')\n", b"','", b"\\'", b"()"),
    *(b"\r", b"\xff", b"e\xcc\x81", b"\xe2\x80\xa8", b"\0", b" ", b"Data-Length: 3\n\n", b"9" * 9),
]


def load_seeds() -> list[bytes]:
    """All vectors, good and bad."""
    return [path.read_bytes() for path in sorted(VECTORS.glob("*/*.stream"))]


def mutate(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Join, cut and change a few seeds."""
    first, *others = chance.choices(seeds, k=chance.choice((1, 1, 1, 2, 3)))
    raw = bytearray(first)
    for other in others:
        raw += other[len(PREFACE) :]
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
    return bytes(raw)


def read(pieces: Iterable[bytes], *, batches: bool) -> tuple[list[Item], StreamEnd | str, int]:
    """All items, how the stream ended, and where."""
    reader = Reader(max_block_bytes=1 << 16, max_data_bytes=1 << 16)
    items: list[Item] = []
    try:
        for piece in [*pieces, None]:
            if piece is None:
                reader.end()
            else:
                reader.feed(piece)
            while (event := reader.next_event()) is not NEED_MORE:
                assert not isinstance(event, NeedMore)
                if isinstance(event, StreamEnd):
                    return items, event, event.offset
                items.append(event)
                if batches and isinstance(event, Blank):
                    reader.expect(batch=True)
    except StreamError as error:
        return items, f"{error.fault} {error}", error.offset
    raise AssertionError("neither an end nor an error")


def check(raw: bytes, chance: random.Random) -> None:
    """Everything that must hold for any bytes at all."""
    for batches in (False, True):
        whole = read([raw], batches=batches)
        items, end, at = whole
        assert 0 <= at <= len(raw), "an offset outside the stream"
        size = chance.choice((1, 3, 64, 1000))
        parts = [raw[start : start + size] for start in range(0, len(raw), size)]
        assert read(parts, batches=batches) == whole, "split"
        again = b"".join(rewrite(items))
        assert raw.startswith(again), "not written as it was read"
        if isinstance(end, StreamEnd):
            assert raw[len(again) :] in (b"", b"\n"), "not written to its end"


def rewrite(items: Iterable[Item]) -> list[bytes]:
    writer = Writer()
    chunks: list[bytes] = []
    for item in items:
        chunks += writer.write(item)
        if isinstance(item, Blank):
            writer.expect(batch=True)
    return chunks


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
            crashes.mkdir(parents=True, exist_ok=True)
            path = crashes / f"streams-{seed}-{rounds}.bin"
            path.write_bytes(raw)
            print(f"round {rounds}: {error!r}; the input is in {path}", file=sys.stderr)
            traceback.print_exception(error, file=sys.stderr)
    return rounds, failed


def run_atheris(arguments: Sequence[str]) -> None:
    """Hand over to atheris, which does not come back; its arguments are passed on."""
    atheris: Any = importlib.import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(["fuzz.streams", *arguments], lambda raw: check(raw, random.Random(len(raw))))
    atheris.Fuzz()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.streams", description="Fuzz streams.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--crashes", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--engine", choices=("loop", "atheris"), default="loop")
    given, rest = parser.parse_known_args(arguments)
    if given.engine == "atheris":
        run_atheris(rest)
        return 0
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    rounds, failed = run(given.seconds, seed, given.crashes, load_seeds())
    print(f"seed {seed}: {rounds} inputs, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
