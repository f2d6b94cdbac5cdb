"""Texts that others keep, as those of segments are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lace.columns.dictionary import fingerprints_of
from lace.record.hash_rows import decode_hashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.columns.dictionary import Fingerprints, Ids
    from lace.record.hash_rows import Octets

__all__ = ["Stored"]


class Stored:
    """Some texts that others keep."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, texts: Sequence[str]) -> Ids:
        known = {text: number for number, text in enumerate(self._texts)}
        return np.array([known.get(text, -1) for text in texts], np.int32)

    def find_hashes(self, rows: Octets) -> Ids:
        return self.find(decode_hashes(rows))

    def texts(self, ids: Ids) -> list[str]:
        return [self._texts[number] for number in ids.tolist()]

    def fingerprints(self, ids: Ids) -> Fingerprints:
        return fingerprints_of(self.texts(ids))
