"""Texts and their numbers: every value is one int32 from here on.

A `Dictionary` is what one evaluation, or one session, knows of texts. It may stand on a
dictionary that is stored beside the records; new texts get the numbers behind it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import compress, islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.base.digest import digest
from lace.errors import LimitExceeded
from lace.record.hash_rows import keys_of_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Dictionary", "Fingerprints", "Ids", "MAX_TEXTS", "StoredTexts", "fingerprints_of"]

Ids: TypeAlias = npt.NDArray[np.int32]
Fingerprints: TypeAlias = npt.NDArray[np.uint64]
_MAX_ABSENT: Final = 100_000
MAX_TEXTS: Final = 2**31 - 2
"""Numbers are int32."""


class StoredTexts(Protocol):
    """A dictionary that others keep, and that does not change."""

    def __len__(self) -> int:
        """Return how many texts it has; their numbers are below."""
        ...

    def find(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that it does not have."""
        ...

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers."""
        ...

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return what `fingerprints_of` gives for the texts of numbers."""
        ...


def fingerprints_of(texts: Sequence[str]) -> Fingerprints:
    """Return 64 bits that each text decides: of a record's hash those it begins with."""
    made = np.empty(len(texts), np.uint64)
    rows, is_hash = keys_of_hashes(texts)
    made[is_hash] = rows[:, 1:9].copy().view(">u8")[:, 0]
    for at in np.flatnonzero(~is_hash).tolist():
        raw = digest(texts[at].encode("utf-8", "surrogatepass"))
        made[at] = int.from_bytes(raw[:8])
    return made


_MOST_AT_HAND: Final = 4096
"""Stored texts of one question whose numbers are kept for the next."""


class Dictionary:
    """Texts by number and numbers by text."""

    def __init__(self, stored: StoredTexts | None = None) -> None:
        self._stored = stored
        self._base = len(stored) if stored is not None else 0
        self._new: list[str] = []
        self._ids: dict[str, int] = {}
        self._absent: set[str] = set()  # texts that were looked for and are not stored
        if stored is None:  # then a text that is missing gets its number while it is looked up
            numbering: defaultdict[str, int] = defaultdict(int)
            numbering.default_factory = numbering.__len__
            self._ids = numbering

    def __len__(self) -> int:
        return self._base + len(self._new)

    def find(self, text: str) -> int:
        """Return the number of a text, -1 when it has none."""
        found = self._ids.get(text, -1)
        if found < 0 and self._stored is not None:
            found = int(self._stored.find([text])[0])
            if found >= 0:
                self._ids[text] = found
        return found

    def find_all(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that has none."""
        found = np.array([self._ids.get(text, -1) for text in texts], np.int32)
        missing = np.flatnonzero(found < 0)
        if len(missing) and self._stored is not None:
            asked = [texts[at] for at in missing.tolist()]
            found[missing] = self._stored.find(asked)
            if len(self._absent) > _MAX_ABSENT:
                self._absent.clear()
            self._absent.update(compress(asked, found[missing] < 0))
        return found

    def intern(self, text: str) -> int:
        """Return the number of a text; it gets one now if it had none."""
        found = self.find(text)
        return found if found >= 0 else self._add(text)

    def intern_all(self, values: Sequence[str]) -> Ids:
        """Return the numbers of many texts, repeated ones too."""
        ids = self._ids
        if self._stored is not None:
            found = self._number(dict.fromkeys([text for text in values if text not in ids]))
            if found:  # many that are stored: held for this call only
                made = np.array([ids.get(text, -1) for text in values], np.int32)
                missing = np.flatnonzero(made < 0).tolist()
                made[missing] = [found[values[at]] for at in missing]
                return self._within_limit(made)
        made = np.fromiter(map(ids.__getitem__, values), np.int32, len(values))
        if self._stored is None:
            self._new += islice(ids, len(self._new), None)
        return self._within_limit(made)

    def _within_limit(self, made: Ids) -> Ids:
        if len(self) > MAX_TEXTS:
            raise LimitExceeded(
                "there are more different values than the engine can number",
                limit="max_base_facts",
                allowed=MAX_TEXTS,
                observed=len(self),
            )
        return made

    def _number(self, missing: Iterable[str]) -> dict[str, int]:
        """Give numbers to texts that have none here: the stored ones, or new ones.

        Returns:
            The numbers of stored ones that are too many to be kept at hand.
        """
        texts = list(missing)
        if not texts or self._stored is None:
            return {}
        found = np.full(len(texts), -1, np.int32)
        asked = [at for at, text in enumerate(texts) if text not in self._absent]
        found[asked] = self._stored.find([texts[at] for at in asked])
        known = found >= 0
        new = list(compress(texts, ~known))
        self._ids.update(zip(new, range(len(self), len(self) + len(new)), strict=True))
        self._new += new
        numbers = zip(compress(texts, known), found[known].tolist(), strict=True)
        if len(texts) - len(new) > _MOST_AT_HAND:
            return dict(numbers)
        self._ids.update(numbers)
        return {}

    def added(self, since: int) -> list[str]:
        """Return the texts that are not stored, from a number on."""
        return self._new[since - self._base :]

    def forget(self, since: int) -> None:
        """Take back the numbers of texts that are not stored, from one on; nobody may use them."""
        for text in self.added(since):
            del self._ids[text]
        del self._new[since - self._base :]

    def _add(self, text: str) -> int:
        return int(self.intern_all([text])[0])

    def text(self, number: int) -> str:
        """Return the text of a number."""
        return self.texts(np.array([number], np.int32))[0]

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers, in their order."""
        if self._stored is None:
            return list(map(self._new.__getitem__, ids.tolist()))
        stored = ids < self._base
        if stored.all():
            return self._stored.texts(ids)
        made = iter(self._stored.texts(ids[stored]))
        new, base = self._new, self._base
        return [
            next(made) if is_stored else new[number - base]
            for number, is_stored in zip(ids.tolist(), stored.tolist(), strict=True)
        ]

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return for each number 64 bits that its text alone decides; two may be the same."""
        made = np.empty(len(ids), np.uint64)
        stored = ids < self._base
        if self._stored is not None and stored.any():
            made[stored] = self._stored.fingerprints(ids[stored])
        if not stored.all():
            made[~stored] = fingerprints_of(self.texts(ids[~stored]))
        return made

    def rows(self, columns: Iterable[Ids], count: int) -> list[tuple[str, ...]]:
        """Return rows of numbers as rows of text."""
        texts = [self.texts(column) for column in columns]
        return list(zip(*texts, strict=True)) if texts else [()] * count
