"""Exchange policies against their targets: the price of the gate, increments, compiling."""

from __future__ import annotations

import shutil
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.engine_runs import BATCHES, lace_folder
from benchmarks.measure import StepsRun, cpu_of, run_steps
from benchmarks.policy_side import EXPOSURE, VIEWER
from benchmarks.results import Row
from benchmarks.workload_records import further_records, records
from lace.algebra.lower import lower_program
from lace.policy.compile import Compiler, compile_policy
from lace.policy.exposure import exposure_of
from lace.policy.operand import operand_of
from lace.policy.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["benchmark_compiling", "benchmark_policy"]

ROUNDS: Final = 5
RULES: Final = 50
MOST_GATED: Final = 2.0
MOST_UPDATE: Final = 0.020
MOST_COMPILING: Final = 0.020


def _run(action: str, folder: Path) -> StepsRun:
    found = run_steps(["-m", "benchmarks.policy_side", action, str(folder)])
    if found is None:
        raise RuntimeError(f"{action} did not end")
    return found


def benchmark_policy(size: int) -> list[Row]:
    """Compare two selectors with the same as an exchange; then follow the exchange."""
    folder = lace_folder(size)
    pairs = [(_run("plain", folder), _run("gated", folder)) for _ in range(ROUNDS)]
    ratio = median(gated.cpu_sum("first") / plain.cpu_sum("first") for plain, gated in pairs)
    plain, gated = (
        median(run.cpu_sum("first") for run in runs) for runs in zip(*pairs, strict=True)
    )
    peak = max(run.peak_bytes for _, run in pairs) / 1e6
    update = _followed(size, folder)
    times = update.cpu["update"]
    middle = median(times)
    return [
        Row(
            "selected by one selector, sent",
            f"{pairs[0][0].counts['selected']:,}, {pairs[0][1].counts['send']:,}",
        ),
        Row("both selectors over all records", f"{plain:.3f} s"),
        Row("the exchange: exposure, both selectors, lowering", f"{gated:.3f} s, {peak:.0f} MB"),
        Row(
            "with the gate / without", f"{ratio:.2f} ×", f"≤ {MOST_GATED:g} ×", ratio <= MOST_GATED
        ),
        Row(
            "up to date after 100 records more",
            f"{middle * 1e3:.1f} ms",
            f"≤ {MOST_UPDATE * 1e3:g} ms",
            middle <= MOST_UPDATE,
        ),
        Row("the slowest of the batches", f"{max(times) * 1e3:.1f} ms"),
    ]


def _followed(size: int, folder: Path) -> StepsRun:
    files = records(size)
    further_records(files, BATCHES)
    copy = files.path.with_name(f"{files.path.stem}.copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    try:
        return _run("further", copy)
    finally:
        shutil.rmtree(copy)


def _module() -> str:
    """Return a selector of fifty rules, each with a few atoms, a negation and a test."""
    rules = [
        "SelectHave(P) :- Chosen(P,_), Have(P).",
        "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'u').",
    ]
    rules += [
        f"Chosen(P,V) :- Have(P), Field(P,'Name-{at}',_,V), Field(P,'Signed-By',_,W), "
        f"not Blocked(W,'{at}'), TextShape(V,'links/','','')."
        for at in range(RULES - len(rules) - 1)
    ]
    return "\n".join([*rules, "Blocked(V,N) :- Field(P,'Blocked',_,V), Field(P,'Name',_,N)."])


def benchmark_compiling() -> list[Row]:
    """Show how long it takes from operands to the programs that an engine runs."""
    text = _module()
    checking = median(cpu_of(lambda: operand_of(text, 0)) for _ in range(ROUNDS * 5))
    operands = operand_of(text, 0), operand_of(text.replace("'u'", "'v'"), 1)
    exposures = [exposure_of(EXPOSURE, VIEWER)]

    def compile_all() -> None:
        made = compile_policy(
            make_plan(*operands), operands, index=0, exposures=exposures, viewer=VIEWER
        )
        for program in (made.view, made.theirs, made.ours, made.lowering):
            lower_program(program)

    compiler = Compiler()
    plan = make_plan(*operands)

    def compile_again() -> None:
        compiler.compile(plan, operands, index=0, exposures=exposures, viewer=VIEWER)

    compile_again()
    seconds = median(cpu_of(compile_all) for _ in range(ROUNDS * 5))
    again = median(cpu_of(compile_again) for _ in range(ROUNDS * 5))
    return [
        Row(f"checking the text of {RULES} rules", f"{checking * 1e3:.1f} ms"),
        Row(
            f"two operands of {RULES} rules: plan, gate, all relational programs",
            f"{seconds * 1e3:.1f} ms",
            f"≤ {MOST_COMPILING * 1e3:g} ms",
            seconds <= MOST_COMPILING,
        ),
        Row("the same again, from memory by plan", f"{again * 1e3:.2f} ms"),
    ]
