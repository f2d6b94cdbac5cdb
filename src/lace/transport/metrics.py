"""A page of figures for a collector on this machine: `GET /metrics` over HTTP, and nothing else.

It listens on 127.0.0.1 alone. Any client is taken for hostile: a request has few bytes and
little time, there are few connections at once, and one answer ends each. A web page in a browser
cannot read it under a name of its own: Host has to be this machine.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lace.iltp.address import LinkAddress
from lace.transport.faults import listen_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


SCRAPE_PATH: Final = "/metrics"
MAX_SCRAPE_BYTES: Final = 8 * 1024
"""Bytes of a request, to the end of its headers."""
MAX_SCRAPE_CONNECTIONS: Final = 8
"""Connections at once; one more is closed without a word."""
SCRAPE_SECONDS: Final = 5.0
"""How long a request and its answer may take."""

_LOOPBACK: Final = "127.0.0.1"
_REQUEST: Final = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,4096}) HTTP/1\.[01]\r\n")
_HOST: Final = re.compile(rb"(?im)^host:[ \t]*(.*?)[ \t]*\r$")
_HERE: Final = re.compile(rb"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")


class _Scraped:
    """Answers connections."""

    def __init__(self, page: Callable[[], str]) -> None:
        self._page = page
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run one connection."""
        task = asyncio.current_task()
        if task is None or len(self._tasks) >= MAX_SCRAPE_CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            async with asyncio.timeout(SCRAPE_SECONDS):
                writer.write(await self._answer(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # it has left, or is too slow
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        found = _REQUEST.match(head)
        if found is None:
            return _refusal(HTTPStatus.BAD_REQUEST)
        hosts = _HOST.findall(head)
        if len(hosts) > 1 or not all(map(_HERE.fullmatch, hosts)):
            return _refusal(HTTPStatus.FORBIDDEN)
        if found[2].partition(b"?")[0] != SCRAPE_PATH.encode():
            return _refusal(HTTPStatus.NOT_FOUND)
        if found[1] != b"GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET\r\n")
        return _response(HTTPStatus.OK, self._page(), "version=0.0.4; ")

    async def close(self) -> None:
        """End the connections that there are."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def _refusal(status: HTTPStatus, header: str = "") -> bytes:
    return _response(status, f"{status.phrase}\n", header=header)


def _response(status: HTTPStatus, text: str, version: str = "", header: str = "") -> bytes:
    body = text.encode("utf-8")
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: text/plain; {version}charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n{header}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


@asynccontextmanager
async def scraping(port: int, page: Callable[[], str]) -> AsyncIterator[int]:
    """Answer `GET /metrics` on a port of 127.0.0.1, until the end of the block.

    Yields:
        The port.
    """
    scraped = _Scraped(page)
    try:
        server = await asyncio.start_server(
            scraped.serve, _LOOPBACK, port, limit=MAX_SCRAPE_BYTES, backlog=MAX_SCRAPE_CONNECTIONS
        )
    except OSError as error:
        place = LinkAddress(scheme="tcp", host=_LOOPBACK, port=port)
        raise listen_error(place, error) from error
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await scraped.close()
