"""Which tests reach which functions, recorded once and kept in `build/mutation`.

Every test runs with a trace function that notes the functions it enters. Functions are named by
file and qualified name, so that the record stays of use when lines shift; tests that came since
are added to it. `--record` makes it again.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from itertools import zip_longest
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from tests.mutation.mutants import PACKAGES, ROOT, SOURCE, Mutant, defined_names, scopes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import CodeType, FrameType

    import pytest

__all__ = ["Reach", "record_reach"]

MAX_TEST_SECONDS: Final = 2.0
"""Of processor time; a longer test does not run against mutants."""
MAX_SECONDS: Final = 75.0
"""Of all tests for one mutant, unless another number is asked for: each of them once, at least."""
_EMPTY: Final[dict[str, Any]] = {"functions": [], "tests": {}}


def record_reach(
    path: Path,
    items: Sequence[pytest.Item],
    run: Callable[[pytest.Item, pytest.Item | None], bool],
) -> None:
    """Run tests; add the functions that each enters, and its seconds, to the record.

    A test that fails without a mutant, or takes too long, is unfit: it has null for its seconds.
    """
    entered: set[CodeType] = set()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        entered.add(frame.f_code)

    known = json.loads(path.read_text("utf-8")) if path.exists() else _EMPTY
    functions: dict[str, int] = {name: number for number, name in enumerate(known["functions"])}
    tests: dict[str, tuple[float | None, list[int]]] = dict(known["tests"])
    prefixes = tuple(f"{SOURCE}/{package}/" for package in PACKAGES)
    threading.settrace(trace)
    for number, (item, following) in enumerate(zip_longest(items, items[1:])):
        entered.clear()
        start = time.process_time()
        sys.settrace(trace)
        passed = run(item, following)
        sys.settrace(None)
        seconds = time.process_time() - start
        found = {
            f"{code.co_filename[len(str(ROOT)) + 1 :]}:{code.co_qualname.split('.<locals>')[0]}"
            for code in tuple(entered)
            if code.co_filename.startswith(prefixes)
        }
        is_fit = passed and seconds <= MAX_TEST_SECONDS
        reached = sorted(functions.setdefault(name, len(functions)) for name in found)
        tests[item.nodeid] = (round(seconds, 4), reached) if is_fit else (None, [])
        if not number % 200 or following is None:
            path.write_text(json.dumps({"functions": list(functions), "tests": tests}), "utf-8")
            print(f"\r{number} of {len(items)} ", end="", file=sys.stderr, flush=True)


class Reach:
    """The record as it was read.

    Args:
        path: where it is.
        max_seconds: of all tests for one mutant, as they take without it.
    """

    def __init__(self, path: Path, max_seconds: float = MAX_SECONDS) -> None:
        self._max_seconds = max_seconds
        record = json.loads(path.read_text("utf-8"))
        functions, tests = record["functions"], record["tests"]
        self._seconds = {name: each for name, (each, _) in tests.items() if each is not None}
        self._known = frozenset(tests)
        self._tests: dict[str, list[str]] = defaultdict(list)
        for name, (_, reached) in tests.items():
            for number in reached:
                self._tests[functions[number]].append(name)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def tests_of(self, mutant: Mutant) -> list[tuple[str, float]]:
        """The tests that reach a mutant with the seconds each takes, in the order to run them.

        Those of the file that has the module's name are first, then those of the package, then
        all others. Each of them runs with the parameters that are fastest before it, or another
        one, runs with others.
        """
        named = self._calling(mutant) or self._using(mutant)
        variants: Counter[str] = Counter()
        order = []
        for seconds, name in sorted((self._seconds[name], name) for name in named):
            function = name.partition("[")[0]
            distance = _distance(mutant, name.split("::")[0])
            order.append((distance, variants[function], seconds, name))
            variants[function] += 1
        kept: list[tuple[str, float]] = []
        total = 0.0
        for *_, seconds, name in sorted(order):
            if not total or total + seconds <= self._max_seconds:
                kept.append((name, seconds))
                total += seconds
        return kept

    def runs_at_import(self, mutant: Mutant) -> bool:
        """Tell whether no test calls the function: if anything does, then the import."""
        return not self._calling(mutant)

    def _calling(self, mutant: Mutant) -> set[str]:
        if not mutant.scope:
            return set()
        return set(self._tests.get(f"{mutant.path}:{mutant.scope.removesuffix('()')}", ()))

    def _using(self, mutant: Mutant) -> set[str]:
        """Tests that reach a function that uses what the mutated statement defines."""
        names = defined_names((ROOT / mutant.path).read_text("utf-8"), mutant.lines[0])
        words = [re.compile(rf"\b{re.escape(name)}\b") for name in names]
        reached = {name for name in self._seconds if _distance(mutant, name.split("::")[0]) == 0}
        is_private = all(name.startswith("_") for name in names)
        for path in [ROOT / mutant.path] if is_private else _modules():
            place = path.relative_to(ROOT).as_posix()
            for scope, text in scopes_of(path.read_text("utf-8")):
                if any(word.search(text) for word in words):
                    reached.update(self._tests[f"{place}:{scope.removesuffix('()')}"])
        if not reached:
            for function, tests in self._tests.items():
                reached.update(tests if function.startswith(f"{mutant.path}:") else ())
        return reached


def _distance(mutant: Mutant, file: str) -> int:
    """How far a file of tests is from a mutant: 0 if it has the module's name."""
    folders = (f"tests/unit/{mutant.package}/", f"tests/{mutant.package}/")
    if not file.startswith(folders):
        return 2
    return int(not file.endswith(f"/test_{PurePath(mutant.path).stem}.py"))


def _modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]
