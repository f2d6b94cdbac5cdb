"""Reading the terms of an atom: variables, `_` and constants, and what was meant instead.

The reader holds the tokens of one line and the place in them; `lace.rules.parser`
builds atoms and rules on it. After a fault it goes on at the next comma or bracket,
and marks the line as unsound: what it then returns stands in for what was written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lace.base.text import is_nfc, normalize_nfc
from lace.rules.findings import show
from lace.rules.lexer import Token, tokenize
from lace.rules.syntax import INTEGER, NAME, VARIABLE, Anonymous, Constant, Span, Term, Variable

if TYPE_CHECKING:
    from lace.rules.findings import Reporter
    from lace.rules.lexer import Kind

__all__ = ["TermReader", "hint_for_character"]

_QUOTES: Final = '"\u2018\u2019\u201c\u201d\u00b4\u0060'
_ESCAPE: Final = re.compile(r"\\(.)")


class TermReader:
    """The tokens of one line, and how far they have been read."""

    def __init__(self, number: int, text: str, reporter: Reporter) -> None:
        self._number = number
        self._report = reporter
        self._tokens = tokenize(text)
        self._at = 0
        self._faulty = -1
        self.sound = True
        self._drop_comment()

    def _drop_comment(self) -> None:
        if len(self._tokens) > 1 and self._tokens[-2].kind == "comment":
            comment = self._tokens.pop(-2)
            self._error("G19", comment, "a comment has a line of its own", "move it above the rule")

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _next(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _is(self, *kinds: Kind) -> bool:
        return self._tokens[self._at].kind in kinds

    def _span(self, first: Token, last: Token | None = None) -> Span:
        return Span(self._number, first.column, (last or first).end)

    def _since(self, first: Token) -> Span:
        """Return the span from a token to the one read last."""
        return self._span(first, self._tokens[max(0, self._at - 1)])

    def _error(self, rule: str, where: Token | Span, message: str, hint: str | None = None) -> None:
        span = self._span(where) if isinstance(where, Token) else where
        self._report.error(rule, span, message, hint)

    def _unexpected(self, rule: str, wanted: str, hint: str | None = None) -> None:
        """Report the present token, where something else belongs; each token once."""
        self.sound = False
        if self._faulty == self._at:
            return
        self._faulty = self._at
        token = self._token
        found = f", found {_describe(token)}"
        if token.kind == "end":
            found = " before the end of the line"
        elif token.kind == "other" and hint is None:
            hint = hint_for_character(token.text)
        self._error(rule, token, f"expected {wanted}{found}", hint)

    def _skip_to(self, *kinds: Kind) -> None:
        """Go on at the next token of these kinds outside brackets, or at the end."""
        depth = 0
        while not self._is("end") and (depth or not self._is(*kinds)):
            token = self._take()
            depth = max(0, depth + (token.kind == "(") - (token.kind == ")"))

    def _skip_brackets(self) -> None:
        """Step over a bracketed group that begins here."""
        self._take()
        self._skip_to(")")
        self._take()

    def _terms(self) -> tuple[Term, ...]:
        """Read terms up to the closing bracket and over it; the opening one is read."""
        if self._is(")"):
            self._take()
            return ()
        terms: list[Term] = []
        while True:
            terms.append(self._term())
            if not self._is(",", ")"):
                self._after_term()
            if not self._is(","):
                break
            self._take()
        if self._is(")"):
            self._take()
        return tuple(terms)

    def _after_term(self) -> None:
        if self._is("end", "neck", "."):
            self._unexpected("030-26", "`)` behind the terms")
            return
        self._unexpected("030-26", "`,` or `)` after a term")
        self._skip_to(",", ")")

    def _term(self) -> Term:
        """Read one term; report what is not a term, and return `_` for it."""
        token = self._token
        span = self._span(token)
        match token.kind:
            case "word" if self._next.kind == "(":
                self._nested(token)
            case "word":
                self._take()
                if token.text == "_":
                    return Anonymous(span)
                if VARIABLE.fullmatch(token.text):
                    return Variable(token.text, span)
                self._not_a_term(token)
            case "quoted":
                self._take()
                constant = self._constant(token)
                if constant is not None:
                    return constant
            case "open":
                self._take()
                self._error("030-23", span, "a constant begins here and has no closing quote")
                self._faulty = self._at  # nothing else can be said about the end of the line
            case "double":
                self._take()
                inside = show(token.text.strip(_QUOTES))
                self._error(
                    "030-23", span, "constants stand in straight single quotes", f"write '{inside}'"
                )
            case ",":
                self._error("030-26", span, "a term is missing before the comma")
            case ")":
                self._error("030-26", span, "a term is missing before the bracket")
            case "(":
                self._unexpected("030-26", "a term")
                self._skip_brackets()
            case "end" | "neck" | ".":
                self._unexpected("030-26", "a term")
            case _:
                self._unexpected("030-26", "a term")
                self._take()
        self.sound = False
        return Anonymous(span)

    def _nested(self, token: Token) -> None:
        name = show(token.text)
        self._take()
        self._skip_brackets()
        self._error(
            "030-26",
            self._since(token),
            f"{name}(…) is not a term: terms are variables, _ and constants",
            "give the inner atom a place of its own in the body",
        )

    def _not_a_term(self, token: Token) -> None:
        text = show(token.text)
        if INTEGER.fullmatch(token.text):
            rule, hint = "030-23", f"numbers are constants: write '{text}'"
        elif token.text.startswith("_"):
            rule, hint = "030-22", "write _ for any value, or a variable that begins with a capital"
        elif NAME.fullmatch(token.text) and token.text[0].islower():
            rule = "030-20"
            hint = f"a variable begins with a capital letter, a constant stands in quotes: '{text}'"
        else:
            rule, hint = "030-20", "a variable holds ASCII letters, digits and _ only"
        self._error(rule, token, f"{text} is not a term", hint)

    def _constant(self, token: Token) -> Constant | None:
        """Return the constant of a quoted token, or None after reporting its fault."""
        inside = token.text[1:-1]
        escapes = list(_ESCAPE.finditer(inside)) if "\\" in inside else []
        for escape in escapes:
            if escape[1] not in "'\\":
                at = token.column + 1 + escape.start()
                self._error(
                    "030-24",
                    Span(self._number, at, at + 2),
                    f"{show(escape[0])} is not an escape",
                    r"only \\ and \' are; write a backslash as \\",
                )
                return None
        value = _ESCAPE.sub(r"\1", inside) if escapes else inside
        if value.isascii() and value.isprintable():
            return Constant(value, self._span(token))
        if not is_nfc(value):
            self._error(
                "030-23",
                token,
                "a constant is in Unicode normal form NFC, this one is not",
                f"write it as '{show(normalize_nfc(inside))}'",
            )
            return None
        return Constant(value, self._span(token))


def _describe(token: Token) -> str:
    if token.kind == "other" and not token.text.isprintable():
        return f"the character U+{ord(token.text):04X}"
    return f"`{show(token.text)}`"


def hint_for_character(character: str) -> str | None:
    """Return what a character that belongs nowhere was probably meant to be."""
    return "a comment is a line that begins with #" if character in "%/" else None
