"""Records of other formats in an advertisement set: few, if any, and held apart (050)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES
from lace.errors import RecordError
from lace.interlacing.rows import keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["in_order", "read_others", "write_others"]

_OTHER: Final = re.compile(rf"[A-Z]\.[{b64a.ALPHABET}]+\.[0-9A-Za-z]+")


def in_order(others: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return records of other formats by their bytes: no order of a run of the program shows."""
    return dict(sorted(others.items()))


def write_others(others: Mapping[str, bytes]) -> bytes:
    """Return records of other formats, with their digests, as bytes for `read_others`."""
    texts = {record: b64a.encode(digest) for record, digest in others.items()}
    return json.dumps(texts).encode("ascii")


def read_others(raw: bytes) -> dict[str, bytes]:
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
    return in_order(made)
