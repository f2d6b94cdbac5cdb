"""One line to one rule, with every fault in it that can be told apart.

The parser knows the shape of rules and of the built-ins. It does not know which
variables are safe or which names are reserved: that is for `lace.rules.checks`.

Apart from `source`, which knows lines and comments; this knows one rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lace.base.text import is_nfc, normalize_nfc
from lace.rules.findings import show
from lace.rules.syntax import (
    BUILTINS,
    INTEGER,
    NAME,
    VARIABLE,
    Anonymous,
    Atom,
    BodyAtom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    Operator,
    Rule,
    Span,
    Term,
    TextShape,
    TrueAtom,
    Variable,
    is_operator,
)

if TYPE_CHECKING:
    from lace.rules.findings import Reporter


# -- One source line to tokens: words, constants, marks; anything else is a token too.
#
# The lexer refuses nothing. What no rule may hold becomes a token of a kind that the
# parser reports, so that one bad character does not hide the rest of the line. Time is
# linear in the length of the line.

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


# -- Reading the terms of an atom: variables, `_` and constants, and what was meant instead.
#
# The reader holds the tokens of one line and the place in them; `lace.rules.parser`
# builds atoms and rules on it. After a fault it goes on at the next comma or bracket,
# and marks the line as unsound: what it then returns stands in for what was written.

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


# -- Reading body atoms: predicates, negation, tests and counting, each in its one legal shape.

_SHAPES: Final = {
    "IntCompare": "IntCompare(A, Op, B)",
    "LexCompare": "LexCompare(A, Op, B)",
    "TextShape": "TextShape(Text, Start, Delims, End)",
    "Cardinality": "Cardinality(Predicate(Term, …), Op, N)",
}
_OPERATOR_RULE: Final = {"IntCompare": "030-68", "LexCompare": "030-70", "Cardinality": "030-88"}
_FORM_RULE: Final = {
    "IntCompare": "030-29",
    "LexCompare": "030-30",
    "TextShape": "030-31",
    "Cardinality": "030-32",
}
_TURNED: Final[dict[Operator, Operator]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class AtomReader(TermReader):
    """Reads atoms; what it cannot make out it reports, and returns None for it."""

    def _name(self) -> str | None:
        """Read a predicate's name, which a bracket follows; None when it is not one."""
        token = self._take()
        if token.end != self._token.column:
            self._error(
                "G19",
                token,
                f"a space stands between {show(token.text)} and its bracket",
                f"write {show(token.text)}(…)",
            )
        if NAME.fullmatch(token.text):
            return token.text
        self.sound = False
        self._error(
            "030-17",
            token,
            f"{show(token.text)} is not a predicate name",
            "a name begins with an ASCII letter and holds letters, digits, _, ~ and -",
        )
        return None

    def _bare(self, token: Token) -> Atom | None:
        """Report a name without brackets and take it for the zero-arity atom."""
        text = show(token.text)
        if not NAME.fullmatch(token.text) or token.text in BUILTINS:
            self.sound = False
            self._error("030-26", token, f"{text} is not an atom", "write Predicate(Term, …)")
            return None
        self._error("030-14", token, f"{text} is not an atom without brackets", f"write {text}()")
        return Atom(token.text, (), self._span(token))

    def _atom(self) -> Atom | None:
        first = self._token
        name = self._name()
        self._take()
        terms = self._terms()
        return Atom(name, terms, self._since(first)) if name else None

    def _item(self) -> BodyAtom | None:
        """Read one body atom; None when it could not be made out."""
        token, following = self._token, self._next
        if token.kind == "word" and token.text == "not" and following.kind not in {"(", "unequal"}:
            return self._negation()
        if token.kind == "word" and following.kind == "(":
            return self._call()
        if token.kind in {"word", "quoted", "double"} and following.kind in {"unequal", "operator"}:
            return self._infix()
        if token.kind == "word":
            self._take()
            return TrueAtom(self._span(token)) if token.text == "true" else self._bare(token)
        if token.kind in {",", ".", "end"}:
            self.sound = False
            self._error("030-13", token, "a body atom is missing here")
            return None
        if token.kind == "open":
            self._term()
            return None
        self._unexpected("030-26", "a body atom")
        self._skip_to(",", ".")
        return None

    def _infix(self) -> Inequality | None:
        first = self._token
        left = self._term()
        sign = self._take()
        right = self._term()
        span = self._since(first)
        if sign.text == "!=":
            return Inequality(left, right, span)
        self.sound = False
        if sign.text in {"=", "=="}:
            self._error(
                "030-92",
                span,
                "= is not part of the language",
                "use one variable, or the constant, in both places",
            )
        elif is_operator(sign.text):
            pair = f"({left},'{sign.text}',{right})"
            self._error(
                "030-29",
                span,
                f"{sign.text} is not written between terms",
                show(f"write IntCompare{pair} or LexCompare{pair}"),
            )
        else:
            self._error("030-28", span, f"{show(sign.text)} is not an operator", "inequality is !=")
        return None

    def _negation(self) -> NegatedAtom | None:
        first = self._take()
        while self._token.text == "not" and self._next.kind != "(":
            self._take()  # one loop, for a line may hold thousands
        token = self._token
        repeated = self._tokens[self._at - 1] != first
        if repeated:
            self._error("G16", first, "not stands more than once", "write it once, or not at all")
        if token.kind == "word" and token.text not in BUILTINS and self._next.kind == "(":
            atom = self._atom()
            return NegatedAtom(atom, self._since(first)) if atom else None
        ends = self._next.kind not in {"(", "unequal", "operator"}
        if token.kind == "word" and token.text != "true" and ends:
            bare = self._bare(self._take())
            return NegatedAtom(bare, self._since(first)) if bare else None
        inner = self._item() if not self._is(",", ".", "end") else None
        self.sound = False
        self._error(
            "G16", self._since(first), "not stands before a predicate only", _hint_instead(inner)
        )
        return None

    def _call(self) -> BodyAtom | None:
        token = self._token
        if token.text not in BUILTINS:
            return self._atom()
        if token.text == "Cardinality":
            return self._cardinality()
        if token.text in {"not", "true"}:
            self._take()
            self._skip_brackets()
            hint = "write true" if token.text == "true" else "write not Predicate(Term, …)"
            self._error("G16", token, f"{token.text} is not a predicate", hint)
            return None
        self._name()
        self._take()
        terms = self._terms()
        span = self._since(token)
        match token.text, terms:
            case "IntCompare", (left, operator, right):
                return self._int_compare(left, operator, right, span)
            case "LexCompare", (left, operator, right):
                return LexCompare(left, self._operator("LexCompare", operator), right, span)
            case "TextShape", (text, start, delimiters, end):
                return self._text_shape((text, start, delimiters, end), span)
            case _:
                self._wrong_count(token, len(terms), span)
        return None

    def _wrong_count(self, token: Token, count: int, span: Span) -> None:
        self._error(
            _FORM_RULE[token.text],
            span,
            f"{token.text} does not take {count} argument{'' if count == 1 else 's'}",
            f"write {_SHAPES[token.text]}",
        )

    def _operator(self, name: str, term: Term) -> Operator:
        if isinstance(term, Constant) and is_operator(term.value):
            return term.value
        self._error(
            _OPERATOR_RULE[name],
            term.span,
            f"{show(str(term))} is not an operator of {name}",
            "use '<', '<=', '>' or '>='",
        )
        return "<"

    def _int_compare(self, left: Term, operator: Term, right: Term, span: Span) -> BodyAtom | None:
        sign = self._operator("IntCompare", operator)
        wrong = [
            term
            for term in (left, right)
            if isinstance(term, Constant) and not INTEGER.fullmatch(term.value)
        ]
        for term in wrong:
            self._error(
                "030-67",
                term.span,
                f"{show(str(term))} is not a decimal integer",
                "compare texts with LexCompare",
            )
        return None if wrong else IntCompare(left, sign, right, span)

    def _text_shape(self, terms: tuple[Term, Term, Term, Term], span: Span) -> TextShape:
        text, start, delimiters, end = terms
        if not isinstance(delimiters, Constant):
            self._error(
                "030-73",
                delimiters.span,
                f"the delimiters of TextShape are a constant, not {delimiters}",
                "write them in quotes, such as './'",
            )
            delimiters = Constant("", delimiters.span)
        return TextShape(text, start, delimiters, end, span)

    def _cardinality(self) -> Cardinality | None:
        first = self._token
        self._name()
        self._take()
        counted = self._token
        inner = None
        if counted.kind == "word" and counted.text in BUILTINS and self._next.kind == "(":
            self._take()
            self._skip_brackets()
            self._error(
                "G16",
                self._since(counted),
                f"Cardinality counts facts of a predicate, not {counted.text}",
            )
        elif counted.kind == "word" and self._next.kind == "(":
            inner = self._atom()
        else:
            self.sound = False
            shape = f"write {_SHAPES['Cardinality']}"
            self._error("030-32", counted, "Cardinality counts one atom", shape)
            self._skip_to(",", ")")
        others: tuple[Term, ...] = ()
        if self._is(",", ")"):
            others = self._terms() if self._take().kind == "," else ()
        else:
            self._unexpected("030-32", "`,` behind the counted atom")
            self._skip_to(")")
            self._take()
        return self._counted(first, inner, others)

    def _counted(
        self, first: Token, inner: Atom | None, others: tuple[Term, ...]
    ) -> Cardinality | None:
        span = self._since(first)
        match others:
            case (operator, bound):
                sign = self._operator("Cardinality", operator)
            case _:
                if self.sound:
                    self._wrong_count(first, 1 + len(others), span)
                return None
        if not isinstance(bound, Constant) or not INTEGER.fullmatch(bound.value):
            self._error(
                "030-89",
                bound.span,
                f"{show(str(bound))} is not a decimal integer",
                "write it in digits and quotes, such as '100'",
            )
            return None
        return Cardinality(inner, sign, bound.value, span) if inner else None


def _hint_instead(inner: BodyAtom | None) -> str:
    match inner:
        case LexCompare(left, operator, right):
            return show(f"write {LexCompare(left, _TURNED[operator], right)}")
        case Cardinality(atom, operator, bound):
            return show(f"write {Cardinality(atom, _TURNED[operator], bound)}")
        case _:
            return "define a predicate for the test and negate that one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    """What a line gave: perhaps a rule, and how far it may be trusted.

    `sound` says that its variables are the author's, so that checking them means
    something; `exact` that nothing at all was wrong with the line; `goes_on` that the
    line ends with a comma.
    """

    rule: Rule | None
    sound: bool
    exact: bool
    goes_on: bool


def parse_line(number: int, text: str, reporter: Reporter) -> ParsedLine:
    """Parse the rule of a line; faults go to the reporter."""
    before = reporter.error_count
    reader = _RuleReader(number, text, reporter)
    rule = reader.rule()
    return ParsedLine(
        rule=rule,
        sound=reader.sound,
        exact=reporter.error_count == before,
        goes_on=reader.goes_on,
    )


class _RuleReader(AtomReader):
    """Reads the one rule of a line."""

    goes_on = False

    def rule(self) -> Rule | None:
        """Read the rule, or return None when nothing could be made of the line."""
        first = self._token
        head = self._head()
        body = self._body(head)
        if head is None or not body:
            return None
        return Rule(head, body, self._since(first))

    def _head(self) -> Atom | None:
        token = self._token
        if token.kind == "word" and token.text == "not" and self._next.kind != "(":
            self._take()
            self._error("G16", token, "a head is not negated", "say what holds, in the body: not …")
            token = self._token
        if token.kind == "word" and self._next.kind == "(":
            name = self._name()
            self._take()
            terms = self._terms()
            return Atom(name, terms, self._since(token)) if name else None
        if token.kind == "word" and self._next.kind == "neck":
            return self._bare(self._take())
        self._unexpected("030-13", "the head of a rule", "a rule is Head(X) :- Body(X).")
        self._skip_to("neck", ".")
        return None

    def _body(self, head: Atom | None) -> tuple[BodyAtom, ...]:
        if self._is(".") and head is not None:
            self._take()
            self._error(
                "030-16",
                head.span,
                "a rule without conditions has the body true",
                f"write {show(str(head))} :- true.",
            )
            self._after_period()
            return (TrueAtom(),)
        if not self._is("neck"):
            if head is not None:
                self._unexpected("030-13", "`:-` behind the head")
            self._skip_to("neck")
            if self._is("end"):
                return ()
        self._take()
        return self._conjunction()

    def _conjunction(self) -> tuple[BodyAtom, ...]:
        items: list[BodyAtom] = []
        while True:
            item = self._item()
            if item is not None:
                items.append(item)
            if not self._is(",", ".", "end"):
                self._unexpected("030-13", "`,` or `.` after a body atom")
                self._skip_to(",", ".")
            if not self._is(","):
                break
            comma = self._take()
            if self._is("end"):
                self.goes_on, self.sound = True, False
                self._error(
                    "030-12",
                    comma,
                    "the line ends with a comma",
                    "a rule is one line, with a period at its end",
                )
                return tuple(items)
        self._period()
        return tuple(items)

    def _period(self) -> None:
        if self._is("end"):
            if self.sound:  # else the fault before explains it
                self._error("030-13", self._token, "a rule ends with a period")
            return
        self._take()
        self._after_period()

    def _after_period(self) -> None:
        token = self._token
        if token.kind == "end":
            return
        if token.kind == "word" and self._next.kind == "(":
            self._error("030-12", token, "a second rule begins here", "give it a line of its own")
        else:
            self._error(
                "030-13",
                token,
                "nothing follows the period of a rule",
                hint_for_character(token.text),
            )
