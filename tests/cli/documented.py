"""What the help of a command says of its JSON, and whether what it writes is that."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.cli.test_help import COMMANDS

__all__ = ["PIPELINE_SAMPLES", "check_documented", "keys_of", "read_documents"]

PIPELINE_SAMPLES: dict[str, tuple[tuple[str, ...], int]] = {
    "ingest": (("wh", "some.records"), 0),
    "import-lace": (("wh",), 0),
    "facts": (("wh",), 0),
    "evaluate": (("wh", "--rules", "rules.lace"), 0),
    "advertise": (("wh", "--source", "SOURCE", "--name", "mine"), 0),
    "diff": (("wh", "mine", "mine.facts"), 1),
    "run": (("second", "some.records", "--rules", "rules.lace", "--source", "SOURCE"), 0),
    "verify": (("wh", "--all"), 0),
    "export": (("wh", "--all", "-o", "out.records"), 0),
    "export-lace": (("wh",), 0),
}
"""Commands of the pipeline that need Spark, in an order in which they work, and exit codes."""


def keys_of(path: str) -> set[str]:
    """Return the first words of the documented keys; `NAME` stands for any."""
    found: set[str] = set()
    for text in COMMANDS[path].documentation.json_keys:  # type: ignore[attr-defined]
        found.update(re.split(r"[.\[]", part)[0] for part in re.split(r",\s*|\s+or\s+", text))
    return found


def check_documented(name: str, documents: list[Any], *, whole: bool = False) -> None:
    """Refuse keys that the help does not name; with `whole`, each that it names has to be there."""
    known = keys_of(f"lace {name}")
    for document in documents:
        assert isinstance(document, dict)
        assert "NAME" in known or set(document) <= known, set(document) - known
        assert not whole or set(document) == known, known - set(document)


def read_documents(text: str) -> list[Any]:
    """Return one document, or one of each line."""
    try:
        return [json.loads(text)] if text else []
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]
