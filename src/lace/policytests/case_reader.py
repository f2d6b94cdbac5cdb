"""The cases of a test file: who asks, which facts there are, what must follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_VALUE_SETTING, parse_setting
from lace.base.text import shorten
from lace.errors import LaceError, RecordError, SettingError
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.facts.lines import parse_fact
from lace.policy.operand import INDEXES
from lace.policy.plan_lines import LOWERINGS
from lace.policytests.model import RECORD_SETS, Case
from lace.policytests.names import PEER, Key, Substitution
from lace.policytests.tables import Table, meant
from lace.record.ids import RecordId
from lace.rules.limits import PEER_LIMITS, RuleLimits
from lace.rules.profiles import LOCAL_TAI

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lace.facts.lines import Fact
    from lace.policytests.model import Rows, RuleText
    from lace.policytests.records import MadeRecord
    from lace.policytests.rule_texts import RuleReader

__all__ = ["LIMITS", "MAX_FACTS", "CaseReader", "read_fact"]

MAX_FACTS: Final = 10_000
"""Fact lines of one case, and as many for the whole file."""
LIMITS: Final = tuple(
    sorted(
        name
        for limit in RuleLimits.__dataclass_fields__
        if limit.startswith("max_")
        for name in {limit, PEER_LIMITS.setting(limit)}
    )
)
"""The settings that a test file may change."""

_SETS: Final = tuple(name for each in RECORD_SETS for name in (each, f"not_{each}"))
_PLAIN: Final = ("name", "records", "facts", "limits", "derived", "error")
_POLICY: Final = (
    *_PLAIN, "viewer", "advertised", "peer_select", "peer_select_text", "index", "lowering", *_SETS,
)  # fmt: skip
_EXPECTATIONS: Final = (*_SETS, "derived", "error")
_PREDICATE: Final = re.compile(r"(?:(mine|theirs):)?(_?[A-Za-z][A-Za-z0-9_~-]*)/([0-9]{1,3})")
_CLOCK: Final = {name: found for name, found in LOCAL_PREDICATES.items() if name == LOCAL_TAI.name}
"""The local fact that a case may give; the other one follows from its viewer."""
_SOME_PEER: Final = "Opq_0"
"""What stands for a peer while facts are read; who it is shows when a case runs."""


class CaseReader:
    """Reads cases; what all of them share is read once."""

    def __init__(
        self,
        top: Table,
        keys: Mapping[str, Key],
        records: Mapping[str, MadeRecord],
        texts: RuleReader,
        *,
        is_plain: bool,
    ) -> None:
        self._keys = keys
        self._records = records
        self._texts = texts
        self._is_plain = is_plain
        self._substitution = Substitution(self._value, self._names)
        self._facts = self._read_facts(top)
        self._limits = self._read_limits(top)
        self._peer = None if is_plain else texts.read(top, "peer_select")
        self._index = self._read_index(top, 0)
        self._lowering = self._read_lowering(top, LOWERINGS[0])

    @property
    def used(self) -> set[str]:
        """The names that were mentioned so far."""
        return self._substitution.used

    def _names(self) -> list[str]:
        return [*self._keys, *self._records, *([] if self._is_plain else [PEER])]

    def _value(self, name: str) -> str | None:
        if name in self._keys:
            return self._keys[name].verifier
        if name in self._records:
            return self._records[name].id
        return f"${{{PEER}}}" if name == PEER and not self._is_plain else None

    def read(self, table: Table) -> Case:
        """Return a case; what is wrong is noted."""
        table.check_keys(_PLAIN if self._is_plain else _POLICY)
        name = table.text("name") or ""
        if "name" not in table:
            table.add(None, "name is missing", 'write name = "what the case shows"')
        elif not name.strip() or "\n" in name:
            table.add("name", "a name is one line of text")
        facts = (*self._facts, *self._read_facts(table))
        advertised = tuple(self._record_names(table, "advertised") or ())
        here = self._record_names(table, "records")
        if here is None:
            here = [each for each in self._records if each not in advertised]
        viewer = table.text("viewer")
        self._check_expectations(table)
        return Case(
            name=name,
            line=table.problems.line(table.path),
            viewer=None if viewer is None else self._texts.find_viewer(table, viewer),
            peer_select=None if self._is_plain else self._read_peer(table),
            index=self._read_index(table, self._index),
            lowering=self._read_lowering(table, self._lowering),
            records=tuple(here),
            advertised=advertised,
            facts=facts,
            limits={**self._limits, **self._read_limits(table)},
            expected=self._read_sets(table, facts),
            derived=self._read_derived(table),
            error=table.text("error"),
        )

    # -- what there is -------------------------------------------------------------------------

    def _read_peer(self, table: Table) -> RuleText | None:
        own = self._texts.read_of_case(table, "peer_select")
        named = "peer_select" in table or "peer_select_text" in table
        if not named and self._peer is None:
            table.add(
                None,
                "there is no peer_select, neither here nor at the top of the file",
                "the peer brings a selector too; give it one",
            )
        return own if named else self._peer

    def _read_index(self, table: Table, default: int) -> int:
        found = table.number("index")
        if found is None:
            return default
        if found not in INDEXES:
            hint = "the side that connects is 0, the side that accepts is 1"
            table.add("index", f"{found} is neither 0 nor 1", hint)
        return found

    def _read_lowering(self, table: Table, default: str) -> str:
        found = table.text("lowering")
        if found is None:
            return default
        if found not in LOWERINGS:
            hint = meant(found, LOWERINGS, "lowerings")
            table.add("lowering", f"there is no lowering {shorten(found)!r}", hint)
        return found

    def _read_limits(self, table: Table) -> dict[str, int]:
        limits = table.table("limits")
        limits.check_keys(LIMITS)
        made: dict[str, int] = {}
        for name in limits:
            number = limits.number(name) if name in LIMITS else None
            if number is None:
                continue
            try:
                made[name] = parse_setting(name, number)
            except SettingError as error:
                limits.add(name, error.message, error.hint)
        return made

    def _record_names(self, table: Table, key: str) -> list[str] | None:
        named = table.texts(key)
        for name in named or ():
            if name not in self._records:
                hint = meant(name, self._records, "records")
                table.add(key, f"there is no record {shorten(name)!r}", hint, text=name)
        return None if named is None else [name for name in named if name in self._records]

    def _read_facts(self, table: Table) -> tuple[str, ...]:
        """Return fact lines with the values of names put in; only the peer is still a name."""
        made: list[str] = []
        for line in table.texts("facts", most=MAX_FACTS) or ():
            filled = self._substitution.fill(line, table, "facts")
            try:
                fact = read_fact(filled, _SOME_PEER)
            except LaceError as error:
                table.add("facts", error.message, error.hint, text=line)
                continue
            if not self._is_plain:
                self._check_fact(table, fact, line)
            made.append(filled)
        return tuple(made)

    def _check_fact(self, table: Table, fact: Fact, line: str) -> None:
        """Note a fact that no exchange has."""
        found = BASE_PREDICATES.get(fact[0]) or _CLOCK.get(fact[0])
        if found is None:
            hint = meant(fact[0], BASE_PREDICATES, "base predicates")
            table.add("facts", f"{fact[0]} is no base predicate", hint, text=line)
        elif found.arity != len(fact) - 1:
            table.add(
                "facts",
                f"the arity of {fact[0]} is {found.arity}, not {len(fact) - 1}",
                f"as in {fact[0]}({','.join(found.arguments)})",
                text=line,
            )
        elif found.name == "Peer":
            hint = "name the viewer of the case: it is the peer that has proven who it is"
            table.add("facts", "Peer follows from viewer", hint, text=line)

    # -- what must follow ----------------------------------------------------------------------

    def _check_expectations(self, table: Table) -> None:
        given = [key for key in _EXPECTATIONS if key in table]
        known = [key for key in _EXPECTATIONS if not self._is_plain or key not in _SETS]
        if not given:
            table.add(None, "the case expects nothing", f"give one of {', '.join(known)}")
        elif "error" in given and len(given) > 1:
            table.add("error", "a case that must fail can expect nothing else")
        elif "error" in given and not (table.text("error") or "x").strip():
            table.add("error", "this names no error", "a limit, as max_work, or a rule, as G21")

    def _read_sets(self, table: Table, facts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        ids = self._ids(facts)
        made: dict[str, tuple[str, ...]] = {}
        for key in _SETS:
            named = table.texts(key) if not self._is_plain else None
            if named is None:
                continue
            found = [self._find_record(table, key, name, ids) for name in named]
            made[key] = tuple(each for each in found if each is not None)
        for key in RECORD_SETS:
            for both in set(made.get(key, ())) & set(made.get(f"not_{key}", ())):
                table.add(f"not_{key}", f"{shorten(both)} is in {key} too")
        return made

    def _ids(self, facts: tuple[str, ...]) -> set[str]:
        """Return what facts are about: the first value of record facts and advertisements."""
        about = set()
        for line in facts:
            name, *values = read_fact(line, _SOME_PEER)
            found = BASE_PREDICATES.get(name)
            if found is not None and found.fact_class is not FactClass.RUNTIME and values:
                about.add(values[0])
        return about

    def _find_record(self, table: Table, key: str, name: str, ids: Collection[str]) -> str | None:
        if name in self._records:
            self._substitution.used.add(name)
            return self._records[name].id
        if name in ids:
            return name
        try:
            return str(RecordId(name))
        except RecordError:
            bare = name.removeprefix("${").removesuffix("}")
            hint = meant(name, [*self._records, *ids], "records")
            if bare in self._records:
                hint = f"here names stand alone: write {bare}"
            table.add(key, f"there is no record {shorten(name)!r}", hint, text=name)
            return None

    def _read_derived(self, table: Table) -> dict[str, Rows]:
        derived = table.table("derived")
        made: dict[str, Rows] = {}
        for key in derived:
            found = _PREDICATE.fullmatch(key)
            if not found or (self._is_plain and found[1]):
                who = "" if self._is_plain else ', or "theirs:Member/1"'
                derived.add(key, "this names no predicate", f'write "Selected/1"{who}')
                continue
            name = key.removeprefix("mine:")
            if name in made:
                derived.add(key, f"{name} is there twice")
            made[name] = self._read_rows(derived, key, int(found[3]))
        return made

    def _read_rows(self, table: Table, key: str, arity: int) -> Rows:
        made: dict[tuple[str, ...], None] = {}
        for number, item in enumerate(table.items(key) or [], 1):
            row = [item] if isinstance(item, str) else item
            if not isinstance(row, list) or not all(isinstance(each, str) for each in row):
                table.add(key, f"item {number} is neither text nor an array of texts")
                continue
            if len(row) != arity:
                table.add(key, f"item {number}: {len(row)} given, and the arity is {arity}")
                continue
            values = tuple(self._substitution.fill(each, table, key) for each in row)
            if values in made:
                table.add(key, f"item {number} is there twice")
            made[values] = None
        return tuple(made)


def read_fact(line: str, peer: str) -> Fact:
    """Return the fact of a line in which only the peer is still a name."""
    filled = line.replace(f"${{{PEER}}}", peer)
    raw = filled.encode("utf-8", "surrogatepass")
    return parse_fact(raw, max_value_bytes=MAX_VALUE_SETTING)  # the evaluation has its own limit
