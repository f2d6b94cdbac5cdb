"""Damage: found, named, and never handed out; a lace that another process writes; a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from lace.api import open_lace
from lace.record.model import Blob, Plex
from lace.store.lock import WriteLock
from lace.store.sqlite.store import DATABASE_NAME
from tests.cli.groups import started_group
from tests.cli.running import call, process, spawn

if TYPE_CHECKING:
    from lace.record.model import Seal

    Records = list[Blob | Plex | Seal]


def spoil(folder: Path, record: Blob | Plex | Seal) -> None:
    """Change the last byte of a stored record, behind the store's back."""
    raw = bytearray(record.bytes)
    raw[-1] ^= 1
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    connection.execute("UPDATE record SET bytes = ? WHERE bytes = ?", (bytes(raw), record.bytes))
    assert connection.changes() == 1
    connection.close()


def test_a_whole_lace(filled: Path, records: Records) -> None:
    assert filled.is_dir()
    size = sum(len(record.bytes) for record in records)
    done = call("verify")
    assert (done.code, done.lines) == (0, ["records 4", f"bytes {size}", "damaged 0"])
    assert call("verify", "--json").json() == {
        "records": 4,
        "bytes": size,
        "damaged": 0,
        "damage": [],
    }


def test_a_changed_byte_is_found_and_never_returned(filled: Path, records: Records) -> None:
    spoil(filled, records[1])
    done = call("verify")
    assert done.code == 6
    assert done.lines[2] == "damaged 1"
    assert done.lines[3].startswith(f"damage: {records[1].id} (StoreRecordId 2): ")
    assert "the lace is damaged" in done.err
    (damage,) = call("verify", "--json").json()["damage"]
    assert (damage["record"], damage["store_record_id"]) == (records[1].id, 2)
    assert call("log", "--limit", 1, "--json").json()["exit_code"] == 6
    for arguments in (
        ["get", "//u//notes//b"],
        ["get", "//u//notes//b", "--body"],
        ["get", "//u//notes//b", "--json"],
        ["facts", "//u//notes//b"],
        ["export", "//u//notes//b"],
        ["export", "--all", "-o", "out"],
    ):
        refused = call(*arguments)
        assert (refused.code, refused.raw) == (6, b""), arguments
        assert records[1].id in refused.err
    assert not (filled.parent / "out").exists()
    assert call("facts").code == 6
    assert call("get", "//u//notes//a", "--body").raw == b"newer"


def test_a_damaged_record_can_be_replaced(filled: Path, records: Records, file: Path) -> None:
    spoil(filled, records[1])
    assert call("remove", records[1].id, "--yes").code == 0
    assert call("import", file).lines[0] == "stored 1"
    assert call("verify").code == 0


def test_a_damaged_database_file(filled: Path) -> None:
    database = filled / DATABASE_NAME
    raw = bytearray(database.read_bytes())
    raw[4096:] = os.urandom(len(raw) - 4096)
    database.write_bytes(raw)
    for command in (["verify"], ["list"], ["get", "//u//notes//a"]):
        done = call(*command)
        assert done.code == 6, (command, done)
        assert "Traceback" not in done.err
    database.write_bytes(b"this is not a database at all" * 200)
    assert call("status").code == 6


# The superuser writes everywhere, so the command becomes another user first; what it
# needs is loaded before that, because the interpreter may be in the superuser's folder.
AS_A_STRANGER = """
import os, sys
import lace.record.schnorr_batch
from lace.cli import status
from lace.cli.main import run
from lace.cli.session import Session
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(run(["--lace", sys.argv[1], "verify"], Session({})))
"""


def test_a_read_only_lace_can_be_verified(records: Records) -> None:
    place = Path(tempfile.mkdtemp(prefix="lace-read-only-"))
    try:
        with open_lace(place / "lace") as lace:
            lace.add_all(records)
        place.chmod(0o755)
        for path in (place / "lace", *(place / "lace").iterdir()):
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", AS_A_STRANGER, str(place / "lace")], capture_output=True
        )
        assert done.returncode == 0
        assert b"the log of the lace has no entry for this" in done.stderr
        assert done.stdout.split(b"\n")[0] == b"records 4"
    finally:
        (place / "lace").chmod(0o755)
        shutil.rmtree(place)


def test_a_busy_lace_names_who_writes(folder: Path) -> None:
    with WriteLock(folder, "a test").held(1):
        done = process("--lace", folder, "put", "--wait", "0", given=b"x")
        assert done.code == 5
        assert f"process {os.getpid()} (a test" in done.err
        assert process("--lace", folder, "list").code == 0
        assert process("--lace", folder, "--set", "wait_seconds=0", "key", "new").code == 0
    assert call("put", given=b"x").code == 0


def many(path: Path, count: int) -> Path:
    with path.open("wb") as file:
        for number in range(count):
            file.write(Plex(group="g", app="a", name=str(number), data=b"x" * 500).bytes)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many(tmp_path_factory.mktemp("large") / "many.records", 20_000)


def start_import(folder: Path, source: object) -> subprocess.Popen[bytes]:
    """Start an import in small batches, and wait until some are stored."""
    started = spawn(
        "--lace", folder, "--set", "import_batch_records=100", "--set", "import_workers=1",
        "import", source,
    )  # fmt: skip
    wait_for_records(folder)
    return started


def wait_for_records(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open_lace(folder, create=False, read_only=True) as lace:
            if len(lace) > 0:
                return
        time.sleep(0.02)
    raise AssertionError("nothing was stored")


@pytest.mark.slow
def test_a_killed_import_leaves_whole_records(folder: Path, large: Path) -> None:
    started = start_import(folder, large)
    started.kill()
    started.communicate(timeout=30)
    assert call("verify").code == 0
    before = call("status", "--json").json()["records"]
    assert 0 < before < 20_000
    done = call("import", large)
    assert (done.code, done.lines[1]) == (0, f"known {before}")
    assert call("status", "--json").json()["records"] == 20_000


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_import_between_batches(
    folder: Path, large: Path, number: int, code: int
) -> None:
    started = start_import(folder, large)
    started.send_signal(number)
    out, err = started.communicate(timeout=30)
    assert (started.returncode, out) == (code, b"")
    records = call("status", "--json").json()["records"]
    assert 0 < records < 20_000
    assert f"{records:,} records stored before this stay".encode() in err
    assert b"Traceback" not in err
    entry = call("log", "--limit", 1, "--json").json()
    assert (entry["command"], entry["exit_code"]) == ("import", code)
    assert entry["result"]["stored"] == records
    assert call("verify").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
    ids=["INT", "TERM"],
)
def test_a_signal_ends_a_verification(
    folder: Path, large: Path, tmp_path: Path, number: signal.Signals, code: int, word: str
) -> None:
    """It comes while other processes validate; they go as well."""
    assert call("import", large).code == 0
    command = ("--lace", folder, "--set", "import_workers=2", "verify")
    with started_group(*command, temporary=tmp_path / "temporary") as group:
        group.wait_for(lambda: len(group.members()) > 2)
        group.interrupt(number)
        ended = group.end()
    assert (ended.code, ended.raw) == (code, b"")
    assert ended.err == f"lace: {word}; nothing was changed\n"
    assert list((tmp_path / "temporary").iterdir()) == []
    assert call("verify").lines[0] == "records 20000"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_waiting_for_input(folder: Path, number: int, code: int) -> None:
    batches = b"".join(Blob(b"%d" % n + bytes(10_000)).bytes for n in range(600))
    started = spawn(
        "--lace", folder, "--set", "import_batch_records=100", "import", "-",
        stdin=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdin is not None
    started.stdin.write(batches)
    started.stdin.flush()
    wait_for_records(folder)
    time.sleep(0.2)  # by then it waits for more
    started.send_signal(number)
    _out, err = started.communicate(timeout=30)
    assert started.returncode == code
    assert b"Traceback" not in err
    assert b"stored before this stay" in err
    assert call("verify").code == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cut", [0, 100, 10_020])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_came_through_a_pipe_is_stored_at_a_signal(
    folder: Path, number: int, code: int, cut: int, workers: int
) -> None:
    whole = [Blob(b"%d" % n + bytes(10_000)).bytes for n in range(250)]
    started = spawn(
        "--lace", folder, "--set", "import_batch_records=100",
        "--set", f"import_workers={workers}", "import", "-",
        stdin=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdin is not None
    started.stdin.write(b"".join(whole) + Blob(b"cut" + bytes(10_000)).bytes[:cut])
    started.stdin.flush()
    if workers:
        time.sleep(1)  # these batches are on the way until more come
    else:
        wait_for_records(folder)
    time.sleep(0.3)  # by then it waits for more
    started.send_signal(number)
    assert started.stderr is not None
    err = started.stderr.read()  # the input is open until the command has ended
    assert started.wait(30) == code
    started.communicate()
    assert b"250 records stored before this stay" in err
    assert b"[010-" not in err
    entry = call("log", "--limit", 1, "--json").json()
    assert entry["exit_code"] == code
    assert (entry["result"]["stored"], entry["result"]["rejected"]) == (250, 0)
    assert call("verify").code == 0


def test_a_pipeline_that_stays_open(folder: Path, file: Path) -> None:
    """As in `(cat some.records; sleep 20) | lace import -`."""
    writer = subprocess.Popen(
        ["/bin/sh", "-c", 'cat "$0"; exec sleep 20', file], stdout=subprocess.PIPE
    )
    try:
        started = spawn("--lace", folder, "import", "-", stdin=writer.stdout)
        time.sleep(2)  # by then it has read the records, which are less than a batch
        started.send_signal(signal.SIGTERM)
        out, err = started.communicate(timeout=10)
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    assert (started.returncode, out) == (143, b"")
    assert b"4 records stored before this stay" in err
    assert call("status", "--json").json()["records"] == 4


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_listing(folder: Path, number: int, code: int) -> None:
    with open_lace(folder) as lace:
        lace.add_all([Blob(b"%d" % number) for number in range(3000)])
    started = spawn("--lace", folder, "facts")  # it waits for its pipe to be read
    assert started.stdout is not None
    assert started.stdout.read(10)
    started.send_signal(number)
    _out, err = started.communicate(timeout=30)
    assert started.returncode == code
    assert b"Traceback" not in err


def test_a_reader_that_goes_away(folder: Path) -> None:
    with open_lace(folder) as lace:
        lace.add_all([Blob(b"%d" % number) for number in range(3000)])
    for command in (["facts"], ["list"], ["list", "--json"], ["export", "--all"]):
        started = spawn("--lace", folder, *command)
        assert started.stdout is not None
        assert started.stderr is not None
        assert started.stdout.read(10)
        started.stdout.close()
        err = started.stderr.read()
        started.stderr.close()
        assert (started.wait(30), err) == (141, b""), command


def test_head_in_a_shell(filled: Path) -> None:
    line = '"$0" -m lace --lace "$1" facts | head -1'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, filled], capture_output=True, check=True
    )
    assert done.stdout.startswith(b"BlobHash('")
    assert done.stderr == b""
