"""`lace preview`: what an exchange would send and request, with no peer and no network."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api.policy import ask_again
from lace.cli.command import command as lace_command
from lace.cli.output import TableColumn, plural, short_identifiers, time_text
from lace.cli.policy_files import (
    explain_empty_view,
    note_missing_facts,
    note_no_record,
    offer_text,
    read_policy,
    warn_of_names,
    warn_of_unmet,
)
from lace.cli.policy_options import exchange_options
from lace.cli.progress import Waiting
from lace.cli.records import MOST_ROWS, SHORT, identifier_column, remark_cut, show_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.api.policy import Fact, Preview
    from lace.api.records import SqliteSnapshot
    from lace.cli.output import Output
    from lace.cli.policy_files import ReadPolicy
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session


class _Answer:
    """A preview as it is told."""

    def __init__(self, read: ReadPolicy, preview: Preview) -> None:
        self.read = read
        self.executable = preview.executable
        self.their_work = preview.their_work
        self.local_tai = preview.local_tai
        self.offer = preview.offer
        self.shows_nothing = preview.shows_nothing
        self.send = sorted(preview.permissions.may_send)
        self.request = sorted(preview.permissions.may_request)
        self.not_here = sorted(preview.not_here)
        self.already_here = sorted(preview.already_here)
        self.lines = preview.fact_lines()

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        executable = self.executable
        return {
            "plan": executable.plan.id,
            "lowering": executable.plan.lowering,
            "index": executable.index,
            "viewer": self.read.viewer,
            "exposures": [each.module.id for each in executable.exposures],
            "local_tai": self.local_tai,
            "offer": self.offer.to_json(),
            "may_send": self.send,
            "not_here": self.not_here,
            "may_request": self.request,
            "already_here": self.already_here,
            "peer_work": self.their_work,
        }

    def write_page(self, output: Output, snapshot: SqliteSnapshot) -> None:
        """Write a summary and tables for a person."""
        executable = self.executable
        count = len(executable.exposures)
        rows = [
            ("plan", executable.plan.id),
            ("lowering", executable.plan.lowering),
            ("you are", f"operand {executable.index}, which {_ROLES[executable.index]}"),
            ("the peer is", self.read.viewer or f"unproven, seen as {executable.viewer}"),
            ("exposed by", plural(count, "module") if count else "nothing"),
        ]
        if self.local_tai is not None:
            rows.append(("at", f"{time_text(self.local_tai)} UTC, {self.local_tai}"))
        rows.append(("advertised", offer_text(self.offer)))
        output.table((TableColumn("", style="bold"), TableColumn("")), rows, heading=False)
        output.line("")
        output.say(f"would be sent: {_count(self.send)}")
        show_records(output, snapshot, self.send)
        output.line("")
        output.say(f"would be requested: {_count(self.request)}")
        self._show_requests(output)

    def _show_requests(self, output: Output) -> None:
        if not self.request:
            return
        claims = _claims(self.read.public, self.request[:MOST_ROWS])
        here = frozenset(self.already_here)
        short = short_identifiers(chain(claims, (source for _, source in claims.values())))
        rows = [
            (
                short.get(record, record),
                coordinate,
                short.get(source, source),
                "here already" if record in here else "",
            )
            for record, (coordinate, source) in claims.items()
        ]
        columns = (
            identifier_column(),
            TableColumn("claimed coordinate"),
            TableColumn("advertised by"),
            TableColumn(""),
        )
        output.line("")
        output.table(columns, rows)
        remark_cut(output, len(rows), len(self.request))


_ROLES: Final = ("connects", "accepts")
_SO: Final = ", so nothing would be sent"


def _count(records: Sequence[str]) -> str:
    return plural(len(records), "record") if records else "nothing"


def _claims(public: Sequence[Fact], records: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return what the peer claims of records: the coordinate, and who advertises them."""
    fields: dict[str, dict[str, str]] = {record: {} for record in records}
    sources: dict[str, set[str]] = {record: set() for record in records}
    for fact in public:
        match fact:
            case ("Advertised", record, source) if record in sources:
                sources[record].add(source)
            case ("AdvertisedField", record, _source, name, _index, value) if record in fields:
                fields[record].setdefault(name, value)
    made: dict[str, tuple[str, str]] = {}
    for record in records:
        parts = [fields[record].get(name) for name in ("Group", "App", "Name")]
        coordinate = "" if None in parts else "".join(f"//{part}" for part in parts)
        made[record] = coordinate, ", ".join(sorted(sources[record]))
    return made


def _tell(session: Session, answer: _Answer) -> None:
    """Say what the lines do not."""
    read, output = answer.read, session.output
    if answer.executable.exposes_nothing:
        explain_empty_view(session, read.policy.exposures, read.viewer, so=_SO)
    elif answer.shows_nothing:
        note_no_record(session, so=_SO)
    if not any(fact[0] == "Advertised" for fact in read.public):
        output.note("the peer advertises nothing, so nothing would be requested; see --advertised")
    note_missing_facts(session, answer.executable, read.public)
    warn_of_unmet(session, answer.offer)
    if output.table_wanted and (answer.send or answer.request):
        output.note(SHORT)
    if answer.not_here:
        count = len(answer.not_here)
        output.note(f"{count:,} of the records that may be sent {_is(count)} not here")
    if answer.already_here:
        count = len(answer.already_here)
        output.note(f"{count:,} of the records that may be requested {_is(count)} here already")


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


@lace_command(
    "preview",
    api="Lace.preview",
    piped="A fact line for each record, MaySend('…') and MayRequest('…'), sorted bytewise; "
    "nothing when nothing would move.",
    json_keys={
        "plan": "the E. identifier of the exchange plan",
        "lowering": "what is asked beyond selection",
        "index": "which operand you are, 0 or 1",
        "viewer": "the peer's proven verifier, or null",
        "exposures": "the R. identifiers of the modules in force for the viewer; none: nothing "
        "is exposed",
        "local_tai": "the instant that exposures read as _LocalTAI; null if none of them does",
        "offer": "what you offer for advertisements: {fields, all_fields, formats, unmet_fields, "
        "needs_all_fields}; an exchange fails if the plan needs fields that are not offered",
        "may_send": "hashes of the records that may be sent, sorted",
        "not_here": "those of them that are not here, and so are not sent",
        "may_request": "hashes of the records that may be requested, sorted",
        "already_here": "those of them that are here already, and so are not requested",
        "peer_work": "the rows that the peer's rules visited (limit peer_max_work)",
    },
    examples=[
        (
            "lace preview --select mine.lace --peer-select theirs.lace --expose team.lace@V.….H3 "
            "--viewer V.….H3",
            "what you would send to a peer that has proven V.….H3",
        ),
        (
            "lace preview --select mine.lace --peer-select theirs.lace --advertised theirs.facts",
            "what you would request of what a peer advertises",
        ),
        (
            "lace preview --select mine.lace --peer-select theirs.lace --expose team.lace "
            "--viewer V.….H3 --at 2026-11-20T00:00:00Z",
            "what you would send on that day, where an exposure reads the clock",
        ),
        (
            "lace preview --select mine.lace --peer-select theirs.lace --json | jq .may_send",
            "for a program",
        ),
    ],
)
@exchange_options(required=True)
@click.pass_obj
def command(session: Session, exchange: PolicyArguments) -> int:
    """Show what an exchange would send and request.

    No peer and no network is needed: the peer's selector is a file. The peer's rules see of
    this lace what the exposures for the viewer allow, and nothing else; with none, nothing is
    sent. A record is sent when both selectors choose it, and requested when both choose what
    the peer advertises. `lace why` with the same options explains one record.
    """
    read = read_policy(session, exchange)
    with session.asking("preview") as lace:
        warn_of_names(session, lace, read.policy)

        def ask() -> _Answer:
            preview = lace.preview(
                read.policy,
                read.peer.module,
                index=exchange.index,
                viewer=read.viewer,
                public=read.public,
            )
            return _Answer(read, preview)

        with Waiting(session, "previewing"):
            answer = ask_again(lace, ask)
        output = session.output
        if output.json:
            output.json_document(answer.document())
        elif output.terminal:
            with lace.snapshot() as snapshot:
                answer.write_page(output, snapshot)
        else:
            output.lines(answer.lines)
    output.flush()
    _tell(session, answer)
    return 0
