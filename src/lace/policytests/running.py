"""Running the cases of a test file: the rules as they are, over the facts that a case has.

A policy is prepared and enforced as for an exchange, by the same code as a preview; no
lace is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lace.engines.budget import Statistics
from lace.engines.embedded.factbase import FactBase
from lace.engines.embedded.session import Session
from lace.engines.queries import check_rules, evaluate_given, find_predicates
from lace.engines.result import Result
from lace.errors import LaceError, LimitExceeded, PolicyError, RuleError, UsageError
from lace.facts.catalogue import RECORD_PREDICATES
from lace.policy.exposure import exposure_of
from lace.policy.local import Policy, prepare_exchange
from lace.policy.operand import operand_of
from lace.policytests.case_reader import read_fact
from lace.policytests.coverage import Coverage, whole_program
from lace.policytests.differences import (
    Difference,
    Names,
    PolicyAnswer,
    derived_differences,
    set_differences,
)
from lace.policytests.names import PEER
from lace.policytests.tables import meant
from lace.previewing import Preview
from lace.rules.limits import limits_of, peer_limits_of
from lace.rules.profiles import CAN_QUERY_RECORD, MAY_REQUEST, MAY_SEND
from lace.rules.syntax import PredicateKey

if TYPE_CHECKING:
    from lace.base.limits import Settings
    from lace.facts.lines import Fact
    from lace.policy.compile import Executable
    from lace.policy.local import Exchange
    from lace.policytests.model import Case, PolicyTests, Rows

__all__ = ["Outcome", "Runner"]

_THEIRS = "theirs:"
_SHARED = {str(key) for key in (MAY_SEND, MAY_REQUEST, CAN_QUERY_RECORD)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a case ended: `failure` says why it has no answer, or the wrong error.

    `cause` is the error that stopped the case, if one did, expected or not.
    """

    case: Case
    differences: tuple[Difference, ...] = ()
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

    def run(self, case: Case) -> Outcome:
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
                return Outcome(case=case, failure=_told(error), cause=error)
            if case.error in _identifiers(error):
                return Outcome(case=case, cause=error)
            failure = f"it should fail with {case.error}, and fails otherwise: {_told(error)}"
            return Outcome(case=case, failure=failure, cause=error)
        if case.error is not None:
            return Outcome(case=case, failure=f"it should fail with {case.error}, and does not")
        return Outcome(case=case, differences=tuple(differences))

    # -- plain rules ---------------------------------------------------------------------------

    def _run_rules(self, case: Case, settings: Settings) -> list[Difference]:
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

    def _run_policy(self, case: Case, settings: Settings) -> list[Difference]:
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
        evaluation = Session(base).evaluate(whole, whole.derived, statistics)
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
    """Return what a predicate that a case names is called in the whole program.

    Raises:
        UsageError: no rule defines it.
    """
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
            return f"{errors[0]} (and {len(errors) - 1} more)"
        if errors:
            return str(errors[0])
    return str(error)
