"""The front door: open a lace, parse records, evaluate rules over given facts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lace.api.lace import Lace
from lace.api.system import (
    SETTINGS_FILE,
    now,
    processors,
    read_chunks,
    read_settings_file,
    refuse_file,
)
from lace.base.arguments import check_argument
from lace.base.limits import SettingSource, resolve_settings
from lace.record.ids import Verifier
from lace.record.model import Blob, Plex, Record
from lace.record.seal import SigningKey
from lace.record.validate import parse_record
from lace.store.interface import NoStoreError, StoreBusyError, StoreUnavailableError
from lace.store.keys import KeyRing, parse_verifier
from lace.store.sqlite.store import DATABASE_NAME, Operation, SqliteStore, is_lace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.engine.budget import Supervisor
    from lace.query.evaluate import Rules
    from lace.query.result import Result
    from lace.rules.limits import Limits

__all__ = [
    "DATABASE_NAME",
    "SETTINGS_FILE",
    "Blob",
    "KeyRing",
    "Lace",
    "NoStoreError",
    "Operation",
    "Plex",
    "Record",
    "Result",
    "SigningKey",
    "StoreBusyError",
    "StoreUnavailableError",
    "Verifier",
    "evaluate",
    "is_lace",
    "now",
    "open_lace",
    "parse_record",
    "parse_verifier",
    "processors",
    "read_chunks",
    "read_settings_file",
    "refuse_file",
]


def open_lace(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    settings: Mapping[str, object] | None = None,
    purpose: str = "lace.open",
) -> Lace:
    """Open the lace in a folder; make it when it is not there.

    Args:
        path: the lace's folder.
        create: make the lace when it does not exist; a folder of something else is refused.
        read_only: never write to it.
        settings: settings by name, over those of the folder's `lace.toml`.
        purpose: what this process is doing, for processes that wait for it.

    Raises:
        StoreError: there is no lace, it is damaged, or the disk does not let it be opened.
        UsageError: a setting is wrong, or an argument is of another type.
    """
    check_argument(path, (str, os.PathLike), "path is the path of a folder")
    check_argument(settings or {}, Mapping, "settings are a mapping from names to values")
    check_argument(purpose, str, "purpose is text")
    folder = Path(path)
    refuse_file(folder)
    sources = [
        read_settings_file(folder / SETTINGS_FILE),
        SettingSource("the caller", settings or {}),
    ]
    resolved, _origins = resolve_settings(sources)
    store = SqliteStore(
        folder, create=create, read_only=read_only, settings=resolved, purpose=purpose
    )
    return Lace(store, resolved)


def evaluate(
    rules: Rules,
    facts: Iterable[Sequence[str]],
    engine: str = "embedded",
    *,
    limits: Limits | None = None,
    supervisor: Supervisor | None = None,
) -> Result:
    """Evaluate rules over facts; no lace is needed.

    >>> result = evaluate("Path(X,Y) :- Edge(X,Y).", [("Edge", "a", "b")])
    >>> result["Path/2"]
    frozenset({('a', 'b')})

    Args:
        rules: a `Lacegram`, or its text, which may read every predicate that the facts have.
        facts: tuples of a predicate's name and its values.
        engine: the engine's name.
        limits: by the names of their settings, as `{"max_work": 1_000_000}`; the others are the
            defaults, or for a `Lacegram` those that it was parsed with if none is given.
        supervisor: watches the embedded engine, as a `lace.engine.budget.Cancellation` that
            another thread may cancel.

    Raises:
        RuleError: the rules are not legal, or define a predicate that there are facts of.
        LimitExceeded: a limit was reached; there is no part of an answer.
        EngineError: something among the facts is no fact, or the engine is not installed.
        UsageError: the rules are no rules at all, or there is no such engine or limit.
    """
    from lace.query.evaluate import evaluate_rules

    return evaluate_rules(rules, facts, engine=engine, limits=limits, supervisor=supervisor)


if not TYPE_CHECKING:  # a checker knows the name already, and refuses all others

    def __getattr__(name: str) -> object:
        """Load `Result` when it is first asked for: only who names the type needs that."""
        if name != "Result":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from lace.query.result import Result

        globals()[name] = Result
        return Result
