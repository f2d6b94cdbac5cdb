"""`lace status`, `log`, `verify` and `doctor`: the state of a lace, and of what it needs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api import SETTINGS_FILE, is_lace, now
from lace.api.doctor import (
    MISSING,
    OPTIONAL,
    PROBLEM,
    Check,
    examine_disk,
    examine_folder,
    examine_lace,
    examine_machine,
)
from lace.base.text import safe_text, shorten
from lace.cli.approvals import ForeignLaceError
from lace.cli.command import command as lace_command
from lace.cli.command import command_paths
from lace.cli.failures import did_you_mean
from lace.cli.output import TableColumn, plural, size_text, time_text
from lace.cli.progress import Progress
from lace.cli.session import Change, making
from lace.errors import LaceError, SettingError, UsageError, hide_decisions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lace.api import Operation
    from lace.api.lace import Damage, Verification
    from lace.cli.session import Session


# -- `lace log`: what was done to a lace, and the outcome.


def operation_json(operation: Operation) -> dict[str, object]:
    """Return an operation as JSON."""
    return {
        "operation": operation.operation_id,
        "started": operation.started,
        "finished": operation.finished,
        "command": operation.command,
        "exit_code": operation.exit_code,
        "result": dict(operation.result),
    }


def operation_text(operation: Operation) -> str:
    """Return an operation on one line, for a person."""
    failed = f" (exit {operation.exit_code})" if operation.exit_code else ""
    return f"{time_text(operation.finished)}  {operation.command}{failed}"


def _is_of(operation: Operation, commands: tuple[str, ...]) -> bool:
    """Tell whether an operation is of a command, or of one below a group of that name."""
    name = operation.command
    return any(name == each or name.startswith(f"{each} ") for each in commands)


def _warn_of_typos(session: Session, words: tuple[str, ...], found: list[Operation]) -> None:
    """Say which words no entry is of, and which command was perhaps meant."""
    lost = [word for word in words if not any(_is_of(each, (word,)) for each in found)]
    if not lost:
        return
    from lace.cli.main import cli  # only on the way to a warning

    known = {*command_paths(cli), "serve rules"}
    for word in dict.fromkeys(lost):
        if word not in known:
            hint = did_you_mean(word, sorted(known))
            session.output.warn(f"no command is called {shorten(word)!r}{hint}")


def _exchange_text(result: Mapping[str, Any]) -> str:
    """Return the outcome of an exchange as text: the peer, the records, and how it ended."""
    peer = f"{str(result['peer'])[:10]}…" if "peer" in result else ""
    address = str(result.get("address", ""))
    whom = f"{address} ({peer})" if address and peer else address or peer or "an unproven peer"
    parts = [f"with {whom}"]
    if "fixed_point" in result:
        came, size = (int(result.get(name, 0)) for name in ("received", "bytes_received"))
        parts.append(f"{plural(came, 'record')} came ({size_text(size)})")
        parts.append(f"{size_text(int(result.get('bytes_sent', 0)))} sent")
    if result.get("rejected"):
        parts.append(f"{result['rejected']:,} rejected")
    parts += [f"{result[name]:,} {name}" for name in ("confirmed", "receipts") if name in result]
    parts += ["dry run"] if result.get("dry_run") else []
    ended = "complete" if result.get("fixed_point") else result.get("reason")
    said = hide_decisions(str(result.get("message", result.get("error", ended)) or ""))
    if address and said.startswith(address):  # nobody was reached
        return said
    return "; ".join(filter(None, (", ".join(parts), said)))


def _result_text(result: Mapping[str, Any]) -> str:
    if "fixed_point" in result or "address" in result:
        return _exchange_text(result)
    parts = []
    for name, value in result.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name} {text}")
    return ", ".join(parts)


@lace_command(
    "log",
    api="Lace.operations",
    piped="One line an operation, tab-separated, the oldest first: number, started and finished "
    "(TAI), command, exit code, result (JSON).",
    json_keys={
        "operation": "its number; one line an operation, the oldest first",
        "started": "when it began (TAI)",
        "finished": "when it ended (TAI)",
        "command": "what was run",
        "exit_code": "how it ended",
        "result": "counts and identifiers, addresses, and the message of a failure",
    },
    examples=[
        ("lace log", "everything the log holds"),
        ("lace log --limit 1 --json", "the last thing that was done"),
        ("lace log --command sync --command serve", "exchanges, begun here or there"),
    ],
)
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="Only the newest N.")
@click.option(
    "--command",
    "commands",
    metavar="WORD",
    multiple=True,
    help="Only entries of this command, as import or 'key new'. Repeatable.",
)
@click.pass_obj
def log_command(session: Session, limit: int | None, commands: tuple[str, ...]) -> int:
    """Show what was done to a lace.

    Its operations with their results. Commands that change a lace, and `verify`, leave an
    entry. An exchange's has the peer as it was called, the rules, and what came and went in
    records and bytes; a terminal shows it in short. A server leaves one as `serve` for each
    link on which something moved, and one as `serve rules` whenever other rules count: their
    identifiers, or why they were refused. The setting log_max_operations says how many
    entries are kept.
    """
    output = session.output
    with session.reading("log") as lace:
        operations = lace.operations(None if commands else limit)
    if commands:
        found = [o for o in operations if _is_of(o, commands)]
        _warn_of_typos(session, commands, found)
        operations = found if limit is None else found[len(found) - min(limit, len(found)) :]
    output.show(
        [tuple(operation_json(each).values()) for each in operations],
        (
            TableColumn("#", "right", key="operation"),
            TableColumn("started", is_piped_only=True),
            TableColumn("finished (UTC)", key="finished", shown=time_text),
            TableColumn("command", style="bold"),
            TableColumn("exit", "right", key="exit_code"),
            TableColumn("result", shown=_result_text),
        ),
    )
    return 0


_OPERATIONS: Final = 5


@lace_command(
    "status",
    api="Lace.status",
    piped="One line a value: its name, a tab, the value; names as with --json. Then a line for "
    "each of the last operations, tab-separated, the oldest first: the word operation, finished "
    "(TAI), command, exit code.",
    json_keys={
        "lace": "the folder",
        "records": "how many records are stored",
        "record_bytes": "their bytes",
        "high_water": "the highest StoreRecordId ever given",
        "keys": "how many signing keys there are",
        "default_key": "the verifier of the key that signs by default, or null",
        "store_version": "the version of the store's format",
        "database_bytes": "size of the database file",
        "wal_bytes": "size of its write-ahead log",
        "segments_records": "how many records' facts are kept beside the database",
        "segments_bytes": "the size of these",
        "operations": "the last operations, as `lace log --json` gives them",
    },
    examples=[
        ("lace status", "what this lace holds"),
        ("lace status --json | jq .records", "how many records there are"),
    ],
)
@click.pass_obj
def command(session: Session) -> int:
    """Show what a lace holds.

    Records, sizes, keys and the last operations.
    """
    output = session.output
    with session.reading("status") as lace:
        values = asdict(lace.status())
        operations = lace.operations(_OPERATIONS)
    if output.json:
        output.json_document({**values, "operations": [operation_json(o) for o in operations]})
    elif output.terminal:
        rows = [(name.replace("_", " "), _shown(name, value)) for name, value in values.items()]
        rows += [("last operations" if not i else "", operation_text(o))
                 for i, o in enumerate(operations)]  # fmt: skip
        output.table((TableColumn("", style="bold"), TableColumn("")), rows, heading=False)
    else:
        for name, value in values.items():
            output.row((name, value))
        for o in operations:
            output.row(("operation", o.finished, o.command, o.exit_code))
    return 0


def _shown(name: str, value: object) -> str:
    if not isinstance(value, int):
        return "none" if value is None else str(value)
    return size_text(value) if name.endswith("_bytes") else f"{value:,}"


# -- `lace verify`: everything a lace holds, checked again.

_DAMAGED: Final = 6


def _damage_text(damage: Damage) -> str:
    if not damage.record:
        return f"damage: {damage.reason}"
    return f"damage: {damage.record} (StoreRecordId {damage.store_record_id}): {damage.reason}"


def _show_verification(session: Session, found: Verification) -> None:
    output = session.output
    counts = {"records": found.records, "bytes": found.record_bytes, "damaged": found.damaged}
    damage = [
        {
            "record": each.record or None,
            "store_record_id": each.store_record_id,
            "reason": each.reason,
        }
        for each in found.damage
    ]
    output.counts(counts, {**counts, "damage": damage})
    if output.json:
        return
    for each in found.damage:
        output.say(safe_text(_damage_text(each)))
    more = found.damaged - len(found.damage)
    if more:
        output.say(f"damage: and {more} more")


@lace_command(
    "verify",
    api="Lace.verify",
    piped="Lines of a name and a number: records, bytes, damaged; then a line that begins with "
    "`damage: ` for each damage, the first import_max_reports of them.",
    json_keys={
        "records": "how many records were checked",
        "bytes": "their bytes",
        "damaged": "how many things are not as they should be",
        "damage": "a list of {record, store_record_id, reason}; no record: the store itself",
    },
    examples=[("lace verify", "check every hash, every signature and the database")],
)
@click.pass_obj
def verify_command(session: Session) -> int:
    """Check the whole lace again.

    The database, every hash and every signature. Exit code 6 when something is damaged. What
    is damaged is never returned by other commands: take the record out, and import it again
    from a copy.
    """
    started = now()
    with session.reading("verify") as lace:
        with lace.snapshot() as snapshot:
            total = snapshot.totals().records
        with Progress(session, "verify", total, "records") as progress:
            found = lace.verify(lambda seen: progress.update(seen.records))
    exit_code = _DAMAGED if found.damaged else 0
    _show_verification(session, found)
    _log_verification(session, found, started, exit_code)
    if exit_code:
        session.output.complain(
            f"lace: the lace is damaged: {plural(found.damaged, 'fault')} found; "
            "remove what is damaged and import it again from a copy"
        )
    return exit_code


def _log_verification(session: Session, found: Verification, started: str, exit_code: int) -> None:
    """Leave an entry, where the lace can be written; it may be on a read-only disk."""
    result: dict[str, object] = {"records": found.records, "damaged": found.damaged}
    try:
        with session.open("verify") as lace:
            session.log(Change(lace, result, exit_code), "verify", started)
    except LaceError as error:
        session.output.note(f"the log of the lace has no entry for this: {error}")


# -- `lace doctor`: what is installed, found, missing, and how to fix it.


def _lace(session: Session) -> Iterator[Check]:
    try:
        folder = session.find_folder()
    except ForeignLaceError as error:
        yield Check(PROBLEM, "lace", error.message, error.hint or "")
        return
    wrong = _settings(session, folder)
    if wrong:
        yield wrong
    if folder is None:
        yield Check(OPTIONAL, "lace", "none here, nor above", "make one: lace init")
        yield from examine_disk(Path.cwd())
    elif not is_lace(folder):
        if not folder.is_file():
            yield Check(PROBLEM, "lace", f"{folder} holds no lace", f"make one: {making(folder)}")
    elif wrong:  # it cannot be opened
        yield from examine_folder(folder)
    else:
        yield from examine_lace(folder, lambda: session.reading("doctor"))


def _settings(session: Session, folder: Path | None) -> Check | None:
    """Return what is wrong with the settings; None when nothing is."""
    try:
        session.settings(folder)
    except SettingError as error:
        file = folder / SETTINGS_FILE if folder else None
        is_in_file = file is not None and error.message.startswith(str(file))
        return Check(PROBLEM, "settings", str(error), f"correct {file if is_in_file else 'it'}")
    except UsageError as error:
        return Check(PROBLEM, "lace", error.message, error.hint or "")
    return None


@lace_command(
    "doctor",
    api="api.doctor.examine_machine, api.doctor.examine_lace",
    piped="One line a thing, tab-separated: ok, optional, missing or problem; its name; what "
    "was found; what to do.",
    json_keys={
        "checks": "a list of {state, name, found, fix}",
        "problems": "how many are missing or a problem",
    },
    examples=[("lace doctor", "look at this machine and the lace here")],
)
@click.pass_obj
def doctor_command(session: Session) -> int:
    """Look at what Lace needs and finds.

    Python, libraries, the lace here, its disk and its keys. What is optional and not there is
    no problem. Exit code 3 when something needed is missing or does not work.
    """
    output = session.output
    checks = [*examine_machine(session.environ), *_lace(session)]
    problems = sum(check.state in (MISSING, PROBLEM) for check in checks)
    output.show(
        [(check.state, check.name, check.found, check.fix or None) for check in checks],
        (
            TableColumn("state", style="bold"),
            TableColumn("what", no_wrap=True, key="name"),
            TableColumn("found"),
            TableColumn("what to do", key="fix"),
        ),
        document=lambda listed: {"checks": listed, "problems": problems},
    )
    if output.table_wanted:
        output.note("all is well" if not problems else f"{problems} to look at, see above")
    return 3 if problems else 0
