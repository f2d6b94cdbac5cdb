"""What was perhaps meant by a word that means nothing here."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Choice", "did_you_mean", "nearest"]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the word that is most like another, if one is like it at all.

    >>> nearest("snyc", ["serve", "sync"])
    'sync'
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str] | Mapping[str, str]) -> str:
    """Return how a sentence about a word ends; known words may stand for what is told instead.

    >>> did_you_mean("ingst", {"init": "init", "ingest": "lace pipeline ingest"})
    "; did you mean 'lace pipeline ingest'?"
    >>> did_you_mean("zzz", ["init"])
    ''
    """
    told = known if isinstance(known, dict) else {name: name for name in known}
    near = nearest(word, told)
    return "" if near is None else f"; did you mean {told[near]!r}?"


class Choice(click.Choice[str]):
    """One of some words; another is met with the one that was perhaps meant."""

    def get_invalid_choice_message(
        self,
        value: Any,  # noqa: ANN401 - click's own
        ctx: click.Context | None,
    ) -> str:
        """Return what is wrong, and what was perhaps meant."""
        told = super().get_invalid_choice_message(value, ctx).rstrip(".")
        return told + did_you_mean(str(value), self.choices)
