"""Records that were stored or read a moment ago: a follower of a store need not read them.

A record is known by its key, which its bytes decide. So what is remembered stays right
whatever happens to the store; which records there are, only a snapshot says. All who have
the same lace open in one process remember together, as the links of a server do. A peer sees
nothing of that but time: it hears of a record when its own view has it, remembered or not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from lace.record.writer import MARKER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lace.record.validate import ValidRecord

__all__ = ["MOST_BYTES", "MOST_RECORDS", "RecentRecords", "key_of_record", "recent_of"]

MOST_RECORDS: Final = 4096
"""Records that are remembered at most."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Their bytes, all together, at most."""
_TYPE_AT: Final = slice(len(MARKER), len(MARKER) + 1)


def key_of_record(record: ValidRecord) -> bytes:
    """Return the database key of a record: its type letter and its digest."""
    return record.bytes[_TYPE_AT] + record.digest


class RecentRecords:
    """A few records by their keys; those that came first are forgotten first.

    Any thread may ask and tell it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._records: OrderedDict[bytes, ValidRecord] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def remember(self, records: Sequence[ValidRecord]) -> None:
        """Remember records, as many of the last ones as there is room for."""
        with self._guard:
            for record in records[-MOST_RECORDS:]:
                key = key_of_record(record)
                if key not in self._records:
                    self._bytes += len(record.bytes)
                self._records[key] = record
                self._records.move_to_end(key)
            while len(self._records) > MOST_RECORDS or self._bytes > MOST_BYTES:
                _key, oldest = self._records.popitem(last=False)
                self._bytes -= len(oldest.bytes)

    def find_all(self, keys: Sequence[bytes]) -> list[ValidRecord] | None:
        """Return the records of some keys in their order; None unless all are remembered."""
        with self._guard:
            if len(keys) > len(self._records):
                return None
            found = [record for key in keys if (record := self._records.get(key)) is not None]
        return found if len(found) == len(keys) else None


_guard = threading.Lock()
_by_database: WeakValueDictionary[Path, RecentRecords] = WeakValueDictionary()


def recent_of(database: Path) -> RecentRecords:
    """Return what this process remembers of a database, as long as somebody has it open."""
    with _guard:
        return _by_database.setdefault(database.absolute(), RecentRecords())
