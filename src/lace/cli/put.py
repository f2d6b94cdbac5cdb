"""`lace put`: make one record and store it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from lace.cli.command import command as lace_command
from lace.errors import LimitExceeded, RecordError, UsageError
from lace.record.model import Blob, Plex, Record
from lace.store.keys import parse_verifier

if TYPE_CHECKING:
    from lace.api import Lace
    from lace.cli.session import Session
    from lace.record.headers import Header


def _too_large(name: str, size: int | None, limit: int) -> LimitExceeded:
    shown = f"{size:,}" if size is not None else f"more than {limit:,}"
    return LimitExceeded(
        f"{name} has {shown} bytes of data",
        limit="max_data_bytes",
        allowed=limit,
        observed=size,
        rule="010-size-limit",
    )


def _read_data(session: Session, name: str | None, limit: int) -> bytes:
    if name is None or name == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a FILE")
        if sys.stdin.isatty():
            session.output.note("reading from the terminal; end with Ctrl-D")
        return _read_limited(sys.stdin.buffer, "standard input", limit)
    path = Path(name)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size if path.is_file() else 0
            if size > limit:
                raise _too_large(name, size, limit)
            return _read_limited(file, name, limit)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error


def _read_limited(file: IO[bytes], name: str, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(name, None, limit)
    return data


def _parse_headers(texts: tuple[str, ...]) -> list[Header]:
    found: list[Header] = []
    for text in texts:
        name, separator, value = text.partition(": ")
        if not separator:
            raise UsageError(f"--header {text!r} has no `: `", hint="write 'Name: value'")
        found.append((name, value))
    return found


def _check_usage(coordinate: dict[str, str | None], beyond: dict[str, bool]) -> bool:
    """Tell whether a Plex is wanted; refuse half a coordinate, and what only a Plex has."""
    missing = [f"--{name}" for name, value in coordinate.items() if value is None]
    if not missing:
        return True
    if len(missing) < len(coordinate):
        raise UsageError(
            f"half a coordinate: {' and '.join(missing)} missing",
            hint="give --group, --app and --name, or none of them for a Blob",
        )
    given = [f"--{name}" for name, is_given in beyond.items() if is_given]
    if given:
        need = "needs" if len(given) == 1 else "need"
        raise UsageError(
            f"{' and '.join(given)} {need} a coordinate: a Blob has only data",
            hint="give --group, --app and --name",
        )
    return False


@lace_command(
    "put",
    api="Lace.add",
    piped="The record's hash, on one line.",
    json_keys={
        "id": "the record's hash",
        "type": "B, P or S",
        "bytes": "how many bytes the record has",
        "stored": "false if the lace had it already",
    },
    examples=[
        ("lace put photo.jpg", "store a file as it is, a Blob"),
        ("date | lace put --group u --app notes --name today", "store data with a coordinate"),
        ("lace put a.txt --group u --app notes --name a --sign", "sign it with the default key"),
        (
            "lace put a.txt --group u --app notes --name a --header '+Link: about B.….H3'",
            "link it to another record",
        ),
    ],
)
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--group", metavar="G", help="The group path of the coordinate.")
@click.option("--app", metavar="A", help="The app of the coordinate.")
@click.option("--name", metavar="N", help="The name of the coordinate.")
@click.option("--tai", metavar="T", help="The TAI instant; the clock's, when not given.")
@click.option("--header", "headers", metavar="'Name: value'", multiple=True, help="Repeatable.")
@click.option("--sign", is_flag=True, help="Sign with the default key.")
@click.option("--key", metavar="V", help="Sign with the key of this verifier.")
@click.pass_obj
def command(
    session: Session,
    file: str | None,
    group: str | None,
    app: str | None,
    name: str | None,
    tai: str | None,
    headers: tuple[str, ...],
    sign: bool,
    key: str | None,
) -> int:
    """Make one record, store it and print its hash.

    Its data is FILE's, or what comes from standard input.

    Without a coordinate it is a Blob: data and nothing else. With --group, --app and
    --name it is a Plex; signed, a Seal. Headers are sorted by name.
    """
    beyond = {"tai": tai is not None, "header": bool(headers), "sign": sign, "key": key is not None}
    is_plex = _check_usage({"group": group, "app": app, "name": name}, beyond)
    signer = parse_verifier(key) if key is not None else None
    extra = _parse_headers(headers)

    def make(lace: Lace) -> Record:
        data = _read_data(session, file, lace.settings.max_data_bytes)
        if not is_plex:
            return Blob(data)
        plex = Plex(
            group=group or "", app=app or "", name=name or "", data=data, tai=tai, headers=extra
        )
        return plex.seal(signing_key) if signing_key else plex

    with session.changing("put") as change:
        signing_key = change.lace.keys.load(signer) if sign or signer else None
        try:
            record = make(change.lace)
        except RecordError as error:
            error.place = None  # an offset in a record that does not exist helps nobody
            raise
        (identifier,), admission = change.lace.admit([record])
        result = {
            "id": identifier,
            "type": record.type,
            "bytes": len(record.bytes),
            "stored": bool(admission.stored),
        }
        change.result.update(result)
    if session.output.json:
        session.output.json_document(result)
    else:
        session.output.line(identifier)
        if not admission.stored:
            session.output.note("the lace had this record already")
    return 0
