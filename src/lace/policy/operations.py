"""Operations as selectors: get a record, list a prefix, store given records (050, G48).

An operation on a peer is an ordinary exchange. All that it contributes is one side's
selector, which is made here, and for `store` the exposure of what is to be stored. What the
other side selects and exposes decides with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lace.base.arguments import check_argument, check_many
from lace.base.limits import MAX_GIVEN_RECORDS
from lace.base.text import is_nfc
from lace.errors import UsageError
from lace.record.ids import RecordId
from lace.record.paths import PATH, Address, AddressError, parse_address
from lace.rules.syntax import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


LISTED_FIELDS: Final = ("App", "Data-Length", "Group", "Name", "Signed-By", "TAI", "Type")
"""The fields that a listing asks a peer for."""
_PARTS: Final = ("Group", "App", "Name")


class _Test(NamedTuple):
    """A field that a record must have: with any value, one value, or one that begins so."""

    field: str
    equal: str | None = None
    start: str | None = None


def select_record(address: str | Address) -> str:
    """Return a selector for the record of a hash, or all versions of a coordinate.

    >>> print(select_record("//u//ding//links/1").split(", ")[1])
    Field(P,'Group',_,'u')

    Raises:
        AddressError: it is no hash and no coordinate.
    """
    found = address if isinstance(address, Address) else parse_address(address)
    equal: list[tuple[str, object]] = []
    if found.coordinate is not None:
        at = found.coordinate
        equal += [("Group", at.group), ("App", at.app), ("Name", at.name)]
    equal += [("Type", found.type), ("Signed-By", found.signed_by), ("TAI", found.tai)]
    tests = [_Test(name, equal=str(value)) for name, value in equal if value is not None]
    have = ["Have(P)", *_atoms("Field(P,", tests)]
    claimed = ["Advertised(P,S)", *_atoms("AdvertisedField(P,S,", tests)]
    given: list[str] = []
    if found.hash is not None:
        have.append("Given(P)")
        claimed.append("Given(P)")
        given.append(_given([found.hash]))
    rules = (
        f"SelectHave(P) :- {', '.join(have)}.",
        f"SelectAdvertised(P,S) :- {', '.join(claimed)}.",
    )
    return "\n".join([*rules, *given]) + "\n"


def coordinate_prefix(text: str) -> str:
    """Return the beginning of a coordinate's text; two leading slashes may be left out.

    >>> coordinate_prefix("u//ding")
    '//u//ding'

    Raises:
        AddressError: no coordinate begins so.
        UsageError: it is no text.
    """
    check_argument(text, str, "prefix is the beginning of a coordinate's text")
    prefix = text if not text or text.startswith("/") else f"//{text}"
    if prefix in ("", "/"):
        return prefix
    *exact, last = _parts(prefix)
    is_legal = (
        prefix.startswith("//")
        and len(exact) < len(_PARTS)
        and all(PATH.fullmatch(part) for part in exact)
        and PATH.fullmatch(f"{last}x")  # what begins so may go on
        and is_nfc(prefix)
    )
    if not is_legal:
        raise AddressError(
            f"no coordinate begins with {text!r}",
            rule="010-address",
            hint="write the beginning of //group//app//name",
        )
    return prefix


def _parts(prefix: str) -> list[str]:
    return prefix.removeprefix("/").removeprefix("/").split("//")


def select_prefix(prefix: str = "") -> str:
    """Return a selector for the records whose coordinate begins with a text; all of them for none.

    Raises:
        AddressError: no coordinate begins so.
    """
    lines: list[str] = []
    for tests in _alternatives(coordinate_prefix(prefix)):
        claimed = ["Advertised(P,S)", *_atoms("AdvertisedField(P,S,", tests)]
        lines += [_select_have(tests), f"SelectAdvertised(P,S) :- {', '.join(claimed)}."]
    return "\n".join(lines) + "\n"


def list_prefix(prefix: str = "") -> str:
    """Return a selector with which a peer says what it has below a prefix, and nothing moves.

    What the rules of a plan read is what both sides say of their records. These read what a
    listing shows and select nothing of it, so that an exchange is at a fixed point at once.

    Raises:
        AddressError: no coordinate begins so.
    """
    lines = [_select_have(tests) for tests in _alternatives(coordinate_prefix(prefix))]
    lines += [
        f"SelectAdvertised(P,S) :- AdvertisedField(P,S,{quote(name)},_,_), not Advertised(P,S)."
        for name in LISTED_FIELDS
    ]
    return "\n".join(lines) + "\n"


def _select_have(tests: Iterable[_Test]) -> str:
    return f"SelectHave(P) :- {', '.join(['Have(P)', *_atoms('Field(P,', tests)])}."


def _atoms(head: str, tests: Iterable[_Test]) -> Iterator[str]:
    """Yield the atoms of a body that test the fields of a record."""
    for test in tests:
        variable = test.field[0]
        if test.start is None:
            yield f"{head}'{test.field}',_,{'_' if test.equal is None else quote(test.equal)})"
        else:
            yield f"{head}'{test.field}',_,{variable})"
            yield f"TextShape({variable},{quote(test.start)},'','')"


def _alternatives(prefix: str) -> list[list[_Test]]:
    """Return what the fields of a record must be, in each of the ways to read a prefix.

    A slash at the end of a group or an app is one inside of it, or the first of two behind.
    """
    if not prefix:
        return [[]]
    *exact, last = _parts(prefix)
    field = _PARTS[len(exact)]
    before = [_Test(kind, equal=part) for kind, part in zip(_PARTS, exact, strict=False)]
    if not last:
        return [[*before, _Test(field)]]
    found = [[*before, _Test(field, start=last)]]
    if last.endswith("/") and field != "Name":
        found.append([*before, _Test(field, equal=last.removesuffix("/"))])
    return found


def select_records(records: Iterable[str], *, receipts: bool = False) -> str:
    """Return a selector for given records.

    Args:
        records: their hashes.
        receipts: select also what says that one of them was stored.

    Raises:
        IdError: one is no record hash.
        UsageError: there are too many of them.
    """
    lines = [
        "SelectHave(P) :- Have(P), Given(P).",
        "SelectAdvertised(P,S) :- Advertised(P,S), Given(P).",
    ]
    if receipts:
        lines += [
            "SelectHave(P) :- Field(P,'Group',_,'lace'), Field(P,'App',_,'receipt'), "
            "Field(P,'Stored-Hash',_,R), Given(R).",
            "SelectAdvertised(P,S) :- AdvertisedField(P,S,'Group',_,'lace'), "
            "AdvertisedField(P,S,'App',_,'receipt'), "
            "AdvertisedField(P,S,'Stored-Hash',_,R), Given(R).",
        ]
    return "\n".join([*lines, _given(records)]) + "\n"


def expose_records(records: Iterable[str]) -> str:
    """Return an exposure of given records and of nothing else.

    Raises:
        IdError: one is no record hash.
        UsageError: there are too many of them.
    """
    return f"AllowQueryRecord(V,P) :- _Viewer(V), Have(P), Given(P).\n{_given(records)}\n"


def _given(records: Iterable[str]) -> str:
    check_many(records, "records are the hashes of several records", "put it into a list")
    found = sorted({RecordId(record) for record in records})
    if len(found) > MAX_GIVEN_RECORDS:
        raise UsageError(
            f"{len(found):,} records are named, and one operation takes {MAX_GIVEN_RECORDS:,}",
            rule="G48",
            hint="write a selector for them, and use `lace sync`",
        )
    return "\n".join(f"Given('{record}') :- true." for record in found)
