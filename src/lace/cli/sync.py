"""`lace sync`: one exchange with a server, or with a command that is started for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lace.api.exchanges import MAX_WAIT_TICKS
from lace.cli.command import command as lace_command
from lace.cli.link_options import (
    CA_OPTION,
    PEER_OPTION,
    UID_MAP_OPTION,
    link_options,
    tls_options,
)
from lace.cli.link_runs import DRY_RUN_KEYS, OUTCOME_KEYS, LinkRun, logged_link, logged_result
from lace.cli.output import plural
from lace.cli.peers import SyncArguments, is_peer_name, known_of_peer, refuse_lost_files
from lace.cli.policy_files import read_own_policy, warn_of_names
from lace.cli.policy_options import offered
from lace.errors import UsageError, hide_decisions

if TYPE_CHECKING:
    from lace.api.links import Outcome
    from lace.cli.session import Session


_OPEN_SERVER: Final = "the server has to go on for that (lace serve --open), with its clock set"


def _arguments(session: Session, given: SyncArguments) -> SyncArguments:
    """Return what is known of the peer, and see that there is a selector."""
    found = known_of_peer(session, given)
    if found.select is None:
        raise UsageError("--select FILE is missing", hint="an exchange takes your selector")
    if given.address is not None and is_peer_name(given.address):
        refuse_lost_files(session.folder(), given, found)
    return found


def _what_stays(outcome: Outcome, *, is_open: bool) -> str:
    """Return what a person is told whom a signal has brought back."""
    count = len(outcome.received)
    came = f"{plural(count, 'record')} came{' on the last link' if is_open else ''}"
    stored = f"{came} and {'is' if count == 1 else 'are'} stored"
    return stored + ("" if outcome.at_fixed_point else "; run it again to go on")


@lace_command(
    "sync",
    api="connect",
    piped="Lines of a name and a value: at-fixed-point (yes or no), reason, exchange-plan-id, "
    "link-id, peer-verifier, received, rejected, not-available, bytes-received, bytes-sent, "
    "reconciliation-bytes-received, reconciliation-bytes-sent, control-bytes-received, "
    "control-bytes-sent, loops, turns, receipts, receipts-omitted, pending-here, pending-there, "
    "and seconds-PHASE for each phase. With --dry-run: lines of request, send or named, a tab, and "
    "a hash.",
    json_keys={**OUTCOME_KEYS, **DRY_RUN_KEYS},
    examples=[
        (
            "lace sync tcp:example.org --select team.lace --expose team-view.lace@V.….H3 "
            "--peer V.….H3",
            "converge with a server, if it is the one that holds that key",
        ),
        (
            "lace sync stdio --select team.lace --expose view.lace -- "
            "ssh example.org lace serve stdio --select team.lace --expose view.lace",
            "the same over ssh, with no server running",
        ),
        ("lace sync office --open", "stay in step with [peer.office] of lace.toml"),
        ("lace sync office --dry-run", "what would move, and what the peer learns by asking"),
        ("lace sync unix:/run/lace.sock --select all.lace --json", "for a program"),
    ],
)
@click.argument("address", metavar="ADDRESS")
@click.argument("child", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@link_options(select_required=False)
@PEER_OPTION
@UID_MAP_OPTION
@CA_OPTION
@click.option(
    "--tls-pin",
    is_flag=True,
    default=None,
    help="For wss, instead of an authority: take the server's certificate if --peer proves in "
    "hello that it is its own. Your selector is sent before that proof.",
)
@click.option(
    "--wait-ticks",
    metavar="N",
    type=click.IntRange(1, MAX_WAIT_TICKS),
    help="Go on after a fixed point until N ticks have passed, for rules that read TickTAI, and "
    "end then; exit code 1 if they do not come, as from a server without --open.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Go up to the request lists and end there: nothing moves. Shows what would, and what "
    "the peer has learned.",
)
@click.option(
    "--capture",
    metavar="FILE",
    help="Write what goes over the wire, both ways, as text. Records are in it.",
)
@tls_options(
    "Your certificate, PEM, where a wss server asks for one.",
    "The key of that certificate, PEM.",
)
@click.pass_obj
def command(
    session: Session,
    /,
    address: str,
    child: tuple[str, ...],
    is_open: bool | None,
    dry_run: bool,
    capture: str | None,
    **rest: Any,  # noqa: ANN401 - the options, by their names
) -> int:
    """Converge with a peer on what both select.

    ADDRESS is `stdio`, `unix:/path`, `tcp:host:port`, `ws:host` or `wss:host`, or the name of a
    table [peer.NAME] in lace.toml, which has these options by their names (address, select, expose,
    lowering, allow-undefined, field, all-fields, format, key, claim, stdio-peer, peer, uid-map, ca,
    tls-cert, tls-key, tls-pin, plain, open, receipts, wait-ticks, command). With `stdio`, COMMAND
    is started, and its standard input and output are the connection. A command that a table names
    is shown and asked for once, at a terminal; without one it is refused (exit 1).

    What both selectors choose, and each side exposes to the other, moves both ways; every
    record is validated before it is stored. Exit code 0 means that nothing more was to be
    had, 1 that it ended before that, or before the ticks of --wait-ticks, 4 that the peer or the
    network failed. Whatever was received stays, and running it again completes the set. A first
    Ctrl-C or SIGTERM ends it at a good moment, and an evaluation that takes long at once; a
    second ends the process at once.

    With --dry-run both sides compare what they have, and then this one breaks off: to the
    peer that is a connection that was lost.
    """
    given = _arguments(session, SyncArguments(address=address, command=child, open=is_open, **rest))
    policy = read_own_policy(
        session,
        given.select or "",
        given.expose or (),
        given.lowering,
        given.allow_undefined or (),
        offered(given.field, given.all_fields, given.format),
    )
    with session.changing("sync") as change:
        change.result.update(logged_link(address, policy))
        warn_of_names(session, change.lace, policy)
        run = LinkRun(
            session,
            change.lace,
            given,
            policy,
            given.signing_key(change.lace),
            open=bool(given.open) and not dry_run,
            wait_ticks=0 if dry_run else given.wait_ticks or 0,
            receipts=bool(given.receipts),
            dry_run=dry_run,
            capture=capture,
        )
        try:
            run.run()
        finally:
            if run.outcome is not None:
                change.result.update(logged_result(run.outcome))
                change.result.update({"dry_run": True} if dry_run else {})
                session.durable = _what_stays(run.outcome, is_open=bool(given.open))
                run.show()
        outcome = run.finish(given.address)
        change.exit_code = run.exit_code
    if change.exit_code:
        advice = _OPEN_SERVER if outcome.ticks_missed else "run it again"
        reason = hide_decisions(outcome.reason)
        session.output.complain(f"lace: {given.address}: {reason}; {advice}")
    return change.exit_code
