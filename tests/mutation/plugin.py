"""The pytest plugin that runs tests against mutants, each in a process of its own.

The tests are collected once, and some workers forked, which take one mutant after the other. For a
mutant inside a function a worker forks a process, replaces the code of that function, and runs the
tests that reach it until one fails. A mutant of code that runs at import needs a fresh process, in
which `MUTATED_FILE` replaces the file of `MUTATED_MODULE`. A process that takes too much processor
time or hangs counts as killed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.mutants import ROOT, Mutant, mutated_tree
from tests.mutation.reach import Reach, record_reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

__all__ = [
    "BUILD",
    "Campaign",
    "Outcome",
    "ReplacedModule",
    "pytest_configure",
    "pytest_runtest_logstart",
]

BUILD: Final = ROOT / "build" / "mutation"
MEMORY: Final = 6 << 30
EXAMPLES: Final = 25
"""Of a property, where it does not ask for another number itself."""
MAX_FILES: Final = 12
"""Files of tests that a fresh process imports."""
_NUMBER_BYTES: Final = 4
_CACHED: Final = type(functools.cache(int))
_LAST: Final[tuple[Any, float]] = (None, 0.0)


def pytest_configure() -> None:
    """Let Hypothesis look for a failure only, not for the smallest, and not for long."""
    from hypothesis import Phase, settings  # pytest wants to be there first

    phases = (Phase.explicit, Phase.generate)
    parent = settings.get_profile("ci")
    settings.register_profile("mutation", parent, phases=phases, max_examples=EXAMPLES)
    settings.load_profile("mutation")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say which test runs, where somebody wants to know it."""
    if "MUTATED_REPORT" in os.environ:
        Path(os.environ["MUTATED_REPORT"]).write_text(nodeid, "utf-8")


class ReplacedModule:
    """An import finder that takes one module from another file."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find that module, no other."""
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path)


if "MUTATED_MODULE" in os.environ:
    finder: Any = ReplacedModule(os.environ["MUTATED_MODULE"], os.environ["MUTATED_FILE"])
    sys.meta_path.insert(0, finder)


class Outcome(NamedTuple):
    """What became of a mutant.

    Attributes:
        kind: `killed` or `survived`.
        first: the test that failed first, or what else decided it.
        seconds: how long that took.
    """

    kind: str
    first: str
    seconds: float


class Campaign:
    """Runs the tests against each mutant, in place of the ordinary run of tests.

    Args:
        mutants: what to run them against.
        done: hears of each outcome.
        record: whether to record again what tests reach.
        max_seconds: of all tests for one mutant.
        workers: how many mutants are looked at at the same time.
        until: when no other mutant is begun any more, by the monotonic clock.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        done: Callable[[Mutant, Outcome], None],
        *,
        record: bool,
        max_seconds: float,
        workers: int,
        until: float,
    ) -> None:
        self._mutants = mutants
        self._done = done
        self._is_recording = record
        self._max_seconds = max_seconds
        self._workers = workers
        self._until = until

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record the map if needed, then go through the mutants."""
        gc.unfreeze()
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _functions()
        self._caches: list[Any] = [value for value in gc.get_objects() if type(value) is _CACHED]
        gc.freeze()
        self._session = session
        tests = self._reach()
        numbers, to_do = os.pipe()  # of mutants: whoever is free reads the next
        outcomes, told = os.pipe()
        os.write(
            to_do, b"".join(each.to_bytes(_NUMBER_BYTES) for each in range(len(self._mutants)))
        )
        os.close(to_do)
        workers = []
        for _ in range(self._workers):
            workers.append(os.fork())
            if not workers[-1]:
                os.close(outcomes)
                _exit_after(lambda: self._work(tests, numbers, told))
        os.close(numbers)
        os.close(told)
        with os.fdopen(outcomes, encoding="utf-8") as lines:
            for line in lines:
                number, *outcome = json.loads(line)
                self._done(self._mutants[number], Outcome(*outcome))
        if any(os.waitpid(worker, 0)[1] for worker in workers):
            raise AssertionError("a worker has failed")
        return True

    def _work(self, tests: Reach, numbers: int, told: int) -> int:
        """Look at one mutant after the other, and tell of each; returns an exit code."""
        with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
            self._folder = Path(folder)
            while time.monotonic() < self._until and (read := os.read(numbers, _NUMBER_BYTES)):
                number = int.from_bytes(read)
                start = time.monotonic()
                kind, first = self._run(self._mutants[number], tests)
                seconds = round(time.monotonic() - start, 2)
                os.write(told, json.dumps([number, kind, first, seconds]).encode() + b"\n")
        return 0

    def _reach(self) -> Reach:
        BUILD.mkdir(parents=True, exist_ok=True)
        path = BUILD / "reach.json"
        if self._is_recording:
            path.unlink(missing_ok=True)
        known = Reach(path) if path.exists() else frozenset[str]()
        new = [item for name, item in self._items.items() if name not in known]
        if new:
            print(f"recording what {len(new)} tests reach", file=sys.stderr, flush=True)
            child = os.fork()
            if not child:
                _silence(1)
                record_reach(path, new, _passes)
                os._exit(0)
            os.waitpid(child, 0)
        return Reach(path, self._max_seconds)

    def _run(self, mutant: Mutant, tests: Reach) -> tuple[str, str]:
        """The outcome for one mutant, and what decided it.

        A test kills it if it fails, and passes after the same tests without the mutant.
        """
        chosen = [test for test in tests.tests_of(mutant) if test[0] in self._items]
        source = (ROOT / mutant.path).read_text("utf-8")
        filename = str(ROOT / mutant.path)
        try:
            code = compile(mutated_tree(source, mutant), filename, "exec", dont_inherit=True)
        except SyntaxError:
            return "killed", "does not compile"
        functions = self._functions.get((filename, mutant.scope.replace("()", "")), [])
        patched = dict(_codes(code))
        new = {id(each): patched.get(_key(each.__code__)) for each in functions}
        is_fresh = (
            not functions
            or tests.runs_at_import(mutant)
            or any(
                made is None or len(made.co_freevars) != len(each.__code__.co_freevars)
                for each, made in zip(functions, new.values(), strict=True)
            )
        )
        if is_fresh:
            files = list(dict.fromkeys(name.split("::")[0] for name, _ in chosen))[:MAX_FILES]
            chosen = [test for test in chosen if test[0].split("::")[0] in files]
        changed = ast.unparse(mutated_tree(source, mutant))

        def first_failed(tests: Sequence[tuple[str, float]], *, is_mutated: bool) -> str | None:
            if is_fresh:
                return self._first_of_fresh(mutant, changed if is_mutated else source, tests)
            codes = [(each, new[id(each)]) for each in functions] if is_mutated else []
            return self._first_of_fork(codes, tests)

        unfit = 0
        while chosen:
            failed = first_failed(chosen, is_mutated=True)
            if failed is None:
                return "survived", f"{unfit} tests were unfit" if unfit else ""
            at = next(at for at, (name, _) in enumerate(chosen) if name == failed)
            if first_failed(chosen[: at + 1], is_mutated=False) is None:
                return "killed", failed
            del chosen[at]
            unfit += 1
        return "survived", "not reached"

    def _first_of_fork(
        self,
        codes: Sequence[tuple[FunctionType, CodeType | None]],
        chosen: Sequence[tuple[str, float]],
    ) -> str | None:
        """The first test that fails where some functions have other code; None if none does."""
        report = self._folder / "last"
        report.write_text(chosen[0][0], "utf-8")
        process = _Process(5 * sum(each for _, each in chosen) + 20)
        if process.is_child:
            _exit_after(lambda: self._test_patched(codes, chosen, report))
        return report.read_text("utf-8") if process.status() else None

    def _test_patched(
        self,
        codes: Sequence[tuple[FunctionType, CodeType | None]],
        chosen: Sequence[tuple[str, float]],
        report: Path,
    ) -> int:
        """Exchange the code of functions, run tests until one fails; 0 if none does."""
        _silence(1, 2)
        for function, code in codes:
            if code is not None:
                function.__code__ = code
        for cached in self._caches:
            cached.cache_clear()
        items = [(self._items[name], each) for name, each in chosen]
        for (item, seconds), (following, _) in zip_longest(items, items[1:], fillvalue=_LAST):
            report.write_text(item.nodeid, "utf-8")
            # A test that goes on and on, or waits for ever, ends the process.
            signal.setitimer(signal.ITIMER_PROF, 5 * seconds + 3)
            signal.setitimer(signal.ITIMER_REAL, 20 * seconds + 30)
            if not _passes(item, following):
                return 1
        return 0

    def _first_of_fresh(
        self, mutant: Mutant, text: str, chosen: Sequence[tuple[str, float]]
    ) -> str | None:
        """The first test that fails where the module has another text; None if none does."""
        file, tests, report = (self._folder / name for name in ("mutated.py", "tests.txt", "last"))
        file.write_text(text, "utf-8")
        tests.write_text("\n".join(name for name, _ in chosen), "utf-8")
        report.write_text(chosen[0][0], "utf-8")
        module = mutant.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
        command += ["--tb=native", "--assert=plain"]
        named = {"MODULE": module, "FILE": str(file), "REPORT": str(report)}
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [*command, "-p", "tests.mutation.plugin", f"@{tests}"],
                cwd=ROOT,
                env=os.environ | {f"MUTATED_{name}": value for name, value in named.items()},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=20 * sum(each for _, each in chosen) + 180,
                check=False,
            )
            if not done.returncode:
                return None
        return report.read_text("utf-8")


class _Process:
    """A forked process with bounds on its time and memory."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._id = os.fork()
        if self.is_child:
            os.setsid()
            used = int(time.process_time() + self._seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (used, used + 5))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))

    @property
    def is_child(self) -> bool:
        return self._id == 0

    def status(self) -> int:
        """The exit code; 1 for a process that did not end by itself in time."""
        deadline = time.monotonic() + 4 * self._seconds
        ended = status = 0
        try:
            while not ended and time.monotonic() < deadline:
                ended, status = os.waitpid(self._id, os.WNOHANG)
                time.sleep(0.01)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._id, signal.SIGKILL)  # with whatever it has started
        if not ended:
            _, status = os.waitpid(self._id, 0)
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1


def _exit_after(work: Callable[[], int]) -> NoReturn:
    """End this process with the exit code that some work returns, or 1 with what it raises."""
    code = 1
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test, keeping the fixtures that the following one needs."""
    reports = runtestprotocol(item, nextitem=following, log=False)
    return not any(report.failed for report in reports)


def _functions() -> dict[tuple[str, str], list[FunctionType]]:
    """All functions by file and qualified name."""
    found: dict[tuple[str, str], list[FunctionType]] = {}
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and "/src/lace/" in value.__code__.co_filename:
            key = value.__code__.co_filename, value.__code__.co_qualname
            found.setdefault(key, []).append(value)
    return found


def _codes(code: CodeType) -> list[tuple[tuple[str, int], CodeType]]:
    """The code of a module's functions and of its classes' methods."""
    found = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.append((_key(constant), constant))
            found += _codes(constant)
    return found


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _silence(*streams: int) -> None:
    """Send what a child writes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in streams:
        os.dup2(nowhere, stream)
