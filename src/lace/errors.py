"""The error tree: every failure that Lace reports is a `LaceError`.

An error says where (`Place`), what is wrong, which rule it breaks and what to do
next, in that order. Each class carries the exit code that the command line gives
for it. Concrete subclasses live beside the code that raises them; this module
imports nothing of Lace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was found: a source, and a line and column or a byte offset in it."""

    source: str | None = None
    line: int | None = None
    column: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts = [self.source] if self.source else []
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        text = ":".join(parts)
        if self.offset is None:
            return text
        return f"{text}: byte {self.offset}" if text else f"byte {self.offset}"


_DECISION: Final = re.compile(r" \[[GX]\d+[a-z]?\](?=[;)]|$| \()", re.MULTILINE)


def hide_decisions(text: str) -> str:
    """Return lines for people, without ids of decisions: those of specifications are public.

    >>> hide_decisions("the peer closed early [G47b]; V is not bound [030-37]")
    'the peer closed early; V is not bound [030-37]'
    """
    return _DECISION.sub("", text)


def _one_line(place: Place | None, message: str, rule: str | None, hint: str | None) -> str:
    where = str(place) if place else ""
    text = f"{where}: {message}" if where else message
    if rule:
        text = f"{text} [{rule}]"
    return f"{text}; {hint}" if hint else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check found: where, what is wrong, which rule it breaks, what to do.

    `excerpt` shows the source with a caret below the place; it may be empty.
    """

    severity: Literal["error", "warning"]
    place: Place
    message: str
    rule: str | None = None
    hint: str | None = None
    excerpt: str = ""

    def __str__(self) -> str:
        return hide_decisions(self.log_line())

    def log_line(self) -> str:
        """Return the line for a program: with the id of any rule, a decision's too."""
        message = self.message if self.severity == "error" else f"warning: {self.message}"
        return _one_line(self.place, message, self.rule, self.hint)

    def render(self) -> str:
        """Return the finding for a person: its line, and below it the excerpt."""
        return f"{self}\n{self.excerpt}" if self.excerpt else str(self)


class LaceError(Exception):
    """The root of all errors of Lace.

    `message` says what is wrong, `rule` names the requirement that is broken,
    `place` says where and `hint` what to do next. `str()` joins them in one line for people,
    in which a rule has its id only if that is of a specification; `log_line()` has it always.
    """

    exit_code: int = 1
    """What a command that fails with it exits with; a class sets it, rarely one error its own."""

    def __init__(
        self,
        message: str,
        *,
        rule: str | None = None,
        place: Place | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        return hide_decisions(self.log_line())

    def log_line(self) -> str:
        """Return the line for a log: with the id of any rule, a decision's too."""
        return _one_line(self.place, self.message, self.rule, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process boundaries whole, whatever a subclass's constructor takes."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(
    kind: type[LaceError], args: tuple[object, ...], state: dict[str, object]
) -> LaceError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class RecordError(LaceError):
    """Bytes or values that are not a legal record."""


class RuleError(LaceError):
    """A lacegram that is not legal; `findings` holds all that was found in it, warnings too."""

    def __init__(
        self,
        message: str,
        *,
        findings: tuple[Finding, ...] = (),
        rule: str | None = None,
        place: Place | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, rule=rule, place=place, hint=hint)
        self.findings = findings


class PolicyError(LaceError):
    """An exchange policy that is not legal, or that forbids what was asked."""


class LimitExceeded(LaceError):
    """A named limit was reached; `limit` is its setting, `observed` the value that passed it."""

    def __init__(
        self,
        message: str,
        *,
        limit: str,
        allowed: int,
        observed: int | None = None,
        rule: str | None = None,
        place: Place | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(
            message,
            rule=rule,
            place=place,
            hint=hint or f"the limit is {limit}={allowed}; raise it with --set {limit}=N",
        )
        self.limit = limit
        self.allowed = allowed
        self.observed = observed


class ProtocolError(LaceError):
    """A peer, or this side, broke the exchange protocol."""

    exit_code = 4
    result: object | None = None
    """What had come of an exchange by then, where this has ended one."""


class StoreError(LaceError):
    """The lace cannot do what was asked of it."""

    exit_code = 3
    result: object | None = None
    """What had come of an exchange by then, where this has ended one."""


class EngineError(LaceError):
    """An evaluation could not be carried out."""

    exit_code = 3


class UsageError(LaceError):
    """A call that names something missing or asks for something that makes no sense."""

    exit_code = 2


class SettingError(UsageError):
    """A setting with an unknown name or a value outside its range."""
