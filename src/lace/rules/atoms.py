"""Reading body atoms: predicates, negation, tests and counting, each in its one legal shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.rules.findings import show
from lace.rules.syntax import (
    BUILTINS,
    INTEGER,
    NAME,
    Atom,
    BodyAtom,
    Cardinality,
    Constant,
    Inequality,
    IntCompare,
    LexCompare,
    NegatedAtom,
    Operator,
    TextShape,
    TrueAtom,
    is_operator,
)
from lace.rules.terms import TermReader

if TYPE_CHECKING:
    from lace.rules.lexer import Token
    from lace.rules.syntax import Span, Term

__all__ = ["AtomReader"]

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
                "G14",
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
