"""What each built-in means, as pure functions over texts (030).

This is the reference: engines may compute differently, never answer differently.
"""

from __future__ import annotations

import operator as operators
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lace.rules.syntax import INTEGER, Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_COMPARE: Final[Mapping[Operator, Callable[[Any, Any], bool]]] = MappingProxyType(
    {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
)

_SAFE_DIGITS: Final = 19
"""A number of fewer digits fits into 64 bits."""


def unequal(left: str, right: str) -> bool:
    """Tell whether two texts differ (`!=`)."""
    return left != right


def is_integer(text: str) -> bool:
    """Tell whether a text is a decimal integer: a minus perhaps, then ASCII digits."""
    return INTEGER.fullmatch(text) is not None


def int_compare(left: str, operator: Operator, right: str) -> bool:
    """Compare decimal integers of any length; False when a text is not one.

    Leading zeros do not count, and `-0` is `0`.

    >>> int_compare("10", ">", "9"), int_compare("ten", ">", "9")
    (True, False)
    """
    first, second = integer_rank(left), integer_rank(right)
    return first is not None and second is not None and _COMPARE[operator](first, second)


def integer_rank(text: str) -> tuple[int, int, str] | None:
    """Return what orders integers as numbers (sign, then length, then digits), or None.

    Below zero length and digits are turned round, so no number is ever made: a text may
    have more digits than any number type takes. None is for a text that is no integer.
    """
    if not is_integer(text):
        return None
    digits = text.lstrip("-").lstrip("0")
    if not digits:
        return (0, 0, "")
    if text[0] == "-":
        return (-1, -len(digits), digits.translate(_NINES))
    return (1, len(digits), digits)


_NINES: Final = str.maketrans("0123456789", "9876543210")


def lex_compare(left: str, operator: Operator, right: str) -> bool:
    """Compare two texts by their UTF-8 bytes.

    >>> lex_compare("10", "<", "9")
    True
    """
    return _COMPARE[operator](left.encode("utf-8"), right.encode("utf-8"))


def text_shape(text: str, start: str, delimiters: str, end: str) -> bool:
    """Tell whether a text begins with `start` and, behind it, has the shape asked for.

    Without delimiters the rest ends with `end`. With delimiters the rest is a segment
    that is not empty, the first delimiter, and exactly `end`.

    >>> text_shape("links/bob.msg", "links/", "./", "msg")
    True
    """
    if not text.startswith(start):
        return False
    rest = text[len(start) :]
    if not delimiters:
        return rest.endswith(end)
    at = next((i for i, character in enumerate(rest) if character in delimiters), 0)
    return at > 0 and rest[at + 1 :] == end


def count_bound(bound: str) -> int:
    """Return a bound of a count as a number of 64 bits that every count compares alike with.

    A count is never below 0 and never near 2^62, so -1 replaces every bound below 0, and
    2^62 every bound of more than 18 digits.

    >>> count_bound("007"), count_bound("-" + "9" * 40), count_bound("9" * 40) == 2**62
    (7, -1, True)
    """
    sign, size, digits = integer_rank(bound) or (0, 0, "")
    if sign <= 0:
        return sign
    return int(digits) if size < _SAFE_DIGITS else 2**62


def cardinality_holds(count: int, operator: Operator, bound: str) -> bool:
    """Tell whether a number of facts meets a bound, a decimal integer of any length.

    >>> cardinality_holds(3, "<", "100")
    True
    """
    return int_compare(str(count), operator, bound)
