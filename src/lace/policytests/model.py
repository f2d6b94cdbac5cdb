"""What a test file says, once it is read: rules, exposures, records and cases."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lace.base.digest import derive
from lace.base.text import shorten
from lace.errors import RecordError
from lace.facts.extract import record_facts
from lace.policytests.tables import TomlTable, meant
from lace.record.ids import Verifier
from lace.record.model import Blob, Plex
from lace.record.seal import SigningKey
from lace.record.validate import frame_record, validate_many

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lace.facts.lines import Fact
    from lace.record.headers import Header
    from lace.record.model import Record
    from lace.rules.syntax import PredicateKey


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


# -- Names in a test file: keys and records, and texts that mention them as `${name}`.
#
# Keys of tests are made from a text, so that a test gives the same hashes everywhere. Anyone who
# knows the text has the key: they are for tests and nothing else.

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""What keys and records may be called."""
PEER: Final = "peer"
"""The name of the peer in facts: its verifier, or its label when it has proven nothing."""

_MENTION: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_TEST_KEY: Final = "test"
_KEY_CONTEXT: Final = "policy-test-key"
_AUX_CONTEXT: Final = "policy-test-aux"


def make_test_key(seed: str) -> SigningKey:
    """Return the signing key of a text, for tests only: anyone can make the same one.

    Its signatures are the same each time too.

    >>> make_test_key("alice").verifier == make_test_key("alice").verifier
    True
    """
    material = derive(_KEY_CONTEXT, seed.encode("utf-8"))
    return SigningKey(material, lambda size: derive(_AUX_CONTEXT, material)[:size])


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a test file names; one that is given by its verifier cannot sign.

    In the rules under test it takes the place of the verifier that it stands for.
    """

    name: str
    verifier: str
    signer: SigningKey | None = None
    stands_for: str | None = None


def read_keys(table: TomlTable) -> dict[str, Key]:
    """Return the keys of the table `keys` by name; what is wrong is noted."""
    found: dict[str, Key] = {}
    owners: dict[str, str] = {}
    for name in table:
        if not _is_name(table, name):
            continue
        key = _read_key(table, name)
        if key is None:
            continue
        for verifier in (key.verifier, key.stands_for):
            if verifier is None:
                continue
            if verifier in owners:
                table.add(name, f"this is the verifier of the key {owners[verifier]} too")
            owners.setdefault(verifier, name)
        found[name] = key
    return found


def _is_name(table: TomlTable, name: str) -> bool:
    if name == PEER:
        table.add(name, "this name means the peer of a case", "choose another name")
    elif not NAME.fullmatch(name):
        table.add(name, "this is no name", "a letter, then letters, digits, _ and -; 64 at most")
    else:
        return True
    return False


def _read_key(table: TomlTable, name: str) -> Key | None:
    if isinstance(table.raw(name), dict):
        inner = table.table(name)
        inner.check_keys(("seed", "stands_for"))
        seed = inner.text("seed")
        signer = make_test_key(name if seed is None else seed)
        stands_for = inner.text("stands_for")
        if stands_for is not None and _verifier(inner, "stands_for", stands_for) is None:
            return None
        return Key(name, signer.verifier, signer, stands_for)
    text = table.text(name)
    if text is None:
        return None
    if text == _TEST_KEY:
        signer = make_test_key(name)
        return Key(name, signer.verifier, signer)
    verifier = _verifier(table, name, text)
    return None if verifier is None else Key(name, verifier)


def _verifier(table: TomlTable, key: str, text: str) -> str | None:
    try:
        return str(Verifier(text))
    except RecordError:
        table.add(
            key,
            f"{shorten(text)!r} is no verifier",
            f'write V.….H3, or "{_TEST_KEY}" for a key that is made for this test',
        )
        return None


def stand_in(raw: bytes, keys: Mapping[str, Key]) -> bytes:
    """Return the text of rules with test keys in the place of those they stand for.

    All verifiers have the same length, so that nothing else moves.
    """
    for key in keys.values():
        if key.stands_for is not None:
            raw = raw.replace(key.stands_for.encode("ascii"), key.verifier.encode("ascii"))
    return raw


class Substitution:
    """Puts in what names mean, and keeps in mind which were used."""

    def __init__(
        self, known: Callable[[str], str | None], names: Callable[[], Collection[str]]
    ) -> None:
        self._known = known
        self._names = names
        self.used: set[str] = set()

    def fill(self, text: str, table: TomlTable, key: str | None) -> str:
        """Return a text with the values of the names that it mentions.

        A name that means nothing is noted at the key, and stays as it is.
        """

        def value(found: re.Match[str]) -> str:
            if found[1] is None:
                return "${"
            self.used.add(found[1])
            made = self._known(found[1])
            if made is None:
                table.add(
                    key,
                    f"nothing is called {shorten(found[1])!r}",
                    meant(found[1], self._names(), "names"),
                    text=found[0],
                )
                return found[0]
            return made

        return _MENTION.sub(value, text)


# -- The records of a test file: real ones, made and validated, by the names they have there.

DEFAULT_TAI: Final = "1700000000:000000000"
"""The TAI of records that give none."""
MAX_RECORDS: Final = 1_000
"""Records of one test file."""
MAX_DATA_BYTES: Final = 65_536
"""Bytes of data of one record."""

_COORDINATE: Final = ("group", "app", "name")
_KEYS: Final = (*_COORDINATE, "data", "tai", "sign", "headers")


@dataclass(frozen=True, slots=True)
class MadeRecord:
    """A record of a test file: its name there, its hash and its facts."""

    name: str
    id: str
    facts: tuple[Fact, ...]

    def advertisement(self, source: str) -> Iterator[Fact]:
        """Yield what a source tells when it advertises the record with all its fields."""
        yield "Advertised", self.id, source
        for name, *values in self.facts:
            if name == "Field":
                record, *rest = values
                yield "AdvertisedField", record, source, *rest


class RecordMaker:
    """Makes the records of a file, each after those that it mentions."""

    def __init__(self, table: TomlTable, keys: Mapping[str, Key]) -> None:
        self._table = table
        self._keys = keys
        self._waiting: list[str] = []
        self.made: dict[str, MadeRecord] = {}
        self._by_id: dict[str, str] = {}
        self._lost: set[str] = set()
        self.mentions: dict[str, set[str]] = {}
        """The names that each record mentions."""

    def make_all(self) -> dict[str, MadeRecord]:
        """Return all records by name; what is wrong is noted."""
        table = self._table
        if len(table) > MAX_RECORDS:
            table.add(
                None, f"these are {len(table):,} records, and at most {MAX_RECORDS:,} are made"
            )
            return {}
        for name in table:
            if name == PEER or name in self._keys:
                what = "the peer of a case" if name == PEER else "a key"
                table.add(name, f"this name means {what}", "choose another name")
                self._lost.add(name)
            elif not NAME.fullmatch(name):
                hint = "a letter, then letters, digits, _ and -; 64 at most"
                table.add(name, "this is no name", hint)
                self._lost.add(name)
        for name in table:
            self._make(name)
        return {name: self.made[name] for name in table if name in self.made}

    def names(self) -> list[str]:
        """Return what can be mentioned."""
        return [*self._keys, *self._table]

    def _make(self, name: str) -> str | None:
        """Return the hash of a record, which is made now if need be."""
        if name in self.made:
            return self.made[name].id
        if name in self._lost:
            return None
        if name in self._waiting:
            around = " → ".join([*self._waiting[self._waiting.index(name) :], name])
            self._table.add(name, f"records cannot mention each other in a circle: {around}")
            self._lost.update(self._waiting)
            return None
        self._waiting.append(name)
        try:
            found = self._read(name)
        finally:
            self._waiting.pop()
        if found is None or name in self._lost:
            self._lost.add(name)
            return None
        same = self._by_id.setdefault(str(found.id), name)
        if same != name:
            self._table.add(
                name, f"this is the same record as {same}", "give it another name, data or TAI"
            )
        (valid,) = validate_many([frame_record(found.bytes)], os.urandom)
        if isinstance(valid, RecordError):
            raise AssertionError("a record that was made is valid")
        self.made[name] = MadeRecord(name, str(found.id), tuple(record_facts(valid)))
        return str(found.id)

    def _value(self, name: str) -> str | None:
        if name in self._keys:
            return self._keys[name].verifier
        if name in self._lost:
            return f"${{{name}}}"  # its fault is reported already
        if name in self._table:
            return self._make(name) or f"${{{name}}}"
        return None

    def _read(self, name: str) -> Record | None:
        inner = self._table.table(name)
        inner.check_keys(_KEYS)
        substitution = Substitution(self._value, self.names)

        def text(key: str) -> str | None:
            found = inner.text(key)
            return None if found is None else substitution.fill(found, inner, key)

        body = text("data")
        data = (body or "").encode("utf-8", "surrogatepass")
        if len(data) > MAX_DATA_BYTES:
            inner.add("data", f"these are {len(data):,} bytes; at most {MAX_DATA_BYTES:,} are read")
            return None
        coordinate = {key: text(key) for key in _COORDINATE}
        headers = list(self._headers(inner, substitution))
        self.mentions[name] = substitution.used
        signer = self._signer(inner)
        tai = text("tai")
        if substitution.used & self._lost or (body is None and "data" in inner):
            return None  # its fault is reported already
        given = [key for key in _COORDINATE if key in inner]
        if not given:
            for key in ("tai", "sign", "headers"):
                if key in inner:
                    inner.add(key, "a Blob has data only", "give group, app and name for a Plex")
            return Blob(data)
        missing = [key for key in _COORDINATE if coordinate[key] is None]
        for key in missing:
            if key not in inner:
                inner.add(None, f"{key} is missing", "a Plex has group, app and name")
        if missing or ("sign" in inner and signer is None):
            return None
        try:
            plex = Plex(
                group=str(coordinate["group"]),
                app=str(coordinate["app"]),
                name=str(coordinate["name"]),
                data=data,
                tai=DEFAULT_TAI if tai is None else tai,
                headers=headers,
            )
        except RecordError as error:
            inner.add(None, f"{error.message} [{error.rule}]", error.hint)
            return None
        if signer is None or signer.signer is None:
            return plex
        self.mentions[name].add(signer.name)
        return plex.seal(signer.signer)

    def _headers(self, inner: TomlTable, substitution: Substitution) -> Iterator[Header]:
        headers = inner.table("headers")
        for name in headers:
            single = isinstance(headers.raw(name), str)
            values = [headers.text(name)] if single else headers.texts(name, unique=False)
            for value in values or ():
                yield name, substitution.fill(value or "", headers, name)

    def _signer(self, inner: TomlTable) -> Key | None:
        name = inner.text("sign")
        if name is None:
            return None
        key = self._keys.get(name)
        if key is None:
            inner.add("sign", f"there is no key {shorten(name)!r}", meant(name, self._keys, "keys"))
        elif key.signer is None:
            inner.add(
                "sign",
                f"the key {name} is a verifier, which cannot sign",
                f'write {name} = "test", or {name} = {{ stands_for = "{key.verifier}" }}',
            )
            return None
        return key
