"""Texts of a dictionary of others, under numbers of one's own.

Numbers are given as texts come up here, so they tell nothing of what the others have
besides. A text takes eight bytes: it is held as its number there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lace.engines.embedded.load import check_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lace.engines.embedded.dictionary import Fingerprints, Ids, Texts

__all__ = ["ReferredTexts"]

_SMALL_SHARE: Final = 64
"""Numbers that are fewer than one in this many are sorted, not looked up in a table."""


class ReferredTexts:
    """Some texts of a dictionary, numbered again.

    Args:
        outer: that dictionary; texts that come up here first are added to it.
        ids: the numbers of the first texts there, each once.
        max_value_bytes: how long a text that is new may be.
    """

    def __init__(self, outer: Texts, ids: Ids, max_value_bytes: int) -> None:
        self.outer = outer
        self._max_value_bytes = max_value_bytes
        self._link(ids)

    def _link(self, ids: Ids) -> None:
        self._count = len(ids)
        self._ids = ids
        self._numbers = np.full(len(self.outer), -1, np.int32)
        self._numbers[ids] = np.arange(len(ids), dtype=np.int32)

    def take_outer(self, outer: Texts) -> None:
        """Refer to another dictionary; the numbers here stay."""
        if outer is not self.outer:
            ids = outer.intern_all(self.outer.texts(self.ids))
            self.outer = outer
            self._link(ids)

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> Ids:
        """The number that each text has in the other dictionary."""
        return self._ids[: self._count]

    def adopt(self, ids: Ids) -> Ids:
        """Return the numbers of texts that are named by their numbers in the other dictionary.

        New ones are given in the order in which these come.
        """
        self._grow(len(self.outer))
        made = self._numbers[ids]
        is_new = made < 0
        if is_new.any():
            self._add(self._first_ones(ids[is_new]))
            made = self._numbers[ids]
        return made

    def _first_ones(self, ids: Ids) -> Ids:
        """Return numbers, each once, in the order in which they come up."""
        if len(ids) * _SMALL_SHARE < len(self._numbers):
            _, first = np.unique(ids, return_index=True)
            first.sort()
            return ids[first]
        place = np.empty(len(self._numbers), np.int32)
        at = np.arange(len(ids), dtype=np.int32)
        place[ids[::-1]] = at[::-1]  # of equal ones the first is written last
        first_ones: Ids = ids[place[ids] == at]
        return first_ones

    def _grow(self, size: int) -> None:
        if size > len(self._numbers):
            more = np.full(max(size, len(self._numbers) * 5 // 4), -1, np.int32)
            more[: len(self._numbers)] = self._numbers
            self._numbers = more

    def _add(self, fresh: Ids) -> None:
        behind = self._count + len(fresh)
        if behind > len(self._ids):
            more = np.empty(max(behind, len(self._ids) * 5 // 4), np.int32)
            more[: self._count] = self.ids
            self._ids = more
        self._ids[self._count : behind] = fresh
        self._numbers[fresh] = np.arange(self._count, behind, dtype=np.int32)
        self._count = behind

    def find(self, text: str) -> int:
        """Return the number of a text, -1 when it has none here."""
        return int(self.find_all([text])[0])

    def find_all(self, texts: Sequence[str]) -> Ids:
        """Return the numbers of texts, -1 for one that has none here."""
        found = self.outer.find_all(texts)
        self._grow(len(self.outer))
        return np.where(found < 0, np.int32(-1), self._numbers[found])

    def intern(self, text: str) -> int:
        """Return the number of a text; it gets one now if it had none."""
        return int(self.intern_all([text])[0])

    def intern_all(self, values: Sequence[str]) -> Ids:
        """Return the numbers of texts; they get one now if they had none."""
        if values:
            check_values(values, self._max_value_bytes)
        return self.adopt(self.outer.intern_all(values))

    def unchecked(self, since: int) -> list[str]:
        """Return nothing: what is interned here is checked before."""
        del since
        return []

    def forget(self, since: int) -> None:
        """Take back numbers from one on; nobody may use them."""
        self._numbers[self.ids[since:]] = -1
        self._count = min(since, self._count)

    def text(self, number: int) -> str:
        """Return the text of a number."""
        return self.outer.text(int(self._ids[number]))

    def texts(self, ids: Ids) -> list[str]:
        """Return the texts of numbers, in their order."""
        return self.outer.texts(self._ids[ids])

    def fingerprints(self, ids: Ids) -> Fingerprints:
        """Return for each number 64 bits that its text alone decides."""
        return self.outer.fingerprints(self._ids[ids])

    def rows(self, columns: Iterable[Ids], count: int) -> list[tuple[str, ...]]:
        """Return rows of numbers as rows of text."""
        return self.outer.rows([self._ids[column] for column in columns], count)
