"""Mutants: small faults put into the source, each with a name that survives shifted lines.

A mutant changes one node of one module: a comparison, a logical or arithmetic operator, a number,
a truth value, the order of two arguments, a condition, a returned value, or a statement that is
left out. Texts, annotations, decorators, f-strings and assertions of unreachable code stay as they
are. A sample takes the mutants whose functions and changes have the smallest digests under a seed,
the same number of each package, so that a change of one function changes the sample there only, and
a function that moves to another module changes nothing.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "PACKAGES",
    "ROOT",
    "SOURCE",
    "Mutant",
    "defined_names",
    "find_mutants",
    "mutated_tree",
    "sample_mutants",
    "scopes_of",
]

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src" / "lace"
PACKAGES: Final = (
    "record",
    "facts",
    "rules",
    "algebra",
    "policy",
    "exchange",
    "iltp",
    "link",
)

SHELLS: Final = ("link/client.py", "link/server.py", "link/side.py")
"""Modules without mutants: they start sessions, and tests reach them through processes."""

_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_MUTABLE: Final = (
    *(ast.Compare, ast.BoolOp, ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.Constant, ast.Call),
    *(ast.If, ast.IfExp, ast.While, ast.Return, ast.Break, ast.Continue),
    *(ast.Expr, ast.Raise, ast.Delete, ast.Assign),
)
_UNTOUCHED_NAMES: Final = {"__all__", "__slots__", "TYPE_CHECKING"}
_UNTOUCHED_CALLS: Final = {"TypeVar", "cast", "assert_never", "NewType", "AssertionError"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the node with this number, in the order of `ast.walk`, becomes another."""

    path: str
    """Of the module, below the root of the project."""
    scope: str
    """The qualified name of the outermost function, empty for code that runs at import."""
    before: str
    after: str
    occurrence: int
    """1 for the first such change in this scope, 2 for the second."""
    lines: tuple[int, int]
    """First line of the statement, last line of the node."""
    node: int
    choice: int

    @property
    def package(self) -> str:
        """The package of `lace` that it is in."""
        return self.path.split("/")[2]

    @property
    def name(self) -> str:
        """What names it, wherever its lines are."""
        place = self.path.removeprefix("src/lace/").removesuffix(".py").replace("/", ".")
        return f"{place}:{self._change}"

    @property
    def key(self) -> str:
        """What chooses it for a sample: without the module, from which a function may move."""
        return self._change if self.scope else self.name

    @property
    def _change(self) -> str:
        nth = f" #{self.occurrence}" if self.occurrence > 1 else ""
        return f"{self.scope or '<module>'}: {self.before} → {self.after}{nth}"


def sample_mutants(packages: Iterable[str], number: int, seed: str) -> list[Mutant]:
    """Take `number` mutants, as evenly as possible over the packages."""
    chosen = list(packages)
    sample = []
    for place, package in enumerate(chosen):
        share = number // len(chosen) + (place < number % len(chosen))
        found = [
            mutant
            for path in sorted((SOURCE / package).rglob("*.py"))
            if path.relative_to(SOURCE).as_posix() not in SHELLS
            for mutant in find_mutants(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        ]
        found.sort(key=lambda mutant: hashlib.sha256(f"{seed}:{mutant.key}".encode()).digest())
        sample += found[:share]
    return sample


def find_mutants(path: str, source: str) -> list[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(source)
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for node, scope, first in _nodes(tree, "", 1):
        for choice, changed in enumerate(_changes(node)):
            before, after = _shown(node), _shown(changed)
            seen[scope, before, after] += 1
            last = max(first, getattr(node, "end_lineno", None) or first)
            found.append(
                Mutant(
                    path,
                    scope,
                    before,
                    after,
                    seen[scope, before, after],
                    (first, last),
                    numbers[id(node)],
                    choice,
                )
            )
    return found


def scopes_of(source: str) -> list[tuple[str, str]]:
    """The functions of a module and the methods of its classes, by name, each with its text."""
    lines = source.split("\n")
    found = []

    def look(body: list[ast.stmt], before: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                    found.append((f"{before}{node.name}()", text))
                case ast.ClassDef():
                    look(node.body, f"{before}{node.name}.")

    look(ast.parse(source).body, "")
    return found


def defined_names(source: str, line: int) -> set[str]:
    """The names that the statement on a line defines, and the constants that follow from them."""
    tree = ast.parse(source)
    found = {
        name
        for statement in [*tree.body, *_class_statements(tree)]
        if statement.lineno <= line <= (statement.end_lineno or line)
        for name in _targets(statement)
    }
    while True:
        more = {
            name
            for statement in tree.body
            if isinstance(statement, ast.Assign | ast.AnnAssign)
            and not found.isdisjoint(_names(statement, ast.Load))
            for name in _targets(statement)
        }
        if more <= found:
            return found
        found |= more


def _class_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            yield from each.body


def _targets(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {name for target in targets for name in _names(target, ast.Store)}
        case ast.AnnAssign(target=target):
            return _names(target, ast.Store)
    return set()


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }


def mutated_tree(source: str, mutant: Mutant) -> ast.Module:
    """The module with the fault in it."""
    tree = ast.parse(source)
    target = list(ast.walk(tree))[mutant.node]
    changed = list(_changes(target))[mutant.choice]
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, field, changed)
            elif isinstance(value, list) and any(each is target for each in value):
                setattr(parent, field, [changed if each is target else each for each in value])
    return ast.fix_missing_locations(tree)


def _nodes(node: ast.AST, scope: str, first: int) -> Iterator[tuple[ast.AST, str, int]]:
    """The nodes that may change, with the outermost function around each and its statement."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inner = scope if scope.endswith("()") else f"{scope}{node.name}()"
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    yield from _nodes(default, scope if scope.endswith("()") else "", first)
            for statement in node.body:
                yield from _nodes(statement, inner, statement.lineno)
            return
        case ast.ClassDef():
            inner = scope if scope.endswith("()") else f"{scope}{node.name}."
            for statement in node.body:
                yield from _nodes(statement, inner, statement.lineno)
            return
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return
        case ast.Assign(targets=[ast.Name(id=name)]) if name in _UNTOUCHED_NAMES:
            return
        case ast.If(test=ast.Name(id=name)) if name in _UNTOUCHED_NAMES:
            return
        case ast.If(body=[ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError")))]):
            for statement in node.orelse:
                yield from _nodes(statement, scope, statement.lineno)
            return
        case ast.Call(func=ast.Name(id=name)) if name in _UNTOUCHED_CALLS:
            return
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name))) if name in _UNTOUCHED_CALLS:
            return
        case ast.keyword(arg="strict"):  # of zip: an assertion
            return
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return
    yield node, scope if scope.endswith("()") else "", first
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.stmt):
                yield from _nodes(child, scope, child.lineno)
            elif isinstance(child, ast.AST):
                yield from _nodes(child, scope, first)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become, always in the same order."""
    if not isinstance(node, _MUTABLE):
        return
    changed = deepcopy(node)
    match changed:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                again = deepcopy(changed)
                again.ops[place] = _SWAPS[type(operator)]()  # type: ignore[call-overload]
                yield again
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign():
            if swapped := _SWAPS.get(type(changed.op)):
                changed.op = swapped()  # type: ignore[assignment]
                yield changed
        case ast.UnaryOp(op=ast.Not()):
            yield changed.operand
        case ast.Constant(value=bool() as value):
            changed.value = not value
            yield changed
        case ast.Constant(value=int() as value):
            for other in (value + 1, value - 1):
                yield ast.copy_location(ast.Constant(other), changed)
        case ast.Call(func=ast.Name(id="min" | "max")):
            return  # the order of its arguments does not matter
        case ast.Call(args=[first, second, *_]):
            starred = any(isinstance(each, ast.Starred) for each in changed.args[:2])
            if not starred and ast.dump(first) != ast.dump(second):
                changed.args[:2] = [second, first]
                yield changed
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not isinstance(test, ast.Constant | ast.Compare | ast.BoolOp | ast.UnaryOp):
                changed.test = ast.UnaryOp(ast.Not(), test)
                yield changed
        case ast.Return(value=ast.expr() as value):
            if not isinstance(value, ast.Constant) or value.value not in (None, False):
                changed.value = ast.Constant(None)
                yield changed
        case ast.Break():
            yield ast.copy_location(ast.Continue(), changed)
        case ast.Continue():
            yield ast.copy_location(ast.Break(), changed)
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
            yield ast.copy_location(ast.Pass(), node)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield ast.copy_location(ast.Pass(), node)


def _shown(node: ast.AST) -> str:
    """The first line of a node's text."""
    text = ast.unparse(node)
    return text if "\n" not in text else text.split("\n", 1)[0]
