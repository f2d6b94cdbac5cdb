"""Questions to a person at a terminal."""

from __future__ import annotations

import sys

import click

from lace.base.text import safe_text
from lace.errors import LaceError

__all__ = ["DeclinedError", "ask", "is_attended"]


class DeclinedError(LaceError):
    """A person said no."""


def is_attended() -> bool:
    """Tell whether somebody can be asked."""
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def ask(question: str) -> None:
    """Ask whether to go on.

    Raises:
        DeclinedError: the answer is no, or is missing.
    """
    try:
        agreed = click.confirm(safe_text(question), err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        agreed = False
    if not agreed:
        raise DeclinedError("nothing was done")
