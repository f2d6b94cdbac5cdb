"""Signing keys: kept for their owner only, refused when others could read them, never shown."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import stat
import traceback
from typing import TYPE_CHECKING

import pytest

import lace
from lace.errors import LaceError, StoreError, UsageError
from lace.record.ids import Verifier
from lace.record.seal import SigningKey
from lace.store.keys import KeyRing, SigningKeyError, parse_verifier
from tests.store.samples import key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ONE, TWO, THREE = (key(number) for number in (1, 2, 3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lace" / "keys"


@pytest.fixture
def ring(folder: Path) -> KeyRing:
    return KeyRing(folder, os.urandom)


@pytest.fixture(params=[0o022, 0o000, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def file_of(folder: Path, signer: SigningKey) -> Path:
    return folder / f"{signer.verifier}.secret"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- keeping ----------------------------------------------------------------------------


def test_an_empty_ring(ring: KeyRing, folder: Path) -> None:
    assert ring.verifiers() == []
    assert ring.default() is None
    assert not folder.exists()
    with pytest.raises(SigningKeyError, match="lace key new") as caught:
        ring.load()
    assert caught.value.exit_code == 1


def test_a_key_comes_back_and_signs(ring: KeyRing, folder: Path) -> None:
    assert ring.add(ONE)
    loaded = KeyRing(folder, os.urandom).load(ONE.verifier)
    assert loaded.verifier == ONE.verifier
    assert loaded.secret_text() == ONE.secret_text()
    record = lace.Plex(group="u", app="a", name="n", data=b"").seal(loaded)
    assert record.signed_by == ONE.verifier


def test_key_files_are_for_their_owner_only(ring: KeyRing, folder: Path, umask: int) -> None:
    ring.add(ONE)
    ring.add(TWO)
    ring.set_default(TWO.verifier)
    assert mode(folder) == 0o700
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    for path in folder.iterdir():
        assert mode(path) == 0o600, (path, oct(umask))


def test_a_key_file_holds_the_secret_and_nothing_else(ring: KeyRing, folder: Path) -> None:
    ring.add(ONE)
    assert file_of(folder, ONE).read_text() == ONE.secret_text() + "\n"


def test_adding_again_changes_nothing(ring: KeyRing, folder: Path) -> None:
    assert ring.add(ONE)
    assert ring.add(TWO)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert not ring.add(ONE)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_verifiers_are_sorted_and_other_files_ignored(ring: KeyRing, folder: Path) -> None:
    for signer in (THREE, ONE, TWO):
        ring.add(signer)
    (folder / "notes.txt").write_text("x")
    (folder / "V.short.H3.secret").write_text("x")
    (folder / f"{key(4).verifier}.txt").write_text("x")
    assert ring.verifiers() == sorted(signer.verifier for signer in (ONE, TWO, THREE))


# -- the default ------------------------------------------------------------------------


def test_the_first_key_is_the_default_until_another_is(ring: KeyRing) -> None:
    ring.add(ONE)
    ring.add(TWO)
    assert ring.default() == ONE.verifier
    assert ring.load().verifier == ONE.verifier
    ring.set_default(TWO.verifier)
    assert ring.load().verifier == TWO.verifier


def test_only_a_key_that_is_there_can_be_the_default(ring: KeyRing) -> None:
    ring.add(ONE)
    with pytest.raises(SigningKeyError) as caught:
        ring.set_default(TWO.verifier)
    assert TWO.verifier in str(caught.value)
    assert ring.default() == ONE.verifier


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", TWO.verifier.encode()])
def test_a_spoiled_default_is_none(ring: KeyRing, folder: Path, content: bytes) -> None:
    ring.add(ONE)
    (folder / "default").write_bytes(content)
    assert ring.default() is None
    with pytest.raises(SigningKeyError, match="lace key default"):
        ring.load()
    assert ring.load(ONE.verifier).verifier == ONE.verifier


# -- removal ----------------------------------------------------------------------------


def test_a_removed_key_is_gone(ring: KeyRing, folder: Path) -> None:
    ring.add(ONE)
    ring.add(TWO)
    ring.remove(TWO.verifier)
    assert ring.verifiers() == [ONE.verifier]
    assert ring.default() == ONE.verifier
    with pytest.raises(SigningKeyError):
        ring.load(TWO.verifier)
    with pytest.raises(SigningKeyError):
        ring.remove(TWO.verifier)
    ring.remove(ONE.verifier)
    assert ring.default() is None
    assert list(folder.iterdir()) == []
    assert ring.add(THREE)  # and the next one is the default again
    assert ring.default() == THREE.verifier


# -- files that are not safe ------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666, 0o777])
def test_a_file_that_others_can_reach_is_refused(ring: KeyRing, folder: Path, bits: int) -> None:
    ring.add(ONE)
    path = file_of(folder, ONE)
    path.chmod(bits)
    with pytest.raises(SigningKeyError) as caught:
        ring.load()
    text = str(caught.value)
    assert f"{bits:04o}" in text
    assert "chmod 600" in text
    assert str(path) in text
    assert ONE.secret_text() not in text
    with pytest.raises(SigningKeyError):
        ring.add(ONE)
    path.chmod(0o600)
    assert ring.load().verifier == ONE.verifier


def test_a_symbolic_link_is_refused(ring: KeyRing, folder: Path, tmp_path: Path) -> None:
    ring.add(ONE)
    path = file_of(folder, ONE)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SigningKeyError) as caught:
        ring.load(ONE.verifier)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused_at_once(ring: KeyRing, folder: Path, kind: str) -> None:
    ring.add(ONE)
    path = file_of(folder, ONE)
    path.unlink()
    if kind == "folder":
        path.mkdir(mode=0o700)
    else:
        os.mkfifo(path, 0o600)
    with pytest.raises(SigningKeyError):
        ring.load(ONE.verifier)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(ring: KeyRing, folder: Path) -> None:
    ring.add(ONE)
    os.chown(file_of(folder, ONE), 65534, 65534)
    with pytest.raises(SigningKeyError, match="another user"):
        ring.load()


SECRET = ONE.secret_text()
FOREIGN = {
    "empty": b"",
    "text": b"hello",
    "binary": bytes(range(128, 256)),
    "long": b"x" * 100_000,
    "a verifier": ONE.verifier.encode(),
    "cut": SECRET.encode()[:-4],
    "spoiled": SECRET.encode()[:-5] + b"!" + SECRET.encode()[-4:],
    "not ASCII": SECRET.encode() + b"\xc3\xa9",
    "two": (SECRET + "\n" + SECRET).encode(),
    "other suffix": SECRET.replace(".H3", ".H4").encode(),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_file_that_holds_no_secret_is_refused(
    ring: KeyRing, folder: Path, content: bytes
) -> None:
    ring.add(ONE)
    file_of(folder, ONE).write_bytes(content)
    with pytest.raises(SigningKeyError, match="does not hold a signing secret") as caught:
        ring.load()
    assert_silent(caught.value, SECRET)


def test_a_file_with_another_keys_secret_is_refused(ring: KeyRing, folder: Path) -> None:
    ring.add(ONE)
    file_of(folder, ONE).write_text(TWO.secret_text())
    with pytest.raises(SigningKeyError) as caught:
        ring.load(ONE.verifier)
    assert TWO.verifier in str(caught.value)
    assert_silent(caught.value, TWO.secret_text())


def test_white_space_around_a_secret_does_no_harm(ring: KeyRing, folder: Path) -> None:
    ring.add(ONE)
    file_of(folder, ONE).write_text(f"  {SECRET}\n\n")
    assert ring.load().verifier == ONE.verifier


# -- the folder -------------------------------------------------------------------------


def test_a_folder_that_is_a_file_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("x")
    ring = KeyRing(tmp_path / "keys", os.urandom)
    with pytest.raises(StoreError) as caught:
        ring.add(ONE)
    assert str(tmp_path / "keys") in str(caught.value)
    assert ring.verifiers() == []


def test_a_failed_writing_leaves_nothing(
    ring: KeyRing, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.add(ONE)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="No space left") as caught:
        ring.add(TWO)
    assert caught.value.exit_code == 3
    assert_silent(caught.value, TWO.secret_text())
    assert ring.verifiers() == [ONE.verifier]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{ONE.verifier}.secret", "default"]
    )


# -- secrets stay secret ----------------------------------------------------------------


def assert_silent(error: BaseException, secret: str) -> None:
    """Neither an error nor what led to it shows a secret, or a good part of it."""
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    for start in range(0, len(secret) - 12, 6):
        assert secret[start : start + 12] not in shown


def test_no_form_of_a_key_shows_its_secret(caplog: pytest.LogCaptureFixture) -> None:
    fresh = lace.SigningKey.generate()
    secret = fresh.secret_text()
    caplog.set_level(logging.DEBUG)
    logging.getLogger("test").debug("%s %r %s", fresh, fresh, [fresh])
    shown = [repr(fresh), str(fresh), f"{fresh}", repr([fresh]), repr({"k": fresh}), caplog.text]
    for text in shown:
        assert fresh.verifier in text
        assert secret[2:45] not in text
    for stolen in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError) as caught:
            stolen(fresh)
        assert_silent(caught.value, secret)


def mistakes(secret: str) -> dict[str, Callable[[], object]]:
    return {
        "cut": lambda: SigningKey.parse_secret(secret[:-1], os.urandom),
        "longer": lambda: SigningKey.parse_secret(secret + "0", os.urandom),
        "wrong character": lambda: SigningKey.parse_secret(secret[:-5] + "!.H3", os.urandom),
        "not canonical": lambda: SigningKey.parse_secret(secret[:-4] + "~.H3", os.urandom),
        "taken for a verifier": lambda: parse_verifier(secret),
        "cut and taken for a verifier": lambda: parse_verifier(secret[:-3]),
    }


@pytest.mark.parametrize("name", mistakes(""))
def test_mistakes_with_a_secret_do_not_repeat_it(name: str) -> None:
    secret = key(7).secret_text()
    with pytest.raises(LaceError) as caught:
        mistakes(secret)[name]()
    assert_silent(caught.value, secret)


def test_a_verifier_is_parsed_as_people_type_it() -> None:
    assert parse_verifier(str(ONE.verifier)) == Verifier(ONE.verifier)
    for text in (
        "",
        "V.x.H3",
        str(ONE.verifier)[:-1],
        str(ONE.verifier) + "\n",
        "B" + ONE.verifier[1:],
    ):
        with pytest.raises(UsageError) as caught:
            parse_verifier(text)
        assert caught.value.exit_code == 2


def test_a_lace_has_a_ring_of_its_own(tmp_path: Path) -> None:
    with lace.open(tmp_path / "a") as store:
        store.keys.add(ONE)
        assert mode(tmp_path / "a" / "keys") == 0o700
    with lace.open(tmp_path / "a", read_only=True) as store:
        assert store.keys.load().verifier == ONE.verifier
    with lace.open(tmp_path / "b") as store:
        assert store.keys.verifiers() == []
    database = b"".join(path.read_bytes() for path in (tmp_path / "a").iterdir() if path.is_file())
    assert ONE.secret_text()[2:45].encode() not in database
