"""Peers with a name: the tables `[peer.NAME]` of `lace.toml`.

    [peer.office]
    address = "wss:office.example"
    select = "../team.lace"
    expose = ["../team-view.lace@V.….H3"]
    peer = "V.….H3"

A table has the options of `lace sync` by their names; command-line options override it. Files
are named from the folder of `lace.toml`.
"""

from __future__ import annotations

import difflib
import os.path
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from lace.api import SETTINGS_FILE, parse_verifier
from lace.api.exchanges import MAX_WAIT_TICKS
from lace.api.policy import LOWERINGS
from lace.base.text import safe_text
from lace.cli.approvals import approve_command
from lace.cli.policy_options import parse_exposure
from lace.errors import Place, SettingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lace.api import Lace, SigningKey
    from lace.cli.session import Session


_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_ADDRESSES: Final = frozenset({"stdio", "unix", "tcp", "ws", "wss"})
_FILES: Final = frozenset({"select", "uid_map", "ca", "tls_cert", "tls_key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncArguments:
    """What is said of a peer, on the command line or in its table; None: nothing."""

    address: str | None = None
    command: tuple[str, ...] | None = None
    select: str | None = None
    expose: tuple[str, ...] | None = None
    lowering: str | None = None
    allow_undefined: tuple[str, ...] | None = None
    field: tuple[str, ...] | None = None
    all_fields: bool | None = None
    format: tuple[str, ...] | None = None
    key: str | None = None
    claim: str | None = None
    stdio_peer: str | None = None
    peer: str | None = None
    uid_map: str | None = None
    ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_pin: bool | None = None
    plain: bool | None = None
    open: bool | None = None
    receipts: bool | None = None
    wait_ticks: int | None = None

    @property
    def expected(self) -> tuple[str, ...]:
        """The verifiers that the peer may prove; none: anyone."""
        return () if self.peer is None else (str(parse_verifier(self.peer)),)

    def signing_key(self, lace: Lace) -> SigningKey | None:
        """Return the key of a lace that `--key` names; None where it names none."""
        return None if self.key is None else lace.keys.load(parse_verifier(self.key))

    def over(self, table: SyncArguments) -> SyncArguments:
        """Return both together; what is said here counts."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {name: value for name, value in own.items() if value not in (None, ())}
        # Of the two ways to say who this side is, and which fields it offers, one counts.
        other = {"key": "claim", "claim": "key", "field": "all_fields", "all_fields": "field"}
        dropped = dict.fromkeys(other[name] for name in given.keys() & other.keys())
        return replace(table, **{**dropped, **given})


_KINDS: Final[dict[str, tuple[str, type]]] = {
    "command": ("a list of texts", list),
    "expose": ("a list of texts", list),
    "allow_undefined": ("a list of texts", list),
    "field": ("a list of texts", list),
    "all_fields": ("true or false", bool),
    "format": ("a list of texts", list),
    "plain": ("true or false", bool),
    "open": ("true or false", bool),
    "receipts": ("true or false", bool),
    "tls_pin": ("true or false", bool),
    "wait_ticks": (f"a whole number from 1 to {MAX_WAIT_TICKS:,}", int),
}


def is_peer_name(text: str) -> bool:
    """Tell whether an ADDRESS is the name of a peer: no address looks like one."""
    return bool(_NAME.fullmatch(text)) and text not in _ADDRESSES


def peer_tables(folder: Path) -> dict[str, object]:
    """Return the tables of peers that the `lace.toml` of a lace has, by name."""
    import tomllib  # only a named peer needs it

    path = folder / SETTINGS_FILE
    try:
        found = tomllib.loads(path.read_text("utf-8")).get("peer", {})
    except FileNotFoundError:
        found = {}
    except (OSError, ValueError) as error:
        raise SettingError(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


def read_peer(folder: Path, name: str) -> SyncArguments:
    """Return what the `lace.toml` of a lace says of a peer."""
    path = folder / SETTINGS_FILE
    tables = peer_tables(folder)
    if name not in tables:
        near = difflib.get_close_matches(name, tables, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"write an address, as tcp:host:port, or a table [peer.{name}] into {path}"
        )
        raise UsageError(f"there is no peer {name!r} in {path}", hint=hint)
    return _read_table(path, name, tables[name])


def _read_table(path: Path, name: str, table: object) -> SyncArguments:
    place = Place(f"{path}: [peer.{name}]")
    if not isinstance(table, dict):
        raise SettingError("a peer is a table", place=place, hint=f"write [peer.{name}]")
    known = [each.name for each in fields(SyncArguments)]
    made: dict[str, Any] = {}
    for word, value in table.items():
        key = word.replace("-", "_")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it may have {', '.join(known)}"
            raise SettingError(f"a peer has no {word!r}", place=place, hint=hint)
        what, kind = _KINDS.get(key, ("a text", str))
        texts = value if isinstance(value, list) else []
        is_kind = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not is_kind or not all(isinstance(each, str) for each in texts):
            raise SettingError(f"{word} is {what}", place=place, hint=f"write {what}")
        made[key] = tuple(texts) if kind is list else value
    if made.get("address") is None:
        raise SettingError("a peer has an address", place=place, hint='write address = "tcp:…"')
    if made.get("lowering") not in (None, *LOWERINGS):
        raise SettingError(
            "there is no such lowering", place=place, hint=f"it is one of {', '.join(LOWERINGS)}"
        )
    return _from_folder(path.parent, SyncArguments(**made))


def lost_files(folder: Path, name: str, table: SyncArguments) -> Iterator[UsageError]:
    """Yield what is to be said of each file that a peer's table names and that is not there."""
    named = [getattr(table, each) for each in sorted(_FILES)]
    named += [parse_exposure(each, "expose").file for each in table.expose or ()]
    for file in named:
        if file is not None and not os.path.exists(file):  # noqa: PTH110 - Path's may fail
            yield UsageError(
                f"there is no file {safe_text(file)}",
                place=Place(f"{folder / SETTINGS_FILE}: [peer.{name}]"),
                hint=f"names in it count from the folder of the lace, {folder}",
            )


def refuse_lost_files(folder: Path, given: SyncArguments, known: SyncArguments) -> None:
    """Refuse a peer whose table names a file that is not there, and that is asked for."""
    over = {each: None for each in (*_FILES, "expose") if getattr(given, each) not in (None, ())}
    for lost in lost_files(folder, given.address or "", replace(known, **over)):
        raise lost


def _from_folder(folder: Path, table: SyncArguments) -> SyncArguments:
    """Return a table with its files named from its folder."""
    named: dict[str, Any] = {
        name: str(folder / value) for name in _FILES if (value := getattr(table, name)) is not None
    }
    exposing = None
    if table.expose is not None:
        exposing = tuple(str(folder / each) for each in table.expose)
        for each in exposing:
            parse_exposure(each, "expose")
    if table.command and "/" in table.command[0]:
        # Else an approval of ./run would hold for a file of that name in any folder.
        program, *arguments = table.command
        named["command"] = (str(folder.resolve() / program), *arguments)
    return replace(table, expose=exposing, **named)


def known_of_peer(session: Session, given: SyncArguments) -> SyncArguments:
    """Return what is known of a peer, from its table and the command line."""
    if given.address is None or not is_peer_name(given.address):
        return given
    folder = session.folder()
    table = read_peer(folder, given.address)
    if table.command and not given.command:
        approve_command(
            session.environ,
            session.output,
            lace=folder,
            peer=given.address,
            command=table.command,
        )
    return replace(given, address=None).over(table)
