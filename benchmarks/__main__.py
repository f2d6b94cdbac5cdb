"""`python -m benchmarks`: run them all, print the tables, write RESULTS.md."""

from __future__ import annotations

import argparse
import datetime
import sys
from typing import TYPE_CHECKING

from benchmarks.importing import benchmark_growth, benchmark_import
from benchmarks.measure import machine
from benchmarks.results import Row, Section, write_results
from benchmarks.starting import benchmark_listing, benchmark_start

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL, LARGE = 100_000, 1_000_000
QUICK_SMALL, QUICK_LARGE = 20_000, 50_000


def _plan(small: int, large: int) -> list[tuple[str, Callable[[], list[Row]]]]:
    return [
        ("Import against the sum of its parts", lambda: benchmark_import(small)),
        ("Growth and memory of an import", lambda: benchmark_growth(small, large)),
        ("Starting", benchmark_start),
        ("Listing", lambda: benchmark_listing(large)),
    ]


def main() -> int:
    """Run the benchmarks; the exit code is 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--quick", action="store_true", help="small sizes; no RESULTS.md")
    options = parser.parse_args()
    sizes = (QUICK_SMALL, QUICK_LARGE) if options.quick else (SMALL, LARGE)
    sections: list[Section] = []
    for title, benchmark in _plan(*sizes):
        print(f"running: {title} …", file=sys.stderr)
        section = Section(title, benchmark())
        sections.append(section)
        print(section.markdown())
    if not options.quick:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        write_results(sections, command="make bench", date=date, machine=machine())
    missed = [row for section in sections for row in section.rows if row.met is False]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
