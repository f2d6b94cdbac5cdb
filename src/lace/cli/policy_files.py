"""Policies as commands read them: rule files checked together, and what is said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lace.api import now
from lace.base.text import safe_text, shorten
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
from lace.columns.segment_journal import SegmentDamagedError
from lace.errors import Finding, Place, RuleError, UsageError
from lace.exchange.blocks import CONTROL_PREDICATES, Syntax
from lace.exchange.capabilities import capabilities_of
from lace.facts.catalogue import BASE_PREDICATES, LOCAL_PREDICATES, FactClass
from lace.facts.lines import FactLineError
from lace.policy.exposure import Exposure, read_clock
from lace.policy.local import Policy, exposure_warnings
from lace.policy.operand import operand_of
from lace.policy.plan import LOWERINGS
from lace.policy.public_facts import PEER, local_time, missing_facts, with_local_time, with_peer
from lace.query.result import AnswerLostError
from lace.rules.checks.emptiness import parse_allowed
from lace.rules.profiles import EXPOSURE, LOCAL_TAI, SELECTOR
from lace.rules.program import check_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lace.api import Lace
    from lace.cli.files import RuleFile
    from lace.cli.policy_options import PolicyArguments
    from lace.cli.session import Session
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.policy.operand import Operand
    from lace.policy.schema import Offer
    from lace.rules.limits import RuleLimits
    from lace.rules.profiles import Profile
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import PredicateKey


# -- Facts that come with an exchange, as commands read them: advertisements and runtime facts.
#
# They are held to what an exchange would take. A value of a wrong form is refused. What is
# well formed, and no exchange would have it so, is warned of with its place: a preview may be
# asked about it all the same.

_OPTION_OF: Final = {
    FactClass.ADVERTISEMENT: "--advertised",
    FactClass.RUNTIME: "--runtime",
}
_RULE_OF: Final = {FactClass.ADVERTISEMENT: "040-13", FactClass.RUNTIME: "040-89"}
_FORMS: Final = {
    "Advertised": CONTROL_PREDICATES["Advertised"].syntax,
    "AdvertisedField": CONTROL_PREDICATES["AdvertisedField"].syntax,
    "Here": (Syntax.VERIFIER,),
    "Peer": (Syntax.VERIFIER,),
    "Transport": (Syntax.TEXT,),
    "TransportEncrypted": (),
    "StartTAI": (Syntax.TAI,),
    "TickTAI": (Syntax.TAI,),
    "ClockSkewSeconds": (Syntax.DECIMAL,),
    LOCAL_TAI.name: (Syntax.TAI,),
}
_RULES: Final = {
    "Advertised": "050-39",
    "AdvertisedField": "050-40",
    "Here": "050-25",
    "Peer": "050-26",
    "Transport": "050-27",
    "StartTAI": "050-29",
    "TickTAI": "050-30",
    "ClockSkewSeconds": "050-31",
    LOCAL_TAI.name: "G05b",
}
_TAKEN: Final = {
    FactClass.ADVERTISEMENT: frozenset(
        name
        for name, found in BASE_PREDICATES.items()
        if found.fact_class is FactClass.ADVERTISEMENT
    ),
    FactClass.RUNTIME: frozenset(
        {
            LOCAL_TAI.name,
            *(
                name
                for name, found in BASE_PREDICATES.items()
                if found.fact_class is FactClass.RUNTIME
            ),
        }
    ),
}
"""The predicates that each option takes."""
_KNOWN: Final = {**BASE_PREDICATES, **LOCAL_PREDICATES}


def read_public_facts(
    session: Session, advertised: str | None, runtime: str | None, viewer: str | None
) -> tuple[Fact, ...]:
    """Return the facts of both files, and the `Peer` fact that a proven viewer gives."""
    limits = session.rule_limits()
    found: list[Fact] = []
    odd: list[Finding] = []
    for argument, kind in ((advertised, FactClass.ADVERTISEMENT), (runtime, FactClass.RUNTIME)):
        if argument is not None:
            checker = _Checker(kind, name_of(argument))
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
    settings = session.settings(session.find_folder())[0]
    return with_local_time(facts, local_time(now(), capabilities_of(settings).tick_interval))


class _Oddity:
    """Something that no exchange would have: where it is first, and how often it is there."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.line = 0
        self.message = ""
        self.count = 0

    def add(self, line: int, message: str, count: int = 1) -> None:
        """Note it, once or more often; the first is told."""
        if not self.count:
            self.line, self.message = line, message
        self.count += count

    def finding(self, name: str) -> Finding:
        """Return what is said of it."""
        more = f", and {plural(self.count - 1, 'other')} like it" if self.count > 1 else ""
        return Finding(
            severity="warning",
            place=Place(name, self.line),
            message=f"{self.message}{more}",
            rule=self.rule,
        )


class _Checker:
    """Takes the facts of one file, line by line, if they are of its kind and well formed."""

    def __init__(self, kind: FactClass, name: str) -> None:
        self._kind = kind
        self._name = name
        self._line = 0
        self._source: tuple[str, int] | None = None
        self._advertised: set[tuple[str, str]] = set()
        self._claimed: dict[tuple[str, str], tuple[int, int]] = {}
        self._values: dict[Fact, str] = {}
        self._single: dict[str, tuple[Fact, int]] = {}
        self._odd: dict[str, _Oddity] = {}

    def __call__(self, fact: Fact) -> None:
        """Take the fact of the next line."""
        self._line += 1
        _check_kind(self._kind, fact)
        _check_form(fact)
        match fact:
            case ("Advertised", record, source):
                self._advertised.add((record, source))
                self._check_source(source)
            case ("AdvertisedField", record, source, *_):
                first, count = self._claimed.get((record, source), (self._line, 0))
                self._claimed[record, source] = first, count + 1
                self._check_source(source)
                if self._values.setdefault(fact[:-1], fact[-1]) != fact[-1]:
                    message = f"field {shorten(fact[3])} has another value at index {fact[4]}"
                    self._note("value", "G42", message)
            case _:
                other, line = self._single.setdefault(fact[0], (fact, self._line))
                if other != fact:
                    message = f"an exchange has one {fact[0]}, and line {line:,} has another"
                    self._note(fact[0], _RULES[fact[0]], message)

    def findings(self) -> list[Finding]:
        """Return what is odd, by line, once all lines were taken."""
        for key, (line, count) in self._claimed.items():
            if key not in self._advertised:
                odd = self._odd.setdefault("field", _Oddity("G42"))
                odd.add(line, "this field has no Advertised line of its record and source", count)
        found = sorted(self._odd.values(), key=lambda each: each.line)
        return [each.finding(self._name) for each in found]

    def _check_source(self, source: str) -> None:
        if self._source is None:
            self._source = source, self._line
        first, line = self._source
        if source != first:
            message = f"a peer is one source, and line {line:,} has another: {shorten(first)}"
            self._note("source", "G42", message)

    def _note(self, sort: str, rule: str, message: str) -> None:
        self._odd.setdefault(sort, _Oddity(rule)).add(self._line, message)


def _check_kind(kind: FactClass, fact: Fact) -> None:
    """Refuse a fact of another kind, or with another number of values."""
    option, rule = _OPTION_OF[kind], _RULE_OF[kind]
    found, arity = _KNOWN.get(fact[0]), len(fact) - 1
    if found is None or found.name not in _TAKEN[kind]:
        taken = [each for each in _KNOWN.values() if each.name in _TAKEN[kind]]
        other = _OPTION_OF.get(found.fact_class) if found is not None else None
        hint = f"{option} takes {', '.join(map(str, taken))}"
        if found is not None:
            hint = f"it belongs into {other}" if other else "record facts come from the lace"
        if found is not None and found.fact_class is FactClass.LOCAL:
            hint = "give it with --runtime" if found.name == LOCAL_TAI.name else "give --viewer V"
        raise FactLineError(f"{fact[0]}/{arity} is no {kind.value} fact", rule=rule, hint=hint)
    if found.arity != arity:
        raise FactLineError(
            f"{fact[0]} has {plural(found.arity, 'value')}, and here {arity:,}",
            rule=rule,
            hint=f"write {found.name}({','.join(found.arguments)}), each value in quotes",
        )


def _check_form(fact: Fact) -> None:
    """Refuse a value that has not the form of its place."""
    name, *values = fact
    for value, syntax in zip(values, _FORMS[name], strict=True):
        if not syntax.matches(value) and syntax is not Syntax.TEXT:
            raise FactLineError(
                f"{shorten(value)!r} is not {syntax.title}",
                rule=_RULES[name],
                hint=f"as in {name}({','.join(_KNOWN[name].arguments)})",
            )


Answer = TypeVar("Answer")


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
    modules = {each.file: module for each, module in zip(named, checked, strict=True)}
    found: list[Exposure] = []
    for file, module in modules.items():
        viewers = {each.viewer for each in named if each.file == file}
        names = frozenset(viewer for viewer in viewers if viewer is not None)
        found.append(Exposure(module, None if None in viewers else names))
    return tuple(found)


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
    capabilities_of(session.settings(session.find_settings())[0], policy)  # refuses its fields
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


def ask_again(lace: Lace, question: Callable[[], Answer]) -> Answer:
    """Return an answer; damage that shows in stored facts is met by making them again."""
    try:
        return question()
    except (AnswerLostError, SegmentDamagedError):
        lace.store.discard_segments()
        return question()


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
