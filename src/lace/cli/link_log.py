"""The log of links on standard error: lines of words for people, or a JSON object each.

An event has a time, a level, a name, the link and plan it is about, and figures. Neither names nor
content of records are in it, and no secret.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from lace.base.text import safe_text
from lace.cli.failures import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.cli.output import Output

__all__ = ["LOG_FORMATS", "Event", "JsonLog", "Level", "tell_event"]

Level: TypeAlias = Literal["info", "warning", "error"]
LOG_FORMATS: Final = ("text", "json")
Event: TypeAlias = Literal[
    "listening",
    "metrics",
    "link-opened",
    "link-agreed",
    "link-ended",
    "link-lost",
    "rules-renewed",
    "rules-refused",
    "message",
]
"""What can be told: `message` is whatever has words alone."""


class JsonLog:
    """Writes events to standard error, each as a line of JSON.

    Args:
        output: takes the lines.
    """

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, level: Level, event: Event, figures: Mapping[str, Any]) -> None:
        """Write an event."""
        at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        known = {name: value for name, value in figures.items() if value is not None}
        line = json.dumps({"time": at, "level": level, "event": event, **known})
        self._output.put_aside(without_secrets(line) + "\n")

    def message(self, level: Level, text: str) -> None:
        """Write what is text and nothing more."""
        words = text.removeprefix("lace: ").removeprefix("warning: ")
        self.write(level, "message", {"message": safe_text(words)})


def tell_event(
    output: Output,
    event: Event,
    figures: Mapping[str, Any],
    text: str | None = None,
    *,
    level: Level = "info",
) -> None:
    """Report an event: as JSON where that is wanted, else as a text, if there is one.

    Who wants quiet hears of warnings and errors only.
    """
    if output.log is not None:
        if level != "info" or not output.quiet:
            output.log.write(level, event, figures)
    elif text is not None:
        if level == "info":
            output.note(text)
        else:
            output.complain(text)
