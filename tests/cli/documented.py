"""What the help of a command says of its JSON, and whether what it writes is that."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.cli.test_help import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "PIPELINE_SAMPLES",
    "check_documented",
    "keys_of",
    "lacking",
    "read_documents",
    "shapes_of",
]

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
    for text in _documented(path):
        if not text.startswith(ANOTHER):
            found.update(re.split(r"[.\[]", part)[0] for part in re.split(r",\s*|\s+or\s+", text))
    return found


def check_documented(name: str, documents: list[Any], *, whole: bool = False) -> None:
    """Refuse keys that the help does not name, and what is in braces there and otherwise here.

    With `whole`, each key that it names has to be there.
    """
    known = keys_of(f"lace {name}")
    documents = [each for each in documents if not _is_another(name, each)]
    for document in documents:
        assert isinstance(document, dict)
        assert "NAME" in known or set(document) <= known, (name, set(document) - known)
        assert not whole or set(document) == known, (name, known - set(document))
    for text, wanted in shapes_of(name).items():
        for each in _at(documents, text):
            assert set(each) == wanted, (name, text, set(each) ^ wanted)


def lacking(name: str, documents: list[Any]) -> set[str]:
    """Return the documented keys that none of these documents has, nor anything in braces."""
    own = [each for each in documents if not _is_another(name, each)]
    written = {key for document in own for key in document}
    unseen = {text for text in shapes_of(name) if not list(_at(own, text))}
    others = [text for text in _documented(f"lace {name}") if text.startswith(ANOTHER)]
    if len(own) < len(documents):
        others = []
    return (keys_of(f"lace {name}") - written - {"NAME"}) | unseen | set(others)


ANOTHER = "with --"
"""How the key of a document begins that is written instead, with that option."""


def _documented(path: str) -> dict[str, str]:
    documentation = COMMANDS[path].documentation  # type: ignore[attr-defined]
    return dict(documentation.json_keys)


def _is_another(name: str, document: dict[str, Any]) -> bool:
    """Whether a document is what an option has a command write, with all keys that are told."""
    for text, meaning in _documented(f"lace {name}").items():
        if text.startswith(ANOTHER) and str(document.get("format")) in meaning:
            assert set(document) <= set(re.findall(r"[a-z_]+", meaning))
            return True
    return False


def shapes_of(name: str) -> dict[str, set[str]]:
    """Return what stands in braces behind documented keys: the keys of what is there."""
    found = {}
    for text, meaning in _documented(f"lace {name}").items():
        braces = re.search(r"\{([^{}…]*)\}", meaning)
        if braces and "," not in text and not text.startswith(ANOTHER):
            found[text] = set(re.sub(r" \([^)]*\)", "", braces[1]).split(", "))
    return found


def _at(documents: list[Any], text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that stand where a path such as `files[].cases` says."""
    found: list[Any] = list(documents)
    for step in text.replace("[]", "").split("."):
        values = [each[step] for each in found if each.get(step) is not None]
        found = [
            item for value in values for item in (value if isinstance(value, list) else [value])
        ]
    for each in found:
        assert isinstance(each, dict), (text, each)
        yield from each.values() if text == "tables" else [each]


def read_documents(text: str) -> list[Any]:
    """Return one document, or one of each line."""
    try:
        return [json.loads(text)] if text else []
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]
