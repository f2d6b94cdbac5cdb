"""The full listing of mode 0: every advertisement in one block, each way (050, G42)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.interlacing.claims import advertisement_facts, read_claims
from lace.interlacing.failures import Failure, InterlaceFailure, limit_failure
from lace.interlacing.summaries import block_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.facts.lines import Fact
    from lace.interlacing.advertisement import Advertisement
    from lace.interlacing.capabilities import Schema
    from lace.interlacing.partitions import AdvertisementSet
    from lace.interlacing.questions import InquiryLimits

__all__ = ["make_listing", "read_listing"]


def make_listing(
    own: AdvertisementSet,
    described: Mapping[str, Advertisement],
    source: str,
    limits: InquiryLimits,
) -> list[Fact]:
    """Return the facts of all advertisements, ordered by record.

    Raises:
        InterlaceFailure: they are more than a listing or a block may hold.
    """
    if len(own) > limits.listed:
        raise _too_many(f"{len(own):,} records are to be advertised in one listing", limits)
    facts = advertisement_facts((described[record] for record in sorted(own.records())), source)
    if block_bytes(facts) > limits.listing_bytes:
        raise limit_failure(
            Failure.OVERSIZED_BLOCK,
            f"the listing has more than {limits.block_bytes:,} bytes",
            limit="max_fact_block_size",
            allowed=limits.block_bytes,
            agreed=True,
        )
    return facts


def read_listing(
    facts: Sequence[Fact], source: str, schema: Schema, limits: InquiryLimits
) -> dict[str, Advertisement]:
    """Return the advertisements of a listing, by record.

    Raises:
        InterlaceFailure: they are malformed, or more than a listing may hold.
    """
    found = read_claims(facts, source, schema)
    if len(found) > limits.listed:
        raise _too_many(f"the peer lists {len(found):,} advertisements", limits)
    return found


def _too_many(what: str, limits: InquiryLimits) -> InterlaceFailure:
    return limit_failure(
        Failure.LISTING_LIMIT,
        f"{what}, and the limit is {limits.listed:,}",
        limit="max_advertisement_records_listed",
        allowed=limits.listed,
        agreed=True,
    )
