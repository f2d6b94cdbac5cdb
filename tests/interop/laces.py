"""Laces that are used only from outside: by the command; those that talk are processes."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.links import EXPOSE_ALL, SECONDS, Serving
from tests.cli.running import Result, call, process, spawn
from tests.interop.peer.plan import EVERYTHING, Selector
from tests.interop.peer.records import Record, plex, read_all
from tests.interop.peer.session import Peer, Session
from tests.interop.peer.streams import SocketStream, connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Accepting", "Lace", "accepting", "make_lace", "notes", "talk"]

ROOT = Path(__file__).resolve().parents[2]
PEER = (sys.executable, "-m", "tests.interop.peer")
SEARCH = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))


def notes(name: str, count: int) -> list[Record]:
    """Some records of one name."""
    return [plex("u", f"{name}/{number}", headers=[("Tag", name)]) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Lace:
    """A lace with its rule files."""

    folder: Path

    @property
    def options(self) -> list[object]:
        select, view = self.folder.with_suffix(".select"), self.folder.with_suffix(".view")
        return ["--lace", self.folder, "--select", select, "--expose", view]

    def add(self, records: Iterable[Record]) -> None:
        given = b"".join(record.raw for record in records)
        done = call("--lace", self.folder, "import", "-", given=given)
        assert done.code == 0, done.err

    def records(self) -> set[str]:
        """The hashes of all its records, after all of them were verified again."""
        verified = call("--lace", self.folder, "verify")
        assert verified.code == 0, verified.err
        exported = call("--lace", self.folder, "export", "--all")
        assert exported.code == 0, exported.err
        return {record.id for record in read_all(exported.raw)}

    def new_key(self) -> str:
        """Make a key; returns its verifier."""
        return call("--lace", self.folder, "key", "new").lines[0]

    def sync(self, address: str, *more: object) -> Result:
        return process("sync", address, *self.options, *more, env={"PYTHONPATH": SEARCH})

    @contextmanager
    def serving(
        self, address: str, *more: object, expose_to: str | None = None
    ) -> Iterator[Serving]:
        """Run `lace serve`; it is there when the block begins."""
        options = self.options
        if expose_to is not None:
            options[-1] = f"{options[-1]}@{expose_to}"
        started = spawn("serve", address, *options, *more)
        assert started.stdout is not None
        assert started.stderr is not None
        with started, started.stdout, started.stderr:
            try:
                bound = started.stdout.readline().decode().rstrip("\n")
                assert bound, started.stderr.read().decode()
                yield Serving(started, bound)
            finally:
                started.kill()


def make_lace(
    folder: Path, records: Iterable[Record] = (), *, selector: Selector = EVERYTHING
) -> Lace:
    """Make a lace that exposes everything to anyone."""
    made = Lace(folder)
    folder.with_suffix(".select").write_text(f"{selector.text}\n")
    folder.with_suffix(".view").write_text(EXPOSE_ALL)
    done = call("--lace", folder, "init")
    assert done.code == 0, done.err
    made.add(records)
    return made


def talk(peer: Peer, address: str, *, authority: Path | None = None) -> Session:
    """Let the peer connect and run one exchange."""
    stream = connect(address, authority=authority)
    try:
        session = Session(peer, stream, 0)
        session.run()
        return session
    finally:
        stream.close()


class Accepting:
    """The peer as a server for one exchange."""

    def __init__(self, peer: Peer, kind: type[Session]) -> None:
        self.peer, self.kind = peer, kind
        self.session: Session | None = None
        self.failure: Exception | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(SECONDS)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"tcp:127.0.0.1:{self._listening.getsockname()[1]}"

    def _run(self) -> None:
        stream = SocketStream(self._listening.accept()[0])
        try:
            self.session = self.kind(self.peer, stream, 1)
            self.session.run()
        except Exception as failure:  # noqa: BLE001 - it is raised again where it is waited for
            self.failure = failure
        finally:
            stream.close()

    def finish(self) -> None:
        self._thread.join(SECONDS)
        self._listening.close()


@contextmanager
def accepting(peer: Peer, kind: type[Session] = Session) -> Iterator[Accepting]:
    """Let the peer accept one exchange; what went wrong in it is raised at the end."""
    server = Accepting(peer, kind)
    try:
        yield server
    finally:
        server.finish()
    if server.failure is not None:
        raise server.failure
