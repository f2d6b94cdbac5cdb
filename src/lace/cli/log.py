"""`lace log`: the operations on a lace, and their outcomes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from lace.base.text import shorten
from lace.cli.command import command as lace_command
from lace.cli.command import command_paths
from lace.cli.output import Column, plural, size_text
from lace.cli.suggestions import did_you_mean
from lace.cli.times import time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.cli.session import Session
    from lace.store.sqlite.store import Operation

__all__ = ["command", "operation_json", "operation_text"]


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
    said = str(result.get("message", result.get("error", ended)) or "")
    if address and said.startswith(address):  # nobody was reached
        return said
    return "; ".join(filter(None, (", ".join(parts), said)))


def _result_text(operation: Operation) -> str:
    if "fixed_point" in operation.result or "address" in operation.result:
        return _exchange_text(operation.result)
    parts = []
    for name, value in operation.result.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name} {text}")
    return ", ".join(parts)


@lace_command(
    "log",
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
def command(session: Session, limit: int | None, commands: tuple[str, ...]) -> int:
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
    if output.table_wanted:
        columns = (
            Column("#", "right"),
            Column("finished (UTC)"),
            Column("command", style="bold"),
            Column("exit", "right"),
            Column("result"),
        )
        rows = [
            (o.operation_id, time_text(o.finished), o.command, o.exit_code, _result_text(o))
            for o in operations
        ]
        output.table(columns, rows)
        return 0
    for o in operations:
        if output.json:
            output.json_line(operation_json(o))
        else:
            result = json.dumps(dict(o.result), ensure_ascii=False)
            output.row((o.operation_id, o.started, o.finished, o.command, o.exit_code, result))
    return 0
