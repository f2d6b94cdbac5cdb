"""The advertisement schema: which fields advertisements carry, and which this side offers (040).

It is a control of its own, beside the query view: a view limits what a peer's rules read of
records here, a schema what advertisements say of records that may be sent. What a plan requires
follows from both selectors, and a peer's selector could name any field. So a side offers what its
own policy allows: the fields that it names itself, or without any those of `STANDARD_FIELDS` and
of its own selector that the plan requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lace.base.arguments import check_argument, check_many
from lace.base.limits import STORED_FORMATS
from lace.base.text import shorten
from lace.errors import PolicyError, UsageError
from lace.policy.operand import RequiredFields
from lace.rules.findings import show

if TYPE_CHECKING:
    from collections.abc import Iterable


STANDARD_FIELDS: Final = frozenset(
    {
        *("Type", "Group", "App", "Name", "TAI", "Signed-By", "Signature", "Data-Length"),
        *("Stored-Hash", "Stored-From"),
    }
)
"""The fields that 050 names: those of records, with Data-Length (G53), and those of receipts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Which fields advertisements carry: some names, or all there are.

    All fields include every name, so that `names` is empty then.

    >>> Schema(names=frozenset({"App", "Type"})) & Schema(names=frozenset({"App"}))
    Schema(names=frozenset({'App'}), all=False)
    """

    names: frozenset[str] = frozenset()
    all: bool = False

    def __post_init__(self) -> None:
        if self.all:
            object.__setattr__(self, "names", frozenset())

    def __and__(self, other: Schema) -> Schema:
        """Return what both have; all fields and some names are those names."""
        if self.all:
            return other
        return self if other.all else Schema(names=self.names & other.names)

    def __contains__(self, name: str) -> bool:
        return self.all or name in self.names

    def meets(self, required: RequiredFields) -> bool:
        """Tell whether a plan that requires these fields can be evaluated."""
        return required.is_met_by(None if self.all else self.names)


ALL_FIELDS: Final = Schema(all=True)


def schema_of(fields: Iterable[str] | None, *, all_fields: bool) -> Schema | None:
    """Return the schema that somebody asks for; None where nothing is said."""
    check_argument(all_fields, bool, "all_fields is True or False")
    if fields is None:
        return ALL_FIELDS if all_fields else None
    check_many(fields, "fields are names of fields", "as in ['Group', 'App']")
    names = frozenset(fields)
    for name in names:
        check_argument(name, str, "a field is a name")
        if not name or ":" in name or " " in name:
            raise PolicyError(
                f"the name of a field must have no space and no colon, got {shorten(name)!r}",
                rule="050-129",
            )
    if all_fields:
        raise UsageError("some fields and all fields were asked for", hint="leave one of them out")
    RequiredFields(names=names)
    return Schema(names=names)


def check_own_fields(schema: Schema, own: RequiredFields) -> None:
    """Refuse a schema without a field that one's own selector reads: no exchange could begin."""
    if schema.meets(own):
        return
    if own.all:
        raise PolicyError(
            "the selector reads fields by variables, so all of them must be offered",
            rule="050-131",
            hint="offer all fields (--all-fields), or name the fields in the rules",
        )
    missing = ", ".join(show(name) for name in sorted(own.names - schema.names))
    raise PolicyError(
        f"the selector reads the advertised field {missing}, which is not among those offered",
        rule="050-130",
        hint="name it as well, with --field or in the setting offer_fields",
    )


def formats_of(formats: Iterable[str] | None) -> frozenset[str] | None:
    """Return the record formats that somebody asks for; None where nothing is said."""
    if formats is None:
        return None
    check_many(formats, "formats are suffixes of record hashes", "as in ['H3']")
    found = frozenset(formats)
    known = ", ".join(sorted(STORED_FORMATS))
    if not found:
        raise PolicyError(
            "an exchange needs at least one record format", rule="G39", hint=f"offer {known}"
        )
    for each in sorted(found - STORED_FORMATS, key=str):
        raise PolicyError(
            f"a record format must be one that stores can hold, got {shorten(str(each))!r}",
            rule="050-122",
            hint=f"they hold {known}",
        )
    return found


def allowed_schema(asked: Schema | None, own: RequiredFields) -> Schema:
    """Return the fields that a side offers at most, whatever a peer's selector requires."""
    if asked is not None:
        return asked
    return ALL_FIELDS if own.all else Schema(names=STANDARD_FIELDS | own.names)


def offered_schema(asked: Schema | None, own: RequiredFields, required: RequiredFields) -> Schema:
    """Return the fields that a side offers for a plan with these required fields.

    >>> names = RequiredFields(names=frozenset({"Group", "Secret"}))
    >>> sorted(offered_schema(None, RequiredFields(), names).names)
    ['Group']
    """
    allowed = allowed_schema(asked, own)
    if asked is not None or required.all:
        return allowed
    return allowed & Schema(names=required.names)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a side offers: fields of advertisements and record formats.

    `unmet` are the fields that a plan requires beyond them, by which an exchange would fail;
    `needs_all` says that it requires all fields, and they are not offered.
    """

    schema: Schema
    formats: frozenset[str] = STORED_FORMATS
    unmet: tuple[str, ...] = ()
    needs_all: bool = False

    @classmethod
    def of(cls, schema: Schema, formats: frozenset[str], required: RequiredFields) -> Offer:
        """Return an offer for a plan."""
        unmet = () if schema.all else tuple(sorted(required.names - schema.names))
        return cls(schema, formats, unmet, required.all and not schema.all)

    @property
    def is_met(self) -> bool:
        """Whether the plan requires no more."""
        return not self.unmet and not self.needs_all

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "fields": sorted(self.schema.names),
            "all_fields": self.schema.all,
            "formats": sorted(self.formats),
            "unmet_fields": list(self.unmet),
            "needs_all_fields": self.needs_all,
        }
