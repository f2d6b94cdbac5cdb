"""`lace disclose`: what a policy shows to a viewer, and what an edit of it would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lace.cli.baselines import Baseline, check_baseline, read_baselines
from lace.cli.command import command as lace_command
from lace.cli.disclosure_pages import (
    write_change_lines,
    write_change_page,
    write_lines,
    write_page,
)
from lace.cli.exchange_facts import read_public_facts, with_clock
from lace.cli.policy_files import (
    Wanted,
    check_files,
    explain_empty_view,
    exposure_files,
    exposures_of,
    note_missing,
    note_no_record,
    refuse_shared_input,
    warn_of,
    warn_of_names,
    warn_of_unmet,
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
    offered,
    parse_exposure,
    parse_viewer,
)
from lace.cli.progress import Waiting
from lace.cli.record_tables import SHORT
from lace.errors import UsageError
from lace.policy.local import Policy, exposure_warnings
from lace.rules.checks.emptiness import parse_allowed
from lace.rules.profiles import SELECTOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lace.api import Lace
    from lace.cli.session import Session
    from lace.facts.lines import Fact
    from lace.policy.disclosure import Disclosure, DisclosureChange
    from lace.policy.exposure import Exposure
    from lace.rules.program import CheckedProgram

__all__ = ["command"]

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
        """Read and check all rule files.

        Raises:
            UsageError: a file cannot be read.
            RuleError: rules are not legal; all findings were shown.
        """
        self.session = session
        self.viewer = viewer
        self.lowering = lowering
        self._offer = offer
        named = [parse_exposure(argument) for argument in expose]
        own, peer = session.rule_limits(), session.peer_rule_limits()
        allowed = parse_allowed(allow_undefined)
        wanted = [
            Wanted(file, SELECTOR, limits, whose)
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
