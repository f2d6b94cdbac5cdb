"""Selectors of peers, kept from one connection to the next: one file for each, beside the cursors.

A peer that its transport proves may leave out the bytes of a module that it has sent before
(G58a). A file is found by the peer's verifier and the module's identifier together, so that nobody
can ask whether another peer's module is here. All of it is a cache: a file that is missing or
damaged means that the module has to be sent.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES, digest
from lace.store.cache_files import prune_files, save_file

if TYPE_CHECKING:
    from pathlib import Path

    from lace.base.limits import Settings

__all__ = ["MODULES_NAME", "ModuleFiles"]

MODULES_NAME: Final = "modules"
_FORMAT: Final = b"lace-module/1\n"
_SUFFIX: Final = ".module"


class ModuleFiles:
    """The modules of peers in one lace.

    Args:
        folder: the folder of its links.
        settings: how many modules are kept, and how many bytes.
        may_write: whether anything is written at all.
    """

    def __init__(self, folder: Path, settings: Settings, *, may_write: bool = True) -> None:
        self.folder = folder / MODULES_NAME
        self._most, self._of_peer = settings.max_cached_modules, settings.max_cached_modules_of_peer
        self._most_bytes = settings.max_cached_module_bytes
        self._may_write = may_write and self._most > 0 and self._of_peer > 0

    def get(self, verifier: str, module_id: str, /) -> bytes | None:
        """Return the bytes of a module that a peer has sent before; None for nothing whole."""
        path = self._path(verifier, module_id)
        try:
            if path.stat().st_size > self._most_bytes:
                return None
            raw = path.read_bytes()
            body = _parse(raw, verifier, module_id)
            if body is not None:
                os.utime(path)
        except OSError:
            return None
        return body

    def save(self, verifier: str, module_id: str, body: bytes) -> None:
        """Keep a module of a peer; a disk that does not take it is no failure."""
        content = _content(verifier, module_id, body)
        if not self._may_write or len(content) > self._most_bytes:
            return
        path = self._path(verifier, module_id)
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.is_file() and path.read_bytes() == content:
                os.utime(path)
                return
            save_file(path, [content])
            self._prune()

    def _path(self, verifier: str, module_id: str) -> Path:
        return self.folder / f"{_name(verifier)}.{_name(module_id)}{_SUFFIX}"

    def _prune(self) -> None:
        """Remove the files that were used longest ago, of a peer or of all, above the limits."""
        kept = total = 0
        of_peer: Counter[str] = Counter()

        def keeps(path: Path, size: int) -> bool:
            nonlocal kept, total
            peer = path.name.partition(".")[0]
            is_over = kept >= self._most or of_peer[peer] >= self._of_peer
            if is_over or total + size > self._most_bytes:
                return False
            kept, total = kept + 1, total + size
            of_peer[peer] += 1
            return True

        prune_files(self.folder, _SUFFIX, keeps)


def _name(text: str) -> str:
    return b64a.encode(digest(text.encode("utf-8")))


def _content(verifier: str, module_id: str, body: bytes) -> bytes:
    """Return the bytes of a file: format, whose and which module, its bytes, and their digest."""
    content = _FORMAT + f"{verifier}\n{module_id}\n".encode() + body
    return content + digest(content)


def _parse(raw: bytes, verifier: str, module_id: str) -> bytes | None:
    """Return the module of a file; None if the file is not whole, or is about another."""
    head = _FORMAT + f"{verifier}\n{module_id}\n".encode()
    if len(raw) < len(head) + DIGEST_BYTES or not raw.startswith(head):
        return None
    content = raw[:-DIGEST_BYTES]
    return content[len(head) :] if digest(content) == raw[-DIGEST_BYTES:] else None
