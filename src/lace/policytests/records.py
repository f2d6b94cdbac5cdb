"""The records of a test file: real ones, made and validated, by the names they have there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.base.text import shorten
from lace.errors import RecordError
from lace.facts.extract import record_facts
from lace.policytests.names import NAME, PEER, Key, Substitution
from lace.policytests.tables import Table, meant
from lace.record.model import Blob, Plex
from lace.record.validate import frame_record, validate_many

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.facts.lines import Fact
    from lace.record.headers import Header
    from lace.record.model import Record

__all__ = ["DEFAULT_TAI", "MAX_DATA_BYTES", "MAX_RECORDS", "MadeRecord", "RecordMaker"]

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

    def __init__(self, table: Table, keys: Mapping[str, Key]) -> None:
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
            return f"${{{name}}}"  # what is wrong with it is told already
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
            return None  # what is wrong is told already
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

    def _headers(self, inner: Table, substitution: Substitution) -> Iterator[Header]:
        headers = inner.table("headers")
        for name in headers:
            single = isinstance(headers.raw(name), str)
            values = [headers.text(name)] if single else headers.texts(name, unique=False)
            for value in values or ():
                yield name, substitution.fill(value or "", headers, name)

    def _signer(self, inner: Table) -> Key | None:
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
