"""What all fuzz targets share: changing bytes, running for a while, keeping what was found.

A target is a function that takes any bytes and raises only when something is wrong: it lets
documented refusals pass and checks what must hold. It decides by the bytes alone, so a file
with an input is all that is needed to see a finding again.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import random
import resource
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "CORPUS",
    "LARGEST",
    "MEMORY_MIB",
    "ROOT",
    "Run",
    "Target",
    "chance_of",
    "guided",
    "has_atheris",
    "kept",
    "loop",
    "mutate",
    "pieces_of",
]

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "fuzz" / "corpus"
LARGEST = 16 * 1024
"""Bytes of the longest input."""
MEMORY_MIB = 1024
"""What a whole run may take; a target that needs more has a hole."""


def _as_it_is(raw: bytes) -> bytes:
    return raw


@dataclass(frozen=True, kw_only=True)
class Target:
    """One reader of bytes.

    Attributes:
        name: what it is called; its kept inputs are in a folder of that name.
        check: takes any bytes; an exception is a finding.
        seeds: gives bytes to begin with, beside those that are kept.
        pieces: bytes that mean something to it.
        mend: makes changed bytes plausible again, used every second time.
        modules: what is watched for coverage.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]] = field(default=list)
    pieces: tuple[bytes, ...] = (b"\n",)
    mend: Callable[[bytes], bytes] = _as_it_is
    modules: tuple[str, ...] = ("lace",)


@dataclass(slots=True)
class Run:
    """How many inputs a run had, and how many of them were findings."""

    inputs: int = 0
    failed: int = 0


def chance_of(raw: bytes) -> random.Random:
    """Choices that the bytes decide."""
    return random.Random(hashlib.blake2b(raw, digest_size=8).digest())


def pieces_of(raw: bytes) -> list[bytes]:
    """The same bytes, split somehow."""
    size = chance_of(raw).choice((1, 3, 64, 1000))
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def kept(target: Target) -> list[bytes]:
    """The inputs that are kept for a target, smallest names first."""
    return [path.read_bytes() for path in sorted((CORPUS / target.name).glob("*"))]


def mutate(target: Target, chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Join, cut and change a few seeds."""
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
                raw[at:at] = chance.choice(target.pieces)
            case 4:
                source = chance.choice(seeds)
                start = chance.randrange(len(source) + 1)
                raw[at:at] = source[start : start + chance.randrange(200)]
            case _:
                raw[at:at] = raw[at : at + chance.randrange(80)]
    made = bytes(raw[:LARGEST])
    return target.mend(made) if chance.random() < 0.5 else made


def loop(target: Target, seconds: float, seed: int, crashes: Path) -> Run:
    """All kept inputs, then changed ones for so long, without any library."""
    chance = random.Random(seed)
    seeds = [*kept(target), *target.seeds()]
    run = Run()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # by what ran before in this process
    end = time.monotonic() + seconds
    for raw in seeds:
        _try(target, raw, run, crashes)
    while time.monotonic() < end:
        _try(target, mutate(target, chance, seeds), run, crashes)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > max(held, MEMORY_MIB * 1024):
        run.failed += 1
        print(f"{target.name}: more than {MEMORY_MIB} MiB of memory", file=sys.stderr)
    return run


def _try(target: Target, raw: bytes, run: Run, crashes: Path) -> None:
    run.inputs += 1
    try:
        target.check(raw)
    except Exception as error:  # noqa: BLE001  any of them is a finding
        from lace.errors import LaceError  # not before what is watched is imported

        run.failed += 1
        kind = "documented" if isinstance(error, LaceError) else "undocumented"
        crashes.mkdir(parents=True, exist_ok=True)
        path = crashes / f"{target.name}-{hashlib.blake2b(raw, digest_size=8).hexdigest()}"
        path.write_bytes(raw)
        print(f"{target.name}: {kind} {error!r}; the input is in {path}", file=sys.stderr)
        traceback.print_exception(error, file=sys.stderr)


def has_atheris() -> bool:
    """Whether the library that steers by coverage is installed; it is not for every platform."""
    return importlib.util.find_spec("atheris") is not None


def guided(
    load: Callable[[], Target], name: str, seconds: float, crashes: Path, more: Sequence[str]
) -> None:
    """Let atheris choose the inputs; ends the process.

    Args:
        load: imports the target, and with it what is watched.
        name: what it is called.
        seconds: for how long; 0 for ever.
        crashes: where inputs go that are findings.
        more: arguments for atheris. New inputs go into the first folder among them; without
            one they go beside the findings, so that what is kept changes only on purpose.
    """
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["lace"]):
        target = load()
    given = [Path(each) for each in more if not each.startswith("-")]
    new = [] if given else [crashes / "found" / name]
    for folder in (crashes, CORPUS / name, *given, *new):
        folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={int(seconds)}",
        f"-artifact_prefix={crashes}/{name}-",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-max_len={LARGEST}",
        "-timeout=20",
        "-verbosity=0",
    ]
    folders = [*map(str, new), str(CORPUS / name)]
    atheris.Setup(
        [f"fuzz {name}", *options, *more, *folders],
        target.check,
        custom_mutator=_mutator(atheris, target),
    )
    atheris.Fuzz()


def _mutator(atheris: Any, target: Target) -> Callable[[bytes, int, int], bytes]:
    """Changes that know the target, between those of the library that know coverage."""

    def change(raw: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            made: bytes = atheris.Mutate(raw, most)
            return target.mend(made)[:most] if chance.random() < 0.3 else made
        return mutate(target, chance, [raw])[:most]

    return change


def inputs_of(folder: Path) -> Iterator[bytes]:
    """The inputs in a folder."""
    for path in sorted(folder.iterdir()):
        yield path.read_bytes()
