"""Signing keys of a lace: one file a key, mode 0600, in a folder of mode 0700.

A key file holds the secret's text and nothing else; its name is the verifier. A file
that others could read, that belongs to someone else, or that holds another key than
its name says is refused. Secrets never appear in messages.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lace.base.arguments import check_argument
from lace.errors import LaceError, RecordError, StoreError, UsageError
from lace.record.ids import IdError, Verifier
from lace.record.seal import RandomBytes, SigningKey

if TYPE_CHECKING:
    from pathlib import Path


_SUFFIX: Final = ".secret"
_DEFAULT: Final = "default"
_MAX_FILE_BYTES: Final = 256


class SigningKeyError(StoreError):
    """A signing key that is missing, or that is not kept as it should be."""

    exit_code = 1


class KeyRing:
    """The signing keys in one folder."""

    def __init__(self, folder: Path, random_bytes: RandomBytes) -> None:
        self._folder = folder
        self._random_bytes = random_bytes

    def __repr__(self) -> str:
        return f"<KeyRing {str(self._folder)!r}>"

    def add(self, key: SigningKey) -> bool:
        """Keep a key; the first one becomes the default. False when it is there already."""
        check_argument(key, SigningKey, "key is a SigningKey", "as SigningKey.generate() makes it")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self._folder} cannot be made: {error.strerror}") from None
        path = self._path(key.verifier)
        if path.exists():
            self.load(key.verifier)
            return False
        self._write(path, key.secret_text() + "\n")
        if self.default() is None:
            self.set_default(key.verifier)
        return True

    def verifiers(self) -> list[Verifier]:
        """Return the verifiers of all keys, sorted."""
        found: list[Verifier] = []
        if self._folder.is_dir():
            for path in self._folder.glob(f"*{_SUFFIX}"):
                with suppress(IdError):
                    found.append(Verifier(path.name.removesuffix(_SUFFIX)))
        return sorted(found)

    def default(self) -> Verifier | None:
        """Return the verifier of the key that signs when none is named."""
        try:
            text = (self._folder / _DEFAULT).read_text("ascii").strip()
            verifier = Verifier(text)
        except (OSError, UnicodeDecodeError, IdError):
            return None
        return verifier if self._path(verifier).exists() else None

    def set_default(self, verifier: Verifier) -> None:
        """Make a key the one that signs when none is named."""
        self._require(verifier)
        self._write(self._folder / _DEFAULT, verifier + "\n")

    def remove(self, verifier: Verifier) -> None:
        """Delete a key for good."""
        self._require(verifier)
        was_default = self.default() == verifier
        self._path(verifier).unlink()
        if was_default:
            (self._folder / _DEFAULT).unlink(missing_ok=True)

    def load(self, verifier: Verifier | None = None) -> SigningKey:
        """Return a key, or the default one."""
        chosen = verifier or self.default()
        if chosen is None:
            hint = "make one: `lace key new`"
            if self.verifiers():
                hint = "choose one: `lace key default V`, or name it with --key V"
            raise SigningKeyError("this lace has no default signing key", hint=hint)
        self._require(chosen)
        path = self._path(chosen)
        text = self._read_private(path)
        try:
            key = SigningKey.parse_secret(text.strip(), self._random_bytes)
        except RecordError as error:
            raise SigningKeyError(
                f"{path} does not hold a signing secret", rule=error.rule
            ) from None
        if key.verifier != chosen:
            raise SigningKeyError(f"{path} holds the key of {key.verifier}", hint="rename the file")
        return key

    def _path(self, verifier: Verifier) -> Path:
        return self._folder / f"{verifier}{_SUFFIX}"

    def _require(self, verifier: Verifier) -> None:
        if not self._path(verifier).exists():
            raise SigningKeyError(
                f"this lace has no signing key {verifier}", hint="see `lace key list`"
            )

    def _read_private(self, path: Path) -> str:
        try:
            # Without waiting: a pipe of that name would keep its reader for ever.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path, flags)
        except OSError as error:
            raise SigningKeyError(f"{path} cannot be read: {error.strerror}") from None
        try:
            _check_private(path, os.fstat(descriptor))
            return os.read(descriptor, _MAX_FILE_BYTES).decode("ascii")
        except UnicodeDecodeError:
            raise SigningKeyError(f"{path} does not hold a signing secret") from None
        finally:
            os.close(descriptor)

    def _write(self, path: Path, text: str) -> None:
        """Write a file whole or not at all, readable by its owner only."""
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            scratch.unlink(missing_ok=True)
            with os.fdopen(os.open(scratch, flags, 0o600), "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise StoreError(f"{path} cannot be written: {error.strerror}") from None


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SigningKeyError(f"{path} is not a file")
    if status.st_uid not in (os.getuid(), 0):
        raise SigningKeyError(f"{path} belongs to another user", hint="own the key file yourself")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise SigningKeyError(
            f"{path} has mode {mode:04o}: others can read the secret",
            rule="009-secret",
            hint=f"run: chmod 600 '{path}', and consider the key known to others",
        )


def parse_verifier(text: str) -> Verifier:
    """Return a verifier that a person typed; anything else is wrong usage."""
    if text.startswith("&"):  # a secret in the wrong place: not to be repeated
        raise UsageError("this is a signing secret, not a verifier", rule="009-verifier")
    try:
        return Verifier(text)
    except LaceError as error:
        raise UsageError(error.message, rule=error.rule, hint=error.hint) from None
