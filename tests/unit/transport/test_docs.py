"""The page on transports says what the code does, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lace.base.limits import DEFAULT_SETTINGS
from lace.trace.files import MAX_CAPTURE_LINE_BYTES
from lace.transport import connections as accepting
from lace.transport import duplex as stream
from lace.transport import websocket as guard
from lace.transport.connections import MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ADDRESS, REFUSAL_SECONDS
from lace.transport.duplex import CloseReason
from lace.transport.identity_maps import MAX_MAP_BYTES, parse_uid_map
from lace.transport.metrics import MAX_SCRAPE_BYTES, MAX_SCRAPE_CONNECTIONS, SCRAPE_SECONDS
from lace.transport.websocket import MAX_EMPTY_FRAMES, TEXT_CODE
from tests.unit.transport.bindings import run

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "transports.md").read_text("utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def test_the_example_runs() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)  # noqa: S102
    run(names["echo"]())


def test_the_map_is_one() -> None:
    assert set(parse_uid_map(block("").encode(), "page")) == {1000, 1001}


@pytest.mark.parametrize(
    "row",
    [
        f"stops receiving | {stream.READ_HIGH_WATER >> 10} KiB; with what is read at once, "
        f"{stream.MAX_UNREAD_BYTES >> 10} KiB",
        f"a writer waits | {stream.WRITE_HIGH_WATER >> 10} KiB, and a piece of "
        f"{stream.PIECE_BYTES >> 10} KiB more",
        f"frame that is taken | {guard.MAX_FRAME_BYTES >> 20} MiB;",
        f"frames at which a stream stops receiving | {guard.MAX_UNREAD_FRAMES} |",
        f"frame that is sent | {stream.PIECE_BYTES >> 10} KiB |",
        f"without reading them | {guard.MAX_UNSENT_BYTES >> 20} MiB",
        f"opening a connection | {stream.OPEN_SECONDS:g} s |",
        f"closing one | {stream.CLOSE_SECONDS:g} s |",
        f"connections of a server | {MAX_CONNECTIONS} (`max_links`) |",
        f"one address or user | {MAX_CONNECTIONS_OF_ADDRESS} (`max_links_of_address`);",
        f"an exchange is idle | {DEFAULT_SETTINGS.idle_link_seconds} s (`idle_link_seconds`) |",
        f"before that | {accepting.HANDSHAKE_IDLE_SECONDS:g} s, or "
        f"{accepting.HANDSHAKE_SECONDS:g} s in all |",
        f"a `--peer` verifier | {accepting.MAX_PROVING}, and {accepting.MAX_PROVING_OF_ADDRESS} ",
        f"the server is full | {REFUSAL_SECONDS:g} s, for {accepting.MAX_REFUSALS} at once |",
        f"A line of a capture has at most {MAX_CAPTURE_LINE_BYTES:,} bytes",
        f"request has at most {MAX_SCRAPE_BYTES >> 10} KiB and, with its answer, "
        f"{SCRAPE_SECONDS:g} s; there are at most {MAX_SCRAPE_CONNECTIONS} connections",
        f"more than {MAX_MAP_BYTES >> 20} MiB, is refused",
        f"a ping every {guard.PING_SECONDS:g} s",
        f"more than {MAX_EMPTY_FRAMES:,} frames without a byte",
        f"| {TEXT_CODE} | a text message |",
        f"| {CloseReason.DONE.value} | the stream is done |",
        f"| {CloseReason.LEAVING.value} | the server stops |",
        f"| {CloseReason.ABORT.value} | an abort (",
    ],
)
def test_the_limits(row: str) -> None:
    assert row in PAGE
