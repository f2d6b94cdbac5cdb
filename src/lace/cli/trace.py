"""`lace trace`: captures of exchanges, to be read and replayed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.link_options import path_of
from lace.cli.output import plural
from lace.cli.trace_story import STORY_KEYS, Story
from lace.errors import LaceError, Place
from lace.exchange.hello import channel_digest
from lace.trace.files import CaptureFile
from lace.trace.replay import WAY_NAMES, replay
from lace.trace.walk import walk

if TYPE_CHECKING:
    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.trace.replay import Replayed

__all__ = ["command"]


@group(
    "trace",
    examples=[
        ("lace sync office --capture talk.trace", "capture an exchange"),
        ("lace trace show talk.trace", "read it"),
        ("lace trace replay talk.trace", "prove that it is as it should be"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Read captures of exchanges, which `lace sync --capture FILE` writes.

    No lace, no peer and no network are needed.
    """
    require_subcommand(ctx)


@command.command(
    "show",
    cls=LaceCommand,
    piped="The same lines as on a terminal: a line for each connection and stage, and for each "
    "item > (sent) or < (came), its offset, what it is and what it says.",
    json_keys=STORY_KEYS,
    examples=[
        ("lace trace show talk.trace", "the story of an exchange"),
        ("lace trace show talk.trace --facts", "with every fact"),
        ("lace trace show talk.trace --json", "a line of JSON for each item"),
    ],
)
@click.argument("file", metavar="FILE")
@click.option("--facts", "with_facts", is_flag=True, help="Show every fact, not only how many.")
@click.pass_obj
def show(session: Session, file: str, with_facts: bool) -> int:
    """Tell what went over the wire: phases, items, their offsets, and bytes by phase.

    What breaks the rules of a stream or of an exchange is shown where it stands; that a capture
    could be read is all that exit code 0 says. A file that is no capture gives 1, a missing one 2.
    """
    settings, _ = session.settings(session.find_settings())
    story = Story(session.output, with_facts=with_facts)
    with CaptureFile(Path(file)) as capture:
        while capture.begin():
            story.begin()
            for told in walk(capture, settings):
                story.tell(told)
    return 0


@command.command(
    "replay",
    cls=LaceCommand,
    piped="A line for each connection: how much was replayed and that it is identical; then "
    "lines for what was agreed and how it ended.",
    json_keys={
        "connection": "the number of the connection; one line of JSON for each",
        "items": "items that were read and written again, to the same bytes",
        "records": "records among them; all are valid",
        "sent": "bytes that were sent",
        "came": "bytes that came",
        "plan": "the E. identifier of the plan that both agreed on, or null",
        "link": "the identifier of the link, or null",
        "proven": "the verifiers that were proven by hello: sent, came",
        "claimed": "the verifiers that were claimed without a signature: only a transport can have "
        "proven them",
        "unjudged": "the directions whose proof does not hold by the capture alone",
        "stage": "where it ended",
        "whole": "whether that was behind a whole loop",
        "settled": "whether nothing was requested in that loop",
    },
    examples=[
        ("lace trace replay talk.trace", "read, judge and write again every byte"),
        (
            "lace trace replay talk.trace --channel-cert server.pem",
            "with the certificate that proofs over wss contain",
        ),
    ],
)
@click.argument("file", metavar="FILE")
@click.option(
    "--channel-cert",
    metavar="FILE",
    help="The server's certificate, PEM, for an exchange over wss: proofs contain it.",
)
@click.pass_obj
def replay_command(session: Session, file: str, channel_cert: str | None) -> int:
    """Read both directions, write them again, and compare: every byte must be the same.

    On the way every record is validated; blocks must stand in a phase that has them, records
    must answer requests, and plan and proofs are computed again from what both sides sent. Exit
    code 1 reports the first thing that is not as it should be, with its offset. What depends on
    what the sides had stored is not judged: a capture does not have it.
    """
    settings, _ = session.settings(session.find_settings())
    channel = None
    if (certificate := path_of(channel_cert)) is not None:
        from lace.transport.tls import load_certificate

        channel = channel_digest(load_certificate(certificate))
    with CaptureFile(Path(file)) as capture:
        try:
            for done in replay(capture, settings, os.urandom, channel=channel):
                _show(session.output, done)
        except LaceError as error:
            if error.place is not None and error.place.source != file:
                source = f"{file}: {error.place.source}"
                error.place = Place(source, error.place.line, offset=error.place.offset)
            raise
    return 0


def _show(output: Output, done: Replayed) -> None:
    agreed, end = done.agreed, done.end
    if end is None:
        raise AssertionError("a walk ends with an end")
    if output.json:
        output.json_line(
            {
                "connection": done.number,
                "items": done.items,
                "records": done.records,
                **{WAY_NAMES[way]: size for way, size in done.sizes.items()},
                "plan": agreed.plan_id if agreed else None,
                "link": agreed.link_id if agreed else None,
                "proven": {WAY_NAMES[w]: v for w, v in agreed.proven.items()} if agreed else {},
                "claimed": {WAY_NAMES[w]: v for w, v in agreed.claimed.items()} if agreed else {},
                "unjudged": [WAY_NAMES[way] for way in agreed.unjudged] if agreed else [],
                "stage": str(end.stage),
                "whole": end.is_whole,
                "settled": end.is_settled,
            }
        )
        return
    output.say(
        f"connection {done.number}: replayed {plural(done.items, 'item')}, "
        f"{done.sizes['>']:,} bytes sent and {done.sizes['<']:,} came, identical; "
        f"{plural(done.records, 'record')}, all valid"
    )
    if agreed is not None:
        output.say(f"  plan {agreed.plan_id}")
        for way, name in (("proven here", ">"), ("proven there", "<")):
            output.say(f"  {way}: {_proof(done, name)}")
    where = "after a whole loop" if end.is_whole else f"in {end.stage}"
    settled = ", in which nothing was requested" if end.is_settled else ""
    output.say(f"  ended {where}{settled}")


def _proof(done: Replayed, way: str) -> str:
    agreed = done.agreed
    if agreed is None:
        return "nobody"
    for direction, verifier in agreed.proven.items():
        if direction == way:
            return verifier
    for direction, verifier in agreed.claimed.items():
        if direction == way:
            return f"{verifier}, by a claim that only the transport can have proven"
    if way in agreed.unjudged:
        return "not by this capture alone; over wss name the server's certificate, --channel-cert"
    return "nobody"
