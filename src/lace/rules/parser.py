"""One line to one rule, with every fault in it that can be told apart.

The parser knows the shape of rules and of the built-ins. It does not know which
variables are safe or which names are reserved: that is for `lace.rules.checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lace.rules.atoms import AtomReader
from lace.rules.findings import show
from lace.rules.syntax import Atom, Rule, TrueAtom
from lace.rules.terms import hint_for_character

if TYPE_CHECKING:
    from lace.rules.findings import Reporter
    from lace.rules.syntax import BodyAtom

__all__ = ["ParsedLine", "parse_line"]


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
