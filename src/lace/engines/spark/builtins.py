"""Built-in tests as Spark columns of text: they mean what `lace.rules.builtins` says.

Spark compares strings as UTF-8 bytes. Integers of any length are compared by sign, number
of digits and digits, never as numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from lace.rules.builtins import int_compare, lex_compare, text_shape, unequal
from lace.rules.syntax import Constant, Inequality, IntCompare, LexCompare, TextShape, Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from lace.rules.syntax import Operator, Term, Test

__all__ = ["compared", "holds_always", "integer_key", "is_integer", "order_key", "test_column"]

_INTEGER: Final = r"\A-?[0-9]+\z"
_DIGITS: Final = "0123456789"


def compared(left: Column, operator: Operator, right: Column) -> Column:
    """Return the comparison of two columns."""
    match operator:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right


def is_integer(text: Column) -> Column:
    """Tell whether a text is a decimal integer."""
    return text.rlike(_INTEGER)


def integer_key(text: Column) -> Column:
    """Return what orders integers as numbers; it means something for integers only."""
    digits = F.ltrim(F.ltrim(text, F.lit("-")), F.lit("0"))
    sign = F.when(digits == "", 0).when(text.startswith("-"), -1).otherwise(1)
    turned = F.translate(digits, _DIGITS, _DIGITS[::-1])
    return F.struct(
        sign.alias("sign"),
        (sign * F.char_length(digits)).alias("length"),
        F.when(sign < 0, turned).otherwise(digits).alias("digits"),
    )


def order_key(test: LexCompare | IntCompare, text: Column) -> tuple[Column, Column]:
    """Return what a comparison orders texts by, and whether a text takes part in it."""
    if isinstance(test, IntCompare):
        return integer_key(text), is_integer(text)
    return text, F.lit(True)


def test_column(test: Test, text_of: Callable[[str], Column]) -> Column:
    """Return whether a test holds, from the texts of its variables."""

    def value(term: Term) -> Column:
        return text_of(term.name) if isinstance(term, Variable) else F.lit(_constant(term))

    match test:
        case Inequality():
            return value(test.left) != value(test.right)
        case IntCompare():
            left, right = value(test.left), value(test.right)
            ordered = compared(integer_key(left), test.operator, integer_key(right))
            return is_integer(left) & is_integer(right) & ordered
        case LexCompare():
            return compared(value(test.left), test.operator, value(test.right))
        case TextShape():
            texts = value(test.text), value(test.start), value(test.end)
            return _shape(*texts, test.delimiters.value)


def _shape(text: Column, start: Column, end: Column, delimiters: str) -> Column:
    rest = F.substring(text, F.char_length(start) + 1, F.char_length(text))
    if not delimiters:
        return F.startswith(text, start) & F.endswith(rest, end)
    # As code points, so that no delimiter means anything to a regular expression.
    inside = "".join(f"\\x{{{ord(character):X}}}" for character in delimiters)
    shape = F.lit(rf"(?s)\A[^{inside}]+[{inside}](.*)\z")
    behind = F.regexp_extract(rest, rf"(?s)\A[^{inside}]+[{inside}](.*)\z", 1)
    return F.startswith(text, start) & F.regexp_like(rest, shape) & (behind == end)


def holds_always(test: Test) -> bool:
    """Tell whether a test without variables holds."""
    match test:
        case Inequality():
            return unequal(_constant(test.left), _constant(test.right))
        case IntCompare():
            return int_compare(_constant(test.left), test.operator, _constant(test.right))
        case LexCompare():
            return lex_compare(_constant(test.left), test.operator, _constant(test.right))
        case TextShape():
            text, start, end = (_constant(term) for term in test.terms)
            return text_shape(text, start, test.delimiters.value, end)


def _constant(term: Term) -> str:
    if not isinstance(term, Constant):
        raise AssertionError("a term of a test is a variable or a constant")
    return term.value
