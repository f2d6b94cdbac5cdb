"""A long list of record hashes that takes half the memory of separate texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from lace.record.ids import HASH_TEXT_BYTES

__all__ = ["HashList"]


class HashList(Sequence[str]):
    """Record hashes in the order in which they were added.

    >>> made = HashList()
    >>> made.append("B.0000000000000000000000000000000000000000000.H3")
    >>> len(made), made[0][:5]
    (1, 'B.000')
    """

    __slots__ = ("_count", "_text")

    def __init__(self, records: Sequence[str] = ()) -> None:
        self._text = bytearray()
        self._count: int | None = None
        for record in records:
            self.append(record)

    def append(self, record: str) -> None:
        """Add one.

        Raises:
            ValueError: it does not have the length of a record hash, or this is as of a moment.
        """
        if len(record) != HASH_TEXT_BYTES or self._count is not None:
            raise ValueError(f"{record!r} is no record hash, or nothing can be added")
        self._text += record.encode("ascii")

    def as_of_now(self) -> HashList:
        """Return the list as it is at this moment; it takes no memory of its own."""
        made = HashList()
        made._text, made._count = self._text, len(self)
        return made

    def __len__(self) -> int:
        return len(self._text) // HASH_TEXT_BYTES if self._count is None else self._count

    def _at(self, place: int) -> str:
        start = place * HASH_TEXT_BYTES
        return self._text[start : start + HASH_TEXT_BYTES].decode("ascii")

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        """Return the hash at a place, or those of some places."""
        if isinstance(place, slice):
            return [self._at(each) for each in range(len(self))[place]]
        return self._at(range(len(self))[place])

    def __iter__(self) -> Iterator[str]:
        return map(self._at, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (HashList, tuple, list)):
            return len(self) == len(other) and all(map(str.__eq__, self, other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment] # it grows

    def __repr__(self) -> str:
        return f"<{len(self):,} record hashes>"
