"""The embedded engine against its targets, with DuckDB and clingo in the same run.

Processor seconds count all threads of a process. The engine starts from the lace's own
facts on disk; DuckDB reads the same facts as tab-separated texts, and for comparison
opens a database that it saved. Figures are medians.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.engine_runs import (
    WORKLOADS,
    Sizes,
    agree,
    engine_run,
    facts_folder,
    further_run,
    middle,
    peer_run,
    record_runs,
    warm,
)
from benchmarks.plots import COLOURS, Line, line_chart
from benchmarks.results import Row

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import StepsRun

__all__ = [
    "PLOTS",
    "benchmark_engine_fresh",
    "benchmark_engine_further",
    "benchmark_engine_growth",
    "benchmark_engine_small",
    "benchmark_engine_warm",
]

PLOTS: Final = ("engine-warm.svg", "engine-fresh.svg")
_WARM_TARGETS: Final = {"W1": 0.020, "W2": 0.060, "W3": 0.040}
_PEERS: Final = {
    "texts": "DuckDB, facts as texts",
    "interned": "DuckDB, facts interned",
    "opened": "DuckDB, from its own saved file",
}


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _at_most(name: str, value: float, most: float, *, ratio: bool = False) -> Row:
    shown, target = (f"{value:.2f} ×", f"≤ {most:g} ×") if ratio else ("", "")
    if not ratio:
        shown, target = _milliseconds(value), f"≤ {most * 1e3:g} ms"
    return Row(name, shown, target, value <= most)


def _whole(runs: list[StepsRun], first: str) -> float:
    return middle([run.cpu_sum(first, *WORKLOADS) for run in runs])


def benchmark_engine_fresh(engine: str, sizes: Sizes) -> list[Row]:
    """Compare opening and W1, W2 and W3 in a fresh process with loading and the same."""
    size = sizes.largest
    runs = record_runs(engine, size)
    counts = runs.texts[0].counts
    rows = [
        Row("facts", f"{counts['Field']:,} Field, {counts['RecordLink']:,} RecordLink"),
        Row(
            "results",
            f"W1 {counts['W1']:,}, W2 {counts['W2']:,} in {counts['rounds']} rounds, "
            f"W3 {counts['W3']:,}",
        ),
    ]
    peers = {"texts": runs.texts, "interned": runs.interned, "opened": runs.opened}
    for kind, name in _PEERS.items():
        first = "open" if kind == "opened" else "load"
        rows.append(_whole_row(name, peers[kind], first))
    rows.append(_whole_row("Lace, from the lace's own facts", runs.engine, "open"))
    own = _whole(runs.engine, "open")
    ratio = own / _whole(peers["texts"], "load")
    rows.append(Row(f"Lace / {_PEERS['texts']}", f"{ratio:.2f} ×"))
    ratio = own / _whole(peers["interned"], "load")
    rows.append(_at_most(f"Lace / {_PEERS['interned']}", ratio, 0.15, ratio=True))
    ratio = own / _whole(runs.opened, "open")
    peak = max(run.peak_bytes for run in runs.engine) / 1e6
    return [
        *rows,
        Row(f"Lace / {_PEERS['opened']}", f"{ratio:.2f} ×"),
        Row("peak memory of Lace", f"{peak:.0f} MB", "< 400 MB", peak < 400),
    ]


def _whole_row(name: str, runs: list[StepsRun], first: str) -> Row:
    cpu, wall = _whole(runs, first), middle([run.wall_sum(first, *WORKLOADS) for run in runs])
    start = middle([run.cpu_sum(first) for run in runs])
    peak = max(run.peak_bytes for run in runs) / 1e6
    return Row(
        f"{name}: {first} + W1 + W2 + W3",
        f"{cpu:.2f} s CPU ({first} {start:.2f}), {wall:.2f} s wall, {peak:,.0f} MB",
    )


def benchmark_engine_warm(engine: str, sizes: Sizes) -> list[Row]:
    """Show processor time of each workload again in the same process."""
    runs = record_runs(engine, sizes.largest)
    rows = [
        Row(f"{workload}, {_PEERS[kind]}", _milliseconds(warm(found, workload)))
        for kind, found in (("texts", runs.texts), ("interned", runs.interned))
        for workload in WORKLOADS
    ]
    loop = middle([run.cpu_sum("W2 loop") for run in runs.interned])
    rows.append(Row("W2 as a loop of queries, DuckDB, facts interned", _milliseconds(loop)))
    own = {workload: warm(runs.engine, workload) for workload in WORKLOADS}
    return [*rows, *(_at_most(f"{w}, Lace", own[w], _WARM_TARGETS[w]) for w in WORKLOADS)]


def benchmark_engine_growth(engine: str, sizes: Sizes, folder: Path) -> list[Row]:
    """Compare the two largest sizes, and draw time against size."""
    all_runs = {size: record_runs(engine, size) for size in sizes.records}
    small, large = sizes.records[-2:]
    rows = []
    for workload in WORKLOADS:
        for name in ("Lace", "DuckDB"):
            low, high = (
                warm(runs.engine if name == "Lace" else runs.interned, workload)
                for runs in (all_runs[small], all_runs[large])
            )
            title = f"{workload}, {name}: {small:,} → {large:,} records"
            shown = f"{high / low:.1f} × ({_milliseconds(low)} → {_milliseconds(high)})"
            target = name == "Lace"
            rows.append(
                Row(title, shown, "≤ 12 ×" if target else "", high <= 12 * low if target else None)
            )
    warm_lines, fresh_lines = [], []
    dashes = {"Lace": "", "DuckDB": "6 4"}
    for name in dashes:
        for at, workload in enumerate(WORKLOADS):
            points = tuple(
                (float(size), warm(runs.engine if name == "Lace" else runs.interned, workload))
                for size, runs in all_runs.items()
            )
            warm_lines.append(Line(f"{workload}, {name}", points, COLOURS[at], dashes[name]))
    kinds = {"engine": "Lace", **_PEERS}
    for at, (kind, name) in enumerate(kinds.items()):
        first = "open" if kind in {"engine", "opened"} else "load"
        points = tuple(
            (float(size), _whole(getattr(runs, kind), first)) for size, runs in all_runs.items()
        )
        dash = "" if kind == "engine" else "6 4"
        fresh_lines.append(Line(name, points, COLOURS[at], dash))
    titles = ("Evaluation again in the same process", "Fresh process: load or open, W1 + W2 + W3")
    for file, title, lines in zip(PLOTS, titles, (warm_lines, fresh_lines), strict=True):
        chart = line_chart(title, lines, across="records", up="processor time", unit=_short_time)
        (folder / file).write_text(chart, "utf-8")
    return rows


def _short_time(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"


def benchmark_engine_small(engine: str, sizes: Sizes) -> list[Row]:
    """TC, W4 and W5: facts in memory, a few at most."""
    return [
        *_closure(engine, sizes.nodes),
        *_newest(engine, sizes),
        *_tiny(engine, sizes.tiny),
        *_solved(sizes.records[0]),
    ]


def _answer(run: StepsRun | None, step: str) -> str:
    if run is None:
        return "no answer in time"
    peak = run.peak_bytes / 1e6
    return f"{_milliseconds(middle(run.cpu[step]))} CPU, {peak:,.0f} MB"


def _closure(engine: str, nodes: int) -> list[Row]:
    folder = facts_folder("TC", nodes)
    peer = peer_run("peers_duckdb", "TC", folder)
    own = engine_run(engine, "TC", folder)
    count = f", {peer.counts['TC']:,} pairs" if peer else ""
    rows = [Row(f"TC{count}, DuckDB as WITH RECURSIVE", _answer(peer, "TC"))]
    if not peer:
        raise RuntimeError("TC gave no answer in time")
    agree("TC", [own, peer])
    ratio = middle(own.cpu["TC"]) / middle(peer.cpu["TC"])
    rows.append(Row("TC, Lace", _answer(own, "TC")))
    return [*rows, _at_most("TC, Lace / DuckDB", ratio, 1.2, ratio=True)]


def _newest(engine: str, sizes: Sizes) -> list[Row]:
    rows = []
    for count in sizes.peer_candidates:
        run = peer_run("peers_duckdb", "W4", facts_folder("W4", count))
        rows.append(Row(f"W4 as written, {count:,} candidates, DuckDB", _answer(run, "W4")))
    own = engine_run(engine, "W4", facts_folder("W4", sizes.candidates))
    name = f"W4, {sizes.candidates:,} candidates, Lace"
    rows.append(_at_most(f"{name}, first time over facts in memory", own.cpu["W4"][0], 0.2))
    rows.append(Row(f"{name}, again", _milliseconds(middle(own.cpu["W4"]))))
    rows.append(Row(f"{name}, from texts of facts", _milliseconds(middle(own.cpu["text"]))))
    return rows


def _tiny(engine: str, size: int) -> list[Row]:
    folder = facts_folder("records", size)
    clingo = peer_run("peers_clingo", "W5", folder)
    duckdb = peer_run("peers_duckdb", "W5", folder)
    own = engine_run(engine, "W5", folder)
    if not clingo or not duckdb:
        raise RuntimeError("W5 gave no answer in time")
    agree("W5", [clingo, duckdb, own])
    grounded = middle(clingo.cpu["W5"])
    rows = [
        Row(f"W5, {size} records, clingo: ground and solve", _milliseconds(grounded)),
        Row("W5, clingo: reading the program", _milliseconds(middle(clingo.cpu["read"]))),
        Row("W5, DuckDB", _milliseconds(middle(duckdb.cpu["W5"]))),
    ]
    again, text = middle(own.cpu["W5"]), middle(own.cpu["text"])
    whole = grounded + middle(clingo.cpu["read"])
    return [
        *rows,
        _at_most("W5, Lace, again", again, 0.003),
        _at_most("W5, Lace, from text", text, 0.015),
        _at_most(
            "W5, Lace, again / clingo: read, ground and solve", again / whole, 0.1, ratio=True
        ),
        Row("W5, Lace, again / clingo: ground and solve", f"{again / grounded:.2f} ×"),
        Row("W5, Lace, from text / clingo: read, ground and solve", f"{text / whole:.2f} ×"),
    ]


def _solved(size: int) -> list[Row]:
    """Show what W1, W2 and W3 cost the solver, at a size that it can do."""
    folder = facts_folder("records", size)
    rows = []
    for workload in WORKLOADS:
        run = peer_run("peers_clingo", workload, folder)
        name = f"{workload}, {size:,} records, clingo: ground and solve"
        rows.append(Row(name, _answer(run, workload)))
    return rows


def benchmark_engine_further(engine: str, sizes: Sizes) -> list[Row]:
    """W6: bring W1, W2 and W3 up to date after each hundred records more."""
    run = further_run(engine, sizes.largest)
    updates = run.cpu["update"]
    name = f"W6: W1 + W2 + W3 up to date after 100 records on {sizes.largest:,}"
    return [
        _at_most(name, middle(updates), 0.010),
        Row("the slowest of the batches", _milliseconds(max(updates))),
        Row("storing a batch", _milliseconds(middle(run.cpu["add"]))),
    ]
