"""What a test file says, once it is read: rules, exposures, records and cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.policytests.names import Key
    from lace.policytests.records import MadeRecord
    from lace.rules.syntax import PredicateKey

__all__ = ["RECORD_SETS", "Case", "Exposed", "PolicyTests", "Rows", "RuleText"]

RECORD_SETS: Final = ("query", "send", "request")
"""The sets of records that a case can expect; with `not_` before it, what must not be in."""

Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class RuleText:
    """Rules under test: what messages call them, their text, and whether they are measured.

    `written` is the text before test keys and names were put in, line by line the same.
    """

    name: str
    raw: bytes
    written: bytes
    measured: bool = True

    def line(self, number: int | None) -> str:
        """Return a line as it was written, without the blanks around it."""
        lines = self.written.decode("utf-8", "replace").split("\n")
        return lines[number - 1].strip() if number and number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Exposed:
    """An exposure module; without viewers it is for anyone."""

    rules: RuleText
    viewers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: who asks, what there is, and what must follow.

    `facts` still mention `${peer}`; `records` and `advertised` are names. `expected` has
    record identifiers for each of `RECORD_SETS` and its `not_`; `derived` rows by predicate.
    """

    name: str
    line: int | None
    viewer: str | None = None
    peer_select: RuleText | None = None
    index: int = 0
    lowering: str = "standard-v1"
    records: tuple[str, ...] = ()
    advertised: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    derived: Mapping[str, Rows] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTests:
    """A test file: a policy and its cases, or plain rules and theirs.

    Of `select` and `rules` there is exactly one.
    """

    name: str
    select: RuleText | None
    rules: RuleText | None
    exposures: tuple[Exposed, ...]
    allowed: frozenset[PredicateKey]
    keys: Mapping[str, Key]
    records: Mapping[str, MadeRecord]
    cases: tuple[Case, ...]

    def called(self) -> dict[str, str]:
        """Return the names of keys and records by what they mean."""
        return {
            **{key.verifier: name for name, key in self.keys.items()},
            **{each.id: name for name, each in self.records.items()},
        }
