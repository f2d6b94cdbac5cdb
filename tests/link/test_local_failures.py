"""A lace that fails in the midst of an exchange: which one, what failed, what came before it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

import lace
from lace.exchange.failures import Failure, InterlaceFailure, local_failure
from lace.exchange.result import Outcome
from lace.link.party import error_of
from lace.store.interface import StoreBusyError, StoreDamagedError, StoreUnavailableError
from lace.store.sqlite.store import SqliteStore
from tests.link.test_pairing import EVERYTHING, hashes, plex, policy
from tests.link.test_session import BINDINGS, exchange
from tests.store.faulty_disk import faulty_disk
from tests.store.samples import flip
from tests.store.test_damage import change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.link.side import Interlaced
    from lace.store.interface import Admission

pytestmark = pytest.mark.requirement("050-173", "050-227")
SMALL = {"service_budget_bytes": 2_000}


def opened(folder: Path) -> lace.Lace:
    made = lace.open(folder, settings=SMALL)
    if made.signing_key() is None:
        key = lace.SigningKey.generate()
        made.keys.add(key)
        made.keys.set_default(key.verifier)
    return made


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[lace.Lace, lace.Lace]]:
    with opened(tmp_path / "left") as left, opened(tmp_path / "right") as right:
        yield left, right


def interlaced(left: lace.Lace, right: lace.Lace) -> Interlaced:
    return lace.interlace(left, right, policy(right, EVERYTHING), policy(left, EVERYTHING))


@pytest.mark.parametrize("error", ["full", "io"])
@pytest.mark.parametrize("name", ["left", "right"])
def test_a_disk_that_fails_in_the_midst_of_an_exchange(
    tmp_path: Path, name: str, error: str
) -> None:
    """The message names the side and its file; what was stored before stays, and is reported."""
    for each in ("left", "right"):
        opened(tmp_path / each).close()
    with faulty_disk() as disk, opened(tmp_path / name) as failing:
        other = "right" if name == "left" else "left"
        with lace.open(tmp_path / other, settings=SMALL) as working:
            working.add_all([plex(f"n/{number}", data=b"x" * 900) for number in range(12)])
            sides = (failing, working) if name == "left" else (working, failing)
            admit = SqliteStore.admit

            def failing_later(self: SqliteStore, records: object) -> Admission:
                if self is failing.store and len(failing):
                    disk.plan(1, error=error, lasting=True, partly=False)
                return admit(self, records)  # type: ignore[arg-type]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(SqliteStore, "admit", failing_later)
                with pytest.raises(StoreUnavailableError) as caught:
                    interlaced(*sides)
            assert disk.failed
            disk.plan(None, error=error, lasting=False, partly=False)
            assert caught.value.message.startswith(f"the {name} lace: ")
            assert str(failing.store.path) in str(caught.value)
            assert caught.value.exit_code == 3
            result = caught.value.result
            assert result is not None
            there, here = (getattr(result, each) for each in (other, name))
            assert here.failure.failure is Failure.STORE_FAILED
            assert here.failure.exit_code == 3
            assert there.failure.failure is Failure.PEER_CLOSED
            assert "space" not in there.reason
            assert failing.store.path.name not in there.reason
            assert set(here.received) == hashes(failing) != set()
            assert interlaced(*sides)
            assert hashes(failing) == hashes(working)


def test_a_damaged_record_over_a_wire(sides: tuple[lace.Lace, lace.Lace]) -> None:
    left, right = sides
    record = plex("n/1")
    right.add(record)
    raw = flip(record.bytes, len(record.bytes) - 1)
    change(right.store.folder, "UPDATE record SET bytes = ?", raw)
    outcome, served = exchange(left, right, BINDINGS[0])
    assert outcome.failure is not None
    assert outcome.failure.failure is Failure.PEER_CLOSED
    assert "damaged" not in str(outcome.failure)
    assert served.failure is not None
    assert served.failure.failure is Failure.STORE_FAILED
    assert served.failure.exit_code == StoreDamagedError.exit_code == 6
    assert isinstance(served.failure.__cause__, StoreDamagedError)
    with pytest.raises(StoreDamagedError, match="the right lace: ") as caught:
        interlaced(left, right)
    assert isinstance(getattr(caught.value.result, "right", None), Outcome)


def test_what_the_system_refuses_is_told_as_well(
    sides: tuple[lace.Lace, lace.Lace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the operating system, not of the database."""
    left, right = sides
    right.add(plex("n/1"))

    def full(_self: SqliteStore, _records: object) -> Admission:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(left.store.folder / "file"))

    monkeypatch.setattr(SqliteStore, "admit", full)
    with pytest.raises(StoreUnavailableError, match="the left lace: No space left") as caught:
        interlaced(left, right)
    assert str(caught.value.place) == str(left.store.folder / "file")
    assert "free some space" in str(caught.value.hint)


def test_each_error_has_its_row_and_keeps_its_exit_code(tmp_path: Path) -> None:
    for error, row, code in (
        (StoreBusyError("held"), Failure.STORE_FAILED, 5),
        (StoreDamagedError("rotten"), Failure.STORE_FAILED, 6),
        (error_of(MemoryError(), tmp_path), Failure.STORE_FAILED, 3),
        (error_of(OSError("odd"), tmp_path), Failure.STORE_FAILED, 3),
        (lace.EngineError("no engine"), Failure.EVALUATION_ERROR, 3),
        (lace.LimitExceeded("long", limit="max_x", allowed=1), Failure.EVALUATION_ERROR, 1),
    ):
        made = local_failure(error)
        assert (made.failure, made.exit_code, made.hint) == (row, code, error.hint)
        assert error.message in made.message
    own = InterlaceFailure(Failure.PHASE_TIMEOUT)
    assert local_failure(own) is own
