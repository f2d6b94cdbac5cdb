"""What the package shows: its names, its errors, and the rules that errors cite."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import lace
from lace.api.explain import explanations
from lace.errors import LaceError

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lace"
EXIT_CODES = {1, 2, 3, 4, 5, 6}
OF_CALLERS = ("EngineError", "SettingError", "TypeError", "UsageError")
"""Errors about how Lace is called or set up, which no rule of the record format is about."""


def test_the_front_page() -> None:
    """Which names it has, and how they are called, is told by tests/api/test_surface.py."""
    assert all(hasattr(lace, name) for name in lace.__all__)
    assert not hasattr(lace, "Nonsense")
    assert set(lace.__all__) <= set(dir(lace))
    assert lace.Lacegram.parse("A(P) :- Have( P ).").canonical == "A(P) :- Have(P)."


def modules() -> list[str]:
    found = [info.name for info in pkgutil.walk_packages([str(SOURCE)], "lace.")]
    return [name for name in found if name != "lace.__main__"]


def test_every_name_that_a_module_exports_is_there() -> None:
    missing = []
    for name in modules():
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", ())
        missing += [f"{name}.{item}" for item in exported if not hasattr(module, item)]
    assert not missing


def test_every_error_is_a_lace_error_with_an_exit_code() -> None:
    """Private exceptions never leave their module; signals are no errors."""
    found: dict[str, type[Exception]] = {}
    for name in modules():
        for item, value in vars(importlib.import_module(name)).items():
            if not (inspect.isclass(value) and issubclass(value, Exception)):
                continue
            if value.__module__.startswith("lace.") and not item.startswith("_"):
                found[f"{value.__module__}.{item}"] = value
    assert found
    strangers = [name for name, kind in found.items() if not issubclass(kind, LaceError)]
    assert not strangers
    for name, kind in found.items():
        assert issubclass(kind, LaceError)
        assert kind.exit_code in EXIT_CODES, name


def raised_rules(path: Path) -> tuple[set[str], list[str]]:
    """The rules that a module's errors cite, and the errors that cite none.

    A rule is the first argument of `fault` and `_Lost`, or the keyword `rule` of an error.
    """
    cited: set[str] = set()
    without: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        called = node.func.id
        if called in ("fault", "_Lost"):
            rule: ast.expr | None = node.args[0]
        elif called.endswith("Error") and called not in OF_CALLERS:
            if called in ("ValueError", "AssertionError"):
                continue
            rule = next((word.value for word in node.keywords if word.arg == "rule"), None)
        else:
            continue
        match rule:
            case ast.Constant(value=str(text)):
                cited.add(text)
            case None:
                without.append(f"{path.name}:{node.lineno}: {called}")
    return cited, without


def test_every_error_about_a_record_cites_a_rule_that_is_explained() -> None:
    cited: set[str] = set()
    without: list[str] = []
    for path in sorted([*(SOURCE / "base").glob("*.py"), *(SOURCE / "record").glob("*.py")]):
        rules, bare = raised_rules(path)
        cited |= rules
        without += bare
    assert not without, "an error that cites no rule"
    assert cited <= explanations().keys(), "a rule that is not explained"
