"""Policy: what one side brings to exchanges (040): selector, exposures, lowering, what it offers.

The selector becomes this side's operand of a plan and is told to the peer. Exposures are
not: they decide, here and only here, what of this side's records a peer's rules can see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from lace.base.arguments import check_argument, check_many
from lace.errors import Finding, Place, PolicyError
from lace.policy.compile import Executable, compile_policy, plan_provenance
from lace.policy.exposure import Exposure, check_viewer, exposure_of
from lace.policy.operand import Operand, advertised_fields, operand_of
from lace.policy.plan import LOWERINGS, ExchangePlan, check_lowering, make_plan
from lace.policy.schema import Schema, check_own_fields, formats_of, schema_of
from lace.rules.checks.warnings import parse_allowed
from lace.rules.limits import OWN_LIMITS, Limits, RuleLimits, read_limits
from lace.rules.program import RULE_KINDS, refuse_undefined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lace.policy.compile import Provenance
    from lace.rules.program import CheckedProgram, Lacegram


Rules: TypeAlias = "Lacegram | CheckedProgram | str | bytes"
"""Rules that are checked already, or their authoring text."""
Exposing: TypeAlias = "Exposure | Rules | tuple[Rules, str]"
"""An exposure, or its rules: alone for anyone, in a pair with a verifier for that viewer."""
_ANYONE: Final = "020-52"
"""The warning about exposures to any viewer; a module for named viewers does not get it."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Policy:
    r"""What one side selects and exposes.

    >>> policy = Policy(
    ...     select="SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).",
    ...     exposures=["AllowQueryRecord(V,P) :- Peer(V), _Viewer(V), Have(P)."],
    ... )
    >>> policy.lowering
    'standard-v1'
    """

    select: CheckedProgram
    exposures: tuple[Exposure, ...]
    lowering: str
    allow_undefined: tuple[str, ...]
    schema: Schema | None
    """The fields that advertisements carry; None where the policy names none."""
    formats: frozenset[str] | None
    """The record formats that are offered; None where the policy names none."""

    def __init__(
        self,
        select: Rules,
        exposures: Iterable[Exposing] = (),
        *,
        lowering: str = "standard-v1",
        limits: Limits | None = None,
        allow_undefined: Iterable[str] = (),
        fields: Iterable[str] | None = None,
        all_fields: bool = False,
        formats: Iterable[str] | None = None,
    ) -> None:
        """Check everything.

        Args:
            select: the selector: rules for `SelectHave/1` and `SelectAdvertised/2`.
            exposures: modules with rules for `AllowQueryRecord/2`; one by itself is for
                anyone, one in a pair with a verifier for that viewer.
            lowering: what is asked beyond selection.
            limits: for rules that come as text, by the names of their settings, as
                `{"max_arity": 12}`; the others are the defaults. A `Lacegram` keeps its own.
            allow_undefined: predicates that nobody defines on purpose, as `"Blocked/1"`; any
                other that a negated or counted atom depends on is refused.
            fields: the fields that advertisements may carry, and no others; an empty list is
                none. Where neither this nor a setting names any, they are those of the standard
                fields and of the ones that `select` reads that the rules of both sides name.
            all_fields: offer all fields of records instead.
            formats: the record formats that are offered, by the suffix of their hashes.

        Raises:
            RuleError: rules are not legal, or rest on a predicate that nobody defines;
                `findings` holds all that was found.
            PolicyError: a viewer is no verifier, there is no such lowering, `select` reads a
                field that is not offered, or no store can hold a format.
            UsageError: an argument is of another type.
        """
        check_argument(select, RULE_KINDS, "select is a Lacegram or its text")
        allowed = None if limits is None else read_limits(limits)
        check_lowering(lowering)
        object.__setattr__(self, "select", operand_of(select, 0, limits=allowed).module)
        object.__setattr__(self, "exposures", exposures_of(exposures, allowed or OWN_LIMITS))
        object.__setattr__(self, "lowering", lowering)
        empty = parse_allowed(allow_undefined)
        object.__setattr__(self, "allow_undefined", tuple(sorted(map(str, empty))))
        for module in modules_of(self):
            refuse_undefined(module, empty)
        schema = schema_of(fields, all_fields=all_fields)
        if schema is not None:
            check_own_fields(schema, advertised_fields(self.select))
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "formats", formats_of(formats))

    def __repr__(self) -> str:
        count = len(self.exposures)
        exposed = f"{count or 'no'} exposure{'' if count == 1 else 's'}"
        return f"<Policy: select {self.select.id}, {exposed}, {self.lowering}>"

    def operand(self, index: int) -> Operand:
        """Return this side's operand of a plan."""
        return Operand(index=index, module=self.select)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What is legal and still looks wrong, the registration of exposures included."""
        return (*self.select.warnings, *exposure_warnings(self.exposures))


def check_policy(policy: object, said: str = "policy") -> None:
    """Refuse what is no policy, by the name of its argument.

    Raises:
        UsageError: it is something else.
    """
    check_argument(policy, Policy, f"{said} is a Policy", "make one with lace.Policy(select=rules)")


def modules_of(policy: Policy) -> tuple[CheckedProgram, ...]:
    """Return the rules of a policy: its selector, then its exposures."""
    return (policy.select, *(each.module for each in policy.exposures))


def exposure_warnings(exposures: Iterable[Exposure]) -> Iterator[Finding]:
    """Yield what looks wrong with exposures, and with how they are registered."""
    for exposure in exposures:
        warnings = exposure.module.warnings
        if exposure.viewers is not None:
            yield from (found for found in warnings if found.rule != _ANYONE)
            continue
        yield from warnings
        if not any(found.rule == _ANYONE for found in warnings):
            yield Finding(
                severity="warning",
                place=Place(exposure.module.source),
                message="this exposure is for anyone, also for peers that prove nothing",
                rule=_ANYONE,
                hint="name a viewer, as FILE@V.….H3",
            )


def exposures_of(
    exposures: Iterable[Exposing], limits: RuleLimits = OWN_LIMITS
) -> tuple[Exposure, ...]:
    """Return exposures of whatever says them, checked.

    Raises:
        RuleError: rules are no legal exposure module.
        PolicyError: a viewer is no verifier.
        UsageError: it is one thing instead of several.
    """
    check_many(exposures, "exposures are several exposures", "put it into a list, as in [rules]")
    return tuple(_exposure(each, limits) for each in exposures)


def _exposure(each: Exposing, limits: RuleLimits) -> Exposure:
    if isinstance(each, Exposure):
        return each
    if isinstance(each, tuple):
        if len(each) != 2:
            raise PolicyError(
                f"an exposure in a tuple is rules and a viewer, not {len(each)} things",
                rule="G05b",
                hint="as in (rules, 'V.….H3')",
            )
        _check_module(each[0])
        return exposure_of(each[0], each[1], limits=limits)
    _check_module(each)
    return exposure_of(each, anyone=True, limits=limits)


def _check_module(rules: object) -> None:
    said = "an exposure is a Lacegram or its text, alone or in a pair with a viewer"
    check_argument(rules, RULE_KINDS, said)


@dataclass(frozen=True, slots=True)
class Plan:
    """What two selectors agree on: the plan, and both operands that it is made from."""

    operands: tuple[Operand, Operand]
    agreed: ExchangePlan

    @property
    def id(self) -> str:
        """The `E.` identifier."""
        return self.agreed.id

    @property
    def transcript(self) -> str:
        """The canonical text that the identifier is made from, without a final LF."""
        return self.agreed.transcript

    @property
    def provenance(self) -> Provenance:
        """Where each rule comes from that either side generates: `facts()`, or `text` for a file.

        It is about the plan alone: a side's exposures are not in it. No rule can read it.
        """
        return plan_provenance(self.agreed, self.operands)


def plan(
    operand0: Rules,
    operand1: Rules,
    *,
    lowering: str = LOWERINGS[0],
    limits: Limits | None = None,
) -> Plan:
    """Return the exchange plan of two selectors.

    Args:
        operand0: the selector of the side that connects.
        operand1: the selector of the side that accepts.
        lowering: what is asked beyond selection.
        limits: for rules that come as text, as those of `Policy`.

    Raises:
        RuleError: rules are not legal; `findings` holds all that was found.
        PolicyError: there is no plan for these two, or no such lowering.
        UsageError: an argument is of another type.
    """
    for given, said in ((operand0, "operand0"), (operand1, "operand1")):
        check_argument(given, RULE_KINDS, f"{said} is a Lacegram or its text")
    allowed = None if limits is None else read_limits(limits)
    pair = operand_of(operand0, 0, limits=allowed), operand_of(operand1, 1, limits=allowed)
    return Plan(pair, make_plan(*pair, lowering))


@dataclass(frozen=True, slots=True)
class Exchange:
    """Two operands with their plan, compiled for one side."""

    operands: tuple[Operand, Operand]
    executable: Executable


def prepare_exchange(policy: Policy, peer: Operand, viewer: str | None = None) -> Exchange:
    """Return an exchange with a peer's operand; this side has the other index.

    Args:
        policy: this side's.
        peer: the other operand.
        viewer: the peer's proven verifier; without one it is seen by its label.

    Raises:
        PolicyError: there is no plan for these two, or the viewer is no verifier.
    """
    index = 1 - peer.index
    pair = (policy.operand(0), peer) if index == 0 else (peer, policy.operand(1))
    plan = make_plan(*pair, policy.lowering)
    seen = check_viewer(viewer) if viewer is not None else plan.operands[peer.index].origin
    compiled = compile_policy(plan, pair, index=index, exposures=policy.exposures, viewer=seen)
    return Exchange(pair, compiled)
