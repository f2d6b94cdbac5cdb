"""Records of other formats in an advertisement set: held apart from those that rows hold (G49).

They are few as a rule, but a peer may claim as many as its limits allow. So they are in the
order of the part of their hash that partitions go by, and a partition is found by bisection.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES
from lace.errors import RecordError
from lace.interlacing.rows import keys_of, payload_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Others", "read_others", "write_others"]

_OTHER: Final = re.compile(rf"[A-Z]\.[{b64a.ALPHABET}]+\.[0-9A-Za-z]+")
_LAST: Final = "\x7f"
"""A character after all those of a payload."""


class Others:
    """Records of other formats with the digests of their advertisements; a value."""

    __slots__ = ("_digests", "_payloads", "_records")

    def __init__(self, digests: Mapping[str, bytes] | None = None) -> None:
        ordered = sorted((payload_of(record), record) for record in digests or ())
        self._payloads = [payload for payload, _record in ordered]
        self._records = [record for _payload, record in ordered]
        self._digests = {record: (digests or {})[record] for _payload, record in ordered}

    def __len__(self) -> int:
        return len(self._digests)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Others) and self._digests == other._digests

    __hash__ = None  # type: ignore[assignment] # compared by content, and may be large

    def __contains__(self, record: object) -> bool:
        return record in self._digests

    @property
    def digests(self) -> Mapping[str, bytes]:
        """The digest of each record's advertisement, in the order of their places."""
        return self._digests

    def get(self, record: str) -> bytes | None:
        """Return the digest of a record's advertisement; None when it is not here."""
        return self._digests.get(record)

    def changed(self, come: Mapping[str, bytes], gone: Iterable[str]) -> Others:
        """Return the records after some came, or have another digest, and others went."""
        left = {record for record in gone if record in self._digests}
        if not come and not left:
            return self
        kept = {each: value for each, value in self._digests.items() if each not in left}
        return Others({**kept, **come})

    def _span(self, prefix: str) -> tuple[int, int]:
        """Return where the records of a partition begin, and where they end."""
        first = bisect_left(self._payloads, prefix)
        return first, bisect_left(self._payloads, prefix + _LAST, first)

    def count(self, prefix: str) -> int:
        """Return how many records are in a partition."""
        first, last = self._span(prefix)
        return last - first

    def within(self, prefix: str) -> list[str]:
        """Return the records of a partition, in order."""
        return self._records[slice(*self._span(prefix))]

    def prefixes(self, length: int) -> set[str]:
        """Return the prefixes of a length that have records; a shorter payload has none."""
        return {payload[:length] for payload in self._payloads if len(payload) >= length}


def write_others(others: Others) -> bytes:
    """Return records of other formats, with their digests, as bytes for `read_others`."""
    texts = {record: b64a.encode(digest) for record, digest in others.digests.items()}
    return json.dumps(texts).encode("ascii")


def read_others(raw: bytes) -> Others:
    """Return the records of other formats that bytes name, with their digests, in order.

    Raises:
        ValueError, TypeError: they are no such records.
    """
    try:
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise TypeError("records of other formats are a table")
        made = {record: b64a.decode(each) for record, each in found.items()}
    except (RecordError, RecursionError) as error:
        raise ValueError("no digests of records") from error
    if keys_of(list(made))[1].any():
        raise ValueError("a record of the usual format among others")
    for record, digest in made.items():
        if not _OTHER.fullmatch(record) or len(digest) != DIGEST_BYTES:
            raise ValueError("no digest of a record of another format")
    return Others(made)
