"""Blob, Plex and Seal as frozen values, each with one constructor that refuses what is illegal.

A value holds its complete bytes and its identifier. No clock and no randomness is
read here: `Plex` asks the clock that the front door installs when no TAI is given,
and a signing key brings its own randomness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, TypeAlias

from lace.base.arguments import kind_of
from lace.base.digest import digest
from lace.base.tai import Tai
from lace.base.text import shorten
from lace.errors import RecordError
from lace.record import seal as seals
from lace.record.headers import Header, check_line, sort_headers
from lace.record.ids import HASH_TEXT_BYTES, RecordId, Signature, Verifier, record_id
from lace.record.paths import Coordinate

if TYPE_CHECKING:
    from lace.record.seal import SigningKey


# -- Values to bytes: the one writer of record bytes (010).

MARKER: Final = bytes.fromhex("f09f96a73a20")
MARKLINE_BYTES: Final = len(MARKER) + HASH_TEXT_BYTES + 1


def blob_payload(data: bytes) -> bytes:
    """Return the payload of a Blob with that data."""
    return b"Data-Length: %d\n\n%b" % (len(data), data)


def plex_payload(
    group: str, app: str, name: str, tai: str, headers: Iterable[Header], blob: bytes
) -> bytes:
    """Return the payload of a Plex that embeds the Blob record whose bytes are given."""
    lines = [f"Group: {group}\nApp: {app}\nName: {name}\nTAI: {tai}\n"]
    lines += [f"{header}: {value}\n" for header, value in headers]
    return "".join(lines).encode() + blob


def seal_payload(signed_by: str, signature: str, plex: bytes) -> bytes:
    """Return the payload of a Seal that embeds the Plex record whose bytes are given."""
    return f"Signed-By: {signed_by}\nSignature: {signature}\n".encode() + plex


def write_record(type_letter: str, payload: bytes) -> tuple[RecordId, bytes]:
    """Return identifier and complete bytes of the record with that payload."""
    identifier = record_id(type_letter, digest(payload))
    return identifier, b"%b%b\n%b" % (MARKER, identifier.encode(), payload)


Octets: TypeAlias = bytes  # the classes below have a field of the name `bytes`


class Clock(Protocol):
    """Something that tells the time."""

    def __call__(self) -> Tai:
        """Return the present instant."""
        ...


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class _Identified:
    """What every record value has; equal bytes are equal records."""

    id: RecordId
    bytes: Octets

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _identify(self, type_letter: str, payload: Octets) -> None:
        identifier, raw = write_record(type_letter, payload)
        self._set(id=identifier, bytes=raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identified) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Blob(_Identified):
    r"""Bytes and nothing else.

    >>> Blob(b"hi").bytes[-16:]
    b'ta-Length: 2\n\nhi'
    """

    data: Octets

    type: ClassVar[Literal["B"]] = "B"

    def __init__(self, data: Octets) -> None:
        self._set(data=_as_bytes(data))
        self._identify("B", blob_payload(self.data))

    def __repr__(self) -> str:
        return f"Blob({_show(self.data)})"


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Plex(_Identified):
    """Data with a coordinate, a time and extra headers.

    Without `tai` the clock of the front door is read; headers are sorted stably by name.

    Raises:
        RecordError: a path, header or TAI that no record may have.
    """

    coordinate: Coordinate
    tai: Tai
    headers: tuple[Header, ...]
    blob: Blob

    type: ClassVar[Literal["P"]] = "P"
    clock: ClassVar[Clock | None] = None

    def __init__(
        self,
        *,
        group: str,
        app: str,
        name: str,
        data: Octets,
        tai: str | None = None,
        headers: Iterable[Header] = (),
    ) -> None:
        coordinate = Coordinate(group, app, name)
        for header, value in (("Group", group), ("App", app), ("Name", name)):
            check_line(header, value)
        if tai is None and Plex.clock is not None:
            tai = Plex.clock()
        if tai is None:
            raise RecordError("a Plex needs a TAI: no clock is given", rule="010-tai")
        _check_text("TAI", tai, rule="010-tai", hint="write ten digits, a colon and nine digits")
        self._set(coordinate=coordinate, tai=Tai(tai))
        self._set(headers=sort_headers(_as_headers(headers)), blob=Blob(data))
        self._identify("P", plex_payload(group, app, name, self.tai, self.headers, self.blob.bytes))

    def __repr__(self) -> str:
        extra = f", headers={self.headers!r}" if self.headers else ""
        return f"Plex({self.coordinate}, {self.tai!s}, {_show(self.data)}{extra})"

    @property
    def group(self) -> str:
        """The group path."""
        return self.coordinate.group

    @property
    def app(self) -> str:
        """The app namespace."""
        return self.coordinate.app

    @property
    def name(self) -> str:
        """The app-local name."""
        return self.coordinate.name

    @property
    def data(self) -> Octets:
        """The data of the embedded Blob."""
        return self.blob.data

    def seal(self, key: SigningKey) -> Seal:
        """Return this record signed with that key.

        Raises:
            RecordError: it is no signing key.
        """
        if not isinstance(key, seals.SigningKey):
            raise RecordError(
                f"key is a SigningKey, not {kind_of(key)}",
                rule="009-secret",
                hint="make one with lace.SigningKey.generate()",
            )
        return Seal(plex=self, signed_by=key.verifier, signature=key.sign(self.id.digest))


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Seal(_Identified):
    """A Plex with a signature over its digest; a signature that does not verify is refused.

    Raises:
        RecordError: the signature is not the verifier's over this Plex.
    """

    plex: Plex
    signed_by: Verifier
    signature: Signature

    type: ClassVar[Literal["S"]] = "S"

    def __init__(self, *, plex: Plex, signed_by: str, signature: str) -> None:
        if not isinstance(plex, Plex):
            raise RecordError(
                f"a Seal embeds a Plex, not {type(plex).__name__}",
                rule="010-nesting",
                hint="make one with lace.Plex(...)",
            )
        _check_text("Signed-By", signed_by, rule="009-verifier")
        _check_text("Signature", signature, rule="009-signature-text")
        self._set(plex=plex, signed_by=Verifier(signed_by), signature=Signature(signature))
        if not seals.verify(self.signed_by, plex.id.digest, self.signature):
            raise RecordError(
                f"the signature is not one by {signed_by} over {plex.id}", rule="009-signature"
            )
        self._identify("S", seal_payload(signed_by, signature, plex.bytes))

    def __repr__(self) -> str:
        return f"Seal({self.plex!r}, signed_by={self.signed_by!s})"

    @property
    def coordinate(self) -> Coordinate:
        """The coordinate of the embedded Plex."""
        return self.plex.coordinate

    @property
    def group(self) -> str:
        """The group path of the embedded Plex."""
        return self.plex.group

    @property
    def app(self) -> str:
        """The app namespace of the embedded Plex."""
        return self.plex.app

    @property
    def name(self) -> str:
        """The app-local name of the embedded Plex."""
        return self.plex.name

    @property
    def tai(self) -> Tai:
        """The TAI of the embedded Plex."""
        return self.plex.tai

    @property
    def headers(self) -> tuple[Header, ...]:
        """The extra headers of the embedded Plex."""
        return self.plex.headers

    @property
    def data(self) -> Octets:
        """The data of the embedded Blob."""
        return self.plex.data


Record = Blob | Plex | Seal


def _as_bytes(data: object) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise RecordError(
        f"data is bytes, not {type(data).__name__}", rule="010-data", hint="encode text first"
    )


def _check_text(kind: str, value: object, *, rule: str, hint: str = "give it as a str") -> None:
    if not isinstance(value, str):
        raise RecordError(f"{kind} is text, not {type(value).__name__}", rule=rule, hint=hint)


def _as_headers(headers: object) -> list[Header]:
    """Return headers as a list; refuse what are no pairs, also a text of two characters."""
    hint = "give a list of pairs: [('Name', 'value')]"
    if not isinstance(headers, Iterable) or isinstance(headers, (str, bytes, Mapping)):
        raise RecordError(
            f"headers are pairs of a name and a value, not {type(headers).__name__}",
            rule="010-header-form",
            hint=hint,
        )
    made: list[Header] = []
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise RecordError(
                f"a header is a pair of a name and a value, not {shorten(repr(pair))}",
                rule="010-header-form",
                hint=hint,
            )
        made.append((pair[0], pair[1]))
    return made


def _show(data: bytes) -> str:
    return repr(data) if len(data) <= 40 else f"{shorten(repr(data[:24]))}, {len(data)} bytes"


# -- Receipts: a receiver's signed word that it has stored a record (050).

RECEIPT_GROUP: Final = "lace"
RECEIPT_APP: Final = "receipt"
STORED_FROM: Final = "Stored-From"
"""The header that names the verifier of the sender."""


def receipt_name(record: str) -> str:
    """Return the Name that receipts for a record have."""
    return f"store/{record}"


def make_receipt(record: str, sender: str, key: SigningKey, *, tai: str | None = None) -> Seal:
    """Return a receipt: an ordinary record that others take or leave by ordinary rules.

    Args:
        record: the hash of the record that was stored.
        sender: the verifier that the sender has proven.
        key: the receiver's.
        tai: when it was stored; else the clock says.

    Raises:
        RecordError: one of them is not what it should be.
    """
    stored, sent_by = RecordId(record), Verifier(sender)
    return Plex(
        group=RECEIPT_GROUP,
        app=RECEIPT_APP,
        name=receipt_name(stored),
        data=b"",
        tai=tai,
        headers=[("Stored-Hash", stored), (STORED_FROM, sent_by)],
    ).seal(key)
