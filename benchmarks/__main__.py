"""`python -m benchmarks`: run them all, print the tables, write RESULTS.md."""

from __future__ import annotations

import argparse
import datetime
import sys
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.corpus import FOLDER
from benchmarks.engine import (
    PLOTS,
    benchmark_engine_fresh,
    benchmark_engine_further,
    benchmark_engine_growth,
    benchmark_engine_small,
    benchmark_engine_warm,
)
from benchmarks.engine_runs import FULL, QUICK, TINY, Sizes
from benchmarks.exchanging import benchmark_exchange, benchmark_open_exchange
from benchmarks.hostile import benchmark_hostile
from benchmarks.importing import benchmark_growth, benchmark_import
from benchmarks.measure import machine
from benchmarks.pipeline import PIPELINE_PLOT, benchmark_pipeline
from benchmarks.policy import benchmark_compiling, benchmark_policy
from benchmarks.reconciling import (
    benchmark_reconciling,
    benchmark_reconciling_fields,
    benchmark_reconciling_sets,
)
from benchmarks.results import RESULTS, Row, Section, replace_sections, write_results
from benchmarks.spark_engine import benchmark_spark_engine
from benchmarks.starting import benchmark_demo, benchmark_listing, benchmark_start
from benchmarks.wire import (
    benchmark_wire_again,
    benchmark_wire_blobs,
    benchmark_wire_links,
    benchmark_wire_records,
    benchmark_wire_start,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL, LARGE = 100_000, 1_000_000
QUICK_SMALL, QUICK_LARGE = 20_000, 50_000
BLOBS, LINKS = 16, 200
QUICK_BLOBS, QUICK_LINKS = 4, 20
LEAST = 10_000
"""Records of the smallest sets that are reconciled."""


class _Benchmark(NamedTuple):
    title: str
    run: Callable[[], list[Row]]
    images: tuple[str, ...] = ()


def _plan(small: int, large: int) -> list[_Benchmark]:
    return [
        _Benchmark("Import against the sum of its parts", lambda: benchmark_import(small)),
        _Benchmark("Growth and memory of an import", lambda: benchmark_growth(small, large)),
        _Benchmark("Starting", benchmark_start),
        _Benchmark("Listing", lambda: benchmark_listing(large)),
        _Benchmark("Demonstration", benchmark_demo),
    ]


def _engine_plan(engine: str, sizes: Sizes, images: Path) -> list[_Benchmark]:
    records = f"{sizes.largest:,} records"
    return [
        _Benchmark(
            f"Engine: {records} in a fresh process", lambda: benchmark_engine_fresh(engine, sizes)
        ),
        _Benchmark(
            f"Engine: {records}, evaluated again", lambda: benchmark_engine_warm(engine, sizes)
        ),
        _Benchmark("Engine: growth", lambda: benchmark_engine_growth(engine, sizes, images), PLOTS),
        _Benchmark("Engine: small workloads", lambda: benchmark_engine_small(engine, sizes)),
        _Benchmark("Engine: more records", lambda: benchmark_engine_further(engine, sizes)),
    ]


def _policy_plan(sizes: Sizes) -> list[_Benchmark]:
    title = f"Policy: an exchange over {sizes.largest:,} records, a tenth exposed"
    return [
        _Benchmark(title, lambda: benchmark_policy(sizes.largest)),
        _Benchmark("Policy: compiling", benchmark_compiling),
    ]


def _spark_plan(small: int, large: int, images: Path, *, further: bool) -> list[_Benchmark]:
    title = f"Spark: the engine at {large:,} records, in a warm session"
    return [
        _Benchmark(title, lambda: benchmark_spark_engine(small, large)),
        _Benchmark(
            f"Pipeline: {large:,} records, a tenth signed",
            lambda: benchmark_pipeline(small, large, images, further=further),
            (PIPELINE_PLOT,),
        ),
    ]


def _exchange_plan(small: int, large: int) -> list[_Benchmark]:
    kept = small // 10
    return [
        _Benchmark("Exchange: two laces in one process", lambda: benchmark_exchange(small, large)),
        _Benchmark(f"Exchange: kept open, {kept:,} records", lambda: benchmark_open_exchange(kept)),
    ]


def _reconciling_plan(small: int, large: int) -> list[_Benchmark]:
    return [
        _Benchmark(
            "Reconciliation: bytes without fields",
            lambda: benchmark_reconciling((LEAST, small, large)),
        ),
        _Benchmark(
            "Reconciliation: bytes with four fields",
            lambda: benchmark_reconciling_fields((LEAST, small, large)),
        ),
        _Benchmark(
            f"Reconciliation: a set of {large:,} records",
            lambda: benchmark_reconciling_sets(large),
        ),
    ]


def _wire_plan(small: int, large: int, *, is_quick: bool) -> list[_Benchmark]:
    blobs, links = (QUICK_BLOBS, QUICK_LINKS) if is_quick else (BLOBS, LINKS)
    return [
        _Benchmark("Wire: two processes over TCP", lambda: benchmark_wire_records(small)),
        _Benchmark("Wire: large blobs", lambda: benchmark_wire_blobs(blobs)),
        _Benchmark(f"Wire: {links} links at once", lambda: benchmark_wire_links(links)),
        _Benchmark("Wire: starting a server", benchmark_wire_start),
        _Benchmark("Wire: nothing has changed", lambda: benchmark_wire_again(large)),
        _Benchmark("Hostile peers", benchmark_hostile),
    ]


def main() -> int:
    """Run the benchmarks; the exit code is 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--quick", action="store_true", help="small sizes; no RESULTS.md")
    parser.add_argument("--only", metavar="WORD", help="titles with this word; no RESULTS.md")
    parser.add_argument(
        "--update", action="store_true", help="with --only: its sections anew into RESULTS.md"
    )
    parser.add_argument(
        "--engine",
        choices=["embedded", "reference"],
        default="embedded",
        help="`reference` tries the engine benchmarks at tiny sizes; no RESULTS.md",
    )
    parser.add_argument(
        "--further",
        action="store_true",
        help="also five times as many in the pipeline; by default, with everything else",
    )
    options = parser.parse_args()
    sizes = (QUICK_SMALL, QUICK_LARGE) if options.quick else (SMALL, LARGE)
    whole = not options.quick and not options.only and options.engine == "embedded"
    engine_sizes = QUICK if options.quick else FULL
    if options.engine == "reference":
        engine_sizes = TINY
    FOLDER.mkdir(parents=True, exist_ok=True)
    images = RESULTS.parent if whole else FOLDER
    sections: list[Section] = []
    plans = [*_plan(*sizes), *_engine_plan(options.engine, engine_sizes, images)]
    plans += [*_policy_plan(engine_sizes), *_reconciling_plan(*sizes), *_exchange_plan(*sizes)]
    plans += _spark_plan(*sizes, images, further=options.further or whole)
    plans += _wire_plan(*sizes, is_quick=options.quick)
    for title, run, drawn in plans:
        if options.only and options.only.lower() not in title.lower():
            continue
        print(f"running: {title} …", file=sys.stderr)
        section = Section(title, run(), drawn)
        sections.append(section)
        print(section.markdown())
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    if options.only and options.update and not options.quick and options.engine == "embedded":
        command = f"make bench ARGS='--only \"{options.only}\" --update'"
        text = replace_sections(RESULTS.read_text("utf-8"), sections, command=command, date=date)
        RESULTS.write_text(text, "utf-8")
    if whole:
        write_results(sections, command="make bench", date=date, machine=machine())
    missed = [row for section in sections for row in section.rows if row.met is False]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
