"""Policies as commands read them: rule files checked together, and what is said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lace.api.policy import (
    EXPOSURE,
    LOCAL_TAI,
    LOWERINGS,
    PEER,
    SELECTOR,
    Policy,
    check_offer,
    exposure_warnings,
    local_now,
    missing_facts,
    operand_of,
    public_fact_checker,
    read_clock,
    register_exposures,
    with_local_time,
    with_peer,
)
from lace.api.rules import check_source, parse_allowed
from lace.base.text import safe_text
from lace.cli.files import (
    STANDARD_INPUT,
    complain_findings,
    count_findings,
    name_of,
    read_fact_files,
    read_file,
)
from lace.cli.output import parse_time, plural
from lace.cli.policy_options import ExposureArgument, offered, parse_exposure, parse_viewer
from lace.errors import Finding, RuleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lace.api import Lace
    from lace.api.policy import (
        Executable,
        Exposure,
        Fact,
        Offer,
        Operand,
    )
    from lace.api.rules import CheckedProgram, PredicateKey, Profile, RuleLimits
    from lace.cli.files import RuleFile
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session


# -- Facts that come with an exchange: advertisements and runtime facts.


def read_public_facts(
    session: Session, advertised: str | None, runtime: str | None, viewer: str | None
) -> tuple[Fact, ...]:
    """Return the facts of both files, and the `Peer` fact that a proven viewer gives."""
    limits = session.rule_limits()
    found: list[Fact] = []
    odd: list[Finding] = []
    for argument, option in ((advertised, "--advertised"), (runtime, "--runtime")):
        if argument is not None:
            checker = public_fact_checker(option, name_of(argument))
            found += read_fact_files(session, [argument], limits, checker).facts
            odd += checker.findings()
    if odd and not session.output.quiet:
        complain_findings(session, odd)
    proven = {fact[1] for fact in found if fact[0] == PEER}
    if proven and proven != {viewer}:
        who = f"the viewer is {viewer}" if viewer else "there is no --viewer"
        session.output.note(
            f"the runtime facts have Peer('{sorted(proven)[0]}'), and {who}: "
            "exposures are chosen by the viewer alone"
        )
    return with_peer(found, viewer)


def with_clock(
    session: Session, facts: tuple[Fact, ...], exposures: Iterable[Exposure], at: str | None
) -> tuple[Fact, ...]:
    """Return facts with the clock that exposures read: as `--at` says, else that of now.

    Where no exposure reads it they stay as they are.
    """
    told = any(fact[0] == LOCAL_TAI.name for fact in facts)
    if at is not None:
        if told:
            raise UsageError(
                f"--at and --runtime both give {LOCAL_TAI.name}", hint="leave one of them out"
            )
        return with_local_time(facts, parse_time(at, "--at"))
    if told or not read_clock(exposures):
        return facts
    return with_local_time(facts, local_now(session.settings(session.find_folder())[0]))


@dataclass(frozen=True, slots=True)
class WantedRules:
    """A rule file and what its rules are for."""

    file: str
    profile: Profile
    limits: RuleLimits
    allowed: frozenset[PredicateKey] | None = None
    """For rules that act for this user: the predicates that may be undefined; None for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPolicy:
    """This side's policy, the peer's operand, and the facts that go with them."""

    policy: Policy
    peer: Operand
    viewer: str | None
    public: tuple[Fact, ...]


def refuse_shared_input(arguments: Iterable[str | None]) -> None:
    """Refuse a command line on which standard input would be several things."""
    if sum(argument == STANDARD_INPUT for argument in arguments) > 1:
        raise UsageError("standard input can be read once", hint="name files")


def check_files(
    session: Session, wanted: Sequence[WantedRules], at_hand: Mapping[str, RuleFile] | None = None
) -> list[CheckedProgram]:
    """Read and check rule files, each once; what is wrong in all of them is shown."""
    files = dict(at_hand or {})
    for each in wanted:
        if each.file not in files:
            files[each.file] = read_file(session, each.file)
    checked: dict[WantedRules, CheckedProgram] = {}
    refused: list[str] = []
    for each in dict.fromkeys(wanted):
        try:
            checked[each] = check_file(files[each.file], each)
        except RuleError as error:
            complain_findings(session, error.findings)
            refused.append(f"{count_findings(error.findings)} in {files[each.file].name}")
    if refused:
        raise RuleError("; ".join(dict.fromkeys(refused)))
    return [checked[each] for each in wanted]


def check_file(file: RuleFile, wanted: WantedRules) -> CheckedProgram:
    """Check the rules of a file."""
    return check_source(
        file.text(),
        profile=wanted.profile,
        limits=wanted.limits,
        name=file.name,
        allowed=wanted.allowed,
    )


def exposure_files(
    session: Session,
    named: Sequence[ExposureArgument],
    allowed: frozenset[PredicateKey] | None,
) -> list[WantedRules]:
    """Return the files of exposure modules, one for each argument."""
    limits = session.rule_limits()
    return [WantedRules(each.file, EXPOSURE, limits, allowed) for each in named]


def exposures_of(
    named: Sequence[ExposureArgument], checked: Sequence[CheckedProgram]
) -> tuple[Exposure, ...]:
    """Return one exposure for each file, registered for all viewers it is named with."""
    return register_exposures(
        (module, each.viewer) for each, module in zip(named, checked, strict=True)
    )


def read_policy(session: Session, given: PolicyArguments) -> ReadPolicy:
    """Read all that a command line says of an exchange; findings of all files are shown."""
    if given.select is None or given.peer_select is None:
        lacking = "--select" if given.select is None else "--peer-select"
        raise UsageError(
            f"{lacking} FILE is missing", hint="an exchange takes your selector and the peer's"
        )
    viewer = None if given.viewer is None else parse_viewer(given.viewer)
    named = [parse_exposure(argument) for argument in given.expose]
    files = (given.select, given.peer_select, *dict.fromkeys(each.file for each in named))
    refuse_shared_input((*files, given.advertised, given.runtime))
    own, peer = session.rule_limits(), session.peer_rule_limits()
    allowed = parse_allowed(given.allow_undefined)
    wanted = [
        WantedRules(given.select, SELECTOR, own, allowed),
        WantedRules(given.peer_select, SELECTOR, peer),
    ]
    files_of = exposure_files(session, named, allowed)
    ours, theirs, *exposing = check_files(session, wanted + files_of)
    policy = Policy(
        ours,
        exposures_of(named, exposing),
        lowering=given.lowering,
        allow_undefined=given.allow_undefined,
        **offered(given.field, given.all_fields),
    )
    public = read_public_facts(session, given.advertised, given.runtime, viewer)
    public = with_clock(session, public, policy.exposures, given.at)
    warn_of(session, (*policy.warnings, *theirs.warnings))
    return ReadPolicy(
        policy=policy,
        peer=operand_of(theirs, 1 - given.index),
        viewer=viewer,
        public=public,
    )


def read_own_policy(
    session: Session,
    select: str,
    expose: Sequence[str],
    lowering: str | None,
    allow_undefined: Sequence[str],
    offer: Mapping[str, Any],
) -> Policy:
    """Read this side's selector and exposures; findings of all files are shown.

    `offer` says which fields and formats it offers, as `lace.cli.policy_options.offered` gives it.
    """
    named = [parse_exposure(argument) for argument in expose]
    refuse_shared_input((select, *dict.fromkeys(each.file for each in named)))
    allowed = parse_allowed(allow_undefined)
    wanted = [
        WantedRules(select, SELECTOR, session.rule_limits(), allowed),
        *exposure_files(session, named, allowed),
    ]
    ours, *exposing = check_files(session, wanted)
    policy = Policy(
        ours,
        exposures_of(named, exposing),
        lowering=lowering or LOWERINGS[0],
        allow_undefined=allow_undefined,
        **offer,
    )
    check_offer(session.settings(session.find_settings())[0], policy)
    warn_of(session, policy.warnings)
    return policy


def read_selector(session: Session, file: str, allow_undefined: Sequence[str]) -> CheckedProgram:
    """Read this side's selector alone."""
    allowed = parse_allowed(allow_undefined)
    wanted = WantedRules(file, SELECTOR, session.rule_limits(), allowed)
    return check_files(session, [wanted])[0]


def read_exposures(
    session: Session, expose: Sequence[str], allow_undefined: Sequence[str]
) -> tuple[Exposure, ...]:
    """Read exposures alone; findings of all files are shown."""
    named = [parse_exposure(argument) for argument in expose]
    refuse_shared_input(dict.fromkeys(each.file for each in named))
    files = exposure_files(session, named, parse_allowed(allow_undefined))
    made = exposures_of(named, check_files(session, files))
    warn_of(session, exposure_warnings(made))
    return made


def warn_of(session: Session, findings: Iterable[Finding]) -> None:
    """Show warnings, each once, unless quiet is wanted."""
    if not session.output.quiet:
        found = list(dict.fromkeys(findings))
        if found:
            complain_findings(session, found)


def warn_of_names(session: Session, lace: Lace, *rules: Policy | CheckedProgram) -> None:
    """Show a warning for each field name, group and app of rules that no record here has."""
    if not session.output.quiet:
        warn_of(session, lace.check(*rules))


# -- what is said in words -----------------------------------------------------------------------


def note_missing_facts(session: Session, executable: Executable, public: Iterable[Fact]) -> None:
    """Report runtime facts that the rules of an exchange ask for and nobody has given."""
    note_missing(session, missing_facts(executable.programs, public))


def note_missing(
    session: Session, lacking: Sequence[str], *, whose: str = "the rules", so: str = ""
) -> None:
    """Report runtime predicates that rules read and of which nobody has given a fact."""
    if lacking:
        where = "--viewer" if tuple(lacking) == (f"{PEER}/1",) else "--runtime"
        session.output.note(
            f"{whose} read {', '.join(lacking)}, and there is no such fact{so}; see {where}"
        )


def offer_text(offer: Offer) -> str:
    """Return which fields and formats are offered, in words."""
    names = "all fields" if offer.schema.all else ", ".join(sorted(offer.schema.names))
    return f"{safe_text(names) or 'no field'}; formats {', '.join(sorted(offer.formats))}"


def warn_of_unmet(session: Session, offer: Offer) -> None:
    """Say that no exchange can begin, where the peer's selector needs what is not offered.

    A policy that does not offer what its own selector reads was refused before.
    """
    if offer.needs_all:
        session.output.warn(
            "the peer's selector reads fields by variables and needs all of them, which you do not "
            "offer, so that an exchange would fail [050-131]; see --all-fields"
        )
    elif offer.unmet:
        names = safe_text(", ".join(offer.unmet))
        session.output.warn(
            f"the peer's selector needs the advertised field {names}, which you do not offer, so "
            "that an exchange would fail [050-130]; see --field"
        )


def explain_empty_view(
    session: Session, exposures: Sequence[Exposure], viewer: str | None, *, so: str = ""
) -> None:
    """Say in words that nothing is exposed, and what to do about it (G31)."""
    if not exposures:
        hint = f"name a module with --expose FILE@{viewer or 'V.….H3'}"
    elif viewer is None:
        hint = "the exposures are for named viewers: say who the peer is with --viewer V"
    else:
        count = plural(len(exposures), "exposure")
        hint = f"of {count} none is for {viewer}: add one with --expose FILE@{viewer}"
    session.output.note(f"nothing is exposed to this peer{so}; {hint}")


def note_no_record(session: Session, *, so: str = "") -> None:
    """Say in words that exposures are registered for the viewer, and the view is empty."""
    session.output.note(f"the exposures for this viewer allow no record that is here{so}")
