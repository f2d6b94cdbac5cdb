"""The entry point: a command line in, an exit code out.

Exit codes: 0 done; 1 no, or refused; 2 wrong usage, no lace, a missing file; 3 the
environment lacks something; 4 a peer failed; 5 busy; 6 damaged; 130 interrupted,
141 the reader of the output has gone, 143 terminated.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import redirect_stderr, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import LazyGroup
from lace.cli.failures import (
    INTERRUPTED,
    PIPE_CLOSED,
    TERMINATED,
    Terminated,
    describe_failure,
    without_secrets,
)
from lace.cli.session import Session
from lace.cli.signals import end_by_next_signal, forget_interrupt, heed_signals
from lace.errors import LaceError, RuleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# -- The register of commands: the module of each, and what it does in a sentence.
#
# The help of `lace` is written from this, without loading what the commands need.

REGISTER: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "init": ("lace.cli.config:init_command", "Make a lace."),
        "status": ("lace.cli.status", "Show what a lace holds."),
        "key": ("lace.cli.key", "Make, list and choose the signing keys of a lace."),
        "put": ("lace.cli.records:put_command", "Make one record, store it and print its hash."),
        "get": ("lace.cli.records:get_command", "Write one record, or only its data."),
        "list": ("lace.cli.records:list_command", "Show a table of records."),
        "facts": ("lace.cli.records:facts_command", "Write record facts, sorted."),
        "rules": ("lace.cli.rules", "Check, format and name rules."),
        "query": ("lace.cli.query", "Evaluate rules and write the facts that follow."),
        "why": (
            "lace.cli.query:why_command",
            "Show why a fact follows from rules, or why it does not.",
        ),
        "plan": ("lace.cli.plan", "Show the exchange plan of two selectors."),
        "preview": ("lace.cli.preview", "Show what an exchange would send and request."),
        "disclose": (
            "lace.cli.disclose",
            "Show what a viewer may query of this lace, before a byte leaves.",
        ),
        "test": (
            "lace.cli.test",
            "Run policy tests: files that say what a policy must allow, and what it must not.",
        ),
        "sync": ("lace.cli.sync", "Converge with a peer on what both select."),
        "serve": ("lace.cli.serve", "Accept exchanges."),
        "remote": ("lace.cli.remote", "Get, list, store and watch records of a peer."),
        "trace": (
            "lace.cli.trace",
            "Read captures of exchanges, which `lace sync --capture FILE` writes.",
        ),
        "import": ("lace.cli.import_", "Store the records of files."),
        "export": ("lace.cli.export", "Write the bytes of records."),
        "remove": ("lace.cli.export:remove_command", "Take records out of the lace."),
        "verify": ("lace.cli.status:verify_command", "Check the whole lace again."),
        "pipeline": ("lace.cli.pipeline", "Work on many records at once, with Spark."),
        "config": ("lace.cli.config", "Look at settings."),
        "log": ("lace.cli.status:log_command", "Show what was done to a lace."),
        "completion": (
            "lace.cli.completion",
            "Print the script with which a shell completes names.",
        ),
        "explain": ("lace.cli.explain", "Explain an id that a message shows."),
        "doctor": ("lace.cli.status:doctor_command", "Look at what Lace needs and finds."),
        "demo": ("lace.cli.demo", "Show Lace at work."),
    }
)
"""Every command with its module and its summary, in the order of the help."""


COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {name: module for name, (module, _summary) in REGISTER.items()}
)
"""Every command with its module, in the order of the help."""


class _Root(LazyGroup):
    modules = COMMANDS
    summaries = MappingProxyType({name: summary for name, (_, summary) in REGISTER.items()})


@click.group(
    "lace",
    cls=_Root,
    invoke_without_command=True,
    examples=[
        ("lace demo", "see Lace at work, in a temporary folder"),
        ("lace init && lace key new", "make a lace in this folder, and a key to sign with"),
        ("lace put note.txt --group u --app notes --name today --sign", "store a signed note"),
        ("lace list", "show what is stored"),
        ("lace get //u//notes//today --body", "read it back"),
        ("lace query -e \"Note(P) :- Field(P,'App',_,'notes').\"", "ask a question"),
        ('eval "$(lace completion bash)"', "complete names in bash (or zsh, fish)"),
    ],
)
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Keep content-addressed records, signed or not, and ask questions of them.

    A lace is a folder of records. A RECORD argument is a hash (`B.…`, `P.…` or `S.…`),
    `////hash`, or a coordinate `//group//app//name`, which means its newest version.

    Data goes to standard output, everything else to standard error: tables on a
    terminal, lines for scripts when piped, JSON with --json.

    Exit codes: 0 done; 1 no, or refused; 2 wrong usage, no lace or a missing file; 3 the
    environment lacks something; 4 a peer or the network failed; 5 the lace is busy; 6 the
    lace is damaged; 130 interrupted, 141 pipe closed, 143 terminated.
    """
    if ctx.invoked_subcommand is None:
        session = ctx.ensure_object(Session) if ctx.obj is None else ctx.obj
        session.output.text(f"{ctx.get_help()}\n")
    return 0


def invoke(arguments: Sequence[str], session: Session) -> int:
    """Run a command line in this process; errors are the caller's."""
    try:
        with cli.make_context("lace", list(arguments), obj=session) as ctx:
            outcome = cli.invoke(ctx)
    except click.exceptions.Exit as done:
        outcome = done.exit_code
    session.output.flush()
    return outcome if isinstance(outcome, int) else 0


def run(arguments: Sequence[str], session: Session) -> int:
    """Run a command line and report its failure, if any; returns the exit code."""
    try:
        code = invoke(arguments, session)
        if code:
            session.output.offer_explanation()
        return code
    except (Exception, KeyboardInterrupt, Terminated) as error:  # noqa: BLE001 - all are reported
        return _tell(error, session, "--json" in arguments)


def _tell(error: BaseException, session: Session, json_wanted: bool) -> int:
    failure = describe_failure(error)
    if failure.exit_code in (INTERRUPTED, TERMINATED):
        failure.hint = session.durable
    if failure.exit_code >= INTERRUPTED:
        _abandon_output()  # the reader may have gone, or may not be reading
    if failure.exit_code == PIPE_CLOSED:
        return failure.exit_code
    try:
        session.output.flush()  # what was written before stays before
    except OSError:
        _abandon_output()
    with suppress(OSError):
        if session.debug:
            for part in traceback.format_exception(error):
                for line in without_secrets(part).rstrip("\n").split("\n"):
                    session.output.complain(line)
        session.output.complain(failure.line())
        if (session.output.json or json_wanted) and sys.stderr is not None:
            sys.stderr.write(json.dumps(failure.as_json()) + "\n")
        else:
            if isinstance(error, LaceError):
                findings = error.findings if isinstance(error, RuleError) else ()
                session.output.cite([error, *(f for f in findings if f.severity == "error")])
            session.output.offer_explanation()
    return failure.exit_code


def _abandon_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter ends in silence."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    from lace.cli.completion import COMPLETION_VARIABLE

    given = {"obj": Session(os.environ)}
    with redirect_stderr(None):  # a warning would land in the line that is being typed
        return shell_complete(cli, given, "lace", COMPLETION_VARIABLE, instruction)


def main() -> None:
    """Run the command line of this process, and end it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    heed_signals()
    instruction = os.environ.get("_LACE_COMPLETE")
    if instruction:
        sys.exit(_complete(instruction))
    try:
        code = run(sys.argv[1:], Session(os.environ))
    except (KeyboardInterrupt, Terminated) as error:  # a second signal, while telling of a first
        code = describe_failure(error).exit_code
    end_by_next_signal()
    forget_interrupt()
    sys.exit(code)
