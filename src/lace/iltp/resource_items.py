"""Resources in a stream: from the marker line to the blank line behind the last line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lace.iltp.items import Resource
from lace.iltp.resources import (
    MAX_MARKER_BYTES,
    MAX_RESOURCE_BYTES,
    ResourceError,
    parse_marker,
    too_large,
)

if TYPE_CHECKING:
    from lace.iltp.buffer import Buffer
    from lace.iltp.resources import ResourceStore

__all__ = ["ResourceAssembler"]


class ResourceAssembler:
    """Reads one resource after another out of a buffer, checks it and keeps it.

    Args:
        buffer: what the bytes come from, beginning with the marker of a resource.
        store: where resources are counted and kept.
    """

    def __init__(self, buffer: Buffer, store: ResourceStore) -> None:
        self._buffer = buffer
        self._store = store
        self._announced: tuple[int, str, str] | None = None  # offset, identifier and kind

    def read(self) -> Resource | None:
        """Return the resource, or None to ask for more.

        Raises:
            ResourceError: it is refused; `at` counts from the start of the buffer.
        """
        if self._announced is None:
            self._announced = self._read_marker_line()
        return self._announced and self._read_body(*self._announced)

    def _read_marker_line(self) -> tuple[int, str, str] | None:
        buffer = self._buffer
        length = buffer.line_length(MAX_MARKER_BYTES)
        if length is None:
            return None
        if length > MAX_MARKER_BYTES:
            raise ResourceError(
                f"a marker line has more than {MAX_MARKER_BYTES} bytes", rule="060-146"
            )
        self._store.begin()
        announced = (buffer.offset, *parse_marker(buffer.peek(length)))
        buffer.skip(length + 1)
        return announced

    def _read_body(self, offset: int, identifier: str, kind: str) -> Resource | None:
        buffer = self._buffer
        if buffer.peek(1) == b"\n":
            raise ResourceError("a resource without a line", rule="060-37")
        most = MAX_RESOURCE_BYTES + 2
        length = buffer.find(b"\n\n", 0, most)
        if length < 0:
            if len(buffer) >= most:
                raise too_large()
            return None
        body = self._store.add(identifier, kind, buffer.peek(length))
        buffer.skip(length + 2)
        self._announced = None
        return Resource(offset=offset, id=identifier, kind=kind, body=body)
