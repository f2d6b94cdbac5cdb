"""Selector operands: the checked rules of one side, and the advertised fields they need (040).

`operand_of` takes one's own rules, `receive_operand` the bytes of a peer, which are
checked and never repaired. What an operand may define and mention is the profile
`SELECTOR` of `lace.rules.profiles`; where it comes from is said by `lace.policy.origin`,
never by its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lace.base import b64a
from lace.base.digest import DIGEST_BYTES
from lace.base.text import LINE_BREAK
from lace.errors import LaceError, Place, PolicyError
from lace.facts.lines import check_value
from lace.rules.findings import show
from lace.rules.limits import OWN_LIMITS, PEER_LIMITS, RuleLimits
from lace.rules.profiles import SELECTOR
from lace.rules.program import CheckedProgram, Lacegram, check_canonical, check_source
from lace.rules.syntax import Constant, PredicateKey

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


SELECTOR_FACET: Final = "selector"
"""The only facet that an exchange plan knows."""
INDEXES: Final = (0, 1)
"""The two operands: 0 is the side that connects, 1 the side that accepts."""

_ADVERTISED_FIELD: Final = PredicateKey("AdvertisedField", 5)
_NAME_POSITION: Final = 2


def check_index(index: int) -> None:
    """Refuse what is not the index of an operand."""
    if isinstance(index, bool) or index not in INDEXES:
        raise PolicyError(
            f"an operand has index 0 or 1, not {index!r}",
            rule="040-53",
            hint="the side that connects is 0, the side that accepts is 1",
        )


def check_facet(facet: str) -> None:
    """Refuse a facet that no plan has."""
    if facet != SELECTOR_FACET:
        raise PolicyError(
            f"there is no shared facet '{show(facet)}'",
            rule="040-55",
            hint=f"the facet of an operand is '{SELECTOR_FACET}'",
        )


def check_module_id(module_id: str) -> None:
    """Refuse a text that cannot be the `R.` identifier of a module."""
    letter, _, text = module_id.partition("R.")
    try:
        fits = not letter and len(b64a.decode(text)) == DIGEST_BYTES
    except b64a.B64AError:
        fits = False
    if not fits:
        raise PolicyError(
            f"'{show(module_id)}' is not the identifier of a module",
            rule="040-54",
            hint="it is R, a dot and 43 Base64-Ascend characters",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One side's selector in an exchange: a module checked as such, and the side's index.

    Its origin is not here: setup assigns it, and the plan records it.
    """

    index: int
    module: CheckedProgram
    facet: str = SELECTOR_FACET

    def __post_init__(self) -> None:
        check_index(self.index)
        check_facet(self.facet)
        if self.module.profile != SELECTOR:
            raise PolicyError(
                f"rules checked as a {self.module.profile.name} module are no operand",
                rule="040-54",
                hint="make it with operand_of, which checks them as a selector module",
            )

    @property
    def module_id(self) -> str:
        """The `R.` identifier of the module."""
        return self.module.id

    @property
    def canonical_bytes(self) -> bytes:
        """The canonical text of the module, as it is exchanged: no comments, no final LF."""
        return self.module.canonical.encode("utf-8")

    @property
    def scope(self) -> str:
        """What the names of its predicates begin with once both operands are one program.

        It keeps equal names apart and means nothing else: neither who wrote the rules
        nor what they may see.
        """
        return f"o{self.index}_"


def operand_of(
    rules: Lacegram | CheckedProgram | str | bytes,
    index: int,
    *,
    limits: RuleLimits | None = None,
    name: str | None = None,
) -> Operand:
    r"""Return the operand of one's own rules; a text may be authoring text.

    Rules that were checked as something else are checked again, by their canonical
    text, under their own limits if none are given; rules checked as a selector module are
    taken as they are.

    >>> own = "SelectHave(P) :- Have( P ).\nSelectAdvertised(P,S) :- Advertised(P,S)."
    >>> operand_of(own, 0).module_id
    'R.V3wv7Ug32jVLxA5Q6An85cW~HQfME12J4bJK7MpVBHS'
    """
    check_index(index)
    match rules:
        case Lacegram(program):
            module = program
        case CheckedProgram():
            module = rules
        case _:
            module = check_source(rules, profile=SELECTOR, limits=limits or OWN_LIMITS, name=name)
    if module.profile != SELECTOR:
        raw = module.canonical.encode("utf-8")
        limits, name = limits or module.limits, name or module.source
        module = check_canonical(raw, profile=SELECTOR, limits=limits, name=name)
    return Operand(index=index, module=module)


def receive_operand(
    raw: bytes,
    *,
    index: int,
    module_id: str,
    facet: str,
    limits: RuleLimits = PEER_LIMITS,
    name: str | None = None,
) -> Operand:
    """Return the operand that a peer sent as bytes, under the facet and identifier it gave.

    Nothing is repaired: bytes that are not exactly what canonicalising gives are refused.
    """
    check_index(index)
    check_facet(facet)
    check_module_id(module_id)
    place = Place(name) if name else None
    if not raw:
        raise PolicyError(
            "the operand has no rules",
            rule="040-54",
            place=place,
            hint="an operand defines SelectHave/1 and SelectAdvertised/2",
        )
    most = limits.max_rules * (limits.max_rule_line_bytes + 1)
    if len(raw) > most:
        raise PolicyError(
            f"the operand has {len(raw):,} bytes, more than its rules can have",
            rule="040-54",
            place=place,
            hint=f"the limits are max_rules={limits.max_rules} and "
            f"max_rule_line_bytes={limits.max_rule_line_bytes}",
        )
    module = check_canonical(raw, profile=SELECTOR, limits=limits, name=name)
    if module.id != module_id:
        raise PolicyError(
            f"the operand is {module.id}, not {module_id} as it was called",
            rule="040-54",
            place=place,
            hint="send the very bytes that the identifier was made from",
        )
    return Operand(index=index, module=module)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredFields:
    """The advertised fields that a plan needs: some names, or all there are.

    All fields include every name, so that `names` is empty then.

    >>> RequiredFields(names=frozenset({"App"})).is_met_by({"App", "Group"})
    True
    """

    names: frozenset[str] = frozenset()
    all: bool = False

    def __post_init__(self) -> None:
        if self.all:
            object.__setattr__(self, "names", frozenset())
        for name in self.names:
            _check_field_name(name)

    def union(self, other: RequiredFields) -> RequiredFields:
        """Return what is needed when both are."""
        return RequiredFields(names=self.names | other.names, all=self.all or other.all)

    __or__ = union

    def is_met_by(self, schema: AbstractSet[str] | None) -> bool:
        """Tell whether a negotiated schema gives all that is needed; None is all fields."""
        return schema is None or (not self.all and self.names <= schema)


def _check_field_name(name: str) -> None:
    try:
        check_value(name)
        problem = "a line break" if LINE_BREAK.search(name) else ""
    except LaceError as error:
        problem = error.message
    if problem:
        raise PolicyError(
            f"'{show(name)}' cannot be the name of an advertised field: {show(problem)}",
            rule="040-92",
        )


def advertised_fields(module: CheckedProgram) -> RequiredFields:
    """Return the advertised fields that a module reads: in positive, negated and counted atoms.

    A constant name is needed as such; a variable or `_` there may be any, so needs all.
    """
    names: set[str] = set()
    for rule in module.rules:
        for _, atom in rule.uses():
            if atom.key != _ADVERTISED_FIELD:
                continue
            match atom.terms[_NAME_POSITION]:
                case Constant(name):
                    names.add(name)
                case _:
                    return RequiredFields(all=True)
    return RequiredFields(names=frozenset(names))
