"""The page on mutation testing, and the list of mutants that no test can see."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.mutation.mutants import PACKAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.mutation.mutants import Mutant

__all__ = ["GOAL", "HEAD", "PAGE", "format_page", "read_equivalents"]

PAGE: Final = ROOT / "docs" / "reference" / "mutation.md"
EQUIVALENTS: Final = Path(__file__).with_name("equivalents.toml")
GOAL: Final = 95
"""Percent of the sample that is killed or equivalent."""

HEAD = """\
# Mutation testing

This page is made by `make mutate`. It puts small faults into the source, one at a time, and runs
the tests that reach each; a fault that makes a test fail is *killed*. A fault that no input can
tell from the original is *equivalent*, and listed below with the reason. The goal is that at least
{goal} % of the sample is killed or equivalent. `CONTRIBUTING.md` says how to
run a part of it.

Faults: comparisons, logical and arithmetic operators, numbers by one, truth values, conditions,
the order of arguments, returned values, statements left out. A sample of {sample}, the same number
of each package, with the seed `{seed}`.

"""


def read_equivalents() -> dict[str, str]:
    """The mutants that no input can tell from the original, by name, each with the reason."""
    entries = tomllib.loads(EQUIVALENTS.read_text("utf-8"))["equivalent"]
    return {entry["mutant"]: entry["reason"] for entry in entries}


def format_page(
    seed: str,
    mutants: Sequence[Mutant],
    outcomes: Mapping[str, str],
    equivalents: Mapping[str, str],
) -> str:
    """Write down the outcomes of a whole sample."""
    return HEAD.format(goal=GOAL, sample=len(mutants), seed=seed) + "\n".join(
        [*_table(mutants, outcomes), *_lists(mutants, outcomes, equivalents), ""]
    )


def _table(mutants: Sequence[Mutant], outcomes: Mapping[str, str]) -> Iterator[str]:
    yield "| package | sampled | killed | equivalent | survived |"
    yield "| --- | --: | --: | --: | --: |"
    for package in (*PACKAGES, "all"):
        names = [each.name for each in mutants if package in (each.package, "all")]
        counts = Counter(outcomes[name] for name in names)
        cells = [len(names), *(counts[each] for each in ("killed", "equivalent", "survived"))]
        yield f"| {package} | " + " | ".join(map(str, cells)) + " |"


def _lists(
    mutants: Sequence[Mutant], outcomes: Mapping[str, str], equivalents: Mapping[str, str]
) -> Iterator[str]:
    for title, outcome in (("Survived", "survived"), ("Equivalent", "equivalent")):
        names = sorted(each.name for each in mutants if outcomes[each.name] == outcome)
        yield f"\n## {title}\n"
        if not names:
            yield "None."
        for name in names:
            reason = f": {equivalents[name]}" if outcome == "equivalent" else ""
            yield f"- `` {name} ``{reason}"
