"""Captures of exchanges: read item by item, and replayed byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lace.base.limits import DEFAULT_SETTINGS, Settings
from lace.exchange.hello import channel_digest
from lace.iltp.items import (
    Blank,
    Comment,
    Facts,
    Item,
    OversizedRecord,
    Preface,
    RecordHead,
    RecordItem,
    Resource,
)
from lace.trace.files import CaptureFile
from lace.trace.replay import WAY_NAMES, Replayed, replay
from lace.trace.walk import (
    PHASES,
    Broken,
    ConnectionEnd,
    Seen,
    Stage,
    TraceEvent,
    TraceStep,
    Unread,
    Wrong,
    walk,
)
from lace.transport.capture import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "PHASES",
    "WAY_NAMES",
    "Blank",
    "Broken",
    "Comment",
    "ConnectionEnd",
    "Direction",
    "Facts",
    "Item",
    "OversizedRecord",
    "Preface",
    "RecordHead",
    "RecordItem",
    "Replayed",
    "Resource",
    "Seen",
    "Stage",
    "TraceEvent",
    "TraceStep",
    "Unread",
    "Wrong",
    "read_capture",
    "replay_capture",
]


def read_capture(
    path: str | os.PathLike[str], settings: Settings = DEFAULT_SETTINGS
) -> Iterator[Iterator[TraceEvent]]:
    """Yield the connections of a capture, each as what a walk through it finds.

    Raises:
        LaceError: the file is no capture.
    """
    with CaptureFile(Path(path)) as capture:
        while capture.begin():
            yield walk(capture, settings)


def replay_capture(
    path: str | os.PathLike[str],
    settings: Settings = DEFAULT_SETTINGS,
    *,
    channel_cert: str | os.PathLike[str] | None = None,
) -> Iterator[Replayed]:
    """Read both directions of each connection, write them again, and compare every byte.

    Args:
        path: the capture.
        settings: the limits of what is read.
        channel_cert: the server's certificate, PEM, which proofs over wss contain.

    Raises:
        LaceError: something is not as it should be, with its place.
    """
    channel = None
    if channel_cert is not None:
        from lace.transport.tls import load_certificate

        channel = channel_digest(load_certificate(Path(channel_cert)))
    with CaptureFile(Path(path)) as capture:
        yield from replay(capture, settings, os.urandom, channel=channel)
