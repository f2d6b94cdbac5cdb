"""Advertisement records: what a side claims to have, their canonical text and digest (050).

An advertisement record is about one record and one source: `Advertised(P,S)`, and the
fields of the negotiated schema that the record has. Its digest covers all of it, so two
sides that compute the same digest claim the same.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lace.base.digest import digest, digest_each
from lace.exchange.failures import Failure, InterlaceFailure
from lace.rules.syntax import quote

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lace.facts.lines import Fact
    from lace.policy.schema import Schema


DIGEST_LABEL: Final = b"lace-advertisement-record/v1"
Field: TypeAlias = "tuple[str, str, str]"
"""A claimed field: name, index, value."""


class Advertisement(NamedTuple):
    """A claim about one record; its source is that of the set it is in.

    `fields` are in canonical order: by name, then by the number of the index.
    """

    record: str
    fields: tuple[Field, ...] = ()

    def facts(self, source: str) -> Iterator[Fact]:
        """Yield the facts of the advertisement record, in canonical order."""
        yield "Advertised", self.record, source
        for name, index, value in self.fields:
            yield "AdvertisedField", self.record, source, name, index, value

    def digest(self, source: str) -> bytes:
        """Return the digest of the advertisement record."""
        return digest_of(self.record, source, self.fields)


def bare_advertisements(records: Iterable[str]) -> list[Advertisement]:
    """Return claims without fields about many records."""
    # What a NamedTuple's own constructor does, without a call for each.
    return list(map(partial(tuple.__new__, Advertisement), zip(records, repeat(()))))


def claim_bytes(claims: Collection[Advertisement]) -> int:
    """Return the bytes of the texts of claims: their records and what they say of them."""
    total = text_bytes(claim.record for claim in claims)
    if any(claim.fields for claim in claims):
        total += text_bytes(text for claim in claims for field in claim.fields for text in field)
    return total


def text_bytes(texts: Iterable[str]) -> int:
    """Return the bytes of texts in UTF-8."""
    return sum(len(text) if text.isascii() else len(text.encode("utf-8")) for text in texts)


def digest_of(record: str, source: str, fields: Iterable[Field]) -> bytes:
    """Return the digest of an advertisement record whose fields are in canonical order."""
    return digest(_hashed(record, quote(source), fields))


def digests_of(claims: Collection[Advertisement], source: str) -> list[bytes]:
    """Return the digests of many advertisement records."""
    if not any(claim.fields for claim in claims):
        return digests_of_bare((claim.record for claim in claims), source)
    quoted = quote(source)
    return digest_each(_hashed(claim.record, quoted, claim.fields) for claim in claims)


def _hashed(record: str, source: str, fields: Iterable[Field]) -> bytes:
    """Return the bytes that a digest is of; the source is quoted."""
    about = f"'{record}',{source}"
    text = f"Advertised({about})\n"
    for name, index, value in fields:
        text += f"AdvertisedField({about},{quote(name)},'{index}',{quote(value)})\n"
    return DIGEST_LABEL + text.encode("utf-8")


def digests_of_bare(records: Iterable[str], source: str) -> list[bytes]:
    """Return the digests of advertisement records without fields."""
    head = DIGEST_LABEL + b"Advertised('"
    tail = f"',{quote(source)})\n".encode()
    return digest_each(head + record.encode("ascii") + tail for record in records)


def is_bare(schema: Schema) -> bool:
    """Tell whether advertisements carry no fields at all."""
    return not schema.all and not schema.names


def advertised_fields_of(
    record: str,
    source: str,
    facts: Iterable[Fact],
    schema: Schema,
    *,
    max_line_bytes: int | None = None,
) -> tuple[Field, ...]:
    """Return the fields that an advertisement of a record carries, in canonical order.

    Where lines have a limit, a field whose line would pass it is left out, never cut (G60).
    """
    found = [
        (fact[2], fact[3], fact[4])
        for fact in facts
        if fact[0] == "Field" and fact[1] == record and fact[2] in schema
    ]
    return ordered_fields(record, source, found, max_line_bytes=max_line_bytes)


def ordered_fields(
    record: str, source: str, fields: Iterable[Field], *, max_line_bytes: int | None = None
) -> tuple[Field, ...]:
    """Return the fields of an advertisement in canonical order, without lines too long."""
    found = sorted(fields, key=_canonical_order)
    if max_line_bytes is None:
        return tuple(found)
    lead = len(f"AdvertisedField('{record}',,,'',)".encode()) + len(quote(source).encode())
    return tuple(field for field in found if lead + _field_bytes(field) <= max_line_bytes)


def _canonical_order(field: Field) -> tuple[bytes, int]:
    return field[0].encode("utf-8"), int(field[1])


def _field_bytes(field: Field) -> int:
    name, index, value = field
    return len(quote(name).encode()) + len(index) + len(quote(value).encode())


# -- Claims as they arrive: the advertisement records of a block, each checked and whole (050).
#
# Lines may come in any order; another source, a field without its `Advertised`, a name
# outside the schema or one index with two values makes the whole block malformed (G42).


def _malformed(message: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.MALFORMED_BLOCK, message, rule="G42")


def read_claims(facts: Collection[Fact], source: str, schema: Schema) -> dict[str, Advertisement]:
    """Return the advertisement records among the facts of a block, by record.

    Facts of other predicates are passed over.
    """
    claims = [fact for fact in facts if fact[0] == "Advertised"]
    loose = [fact for fact in facts if fact[0] == "AdvertisedField"]
    strange = {*map(itemgetter(2), claims)} - {source}
    if strange:
        raise _malformed(f"a claim names the source {min(strange)!r}, not the sender's {source!r}")
    if not loose:
        records = dict.fromkeys(map(itemgetter(1), claims))
        return dict(zip(records, bare_advertisements(records), strict=True))
    fields: dict[str, list[Field]] = {fact[1]: [] for fact in claims}
    for fact in loose:
        _, record, claimed, name, index, value = fact
        of_record = fields.get(record)
        if of_record is None:
            raise _malformed(f"a field of {record} comes without Advertised({record})")
        if claimed != source:
            raise _malformed(f"a claim names the source {claimed!r}, not the sender's {source!r}")
        if name not in schema:
            raise _malformed(f"the field {name!r} was not negotiated")
        of_record.append((name, index, value))
    return {
        record: Advertisement(record, _in_order(record, found)) for record, found in fields.items()
    }


def check_repeated(
    claims: Mapping[str, Advertisement], before: Mapping[str, Advertisement]
) -> None:
    """See that what was listed before in a loop is claimed again as it was: it is frozen.

    Of nested lists one counts for the root, and rules would see the other.
    """
    for record in sorted(claims.keys() & before.keys()):
        if claims[record] != before[record]:
            raise InterlaceFailure(
                Failure.ROOT_MISMATCH, f"the peer lists {record} twice, with other claims"
            )


def _in_order(record: str, found: list[Field]) -> tuple[Field, ...]:
    """Return fields in canonical order, each place once."""
    if len(found) < 2:
        return tuple(found)
    distinct = sorted(set(found), key=lambda field: (field[0].encode("utf-8"), int(field[1])))
    for before, after in pairwise(distinct):
        if before[0] == after[0] and int(before[1]) == int(after[1]):
            raise _malformed(f"the field {after[0]!r} of {record} has two values at {after[1]}")
    return tuple(distinct)


def advertisement_facts(advertisements: Iterable[Advertisement], source: str) -> list[Fact]:
    """Return the facts of advertisement records, in canonical order."""
    claims = list(advertisements)
    if not any(map(itemgetter(1), claims)):
        return list(zip(repeat("Advertised"), map(itemgetter(0), claims), repeat(source)))
    made: list[Fact] = []
    for each in claims:
        if each.fields:
            made += each.facts(source)
        else:
            made.append(("Advertised", each.record, source))
    return made
