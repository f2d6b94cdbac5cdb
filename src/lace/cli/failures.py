"""What an exception means to the caller of a command: an exit code, a line, a JSON object."""

from __future__ import annotations

import difflib
import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api.system import MAX_LOGGED_CHARACTERS
from lace.base.text import safe_text
from lace.errors import LaceError, hide_decisions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


# -- Suggestions for unknown words.


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the word that is most like another, if one is like it at all.

    >>> nearest("snyc", ["serve", "sync"])
    'sync'
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str] | Mapping[str, str]) -> str:
    """Return how a sentence about a word ends; a mapping gives the text to suggest for each word.

    >>> did_you_mean("ingst", {"init": "init", "ingest": "lace pipeline ingest"})
    "; did you mean 'lace pipeline ingest'?"
    >>> did_you_mean("zzz", ["init"])
    ''
    """
    texts = known if isinstance(known, dict) else {name: name for name in known}
    near = nearest(word, texts)
    return "" if near is None else f"; did you mean {texts[near]!r}?"


class Choice(click.Choice[str]):
    """One of some words; another is met with the one that was perhaps meant."""

    def get_invalid_choice_message(
        self,
        value: Any,  # noqa: ANN401 - click's own
        ctx: click.Context | None,
    ) -> str:
        """Return what is wrong, and what was perhaps meant."""
        message = super().get_invalid_choice_message(value, ctx).rstrip(".")
        return message + did_you_mean(str(value), self.choices)


INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
TERMINATED: Final = 143

_SECRET: Final = re.compile(r"&\.[0-9A-Z_a-z~]+(\.H3)?")
_MISSING: Final = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG})
_LOGGED_AS: Final = {"LinkAddressError": "AddressError"}
"""Names in the log of a lace, which stay, of classes that are called otherwise now."""


class Terminated(BaseException):
    """The process was asked to end (SIGTERM)."""


def without_secrets(text: str) -> str:
    """Return text without any signing secret that was typed in a wrong place.

    >>> without_secrets("got &.abc.H3")
    'got (a secret)'
    """
    return _SECRET.sub("(a secret)", text)


def logged_text(text: str) -> str:
    """Return text as the log of a lace keeps it: short, without secrets, on one line.

    >>> logged_text("got &.abc.H3")
    'got (a secret)'
    """
    made = safe_text(without_secrets(text))
    return made if len(made) <= MAX_LOGGED_CHARACTERS else made[: MAX_LOGGED_CHARACTERS - 1] + "…"


@dataclass(slots=True)
class CommandFailure:
    """An error as the command line shows it."""

    exit_code: int
    message: str
    rule: str | None = None
    place: str | None = None
    hint: str | None = None

    def __post_init__(self) -> None:
        self.message = without_secrets(self.message)
        self.place = without_secrets(self.place) if self.place else self.place
        self.hint = without_secrets(self.hint) if self.hint else self.hint

    def line(self) -> str:
        """Return the line for a person: place, what is wrong, the rule, what to do."""
        text = f"{self.place}: {self.message}" if self.place else self.message
        text = hide_decisions(f"{text} [{self.rule}]" if self.rule else text)
        if not self.hint:
            return f"lace: {text}"
        if text.endswith("?"):  # it ends a sentence
            return f"lace: {text} {self.hint[:1].upper()}{self.hint[1:]}"
        return f"lace: {text}; {self.hint}"

    def logged(self, error: BaseException) -> dict[str, object]:
        """Return what the log of a lace keeps: the error's name, what is wrong, the rule."""
        is_signal = self.exit_code in (INTERRUPTED, TERMINATED)
        name = _LOGGED_AS.get(type(error).__name__, type(error).__name__)
        made: dict[str, object] = {"error": self.message if is_signal else name}
        if isinstance(error, (LaceError, OSError)):  # others were not written for a log
            text = f"{self.place}: {self.message}" if self.place else self.message
            made["message"] = logged_text(text)
        if self.rule:
            made["rule"] = self.rule
        return made

    def as_json(self) -> Mapping[str, object]:
        """Return the object that `--json` adds."""
        names = ("message", "rule", "place", "hint", "exit_code")
        return {"error": {name: getattr(self, name) for name in names}}


def describe_failure(error: BaseException) -> CommandFailure:
    """Return what to say about any exception that ends a command."""
    match error:
        case LaceError():
            place = str(error.place) if error.place else None
            return CommandFailure(
                error.exit_code, error.message, rule=error.rule, place=place, hint=error.hint
            )
        case click.UsageError():
            return _usage(error)
        case click.ClickException():
            return CommandFailure(2, error.format_message())
        case KeyboardInterrupt() | click.Abort():
            return CommandFailure(INTERRUPTED, "interrupted")
        case Terminated():
            return CommandFailure(TERMINATED, "terminated")
        case BrokenPipeError():
            return CommandFailure(PIPE_CLOSED, "the reader of the output has gone")
        case MemoryError():
            return CommandFailure(
                3, "not enough memory", hint="close other programs, or lower a limit"
            )
        case OSError() if error.errno is not None:
            return _operating_system(error)
    return CommandFailure(
        1,
        f"internal error: {type(error).__name__}: {error}",
        hint="run again with --debug and report it",
    )


def _usage(error: click.UsageError) -> CommandFailure:
    command = error.ctx.command_path if error.ctx else "lace"
    if isinstance(error, click.NoSuchOption):
        meant = did_you_mean(error.option_name, error.possibilities or ())
        message = f"there is no option {error.option_name!r}{meant}"
        return CommandFailure(2, message, hint=f"see `{command} --help`")
    message = _in_words(error.format_message().rstrip("."))
    if isinstance(error, click.MissingParameter):
        message = " ".join(message.split())  # the choices are on separate lines
    message = message[:1].lower() + message[1:] if message[1:2].islower() else message
    return CommandFailure(2, message, hint=f"see `{command} --help`")


def _in_words(message: str) -> str:
    """Return what is wrong with a number as a person would say it.

    >>> _in_words("-1 is not in the range x>=0")
    '-1 is less than 0'
    """
    message = re.sub(r"is not a valid integer(?: range)?$", "is not a whole number", message)
    message = re.sub(r"is not in the range x>=(\d+)$", r"is less than \1", message)
    return re.sub(r"is not in the range (\d+)<=x<=(\d+)$", r"is not from \1 to \2", message)


def _operating_system(error: OSError) -> CommandFailure:
    what = error.strerror or str(error)
    place = str(error.filename) if error.filename is not None else None
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return CommandFailure(
            3, what, place=place, hint="free some space and run the command again"
        )
    return CommandFailure(2 if error.errno in _MISSING else 3, what, place=place)
