"""`lace disclose`: what a policy shows to a viewer, and what an edit of it would change."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api.policy import SELECTOR, Policy, exposure_warnings, parse_disclosure
from lace.api.rules import parse_allowed
from lace.base.text import shorten
from lace.cli.command import command as lace_command
from lace.cli.files import STANDARD_INPUT, RuleFile
from lace.cli.output import TableColumn, plural, short_identifiers, time_text
from lace.cli.policy_files import (
    WantedRules,
    check_files,
    explain_empty_view,
    exposure_files,
    exposures_of,
    note_missing,
    note_no_record,
    offer_text,
    read_public_facts,
    refuse_shared_input,
    warn_of,
    warn_of_names,
    warn_of_unmet,
    with_clock,
)
from lace.cli.policy_options import (
    ADVERTISED_OPTION,
    ALL_FIELDS_OPTION,
    ALLOW_UNDEFINED_OPTION,
    AT_OPTION,
    EXPOSE_OPTION,
    FIELD_OPTION,
    LOWERING_OPTION,
    RUNTIME_OPTION,
    ExposureArgument,
    offered,
    parse_exposure,
    parse_viewer,
)
from lace.cli.progress import Waiting
from lace.cli.records import MOST_ROWS, SHORT, remark_cut, show_records
from lace.errors import Place, PolicyError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lace.api import Lace
    from lace.api.policy import (
        Disclosure,
        DisclosureChange,
        Exposure,
        Fact,
        SetChange,
    )
    from lace.api.records import SqliteSnapshot
    from lace.api.rules import CheckedProgram
    from lace.cli.output import Output
    from lace.cli.session import Session


# -- Baselines of `lace disclose`: a disclosure that was saved, or the modules before an edit.

_OPTION = "--baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What to compare with: a saved disclosure, or exposure modules and their files."""

    saved: Disclosure | None = None
    name: str = ""
    modules: tuple[ExposureArgument, ...] = ()
    files: Mapping[str, RuleFile] = field(default_factory=dict)

    @property
    def is_given(self) -> bool:
        """Whether there is anything to compare with."""
        return self.saved is not None or bool(self.modules)


def read_baselines(session: Session, arguments: Sequence[str]) -> Baseline:
    """Return what the `--baseline` options name; JSON is known by its first character."""
    named = tuple(parse_exposure(argument, _OPTION) for argument in arguments)
    files = {each.file: _read(session, each.file) for each in named}
    saved = [each for each in named if files[each.file].raw.lstrip()[:1] in (b"{", b"[")]
    if not saved:
        return Baseline(modules=named, files=files)
    (first, *_) = saved
    if len(named) > 1:
        raise UsageError(
            f"{files[first.file].name} is a saved disclosure, and there are other baselines",
            hint="compare with one of them, or with modules only",
        )
    if first.viewer is not None:
        raise UsageError(
            f"{files[first.file].name} is a saved disclosure, which has its viewer",
            hint=f"write {_OPTION} FILE without @VIEWER",
        )
    name = files[first.file].name
    try:
        return Baseline(saved=parse_disclosure(files[first.file].raw), name=name)
    except PolicyError as error:
        error.place = Place(name)
        raise


def _read(session: Session, argument: str) -> RuleFile:
    """Read a whole file: a saved disclosure may be long."""
    if argument == STANDARD_INPUT:
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a FILE")
        if sys.stdin.isatty():
            session.output.note("reading from the terminal; end with Ctrl-D")
        return RuleFile(argument, sys.stdin.buffer.read())
    try:
        return RuleFile(argument, Path(argument).read_bytes())
    except OSError as error:
        name = RuleFile(argument, b"").name
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a name that no system takes
        raise UsageError(f"{RuleFile(argument, b'').name} cannot be read: {error}") from error


def check_baseline(session: Session, baseline: Baseline, now: Disclosure) -> None:
    """Refuse a saved disclosure of something else; tell what is not or hardly compared."""
    before = baseline.saved
    if before is None:
        if baseline.modules and not any(each.is_for(now.viewer) for each in baseline.modules):
            count = plural(len(baseline.modules), "module")
            session.output.note(
                f"of {count} of the baseline none is for {now.viewer}, so this compares with "
                f"nothing exposed; name one with {_OPTION} FILE@{now.viewer}"
            )
        return
    for what, one, other in (
        ("viewer", before.viewer, now.viewer),
        ("lace", before.lace, now.lace),
    ):
        if one != other:
            raise PolicyError(
                f"the baseline is of another {what}: {one}, not {other}",
                place=Place(baseline.name),
                hint=f"save one of this {what} with `lace disclose --json`",
            )
    if before.sent is None or now.sent is None:
        if before.sent is not now.sent:
            lacks = (
                "the baseline does not" if before.sent is None else "there is no --peer-select to"
            )
            session.output.note(f"{lacks} say what would be sent, so that is not compared")
        return
    if (before.sent.peer_select, before.sent.select) != (now.sent.peer_select, now.sent.select):
        session.output.note("the baseline was made with other selectors")
    if before.sent.lowering != now.sent.lowering:
        session.output.note(f"the baseline was made with the lowering {before.sent.lowering}")


# -- Disclosures and their changes as `lace disclose` writes them, for people and for pipes.

_EXAMPLE: Final = 40
"""Characters of an example, so that a field has one line of a usual terminal."""
_SUMMARIES: Final = (
    "an exchange also tells the number and digests of those that may be sent, by partition"
)
"""What partition summaries disclose (050-244)."""


def write_lines(output: Output, told: Disclosure) -> None:
    """Write a line for each thing that is disclosed, tab-separated, its kind first."""
    output.lines(f"record\t{record}" for record in told.records)
    for shown in told.fields:
        output.row(("field", shown.name, shown.records, shown.values, shown.example))
    for link in told.links:
        output.row(("link", link.name, link.links, link.records, link.targets))
    for kind, count in (("blobs", told.blobs), ("plexes", told.plexes)):
        if count:
            output.row((kind, count))
    output.lines(f"hash\t{target}" for target in told.hidden_hashes)
    if told.sent is not None:
        output.lines(f"sent\t{record}" for record in told.sent.records)
    names = ["*"] if told.offer.schema.all else sorted(told.offer.schema.names)
    for name in names if told.records else ():
        output.row(("offer", name))


def write_page(output: Output, told: Disclosure, snapshot: SqliteSnapshot) -> None:
    """Write what is disclosed for a person."""
    count = len(told.records)
    modules = plural(len(told.exposures), "module") if told.exposures else "nothing"
    rows = [
        ("viewer", told.viewer),
        ("exposed by", modules),
        ("may query", f"{count:,} of {plural(told.stored, 'record')}" if count else "no record"),
    ]
    if told.local_tai is not None:
        rows.append(("at", f"{time_text(told.local_tai)} UTC, {told.local_tai}"))
    rows.append(("advertised", ("" if told.sent else "at most ") + offer_text(told.offer)))
    output.table((TableColumn("", style="bold"), TableColumn("")), rows, heading=False)
    show_records(output, snapshot, told.records)
    _write_fields(output, told)
    _write_hashes(output, told)
    if told.sent is not None:
        agreed = "" if told.sent.select is not None else ", if your selector agrees"
        number = plural(len(told.sent.records), "record") if told.sent.records else "nothing"
        output.line("")
        output.say(f"would be sent: {number}{agreed}")
        show_records(output, snapshot, told.sent.records)
    if count:
        output.line("")
        output.say(_SUMMARIES)


def _write_fields(output: Output, told: Disclosure) -> None:
    if not told.fields:
        return
    columns = (
        TableColumn("field", style="bold"),
        TableColumn("records", "right"),
        TableColumn("values", "right"),
        TableColumn("for example"),
    )
    shown = told.fields[:MOST_ROWS]
    short = short_identifiers(each.example for each in shown)
    output.line("")
    output.say("which shows these fields:")
    output.line("")
    output.table(
        columns,
        [
            (
                each.name,
                f"{each.records:,}",
                f"{each.values:,}",
                short.get(each.example) or shorten(each.example, _EXAMPLE),
            )
            for each in shown
        ],
    )
    remark_cut(output, len(shown), len(told.fields))


def _write_hashes(output: Output, told: Disclosure) -> None:
    """Write the hashes that the view holds besides those of its records (020-79)."""
    if told.links:
        output.line("")
        output.say("and these links:")
        output.line("")
        columns = (
            TableColumn("link", style="bold"),
            TableColumn("links", "right"),
            TableColumn("records", "right"),
            TableColumn("targets", "right"),
        )
        shown = told.links[:MOST_ROWS]
        rows = [
            (each.name, f"{each.links:,}", f"{each.records:,}", f"{each.targets:,}")
            for each in shown
        ]
        output.table(columns, rows)
        remark_cut(output, len(shown), len(told.links))
    embedded = [
        plural(count, noun)
        for count, noun in ((told.blobs, "embedded Blob"), (told.plexes, "embedded Plex"))
        if count
    ]
    if embedded:
        output.line("")
        output.say(f"and the hashes of {' and '.join(embedded)}".replace("Plexs", "Plexes"))
    if told.hidden_hashes:
        count = len(told.hidden_hashes)
        told_of = "the hash of 1 record" if count == 1 else f"the hashes of {count:,} records"
        here = f", {told.hidden_here:,} of them stored here" if told.hidden_here else ""
        output.line("")
        output.say(f"links also tell {told_of} outside the view{here}:")
        output.line("")
        shown_hashes = list(islice(told.hidden_hashes, MOST_ROWS))
        for each in shown_hashes:
            output.say(f"  {each}")
        remark_cut(output, len(shown_hashes), count)


def _hashes(count: int) -> str:
    return "1 hash" if count == 1 else f"{count:,} hashes"


# -- changes -------------------------------------------------------------------------------------


def _parts(change: DisclosureChange) -> Iterator[tuple[str, SetChange]]:
    yield "record", change.records
    yield "field", change.fields
    yield "hash", change.hidden_hashes
    if change.sent is not None:
        yield "sent", change.sent
    yield "offer", change.offered


def write_change_lines(output: Output, change: DisclosureChange) -> None:
    """Write a line for each thing that came or went, tab-separated: sign, kind, name."""
    for kind, part in _parts(change):
        for sign, names in (("+", part.added), ("-", part.removed)):
            for name in names:
                output.row((sign, kind, name))


def write_change_page(output: Output, change: DisclosureChange, snapshot: SqliteSnapshot) -> None:
    """Write what came and what went for a person, like a plan before it is applied."""
    if not change:
        output.say(f"nothing changes for {change.viewer}")
        return
    output.say(f"for {change.viewer}")
    for sign, title, style in (
        ("+", "would be newly revealed", "green"),
        ("-", "would no longer be revealed", "red"),
    ):
        found = [
            (kind, part.added if sign == "+" else part.removed) for kind, part in _parts(change)
        ]
        output.line("")
        output.say(f"{title}: {_summary(found)}")
        rows: list[Sequence[str]] = []
        total = 0
        for kind, names in found:
            total += len(names)
            few = names[: max(0, MOST_ROWS - len(rows))]
            short = short_identifiers(few)
            rows += [
                (f"{sign} {kind}", short.get(name, name), _coordinate(snapshot, kind, name))
                for name in few
            ]
        if rows:
            output.line("")
            columns = (
                TableColumn("", style=style, no_wrap=True),
                TableColumn("", style=style),
                TableColumn(""),
            )
            output.table(columns, rows, heading=False)
            remark_cut(output, len(rows), total)


def _summary(found: Sequence[tuple[str, Sequence[str]]]) -> str:
    parts = []
    for kind, names in found:
        count = len(names)
        if kind == "hash" and count:
            parts.append(_hashes(count))
        elif kind == "sent" and count:
            parts.append(f"{plural(count, 'record')} to be sent")
        elif count:
            parts.append(plural(count, kind))
    return ", ".join(parts) or "nothing"


def _coordinate(snapshot: SqliteSnapshot, kind: str, name: str) -> str:
    found = None if kind in ("field", "offer") else snapshot.describe(name)
    return found.coordinate if found is not None else ""


_MORE: Final = ", so more may be told in an exchange than is shown"


class _Question:
    """What a command line asks to be disclosed: to whom, by which modules."""

    def __init__(
        self,
        session: Session,
        viewer: str,
        expose: Sequence[str],
        selectors: tuple[str | None, str | None],
        baseline: Baseline,
        lowering: str | None,
        allow_undefined: Sequence[str],
        offer: dict[str, Any],
    ) -> None:
        """Read and check all rule files."""
        self.session = session
        self.viewer = viewer
        self.lowering = lowering
        self._offer = offer
        named = [parse_exposure(argument) for argument in expose]
        own, peer = session.rule_limits(), session.peer_rule_limits()
        allowed = parse_allowed(allow_undefined)
        wanted = [
            WantedRules(file, SELECTOR, limits, whose)
            for file, limits, whose in zip(selectors, (own, peer), (allowed, None), strict=True)
            if file is not None
        ]
        modules = exposure_files(session, named, allowed)
        before = exposure_files(session, baseline.modules, None)
        checked = check_files(session, wanted + modules + before, baseline.files)
        chosen = checked[: len(wanted)]
        self.theirs = chosen.pop() if selectors[1] is not None else None
        self.ours = chosen.pop() if selectors[0] is not None else None
        rest = checked[len(wanted) :]
        self.exposures = exposures_of(named, rest[: len(modules)])
        self.before = exposures_of(baseline.modules, rest[len(modules) :])
        earlier = {str(key) for each in self.before for key in each.module.undefined}
        self.allowed = {*allow_undefined, *earlier}  # what the baseline says is only compared
        warnings = [found for each in checked[: len(wanted)] for found in each.warnings]
        warn_of(session, [*warnings, *exposure_warnings(self.exposures)])

    @property
    def own(self) -> list[CheckedProgram]:
        """This side's modules."""
        selector = [] if self.ours is None else [self.ours]
        return selector + [each.module for each in self.exposures]

    def ask(
        self, lace: Lace, exposures: tuple[Exposure, ...], public: tuple[Fact, ...]
    ) -> Disclosure:
        """Return what some exposures disclose."""
        allowed, alone = self.allowed, self.ours is None
        policy = (
            exposures
            if self.ours is None
            else Policy(self.ours, exposures, allow_undefined=allowed, **self._offer)
        )
        return lace.disclose(
            policy,
            self.viewer,
            peer_select=self.theirs,
            public=public,
            lowering=self.lowering,
            allow_undefined=allowed,
            fields=self._offer["fields"] if alone else None,
            all_fields=alone and self._offer["all_fields"],
        )


@lace_command(
    "disclose",
    api="Lace.disclose",
    piped="Tab-separated lines, the kind first: record HASH; field NAME, records, different "
    "values, an example; link NAME, links, records, targets; blobs and plexes, how many different "
    "hashes of embedded records (counted, not listed); hash HASH, which a link tells though its "
    "record is not in the view; sent HASH; offer NAME, a field that advertisements may carry, or * "
    "for all. With --baseline: + or -, the kind (record, field, hash, sent, offer), hash or name.",
    json_keys={
        "format": "lace-disclosure/v1",
        "lace": "the folder",
        "viewer": "the verifier",
        "exposures": "the R. identifiers of the modules in force for the viewer",
        "stored": "how many records the lace holds",
        "count": "how many of them the viewer may query",
        "records": "their hashes, sorted",
        "fields": "a list of {name, records, values, example} by name: how many records have the "
        "field, its different values, and that of the record with the least hash",
        "links": "a list of {name, links, records, targets} by name",
        "hidden_hashes": "targets of links that are outside the view themselves, sorted",
        "hidden_here": "how many of these are stored here",
        "embedded": "how many different hashes of embedded records are told, {blobs, plexes}",
        "sent": "null without --peer-select; else {peer_select, select, lowering, records}: the "
        "R. identifiers of both selectors, select null if it was not given, what is asked beyond "
        "selection, and sorted hashes",
        "local_tai": "the instant that exposures read as _LocalTAI, null if none of them does",
        "offer": "what advertisements may carry: {fields, all_fields, formats, unmet_fields, "
        "needs_all_fields}; without --peer-select the most that any peer's rules can ask for",
        "missing_facts": "runtime facts that the rules read and nobody has given, as StartTAI/1: "
        "with them more may be told than is said here",
        "with --baseline": "another document: format lace-disclosure-change/v1, viewer, changed, "
        "and records, fields, hidden_hashes, sent, offered, each {added, removed}; sent may be "
        "null; and "
        "missing_facts of both together",
    },
    examples=[
        (
            "lace disclose --expose team.lace --viewer V.….H3",
            "what somebody would see of this lace",
        ),
        (
            "lace disclose --expose team.lace@V.….H3 --viewer V.….H3 --peer-select theirs.lace "
            "--json > before.json",
            "keep it, with what their selector would get",
        ),
        (
            "lace disclose --expose edited.lace@V.….H3 --viewer V.….H3 --baseline team.lace@V.….H3",
            "what an edit would newly reveal; exit code 1 if anything changes",
        ),
        (
            "lace disclose --expose team.lace@V.….H3 --viewer V.….H3 --peer-select theirs.lace "
            "--baseline before.json",
            "what has changed since it was kept",
        ),
    ],
)
@EXPOSE_OPTION
@click.option(
    "--viewer",
    metavar="V",
    required=True,
    help="Whose view: the verifier that a peer has proven. Gives the fact Peer('V') unless "
    "--runtime has one.",
)
@click.option(
    "--select", metavar="FILE", help="Your selector: then only what it chooses too is sent."
)
@click.option(
    "--peer-select", metavar="FILE", help="The peer's selector: to see what would be sent."
)
@click.option(
    "--baseline",
    metavar="FILE[@VIEWER]",
    multiple=True,
    help="Compare: with a document that `lace disclose --json` has written, or with exposure "
    "modules as they were before an edit (repeatable). The exit code is 1 if anything differs.",
)
@ADVERTISED_OPTION
@RUNTIME_OPTION
@AT_OPTION
@FIELD_OPTION
@ALL_FIELDS_OPTION
@LOWERING_OPTION
@ALLOW_UNDEFINED_OPTION
@click.pass_obj
def command(
    session: Session,
    expose: tuple[str, ...],
    viewer: str,
    select: str | None,
    peer_select: str | None,
    baseline: tuple[str, ...],
    advertised: str | None,
    runtime: str | None,
    at: str | None,
    field: tuple[str, ...],
    all_fields: bool | None,
    lowering: str | None,
    allow_undefined: tuple[str, ...],
) -> int:
    """Show what a viewer may query of this lace, before a byte leaves.

    Whatever the exposures for a viewer allow counts as told: the records, all their fields,
    and every hash that these hold, also of records that are not exposed themselves. Of these
    hashes it lists those that links tell; those of embedded records, which every record but a
    Blob tells, it counts. With the peer's selector it shows as well what would be sent. With
    --baseline it shows only what changes, like a plan before it is applied.

    Where the rules read a runtime fact that --runtime does not give, as the time or the
    transport, it says so: an exchange has such facts, and more may be told then.
    """
    viewer = parse_viewer(viewer)
    for option, given in (("--select", select), ("--lowering", lowering)):
        if given is not None and peer_select is None:
            raise UsageError(
                f"{option} is about what would be sent, and that is not asked",
                hint="add the peer's selector with --peer-select FILE",
            )
    _refuse_shared(expose, baseline, select, peer_select, advertised, runtime)
    before = read_baselines(session, baseline)
    question = _Question(
        session,
        viewer,
        expose,
        (select, peer_select),
        before,
        lowering,
        allow_undefined,
        offered(field, all_fields),
    )
    public = read_public_facts(session, advertised, runtime, viewer)
    public = with_clock(session, public, (*question.exposures, *question.before), at)
    with session.asking("disclose") as lace:
        warn_of_names(session, lace, *question.own)
        with Waiting(session, "disclosing"):
            told = question.ask(lace, question.exposures, public)
        check_baseline(session, before, told)
        with Waiting(session, "comparing"):
            saved = before.saved
            if saved is None and before.is_given:
                saved = question.ask(lace, question.before, public)
            change = None if saved is None else told.compare(saved)
        if change is None:
            _write(session, lace, told)
        else:
            _write_change(session, lace, change)
    session.output.flush()
    if not told.exposures:
        explain_empty_view(session, question.exposures, viewer)
    elif not told.records:
        note_no_record(session)
    note_missing(session, told.missing_facts, so=_MORE)
    warn_of_unmet(session, told.offer)
    if saved is not None:
        others = [each for each in saved.missing_facts if each not in told.missing_facts]
        note_missing(session, others, whose="the rules of the baseline", so=_MORE)
    return 1 if change else 0


def _refuse_shared(expose: Sequence[str], baseline: Sequence[str], *others: str | None) -> None:
    """Refuse standard input for two things; the modules of one option may share a file."""
    named = {parse_exposure(argument).file for argument in expose}
    compared = {parse_exposure(argument, "--baseline").file for argument in baseline}
    refuse_shared_input((*named, *compared, *others))


def _write(session: Session, lace: Lace, told: Disclosure) -> None:
    output = session.output
    if output.json:
        output.json_document(told.to_json())
    elif output.terminal:
        with lace.snapshot() as snapshot:
            write_page(output, told, snapshot)
        if told.records:
            output.note(SHORT)
    else:
        write_lines(output, told)


def _write_change(session: Session, lace: Lace, change: DisclosureChange) -> None:
    output = session.output
    if output.json:
        output.json_document(change.to_json())
    elif output.terminal:
        with lace.snapshot() as snapshot:
            write_change_page(output, change, snapshot)
        if change:
            output.note(SHORT)
    else:
        write_change_lines(output, change)
