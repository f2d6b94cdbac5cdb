"""Files that are kept from one exchange to the next, beside the records: cursors and selectors.

A link is two proven verifiers and a plan (its Link-Id). Its file says what each side
advertised when they last agreed, so that the next exchange tells changes only. All of it is
a cache: a file that is missing or damaged costs bytes, nothing else.

A peer that its transport proves may leave out the bytes of a module that it has sent before
(G58a). A file is found by the peer's verifier and the module's identifier together, so that nobody
can ask whether another peer's module is here; without its file the module has to be sent.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES, Hasher, digest
from lace.engines.embedded.exchange_facts import ClaimTable
from lace.interlacing.advertisement import text_bytes
from lace.interlacing.capabilities import Schema
from lace.interlacing.config import Cursor
from lace.interlacing.partitions import AdvertisementSet
from lace.store.file_errors import remove_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from lace.base.limits import Settings


__all__ = [
    "LINKS_NAME",
    "MODULES_NAME",
    "MOST_BYTES",
    "MOST_LINKS",
    "KeptLink",
    "LinkFiles",
    "ModuleFiles",
]

_UNFINISHED: Final = ".new"
"""The suffix of a file that is being written."""
_STALE_SECONDS: Final = 3600.0
"""A file that was last written this long ago is not being written any more."""


def _save_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file, whole or not at all, that its owner alone can read.

    Raises:
        OSError: it cannot be written; the file that was there stays.
    """
    unfinished = path.with_suffix(_UNFINISHED)
    try:
        with open(unfinished, "wb", opener=_open_private) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _prune_files(folder: Path, suffix: str, keeps: Callable[[Path, int], bool]) -> None:
    """Remove files of a cache, and those that a process began to write before it crashed.

    Args:
        folder: where they are.
        suffix: what the names of the cache's files end with.
        keeps: says of a file and its size whether it stays; asked about the file used last first.
    """
    found: list[tuple[int, int, Path]] = []
    for path in folder.glob(f"*{suffix}"):
        with suppress(FileNotFoundError):  # another process has removed it
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    too_many = [path for _, size, path in sorted(found, reverse=True) if not keeps(path, size)]
    remove_all((*too_many, *_stale_files(folder)))


def _stale_files(folder: Path) -> list[Path]:
    """Return the files that a process began to write and, since it crashed, did not finish."""
    before = time.time() - _STALE_SECONDS
    found: list[Path] = []
    for path in folder.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):  # another process has removed it
            if path.lstat().st_mtime < before:
                found.append(path)
    return found


LINKS_NAME: Final = "links"
MOST_LINKS: Final = 64
"""Links that are kept; the one used longest ago goes first."""
MOST_BYTES: Final = 1 << 30
"""The bytes of all their files together."""
_FORMAT: Final = b"lace-link/2\n"
_SUFFIX: Final = ".link"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLink:
    """What a file says of a link: what each side advertised, and what the peer said of it.

    Without fields there is no more to say of a record than that it is advertised. `state`
    names the state of store and policy in which that is all there is to say, if it was so.
    """

    cursor: Cursor
    claims: ClaimTable | None = None
    state: str | None = None


class LinkFiles:
    """The files of links in one lace.

    Args:
        folder: the lace's folder.
        within: a folder among them, for links of which something else is known.
        may_write: whether anything is written at all.
    """

    def __init__(self, folder: Path, *, within: str = "", may_write: bool = True) -> None:
        self.folder = folder / LINKS_NAME / within
        self.may_write = may_write

    def load(self, link_id: str) -> KeptLink | None:
        """Return what is kept of a link; None for nothing that is whole."""
        path = self._path(link_id)
        try:
            if path.stat().st_size > MOST_BYTES:
                return None
            found = _parse(path.read_bytes(), link_id)
            with suppress(OSError):
                os.utime(path)
        except OSError:
            return None
        except (ValueError, KeyError, TypeError, UnicodeDecodeError):
            self.forget(link_id)
            return None
        return found

    def save(self, link_id: str, kept: KeptLink) -> None:
        """Keep what is known of a link; a disk that does not take it is no failure."""
        if not self.may_write:
            return
        path = self._path(link_id)
        pieces = list(_pieces(kept, link_id))
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_there(path, pieces):  # nothing has changed since: a large file stays as it is
                os.utime(path)
                return
            _save_file(path, pieces)
            self._prune()

    def forget(self, link_id: str) -> None:
        """Keep nothing of a link any more."""
        if self.may_write:
            with suppress(OSError):
                self._path(link_id).unlink()

    def _path(self, link_id: str) -> Path:
        return self.folder / f"{b64a.encode(digest(link_id.encode()))}{_SUFFIX}"

    def _prune(self) -> None:
        """Remove the files that were used longest ago, where there are too many."""
        number = total = 0

        def keeps(_path: Path, size: int) -> bool:
            nonlocal number, total
            number, total = number + 1, total + size
            return number <= MOST_LINKS and (number == 1 or total <= MOST_BYTES)

        _prune_files(self.folder, _SUFFIX, keeps)


def _is_there(path: Path, pieces: Sequence[bytes | memoryview]) -> bool:
    """Tell whether a file says that it has these pieces, the last of which is their digest."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) != sum(map(len, pieces)):
                return False
            file.seek(-DIGEST_BYTES, os.SEEK_END)
            return file.read() == pieces[-1]
    except FileNotFoundError:
        return False


# -- the file: a line of format, a line of JSON, two tables, and the digest of all of it --------


def _pieces(kept: KeptLink, link_id: str) -> Iterator[bytes | memoryview]:
    cursor = kept.cursor
    tables = [each.to_pieces() for each in (cursor.theirs, cursor.ours)]
    head: dict[str, object] = {
        "link": link_id,
        "names": None if cursor.schema.all else sorted(cursor.schema.names),
        "tables": [sum(map(len, each)) for each in tables],
        "claims": None,
        "state": kept.state,
    }
    rows: list[bytes] = []
    if kept.claims is not None:
        texts = json.dumps(kept.claims.texts).encode("ascii")
        rows = [texts, *kept.claims.rows.values()]
        head["claims"] = [["", len(texts)], *((k, len(v)) for k, v in kept.claims.rows.items())]
    hasher = Hasher()
    first = (_FORMAT, json.dumps(head).encode("ascii"), b"\n")
    for piece in (*first, *tables[0], *tables[1], *rows):
        hasher.update(piece)
        yield piece
    yield hasher.digest()


def _parse(raw: bytes, link_id: str) -> KeptLink:
    """Return what a file says.

    Raises:
        ValueError, KeyError, TypeError: it is not whole, or not about this link.
    """
    body = memoryview(raw)[:-DIGEST_BYTES]
    if not raw.startswith(_FORMAT) or digest(body) != raw[-DIGEST_BYTES:]:
        raise ValueError("the file is not what was written")
    end = raw.index(b"\n", len(_FORMAT))
    head: dict[str, Any] = json.loads(raw[len(_FORMAT) : end])
    if head["link"] != link_id:
        raise ValueError("the file is of another link")
    first, second = head["tables"]
    tables = body[end + 1 :]
    names = head["names"]
    claims = _claims(head["claims"], tables[first + second :])
    return KeptLink(
        cursor=Cursor(
            AdvertisementSet.from_bytes(tables[:first]),
            AdvertisementSet.from_bytes(tables[first : first + second]),
            Schema(all=True) if names is None else Schema(names=frozenset(names)),
            0 if claims is None else text_bytes(claims.texts),
        ),
        claims=claims,
        state=None if head["state"] is None else str(head["state"]),
    )


def _claims(sizes: list[tuple[str, int]] | None, raw: memoryview) -> ClaimTable | None:
    """Return the claims of a file: texts, then the rows of each predicate."""
    if sizes is None:
        if len(raw):
            raise ValueError("bytes behind the sets")
        return None
    pieces: dict[str, bytes] = {}
    for name, size in sizes:
        pieces[name] = bytes(raw[:size])
        raw = raw[size:]
    if len(raw):
        raise ValueError("bytes behind the claims")
    return ClaimTable(tuple(map(str, json.loads(pieces.pop("")))), pieces)


MODULES_NAME: Final = "modules"
_MODULE_FORMAT: Final = b"lace-module/1\n"
_MODULE_SUFFIX: Final = ".module"


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
            body = _parse_module(raw, verifier, module_id)
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
            _save_file(path, [content])
            self._prune()

    def _path(self, verifier: str, module_id: str) -> Path:
        return self.folder / f"{_name(verifier)}.{_name(module_id)}{_MODULE_SUFFIX}"

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

        _prune_files(self.folder, _MODULE_SUFFIX, keeps)


def _name(text: str) -> str:
    return b64a.encode(digest(text.encode("utf-8")))


def _content(verifier: str, module_id: str, body: bytes) -> bytes:
    """Return the bytes of a file: format, whose and which module, its bytes, and their digest."""
    content = _MODULE_FORMAT + f"{verifier}\n{module_id}\n".encode() + body
    return content + digest(content)


def _parse_module(raw: bytes, verifier: str, module_id: str) -> bytes | None:
    """Return the module of a file; None if the file is not whole, or is about another."""
    head = _MODULE_FORMAT + f"{verifier}\n{module_id}\n".encode()
    if len(raw) < len(head) + DIGEST_BYTES or not raw.startswith(head):
        return None
    content = raw[:-DIGEST_BYTES]
    return content[len(head) :] if digest(content) == raw[-DIGEST_BYTES:] else None
