"""Where the texts of numbers come from: a table, with the texts that only rules have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql import functions as F

from lace.base.limits import SPARK_BROADCAST_ROWS
from lace.engines.spark.transfer import frame_of, text_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lace.engines.spark.transfer import Numbers
    from lace.engines.spark.world import Texts

__all__ = ["ExtendedTexts", "TableTexts"]

_MOST_LISTED: Final = 1000
"""Texts that are looked for one by one, without a join."""


class TableTexts:
    """A table of texts, `id` and `text`; every text stands in it once.

    Args:
        session: the Spark session.
        table: the texts.
        next_number: a number from which on no text has one, if it is known.
        broadcast_rows: rows of a table that are sent to every executor for a join.
    """

    def __init__(
        self,
        session: SparkSession,
        table: DataFrame,
        next_number: int | None = None,
        *,
        broadcast_rows: int = SPARK_BROADCAST_ROWS,
    ) -> None:
        self._broadcast_rows = broadcast_rows
        self._session = session
        self._table = table.select("id", "text")
        self._next = next_number

    def frame(self) -> DataFrame:
        """Return the table."""
        return self._table

    def find(self, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of those texts that have one."""
        if not texts:
            return {}
        if len(texts) <= _MOST_LISTED:
            found = self._table.where(F.col("text").isin(list(texts))).toArrow()
        else:
            asked = text_frame(self._session, np.arange(len(texts)), texts).select("text")
            asked = self._sent(asked, len(texts))
            found = self._table.join(asked, ["text"], "left_semi").toArrow()
        return dict(zip(found["text"].to_pylist(), found["id"].to_pylist(), strict=True))

    def _sent(self, frame: DataFrame, rows: int) -> DataFrame:
        """Return a table to join with; a small one is sent to every executor."""
        return F.broadcast(frame) if rows <= self._broadcast_rows else frame

    def next_number(self) -> int:
        """Return a number from which on no text has one."""
        if self._next is None:
            (found,) = self._table.agg(F.max("id").alias("most")).collect()
            self._next = 0 if found["most"] is None else found["most"] + 1
        return self._next

    def of(self, numbers: Numbers) -> list[str]:
        """Return the texts of numbers, in their order."""
        asked = np.unique(numbers)
        wanted = frame_of(self._session, [asked], len(asked)).select(F.col("c0").alias("id"))
        wanted = self._sent(wanted, len(asked))
        table = self._table.join(wanted, ["id"], "inner").toArrow()
        ids = table.column("id").to_numpy()
        order = np.argsort(ids)
        texts = table.column("text").to_pylist()
        at = order[np.searchsorted(ids, numbers, sorter=order)]
        return [texts[position] for position in at.tolist()]


class ExtendedTexts:
    """Texts with those that only the rules of one evaluation have; these get numbers behind."""

    def __init__(self, session: SparkSession, base: Texts, constants: Sequence[str]) -> None:
        self._session = session
        self._base = base
        found = dict(base.find(constants))
        missing = [text for text in dict.fromkeys(constants) if text not in found]
        first = base.next_number() if missing else 0
        self._own = {text: first + at for at, text in enumerate(missing)}
        self.constants: Mapping[str, int] = found | self._own
        self._first = first if missing else None
        self._frame: DataFrame | None = None

    @property
    def added(self) -> Mapping[str, int]:
        """All texts that rules brought, with their numbers."""
        before = self._base.added if isinstance(self._base, ExtendedTexts) else {}
        return {**before, **self._own}

    def frame(self) -> DataFrame:
        """Return the table of all of them."""
        if self._frame is None:
            self._frame = self._base.frame()
            if self._own:
                numbers = np.fromiter(self._own.values(), np.int64, len(self._own))
                more = text_frame(self._session, numbers, list(self._own))
                self._frame = self._frame.unionAll(more.select("id", "text"))
        return self._frame

    def of(self, numbers: Numbers) -> list[str]:
        """Return the texts of numbers, in their order."""
        if self._first is None:
            return self._base.of(numbers)
        is_base = numbers < self._first
        base = iter(self._base.of(numbers[is_base]) if is_base.any() else [])
        added = list(self._own)
        return [
            next(base) if known else added[value - self._first]
            for known, value in zip(is_base.tolist(), numbers.tolist(), strict=True)
        ]

    def find(self, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of those texts that have one."""
        own = {text: self._own[text] for text in texts if text in self._own}
        return own | dict(self._base.find([text for text in texts if text not in own]))

    def next_number(self) -> int:
        """Return a number from which on no text has one."""
        return self._base.next_number() + len(self._own)
