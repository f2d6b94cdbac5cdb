"""Fuzz one reader of bytes: see `fuzz/README.md`."""

from __future__ import annotations

import argparse
import importlib
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.harness import ROOT, Target, guided, has_atheris, loop

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TARGETS", "load", "main"]

TARGETS = ("blocks", "captures", "records", "rows", "rules", "streams", "upgrades")


def load(name: str) -> Target:
    """Import a target."""
    found = importlib.import_module(f"fuzz.{name}").TARGET
    assert isinstance(found, Target)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz a reader of bytes.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60, help="default: 60")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--crashes", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument(
        "--engine",
        choices=("atheris", "loop"),
        default="atheris" if has_atheris() else "loop",
        help="default: atheris, which is steered by coverage, where it is installed",
    )
    given, rest = parser.parse_known_args(arguments)
    files = [Path(each) for each in rest if Path(each).is_file()]
    if files:
        for file in files:
            load(given.target).check(file.read_bytes())
            print(f"{given.target}: {file}: nothing is wrong with it")
        return 0
    seed = random.SystemRandom().randrange(1, 1 << 31) if given.seed is None else given.seed
    print(f"{given.target}: seed {seed}", flush=True)
    if given.engine == "atheris":
        more = [f"-seed={seed}", *rest]
        guided(lambda: load(given.target), given.target, given.seconds, given.crashes, more)
    run = loop(load(given.target), given.seconds, seed, given.crashes)
    print(f"{given.target}: {run.inputs} inputs, {run.failed} findings")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
