"""Running the cases of a test file: the rules as they are, over the facts that a case has.

A policy is prepared and enforced as for an exchange, by the same code as a preview; no
lace is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lace.engine.budget import Statistics
from lace.engine.engine import EvaluationSession
from lace.engine.factbase import FactBase
from lace.errors import LaceError, LimitExceeded, PolicyError, RuleError, UsageError
from lace.facts.catalogue import RECORD_PREDICATES
from lace.policy.exposure import exposure_of
from lace.policy.local import Policy, prepare_exchange
from lace.policy.operand import operand_of
from lace.policytests.differences import (
    CaseDifference,
    Names,
    PolicyAnswer,
    derived_differences,
    set_differences,
)
from lace.policytests.model import PEER
from lace.policytests.reader import read_fact
from lace.policytests.tables import meant
from lace.query.evaluate import check_rules, evaluate_given, find_predicates
from lace.query.preview import Preview
from lace.query.result import Result
from lace.rules.limits import OWN_LIMITS, limits_of, peer_limits_of
from lace.rules.profiles import CAN_QUERY_RECORD, MAY_REQUEST, MAY_SEND, Profile
from lace.rules.program import assemble_program
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.base.limits import Settings
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.policy.local import Exchange
    from lace.policytests.model import Case, PolicyTests, Rows, RuleText
    from lace.rules.program import CheckedProgram


# -- Rule coverage: which rules of the files under test made a fact in at least one case.


@dataclass(frozen=True, slots=True)
class MeasuredRule:
    """A rule under test: its line, its text as it was written, and its id."""

    line: int | None
    text: str
    id: str


@dataclass(slots=True)
class FileCoverage:
    """The rules of one file by their lines, and the lines of those that made a fact."""

    name: str
    rules: dict[int | None, MeasuredRule] = field(default_factory=dict)
    fired: set[int | None] = field(default_factory=set)

    @property
    def total(self) -> int:
        """How many rules the file has."""
        return len(self.rules)

    def idle(self) -> Iterator[MeasuredRule]:
        """Yield the rules that made nothing, in their order."""
        for line in sorted(self.rules, key=lambda line: line or 0):
            if line not in self.fired:
                yield self.rules[line]


class Coverage:
    """What was measured so far, by file."""

    def __init__(self) -> None:
        self._files: dict[str, FileCoverage] = {}

    @property
    def files(self) -> list[FileCoverage]:
        """The files, in the order in which they were met."""
        return list(self._files.values())

    @property
    def total(self) -> int:
        """How many rules all files have."""
        return sum(each.total for each in self._files.values())

    @property
    def fired(self) -> int:
        """How many of them made a fact."""
        return sum(len(each.fired) for each in self._files.values())

    @property
    def percent(self) -> float:
        """The share of rules that made a fact; of no rules, all."""
        return 100 * self.fired / self.total if self.total else 100.0

    def meet(self, rules: RuleText, module: CheckedProgram) -> None:
        """Count the rules of a file, whether they make anything or not."""
        if not rules.measured:
            return
        file = self._files.setdefault(rules.name, FileCoverage(rules.name))
        for position, identifier in enumerate(module.rule_ids):
            line = module.place(position).line
            text = rules.line(line) or module.lines[position]
            file.rules.setdefault(line, MeasuredRule(line, text, identifier))

    def note(self, program: CheckedProgram, statistics: Statistics) -> None:
        """Count the rules of a program that made a fact, as those they were written as."""
        for position in {run.rule for run in statistics.runs if run.made}:
            place = program.place(position)
            file = self._files.get(place.source or "")
            if file is not None and place.line in file.rules:
                file.fired.add(place.line)


def whole_program(executable: Executable) -> CheckedProgram:
    """Return all programs of a policy as one, for measuring.

    The limits under test do not apply to it: they were kept, or not, by the programs one
    by one, and each of these does a part of what this one does.
    """
    generated = executable.provenance.generated
    return assemble_program(
        [each.rule for each in generated],
        profile=Profile(name="generated", base=executable.view.profile.base),
        limits=OWN_LIMITS,
        written=[each.written for each in generated],
    )


_THEIRS = "theirs:"
_SHARED = {str(key) for key in (MAY_SEND, MAY_REQUEST, CAN_QUERY_RECORD)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """How a case ended: `failure` says why it has no answer, or the wrong error.

    `cause` is the error that stopped the case, if one did, expected or not.
    """

    case: Case
    differences: tuple[CaseDifference, ...] = ()
    failure: str | None = None
    cause: LaceError | None = None

    @property
    def is_ok(self) -> bool:
        """Whether all is as the case expects."""
        return not self.differences and self.failure is None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.case.name,
            "line": self.case.line,
            "ok": self.is_ok,
            "failure": self.failure,
            "differences": [each.to_json() for each in self.differences],
        }


class Runner:
    """Runs the cases of one file, one after the other."""

    def __init__(self, tests: PolicyTests, settings: Settings, coverage: Coverage) -> None:
        self._tests = tests
        self._settings = settings
        self._coverage = coverage
        self._called = tests.called()

    def run(self, case: Case) -> CaseOutcome:
        """Return how a case ends; whatever is wrong with rules or limits is in it."""
        settings = replace(self._settings, **case.limits)
        try:
            differences = (
                self._run_policy(case, settings)
                if self._tests.rules is None
                else self._run_rules(case, settings)
            )
        except LaceError as error:
            if case.error is None:
                return CaseOutcome(case=case, failure=_told(error), cause=error)
            if case.error in _identifiers(error):
                return CaseOutcome(case=case, cause=error)
            failure = f"it should fail with {case.error}, and fails otherwise: {_told(error)}"
            return CaseOutcome(case=case, failure=failure, cause=error)
        if case.error is not None:
            return CaseOutcome(case=case, failure=f"it should fail with {case.error}, and does not")
        return CaseOutcome(case=case, differences=tuple(differences))

    # -- plain rules ---------------------------------------------------------------------------

    def _run_rules(self, case: Case, settings: Settings) -> list[CaseDifference]:
        text = self._tests.rules
        if text is None:
            raise AssertionError("a test of plain rules has rules")
        facts = self._record_facts(case) + [read_fact(line, "") for line in case.facts]
        given = {PredicateKey(fact[0], len(fact) - 1) for fact in facts}
        checked = check_rules(text.raw, given, limits=limits_of(settings), name=text.name)
        self._coverage.meet(text, checked)
        find_predicates(checked, case.derived)
        statistics = Statistics()
        every = [str(key) for key in checked.derived]
        result = evaluate_given(checked, facts, predicates=every, statistics=statistics)
        self._coverage.note(checked, statistics)
        names = Names(self._called)
        return [
            each
            for key, rows in case.derived.items()
            for each in derived_differences(key, key, rows, result, names)
        ]

    def _record_facts(self, case: Case) -> list[Fact]:
        return [fact for name in case.records for fact in self._tests.records[name].facts]

    # -- policies ------------------------------------------------------------------------------

    def _run_policy(self, case: Case, settings: Settings) -> list[CaseDifference]:
        exchange = self._prepare(case, settings)
        executable = exchange.executable
        facts, public = self._facts(case, executable.viewer)
        if executable.reads_clock and not any(fact[0] == "_LocalTAI" for fact in public):
            raise PolicyError(
                "an exposure reads _LocalTAI, and the case gives no time",
                rule="G05b",
                hint="add the fact to the case: facts = [\"_LocalTAI('1763683237:000000000')\"]",
            )
        base = FactBase(max_value_bytes=settings.max_value_bytes)
        base.change(facts)
        preview = Preview(exchange, base, public, formats=None)  # made-up records have any name
        whole = whole_program(executable)
        statistics = Statistics()
        evaluation = EvaluationSession(base).evaluate(whole, whole.derived, statistics)
        self._coverage.note(whole, statistics)
        result = Result(whole, evaluation)
        names = Names({executable.viewer: PEER, **self._called})
        answer = PolicyAnswer(preview, result)
        have = frozenset(fact[1] for fact in facts if fact[0] == "Have")
        found = list(set_differences(case, answer, answer.sets(have), names))
        for key, rows in case.derived.items():
            predicate = _find_derived(key, executable, result)
            wanted = _with_peer(rows, executable.viewer)
            found += derived_differences(key, predicate, wanted, result, names)
        return found

    def _prepare(self, case: Case, settings: Settings) -> Exchange:
        tests, limits = self._tests, limits_of(settings)
        if tests.select is None or case.peer_select is None:
            raise AssertionError("a case of a policy has two selectors")
        select = operand_of(tests.select.raw, case.index, limits=limits, name=tests.select.name)
        self._coverage.meet(tests.select, select.module)
        exposures = []
        for each in tests.exposures:
            rules = each.rules
            exposures.append(
                exposure_of(
                    rules.raw,
                    *each.viewers,
                    anyone=not each.viewers,
                    limits=limits,
                    name=rules.name,
                )
            )
            self._coverage.meet(rules, exposures[-1].module)
        text = case.peer_select
        peer = operand_of(text.raw, 1 - case.index, limits=peer_limits_of(settings), name=text.name)
        self._coverage.meet(text, peer.module)
        policy = Policy(
            select.module,
            exposures,
            lowering=case.lowering,
            allow_undefined=map(str, tests.allowed),
        )
        return prepare_exchange(policy, peer, case.viewer)

    def _facts(self, case: Case, peer: str) -> tuple[list[Fact], list[Fact]]:
        """Return the record facts of a case, and those that are public."""
        records = self._record_facts(case)
        public: list[Fact] = [] if case.viewer is None else [("Peer", case.viewer)]
        for name in case.advertised:
            public += self._tests.records[name].advertisement(peer)
        for line in case.facts:
            fact = read_fact(line, peer)
            (records if fact[0] in RECORD_PREDICATES else public).append(fact)
        return records, public


def _with_peer(rows: Rows, peer: str) -> Rows:
    mention = f"${{{PEER}}}"
    return tuple(tuple(value.replace(mention, peer) for value in row) for row in rows)


def _find_derived(key: str, executable: Executable, result: Result) -> str:
    """Return what a predicate that a case names is called in the whole program."""
    theirs = key.startswith(_THEIRS)
    scope = executable.their_scope if theirs else executable.our_scope
    name = key.removeprefix(_THEIRS)
    if not theirs and name in _SHARED:
        return name
    if scope + name in result:
        return scope + name
    known = [each.removeprefix(scope) for each in result if each.startswith(scope)]
    whose = "the peer's" if theirs else "my"
    raise UsageError(
        f"no rule of {whose} selector defines {name}", hint=meant(name, known, "predicates")
    )


def _identifiers(error: LaceError) -> set[str | None]:
    """Return all that an error can be called by: its limit, its rule, those of its findings."""
    found = {error.rule}
    match error:
        case LimitExceeded():
            found.add(error.limit)
        case RuleError():
            found.update(each.rule for each in error.findings if each.severity == "error")
    return found - {None}


def _told(error: LaceError) -> str:
    """Return an error in one line; of several findings the first."""
    if isinstance(error, RuleError):
        errors = [each for each in error.findings if each.severity == "error"]
        if len(errors) > 1:
            return f"{errors[0].log_line()} (and {len(errors) - 1} more)"
        if errors:
            return errors[0].log_line()
    return error.log_line()
