"""Reading a test file, strictly: all that is wrong with it is found before anything runs.

The format is described in docs/reference/policy-tests.md. Files that it names are read
relative to its own folder.
"""

from __future__ import annotations

import os.path
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lace.base.limits import MAX_VALUE_SETTING, parse_setting
from lace.base.text import safe_text, shorten
from lace.errors import Finding, LaceError, Place, RecordError, SettingError, UsageError
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.facts.lines import parse_fact
from lace.policy.operand import INDEXES
from lace.policy.plan import LOWERINGS
from lace.policytests.model import (
    PEER,
    RECORD_SETS,
    Case,
    Exposed,
    Key,
    PolicyTests,
    RecordMaker,
    RuleText,
    Substitution,
    read_keys,
    stand_in,
)
from lace.policytests.tables import (
    PolicyTestError,
    Problems,
    TomlTable,
    meant,
    read_bounded,
    refused,
)
from lace.record.ids import VERIFIER_PATTERN, RecordId
from lace.rules.checks.warnings import parse_allowed
from lace.rules.limits import PEER_LIMITS, RuleLimits
from lace.rules.profiles import LOCAL_TAI

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lace.facts.lines import Fact
    from lace.policytests.model import MadeRecord, Rows
    from lace.rules.syntax import PredicateKey


# -- The cases of a test file: who asks, which facts there are, what must follow.

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
        top: TomlTable,
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

    def read(self, table: TomlTable) -> Case:
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

    def _read_peer(self, table: TomlTable) -> RuleText | None:
        own = self._texts.read_of_case(table, "peer_select")
        named = "peer_select" in table or "peer_select_text" in table
        if not named and self._peer is None:
            table.add(
                None,
                "there is no peer_select, neither here nor at the top of the file",
                "the peer brings a selector too; give it one",
            )
        return own if named else self._peer

    def _read_index(self, table: TomlTable, default: int) -> int:
        found = table.number("index")
        if found is None:
            return default
        if found not in INDEXES:
            hint = "the side that connects is 0, the side that accepts is 1"
            table.add("index", f"{found} is neither 0 nor 1", hint)
        return found

    def _read_lowering(self, table: TomlTable, default: str) -> str:
        found = table.text("lowering")
        if found is None:
            return default
        if found not in LOWERINGS:
            hint = meant(found, LOWERINGS, "lowerings")
            table.add("lowering", f"there is no lowering {shorten(found)!r}", hint)
        return found

    def _read_limits(self, table: TomlTable) -> dict[str, int]:
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

    def _record_names(self, table: TomlTable, key: str) -> list[str] | None:
        named = table.texts(key)
        for name in named or ():
            if name not in self._records:
                hint = meant(name, self._records, "records")
                table.add(key, f"there is no record {shorten(name)!r}", hint, text=name)
        return None if named is None else [name for name in named if name in self._records]

    def _read_facts(self, table: TomlTable) -> tuple[str, ...]:
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

    def _check_fact(self, table: TomlTable, fact: Fact, line: str) -> None:
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

    def _check_expectations(self, table: TomlTable) -> None:
        given = [key for key in _EXPECTATIONS if key in table]
        known = [key for key in _EXPECTATIONS if not self._is_plain or key not in _SETS]
        if not given:
            table.add(None, "the case expects nothing", f"give one of {', '.join(known)}")
        elif "error" in given and len(given) > 1:
            table.add("error", "a case that must fail can expect nothing else")
        elif "error" in given and not (table.text("error") or "x").strip():
            table.add("error", "this names no error", "a limit, as max_work, or a rule, as G21")

    def _read_sets(self, table: TomlTable, facts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
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

    def _find_record(
        self, table: TomlTable, key: str, name: str, ids: Collection[str]
    ) -> str | None:
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

    def _read_derived(self, table: TomlTable) -> dict[str, Rows]:
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

    def _read_rows(self, table: TomlTable, key: str, arity: int) -> Rows:
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


# -- The rules that a test file names or holds: selectors, exposures and plain rules.

MAX_RULE_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one file of rules."""

_VERIFIER: Final = re.compile(VERIFIER_PATTERN)


class RuleReader:
    """Reads the rules of one test file, each file once."""

    def __init__(
        self,
        folder: Path,
        name: str,
        keys: Mapping[str, Key],
        records: Mapping[str, MadeRecord],
    ) -> None:
        self._folder = folder
        self._name = name
        self._keys = keys
        self._records = records
        self._files: dict[str, RuleText] = {}
        self.used = {key.name for key in keys.values() if key.stands_for is not None}
        """What rules and viewers name, and the keys that stand for others in rules."""

    def read(self, table: TomlTable, key: str, *, needed: bool = False) -> RuleText | None:
        """Return the rules of the file that a key names, or of the text in the test file."""
        inline = f"{key}_text"
        found = self._read(table, key, inline)
        if needed and key not in table and inline not in table:
            hint = f'write {key} = "FILE" or {inline} = """…"""'
            if key == "select":
                hint += '; to test plain rules, rules = "FILE"'
            table.add(None, f"{key} is missing", hint)
        return found

    def read_of_case(self, table: TomlTable, key: str) -> RuleText | None:
        """Return rules that a case brings for itself, which are not measured."""
        found = self._read(table, key, f"{key}_text")
        return None if found is None else replace(found, measured=False)

    def read_exposure(self, table: TomlTable) -> Exposed | None:
        """Return an exposure."""
        table.check_keys(("file", "text", "viewer"))
        rules = self._read(table, "file", "text")
        if "file" not in table and "text" not in table:
            table.add(None, "file is missing", 'write file = "FILE" or text = """…"""')
        viewers: list[str | None] = []
        if isinstance(table.raw("viewer"), list):
            named = table.texts("viewer") or []
            viewers = [self.find_viewer(table, each) for each in named]
            if not named:
                table.add("viewer", "no viewer is named", "leave it out to expose to anyone")
        elif "viewer" in table:
            one = table.text("viewer")
            viewers = [None if one is None else self.find_viewer(table, one)]
        if rules is None:
            return None
        return Exposed(rules, tuple(each for each in viewers if each is not None))

    def find_viewer(self, table: TomlTable, name: str) -> str | None:
        """Return the verifier of a viewer: the name of a key, or a verifier."""
        if name in self._keys:
            self.used.add(name)
            return self._keys[name].verifier
        if _VERIFIER.fullmatch(name):
            return name
        hint = meant(name, self._keys, "keys")
        table.add("viewer", f"{shorten(name)!r} is neither a key nor a verifier", hint)
        return None

    def _read(self, table: TomlTable, key: str, inline: str) -> RuleText | None:
        if key in table and inline in table:
            table.add(inline, f"there is {key} too", "name a file, or write the rules here")
            return None
        text = table.text(inline)
        if text is not None:
            return self._inline(table, inline, text)
        file = table.text(key)
        return None if file is None else self._file(table, key, file)

    def _inline(self, table: TomlTable, key: str, text: str) -> RuleText:
        def known(name: str) -> str | None:
            if name in self._keys:
                return self._keys[name].verifier
            return self._records[name].id if name in self._records else None

        substitution = Substitution(known, lambda: [*self._keys, *self._records])
        filled = substitution.fill(text, table, key)
        self.used |= substitution.used
        line = table.problems.first_line(table.at(key), text)
        name = self._name
        if line is None:
            where = (str(each + 1) if isinstance(each, int) else each for each in table.at(key))
            name = " ".join((name, *where))
        above = "\n" * ((line or 1) - 1)  # so that its lines are those of the file
        raw, written = ((above + each).encode("utf-8", "surrogatepass") for each in (filled, text))
        return RuleText(name, stand_in(raw, self._keys), written)

    def _file(self, table: TomlTable, key: str, file: str) -> RuleText | None:
        shown = os.path.normpath(self._folder / file)
        if shown not in self._files:
            try:
                raw = read_bounded(self._folder / file, safe_text(shown), MAX_RULE_FILE_BYTES)
            except PolicyTestError as error:
                first = error.findings[0]
                table.add(key, f"{first.place}: {first.message}")
                return None
            self._files[shown] = RuleText(safe_text(shown), stand_in(raw, self._keys), raw)
        return self._files[shown]


SUFFIX: Final = ".lacetest.toml"
"""What the names of test files end with."""
MAX_TEST_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_CASES: Final = 1_000
"""Cases of one test file."""

_POLICY_KEYS: Final = (
    "select", "select_text", "peer_select", "peer_select_text", "lowering", "index",
    "allow_undefined",
    "keys", "expose", "records", "facts", "limits", "case",
)  # fmt: skip
_RULES_KEYS: Final = ("rules", "rules_text", "keys", "records", "facts", "limits", "case")
_KEYS: Final = tuple(dict.fromkeys((*_POLICY_KEYS, *_RULES_KEYS)))
_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def find_test_files(arguments: Sequence[str]) -> list[str]:
    """Return the test files that arguments name, each once; of folders all below."""
    found: dict[str, None] = {}
    lost: list[Finding] = []
    for argument in arguments:
        if not Path(argument).is_dir():
            found[os.path.normpath(argument)] = None
            continue
        below = sorted(_test_files_below(argument))
        found.update(dict.fromkeys(below))
        if not below:
            message = f"there is no *{SUFFIX} in this folder"
            place = Place(safe_text(argument))
            lost.append(Finding(severity="error", place=place, message=message))
    if lost:
        raise PolicyTestError(tuple(lost))
    return list(found)


def _test_files_below(folder: str) -> Iterator[str]:
    """Yield the test files of a folder and of those in it, but for hidden ones."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(SUFFIX):
                yield os.path.normpath(Path(place) / name)


def read_tests(argument: str) -> PolicyTests:
    """Return what a test file says."""
    name = safe_text(argument)
    raw = read_bounded(Path(argument), name, MAX_TEST_FILE_BYTES)
    try:
        text = raw.decode("utf-8")
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise refused(name, f"byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        place = _AT.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place and place[1] else (None, None)
        message = f"this is no TOML: {_AT.sub('', str(error))}"
        is_named_so = Path(argument).suffix == ".toml"
        hint = None if is_named_so else "policy tests are files *.lacetest.toml"
        raise refused(name, message, line, column, hint) from error
    except (RecursionError, ValueError) as error:  # too deep, or a number of too many digits
        raise refused(name, f"this is no TOML that can be read: {error}") from error
    problems = Problems(name, text.replace("\r\n", "\n"))
    made = _FileReader(TomlTable(values, (), problems), Path(argument).parent).read()
    problems.refuse()
    return made


class _FileReader:
    """Reads the top of a file, and hands its cases on."""

    def __init__(self, top: TomlTable, folder: Path) -> None:
        self._top = top
        self._folder = folder
        self._name = top.problems.name

    def read(self) -> PolicyTests:
        """Return all of it; what is wrong is noted."""
        top = self._top
        top.check_keys(_KEYS)
        plain = "rules" in top or "rules_text" in top
        if plain:
            for key in set(top) & (set(_POLICY_KEYS) - set(_RULES_KEYS)):
                top.add(key, "this is for a policy, and the file tests plain rules")
        keys = read_keys(top.table("keys"))
        maker = RecordMaker(top.table("records"), keys)
        records = maker.make_all()
        texts = RuleReader(self._folder, self._name, keys, records)
        rules = texts.read(top, "rules", needed=True) if plain else None
        select = None if plain else texts.read(top, "select", needed=True)
        allowed = self._allowed()
        exposures = tuple(texts.read_exposure(each) for each in top.tables("expose"))
        reader = CaseReader(top, keys, records, texts, is_plain=plain)
        cases = self._cases(reader)
        if not top.problems:  # else a name that is wrong may be what would have used them
            self._check_unused(texts.used | reader.used, maker, cases)
        return PolicyTests(
            name=self._name,
            select=select,
            rules=rules,
            exposures=tuple(each for each in exposures if each is not None),
            allowed=allowed,
            keys=keys,
            records=records,
            cases=cases,
        )

    def _allowed(self) -> frozenset[PredicateKey]:
        """Return the predicates that nobody defines on purpose."""
        texts = self._top.texts("allow_undefined") or []
        try:
            return parse_allowed(texts)
        except UsageError as error:
            self._top.add("allow_undefined", error.message, error.hint)
            return frozenset()

    def _cases(self, reader: CaseReader) -> tuple[Case, ...]:
        tables = self._top.tables("case")
        if len(tables) > MAX_CASES:
            self._top.add("case", f"these are {len(tables):,} cases; at most {MAX_CASES:,} are run")
            return ()
        if not tables and not isinstance(self._top.raw("case"), list):
            self._top.add(None, "there is no case", "begin one with [[case]]")
        made: list[Case] = []
        lines: dict[str, int | None] = {}
        for table in tables:
            case = reader.read(table)
            if case.name in lines:
                there = f"in line {lines[case.name]}" if lines[case.name] else "above"
                table.add("name", f"a case {there} has this name already")
            lines.setdefault(case.name, case.line)
            made.append(case)
        return tuple(made)

    def _check_unused(self, used: set[str], maker: RecordMaker, cases: tuple[Case, ...]) -> None:
        """Note records and keys that nothing uses: they may be what a mistyped name meant."""
        for case in cases:
            used.update((*case.records, *case.advertised))
        waiting = list(used)
        while waiting:
            for name in maker.mentions.get(waiting.pop(), ()):
                if name not in used:
                    used.add(name)
                    waiting.append(name)
        for kind in ("records", "keys"):
            table = self._top.table(kind)
            for name in table:
                if name not in used:
                    what = "no case uses this record" if kind == "records" else "nothing uses it"
                    table.add(name, what, "take it out")
