"""Asking the system whether the other end of a connection is closed.

A stream that holds much unread takes no more from the system, and so does not see the peer's
end. The system knows it all the same.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

__all__ = ["has_hung_up"]

# Not every system tells a peer that only ended its writing; then a reset is seen, and no more.
_EVENTS: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Tell whether the peer has ended its writing, or the connection is broken."""
    source = transport.get_extra_info("socket") or transport.get_extra_info("pipe")
    if source is None or source.fileno() < 0:
        return True
    asking = select.poll()
    asking.register(source.fileno(), _EVENTS)
    return any(events & _EVENTS for _, events in asking.poll(0))
