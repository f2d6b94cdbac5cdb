"""The peer as a program on standard input and output: `python -m tests.interop.peer FILE MODE`.

FILE holds records and is written again with those that the exchange has brought.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.interop.peer.records import read_all
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import PipeStream

__all__ = ["main"]


def main(file: Path, mode: int) -> None:
    """Run one exchange as the side that accepts."""
    peer = Peer(mode=mode)
    peer.add(read_all(file.read_bytes()))
    stream = PipeStream(os.fdopen(0, "rb", buffering=0), os.fdopen(1, "wb", buffering=0))
    session = Session(peer, stream, 1)
    session.run()
    sys.stderr.write(f"modes seen: {sorted(session.wire.modes_seen())}\n")
    file.write_bytes(b"".join(record.raw for record in peer.records.values()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
