"""One source line to tokens: words, constants, marks; anything else is a token too.

The lexer refuses nothing. What no rule may hold becomes a token of a kind that the
parser reports, so that one bad character does not hide the rest of the line. Time is
linear in the length of the line.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

__all__ = ["Kind", "Token", "tokenize"]

Kind = Literal[
    "word", "quoted", "open", "double", "neck", "unequal", "operator", "comment", "other", "end",
    "(", ")", ",", ".",
]  # fmt: skip
"""`open` is a constant without its closing quote, `double` one in other quotes."""

_CURLED: Final = "\u2018\u2019\u201c\u201d\u00b4`"
_TOKEN: Final = re.compile(
    rf"""
      (?P<space>[ \t]+)
    | (?P<word>[\w~-]+)
    | (?P<mark>[(),.])
    | (?P<quoted>'[^'\\]*(?:\\.[^'\\]*)*')
    | (?P<neck>:-)
    | (?P<unequal>!=)
    | (?P<operator>[=<>]+)
    | (?P<open>'.*)
    | (?P<double>"[^"]*"?
        | [{_CURLED}][^{_CURLED}]*[{_CURLED}]?)
    | (?P<comment>\#.*)
    | (?P<other>.)
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """A piece of a line; columns count code points from 1, `end` is one behind."""

    kind: Kind
    text: str
    column: int
    end: int


def tokenize(line: str) -> list[Token]:
    """Return the tokens of a line, closed by one of kind `end`.

    >>> [token.text for token in tokenize("A(X) :- B(X).")]
    ['A', '(', 'X', ')', ':-', 'B', '(', 'X', ')', '.', '']
    """
    tokens: list[Token] = []
    last = 0
    for found in _TOKEN.finditer(line):
        kind = found.lastgroup
        if kind == "space":
            continue
        text = found[0]
        last = found.end()
        tokens.append(
            Token(text if kind == "mark" else kind, text, found.start() + 1, last + 1)  # type: ignore[arg-type]  # the pattern's groups are the kinds
        )
    tokens.append(Token("end", "", last + 1, last + 2))
    return tokens
