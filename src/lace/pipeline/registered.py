"""Plans that are registered in a warehouse: what each may send was evaluated beforehand.

A registration is made by `lace pipeline evaluate` for an exchange. It tells the plan, the viewer
and the fields that advertisements need, and has a name for all that decides what may be sent: the
rules, the facts of records, and of the public facts those that matter to it. One that finds the
same name for an exchange of now need not evaluate.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lace.base.digest import digest
from lace.interlacing.capabilities import Schema
from lace.pipeline.tables import DICTIONARY
from lace.policy.compile import flat_program
from lace.policy.public_facts import PUBLIC
from lace.rules.profiles import LOCAL_TAI, MAY_SEND
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lace.facts.lines import Fact
    from lace.pipeline.manifest import Manifest
    from lace.policy.compile import Executable

__all__ = [
    "Registration",
    "format_schema",
    "name_of_digest",
    "name_of_facts",
    "name_of_sending",
    "parse_schema",
    "register",
    "registered_schema",
]

_FORMAT: Final = 1
_ALL: Final = "*"
_VARYING: Final = frozenset(
    {
        LOCAL_TAI,
        *(key for key in PUBLIC if key.name in ("Advertised", "AdvertisedField", "TickTAI")),
    }
)
"""What changes while an exchange runs: a set that depends on it is evaluated there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An exchange that was evaluated: its plan, the viewer, and the fields of advertisements.

    The fields are those that the plan requires, as far as the policy offers them (040-106).

    `sends` is the name of all that decides what may be sent; empty where that depends on what
    the peer says, or on the time.
    """

    plan: str
    viewer: str
    schema: Schema
    sends: str

    def to_row(self) -> dict[str, str]:
        """Return it as columns of the table of an evaluation."""
        return {
            "plan": self.plan,
            "viewer": self.viewer,
            "fields": format_schema(self.schema),
            "sends": self.sends,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Registration | None:
        """Return what columns say; None where they describe no exchange.

        Raises:
            ValueError, TypeError: they are not as they were written.
        """
        if not row.get("plan"):
            return None
        return cls(
            plan=str(row["plan"]),
            viewer=str(row["viewer"]),
            schema=parse_schema(row["fields"]),
            sends=str(row["sends"]),
        )


def register(
    manifest: Manifest, executable: Executable, public: Iterable[Fact], offered: Schema
) -> Registration:
    """Return the registration of an exchange over the facts of a warehouse.

    Args:
        manifest: the state of the warehouse.
        executable: the policy, compiled for this side.
        public: the facts that are not of records.
        offered: the fields that this side offers.
    """
    return Registration(
        plan=executable.plan.id,
        viewer=executable.viewer,
        schema=registered_schema(executable, offered),
        sends=name_of_sending(manifest, executable, public),
    )


def registered_schema(executable: Executable, offered: Schema) -> Schema:
    """Return the fields that a plan requires, as far as they are offered."""
    required = executable.plan.required
    return offered & Schema(names=required.names, all=required.all)


def name_of_sending(manifest: Manifest, executable: Executable, public: Iterable[Fact]) -> str:
    """Return the name of all that decides what may be sent; empty where that may change."""
    whole = flat_program(executable)
    read = {key for key in PUBLIC | {LOCAL_TAI} if whole.depends_on(MAY_SEND, key)}
    if read & _VARYING:
        return ""
    facts = sorted({fact for fact in public if PredicateKey(fact[0], len(fact) - 1) in read})
    programs = [each.canonical for each in executable.programs]
    body = [_FORMAT, executable.index, programs, name_of_facts(manifest), facts]
    return name_of_digest(body)


def name_of_facts(manifest: Manifest) -> list[list[str]]:
    """Return what tells the facts of records in one state from all others."""
    return sorted(
        [table, file.digest]
        for table, files in manifest.tables.items()
        if table == DICTIONARY or table.startswith("facts/")
        for file in files
    )


def name_of_digest(body: object) -> str:
    """Return the digest of plain values, as hexadecimal text."""
    return digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hex()


def format_schema(schema: Schema) -> str:
    """Return the names of fields as a JSON list; `*` for all."""
    return _ALL if schema.all else json.dumps(sorted(schema.names))


def parse_schema(text: object) -> Schema:
    """Return the fields that a text names.

    Raises:
        ValueError, TypeError: it is no such text.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} names no fields")
    if text == _ALL:
        return Schema(all=True)
    return Schema(names=frozenset(map(str, json.loads(text))))
