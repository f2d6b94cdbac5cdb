"""CheckedProgram: the proof that every check of a lacegram ran; and Lacegram, its friendly face.

`check_source` and `check_canonical` are the only ways to a `CheckedProgram`. All
checks run before anything is refused, so an author sees every finding at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Self

from lace.base.arguments import check_argument
from lace.errors import Place
from lace.rules.canonical import (
    collect_annotations,
    lacegram_id,
    parse_canonical,
    rule_id,
)
from lace.rules.checks.legality import (
    Strata,
    check_limits,
    check_required,
    check_reserved,
    check_safety,
    check_strata,
    number_strata,
)
from lace.rules.checks.policy import (
    check_absence,
    check_authority,
    check_labels,
    check_only_here,
    check_record_free,
    check_unknown_viewers,
    check_viewers,
)
from lace.rules.checks.warnings import (
    check_duplicates,
    check_field_names,
    check_never_fires,
    check_once,
    check_products,
    check_undefined,
    check_unused,
)
from lace.rules.dependencies import Dependencies
from lace.rules.findings import Reporter, SourceText, Suggester
from lace.rules.limits import OWN_LIMITS, Limits, RuleLimits, read_limits
from lace.rules.profiles import QUERY, Profile, profile_named
from lace.rules.source import Parsed, parse_source

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lace.errors import Finding
    from lace.rules.syntax import PredicateKey, Rule


_SHOWN_PREDICATES: Final = 5
"""Predicates that are named where rules are shown in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A rule as it was written, for one that was made of it.

    `part` says whose rule it is, as "operand 0"; `number` counts from 1 in its module.
    """

    number: int
    id: str
    text: str
    part: str
    place: Place
    annotations: Mapping[str, object]


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class CheckedProgram:
    """A lacegram that passed every check of a profile; the type is the proof.

    `lines` and `rule_ids` go with `rules`, one each; `annotations` are by `U.` id.
    `strata` are as low as they can be; `components` are finer: sets of mutually
    recursive predicates, each after what it depends on. The rules of a generated program
    lead back, by `written`, to those that they were made of.
    """

    rules: tuple[Rule, ...]
    lines: tuple[str, ...]
    canonical: str
    id: str
    rule_ids: tuple[str, ...]
    annotations: Mapping[str, Mapping[str, object]]
    warnings: tuple[Finding, ...]
    strata: Strata
    dependencies: Dependencies
    profile: Profile
    limits: RuleLimits
    source: str | None
    written: tuple[Written, ...] | None

    def __init__(self) -> None:
        """Refuse: only the checks make one."""
        raise TypeError("a CheckedProgram is made by the checks only")

    @property
    def components(self) -> tuple[tuple[PredicateKey, ...], ...]:
        """The derived predicates by mutual recursion, each after those that it depends on."""
        return self.dependencies.components()

    def place(self, position: int) -> Place:
        """Return where a rule was written."""
        if self.written is not None:
            return self.written[position].place
        span = self.rules[position].span
        return Place(self.source, span.line or None, span.column or None)

    @property
    def derived(self) -> tuple[PredicateKey, ...]:
        """The predicates that the rules define, in the order of their first rule."""
        return self.dependencies.derived

    @property
    def required_base(self) -> tuple[PredicateKey, ...]:
        """The base predicates that the rules read, sorted."""
        used = {edge.target for edge in self.dependencies.edges()}
        return tuple(sorted(used & self.profile.base))

    @property
    def undefined(self) -> tuple[PredicateKey, ...]:
        """The predicates that the rules read, and that are neither defined nor base, sorted."""
        used = {edge.target for edge in self.dependencies.edges()}
        return tuple(sorted(used - self.profile.base - {*self.derived}))

    def depends_on(self, predicate: PredicateKey, *others: PredicateKey) -> bool:
        """Tell whether a predicate depends, through helpers, on any of the others."""
        return not self.dependencies.reach(predicate).isdisjoint(others)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckedProgram) and (
            self.canonical,
            self.profile,
            self.limits,
        ) == (other.canonical, other.profile, other.limits)

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __repr__(self) -> str:
        return f"<CheckedProgram {_summary(self)}>"


def _summary(program: CheckedProgram) -> str:
    """Return in a few words which rules these are, and what they define."""
    count = len(program.rules)
    names = list(map(str, program.derived[:_SHOWN_PREDICATES]))
    names += ["…"] if len(program.derived) > _SHOWN_PREDICATES else []
    said = f"{count} rule{'' if count == 1 else 's'}"
    return f"{program.id}: {said}{' for ' if names else ''}{', '.join(names)}"


def check_source(
    text: str | bytes,
    *,
    profile: Profile = QUERY,
    limits: RuleLimits = OWN_LIMITS,
    name: str | None = None,
    allowed: Collection[PredicateKey] | None = None,
) -> CheckedProgram:
    """Parse authoring text and check it.

    Args:
        text: the rules.
        profile: what they are for.
        limits: what they may be at most.
        name: what messages call the text.
        allowed: for rules that act for their owner, the predicates that may be undefined
            though something depends on their being empty; None refuses nothing for that.

    Raises:
        RuleError: the text is not a legal lacegram of this profile; `findings` has it all.
    """
    return _checked(parse_source(text, name=name, limits=limits), profile, limits, allowed)


def check_canonical(
    raw: bytes,
    *,
    profile: Profile = QUERY,
    limits: RuleLimits = OWN_LIMITS,
    name: str | None = None,
) -> CheckedProgram:
    """Check bytes that must be canonical text, as whatever was exchanged or named by hash.

    Raises:
        RuleError: the bytes are not canonical, or not a legal lacegram of this profile.
    """
    return _checked(parse_canonical(raw, name=name, limits=limits), profile, limits)


def find_all(
    text: str | bytes,
    *,
    profile: Profile = QUERY,
    limits: RuleLimits = OWN_LIMITS,
    name: str | None = None,
) -> tuple[Finding, ...]:
    """Return everything that the checks find in authoring text, and raise nothing."""
    parsed = parse_source(text, name=name, limits=limits)
    _check(parsed, profile, limits)
    return parsed.reporter.findings


def _check(
    parsed: Parsed,
    profile: Profile,
    limits: RuleLimits,
    allowed: Collection[PredicateKey] | None = None,
) -> Dependencies:
    """Run all checks; what they find is in the reporter of what was parsed."""
    rules, exact, reporter = parsed.rules, parsed.exact, parsed.reporter
    graph = Dependencies(rules)
    check_limits(rules, limits, reporter)
    near = Suggester()
    check_safety(parsed.sound, reporter, near)
    check_reserved(rules, profile, reporter)
    check_strata(rules, graph, reporter)
    check_products(exact, profile, reporter)
    check_once(exact, reporter)
    check_field_names(exact, reporter)
    check_authority(exact, reporter)
    check_labels(exact, reporter)
    check_duplicates(exact, reporter)
    if parsed.complete:  # else a line that gave no rule may be the one that is missing
        last = rules[-1].span.line if rules else 1
        check_required(graph.derived, profile, last, reporter)
        is_exact = len(exact) == len(rules)
        check_undefined(exact, graph, profile, reporter, near, allowed if is_exact else None)
    if parsed.complete and len(exact) == len(rules):
        check_never_fires(rules, graph, profile, reporter)
        check_unused(rules, graph, profile, reporter)
        check_absence(rules, graph, profile, reporter)
        check_viewers(rules, graph, profile, reporter)
        check_unknown_viewers(rules, profile, reporter)
        check_record_free(rules, graph, profile, reporter)
        check_only_here(rules, profile, reporter)
    return graph


def _checked(
    parsed: Parsed,
    profile: Profile,
    limits: RuleLimits,
    allowed: Collection[PredicateKey] | None = None,
) -> CheckedProgram:
    graph = _check(parsed, profile, limits, allowed)
    if parsed.reporter.has_errors:
        raise parsed.reporter.refusal()
    return _program(parsed.rules, parsed.annotations, graph, profile, limits, parsed.reporter)


def refuse_undefined(program: CheckedProgram, allowed: Collection[PredicateKey]) -> None:
    """Refuse rules that act for their owner, and rest on a predicate that nobody defines.

    Args:
        program: checked rules.
        allowed: the predicates that are empty on purpose.

    Raises:
        RuleError: a negated or counted atom depends on another undefined predicate.
    """
    reporter = Reporter(SourceText(program.source, ()))
    graph = program.dependencies
    check_undefined(program.rules, graph, program.profile, reporter, Suggester(), allowed)
    if reporter.has_errors:
        raise reporter.refusal()


def assemble_program(
    rules: Sequence[Rule],
    *,
    profile: Profile,
    limits: RuleLimits,
    written: Sequence[Written],
    name: str | None = None,
) -> CheckedProgram:
    """Return the program of rules that were made of checked ones.

    Safety and strata are checked all the same; what is reserved is the maker's to use.

    Raises:
        RuleError: a rule that was made is unsafe, or the rules together have no strata.
    """
    reporter = Reporter(SourceText(name, ()))
    graph = Dependencies(rules)
    check_safety(rules, reporter, Suggester())
    check_strata(rules, graph, reporter)
    if reporter.has_errors:
        raise reporter.refusal()
    unannotated: tuple[Mapping[str, object], ...] = ({},) * len(rules)
    program = _program(tuple(rules), unannotated, graph, profile, limits, reporter)
    object.__setattr__(program, "written", tuple(written))
    return program


def with_limits(program: CheckedProgram, limits: RuleLimits) -> CheckedProgram:
    """Return a program under other limits.

    Raises:
        RuleError: its rules go beyond them.
    """
    if program.limits == limits:
        return program
    reporter = Reporter(SourceText(program.source, ()))
    check_limits(program.rules, limits, reporter)
    if reporter.has_errors:
        raise reporter.refusal()
    made = object.__new__(CheckedProgram)
    for entry in fields(CheckedProgram):
        object.__setattr__(made, entry.name, getattr(program, entry.name))
    object.__setattr__(made, "limits", limits)
    return made


def _program(
    rules: tuple[Rule, ...],
    annotations: Sequence[Mapping[str, object]],
    graph: Dependencies,
    profile: Profile,
    limits: RuleLimits,
    reporter: Reporter,
) -> CheckedProgram:
    lines = tuple(map(str, rules))
    ids = tuple(map(rule_id, lines))
    canonical = "\n".join(lines)
    program = object.__new__(CheckedProgram)
    for name, value in (
        ("rules", rules),
        ("lines", lines),
        ("canonical", canonical),
        ("id", lacegram_id(canonical)),
        ("rule_ids", ids),
        ("annotations", collect_annotations(ids, annotations)),
        ("warnings", reporter.warnings),
        ("strata", number_strata(graph)),
        ("dependencies", graph),
        ("profile", profile),
        ("limits", limits),
        ("source", reporter.source.name),
        ("written", None),
    ):
        object.__setattr__(program, name, value)
    return program


@dataclass(frozen=True, slots=True, repr=False)
class Lacegram:
    """A checked set of rules, with its canonical text and identifiers.

    >>> rules = Lacegram.parse("Selected(P) :- Have( P ).")
    >>> rules.canonical
    'Selected(P) :- Have(P).'
    """

    program: CheckedProgram

    def __post_init__(self) -> None:
        check_argument(
            self.program, CheckedProgram, "program is checked rules", "use Lacegram.parse for text"
        )

    @classmethod
    def parse(
        cls,
        text: str | bytes,
        *,
        profile: Profile | str = QUERY,
        limits: Limits = OWN_LIMITS,
        name: str | None = None,
    ) -> Self:
        """Return the lacegram of authoring text; `name` is what messages call the source.

        Args:
            text: the rules.
            profile: what the rules are for, or its name.
            limits: by the names of their settings, as `{"max_arity": 12}`; the others are the
                defaults.
            name: what messages call the text.

        Raises:
            RuleError: the text is not a legal lacegram; `findings` holds all that was found.
            UsageError: there is no such profile, or an argument is of another type.
        """
        if isinstance(profile, str):
            profile = profile_named(profile)
        check_argument(profile, Profile, "profile is a Profile or its name")
        return cls(check_source(text, profile=profile, limits=read_limits(limits), name=name))

    @property
    def canonical(self) -> str:
        """The canonical text, without a final LF."""
        return self.program.canonical

    @property
    def id(self) -> str:
        """The `R.` identifier."""
        return self.program.id

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in the order of the source."""
        return self.program.rules

    @property
    def rule_ids(self) -> tuple[str, ...]:
        """The `U.` identifier of each rule."""
        return self.program.rule_ids

    @property
    def strata(self) -> Strata:
        """The predicates that the rules define, by stratum, lowest first."""
        return self.program.strata

    @property
    def annotations(self) -> Mapping[str, Mapping[str, object]]:
        """The annotations of rules, by `U.` identifier."""
        return self.program.annotations

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What is legal and still looks wrong."""
        return self.program.warnings

    def __str__(self) -> str:
        return self.canonical

    def __repr__(self) -> str:
        return f"<Lacegram {_summary(self.program)}>"


RULE_KINDS: Final = (Lacegram, CheckedProgram, str, bytes)
"""What a program may give as rules: checked ones, or their text."""
