"""Waiting for the peer's bytes while records that came before them are validated."""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["comes_first"]

GATHER_SECONDS: Final = 0.05
"""How long records that are valid wait for others, which are stored with them."""


async def comes_first(reading: asyncio.Task[bytes], descriptor: int | None) -> bool:
    """Wait for bytes or for a validation; tells whether bytes came.

    With nothing that is being validated, bytes are waited for a moment: many records are
    stored together in less time than few and few.

    Args:
        reading: what reads the peer's bytes.
        descriptor: what can be read from when a validation is done; None without any.
    """
    if descriptor is None:
        await asyncio.wait([reading], timeout=GATHER_SECONDS)
        return reading.done()
    loop = asyncio.get_running_loop()
    validated: asyncio.Future[None] = loop.create_future()
    waited: list[asyncio.Future[Any]] = [reading, validated]
    loop.add_reader(descriptor, _settle, validated)
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(descriptor)
        validated.cancel()
    return reading.done()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
