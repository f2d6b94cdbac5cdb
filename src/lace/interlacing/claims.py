"""Claims as they arrive: the advertisement records of a block, each checked and whole (050).

Lines may come in any order; another source, a field without its `Advertised`, a name
outside the schema or one index with two values makes the whole block malformed (G42).
"""

from __future__ import annotations

from itertools import pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

from lace.interlacing.advertisement import Advertisement, bare_advertisements
from lace.interlacing.failures import Failure, InterlaceFailure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Field
    from lace.interlacing.capabilities import Schema

__all__ = ["advertisement_facts", "check_repeated", "read_claims"]


def _malformed(message: str) -> InterlaceFailure:
    return InterlaceFailure(Failure.MALFORMED_BLOCK, message, rule="G42")


def read_claims(facts: Collection[Fact], source: str, schema: Schema) -> dict[str, Advertisement]:
    """Return the advertisement records among the facts of a block, by record.

    Facts of other predicates are passed over.

    Raises:
        InterlaceFailure: they are not whole, or not of this source and schema.
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

    Of lists that lie in each other one counts for the root, and rules would see the other.

    Raises:
        InterlaceFailure: a record has another claim now.
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
