"""Unix sockets: whose they are, who is there, and what is never replaced."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lace.iltp.address import LinkAddress
from lace.iltp.items import PREFACE
from lace.record.ids import Verifier
from lace.transport import unix
from lace.transport.faults import ListenError, TransportError
from lace.transport.listening import ConnectOptions, ListenOptions, connect, listen
from tests.unit.transport.bindings import eventually, run

if TYPE_CHECKING:
    from lace.transport.duplex import ByteStream, Proven

ALICE = Verifier.from_public_key(bytes(31) + b"\x01")


def at(path: Path) -> LinkAddress:
    return LinkAddress(scheme="unix", path=str(path))


async def wait_for_end(stream: ByteStream) -> None:
    await stream.read(1)


@pytest.mark.requirement("060-128", "060-129")
@pytest.mark.parametrize("uid", [os.getuid(), os.getuid() + 1])
def test_the_system_says_who_is_there(tmp_path: Path, uid: int) -> None:
    async def meet() -> tuple[Proven, Proven]:
        met: list[Proven] = []

        async def handle(stream: ByteStream) -> None:
            met.append(stream.proven)

        address = at(tmp_path / "socket")
        async with await listen(address, handle, ListenOptions(verifiers={uid: ALICE})) as listener:
            assert listener.address == address
            stream = await connect(address, ConnectOptions(verifiers={uid: ALICE}))
            assert await stream.read(1) == b""
            await stream.close()
            return stream.proven, met[0]

    for proven in run(meet()):
        assert proven.transport == f"unix:{tmp_path}/socket"
        assert proven.peer_uid == os.getuid()
        assert proven.peer == (ALICE if uid == os.getuid() else None)
        assert not proven.encrypted
        assert proven.channel is None


def test_the_socket_is_its_owners_and_goes_with_the_server(tmp_path: Path) -> None:
    async def serve() -> None:
        before = os.umask(0)
        try:
            path = tmp_path / "socket"
            async with await listen(at(path), wait_for_end):
                mode = path.lstat().st_mode
                assert stat.S_ISSOCK(mode)
                assert stat.S_IMODE(mode) == 0o600
            assert not path.exists()
            assert os.umask(0) == 0
        finally:
            os.umask(before)

    run(serve())


def test_the_mode_is_set_before_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks: list[int] = []
    bind = socket.socket.bind

    def watched(self: socket.socket, place: str) -> None:
        masks.append(os.umask(0))
        os.umask(masks[-1])
        bind(self, place)

    monkeypatch.setattr(socket.socket, "bind", watched)

    async def serve() -> None:
        async with await listen(at(tmp_path / "socket"), wait_for_end):
            pass

    run(serve())
    assert masks == [0o177]


def test_a_dead_servers_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    code = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=False)
    assert path.is_socket()

    async def serve() -> None:
        async with await listen(at(path), wait_for_end):
            await (await connect(at(path))).close()

    run(serve())


def test_a_living_server_keeps_its_socket(tmp_path: Path) -> None:
    async def serve() -> None:
        address = at(tmp_path / "socket")
        async with await listen(address, wait_for_end):
            with pytest.raises(ListenError, match="another server listens there; end it") as caught:
                await listen(address, wait_for_end)
            assert caught.value.exit_code == 3
            await (await connect(address)).close()

    run(serve())


def test_of_servers_that_start_at_once_one_wins(tmp_path: Path) -> None:
    """Over a dead one's socket, too; the one that won can be reached."""

    async def serve() -> None:
        path = tmp_path / "socket"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        starting = [listen(at(path), wait_for_end) for _ in range(8)]
        started = await asyncio.gather(*starting, return_exceptions=True)
        won = [one for one in started if not isinstance(one, BaseException)]
        lost = [one for one in started if isinstance(one, BaseException)]
        assert len(won) == 1
        assert all(isinstance(error, ListenError) for error in lost)
        await (await connect(at(path))).close()
        await won[0].close()

    run(serve())


def test_another_kind_of_file_is_never_replaced(tmp_path: Path) -> None:
    async def serve() -> None:
        path = tmp_path / "file"
        path.write_text("mine")
        with pytest.raises(ListenError, match="a file that is not a socket; choose another path"):
            await listen(at(path), wait_for_end)
        assert path.read_text() == "mine"
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "nowhere")
        with pytest.raises(ListenError, match="not a socket"):
            await listen(at(link), wait_for_end)
        with pytest.raises(ListenError, match="not a socket"):
            await listen(at(tmp_path), wait_for_end)

    run(serve())


def test_a_server_leaves_the_socket_of_the_next_one(tmp_path: Path) -> None:
    async def serve() -> None:
        path = tmp_path / "socket"
        first = await listen(at(path), wait_for_end)
        path.unlink()
        async with await listen(at(path), wait_for_end):
            await first.close()
            assert path.is_socket()
            await (await connect(at(path))).close()

    run(serve())


@pytest.mark.requirement("060-03")
def test_places_without_a_server(tmp_path: Path) -> None:
    async def refusals() -> None:
        with pytest.raises(TransportError, match="there is no such socket; check") as caught:
            await connect(at(tmp_path / "missing"))
        assert caught.value.exit_code == 4
        assert str(caught.value).startswith(f"unix:{tmp_path}/missing: ")
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "dead"))
        with pytest.raises(TransportError, match="nobody listens there any more"):
            await connect(at(tmp_path / "dead"))
        (tmp_path / "file").write_text("")
        with pytest.raises(TransportError, match=r"nobody listens|not a socket"):
            await connect(at(tmp_path / "file"))
        with pytest.raises(ListenError, match="the folder of the socket does not exist; make it"):
            await listen(at(tmp_path / "missing" / "socket"), wait_for_end)
        long = at(tmp_path / ("x" * 107))
        with pytest.raises(ListenError, match=r"at most 107 bytes \[060-03\]; choose a shorter"):
            await listen(long, wait_for_end)
        with pytest.raises(TransportError):
            await connect(long)

    run(refusals())


STRANGER = """
import asyncio, os, sys
from lace.iltp.address import parse_address
from lace.transport import unix
from lace.transport.listening import listen

async def refused():
    await asyncio.sleep(0)  # what is loaded on the way is loaded by now
    if os.getuid() == 0:  # whom no folder refuses
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        await listen(parse_address(sys.argv[1], for_serving=True), None)
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(refused())
"""


def test_folders_of_others() -> None:
    folder = Path(tempfile.mkdtemp(prefix="lace-socket-"))
    try:
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", STRANGER, str(at(folder / "socket"))],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("ListenError ")
        assert "this user may not make a socket there" in done.stdout
        assert not (folder / "socket").exists()
    finally:
        folder.rmdir()


def test_a_locked_folder_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix, "_LOCK_TRIES", 2)

    async def refusal() -> None:
        with (
            unix._folder_locked(tmp_path),
            pytest.raises(ListenError, match="holds the folder of the socket locked; try again"),
        ):
            await listen(at(tmp_path / "socket"), wait_for_end)

    run(refusal())


def test_connections_of_a_user_are_counted(tmp_path: Path) -> None:
    from lace.transport.connections import ConnectionLimits

    async def serve() -> None:
        address = at(tmp_path / "socket")
        limits = ConnectionLimits(of_address=2)
        async with await listen(address, wait_for_end, ListenOptions(limits=limits)) as listener:
            first, second = await connect(address), await connect(address)
            await eventually(lambda: listener.connections == 2)
            third = await connect(address)
            assert await third.read(100) == PREFACE + b"# server full\n"
            assert await third.read(1) == b""
            assert listener.refused == 1
            for stream in (first, second, third):
                await stream.close()
            await eventually(lambda: listener.connections == 0)
            fourth = await connect(address)
            await eventually(lambda: listener.connections == 1)
            await fourth.close()

    run(serve())
