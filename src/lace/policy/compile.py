"""From an agreed plan and local policy to programs that an engine runs (040).

There are four, and each reads what those before it make:

1. the *view*: every exposure module in a scope of its own, `CanQueryRecord` as their
   intersection, and the facts that the peer's operand may see;
2. *theirs*: the peer's operand over that view, advertisements and public runtime facts,
   with limits of its own; it reads no other fact, so it can tell no other;
3. *ours*: the local operand over the full local view;
4. the *lowering*: the intersection, and what may be sent and requested.

`flat_program` has them as one, for an engine that takes the whole, and for explanations.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.errors import Place, PolicyError
from lace.facts.catalogue import BASE_PREDICATES
from lace.facts.lines import format_fact
from lace.policy.exposure import (
    PUBLIC,
    Exposure,
    active_exposures,
    check_viewer,
    scope_name,
    scope_rules,
)
from lace.policy.gate import gate_module
from lace.policy.operand import INDEXES, check_index
from lace.policy.plan import check_lowering
from lace.rules.canonical import rule_id
from lace.rules.profiles import (
    ALLOW_QUERY_RECORD,
    CAN_QUERY_RECORD,
    LOCAL_TAI,
    SELECT_ADVERTISED,
    SELECT_HAVE,
    VIEWER,
    Profile,
)
from lace.rules.program import CheckedProgram, Written, assemble_program
from lace.rules.source import parse_source
from lace.rules.syntax import Atom, Constant, PredicateKey, Rule, TrueAtom, Variable, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lace.facts.lines import Fact
    from lace.policy.operand import Operand
    from lace.policy.plan import ExchangePlan
    from lace.rules.limits import RuleLimits


# -- Intersection and lowering: from two selections to what may be sent and requested (040).
#
# A record is in the shared set when both operands select it. A peer's operand selects in the
# view that it has: that it names a record which is here and hidden from it, by a constant or
# by a link, selects nothing. What 050 observes follows from the shared set: `MaySend/1`,
# `MayRequest/1`, and nothing else. A lowering may ask for more than the shared set; it never
# asks for less.

_INTERSECTION: Final = """\
MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P), CanQueryRecord({viewer},P).
MergedSelectHave(P) :- o0_SelectHave(P), o1_SelectHave(P), not Have(P).
MergedSelectAdvertised(P,S) :- o0_SelectAdvertised(P,S), o1_SelectAdvertised(P,S)."""

LOWERING_RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "standard-v1": """\
MaySend(P) :- MergedSelectHave(P).
MayRequest(P) :- MergedSelectAdvertised(P,S).""",
        "encrypted-v1": """\
MaySend(P) :- MergedSelectHave(P), TransportEncrypted().
MayRequest(P) :- MergedSelectAdvertised(P,S), TransportEncrypted().""",
        "proven-peer-v1": """\
MaySend(P) :- MergedSelectHave(P).
MayRequest(P) :- MergedSelectAdvertised(P,S), Peer(S).""",
    }
)
"""The rules of each lowering, by name."""

MERGED: Final = (
    PredicateKey("MergedSelectHave", SELECT_HAVE.arity),
    PredicateKey("MergedSelectAdvertised", SELECT_ADVERTISED.arity),
)
"""The predicates of the shared set."""


@lru_cache(maxsize=64)
def lowering_rules(name: str, viewer: str) -> tuple[Rule, ...]:
    """Return the rules of the intersection for a viewer, and of a lowering."""
    check_lowering(name)
    intersection = _INTERSECTION.format(viewer=quote(viewer))
    return parse_source(f"{intersection}\n{LOWERING_RULES[name]}").rules


# -- Provenance: every generated rule leads back to the rule and the operand it came from (040).
#
# These are facts about rules, for people and tools. No rule can read them.

_NONE: Final = MappingProxyType[str, object]({})


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated rule: the step that made it, of what, and the rule as it was written.

    `step` is one of `040-operand-scope`, `040-exposure-scope`, `040-exposure-intersection`,
    `040-query-view`, `040-intersection` and `040-lowering`; `of` is the scope or the
    predicate it was made for. `module` and `origin` are those of the operand or exposure;
    `viewer` is there when the rule reads records through the gate.
    """

    rule: Rule
    step: str
    of: str
    written: Written
    module: str | None = None
    origin: str | None = None
    viewer: str | None = None


def made_of(
    module: CheckedProgram,
    rules: Sequence[Rule],
    scope: tuple[str, str],
    part: str,
    origin: str | None = None,
    viewer: str | None = None,
) -> tuple[Generated, ...]:
    """Return what was made of the rules of a module, one of each and in their order.

    `scope` is the step that gave them theirs, and its name.
    """
    step, of = scope
    return tuple(
        Generated(
            rule,
            step,
            of,
            Written(
                number=number,
                id=identifier,
                text=line,
                part=part,
                place=module.place(number - 1),
                annotations=module.annotations.get(identifier, _NONE),
            ),
            module.id,
            origin,
            viewer,
        )
        for number, (rule, identifier, line) in enumerate(
            zip(rules, module.rule_ids, module.lines, strict=True), 1
        )
    )


def made_by(
    rules: Sequence[Rule], step: str, part: str, viewer: str | None = None
) -> tuple[Generated, ...]:
    """Return rules that were made of none; they are their own source."""
    return tuple(
        Generated(
            rule,
            step,
            str(rule.head.key).removeprefix("Merged"),
            Written(
                number=number,
                id=rule_id(str(rule)),
                text=str(rule),
                part=part,
                place=Place(),
                annotations=_NONE,
            ),
            viewer=viewer,
        )
        for number, rule in enumerate(rules, 1)
    )


@dataclass(frozen=True, slots=True)
class Provenance:
    """The sidecar of a compiled policy."""

    generated: tuple[Generated, ...]

    def facts(self) -> Iterator[Fact]:
        """Yield `RuleSource`, `RuleGeneratedBy` and `RuleOrigin` facts, rule by rule."""
        for each in self.generated:
            identifier = rule_id(str(each.rule))
            if each.module is not None:
                yield "RuleSource", identifier, each.module, each.written.id
            yield "RuleGeneratedBy", identifier, each.step, each.of
            if each.viewer is not None:
                yield "RuleGeneratedBy", identifier, "040-query-gate", each.viewer
            if each.origin is not None:
                yield "RuleOrigin", identifier, each.origin

    @property
    def text(self) -> str:
        """The sidecar as a file: its distinct fact lines, sorted bytewise, each with LF."""
        lines = {format_fact(fact) for fact in self.facts()}
        return "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.encode("utf-8")))


_ALL: Final = frozenset(PredicateKey(found.name, found.arity) for found in BASE_PREDICATES.values())
_VIEW: Final = _ALL | {LOCAL_TAI}
_HAVE: Final = PredicateKey("Have", 1)
_MOST_KEPT: Final = 64
"""Compiled policies that a compiler keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """A plan compiled for one side and one viewer.

    `view_predicates` are what `theirs` reads of records: made by `view`, nowhere else.
    `exposures` are those in force for the viewer; with none, nothing is exposed.
    """

    plan: ExchangePlan
    index: int
    viewer: str
    exposures: tuple[Exposure, ...]
    view: CheckedProgram
    view_predicates: tuple[PredicateKey, ...]
    theirs: CheckedProgram
    ours: CheckedProgram
    lowering: CheckedProgram
    provenance: Provenance

    @property
    def our_scope(self) -> str:
        """The prefix of the local operand's predicates."""
        return f"o{self.index}_"

    @property
    def their_scope(self) -> str:
        """The prefix of the peer operand's predicates."""
        return f"o{1 - self.index}_"

    @property
    def programs(self) -> tuple[CheckedProgram, ...]:
        """All four, each after those that it reads."""
        return self.view, self.theirs, self.ours, self.lowering

    @property
    def reads_clock(self) -> bool:
        """Whether an exposure in force reads this side's clock, `_LocalTAI`."""
        return LOCAL_TAI in self.view.required_base

    @property
    def exposes_nothing(self) -> bool:
        """Whether no exposure is registered for the viewer."""
        return not self.exposures

    @property
    def selections(self) -> tuple[PredicateKey, ...]:
        """What the lowering reads of the two operands."""
        return tuple(
            scope_name(scope, key)
            for scope in (self.our_scope, self.their_scope)
            for key in (SELECT_HAVE, SELECT_ADVERTISED)
        )


def compile_policy(
    plan: ExchangePlan,
    operands: Sequence[Operand],
    *,
    index: int,
    exposures: Iterable[Exposure],
    viewer: str,
) -> Executable:
    """Return the programs of a plan for the side of an operand."""
    check_index(index)
    _check_operands(plan, operands)
    if viewer != plan.operands[1 - index].origin:
        check_viewer(viewer)
    ours, theirs = operands[index], operands[1 - index]
    active = active_exposures(exposures, viewer)
    gated = gate_module(theirs.module, theirs.scope, viewer)
    view = (
        *_exposed(active, viewer),
        *made_by(gated.view_rules, "040-query-view", "the query view", viewer),
    )
    peer = made_of(
        theirs.module,
        gated.rules,
        ("040-operand-scope", f"O{theirs.index}"),
        f"operand {theirs.index}, theirs",
        plan.operands[theirs.index].origin,
        viewer,
    )
    local = made_of(
        ours.module,
        scope_rules(ours.module, ours.scope),
        ("040-operand-scope", f"O{ours.index}"),
        f"operand {ours.index}, ours",
        plan.operands[ours.index].origin,
    )
    merged = _lowered(plan.lowering, viewer)
    selected = frozenset(
        scope_name(scope, key)
        for scope in (ours.scope, theirs.scope)
        for key in (SELECT_HAVE, SELECT_ADVERTISED)
    )
    own = ours.module.limits
    base = _VIEW if active else _VIEW | {CAN_QUERY_RECORD}
    return Executable(
        plan=plan,
        index=index,
        viewer=viewer,
        exposures=active,
        view=_program(view, base, own),
        view_predicates=gated.view,
        theirs=_program(peer, PUBLIC | set(gated.view), theirs.module.limits),
        ours=_program(local, _ALL, own),
        lowering=_program(merged, PUBLIC | selected | {CAN_QUERY_RECORD, _HAVE}, own),
        provenance=Provenance((*view, *peer, *local, *merged)),
    )


def _check_operands(plan: ExchangePlan, operands: Sequence[Operand]) -> None:
    """Refuse other operands than those agreed on: one taken for the other would see all."""
    found = [(each.index, each.module_id) for each in operands]
    if found != [(each.index, each.module_id) for each in plan.operands]:
        raise PolicyError(
            "the operands are not operand 0 and operand 1 of the plan, in this order",
            rule="040-53",
            hint="; ".join(f"operand {each.index} is {each.module_id}" for each in plan.operands),
        )


def flat_program(executable: Executable) -> CheckedProgram:
    """Return all programs of a policy as one, with the limits of one's own rules."""
    generated = executable.provenance.generated
    return _program(generated, executable.view.profile.base, executable.ours.limits)


def plan_provenance(plan: ExchangePlan, operands: Sequence[Operand]) -> Provenance:
    """Return the sidecar of a plan: where each rule comes from that either side generates of it.

    Both sides generate the same, seen from either end; each is seen by its label, as it is
    before a verifier is proven. Exposures are local and no part of a plan.
    """
    made = [
        compile_policy(
            plan, operands, index=index, exposures=(), viewer=plan.operands[1 - index].origin
        )
        for index in INDEXES
    ]
    return Provenance(tuple(each for side in made for each in side.provenance.generated))


def compile_view(exposures: Iterable[Exposure], viewer: str, limits: RuleLimits) -> CheckedProgram:
    """Return the program of `CanQueryRecord` alone: what a viewer may query, whatever it asks.

    With no exposure for the viewer it has no rules.
    """
    made = _exposed(active_exposures(exposures, viewer), viewer)
    return _program(made, _VIEW, limits)


def _exposed(active: Sequence[Exposure], viewer: str) -> tuple[Generated, ...]:
    """Return the rules of exposures and of their intersection."""
    if not active:
        return ()
    made: list[Generated] = []
    who = Constant(viewer)
    record = Variable("P")
    allowed: list[Atom] = []
    for number, exposure in enumerate(active, 1):
        scope = f"m{number}_"
        module = exposure.module
        part = f"exposure {number}" + (f", {module.source}" if module.source else "")
        rules = scope_rules(module, scope)
        made += made_of(module, rules, ("040-exposure-scope", f"M{number}"), part)
        allowed.append(Atom(scope + ALLOW_QUERY_RECORD.name, (who, record)))
    viewing = Rule(Atom(VIEWER.name, (who,)), (TrueAtom(),))
    gate = Rule(Atom(CAN_QUERY_RECORD.name, (who, record)), tuple(allowed))
    made += made_by((viewing, gate), "040-exposure-intersection", "the query gate")
    return tuple(made)


def _lowered(lowering: str, viewer: str) -> tuple[Generated, ...]:
    rules = lowering_rules(lowering, viewer)
    merged = [rule for rule in rules if rule.head.name.startswith("Merged")]
    rest = [rule for rule in rules if not rule.head.name.startswith("Merged")]
    return (
        *made_by(merged, "040-intersection", "the intersection"),
        *made_by(rest, "040-lowering", f"the lowering {lowering}"),
    )


def _program(
    generated: Sequence[Generated], base: frozenset[PredicateKey], limits: RuleLimits
) -> CheckedProgram:
    return assemble_program(
        [each.rule for each in generated],
        profile=Profile(name="generated", base=base),
        limits=limits,
        written=[each.written for each in generated],
    )


_Key: TypeAlias = "tuple[object, ...]"


class Compiler:
    """Compiles policies, and knows those it compiled last by plan, viewer and modules."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, Executable] = OrderedDict()

    def compile(
        self,
        plan: ExchangePlan,
        operands: Sequence[Operand],
        *,
        index: int,
        exposures: Iterable[Exposure],
        viewer: str,
    ) -> Executable:
        """Return what `compile_policy` does, from memory where nothing changed."""
        active = active_exposures(exposures, viewer)
        modules = (*(each.module for each in operands), *(each.module for each in active))
        key = (plan.id, index, viewer, *map(_identity, modules))
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = compile_policy(
                plan, operands, index=index, exposures=active, viewer=viewer
            )
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return found


def _identity(module: CheckedProgram) -> _Key:
    """Return all that shows of a module: its text, limits, and where each rule was written."""
    return (
        module.canonical,
        module.limits,
        module.source,
        tuple(rule.span for rule in module.rules),
        repr(module.annotations),
    )
