"""The nodes of the rule language: frozen values that print themselves canonically (030).

Every node carries the span of source that it came from; spans take no part in
equality, so two rules are equal when their canonical lines are. Constructors refuse
what no rule may hold: a node that exists can be printed and read back. Whether a rule
makes sense (safety, strata, reserved names) is for `lace.rules.checks`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeGuard

from lace.base.text import LINE_BREAK, is_nfc, shorten
from lace.errors import RuleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


NAME: Final = re.compile(r"_?[A-Za-z][A-Za-z0-9_~-]*")
_KEY: Final = re.compile(rf"({NAME.pattern})/([0-9]{{1,3}})")
VARIABLE: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
INTEGER: Final = re.compile(r"-?[0-9]+")

Operator = Literal["<", "<=", ">", ">="]
OPERATORS: Final[tuple[Operator, ...]] = ("<", "<=", ">", ">=")
BUILTINS: Final = frozenset({"not", "true", "IntCompare", "LexCompare", "TextShape", "Cardinality"})
"""Words with a meaning of their own: no rule defines them, no ordinary atom uses them."""


class Span(NamedTuple):
    """A stretch of one source line; columns count code points from 1, `end` is one behind."""

    line: int
    column: int
    end: int


NOWHERE: Final = Span(0, 0, 0)
"""The span of a node that comes from no text, such as a generated rule."""


class PredicateKey(NamedTuple):
    """What tells predicates apart: `P/1` and `P/2` are different ones."""

    name: str
    arity: int

    def __str__(self) -> str:
        return f"{self.name}/{self.arity}"


def parse_predicate(text: str) -> PredicateKey:
    """Return the predicate that `Name/arity` names."""
    found = _KEY.fullmatch(text)
    if not found:
        raise UsageError(
            f"{shorten(text)!r} names no predicate", hint="name and arity, as in Selected/1"
        )
    return PredicateKey(found[1], int(found[2]))


class Use(Enum):
    """How a body uses a predicate."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    CARDINALITY = "cardinality"


def is_operator(text: str) -> TypeGuard[Operator]:
    """Tell whether text is one of the four comparison operators."""
    return text in OPERATORS


def quote(value: str) -> str:
    r"""Return the constant that stands for a value, in quotes.

    >>> quote("it's")
    "'it\\'s'"
    """
    if "\\" in value or "'" in value:
        value = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{value}'"


@dataclass(frozen=True, slots=True)
class Variable:
    """A named variable."""

    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not VARIABLE.fullmatch(self.name):
            raise RuleError(f"{shorten(self.name)!r} is not a variable", rule="030-20")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Anonymous:
    """The term `_`: any value, bound to nothing; each one stands alone."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class Constant:
    """A quoted text."""

    value: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        value = self.value
        if value.isascii() and value.isprintable():
            return
        if LINE_BREAK.search(value):
            raise RuleError("a constant must not hold LF or CR", rule="030-25")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise RuleError("a constant is UTF-8 text", rule="030-23") from None
        if not is_nfc(value):
            raise RuleError(f"constant {shorten(value)!r} is not in NFC", rule="030-23")

    def __str__(self) -> str:
        return quote(self.value)


Term = Variable | Anonymous | Constant


@dataclass(frozen=True, slots=True)
class Atom:
    """A predicate with its terms: a head, a positive body atom, or what is negated or counted.

    `key` is the predicate: name and arity.
    """

    name: str
    terms: tuple[Term, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    key: PredicateKey = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise RuleError(f"{shorten(self.name)!r} is not a predicate name", rule="030-17")
        object.__setattr__(self, "key", PredicateKey(self.name, len(self.terms)))

    @property
    def name_span(self) -> Span:
        """Where the name stands."""
        return Span(self.span.line, self.span.column, self.span.column + len(self.name))

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.terms))})"


@dataclass(frozen=True, slots=True)
class NegatedAtom:
    """`not` and an atom: no fact matches it."""

    atom: Atom
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return f"not {self.atom}"


@dataclass(frozen=True, slots=True)
class Inequality:
    """`X != Y`: two different texts."""

    left: Term
    right: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that it tests."""
        return self.left, self.right

    def __str__(self) -> str:
        return f"{self.left} != {self.right}"


@dataclass(frozen=True, slots=True)
class IntCompare:
    """Comparison of decimal integers of any length."""

    left: Term
    operator: Operator
    right: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_operator("IntCompare", self.operator)
        for term in (self.left, self.right):
            if isinstance(term, Constant) and not INTEGER.fullmatch(term.value):
                raise RuleError(f"{term} is not a decimal integer", rule="030-67")

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that it tests."""
        return self.left, self.right

    def __str__(self) -> str:
        return f"IntCompare({self.left},'{self.operator}',{self.right})"


@dataclass(frozen=True, slots=True)
class LexCompare:
    """Bytewise comparison of texts."""

    left: Term
    operator: Operator
    right: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_operator("LexCompare", self.operator)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that it tests."""
        return self.left, self.right

    def __str__(self) -> str:
        return f"LexCompare({self.left},'{self.operator}',{self.right})"


@dataclass(frozen=True, slots=True)
class TextShape:
    """How a text begins, is divided and ends; `delimiters` is a constant, a set of characters."""

    text: Term
    start: Term
    delimiters: Constant
    end: Term
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that it tests."""
        return self.text, self.start, self.end

    def __str__(self) -> str:
        return f"TextShape({self.text},{self.start},{self.delimiters},{self.end})"


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many distinct facts match an atom, against a bound that is kept as it is written."""

    atom: Atom
    operator: Operator
    bound: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_operator("Cardinality", self.operator)
        if not INTEGER.fullmatch(self.bound):
            raise RuleError(f"{shorten(self.bound)!r} is not a decimal integer", rule="030-89")

    def __str__(self) -> str:
        return f"Cardinality({self.atom},'{self.operator}','{self.bound}')"


@dataclass(frozen=True, slots=True)
class TrueAtom:
    """The body atom `true`."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        return "true"


Test = Inequality | IntCompare | LexCompare | TextShape
BodyAtom = Atom | NegatedAtom | Test | Cardinality | TrueAtom


def _check_operator(name: str, operator: str) -> None:
    if operator not in OPERATORS:
        raise RuleError(f"{shorten(operator)!r} is not an operator of {name}", rule="030-68")


@dataclass(frozen=True, slots=True)
class Rule:
    """A head and the conditions under which it holds; printed, it is a canonical line."""

    head: Atom
    body: tuple[BodyAtom, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.body:
            raise RuleError(
                f"the rule for {self.head.key} has no body", rule="030-16", hint="use true"
            )

    def positive_atoms(self) -> Iterator[Atom]:
        """Yield the atoms that bind variables."""
        for item in self.body:
            if isinstance(item, Atom):
                yield item

    def uses(self) -> Iterator[tuple[Use, Atom]]:
        """Yield every predicate atom of the body with the way it is used."""
        for item in self.body:
            match item:
                case Atom():
                    yield Use.POSITIVE, item
                case NegatedAtom(atom):
                    yield Use.NEGATIVE, atom
                case Cardinality(atom):
                    yield Use.CARDINALITY, atom
                case _:
                    pass

    def __str__(self) -> str:
        return f"{self.head} :- {', '.join(map(str, self.body))}."
