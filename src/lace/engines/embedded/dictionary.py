"""Texts and their numbers: every value is one int32 from here on.

A `Dictionary` is what one evaluation, or one session, knows of texts. It may stand on a
dictionary that is stored beside the records; new texts get the numbers behind it.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import compress, count, islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from lace.base.digest import digest
from lace.engines.embedded.hash_block import HashBlock, distinct_hashes
from lace.engines.embedded.segment_journal import SegmentDamagedError
from lace.errors import LimitExceeded
from lace.record.hash_rows import decode_hashes, keys_of_hashes
from lace.record.ids import HASH_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lace.record.hash_rows import Octets

__all__ = [
    "MAX_TEXTS",
    "Dictionary",
    "Fingerprints",
    "Ids",
    "StoredTexts",
    "Texts",
    "fingerprints_of",
]

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

    def find_hashes(self, rows: Octets) -> Ids:
        """Return the numbers of record hashes, in rows as `encode_hashes` gives them."""
        ...

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers."""
        ...

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return what `fingerprints_of` gives for the texts of numbers."""
        ...


class Texts(Protocol):
    """Texts by number and numbers by text, as an evaluation uses them."""

    def __len__(self) -> int:
        """Return what all numbers are below."""
        ...

    def find(self, text: str) -> int:
        """Return the number of a text, -1 when it has none."""
        ...

    def find_all(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that has none."""
        ...

    def intern(self, text: str) -> int:
        """Return the number of a text; it gets one now if it had none."""
        ...

    def intern_all(self, values: Sequence[str]) -> Ids:
        """Return the numbers of many texts, repeated ones too."""
        ...

    def unchecked(self, since: int) -> list[str]:
        """Return texts that got numbers from one on and that nobody has checked."""
        ...

    def forget(self, since: int) -> None:
        """Take back the numbers of texts, from one on; nobody may use them."""
        ...

    def text(self, number: int) -> str:
        """Return the text of a number."""
        ...

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers, in their order."""
        ...

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return for each number 64 bits that its text alone decides; two may be the same."""
        ...

    def rows(self, columns: Iterable[Ids], count: int) -> list[tuple[str, ...]]:
        """Return rows of numbers as rows of text."""
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
_MANY: Final = 4096
"""Record hashes, new in one question, from which on they are held as a block."""
_LOOKED_AT: Final = 16
"""Values of a question that tell whether it may be worth looking for record hashes."""


class Dictionary:
    """Texts by number and numbers by text.

    A text is stored, or it is in a block of record hashes, or it is kept as it is.
    """

    def __init__(self, stored: StoredTexts | None = None) -> None:
        self._stored = stored
        self._base = self._next = len(stored) if stored is not None else 0
        self._kept: list[str] = []
        self._ids: dict[str, int] = {} if stored is not None else defaultdict(int)
        self._blocks: list[HashBlock] = []
        self._absent: set[str] = set()  # texts that were looked for and are not stored
        self._go_on_at(self._next)

    def __len__(self) -> int:
        return self._next

    def _go_on_at(self, number: int) -> None:
        """Set the next number; without stored texts a missing one gets it while looked up."""
        self._next = number
        if isinstance(self._ids, defaultdict):
            self._ids.default_factory = count(number).__next__

    # -- from texts to numbers -----------------------------------------------------------------

    def find(self, text: str) -> int:
        """Return the number of a text, -1 when it has none."""
        found = self._ids.get(text, -1)
        if found < 0 and (self._blocks or self._stored is not None):
            found = int(self.find_all([text])[0])
            if 0 <= found < self._base:
                self._ids[text] = found
        return found

    def find_all(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that has none."""
        found = self._at_hand(texts)
        missing = np.flatnonzero(found < 0)
        if len(missing) and self._blocks:
            rows, is_hash = keys_of_hashes([texts[at] for at in missing.tolist()])
            found[missing[is_hash]] = self._find_in_blocks(rows)
            missing = np.flatnonzero(found < 0)
        if len(missing) and self._stored is not None:
            asked = [texts[at] for at in missing.tolist()]
            found[missing] = self._stored.find(asked)
            if len(self._absent) > _MAX_ABSENT:
                self._absent.clear()
            self._absent.update(compress(asked, found[missing] < 0))
        return found

    def _at_hand(self, texts: Sequence[str]) -> Ids:
        get = self._ids.get
        return np.array([get(text, -1) for text in texts], np.int32)

    def _find_in_blocks(self, rows: Octets) -> Ids:
        found = np.full(len(rows), -1, np.int32)
        for block in self._blocks:
            left = np.flatnonzero(found < 0)
            found[left] = block.find(rows[left])
        return found

    def intern(self, text: str) -> int:
        """Return the number of a text; it gets one now if it had none."""
        found = self._ids.get(text, -1)
        return found if found >= 0 else int(self.intern_all([text])[0])

    def intern_all(self, values: Sequence[str]) -> Ids:
        """Return the numbers of many texts, repeated ones too."""
        if self._blocks or (len(values) >= _MANY and _may_have_hashes(values)):
            made = self._intern_apart(values)
        else:
            made = self._intern_plain(values)
        if len(self) > MAX_TEXTS:
            raise LimitExceeded(
                "there are more different values than the engine can number",
                limit="max_base_facts",
                allowed=MAX_TEXTS,
                observed=len(self),
            )
        return made

    def _intern_apart(self, values: Sequence[str]) -> Ids:
        """Return the numbers of texts; record hashes are found, or put, into blocks."""
        made = self._at_hand(values)
        missing = np.flatnonzero(made < 0)
        if not len(missing):
            return made
        texts = values if len(missing) == len(values) else [values[at] for at in missing.tolist()]
        rows, is_hash = keys_of_hashes(texts)
        if not is_hash.all():
            made[missing[~is_hash]] = self._intern_plain(list(compress(texts, ~is_hash)))
        if len(rows):
            made[missing[is_hash]] = self._intern_hashes(rows)
        return made

    def _intern_hashes(self, rows: Octets) -> Ids:
        first, whose = distinct_hashes(rows)
        rows = rows[first]
        found = self._find_in_blocks(rows)
        left = np.flatnonzero(found < 0)
        if len(left) and self._stored is not None:
            found[left] = self._stored.find_hashes(rows[left])
            left = np.flatnonzero(found < 0)
        found[left] = np.arange(self._next, self._next + len(left), dtype=np.int32)
        if len(left) >= _MANY:
            self._blocks.append(HashBlock(self._next, rows[left]))
            self._go_on_at(self._next + len(left))
        elif len(left):
            self._keep(decode_hashes(rows[left]))
        return found[whose]

    def _keep(self, texts: Sequence[str]) -> None:
        """Give the next numbers to texts that have none."""
        first, behind = self._next, self._next + len(texts)
        self._ids.update(zip(texts, range(first, behind), strict=True))
        self._kept += texts
        self._go_on_at(behind)

    def _intern_plain(self, values: Sequence[str]) -> Ids:
        """Return the numbers of texts that are in no block."""
        ids = self._ids
        if self._stored is not None:
            found = self._number(dict.fromkeys([text for text in values if text not in ids]))
            if found:  # many that are stored: held for this call only
                made = self._at_hand(values)
                missing = np.flatnonzero(made < 0).tolist()
                made[missing] = [found[values[at]] for at in missing]
                return made
            return np.fromiter(map(ids.__getitem__, values), np.int32, len(values))
        try:
            return np.fromiter(map(ids.__getitem__, values), np.int32, len(values))
        finally:  # whatever has got a number is kept, also when a value is no text at all
            before = len(self._kept)
            self._kept += islice(ids, before, None)
            self._go_on_at(self._next + len(self._kept) - before)

    def _number(self, missing: Iterable[str]) -> dict[str, int]:
        """Give numbers to texts that have none here: the stored ones, or new ones.

        Returns:
            The numbers of stored ones that are too many to be kept in memory.
        """
        texts = list(missing)
        if not texts or self._stored is None:
            return {}
        found = np.full(len(texts), -1, np.int32)
        asked = [at for at, text in enumerate(texts) if text not in self._absent]
        found[asked] = self._stored.find([texts[at] for at in asked])
        known = found >= 0
        self._keep(list(compress(texts, ~known)))
        numbers = zip(compress(texts, known), found[known].tolist(), strict=True)
        if int(known.sum()) > _MOST_AT_HAND:
            return dict(numbers)
        self._ids.update(numbers)
        return {}

    def unchecked(self, since: int) -> list[str]:
        """Return the texts that got numbers from one on; of a block, one that is like all."""
        blocks = [block for block in self._blocks if block.first >= since]
        some = [block.texts(np.array([block.first], np.int32))[0] for block in blocks]
        return [*some, *self._kept[self._place_of(since) :]]

    def forget(self, since: int) -> None:
        """Take back the numbers of texts that are not stored, from one on; nobody may use them."""
        place = self._place_of(since)
        for text in self._kept[place:]:
            del self._ids[text]
        del self._kept[place:]
        self._blocks = [block for block in self._blocks if block.first < since]
        self._go_on_at(since)

    def _place_of(self, number: int) -> int:
        """Return where the text of a number, or the next one kept, is among those kept."""
        return number - self._base - sum(len(each) for each in self._blocks if each.first < number)

    # -- from numbers to texts -----------------------------------------------------------------

    def text(self, number: int) -> str:
        """Return the text of a number."""
        return self.texts(np.array([number], np.int32))[0]

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers, in their order.

        Raises:
            SegmentDamagedError: a number that no text has, beside stored texts.
        """
        if self._stored is None and not self._blocks:
            return list(map(self._kept.__getitem__, ids.tolist()))
        made: list[str] = [""] * len(ids)
        for chosen, texts in self._parts(ids):
            if len(chosen) == len(ids):
                return texts()
            for place, text in zip(chosen.tolist(), texts(), strict=True):
                made[place] = text
        return made

    def _parts(self, ids: Ids) -> Iterator[tuple[npt.NDArray[np.intp], Callable[[], list[str]]]]:
        """Yield which of some numbers belong together, and what gives their texts."""
        if self._stored is not None:
            chosen = np.flatnonzero(ids < self._base)
            if len(chosen):
                yield chosen, partial(self._stored.texts, ids[chosen])
        is_kept = ids >= self._base
        shift = np.zeros(len(ids), np.int32)
        for block in self._blocks:
            is_inside = (ids >= block.first) & (ids < block.stop)
            is_kept &= ~is_inside
            shift[ids >= block.stop] += len(block)
            chosen = np.flatnonzero(is_inside)
            if len(chosen):
                yield chosen, partial(block.texts, ids[chosen])
        chosen = np.flatnonzero(is_kept)
        if len(chosen):
            places = ids[chosen] - shift[chosen] - self._base
            if self._stored is not None and int(places.max()) >= len(self._kept):
                raise SegmentDamagedError("the segments name a text that they do not have")
            yield chosen, lambda: [self._kept[place] for place in places.tolist()]

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return for each number 64 bits that its text alone decides; two may be the same."""
        made = np.empty(len(ids), np.uint64)
        is_other = ids >= self._base
        if self._stored is not None and not is_other.all():
            made[~is_other] = self._stored.fingerprints(ids[~is_other])
        for block in self._blocks:
            is_inside = (ids >= block.first) & (ids < block.stop)
            made[is_inside] = block.fingerprints(ids[is_inside])
            is_other &= ~is_inside
        if is_other.any():
            made[is_other] = fingerprints_of(self.texts(ids[is_other]))
        return made

    def rows(self, columns: Iterable[Ids], count: int) -> list[tuple[str, ...]]:
        """Return rows of numbers as rows of text."""
        texts = [self.texts(column) for column in columns]
        return list(zip(*texts, strict=True)) if texts else [()] * count


def _may_have_hashes(values: Sequence[str]) -> bool:
    """Tell whether a few values among many are as long as record hashes are."""
    some = values[:: max(1, len(values) // _LOOKED_AT)]
    return any(len(value) == HASH_TEXT_BYTES for value in [*values[:_LOOKED_AT], *some])
