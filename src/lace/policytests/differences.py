"""What a case found against what it expects: each difference, and what decided it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lace.errors import LaceError
from lace.query.preview import Gate
from lace.rules.profiles import (
    ALLOW_QUERY_RECORD,
    CAN_QUERY_RECORD,
    MAY_REQUEST,
    MAY_SEND,
    SELECT_ADVERTISED,
    SELECT_HAVE,
)
from lace.rules.syntax import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lace.policytests.model import Case, Rows
    from lace.query.preview import Preview
    from lace.query.result import Result
    from lace.why.explanation import Explanation, RuleReference


_DECIDING = frozenset({SELECT_HAVE.name, SELECT_ADVERTISED.name, ALLOW_QUERY_RECORD.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDifference:
    """Something that is missing from a set, or in it and should not be.

    `name` is what the test file calls a record; `message` says what decided, in short, and
    `explanation` at length.
    """

    about: str
    problem: Literal["missing", "unexpected"]
    values: tuple[str, ...]
    shown: str
    name: str | None = None
    gate: str | None = None
    message: str = ""
    explanation: Explanation | None = None

    def __str__(self) -> str:
        text = f"{self.about}: {self.problem} {self.shown}"
        return f"{text}: {self.message}" if self.message else text

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "about": self.about,
            "problem": self.problem,
            "values": list(self.values),
            "name": self.name,
            "gate": self.gate,
            "message": self.message,
            "explanation": None if self.explanation is None else self.explanation.to_json(),
        }


class Names:
    """Says what a test file calls the values of an answer."""

    def __init__(self, called: Mapping[str, str]) -> None:
        self._called = called

    def name(self, value: str) -> str | None:
        """Return the name of a value, if it has one."""
        return self._called.get(value)

    def is_name(self, value: str) -> bool:
        """Tell whether something is called so."""
        return value in self._called.values()

    def show(self, value: str) -> str:
        """Return a record with its name and its hash."""
        name = self.name(value)
        return value if name is None else f"{name} ({value})"

    def show_row(self, values: Iterable[str]) -> str:
        """Return values as a test file writes them."""
        return f"({','.join(map(self._mention, values))})"

    def _mention(self, value: str) -> str:
        name = self.name(value)
        return quote(value if name is None else f"${{{name}}}")

    def rename(self, text: str) -> str:
        """Return a text with names in the place of what they mean."""
        for value, name in self._called.items():
            text = text.replace(value, f"${{{name}}}")
        return text


class PolicyAnswer:
    """What a policy lets a viewer do, and why."""

    def __init__(self, preview: Preview, result: Result) -> None:
        self.preview = preview
        self.result = result
        self.viewer = preview.executable.viewer

    def sets(self, have: frozenset[str]) -> dict[str, frozenset[str]]:
        """Return the records that can be queried, would be sent and would be requested."""
        permissions = self.preview.permissions
        key = str(CAN_QUERY_RECORD)
        shown = self.result.get(key, frozenset())  # no rule makes it when nothing is exposed
        return {
            "query": frozenset(record for viewer, record in shown if viewer == self.viewer),
            "send": permissions.may_send & have,
            "request": permissions.may_request - have,
        }

    def decide(self, about: str, record: str) -> tuple[str | None, str, Explanation | None]:
        """Return the gate that decided about a record, what it means, and why."""
        try:
            if about == "query":
                return self._decide_query(record)
            predicate = MAY_SEND if about == "send" else MAY_REQUEST
            decision = self.preview.decide(predicate.name, record)
        except LaceError as error:
            return None, f"this cannot be explained: {error.log_line()}", None
        message = decision.message
        if decision.moves:
            message += _by_rules(decision.explanation)
        gate = None if decision.gate is None else decision.gate.value
        return gate, message, decision.explanation

    def _decide_query(self, record: str) -> tuple[str | None, str, Explanation | None]:
        allowed = self.preview.why(CAN_QUERY_RECORD.name, self.viewer, record)
        if allowed.holds:
            return None, f"it can be queried{_by_rules(allowed)}", allowed
        if self.preview.executable.exposes_nothing:
            return Gate.NOT_EXPOSED.value, "nothing is exposed to this peer", allowed
        is_here = self.preview.why("Have", record)
        if not is_here.holds:
            return Gate.NOT_HERE.value, Gate.NOT_HERE.value, is_here
        return Gate.NOT_EXPOSED.value, Gate.NOT_EXPOSED.value, allowed


def _by_rules(explanation: Explanation) -> str:
    """Return the rules, as they were written, that selected or exposed a record."""
    found: dict[str, None] = {}
    for step in explanation.steps:
        name = step.fact[0].partition("_")[2]
        if step.rule is not None and name in _DECIDING:
            found[_where(step.rule)] = None
    return f", by {', '.join(found)}" if found else ""


def set_differences(
    case: Case, answer: PolicyAnswer, found: Mapping[str, frozenset[str]], names: Names
) -> Iterator[CaseDifference]:
    """Yield how the sets of records differ from what a case expects."""
    for key, wanted in case.expected.items():
        about = key.removeprefix("not_")
        if key == about:
            missing, unexpected = set(wanted) - found[about], found[about] - set(wanted)
        else:
            missing, unexpected = set(), found[about] & set(wanted)
        wrong = [("missing", each) for each in sorted(missing, key=names.show)]
        wrong += [("unexpected", each) for each in sorted(unexpected, key=names.show)]
        for problem, record in wrong:
            gate, message, explanation = answer.decide(about, record)
            yield CaseDifference(
                about=key,
                problem="missing" if problem == "missing" else "unexpected",
                values=(record,),
                shown=names.show(record),
                name=names.name(record),
                gate=gate,
                message=message,
                explanation=explanation,
            )


def derived_differences(
    about: str, predicate: str, wanted: Rows, result: Result, names: Names
) -> Iterator[CaseDifference]:
    """Yield how the facts of a predicate differ from what a case expects."""
    found = result.get(predicate, frozenset())
    for row in sorted(set(wanted) ^ found):
        missing = row not in found
        explanation = None
        message = ""
        try:
            explanation = result.why(predicate, *row)
            message = _lacking(explanation, row, names) if missing else _made_by(explanation)
        except LaceError as error:
            message = f"this cannot be explained: {error.log_line()}"
        yield CaseDifference(
            about=about,
            problem="missing" if missing else "unexpected",
            values=row,
            shown=names.show_row(row),
            name=names.name(row[0]) if len(row) == 1 else None,
            message=message,
            explanation=explanation,
        )


def _lacking(explanation: Explanation, row: tuple[str, ...], names: Names) -> str:
    """Return what the first rule that could make a fact lacks."""
    name = next((value for value in row if names.is_name(value)), None)
    if name is not None:
        return f"did you mean ${{{name}}}?"
    misses = explanation.absence.misses if explanation.absence is not None else ()
    if not misses:
        return ""
    return f"{_where(misses[0].rule)} fails at {names.rename(misses[0].item)}"


def _made_by(explanation: Explanation) -> str:
    rule = explanation.steps[0].rule
    return "" if rule is None else f"by {_where(rule)}"


def _where(rule: RuleReference) -> str:
    """Return the place of a rule, and whose it is."""
    line = "" if rule.line is None else f":{rule.line}"
    where = f"{rule.source}{line}" if rule.source else f"rule {rule.number}"
    if rule.part is None:
        return where
    part, _, whose = rule.part.partition(", ")
    return f"{where} ({whose if whose in ('ours', 'theirs') else part})"
