"""What a program gives to a public function: refused by its name when it is something else.

A checker finds such mistakes before a program runs; this is for programs that have none, and
for values that come from elsewhere. Only the kind of a value is told, never what it holds:
that may be secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lace.errors import UsageError

if TYPE_CHECKING:
    import re

__all__ = ["check_argument", "check_callable", "check_count", "check_many", "is_text_of", "kind_of"]


def kind_of(value: object) -> str:
    """Return what something is, for a message.

    >>> kind_of(5), kind_of(None), kind_of(int)
    ('int', 'None', 'the class int')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else type(value).__name__


def is_text_of(pattern: re.Pattern[str], value: object) -> bool:
    """Tell whether something is text, and all of it of a form."""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def check_argument(
    value: object, kinds: type | tuple[type, ...], said: str, hint: str | None = None
) -> None:
    """Refuse an argument of another kind.

    Args:
        value: what was given.
        kinds: what it may be.
        said: what it is called and should be, as "path is the path of a folder".
        hint: what to do instead.

    Raises:
        UsageError: its type is not one of these.
    """
    if not isinstance(value, kinds):
        raise UsageError(f"{said}, not {kind_of(value)}", hint=hint)


def check_many(value: object, said: str, hint: str | None = None) -> None:
    """Refuse what is not several things: a text and bytes are one, though they can be iterated.

    Raises:
        UsageError: it cannot be iterated, or is one text.
    """
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Iterable):
        raise UsageError(f"{said}, not {kind_of(value)}", hint=hint)


def check_callable(value: object, said: str) -> None:
    """Refuse what is neither a function nor None.

    Raises:
        UsageError: it cannot be called.
    """
    if value is not None and not callable(value):
        raise UsageError(f"{said}, not {kind_of(value)}", hint="give a function, or leave it out")


def check_count(value: object, said: str) -> None:
    """Refuse what is neither a number from 0 on nor None.

    Raises:
        UsageError: it is something else, or below 0.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{said} is a number from 0 on, not {kind_of(value)}")
    if value < 0:
        raise UsageError(f"{said} is a number from 0 on, not {value}")
