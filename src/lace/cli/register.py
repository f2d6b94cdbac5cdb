"""The register of commands: the module of each, and what it does in a sentence.

The help of `lace` is written from this, without loading what the commands need.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REGISTER"]

REGISTER: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "init": ("lace.cli.init", "Make a lace."),
        "status": ("lace.cli.status", "Show what a lace holds."),
        "key": ("lace.cli.key", "Make, list and choose the signing keys of a lace."),
        "put": ("lace.cli.put", "Make one record, store it and print its hash."),
        "get": ("lace.cli.get", "Write one record, or only its data."),
        "list": ("lace.cli.list", "Show a table of records."),
        "facts": ("lace.cli.facts", "Write record facts, sorted."),
        "rules": ("lace.cli.rules", "Check, format and name rules."),
        "query": ("lace.cli.query", "Evaluate rules and write the facts that follow."),
        "why": ("lace.cli.why", "Show why a fact follows from rules, or why it does not."),
        "plan": ("lace.cli.plan", "Show the exchange plan of two selectors."),
        "preview": ("lace.cli.preview", "Show what an exchange would send and request."),
        "disclose": (
            "lace.cli.disclose",
            "Show what a viewer may query of this lace, before a byte leaves.",
        ),
        "test": (
            "lace.cli.test",
            "Run policy tests: files that say what a policy must allow, and what it must not.",
        ),
        "sync": ("lace.cli.sync", "Converge with a peer on what both select."),
        "serve": ("lace.cli.serve", "Accept exchanges."),
        "remote": ("lace.cli.remote", "Get, list, store and watch records of a peer."),
        "trace": (
            "lace.cli.trace",
            "Read captures of exchanges, which `lace sync --capture FILE` writes.",
        ),
        "import": ("lace.cli.import_", "Store the records of files."),
        "export": ("lace.cli.export", "Write the bytes of records."),
        "remove": ("lace.cli.remove", "Take records out of the lace."),
        "verify": ("lace.cli.verify", "Check the whole lace again."),
        "pipeline": ("lace.cli.pipeline", "Work on many records at once, with Spark."),
        "config": ("lace.cli.config", "Look at settings."),
        "log": ("lace.cli.log", "Show what was done to a lace."),
        "completion": (
            "lace.cli.completion",
            "Print the script with which a shell completes names.",
        ),
        "doctor": ("lace.cli.doctor", "Look at what Lace needs and finds."),
        "demo": ("lace.cli.demo", "Show Lace at work."),
    }
)
"""Every command with its module and its summary, in the order of the help."""
