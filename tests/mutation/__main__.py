"""Run the tests against a sample of mutants: `make mutate`.

    python -m tests.mutation [--sample N] [--package NAME]… [--seed TEXT] [--record] [--resume]
        [--seconds S] [--minutes M] [--workers W]

The whole sample writes docs/reference/mutation.md; a part only prints. With `--minutes` it ends
early, and `--resume` goes on, as long as the modules stay as they are. Survivors are mutants that
no test sees: write the test, simplify the code, or, where no input can tell the two apart, name
the mutant in `equivalents.toml` with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

import pytest

from tests.mutation import plugin
from tests.mutation.mutants import PACKAGES, ROOT, sample_mutants
from tests.mutation.plugin import BUILD, Campaign
from tests.mutation.reach import MAX_SECONDS
from tests.mutation.report import PAGE, format_page, read_equivalents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutation.mutants import Mutant
    from tests.mutation.plugin import Outcome

SAMPLE: Final = 400
SEED: Final = "lace"
FOLDERS: Final = (
    *(f"tests/unit/{package}" for package in ("base", *PACKAGES)),
    "tests/conformance",
    "tests/link",
)
"""The tests that run: those in one process that are neither slow nor of Spark."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 0 unless the whole sample misses the goal or a part has survivors."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants")
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only this package")
    parser.add_argument("--seed", default=SEED, help="another text gives another sample")
    parser.add_argument("--record", action="store_true", help="record again what tests reach")
    parser.add_argument("--seconds", type=float, default=MAX_SECONDS, help="of tests for a mutant")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes of the last run")
    parser.add_argument("--minutes", type=float, default=inf, help="begin no mutant after these")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time")
    options = parser.parse_args(arguments)
    is_whole = not options.package and (options.seed, options.sample) == (SEED, SAMPLE)
    packages = options.package or PACKAGES
    equivalents = read_equivalents()
    mutants = sample_mutants(packages, options.sample, options.seed)
    sources = {path: _digest(path) for path in {mutant.path for mutant in mutants}}
    outcomes = {mutant.name: "equivalent" for mutant in mutants if mutant.name in equivalents}
    results = BUILD / "results.jsonl"
    if options.resume and results.exists():
        known = {(mutant.name, sources[mutant.path]) for mutant in mutants}
        for line in results.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if (entry["name"], entry["source"]) in known and entry["outcome"] == "killed":
                outcomes[entry["name"]] = "killed"
    turns = {package: itertools.count() for package in packages}
    left = sorted(  # one of each package in turn, to see early how each does
        (mutant for mutant in mutants if mutant.name not in outcomes),
        key=lambda mutant: next(turns[mutant.package]),
    )

    def done(mutant: Mutant, outcome: Outcome) -> None:
        outcomes[mutant.name] = outcome.kind
        entry = {
            "name": mutant.name,
            "source": sources[mutant.path],
            "outcome": outcome.kind,
            "first": outcome.first,
            "seconds": outcome.seconds,
        }
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        if outcome.kind == "survived":
            place = f"{mutant.path}:{mutant.lines[0]}"
            print(f"survived: {place}: {mutant.name} {outcome.first}", flush=True)
        print(f"\r{len(outcomes)} of {len(mutants)} ", end="", file=sys.stderr, flush=True)

    BUILD.mkdir(parents=True, exist_ok=True)
    if not options.resume:
        results.unlink(missing_ok=True)
    campaign = Campaign(
        left,
        done,
        record=options.record,
        max_seconds=options.seconds,
        workers=options.workers,
        until=time.monotonic() + 60 * options.minutes,
    )
    words = ["-q", "-q", "-n0", "-s", "-p", "no:cacheprovider", "-m", "not slow and not spark"]
    words += ["--tb=native", "--assert=plain"]  # quick; nobody reads why a test failed
    code = pytest.main(
        [*words, *(each for each in FOLDERS if (ROOT / each).exists())], plugins=[campaign, plugin]
    )
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(code)
    for package in packages:
        names = [each.name for each in mutants if each.package == package]
        print(package, dict(Counter(outcomes.get(name, "not run") for name in names)))
    if len(outcomes) < len(mutants):
        print(f"{len(mutants) - len(outcomes)} were not run: go on with --resume")
        return 1
    if not is_whole:
        return int("survived" in outcomes.values())
    PAGE.write_text(format_page(options.seed, mutants, outcomes, equivalents), "utf-8")
    seen = sum(outcome != "survived" for outcome in outcomes.values())
    return int(100 * seen < 95 * len(mutants))


def _digest(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
