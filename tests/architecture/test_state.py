"""No state is global to the process: what links and stores share belongs to an object.

A module-level container that changes is seen by all threads, of all servers and laces of a
program. The test reads the source as syntax trees and lists what can change: containers that
are no constants, objects of a module's own classes, constants that some function changes, and
caches. Each that remains is in `ALLOWED`, with the reason.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).resolve().parents[2] / "src" / "lace"

ALLOWED = {
    # The process has one of each, whatever it runs; all are used under a lock.
    "link/resources.py:_before": "thresholds of the process's garbage collector, under a lock",
    "link/resources.py:_lock": "guards them",
    "store/lock.py:_guard": "guards the turns",
    "store/lock.py:_turns": "file locks belong to the process: its threads take turns, by path",
    "store/cpu_slots.py:_own": "each thread sees its own value",
    "store/cpu_slots.py:_slots": "threads share one interpreter lock; used under a lock",
    "store/sqlite/insert.py:_by_database": "records by content, by path; used under a lock",
    "store/sqlite/insert.py:_guard": "guards them",
    "store/interface.py:_lock": "guards the watchers",
    "store/interface.py:_watchers": "handles of one folder find each other; used under a lock",
    # Caches of pure functions: what they return depends on the arguments alone.
    "base/digest.py:_hasher": "a prepared hasher for a context, which callers copy",
    "policy/compile.py:lowering_rules": "the rules of a lowering for a viewer, immutable",
    "record/validate.py:_public_key": "the bytes of a verifier",
}

CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
# fmt: off
MAKERS = frozenset({
    "Condition", "Counter", "Lock", "OrderedDict", "RLock", "WeakKeyDictionary", "WeakSet",
    "WeakValueDictionary", "bytearray", "count", "defaultdict", "deque", "dict", "list", "local",
    "set",
})
CHANGES = frozenset({
    "__setitem__", "add", "append", "appendleft", "clear", "difference_update", "discard", "extend",
    "insert", "intersection_update", "pop", "popitem", "popleft", "remove", "setdefault", "update",
})
# fmt: on
CACHES = frozenset({"cache", "lru_cache"})


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a module or class binds, with their values."""
    for node in body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.ClassDef):
            for name, value in _bindings(node.body):
                if isinstance(value, CONTAINERS) and not name.startswith("__"):
                    yield f"{node.name}.{name}", value
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _bindings(node.body)


def _changed(tree: ast.Module) -> Iterator[str]:
    """Yield the names that functions of a module change in place, or bind again."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        arguments = function.args
        given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        local = {found.arg for found in given}
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield from node.names
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                local.add(node.id)
        for node in ast.walk(function):
            found: ast.expr | None = None
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                found = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found = node.func.value if node.func.attr in CHANGES else None
            if isinstance(found, ast.Name) and found.id not in local:
                yield found.id


def states_of(text: str) -> set[str]:
    """Return the names of a module that hold what can change."""
    tree = ast.parse(text)
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    bound = dict(_bindings(tree.body))
    bound.pop("__all__", None)
    found = set(_changed(tree)) & {*bound, *_imported_constants(tree)}
    for name, value in bound.items():
        is_constant = name.rpartition(".")[2].lstrip("_").isupper()
        made_by = _name(value) if isinstance(value, ast.Call) else ""
        is_object = isinstance(value, CONTAINERS) or made_by in own
        if made_by in MAKERS or (is_object and not is_constant):
            found.add(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found |= {node.name for each in node.decorator_list if _name(each) in CACHES}
    return found


def _imported_constants(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lace"):
            names = (alias.asname or alias.name for alias in node.names)
            yield from (name for name in names if name.lstrip("_").isupper())


def test_module_level_state_is_listed_with_a_reason() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in states_of(path.read_text())
    }
    unlisted, gone = found - ALLOWED.keys(), ALLOWED.keys() - found
    assert not unlisted, f"state that is global to the process: {sorted(unlisted)}"
    assert not gone, f"remove from the list: {sorted(gone)}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_links = set()", {"_links"}),
        ("_links: Final[WeakSet[int]] = weakref.WeakSet()", {"_links"}),
        ("_links = {}", {"_links"}),
        ("class A:\n    links = []", {"A.links"}),
        ("class A:\n    pass\n_one = A()", {"_one"}),
        ("_TABLE = {1: 2}", set()),
        ("_TABLE = {1: 2}\ndef put():\n    _TABLE[1] = 3", {"_TABLE"}),
        ("_TABLE = []\ndef put():\n    _TABLE.append(3)", {"_TABLE"}),
        ("_TABLE = []\ndef put(_TABLE):\n    _TABLE.append(3)", set()),
        ("_n = 0\ndef put():\n    global _n\n    _n += 1", {"_n"}),
        ("from lace.a import TABLE\ndef put():\n    TABLE.clear()", {"TABLE"}),
        ("@lru_cache(maxsize=4)\ndef f(a):\n    return a", {"f"}),
        ("@functools.cache\ndef f(a):\n    return a", {"f"}),
    ],
)
def test_the_check_sees_state(text: str, expected: set[str]) -> None:
    assert states_of(text) == expected
