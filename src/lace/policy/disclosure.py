"""Disclosures as values: what a viewer may query, what that shows, what would be sent (020).

A disclosure can be saved as JSON and read back, and two can be compared, so that an edit
of a policy shows what it would reveal, like a plan before it is applied. How one is worked
out is in `lace.query.preview`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from lace.base.text import shorten
from lace.errors import PolicyError
from lace.policy.schema import ALL_FIELDS, Offer, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable


FORMAT: Final = "lace-disclosure/v1"
"""What a saved disclosure calls itself."""
CHANGE_FORMAT: Final = "lace-disclosure-change/v1"
"""What a saved comparison calls itself."""
_EVERY: Final = "*"
_EVERYTHING: Final = Offer(ALL_FIELDS)
_SAVE_ONE: Final = "save one with `lace disclose --json`"


@dataclass(frozen=True, slots=True)
class FieldShown:
    """A field that records of the view have: in how many, with how many different values.

    `example` is the value in the record with the least hash.
    """

    name: str
    records: int
    values: int
    example: str


@dataclass(frozen=True, slots=True)
class LinksShown:
    """Record links of one name: how many, in how many records, to how many targets."""

    name: str
    links: int
    records: int
    targets: int


@dataclass(frozen=True, slots=True)
class Sent:
    """The records that would be sent to a peer with this selector.

    `select` is the `R.` identifier of this side's selector; None means that it was not asked,
    and the records are those that the peer's rules choose. `lowering` is what was asked
    beyond selection.
    """

    peer_select: str
    select: str | None
    records: tuple[str, ...]
    lowering: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "peer_select": self.peer_select,
            "select": self.select,
            "lowering": self.lowering,
            "records": list(self.records),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Disclosure:
    """What one viewer may query of one store, and what that tells.

    `records` are the hashes in the view, sorted. `hidden_hashes` are targets of links in it
    that are not in the view themselves, and `hidden_here` counts those of them that are
    stored here. `blobs` and `plexes` count the different embedded hashes. `missing_facts` are
    runtime predicates, as `StartTAI/1`, that the rules read and of which no fact was given:
    an exchange has such facts, and then more may be told than is said here. `local_tai` is the
    instant that exposures read as this side's clock; None if none of them does. `offer` are
    the fields and formats of advertisements: for a peer's selector those that an exchange with it
    offers, without one the most that any peer can ask for.
    """

    lace: str
    viewer: str
    exposures: tuple[str, ...]
    stored: int
    records: tuple[str, ...]
    fields: tuple[FieldShown, ...]
    links: tuple[LinksShown, ...]
    hidden_hashes: tuple[str, ...]
    hidden_here: int
    blobs: int
    plexes: int
    sent: Sent | None = None
    missing_facts: tuple[str, ...] = ()
    local_tai: str | None = None
    offer: Offer = _EVERYTHING

    def __repr__(self) -> str:
        shown = f"{len(self.records):,} of {self.stored:,} records"
        sent = "" if self.sent is None else f", {len(self.sent.records):,} would be sent"
        return f"<Disclosure to {self.viewer}: {shown}{sent}>"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in a fixed order; `parse_disclosure` reads them back."""
        return {
            "format": FORMAT,
            "lace": self.lace,
            "viewer": self.viewer,
            "exposures": list(self.exposures),
            "stored": self.stored,
            "count": len(self.records),
            "records": list(self.records),
            "fields": [asdict(each) for each in self.fields],
            "links": [asdict(each) for each in self.links],
            "hidden_hashes": list(self.hidden_hashes),
            "hidden_here": self.hidden_here,
            "embedded": {"blobs": self.blobs, "plexes": self.plexes},
            "sent": None if self.sent is None else self.sent.to_json(),
            "local_tai": self.local_tai,
            "offer": self.offer.to_json(),
            "missing_facts": list(self.missing_facts),
        }

    def compare(self, before: Disclosure) -> DisclosureChange:
        """Return what this one reveals that another does not, and the reverse."""
        sent = None
        if self.sent is not None and before.sent is not None:
            sent = SetChange.between(before.sent.records, self.sent.records)
        offered = SetChange((), ())
        if (self.sent is None) == (before.sent is None):  # else one is for any plan
            offered = SetChange.between(_offered(before), _offered(self))
        old, new = frozenset(before.records), frozenset(self.records)
        hashes = SetChange.between(before.hidden_hashes, self.hidden_hashes)
        return DisclosureChange(
            viewer=self.viewer,
            records=SetChange(tuple(sorted(new - old)), tuple(sorted(old - new))),
            fields=SetChange.between(
                (each.name for each in before.fields), (each.name for each in self.fields)
            ),
            hidden_hashes=SetChange(
                tuple(each for each in hashes.added if each not in old),
                tuple(each for each in hashes.removed if each not in new),
            ),
            sent=sent,
            offered=offered,
            missing_facts=tuple(sorted({*before.missing_facts, *self.missing_facts})),
        )


@dataclass(frozen=True, slots=True)
class SetChange:
    """What came and what went, each sorted."""

    added: tuple[str, ...]
    removed: tuple[str, ...]

    @classmethod
    def between(cls, before: Iterable[str], after: Iterable[str]) -> SetChange:
        """Return the change from one set to another."""
        old, new = frozenset(before), frozenset(after)
        return cls(tuple(sorted(new - old)), tuple(sorted(old - new)))

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    def to_json(self) -> dict[str, list[str]]:
        """Return plain values."""
        return {"added": list(self.added), "removed": list(self.removed)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DisclosureChange:
    """What an edit would newly reveal to a viewer, and what it would no longer reveal.

    A hash is new when it was told in no way before, and gone when it is told in none now.
    `sent` is None where one of the two did not ask what would be sent. `offered` are names of
    fields that advertisements may carry, `*` for all, where both or none asked what would be
    sent. `missing_facts` are those of both, sorted.
    """

    viewer: str
    records: SetChange
    fields: SetChange
    hidden_hashes: SetChange
    sent: SetChange | None
    missing_facts: tuple[str, ...] = ()
    offered: SetChange = SetChange((), ())

    def __bool__(self) -> bool:
        changes = (self.records, self.fields, self.hidden_hashes, self.sent, self.offered)
        return any(changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "format": CHANGE_FORMAT,
            "viewer": self.viewer,
            "changed": bool(self),
            "records": self.records.to_json(),
            "fields": self.fields.to_json(),
            "hidden_hashes": self.hidden_hashes.to_json(),
            "sent": None if self.sent is None else self.sent.to_json(),
            "offered": self.offered.to_json(),
            "missing_facts": list(self.missing_facts),
        }


def _offered(told: Disclosure) -> frozenset[str]:
    """Return the names of fields that are offered, `*` for all; without records, none are."""
    if not told.records:
        return frozenset()
    return frozenset({_EVERY}) if told.offer.schema.all else told.offer.schema.names


# -- reading a saved one -------------------------------------------------------------------------


def parse_disclosure(raw: bytes) -> Disclosure:
    """Return the disclosure that was saved as JSON."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"this is no JSON document: {error}", hint=_SAVE_ONE) from None
    if not isinstance(found, dict):
        raise PolicyError("this is no saved disclosure", hint=_SAVE_ONE)
    form = found.get("format")
    if form == CHANGE_FORMAT:
        raise PolicyError(
            "this is a comparison of two disclosures, not one of them",
            hint="save one with `lace disclose --json` without --baseline",
        )
    if form != FORMAT:
        what = f"its format is {shorten(str(form))!r}" if form is not None else "it has no format"
        raise PolicyError(f"this is no saved disclosure: {what}, not {FORMAT!r}", hint=_SAVE_ONE)
    return _disclosure(_Document(found))


def _disclosure(saved: _Document) -> Disclosure:
    embedded = saved.document("embedded")
    return Disclosure(
        lace=saved.text("lace"),
        viewer=saved.text("viewer"),
        exposures=saved.texts("exposures"),
        stored=saved.number("stored"),
        records=saved.texts("records"),
        fields=tuple(
            FieldShown(
                each.text("name"),
                each.number("records"),
                each.number("values"),
                each.text("example"),
            )
            for each in saved.documents("fields")
        ),
        links=tuple(
            LinksShown(
                each.text("name"),
                each.number("links"),
                each.number("records"),
                each.number("targets"),
            )
            for each in saved.documents("links")
        ),
        hidden_hashes=saved.texts("hidden_hashes"),
        hidden_here=saved.number("hidden_here"),
        blobs=embedded.number("blobs"),
        plexes=embedded.number("plexes"),
        sent=_sent(saved),
        missing_facts=saved.texts("missing_facts"),
        local_tai=saved.text_if_any("local_tai"),
        offer=_offer(saved.document("offer")),
    )


def _offer(saved: _Document) -> Offer:
    schema = Schema(names=frozenset(saved.texts("fields")), all=saved.flag("all_fields"))
    return Offer(
        schema,
        frozenset(saved.texts("formats")),
        saved.texts("unmet_fields"),
        saved.flag("needs_all_fields"),
    )


def _sent(saved: _Document) -> Sent | None:
    if saved.is_null("sent"):
        return None
    sent = saved.document("sent")
    select = None if sent.is_null("select") else sent.text("select")
    return Sent(sent.text("peer_select"), select, sent.texts("records"), sent.text("lowering"))


class _Document:
    """A JSON object whose values are taken only if they are of the kind asked for."""

    def __init__(self, values: dict[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    def _refuse(self, key: str, kind: str) -> PolicyError:
        return PolicyError(
            f"this is no saved disclosure: {self._path}{key} is not {kind}", hint=_SAVE_ONE
        )

    def is_null(self, key: str) -> bool:
        """Tell whether a value is null; it has to be there."""
        if key not in self._values:
            raise self._refuse(key, "there")
        return self._values[key] is None

    def text(self, key: str) -> str:
        """Return a text."""
        value = self._values.get(key)
        if not isinstance(value, str):
            raise self._refuse(key, "a text")
        return value

    def text_if_any(self, key: str) -> str | None:
        """Return a text, or None where it is null."""
        return None if self.is_null(key) else self.text(key)

    def flag(self, key: str) -> bool:
        """Return true or false."""
        value = self._values.get(key)
        if not isinstance(value, bool):
            raise self._refuse(key, "true or false")
        return value

    def number(self, key: str) -> int:
        """Return a count."""
        value = self._values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._refuse(key, "a count")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self._values.get(key)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._refuse(key, "a list of texts")
        return tuple(value)

    def document(self, key: str) -> _Document:
        """Return an object."""
        value = self._values.get(key)
        if not isinstance(value, dict):
            raise self._refuse(key, "an object")
        return _Document(value, f"{self._path}{key}.")

    def documents(self, key: str) -> list[_Document]:
        """Return a list of objects."""
        value = self._values.get(key)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._refuse(key, "a list of objects")
        return [_Document(each, f"{self._path}{key}.") for each in value]
